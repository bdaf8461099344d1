//! Checks of label selectors and node selectors.

use super::super::{FieldErrors, FieldPath};
use super::{metadata, names};
use crate::object::Selector;
use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::json;
use std::collections::BTreeMap;

const VALUES_NEEDED: &str = "must be specified when `operator` is 'In' or 'NotIn'";
const VALUES_UNWANTED: &str = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
const NO_OPERATOR: &str = "not a valid selector operator";

/// Checks a label selector's keys, operators and values.
pub fn check(selector: &LabelSelector, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(labels) = &selector.match_labels {
        metadata::check_labels(labels, &path.child("matchLabels"), errors);
    }
    for (index, expression) in selector.match_expressions.iter().flatten().enumerate() {
        let path = path.child("matchExpressions").index(index);
        let values = expression.values.as_deref().unwrap_or_default();
        match expression.operator.as_str() {
            "In" | "NotIn" if values.is_empty() => errors.required(&path.child("values"), VALUES_NEEDED),
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.forbidden(&path.child("values"), VALUES_UNWANTED),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.invalid(&path.child("operator"), other, NO_OPERATOR),
        }
        errors.each_invalid(&path.child("key"), expression.key.as_str(), names::qualified(&expression.key));
        for (index, value) in values.iter().enumerate() {
            errors.each_invalid(&path.child("values").index(index), value.as_str(), names::label_value(value));
        }
    }
}

/// Whether a selector has no requirements.
pub fn is_empty(selector: &LabelSelector) -> bool {
    selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
}

/// Compiles a selector; `None` when it is malformed.
pub fn ready(selector: &LabelSelector) -> Option<Selector> {
    Selector::from_label_selector(&serde_json::to_value(selector).ok()?).ok()
}

/// Prints a selector as Go does, with labels before expressions.
pub fn text(selector: &LabelSelector) -> String {
    let value = serde_json::to_value(selector).unwrap_or_default();
    let part = |name: &str| value.get(name).map(|part| format!("{}:{part}", json!(name)));
    let parts: Vec<String> = ["matchLabels", "matchExpressions"].into_iter().filter_map(part).collect();
    format!("{{{}}}", parts.join(","))
}

/// Checks a node selector.
pub fn check_nodes(selector: &NodeSelector, path: &FieldPath, errors: &mut FieldErrors) {
    let path = path.child("nodeSelectorTerms");
    if selector.node_selector_terms.is_empty() {
        errors.required(&path, "must have at least one node selector term");
    }
    for (index, term) in selector.node_selector_terms.iter().enumerate() {
        check_node_term(term, Values::OfLabels, &path.index(index), errors);
    }
}

/// Rule for the values in a node selector term.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// Only valid label values.
    OfLabels,
    /// Any text: Kubernetes does not check the values of preferred terms.
    Any,
}

/// Checks one term: expressions for labels and for the node's name.
pub fn check_node_term(term: &NodeSelectorTerm, values: Values, path: &FieldPath, errors: &mut FieldErrors) {
    for (index, requirement) in term.match_expressions.iter().flatten().enumerate() {
        check_node_label(requirement, values, &path.child("matchExpressions").index(index), errors);
    }
    for (index, requirement) in term.match_fields.iter().flatten().enumerate() {
        check_node_field(requirement, &path.child("matchFields").index(index), errors);
    }
}

fn check_node_label(
    requirement: &NodeSelectorRequirement,
    allowed: Values,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let values = requirement.values.as_deref().unwrap_or_default();
    let at = path.child("values");
    match requirement.operator.as_str() {
        "In" | "NotIn" if values.is_empty() => errors.required(&at, VALUES_NEEDED),
        "Exists" | "DoesNotExist" if !values.is_empty() => errors.forbidden(&at, VALUES_UNWANTED),
        "Gt" | "Lt" if values.len() != 1 => {
            errors.required(&at, "must be specified single value when `operator` is 'Lt' or 'Gt'");
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => errors.invalid(&path.child("operator"), other, NO_OPERATOR),
    }
    errors.each_invalid(&path.child("key"), requirement.key.as_str(), names::qualified(&requirement.key));
    for (index, value) in values.iter().enumerate().filter(|_| allowed == Values::OfLabels) {
        errors.each_invalid(&at.index(index), value.as_str(), names::label_value(value));
    }
}

fn check_node_field(requirement: &NodeSelectorRequirement, path: &FieldPath, errors: &mut FieldErrors) {
    let count = requirement.values.as_ref().map_or(0, Vec::len);
    match requirement.operator.as_str() {
        "In" | "NotIn" if count != 1 => {
            let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            errors.required(&path.child("values"), detail);
        }
        "In" | "NotIn" => {}
        other => errors.invalid(&path.child("operator"), other, NO_OPERATOR),
    }
    if requirement.key != "metadata.name" {
        return errors.invalid(&path.child("key"), requirement.key.as_str(), "not a valid field selector key");
    }
    for (index, name) in requirement.values.iter().flatten().enumerate() {
        errors.each_invalid(&path.child("values").index(index), name.as_str(), names::subdomain(name));
    }
}
