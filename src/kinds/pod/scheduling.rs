//! Checks of affinity, tolerations, spread constraints and gates.

use crate::kinds::shared::{names, selector};
use crate::kinds::{FieldErrors, FieldPath};
use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, PodAffinityTerm, PodSpec, Toleration, TopologySpreadConstraint, WeightedPodAffinityTerm,
};
use std::collections::{BTreeMap, BTreeSet};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Checks all three kinds of affinity.
pub fn check_affinity(affinity: Option<&Affinity>, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(affinity) = affinity else { return };
    if let Some(nodes) = &affinity.node_affinity {
        check_nodes(nodes, &path.child("nodeAffinity"), errors);
    }
    if let Some(pods) = &affinity.pod_affinity {
        let path = path.child("podAffinity");
        check_terms(pods.required_during_scheduling_ignored_during_execution.as_deref(), &path, errors);
        check_weighted(pods.preferred_during_scheduling_ignored_during_execution.as_deref(), &path, errors);
    }
    if let Some(pods) = &affinity.pod_anti_affinity {
        let path = path.child("podAntiAffinity");
        check_terms(pods.required_during_scheduling_ignored_during_execution.as_deref(), &path, errors);
        check_weighted(pods.preferred_during_scheduling_ignored_during_execution.as_deref(), &path, errors);
    }
}

fn check_nodes(nodes: &NodeAffinity, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(required) = &nodes.required_during_scheduling_ignored_during_execution {
        selector::check_nodes(required, &path.child(REQUIRED), errors);
    }
    let preferred = nodes.preferred_during_scheduling_ignored_during_execution.iter().flatten();
    for (index, term) in preferred.enumerate() {
        let path = path.child(PREFERRED).index(index);
        check_weight(term.weight, &path, errors);
        selector::check_node_term(&term.preference, selector::Values::Any, &path.child("preference"), errors);
    }
}

fn check_weight(weight: i32, path: &FieldPath, errors: &mut FieldErrors) {
    if !(1..=100).contains(&weight) {
        errors.invalid(&path.child("weight"), weight, "must be in the range 1-100");
    }
}

fn check_terms(terms: Option<&[PodAffinityTerm]>, path: &FieldPath, errors: &mut FieldErrors) {
    for (index, term) in terms.unwrap_or_default().iter().enumerate() {
        check_term(term, &path.child(REQUIRED).index(index), errors);
    }
}

fn check_weighted(terms: Option<&[WeightedPodAffinityTerm]>, path: &FieldPath, errors: &mut FieldErrors) {
    for (index, term) in terms.unwrap_or_default().iter().enumerate() {
        let path = path.child(PREFERRED).index(index);
        check_weight(term.weight, &path, errors);
        check_term(&term.pod_affinity_term, &path.child("podAffinityTerm"), errors);
    }
}

fn check_term(term: &PodAffinityTerm, path: &FieldPath, errors: &mut FieldErrors) {
    for (field, labels) in [("labelSelector", &term.label_selector), ("namespaceSelector", &term.namespace_selector)] {
        if let Some(labels) = labels {
            selector::check(labels, &path.child(field), errors);
        }
    }
    for namespace in term.namespaces.iter().flatten() {
        errors.each_invalid(&path.child("namespace"), namespace.as_str(), names::label(namespace));
    }
    for (field, keys) in [("matchLabelKeys", &term.match_label_keys), ("mismatchLabelKeys", &term.mismatch_label_keys)]
    {
        let keys = keys.as_deref().unwrap_or_default();
        check_label_keys(keys, term.label_selector.is_some(), &path.child(field), errors);
    }
    check_key_conflicts(term, path, errors);
    let at = path.child("topologyKey");
    if term.topology_key.is_empty() {
        errors.required(&at, "can not be empty");
    }
    errors.each_invalid(&at, term.topology_key.as_str(), names::qualified(&term.topology_key));
}

/// Refuses label keys that a term names twice, in two of its lists. The server has extended the selector by the keys to match.
fn check_key_conflicts(term: &PodAffinityTerm, path: &FieldPath, errors: &mut FieldErrors) {
    let keys = term.match_label_keys.as_deref().unwrap_or_default();
    if let Some(selector) = &term.label_selector {
        let places: BTreeMap<&String, usize> = keys.iter().enumerate().map(|(index, key)| (key, index)).collect();
        let mut known: BTreeSet<&String> = selector.match_labels.iter().flatten().map(|(key, _)| key).collect();
        for expression in selector.match_expressions.iter().flatten() {
            if let Some(index) = places.get(&expression.key)
                && known.contains(&expression.key)
            {
                let detail = "exists in both matchLabelKeys and labelSelector";
                errors.invalid(&path.index(*index), expression.key.as_str(), detail);
            }
            known.insert(&expression.key);
        }
    }
    let mismatched: BTreeSet<&String> = term.mismatch_label_keys.iter().flatten().collect();
    for (index, key) in keys.iter().enumerate().filter(|(_, key)| mismatched.contains(key)) {
        let detail = "exists in both matchLabelKeys and mismatchLabelKeys";
        errors.invalid(&path.child("matchLabelKeys").index(index), key.as_str(), detail);
    }
}

