//! The ConfigMaps and Secrets that a running pod follows: its volumes show their current content, and a debug container may wait for one.
//!
//! Never: lists those that are read only when a container starts. A pod that waits for one of those is not ready, and the kubelet makes
//! each pod due that is not ready.
//! Start reading at [`list_followed_names`].

use crate::object::Object;
use serde_json::Value;
use std::collections::BTreeSet;

/// Paths of the fields that are read here.
pub(super) const FIELDS: [&str; 6] = [
    "spec.ephemeralContainers.env.valueFrom",
    "spec.ephemeralContainers.envFrom",
    "spec.volumes.configMap.name",
    "spec.volumes.projected.sources.configMap.name",
    "spec.volumes.projected.sources.secret.name",
    "spec.volumes.secret.secretName",
];

/// Returns their names, each once.
pub(super) fn list_followed_names(pod: &Object) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut keep = |object: &'_ Value, field: &str| {
        names.extend(object.get(field).and_then(Value::as_str).map(str::to_owned));
    };
    for volume in pod.items(&["spec", "volumes"]) {
        keep(&volume["configMap"], "name");
        keep(&volume["secret"], "secretName");
        for source in items(&volume["projected"]["sources"]) {
            keep(&source["configMap"], "name");
            keep(&source["secret"], "name");
        }
    }
    for container in pod.items(&["spec", "ephemeralContainers"]) {
        for variable in items(&container["env"]) {
            keep(&variable["valueFrom"]["configMapKeyRef"], "name");
            keep(&variable["valueFrom"]["secretKeyRef"], "name");
        }
        for source in items(&container["envFrom"]) {
            keep(&source["configMapRef"], "name");
            keep(&source["secretRef"], "name");
        }
    }
    names
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
