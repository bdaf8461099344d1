//! Conversion of an object to another version of its kind: stored objects have the newest one.

use crate::kinds::Kind;
use crate::object::Object;
use serde_json::{Value, json};

/// Returns the object in this version.
pub fn shown(kind: &Kind, mut object: Object, api_version: &str) -> Object {
    // A subresource such as Scale has a version of its own.
    let is_other_kind = object.kind() != kind.kind;
    if is_other_kind
        || object.api_version() == api_version
        || (kind.custom.is_none() && !kind.also.contains(&api_version))
    {
        return object;
    }
    match api_version {
        "events.k8s.io/v1" => event(&mut object),
        "autoscaling/v1" => autoscaler(&mut object),
        // The versions of a custom resource differ only in `apiVersion`.
        _ => {}
    }
    object.set(&["apiVersion"], api_version);
    object
}

/// Converts to `pkg/apis/events/v1`, with newer names for the core group's fields.
fn event(object: &mut Object) {
    let names = [
        ("involvedObject", "regarding"),
        ("message", "note"),
        ("source", "deprecatedSource"),
        ("firstTimestamp", "deprecatedFirstTimestamp"),
        ("lastTimestamp", "deprecatedLastTimestamp"),
        ("count", "deprecatedCount"),
        ("reportingComponent", "reportingController"),
    ];
    for (old, new) in names {
        if let Some(value) = object.value_at(&[old]).cloned() {
            object.unset(&[old]);
            object.set(&[new], value);
        }
    }
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
    fn objects_are_converted_to_the_requested_version() {
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