/// Checks each toleration.
pub fn check_tolerations(tolerations: &[Toleration], path: &FieldPath, errors: &mut FieldErrors) {
    for (index, toleration) in tolerations.iter().enumerate() {
        check_toleration(toleration, &path.index(index), errors);
    }
}

fn check_toleration(toleration: &Toleration, path: &FieldPath, errors: &mut FieldErrors) {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    let (key, operator) = (part(&toleration.key), part(&toleration.operator));
    let (value, effect) = (part(&toleration.value), part(&toleration.effect));
    let at = path.child("operator");
    if !key.is_empty() {
        errors.each_invalid(&path.child("key"), key.as_str(), names::qualified(&key));
    } else if operator != "Exists" {
        let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        errors.invalid(&at, operator.as_str(), detail);
    }
    if toleration.toleration_seconds.is_some() && effect != "NoExecute" {
        let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        errors.invalid(&path.child("effect"), effect.as_str(), detail);
    }
    match operator.as_str() {
        "" | "Equal" => {
            let problems = names::label_value(&value);
            if !problems.is_empty() {
                errors.invalid(&at, value.as_str(), &problems.join(";"));
            }
        }
        "Exists" if !value.is_empty() => {
            errors.invalid(&at, value.as_str(), "value must be empty when `operator` is 'Exists'");
        }
        "Exists" => {}
        // These belong to a feature that is off by default.
        other @ ("Gt" | "Lt") => errors.unsupported_as_listed(&at, other, &["Equal", "Exists", "Lt", "Gt"]),
        other => errors.unsupported(&at, other, &["Equal", "Exists"]),
    }
    if !effect.is_empty() {
        check_effect(&effect, &path.child("effect"), errors);
    }
}

/// Checks the effect of a taint or toleration.
pub fn check_effect(effect: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let known = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    if !known.contains(&effect) {
        errors.unsupported_as_listed(path, effect, &known);
    }
}

/// Checks topology spread constraints.
pub fn check_spread(constraints: &[TopologySpreadConstraint], path: &FieldPath, errors: &mut FieldErrors) {
    let pair = |constraint: &TopologySpreadConstraint| {
        (constraint.topology_key.clone(), constraint.when_unsatisfiable.clone())
    };
    let mut later: BTreeMap<(String, String), usize> = BTreeMap::new();
    constraints.iter().for_each(|constraint| *later.entry(pair(constraint)).or_default() += 1);
    for (index, constraint) in constraints.iter().enumerate() {
        let path = path.index(index);
        check_constraint(constraint, &path, errors);
        let same = later.entry(pair(constraint)).or_default();
        *same -= 1;
        if *same > 0 {
            let (key, action) = pair(constraint);
            errors.duplicate(&path.child("{topologyKey, whenUnsatisfiable}"), format!("{{{key}, {action}}}"));
        }
    }
}

fn check_constraint(constraint: &TopologySpreadConstraint, path: &FieldPath, errors: &mut FieldErrors) {
    if constraint.max_skew <= 0 {
        errors.invalid(&path.child("maxSkew"), constraint.max_skew, "must be greater than zero");
    }
    // Kubernetes accepts any other text here, even an invalid label key.
    if constraint.topology_key.is_empty() {
        errors.required(&path.child("topologyKey"), "can not be empty");
    }
    let (action, known) = (constraint.when_unsatisfiable.as_str(), ["DoNotSchedule", "ScheduleAnyway"]);
    if !known.contains(&action) {
        errors.unsupported(&path.child("whenUnsatisfiable"), action, &known);
    }
    if let Some(domains) = constraint.min_domains {
        let at = path.child("minDomains");
        if domains <= 0 {
            errors.invalid(&at, domains, "must be greater than zero");
        }
        if action != "DoNotSchedule" {
            let detail = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
            errors.invalid(&at, domains, &detail);
        }
    }
    let policies = [
        ("nodeAffinityPolicy", &constraint.node_affinity_policy),
        ("nodeTaintsPolicy", &constraint.node_taints_policy),
    ];
    for (field, policy) in policies {
        if let Some(policy) = policy.as_deref().filter(|policy| !["Honor", "Ignore"].contains(policy)) {
            errors.unsupported(&path.child(field), policy, &["Honor", "Ignore"]);
        }
    }
    if let Some(labels) = &constraint.label_selector {
        selector::check(labels, &path.child("labelSelector"), errors);
    }
    let keys = constraint.match_label_keys.as_deref().unwrap_or_default();
    check_label_keys(keys, constraint.label_selector.is_some(), &path.child("matchLabelKeys"), errors);
}

