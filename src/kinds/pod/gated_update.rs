//! Checks of the scheduling directives of a pod with scheduling gates, which may only be narrowed (KEP-3838).

use crate::kinds::{FieldErrors, FieldPath};
use k8s_openapi::api::core::v1::{Affinity, NodeAffinity, NodeSelectorTerm, PodSpec};
use serde_json::json;

/// Checks the changes of a gated pod's node selector and node affinity, and restores the old ones in the spec that is compared with the
/// old.
pub fn check(restored: &mut PodSpec, old: &PodSpec, path: &FieldPath, errors: &mut FieldErrors) {
    if restored.node_selector != old.node_selector {
        check_selector(restored, old, &path.child("nodeSelector"), errors);
        restored.node_selector.clone_from(&old.node_selector);
    }
    let node_affinity = |spec: &PodSpec| spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.clone());
    let (now, before) = (node_affinity(restored), node_affinity(old));
    if now == before {
        return;
    }
    check_affinity(now.as_ref(), before.as_ref(), &path.child("affinity").child("nodeAffinity"), errors);
    let affinity = restored.affinity.get_or_insert_default();
    affinity.node_affinity = before;
    if old.affinity.is_none() && *affinity == Affinity::default() {
        restored.affinity = None;
    }
}

fn check_selector(new: &PodSpec, old: &PodSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let is_kept =
        |(key, value): (&String, &String)| new.node_selector.as_ref().and_then(|all| all.get(key)) == Some(value);
    if !old.node_selector.iter().flatten().all(is_kept) {
        let why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        errors.invalid(path, json!(new.node_selector), why);
    }
}

/// Each of the required terms may require more.
fn check_affinity(new: Option<&NodeAffinity>, old: Option<&NodeAffinity>, path: &FieldPath, errors: &mut FieldErrors) {
    fn required(affinity: Option<&NodeAffinity>) -> &[NodeSelectorTerm] {
        let selector = affinity.and_then(|one| one.required_during_scheduling_ignored_during_execution.as_ref());
        selector.map(|selector| &*selector.node_selector_terms).unwrap_or_default()
    }
    let (now, before) = (required(new), required(old));
    if before.is_empty() {
        return;
    }
    let path = path.child("requiredDuringSchedulingIgnoredDuringExecution").child("nodeSelectorTerms");
    if now.len() != before.len() {
        let why = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        return errors.invalid(&path, json!(now), why);
    }
    for (index, (now, before)) in now.iter().zip(before).enumerate() {
        if !has_only_additions(now, before) {
            errors.invalid(&path.index(index), json!(now), "only additions are allowed (no mutations or deletions)");
        }
    }
}

fn has_only_additions(new: &NodeSelectorTerm, old: &NodeSelectorTerm) -> bool {
    let lists = |term: &NodeSelectorTerm| {
        [&term.match_expressions, &term.match_fields].map(|list| list.clone().unwrap_or_default())
    };
    let (now, before) = (lists(new), lists(old));
    // A term without expressions matches nothing: with some it would match more.
    if before.iter().all(Vec::is_empty) {
        return now.iter().all(Vec::is_empty);
    }
    now.iter().zip(&before).all(|(now, before)| now.starts_with(before))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn directives_of_a_gated_pod_are_only_narrowed() {
        let required = |terms: Value| json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}});
        let has = |key: &str| json!({"key": key, "operator": "Exists"});
        let term = |keys: &[&str]| json!({"matchExpressions": keys.iter().map(|key| has(key)).collect::<Vec<_>>()});
        let anti = json!({"affinity": {"podAntiAffinity": {}}});
        for (old, new, refused) in [
            (json!({}), json!({"nodeSelector": {"a": "1"}}), &[][..]),
            (json!({"nodeSelector": {"a": "1"}}), json!({"nodeSelector": {"a": "1", "b": "2"}}), &[]),
            (json!({"nodeSelector": {"a": "1"}}), json!({"nodeSelector": {"a": "2"}}), &["nodeSelector"]),
            (json!({"nodeSelector": {"a": "1"}}), json!({}), &["nodeSelector"]),
            (json!({}), required(json!([term(&["a"])])), &[]),
            (required(json!([term(&["a"])])), required(json!([term(&["a", "b"])])), &[]),
            (required(json!([term(&["a"])])), required(json!([term(&["b"])])), &["[0]"]),
            (required(json!([term(&["a"])])), required(json!([term(&["a"]), term(&["b"])])), &["nodeSelectorTerms"]),
            (required(json!([term(&["a"])])), json!({}), &["nodeSelectorTerms"]),
            (required(json!([{}])), required(json!([term(&["a"])])), &["[0]"]),
            // Only node affinity may change.
            (json!({}), anti, &["changed"]),
        ] {
            let spec = |part: &Value| -> PodSpec {
                let mut whole = part.clone();
                whole["containers"] = json!([]);
                serde_json::from_value(whole).unwrap()
            };
            let (mut restored, before, mut errors) = (spec(&new), spec(&old), FieldErrors::default());
            check(&mut restored, &before, &FieldPath::root("spec"), &mut errors);
            let mut found: Vec<String> = errors.0.iter().map(|error| error.field.clone()).collect();
            if restored != before {
                found.push("changed".to_owned());
            }
            assert_eq!(found.len(), refused.len(), "{old} {new}: {found:?}");
            assert!(found.iter().zip(refused).all(|(found, end)| found.ends_with(end)), "{old} {new}: {found:?}");
        }
    }
}
