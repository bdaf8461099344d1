//! Node selector terms, as pods' node affinity and volumes have them.

use super::Row;
use serde_json::Value;

/// Whether a node matches any term of a node selector; a selector without terms matches every node.
pub fn any_matches(selector: &Value, node: &Row) -> bool {
    let Some(terms) = selector["nodeSelectorTerms"].as_array() else { return true };
    terms.iter().any(|term| matches(term, node))
}

/// Whether a node matches a term. A term with no expressions matches nothing.
pub fn matches(term: &Value, node: &Row) -> bool {
    let list = |field: &str| term[field].as_array().map_or(&[][..], Vec::as_slice);
    let (labels, fields) = (list("matchExpressions"), list("matchFields"));
    let by_label = |one: &Value| holds(one, node.label(one["key"].as_str().unwrap_or_default()));
    let by_field = |one: &Value| holds(one, (one["key"] == "metadata.name").then_some(&*node.key.name));
    !(labels.is_empty() && fields.is_empty()) && labels.iter().all(by_label) && fields.iter().all(by_field)
}

fn holds(requirement: &Value, actual: Option<&str>) -> bool {
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
