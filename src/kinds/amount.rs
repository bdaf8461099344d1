//! Quantities, and numbers that may be percentages.

use super::{FieldErrors, FieldPath, names};
use crate::object::Quantity;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::json;

/// Parses a quantity that was already checked when the body was decoded.
pub fn quantity(text: &Text) -> Quantity {
    Quantity::parse(&text.0).unwrap_or_default()
}

/// Checks that a number is not negative.
pub fn check_not_negative(number: i64, path: &FieldPath, errors: &mut FieldErrors) {
    if number < 0 {
        errors.invalid(path, number, "must be greater than or equal to 0");
    }
}

/// Checks that a value is a percentage or a number that is not negative.
pub fn check_count_or_percent(value: &IntOrString, path: &FieldPath, errors: &mut FieldErrors) {
    match value {
        IntOrString::Int(number) => check_not_negative((*number).into(), path, errors),
        IntOrString::String(text) => errors.each_invalid(path, text.as_str(), names::percent(text)),
    }
}

/// Checks that a percentage is at most 100; accepts every number.
pub fn check_at_most_all(value: &IntOrString, path: &FieldPath, errors: &mut FieldErrors) {
    if percent(value).is_some_and(|percent| percent > 100) {
        errors.invalid(path, json!(value), "must not be greater than 100%");
    }
}

/// The number before the `%`; `None` when the value is not a percentage.
pub fn percent(value: &IntOrString) -> Option<i64> {
    match value {
        IntOrString::String(text) if names::percent(text).is_empty() => text.strip_suffix('%')?.parse().ok(),
        _ => None,
    }
}
