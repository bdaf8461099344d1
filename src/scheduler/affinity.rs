//! Node selectors and node affinity.

use crate::object::Object;
use crate::world::{Row, terms};
use serde_json::Value;

/// Whether a pod asks for some nodes rather than others.
pub fn selects_nodes(pod: &Object) -> bool {
    pod.pairs(&["spec", "nodeSelector"]).next().is_some()
        || pod.value_at(&["spec", "affinity", "nodeAffinity"]).is_some()
}

/// Whether a node satisfies `spec.nodeSelector` and the required node affinity.
pub fn node_matches(pod: &Object, node: &Row) -> bool {
    let selected = pod.pairs(&["spec", "nodeSelector"]).all(|(key, value)| node.label(key) == Some(value));
    selected
        && pod.value_at(&["spec", "affinity", "nodeAffinity"]).is_none_or(|affinity| required_matches(affinity, node))
}

/// Whether a node satisfies the required terms of a node affinity.
pub fn required_matches(affinity: &Value, node: &Row) -> bool {
    terms::any_matches(&affinity["requiredDuringSchedulingIgnoredDuringExecution"], node)
}

/// The nodes that the required terms name, when every term names some (`matchFields` of `metadata.name`).
pub fn named_nodes(pod: &Object) -> Option<Vec<&str>> {
    let required =
        pod.value_at(&["spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"]);
    let mut names = Vec::new();
    for term in required?["nodeSelectorTerms"].as_array()? {
        let by_name = |field: &&Value| field["key"] == "metadata.name" && field["operator"] == "In";
        let field = term["matchFields"].as_array()?.iter().find(by_name)?;
        names.extend(field["values"].as_array()?.iter().filter_map(Value::as_str));
    }
    Some(names)
}

/// Weights of the preferred terms that a node matches, summed: the pod's own, and those that are added to all.
pub fn preference(pod: &Object, added: &Value, node: &Row) -> i64 {
    let own = pod.items(&["spec", "affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution"]);
    let added = added["preferredDuringSchedulingIgnoredDuringExecution"].as_array().into_iter().flatten();
    let weight = |term: &Value| {
        let matches = terms::matches(&term["preference"], node);
        term["weight"].as_i64().filter(|_| matches).unwrap_or(0)
    };
    own.iter().chain(added).map(weight).sum()
}
