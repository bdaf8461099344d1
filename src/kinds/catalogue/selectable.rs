//! Fields that field selectors accept, and their values.

use super::super::Kind;
use crate::object::Object;
use serde_json::Value;

/// The value of a field for a field selector, empty when unset; `None` when field selectors do not support the field.
pub fn selectable(kind: &Kind, object: &Object, field: &str) -> Option<String> {
    if !is_selectable(kind, field) {
        return None;
    }
    Some(match (kind.resource.0, field) {
        ("events", "source") => {
            let component = text(object, "source.component");
            if component.is_empty() { text(object, "reportingComponent") } else { component }
        }
        ("nodes", "spec.unschedulable") | ("pods", "spec.hostNetwork") => match text(object, field) {
            unset if unset.is_empty() => "false".to_owned(),
            set => set,
        },
        ("jobs.batch", "status.successful") => number(object, "status.succeeded"),
        ("replicasets.apps" | "replicationcontrollers", "status.replicas") => number(object, field),
        ("pods", "status.podIPs") => {
            let items = object.items(&["status", "podIPs"]);
            let addresses: Vec<&str> = items.iter().filter_map(|item| item["ip"].as_str()).collect();
            addresses.join(",")
        }
        _ => text(object, field),
    })
}

/// Whether field selectors of a kind support a field.
pub fn is_selectable(kind: &Kind, field: &str) -> bool {
    let declared = || kind.custom.is_some_and(|custom| custom.is_selectable(field));
    matches!(field, "metadata.name" | "metadata.namespace") || kind.selectable.contains(&field) || declared()
}

fn text(object: &Object, field: &str) -> String {
    let path: Vec<&str> = field.split('.').collect();
    match object.value_at(&path) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

fn number(object: &Object, field: &str) -> String {
    match text(object, field) {
        unset if unset.is_empty() => "0".to_owned(),
        set => set,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectable_fields_have_values() {
        let pod =
            Object(json!({"metadata": {"name": "a"}, "spec": {"nodeName": "n"}, "status": {"podIPs": [{"ip": "1"}]}}));
        let cases = [
            ("pods", "metadata.name", Some("a")),
            ("pods", "metadata.namespace", Some("")),
            ("pods", "spec.nodeName", Some("n")),
            ("pods", "spec.hostNetwork", Some("false")),
            ("pods", "status.podIPs", Some("1")),
            ("pods", "status.phase", Some("")),
            ("pods", "spec.nope", None),
            ("jobs.batch", "status.successful", Some("0")),
            ("deployments.apps", "spec.nodeName", None),
        ];
        for (resource, field, value) in cases {
            let kind = super::super::super::by_name(resource).expect("a kind");
            assert_eq!(selectable(kind, &pod, field).as_deref(), value, "{resource} {field}");
        }
    }
}