/// Checks the keys of labels that a selector is extended by.
fn check_label_keys(keys: &[String], has_selector: bool, path: &FieldPath, errors: &mut FieldErrors) {
    if !keys.is_empty() && !has_selector {
        return errors.forbidden(path, "must not be specified when labelSelector is not set");
    }
    for (index, key) in keys.iter().enumerate() {
        errors.each_invalid(&path.index(index), key.as_str(), names::qualified(key));
    }
}

/// Checks scheduling gates and readiness gates.
pub fn check_gates(spec: &PodSpec, path: &FieldPath, errors: &mut FieldErrors) {
    for (index, gate) in spec.readiness_gates.iter().flatten().enumerate() {
        let path = path.child("readinessGates").index(index).child("conditionType");
        errors.each_invalid(&path, gate.condition_type.as_str(), names::qualified(&gate.condition_type));
    }
    let gates = spec.scheduling_gates.as_deref().unwrap_or_default();
    let mut seen = BTreeSet::new();
    for (index, gate) in gates.iter().enumerate() {
        let path = path.child("schedulingGates").index(index);
        errors.each_invalid(&path, gate.name.as_str(), names::qualified(&gate.name));
        if !seen.insert(gate.name.as_str()) {
            errors.duplicate(&path, gate.name.as_str());
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::testing::refusals;
    use serde_json::json;

    #[test]
    fn first_of_two_equal_constraints_is_refused() {
        let spread = json!({"topologyKey": "z", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"});
        let other = json!({"topologyKey": "y", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"});
        let spec =
            json!({"containers": [{"name": "c", "image": "i"}], "topologySpreadConstraints": [spread, other, spread]});
        let found = refusals(json!({"apiVersion": "v1", "kind": "Pod", "spec": spec}));
        let field = "spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}";
        assert_eq!(found, [format!("{field}: Duplicate value: \"{{z, ScheduleAnyway}}\"")]);
    }

    #[test]
    fn label_keys_are_named_once() {
        let problems = |term: serde_json::Value| {
            let affinity = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
            let spec = json!({"containers": [{"name": "c", "image": "i"}], "affinity": affinity});
            refusals(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": "b"}}, "spec": spec}))
                .join("; ")
        };
        let term = "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]";
        let fine =
            json!({"topologyKey": "z", "labelSelector": {}, "matchLabelKeys": ["a"], "mismatchLabelKeys": ["c"]});
        assert_eq!(problems(fine), "");
        let both =
            json!({"topologyKey": "z", "labelSelector": {}, "matchLabelKeys": ["a"], "mismatchLabelKeys": ["a"]});
        let lists = "exists in both matchLabelKeys and";
        let extended = format!("{term}[0]: Invalid value: \"a\": {lists} labelSelector");
        let doubled = format!("{term}.matchLabelKeys[0]: Invalid value: \"a\": {lists} mismatchLabelKeys");
        assert_eq!(problems(both), format!("{extended}; {doubled}"));
        let selected =
            json!({"topologyKey": "z", "labelSelector": {"matchLabels": {"a": "b"}}, "matchLabelKeys": ["a"]});
        let detail = "Invalid value: \"a\": exists in both matchLabelKeys and labelSelector";
        assert_eq!(problems(selected), format!("{term}[0]: {detail}"));
    }

    #[test]
    fn label_keys_need_a_selector() {
        let spread = json!({"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": ["app"]});
        let term = json!({"topologyKey": "zone", "matchLabelKeys": ["app"], "mismatchLabelKeys": ["tier"]});
        let affinity = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
        let spec = json!({"containers": [{"name": "c", "image": "i"}], "topologySpreadConstraints": [spread], "affinity": affinity});
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": spec});
        let term = "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]";
        let fields = [
            format!("{term}.matchLabelKeys"),
            format!("{term}.mismatchLabelKeys"),
            "spec.topologySpreadConstraints[0].matchLabelKeys".to_owned(),
        ];
        let problem = "Forbidden: must not be specified when labelSelector is not set";
        assert_eq!(refusals(pod.clone()), fields.map(|field| format!("{field}: {problem}")));
        for holder in [
            "/spec/topologySpreadConstraints/0",
            "/spec/affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution/0",
        ] {
            pod.pointer_mut(holder).unwrap()["labelSelector"] = json!({"matchLabels": {"x": "y"}});
        }
        assert_eq!(refusals(pod.clone()), Vec::<String>::new());
        pod["spec"]["topologySpreadConstraints"][0]["matchLabelKeys"] = json!(["a b"]);
        let found = refusals(pod);
        assert!(
            matches!(&found[..], [one] if one.starts_with("spec.topologySpreadConstraints[0].matchLabelKeys[0]: Invalid")),
            "{found:?}"
        );
    }
}
