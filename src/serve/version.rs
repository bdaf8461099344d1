//! Conversion of an object to another version of its kind: stored objects have the newest one.

use crate::kinds::Kind;
use crate::kinds::event::{EVENTS_GROUP, RENAMED, to_events_group};
use crate::object::Object;
use serde_json::{Value, json};

/// Returns the object in this version.
pub fn shown(kind: &Kind, mut object: Object, api_version: &str) -> Object {
    // A subresource such as Scale has a version of its own.
    let is_other_kind = object.kind() != kind.kind;
    if is_other_kind
        || kind.custom.is_some_and(|custom| custom.conversion.is_some())
        || object.api_version() == api_version
        || (kind.custom.is_none() && !kind.also.contains(&api_version))
    {
        return object;
    }
    match api_version {
        EVENTS_GROUP => object.0 = to_events_group(&object.0),
        "autoscaling/v1" => autoscaler(&mut object),
        _ => {}
    }
    if let Some(custom) = kind.custom {
        custom.relabel(&mut object, api_version);
    }
    object.set(&["apiVersion"], api_version);
    object
}

/// The name in the stored version of a field that is selected by in this version. `None` where this version has no such field.
pub fn stored_field(api_version: &str, field: &str) -> Option<String> {
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

/// Converts to `pkg/apis/autoscaling/v1`, which only has the CPU metric.
fn autoscaler(object: &mut Object) {
    let find = |object: &Object, part: &str, list: &str, value: &str| -> Option<Value> {
        let metrics = object.items(&[part, list]).iter();
        let resource = metrics.map(|metric| &metric["resource"]).find(|resource| resource["name"] == "cpu")?;
        resource[value]["averageUtilization"].as_i64().map(Value::from)
    };
    if let Some(target) = find(object, "spec", "metrics", "target") {
        object.set(&["spec", "targetCPUUtilizationPercentage"], target);
    }
    if let Some(current) = find(object, "status", "currentMetrics", "current") {
        object.set(&["status", "currentCPUUtilizationPercentage"], current);
    }
    for path in [["spec", "metrics"], ["spec", "behavior"], ["status", "currentMetrics"], ["status", "conditions"]] {
        object.unset(&path);
    }
    if object.value_at(&["status"]).is_none() {
        object.set(&["status"], json!({}));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;

    #[test]
    fn selected_fields_of_events_have_the_names_of_their_version() {
        let fields =
            ["regarding.fieldPath", "reportingController", "reason", "source", "involvedObject.name", "metadata.name"];
        let newer = ["involvedObject.fieldPath", "reportingComponent", "reason", "source", "-", "metadata.name"];
        let stored = |version: &str| fields.map(|field| stored_field(version, field).unwrap_or("-".into()));
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
