//! Quantities, and numbers that may be percentages.

use super::super::{FieldErrors, FieldPath};
use super::names;
use crate::object::Quantity;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::json;
use std::collections::BTreeMap;

/// Parses a quantity that was already checked when the body was decoded.
pub fn quantity(text: &Text) -> Quantity {
    Quantity::parse(&text.0).unwrap_or_default()
}

/// Rounds amounts up to thousandths, the smallest parts that Kubernetes keeps in resource lists.
pub fn round_up(amounts: &mut Option<BTreeMap<String, Text>>) {
    for amount in amounts.iter_mut().flatten().map(|(_, amount)| amount) {
        let exact = quantity(amount);
        let rounded = Quantity::from_milli(exact.milli());
        // Keeps an amount that is too large for 64 bits of thousandths.
        if rounded != exact && exact.milli().abs() < i64::MAX {
            *amount = Text(rounded.to_string());
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_whole_thousandths() {
        let cases = [
            ("1n", "1m"),
            ("0.5m", "1m"),
            ("1500u", "2m"),
            ("500m", "500m"),
            ("1.5Gi", "1.5Gi"),
            ("9E", "9E"),
            ("1", "1"),
        ];
        for (text, expected) in cases {
            let mut amounts = Some(BTreeMap::from([("cpu".to_owned(), Text(text.to_owned()))]));
            round_up(&mut amounts);
            assert_eq!(amounts.unwrap()["cpu"].0, expected, "{text}");
        }
    }
}
