//! What the kinds with a pod template and a selector have in common.

use super::omit;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

/// Marks a selector that was left out, which the typed form cannot tell from `{}` (the first is "Required value", the
/// second "empty selector"): an empty list of expressions, which is never stored otherwise.
pub fn read_selector(selector: &mut LabelSelector, body: &Value) {
    omit::selector(selector);
    if body["spec"]["selector"].is_null() {
        selector.match_expressions = Some(Vec::new());
    }
}

/// Whether the selector was left out.
pub fn no_selector(selector: &LabelSelector) -> bool {
    selector.match_labels.is_none() && selector.match_expressions.as_ref().is_some_and(Vec::is_empty)
}
