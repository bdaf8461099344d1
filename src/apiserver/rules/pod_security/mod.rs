//! The Pod Security Standards: the policy in a namespace's labels, and the violations of a pod.
//!
//! Knows: the labels, the levels and versions, and the table of checks with the Kubernetes version from which each form of a check
//! holds (`k8s.io/pod-security-admission`). Never: reads the state or decides about a request; the admission plugin does.
//! Start reading at [`evaluate`].

mod baseline;
mod policy;
mod restricted;
mod texts;

pub use policy::{Level, NamespacePolicy, PolicyLevel, is_labelled};

use crate::object::Object;
use serde_json::Value;

/// The newest minor version in which a check of this release changed; newer ones mean the same.
const NEWEST: u32 = 35;

/// One violated check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The short form: `privileged`.
    pub reason: &'static str,
    /// The fields and containers.
    pub detail: String,
}

/// A pod or a pod template, as checks read it.
struct CheckedPod<'a> {
    annotations: &'a Value,
    spec: &'a Value,
}

/// Returns the violation of a pod, if there is one.
type CheckFunction = fn(&CheckedPod<'_>) -> Option<Violation>;

/// A check of one level.
struct Check {
    id: &'static str,
    /// Its forms, each with the minor version from which it holds, in rising order.
    versions: &'static [(u32, CheckFunction)],
    /// The check of the baseline that it replaces.
    overrides: &'static str,
}

impl Check {
    /// The form that holds in a version.
    fn form(&self, minor: u32) -> Option<CheckFunction> {
        self.versions.iter().rev().find(|(since, _)| *since <= minor).map(|(_, form)| *form)
    }
}

/// The violations of a level by a pod, or by an object with the `metadata` and `spec` of one, in the order of messages.
pub fn evaluate(wanted: PolicyLevel, pod: &Value) -> Vec<Violation> {
    let minor = wanted.version.unwrap_or(NEWEST).min(NEWEST);
    let pod = CheckedPod { annotations: &pod["metadata"]["annotations"], spec: &pod["spec"] };
    let restricted: &[Check] = match wanted.level {
        Level::Privileged => return Vec::new(),
        Level::Baseline => &[],
        Level::Restricted => restricted::CHECKS,
    };
    let is_overridden = |id: &str| restricted.iter().any(|check| check.overrides == id && check.form(minor).is_some());
    let kept = baseline::CHECKS.iter().filter(|check| !is_overridden(check.id));
    kept.chain(restricted).filter_map(|check| check.form(minor)?(&pod)).collect()
}

/// The reasons of violations: `privileged, hostPort`.
pub fn list_reasons(violations: &[Violation]) -> String {
    let reasons: Vec<&str> = violations.iter().map(|violation| violation.reason).collect();
    reasons.join(", ")
}

/// The reasons with their details in parentheses.
pub fn list_details(violations: &[Violation]) -> String {
    let texts = violations.iter().map(|violation| match violation.detail.as_str() {
        "" => violation.reason.to_owned(),
        detail => format!("{} ({detail})", violation.reason),
    });
    texts.collect::<Vec<_>>().join(", ")
}

/// The pod, or the template of the pods, that an object of this resource has.
pub fn find_template<'o>(resource: &str, object: &'o Object) -> Option<&'o Value> {
    match resource {
        "pods" => Some(&object.0),
        "podtemplates" => object.value_at(&["template"]),
        "replicationcontrollers"
        | "replicasets.apps"
        | "deployments.apps"
        | "statefulsets.apps"
        | "daemonsets.apps"
        | "jobs.batch" => object.value_at(&["spec", "template"]),
        "cronjobs.batch" => object.value_at(&["spec", "jobTemplate", "spec", "template"]),
        _ => None,
    }
}

/// Whether an update of a pod can change the result: a container is new, or has another image.
pub fn is_significant_update(new: &Object, old: &Object) -> bool {
    let images = |pod: &Object, list: &str| -> Vec<Value> {
        pod.items(&["spec", list]).iter().map(|container| container["image"].clone()).collect()
    };
    let differs = |list: &str| images(new, list) != images(old, list);
    let known = old.items(&["spec", "ephemeralContainers"]);
    let is_new = |container: &Value| {
        !known.iter().any(|one| one["name"] == container["name"] && one["image"] == container["image"])
    };
    differs("containers") || differs("initContainers") || new.items(&["spec", "ephemeralContainers"]).iter().any(is_new)
}

#[cfg(test)]
mod tests;
