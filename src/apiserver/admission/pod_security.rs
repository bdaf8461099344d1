//! PodSecurity: refuses pods that violate the level in the labels of their namespace, and warns about templates of workloads that do.

use super::AdmissionRequest;
use crate::apiserver::ApiResult;
use crate::apiserver::outside::AuditAnnotation;
use crate::apiserver::rules::pod_security::{
    Level, NamespacePolicy, PolicyLevel, evaluate, find_template, is_labelled, is_significant_update, list_details,
    list_reasons,
};
use crate::apiserver::transaction::Transaction;
use crate::kinds::FieldErrors;
use crate::kinds::shared::field::invalid;
use crate::object::{Key, Object, Resource, Status};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};

/// Maximum number of pods that a change of a namespace's labels checks.
const MAX_CHECKED: usize = 3000;

const NAMESPACES: Resource = Resource("namespaces");

/// Admits a write.
pub fn admit(txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    // The other subresources of pods change nothing that is checked.
    if !matches!(request.subresource, "" | "ephemeralcontainers" | "resize") {
        return Ok(());
    }
    if request.kind.resource == NAMESPACES {
        return check_namespace(txn, request);
    }
    let resource = request.kind.resource.0;
    if find_template(resource, request.object).is_none() {
        return Ok(());
    }
    let Some(namespace) = txn.get_shared(&Key::new(NAMESPACES, "", request.object.namespace()))? else {
        return Ok(());
    };
    if !is_labelled(&namespace) {
        return Ok(());
    }
    // Invalid labels are ignored: the namespace may have got them before labels were checked.
    let policy = NamespacePolicy::from_labels(&namespace, &mut FieldErrors::default());
    let is_pod = resource == "pods";
    if is_pod && request.old.is_some_and(|old| !is_significant_update(request.object, old)) {
        return Ok(());
    }
    let Some(template) = find_template(resource, request.object) else { return Ok(()) };
    annotate(txn, policy, is_pod, template);
    if is_pod {
        let violations = evaluate(policy.enforce, template);
        if !violations.is_empty() {
            let why = format!("violates PodSecurity \"{}\": {}", policy.enforce, list_details(&violations));
            return Err(Status::forbidden(request.kind.resource, request.object.name(), &why));
        }
    }
    let violations = evaluate(policy.warn, template);
    if !violations.is_empty() {
        let text = format!("would violate PodSecurity \"{}\": {}", policy.warn, list_details(&violations));
        request.warnings.push(text);
    }
    Ok(())
}

/// Notes for the audit log the enforced level, and violations of the audited level.
fn annotate(txn: &mut dyn Transaction, policy: NamespacePolicy, is_pod: bool, template: &Value) {
    if is_pod {
        txn.annotate(AuditAnnotation::new("pod-security.kubernetes.io/enforce-policy", policy.enforce.to_string()));
    }
    let violations = evaluate(policy.audit, template);
    if !violations.is_empty() {
        let text = format!("would violate PodSecurity \"{}\": {}", policy.audit, list_details(&violations));
        txn.annotate(AuditAnnotation::new("pod-security.kubernetes.io/audit-violations", text));
    }
}

/// Refuses labels that cannot be read, and warns of pods that a stricter level would refuse.
fn check_namespace(txn: &dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    let (mut errors, mut old_errors) = (FieldErrors::default(), FieldErrors::default());
    let policy = NamespacePolicy::from_labels(request.object, &mut errors);
    let old = request.old.map(|old| NamespacePolicy::from_labels(old, &mut old_errors));
    if !errors.0.is_empty() && errors.0 != old_errors.0 {
        return Err(invalid(request.kind.kind, request.kind.resource, request.object.name(), &errors.0));
    }
    let (enforce, Some(old)) = (policy.enforce, old.map(|old| old.enforce)) else { return Ok(()) };
    let is_relaxed = enforce.version == old.version && enforce.level <= old.level;
    if enforce != old && enforce.level != Level::Privileged && !is_relaxed {
        let pods = txn.list(Resource("pods"), Some(request.object.name()))?;
        request.warnings.extend(warn_about_pods(request.object.name(), enforce, &pods));
    }
    Ok(())
}

/// The pods of a namespace that violate a level, one line for each combination of reasons.
fn warn_about_pods(namespace: &str, enforce: PolicyLevel, pods: &[Object]) -> Vec<String> {
    let mut by_reasons = BTreeMap::<String, Vec<&str>>::new();
    let checked = one_per_controller_first(pods);
    for pod in checked.iter().take(MAX_CHECKED) {
        let violations = evaluate(enforce, &pod.0);
        if !violations.is_empty() {
            by_reasons.entry(list_reasons(&violations)).or_default().push(pod.name());
        }
    }
    let mut warnings = Vec::new();
    if checked.len() > MAX_CHECKED {
        warnings.push(format!(
            "new PodSecurity enforce level only checked against the first {MAX_CHECKED} of {} existing pods",
            checked.len()
        ));
    }
    if !by_reasons.is_empty() {
        warnings.push(format!(
            "existing pods in namespace {namespace:?} violate the new PodSecurity enforce level \"{enforce}\""
        ));
    }
    let lines = by_reasons.into_iter().map(|(reasons, names)| {
        let first = names.iter().min().copied().unwrap_or_default();
        match names.len() - 1 {
            0 => format!("{first}: {reasons}"),
            1 => format!("{first} (and 1 other pod): {reasons}"),
            others => format!("{first} (and {others} other pods): {reasons}"),
        }
    });
    let mut lines: Vec<String> = lines.collect();
    lines.sort();
    warnings.extend(lines);
    warnings
}

/// Orders pods so that one pod of each controller precedes the controller's other pods.
fn one_per_controller_first(pods: &[Object]) -> Vec<&Object> {
    let mut seen = HashSet::new();
    let is_first = |pod: &&Object| pod.controller().is_none_or(|owner| seen.insert(owner.uid.to_owned()));
    let (mut first, others): (Vec<&Object>, Vec<&Object>) = pods.iter().partition(is_first);
    first.extend(others);
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, owner: &str, is_privileged: bool) -> Object {
        let owners = match owner {
            "" => json!([]),
            uid => {
                json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": uid, "controller": true}])
            }
        };
        Object(json!({"metadata": {"name": name, "namespace": "default", "ownerReferences": owners},
            "spec": {"hostNetwork": is_privileged, "containers": [{"name": "c", "securityContext": {"privileged": is_privileged}}]}}))
    }

    #[test]
    fn violating_pods_are_counted_by_their_reasons() {
        let level = PolicyLevel { level: Level::Baseline, version: None };
        let pods = [pod("b", "", true), pod("a", "x", true), pod("ok", "", false), pod("c", "x", true)];
        assert_eq!(
            warn_about_pods("default", level, &pods),
            [
                "existing pods in namespace \"default\" violate the new PodSecurity enforce level \"baseline:latest\"",
                "a (and 2 other pods): host namespaces, privileged",
            ]
        );
        assert!(warn_about_pods("default", level, &pods[2..3]).is_empty());
        let order: Vec<&str> = one_per_controller_first(&pods).into_iter().map(Object::name).collect();
        assert_eq!(order, ["b", "a", "ok", "c"]);
    }
}
