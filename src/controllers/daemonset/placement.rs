//! Selects the nodes for a DaemonSet's pods, and pins each pod to its node.

use crate::object::Object;
use crate::object::selector::Selector;
use crate::world::Row;
use crate::world::taint::untolerated;
use serde_json::{Value, json};

/// Suitability of a node for a pod of the set.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeFit {
    /// A pod has to run there.
    Run,
    /// A running pod may stay, but a taint keeps new pods away.
    Stay,
    /// No pod may run there.
    Leave,
}

/// Taints that every daemon pod tolerates, since daemon pods run node services.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

/// Adds the tolerations of daemon pods to a pod.
pub(super) fn add_tolerations(mut pod: Object) -> Object {
    let mut tolerations = pod.items(&["spec", "tolerations"]).to_vec();
    let host_network = pod.value_at(&["spec", "hostNetwork"]) == Some(&Value::Bool(true));
    let network = ("node.kubernetes.io/network-unavailable", "NoSchedule");
    for (key, effect) in TOLERATED.into_iter().chain(host_network.then_some(network)) {
        let toleration = json!({ "key": key, "operator": "Exists", "effect": effect });
        if !tolerations.contains(&toleration) {
            tolerations.push(toleration);
        }
    }
    pod.set(&["spec", "tolerations"], tolerations);
    pod
}

/// Adds node affinity to a pod, so that the scheduler can bind it only to this node.
pub(super) fn pin_to_node(mut pod: Object, node: &str) -> Object {
    let term = json!({ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [node] }] });
    let path = ["spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"];
    pod.set(&path, json!({ "nodeSelectorTerms": [term] }));
    pod
}

/// The node that a pod is bound or pinned to. An adopted pod may have neither.
pub(super) fn node_of(pod: &Row) -> Option<String> {
    if let Some(node) = pod.pod().and_then(|pod| pod.node.as_deref()) {
        return Some(node.to_owned());
    }
    let object = pod.object();
    let terms =
        ["spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"];
    let name = object.items(&terms).first().map(|term| &term["matchFields"][0]["values"][0]);
    name.and_then(Value::as_str).map(str::to_owned)
}

/// Whether a pod of the set belongs on a node.
pub(super) fn fit(node: &Row, pod: &Object) -> NodeFit {
    let named = pod.text(&["spec", "nodeName"]).is_none_or(|name| name.is_empty() || name == &*node.key.name);
    if !named || !selected(node, pod) || node.is_deleting() {
        return NodeFit::Leave;
    }
    let tolerations = pod.items(&["spec", "tolerations"]);
    let taints = node.node().map_or(&[][..], |fields| &fields.taints);
    let repels =
        |effect: &str| untolerated(tolerations, taints.iter().filter(|taint| taint.effect == effect)).is_some();
    match (repels("NoExecute"), repels("NoSchedule")) {
        (true, _) => NodeFit::Leave,
        (_, true) => NodeFit::Stay,
        _ => NodeFit::Run,
    }
}

/// Whether node selector and required node affinity allow a node.
fn selected(node: &Row, pod: &Object) -> bool {
    let by_selector = pod.pairs(&["spec", "nodeSelector"]).all(|(key, value)| node.label(key) == Some(value));
    let required = ["spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"];
    let by_affinity = pod.value_at(&required).is_none_or(|required| {
        required["nodeSelectorTerms"].as_array().into_iter().flatten().any(|term| matches(node, term))
    });
    by_selector && by_affinity
}

/// A term without conditions matches nothing.
fn matches(node: &Row, term: &Value) -> bool {
    let has = |name: &str| term[name].as_array().is_some_and(|list| !list.is_empty());
    let hit = |name: &str, get: &dyn Fn(&str) -> Option<String>| {
        !has(name) || term[name].as_array().into_iter().flatten().all(|one| matches_expression(one, get))
    };
    (has("matchExpressions") || has("matchFields"))
        && hit("matchExpressions", &|key| node.label(key).map(str::to_owned))
        && hit("matchFields", &|key| (key == "metadata.name").then(|| node.key.name.to_string()))
}

/// One condition of a node selector; `Gt` and `Lt` compare integers, the others are those of label selectors.
fn matches_expression(one: &Value, get: &dyn Fn(&str) -> Option<String>) -> bool {
    let value = get(one["key"].as_str().unwrap_or_default());
    let wanted = || one["values"][0].as_str().and_then(|text| text.parse::<i64>().ok());
    let number = || value.as_deref().and_then(|text| text.parse::<i64>().ok());
    match one["operator"].as_str() {
        Some("Gt") => number().zip(wanted()).is_some_and(|(number, wanted)| number > wanted),
        Some("Lt") => number().zip(wanted()).is_some_and(|(number, wanted)| number < wanted),
        _ => {
            let selector = Selector::from_label_selector(&json!({ "matchExpressions": [one] }));
            selector.is_ok_and(|selector| selector.matches(|_| value.as_deref()))
        }
    }
}
