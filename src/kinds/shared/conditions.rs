//! Conditions of the shared type `metav1.Condition` (`ValidateConditions`).

use super::super::{FieldErrors, FieldPath};
use super::{names, omit};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use std::collections::BTreeSet;

const MAX_REASON_BYTES: usize = 1024;
const MAX_MESSAGE_BYTES: usize = 32 * 1024;

/// Checks the conditions of a status.
pub fn check_conditions(conditions: &[Condition], path: &FieldPath, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.index(index);
        if !seen.insert(condition.type_.as_str()) {
            errors.duplicate(&path.child("type"), condition.type_.as_str());
        }
        check_condition(condition, &path, errors);
    }
}

fn check_condition(condition: &Condition, path: &FieldPath, errors: &mut FieldErrors) {
    let name = condition.type_.as_str();
    errors.each_invalid(&path.child("type"), name, names::qualified(name));
    match condition.status.as_str() {
        "True" | "False" | "Unknown" => {}
        other => errors.unsupported(&path.child("status"), other, &["False", "True", "Unknown"]),
    }
    if let Some(generation) = condition.observed_generation.filter(|generation| *generation < 0) {
        errors.invalid(&path.child("observedGeneration"), generation, "must be greater than or equal to zero");
    }
    if condition.last_transition_time.0 <= zero_time() {
        errors.required(&path.child("lastTransitionTime"), "");
    }
    check_reason(&condition.reason, &path.child("reason"), errors);
    if condition.message.len() > MAX_MESSAGE_BYTES {
        errors.too_long(&path.child("message"), MAX_MESSAGE_BYTES);
    }
}

/// Go's zero time.
fn zero_time() -> jiff::Timestamp {
    omit::ZERO_TIME.parse().unwrap_or(jiff::Timestamp::MIN)
}

fn check_reason(reason: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if reason.is_empty() {
        return errors.required(path, "");
    }
    errors.each_invalid(path, reason, names::condition_reason(reason));
    if reason.len() > MAX_REASON_BYTES {
        errors.too_long(path, MAX_REASON_BYTES);
    }
}
