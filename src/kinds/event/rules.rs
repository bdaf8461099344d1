//! Rules of Events that depend on the version that they are written in (Kubernetes: `pkg/apis/core/validation/events.go`).
//!
//! Knows: that `events.k8s.io/v1` is strict, and that `v1` checks only the fields of an Event with an `eventTime`, as clients of the
//! newer group write them. Errors name the fields of the core group, as Kubernetes does.

use crate::kinds::shared::names;
use crate::kinds::{FieldError, FieldErrors, FieldPath};
use crate::object::Object;
use serde_json::Value;

/// The version that clients of the newer group use.
const EVENTS_V1: &str = "events.k8s.io/v1";
/// Longest reporting instance, action and reason, in bytes.
const MAX_WORD: usize = 128;
/// Longest message, in bytes.
const MAX_MESSAGE: usize = 1024;

/// Fields that an update through the newer group may not change.
const FIXED: [&str; 13] = [
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "type",
    "eventTime",
    "action",
    "related",
    "reportingComponent",
    "reportingInstance",
];

/// Checks an Event that a client wrote in this version.
pub fn validate_version(api_version: &str, event: &Object, old: Option<&Object>) -> Vec<FieldError> {
    let mut errors = FieldErrors::default();
    let is_strict = api_version == EVENTS_V1;
    if has_time(event) {
        check_named_fields(event, if is_strict { "reportingController" } else { "reportingComponent" }, &mut errors);
    }
    match old {
        _ if !is_strict => {}
        None => check_create(event, &mut errors),
        Some(old) => check_update(event, old, &mut errors),
    }
    errors.0
}

fn has_time(event: &Object) -> bool {
    event.text(&["eventTime"]).is_some()
}

/// Checks the fields that clients of the newer group fill in.
fn check_named_fields(event: &Object, controller_field: &str, errors: &mut FieldErrors) {
    let text = |field: &str| event.text(&[field]).unwrap_or_default().to_owned();
    let controller = FieldPath::root(controller_field);
    let name = text("reportingComponent");
    if name.is_empty() {
        errors.required(&controller, "");
    }
    errors.each_invalid(&controller, name.as_str(), names::qualified(&name));
    for field in ["reportingInstance", "action", "reason"] {
        if text(field).is_empty() {
            errors.required(&FieldPath::root(field), "");
        }
        check_length(field, &text(field), MAX_WORD, errors);
    }
    check_length("message", &text("message"), MAX_MESSAGE, errors);
}

fn check_length(field: &str, text: &str, max: usize, errors: &mut FieldErrors) {
    if text.len() > max {
        errors.invalid(&FieldPath::root(field), "", &format!("can have at most {max} characters"));
    }
}

fn check_create(event: &Object, errors: &mut FieldErrors) {
    let name = FieldPath::root("metadata").child("name");
    errors.each_invalid(&name, event.name(), names::subdomain(event.name()));
    check_series(event, errors);
    if !has_time(event) {
        errors.required(&FieldPath::root("eventTime"), "");
    }
    let kind = event.text(&["type"]).unwrap_or_default();
    if !matches!(kind, "Normal" | "Warning") {
        errors.invalid(&FieldPath::root("type"), "", &format!("has invalid value: {kind}"));
    }
    let has_source =
        ["component", "host"].iter().any(|part| event.text(&["source", part]).is_some_and(|text| !text.is_empty()));
    let deprecated = [
        ("firstTimestamp", event.text(&["firstTimestamp"]).is_some()),
        ("lastTimestamp", event.text(&["lastTimestamp"]).is_some()),
        ("count", event.int(&["count"]).unwrap_or(0) != 0),
        ("source", has_source),
    ];
    for (field, _) in deprecated.into_iter().filter(|(_, is_set)| *is_set) {
        errors.invalid(&FieldPath::root(field), "", "needs to be unset");
    }
}

fn check_update(event: &Object, old: &Object, errors: &mut FieldErrors) {
    let value = |object: &Object, field: &str| object.value_at(&[field]).cloned().unwrap_or_default();
    if value(event, "series") != value(old, "series") {
        check_series(event, errors);
    }
    for field in FIXED {
        let path = FieldPath::root(if field == "reportingComponent" { "reportingController" } else { field });
        errors.immutable(&path, &value(event, field), &value(old, field));
    }
}

/// A series has at least two events, and the time of the last one.
fn check_series(event: &Object, errors: &mut FieldErrors) {
    let Some(series) = event.value_at(&["series"]).filter(|series| series.is_object()) else { return };
    if series["count"].as_i64().unwrap_or(0) < 2 {
        errors.invalid(&FieldPath::root("series.count"), "", "should be at least 2");
    }
    if series.get("lastObservedTime").is_none_or(Value::is_null) {
        errors.required(&FieldPath::root("series.lastObservedTime"), "");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(change: Value) -> Object {
        let mut event = json!({
            "metadata": {"name": "e", "namespace": "default"}, "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal",
            "reportingComponent": "example.com/x", "reportingInstance": "i", "action": "Act", "reason": "Why", "message": "m",
        });
        json_patch::merge(&mut event, &change);
        Object(event)
    }

    fn problems(api_version: &str, change: Value) -> String {
        let errors = validate_version(api_version, &event(change), None);
        errors.iter().map(|error| format!("{}: {}", error.field, error.message)).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn newer_group_is_strict_on_create() {
        let cases = [
            (json!({}), ""),
            (json!({"eventTime": null}), "eventTime: Required value"),
            (json!({"type": "Odd"}), "type: Invalid value: \"\": has invalid value: Odd"),
            (
                json!({"reportingComponent": ""}),
                "reportingController: Required value; reportingController: Invalid value: \"\": name part must be non-empty; reportingController: Invalid value: \"\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
            ),
            (json!({"reportingInstance": ""}), "reportingInstance: Required value"),
            (json!({"action": "x".repeat(129)}), "action: Invalid value: \"\": can have at most 128 characters"),
            (json!({"message": "x".repeat(1025)}), "message: Invalid value: \"\": can have at most 1024 characters"),
            (json!({"count": 1}), "count: Invalid value: \"\": needs to be unset"),
            (json!({"source": {"host": "h"}}), "source: Invalid value: \"\": needs to be unset"),
            (
                json!({"series": {"count": 1}}),
                "series.count: Invalid value: \"\": should be at least 2; series.lastObservedTime: Required value",
            ),
        ];
        for (change, expected) in cases {
            assert_eq!(problems(EVENTS_V1, change.clone()), expected, "{change}");
        }
    }

    #[test]
    fn core_group_checks_only_events_with_a_time() {
        assert_eq!(problems("v1", json!({"eventTime": null, "type": "Odd", "action": ""})), "");
        assert_eq!(problems("v1", json!({"type": "Odd", "action": ""})), "action: Required value");
        assert!(problems("v1", json!({"reportingComponent": "a b"})).starts_with("reportingComponent: Invalid value"));
    }

    #[test]
    fn newer_group_changes_only_the_series() {
        let old = event(json!({}));
        let update = |change: Value| validate_version(EVENTS_V1, &event(change), Some(&old));
        let series = json!({"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"});
        assert_eq!(update(json!({"series": series})), []);
        let errors = update(json!({"message": "other"}));
        assert_eq!((errors.len(), &*errors[0].field), (1, "message"));
        assert_eq!(errors[0].message, "Invalid value: \"other\": field is immutable");
        assert_eq!(validate_version("v1", &event(json!({"message": "other"})), Some(&old)), []);
    }
}
