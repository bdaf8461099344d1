//! What a pod says to the scheduler in words: pods of one template say the same, and are read once.

use crate::object::{Object, Str};
use serde_json::{Map, Value, json};

/// What the scheduler reads as it is written.
const SPEC: [&str; 7] = [
    "affinity",
    "nodeName",
    "nodeSelector",
    "preemptionPolicy",
    "schedulingGates",
    "tolerations",
    "topologySpreadConstraints",
];

/// The part of a pod that says where it may go and wants to go: of its metadata the namespace, of its spec what the scheduler reads.
/// What it asks for in numbers is in its row.
pub fn wishes(pod: &Object) -> Object {
    let mut spec = Map::new();
    let mut keep = |field: &str, value: Value| spec.insert(field.to_owned(), value);
    for field in SPEC {
        if let Some(value) = pod.at(&["spec", field]) {
            keep(field, value.clone());
        }
    }
    for field in ["initContainers", "containers"] {
        let containers = pod.items(&["spec", field]).iter();
        keep(field, containers.map(|container| json!({"image": container["image"]})).collect());
    }
    let claims = |volume: &&Value| volume["persistentVolumeClaim"].is_object() || volume["ephemeral"].is_object();
    keep("volumes", pod.items(&["spec", "volumes"]).iter().filter(claims).cloned().collect());
    Object(json!({"metadata": {"namespace": pod.namespace()}, "spec": spec}))
}

/// The same as text.
pub(super) fn text(pod: &Object) -> Str {
    wishes(pod).0.to_string().into()
}

/// The ports of its node that a pod takes: address, protocol, number.
pub(super) fn host_ports(pod: &Object) -> Vec<(Str, Str, i64)> {
    let ports = pod.items(&["spec", "containers"]).iter().flat_map(|one| one["ports"].as_array().into_iter().flatten());
    let text = |value: &Value, default: &str| Str::from(value.as_str().unwrap_or(default));
    let port = |port: &Value| {
        let number = port["hostPort"].as_i64().filter(|number| *number > 0)?;
        Some((text(&port["hostIP"], ""), text(&port["protocol"], "TCP"), number))
    };
    ports.filter_map(port).collect()
}
