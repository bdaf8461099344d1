//! Conditions of a CertificateSigningRequest: `/approval` decides, `/status` reports the rest.

use super::super::{FieldErrors, FieldPath};
use crate::object::{Object, Time, time};
use serde_json::Value;
use std::collections::BTreeSet;

/// Types of the conditions that only `/approval` may set.
const DECISIONS: [&str; 2] = ["Approved", "Denied"];

/// Types of conditions that are never removed and are always True.
const FINAL: [&str; 3] = ["Approved", "Denied", "Failed"];

/// The status that a write of `/approval` leaves: the stored one with the conditions of the body.
pub fn approval_status(body_status: Option<&Value>, old: &Object, now: Time) -> Value {
    let mut status = old.value_at(&["status"]).cloned().unwrap_or_default();
    let conditions = body_status.and_then(|status| status.get("conditions")).cloned();
    set_conditions(&mut status, conditions, old, now);
    status
}

/// The status after a write of `/status`: that of the body, with the stored approval or denial.
pub fn reported_status(mut status: Value, old: &Object, now: Time) -> Value {
    let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    for decision in DECISIONS {
        let mut stored = conditions_of_type(old, decision).cloned();
        // The stored condition replaces the new one; without a stored condition the new one is dropped.
        conditions = conditions
            .into_iter()
            .filter_map(|one| if one["type"] == decision { stored.next() } else { Some(one) })
            .collect();
        conditions.extend(stored);
    }
    let conditions = (!conditions.is_empty()).then(|| conditions.into());
    set_conditions(&mut status, conditions, old, now);
    status
}

fn conditions_of_type<'a>(object: &'a Object, condition_type: &'a str) -> impl Iterator<Item = &'a Value> {
    object.items(&["status", "conditions"]).iter().filter(move |one| one["type"] == condition_type)
}

/// Sets the conditions with the times that their writer left out.
fn set_conditions(status: &mut Value, conditions: Option<Value>, old: &Object, now: Time) {
    if !status.is_object() {
        *status = Value::Object(Default::default());
    }
    let Some(mut conditions) = conditions else {
        status.as_object_mut().map(|status| status.remove("conditions"));
        return;
    };
    for condition in conditions.as_array_mut().into_iter().flatten().filter(|condition| condition.is_object()) {
        if condition["lastUpdateTime"].is_null() {
            condition["lastUpdateTime"] = time::rfc3339(now).into();
        }
        if condition["lastTransitionTime"].is_null() {
            let same = |known: &&Value| known["type"] == condition["type"] && known["status"] == condition["status"];
            let known = old.items(&["status", "conditions"]).iter().find(same);
            let since = known.map(|known| known["lastTransitionTime"].clone()).filter(|since| !since.is_null());
            condition["lastTransitionTime"] = since.unwrap_or_else(|| time::rfc3339(now).into());
        }
    }
    status["conditions"] = conditions;
}

/// Checks the conditions of a changed request.
pub fn check_conditions(new: &Object, old: &Object, errors: &mut FieldErrors) {
    let path = FieldPath::root("status").child("conditions");
    let conditions = new.items(&["status", "conditions"]);
    let mut earlier = BTreeSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.index(index);
        let text = |field: &str| condition[field].as_str().unwrap_or_default();
        let (condition_type, status) = (text("type"), text("status"));
        let statuses: &[&str] = match condition_type {
            final_type if FINAL.contains(&final_type) => &["True"],
            _ => &["True", "False", "Unknown"],
        };
        if condition_type.is_empty() {
            errors.required(&path.child("type"), "");
        }
        if status.is_empty() {
            errors.required(&path.child("status"), "");
        } else if !statuses.contains(&status) {
            errors.unsupported(&path.child("status"), status, statuses);
        }
        let excludes = |a: &str, b: &str| condition_type == a && earlier.contains(b);
        if excludes("Approved", "Denied") || excludes("Denied", "Approved") {
            let detail = "Approved and Denied conditions are mutually exclusive";
            errors.invalid(&path.child("type"), condition_type, detail);
        }
        if !earlier.insert(condition_type) && !condition_type.is_empty() {
            errors.duplicate(&path.child("type"), condition_type);
        }
    }
    for kept in FINAL {
        if conditions_of_type(new, kept).count() < conditions_of_type(old, kept).count() {
            errors.forbidden(&path, &format!("updates may not remove a condition of type {kept:?}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn request(conditions: Value) -> Object {
        Object(json!({"metadata": {"name": "a"}, "status": {"certificate": "x", "conditions": conditions}}))
    }

    fn complaints(new: Value, old: Value) -> Vec<String> {
        let mut errors = FieldErrors::default();
        check_conditions(&request(new), &request(old), &mut errors);
        errors.0.into_iter().map(|error| format!("{}: {}", error.field, error.message)).collect()
    }

    #[test]
    fn approval_changes_conditions_alone_and_dates_them() {
        let old = request(json!([]));
        let body = json!({"certificate": "y", "conditions": [{"type": "Approved", "status": "True"}]});
        let dated = json!([{
            "type": "Approved", "status": "True",
            "lastUpdateTime": "1970-01-01T00:00:00Z", "lastTransitionTime": "1970-01-01T00:00:00Z",
        }]);
        let status = approval_status(Some(&body), &old, Time::default());
        assert_eq!(status, json!({"certificate": "x", "conditions": dated}));
    }

    #[test]
    fn written_status_keeps_the_decision() {
        let approved = json!({"type": "Approved", "status": "True", "lastUpdateTime": "a", "lastTransitionTime": "b"});
        let other = json!({"type": "Other", "status": "False", "lastUpdateTime": "a", "lastTransitionTime": "b"});
        let old = request(json!([approved]));
        let status = |body: Value| reported_status(body, &old, Time::default())["conditions"].clone();
        assert_eq!(status(json!({})), json!([approved]));
        assert_eq!(status(json!({"conditions": [other]})), json!([other, approved]));
        let denied = json!({"type": "Denied", "status": "True"});
        let forged = json!({"type": "Approved", "status": "True", "reason": "me"});
        assert_eq!(status(json!({"conditions": [denied, forged, other]})), json!([approved, other]));
    }

    #[test]
    fn conditions_are_checked() {
        let condition = |name: &str, status: &str| json!({"type": name, "status": status});
        let (approved, denied) = (condition("Approved", "True"), condition("Denied", "True"));
        assert!(complaints(json!([approved, condition("Other", "False")]), json!([approved])).is_empty());
        assert_eq!(
            complaints(json!([denied, approved, denied, {}, condition("Failed", "False")]), json!([])),
            [
                "status.conditions[1].type: Invalid value: \"Approved\": Approved and Denied conditions are mutually exclusive",
                "status.conditions[2].type: Invalid value: \"Denied\": Approved and Denied conditions are mutually exclusive",
                "status.conditions[2].type: Duplicate value: \"Denied\"",
                "status.conditions[3].type: Required value",
                "status.conditions[3].status: Required value",
                "status.conditions[4].status: Unsupported value: \"False\": supported values: \"True\"",
            ]
        );
        let removed = "status.conditions: Forbidden: updates may not remove a condition of type \"Approved\"";
        assert_eq!(complaints(json!([]), json!([approved])), [removed]);
    }
}
