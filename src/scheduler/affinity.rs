//! Node selectors and node affinity.

use crate::object::Object;
use crate::world::Row;
use serde_json::Value;

/// Whether a pod asks for some nodes rather than others.
pub fn is_picky(pod: &Object) -> bool {
    pod.pairs(&["spec", "nodeSelector"]).next().is_some() || pod.at(&["spec", "affinity", "nodeAffinity"]).is_some()
}

/// Whether a node satisfies `spec.nodeSelector` and the required node affinity.
pub fn node_matches(pod: &Object, node: &Row) -> bool {
    let selected = pod.pairs(&["spec", "nodeSelector"]).all(|(key, value)| node.label(key) == Some(value));
    selected && pod.at(&["spec", "affinity", "nodeAffinity"]).is_none_or(|affinity| required_matches(affinity, node))
}

/// Whether a node satisfies what a node affinity requires.
pub fn required_matches(affinity: &Value, node: &Row) -> bool {
    let required = &affinity["requiredDuringSchedulingIgnoredDuringExecution"];
    let Some(terms) = required["nodeSelectorTerms"].as_array() else { return true };
    terms.iter().any(|term| term_matches(term, node))
}

/// The nodes that the required terms name, when every term names some (`matchFields` of `metadata.name`).
pub fn named_nodes(pod: &Object) -> Option<Vec<&str>> {
    let required = pod.at(&["spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"]);
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
        let matches = term_matches(&term["preference"], node);
        term["weight"].as_i64().filter(|_| matches).unwrap_or(0)
    };
    own.iter().chain(added).map(weight).sum()
}

/// A term with no expressions matches nothing.
fn term_matches(term: &Value, node: &Row) -> bool {
    let list = |field: &str| term[field].as_array().map_or(&[][..], Vec::as_slice);
    let (labels, fields) = (list("matchExpressions"), list("matchFields"));
    let by_label = |one: &Value| matches(one, node.label(one["key"].as_str().unwrap_or_default()));
    let by_field = |one: &Value| matches(one, (one["key"] == "metadata.name").then_some(&*node.key.name));
    !(labels.is_empty() && fields.is_empty()) && labels.iter().all(by_label) && fields.iter().all(by_field)
}

fn matches(requirement: &Value, actual: Option<&str>) -> bool {
    let values = requirement["values"].as_array().map_or(&[][..], Vec::as_slice);
    let listed = actual.is_some_and(|actual| values.iter().any(|value| value == actual));
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
    let (ours, bound) = (number(actual), number(values.first().and_then(Value::as_str)));
    match requirement["operator"].as_str() {
        Some("In") => listed,
        Some("NotIn") => !listed,
        Some("Exists") => actual.is_some(),
        Some("DoesNotExist") => actual.is_none(),
        Some("Gt") => ours.zip(bound).is_some_and(|(ours, bound)| ours > bound),
        Some("Lt") => ours.zip(bound).is_some_and(|(ours, bound)| ours < bound),
        _ => false,
    }
}
