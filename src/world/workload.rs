//! The fields that loops search by in kinds that select pods: workloads, Services and disruption budgets.

use crate::kinds::deployment::POD_TEMPLATE_HASH;
use crate::object::selector::Selector;
use crate::object::{Object, Resource};
use serde_json::Value;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Index fields of kinds that select pods.
#[derive(Clone, Debug)]
pub struct WorkloadFields {
    /// `spec.selector`; selects nothing when there is none.
    pub selector: Selector,
    /// `spec.replicas`, 1 when left out.
    pub replicas: i64,
    /// Fingerprint of `spec.template` without the template hash: equal templates have equal ones.
    pub template: u64,
    /// Replica counts of `status`.
    pub counts: ReplicaStatus,
}

/// The counts of a workload's `status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// `replicas`.
    pub replicas: i64,
    /// `readyReplicas`.
    pub ready: i64,
    /// `availableReplicas`.
    pub available: i64,
    /// `terminatingReplicas`.
    pub terminating: i64,
}

/// Whether objects of this resource select pods.
pub fn selects_pods(resource: Resource) -> bool {
    const SELECTING: &[&str] = &[
        "daemonsets.apps",
        "deployments.apps",
        "jobs.batch",
        "poddisruptionbudgets.policy",
        "replicasets.apps",
        "replicationcontrollers",
        "services",
        "statefulsets.apps",
    ];
    SELECTING.binary_search(&resource.0).is_ok()
}

impl WorkloadFields {
    /// The fields of an object that selects pods.
    pub fn from_object(resource: Resource, object: &Object) -> WorkloadFields {
        let count = |name: &str| object.int(&["status", name]).unwrap_or(0);
        WorkloadFields {
            selector: selector(resource, object),
            replicas: object.int(&["spec", "replicas"]).unwrap_or(1),
            template: object.value_at(&["spec", "template"]).map_or(0, fingerprint),
            counts: ReplicaStatus {
                replicas: count("replicas"),
                ready: count("readyReplicas"),
                available: count("availableReplicas"),
                terminating: count("terminatingReplicas"),
            },
        }
    }
}

/// Services and ReplicationControllers select by a plain map, and one that is left out or empty selects nothing.
fn selector(resource: Resource, object: &Object) -> Selector {
    let Some(selector) = object.value_at(&["spec", "selector"]) else { return Selector::nothing() };
    if !matches!(resource.0, "services" | "replicationcontrollers") {
        return Selector::from_label_selector(selector).unwrap_or_else(|_| Selector::nothing());
    }
    let pairs: Vec<(&str, &str)> = object.pairs(&["spec", "selector"]).collect();
    if pairs.is_empty() { Selector::nothing() } else { Selector::from_map(pairs) }
}

/// Fingerprint of a pod template without [`POD_TEMPLATE_HASH`].
pub fn fingerprint(template: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    hash_value(template, &mut hasher);
    hasher.finish()
}

fn hash_value(value: &Value, hasher: &mut DefaultHasher) {
    match value {
        Value::Object(map) => {
            for (key, value) in map.iter().filter(|(key, value)| *key != POD_TEMPLATE_HASH && !value.is_null()) {
                key.hash(hasher);
                hash_value(value, hasher);
            }
            0xFFu8.hash(hasher);
        }
        Value::Array(items) => {
            items.len().hash(hasher);
            items.iter().for_each(|item| hash_value(item, hasher));
        }
        other => other.to_string().hash(hasher),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn templates_are_equal_but_for_their_hash() {
        let plain =
            json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "a:1"}]}});
        let mut hashed = plain.clone();
        hashed["metadata"]["labels"][POD_TEMPLATE_HASH] = "abc".into();
        assert_eq!(fingerprint(&plain), fingerprint(&hashed));
        hashed["spec"]["containers"][0]["image"] = "a:2".into();
        assert_ne!(fingerprint(&plain), fingerprint(&hashed));
        assert_ne!(fingerprint(&json!({"a": {"b": 1}, "c": 2})), fingerprint(&json!({"a": {"b": 1, "c": 2}})));
    }

    #[test]
    fn selectors_by_kind() {
        let fields = |resource, selector: Value| {
            WorkloadFields::from_object(Resource(resource), &Object(json!({"spec": {"selector": selector}}))).selector
        };
        assert_eq!(fields("services", json!({"a": "b"})).to_string(), "a=b");
        assert!(fields("services", json!({})).is_nothing());
        assert_eq!(fields("jobs.batch", json!({"matchLabels": {"a": "b"}})).to_string(), "a=b");
    }
}
