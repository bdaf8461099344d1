//! Queries of a description about other objects.

use super::body::BodyRead;
use crate::object::selector::Selector;
use crate::object::{Object, Time};
use serde_json::Value;

/// Access to other objects for a description. The caller implements it over the store or a World.
pub trait RelatedObjects {
    /// The objects of a resource such as `pods` in a namespace, or in all namespaces when it is empty.
    fn list(&self, resource: &str, namespace: &str) -> Vec<Object>;

    /// One object of a resource.
    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Object>;

    /// The current time, for ages.
    fn now(&self) -> Time;

    /// Describes how the CPU limit throttles a running container; `None` when it does not, or when it is unknown.
    fn throttled(&self, _pod: &Object, _container: &str) -> Option<String> {
        None
    }

    /// The process id of a running container on this machine; `None` when it does not run here.
    fn process_id(&self, _pod: &Object, _container: &str) -> Option<i32> {
        None
    }

    /// Whether the description includes events (`--show-events`).
    fn show_events(&self) -> bool {
        true
    }
}

/// The numbers of a controller's pods that are Running, Pending, Succeeded and Failed.
pub fn pod_counts(owner: &Object, label_selector: &Value, related: &dyn RelatedObjects) -> [usize; 4] {
    let pods = related.list("pods", owner.namespace());
    let selector = selector(label_selector);
    let owned = |pod: &&Object| pod.controller().is_some_and(|controller| controller.uid == owner.uid());
    let mine = pods.iter().filter(|pod| selector.matches(|key| pod.label(key))).filter(owned);
    let mut counts = [0; 4];
    for pod in mine {
        let at = match pod.0.text("status.phase") {
            "Running" => 0,
            "Pending" => 1,
            "Succeeded" => 2,
            "Failed" => 3,
            _ => continue,
        };
        counts[at] += 1;
    }
    counts
}

/// Formats the numbers as `1 Running / 0 Waiting / 0 Succeeded / 0 Failed`.
pub fn pods_status(owner: &Object, label_selector: &Value, related: &dyn RelatedObjects) -> String {
    let [running, waiting, succeeded, failed] = pod_counts(owner, label_selector, related);
    format!("{running} Running / {waiting} Waiting / {succeeded} Succeeded / {failed} Failed")
}

/// The object's controller, such as `ReplicaSet/web`.
pub fn controlled_by(object: &Object) -> Option<String> {
    object.controller().map(|owner| format!("{}/{}", owner.kind, owner.name))
}

/// Compiles a `LabelSelector`; a malformed one selects nothing.
pub fn selector(label_selector: &Value) -> Selector {
    Selector::from_label_selector(label_selector).unwrap_or_else(|_| Selector::nothing())
}
