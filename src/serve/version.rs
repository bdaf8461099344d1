//! Conversion of an object to another version of its kind: stored objects have the newest one.

use crate::kinds::Kind;
use crate::kinds::custom::CustomDefinition;
use crate::kinds::event::{EVENTS_GROUP, RENAMED};
use crate::object::Object;

/// Returns the object in this version.
pub fn shown(kind: &Kind, mut object: Object, api_version: &str) -> Object {
    let Some(custom) = kind.custom else { return kind.to_version(object, api_version) };
    // A subresource such as Scale has a version of its own, and a webhook has converted objects that need one.
    if object.kind() == kind.kind && custom.conversion.is_none() {
        custom.relabel(&mut object, api_version);
    }
    object
}

/// The name in the stored version of a field that is selected by in this version. `None` where this version has no such field.
pub fn stored_field(kind: &Kind, api_version: &str, field: &str) -> Option<String> {
    // Each version of a custom resource declares its own fields.
    let is_of_other_version =
        |custom: &CustomDefinition| custom.is_selectable(field) && !custom.is_selectable_in(api_version, field);
    if kind.custom.is_some_and(is_of_other_version) {
        return None;
    }
    let (first, rest) = field.split_once('.').map_or((field, None), |(first, rest)| (first, Some(rest)));
    // A component is selected by `source` in both versions.
    if api_version != EVENTS_GROUP || field == "source" {
        return Some(field.to_owned());
    }
    let stored = match RENAMED.iter().find(|(theirs, ours)| first == *theirs || first == *ours) {
        Some((theirs, ours)) => (first == *theirs).then_some(*ours)?,
        None => first,
    };
    Some(rest.map_or_else(|| stored.to_owned(), |rest| format!("{stored}.{rest}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;
    use serde_json::json;

    #[test]
    fn selected_fields_of_events_have_the_names_of_their_version() {
        let fields =
            ["regarding.fieldPath", "reportingController", "reason", "source", "involvedObject.name", "metadata.name"];
        let newer = ["involvedObject.fieldPath", "reportingComponent", "reason", "source", "-", "metadata.name"];
        let stored =
            |version: &str| fields.map(|field| stored_field(&kinds::event::KIND, version, field).unwrap_or("-".into()));
        assert_eq!(stored("events.k8s.io/v1"), newer);
        assert_eq!(stored("v1"), fields);
    }

    #[test]
    fn older_and_newer_versions() {
        let event =
            json!({"apiVersion": "v1", "kind": "Event", "involvedObject": {"name": "p"}, "message": "m", "count": 2});
        let shown_event = shown(&kinds::event::KIND, Object(event), "events.k8s.io/v1");
        let expected = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "regarding": {"name": "p"}, "note": "m", "deprecatedCount": 2});
        assert_eq!(shown_event.0, expected);
        let metric = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}});
        let scaler = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "spec": {"maxReplicas": 3, "metrics": [metric]}});
        let shown_scaler = shown(&kinds::horizontal_pod_autoscaler::KIND, Object(scaler), "autoscaling/v1");
        assert_eq!(shown_scaler.0["spec"], json!({"maxReplicas": 3, "targetCPUUtilizationPercentage": 80}));
    }
}
