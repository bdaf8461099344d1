//! Scopes of a quota: the pods and claims that it covers (Kubernetes: `pkg/quota/v1/evaluator/core`).

use crate::object::Object;
use crate::world::Row;
use serde_json::{Value, json};

/// The requirements of a quota's `scopes` and `scopeSelector`.
pub struct QuotaScopes(Vec<Value>);

impl QuotaScopes {
    /// Reads them from a quota.
    pub fn from_quota(quota: &Object) -> QuotaScopes {
        let plain =
            quota.items(&["spec", "scopes"]).iter().map(|scope| json!({ "scopeName": scope, "operator": "Exists" }));
        QuotaScopes(plain.chain(quota.items(&["spec", "scopeSelector", "matchExpressions"]).iter().cloned()).collect())
    }

    /// Whether the quota covers everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the quota covers a pod.
    pub fn match_pod(&self, pod: &Row) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let object = pod.body();
        let timed = object.int(&["spec", "activeDeadlineSeconds"]).is_some();
        let best_effort = object.text(&["status", "qosClass"]) == Some("BestEffort");
        let class = object.text(&["spec", "priorityClassName"]).filter(|class| !class.is_empty());
        self.0.iter().all(|scope| match scope["scopeName"].as_str() {
            Some("Terminating") => timed,
            Some("NotTerminating") => !timed,
            Some("BestEffort") => best_effort,
            Some("NotBestEffort") => !best_effort,
            Some("PriorityClass") => fulfils(class.as_slice(), scope),
            Some("CrossNamespacePodAffinity") => looks_at_other_namespaces(&object),
            _ => false,
        })
    }

    /// Whether the quota covers a claim. While its volume changes, a claim belongs to the old and the new class.
    pub fn match_claim(&self, claim: &Object) -> bool {
        let paths = [
            &["spec", "volumeAttributesClassName"][..],
            &["status", "currentVolumeAttributesClassName"],
            &["status", "modifyVolumeStatus", "targetVolumeAttributesClassName"],
        ];
        let classes: Vec<&str> =
            paths.iter().filter_map(|path| claim.text(path)).filter(|class| !class.is_empty()).collect();
        self.0.iter().all(|scope| scope["scopeName"] == "VolumeAttributesClass" && fulfils(&classes, scope))
    }
}

/// Whether an object of these classes fulfils a requirement.
fn fulfils(classes: &[&str], requirement: &Value) -> bool {
    let values = requirement["values"].as_array().map_or(&[][..], Vec::as_slice);
    let is_named = |class: &&str| values.iter().any(|value| value == class);
    match requirement["operator"].as_str() {
        Some("In") => classes.iter().any(is_named),
        Some("NotIn") => classes.is_empty() || !classes.iter().all(is_named),
        Some("DoesNotExist") => classes.is_empty(),
        _ => !classes.is_empty(),
    }
}

/// Whether a term of a pod's affinity names namespaces or selects them.
fn looks_at_other_namespaces(pod: &Object) -> bool {
    const TERMS: [&str; 2] =
        ["requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"];
    let crosses = |term: &Value| {
        // A preferred term has a weight around it.
        let term = term.get("podAffinityTerm").unwrap_or(term);
        term["namespaces"].as_array().is_some_and(|list| !list.is_empty()) || term["namespaceSelector"].is_object()
    };
    let kinds = ["podAffinity", "podAntiAffinity"].into_iter();
    let mut terms = kinds.flat_map(|kind| TERMS.map(|list| pod.items(&["spec", "affinity", kind, list])));
    terms.any(|list| list.iter().any(crosses))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn affinity_to_pods_of_other_namespaces_is_a_scope() {
        let pod = |term: Value| {
            let preferred = json!([{"weight": 1, "podAffinityTerm": term}]);
            let affinity = json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}});
            looks_at_other_namespaces(&Object(json!({"spec": {"affinity": affinity}})))
        };
        assert!(pod(json!({"namespaces": ["a"]})) && pod(json!({"namespaceSelector": {}})));
        assert!(!pod(json!({"namespaces": [], "topologyKey": "x"})) && !pod(json!({})));
    }
}
