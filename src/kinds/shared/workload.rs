//! Shared parts of kinds with a pod template and a selector.

use super::super::pod::spec::check_template;
use super::super::{FieldErrors, FieldPath};
use super::{amount, omit, selector};
use crate::object::Selector;
use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Marks an absent selector with an empty list of expressions, which is never stored otherwise. The typed form cannot
/// distinguish it from `{}`, but the errors differ ("Required value" and "empty selector").
pub fn read_selector(selector: &mut LabelSelector, body: &Value) {
    omit::selector(selector);
    if body["spec"]["selector"].is_null() {
        selector.match_expressions = Some(Vec::new());
    }
}

/// Whether the selector was absent.
pub fn no_selector(selector: &LabelSelector) -> bool {
    selector.match_labels.is_none() && selector.match_expressions.as_ref().is_some_and(Vec::is_empty)
}

/// The parts of a workload's spec to check, with the names for messages.
pub struct Workload<'w> {
    /// The name in "empty selector is invalid for deployment".
    pub selects_for: &'static str,
    /// The kind in "activeDeadlineSeconds in ReplicaSet is not Supported".
    pub runs_as: &'static str,
    /// Its selector.
    pub selector: &'w LabelSelector,
    /// Its template.
    pub template: &'w PodTemplateSpec,
}

impl Workload<'_> {
    /// Checks and compiles the selector. An absent one matches nothing.
    pub fn check_selector(&self, path: &FieldPath, errors: &mut FieldErrors) -> Option<Selector> {
        let at = path.child("selector");
        if no_selector(self.selector) {
            errors.required(&at, "");
            return Some(Selector::nothing());
        }
        selector::check(self.selector, &at, errors);
        if selector::is_empty(self.selector) {
            let detail = format!("empty selector is invalid for {}", self.selects_for);
            errors.invalid_text(&at, &selector::text(self.selector), &detail);
        }
        selector::ready(self.selector)
    }

    /// Checks the selector and the template, which must match each other.
    pub fn check(&self, path: &FieldPath, errors: &mut FieldErrors) {
        match self.check_selector(path, errors) {
            Some(selector) => self.check_template(&selector, path, errors),
            None => {
                let text = selector::text(self.selector);
                errors.invalid_text(&path.child("selector"), &text, "invalid label selector");
            }
        }
    }

    /// Checks the template.
    pub fn check_template(&self, selector: &Selector, path: &FieldPath, errors: &mut FieldErrors) {
        let path = path.child("template");
        check_match(selector, self.template, &path, errors);
        check_template(self.template, &path, errors);
        check_replaced(self.template, self.runs_as, &path, errors);
    }
}

/// The labels of a template.
pub fn labels(template: &PodTemplateSpec) -> Option<&BTreeMap<String, String>> {
    template.metadata.as_ref()?.labels.as_ref()
}

/// Checks that a template's labels match the selector.
pub fn check_match(selector: &Selector, template: &PodTemplateSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let labels = labels(template);
    if !selector.matches(|key| labels.and_then(|labels| labels.get(key)).map(String::as_str)) {
        let detail = "`selector` does not match template `labels`";
        errors.invalid(&path.child("metadata").child("labels"), json!(labels), detail);
    }
}

/// Refuses restart policies other than Always, and deadlines, in pods that are replaced when they end.
pub fn check_replaced(template: &PodTemplateSpec, kind: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let none = PodSpec::default();
    let (spec, path) = (template.spec.as_ref().unwrap_or(&none), path.child("spec"));
    let policy = spec.restart_policy.as_deref().unwrap_or_default();
    if policy != "Always" {
        errors.unsupported(&path.child("restartPolicy"), policy, &["Always"]);
    }
    if spec.active_deadline_seconds.is_some() {
        let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.forbidden(&path.child("activeDeadlineSeconds"), &detail);
    }
}

/// Checks that a selector does not change.
pub fn check_same_selector(new: &LabelSelector, old: &LabelSelector, path: &FieldPath, errors: &mut FieldErrors) {
    if new != old {
        let text = if no_selector(new) { "null".to_owned() } else { selector::text(new) };
        errors.invalid_text(&path.child("selector"), &text, "field is immutable");
    }
}

/// Checks that numbers are not negative, each given with its field.
pub fn check_counts(counts: &[(&str, Option<i64>)], path: &FieldPath, errors: &mut FieldErrors) {
    for (field, count) in counts {
        amount::check_not_negative(count.unwrap_or(0), &path.child(field), errors);
    }
}

/// Checks that none of these counts of pods is greater than another count of the status.
pub fn check_at_most(
    counts: &[(&str, Option<i32>)],
    most: i32,
    limit: &str,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    for (field, count) in counts {
        if let Some(count) = count.filter(|count| *count > most) {
            errors.invalid(&path.child(field), count, &format!("cannot be greater than {limit}"));
        }
    }
}

/// Checks that the number of collisions of generated names does not fall.
pub fn check_collisions(new: Option<i32>, old: Option<i32>, path: &FieldPath, errors: &mut FieldErrors) {
    if old.is_some_and(|old| new.is_none_or(|new| new < old)) {
        errors.invalid(&path.child("collisionCount"), new.unwrap_or(0), "cannot be decremented");
    }
}

/// Checks the counts in the status of a ReplicaSet or ReplicationController: all pods, the fully labelled, the ready and the available
/// ones.
pub fn check_replica_status(all: i32, counts: [Option<i32>; 3], observed: Option<i64>, errors: &mut FieldErrors) {
    let [labelled, ready, available] = counts.map(Option::unwrap_or_default);
    let path = FieldPath::root("status");
    let counts = [
        ("replicas", Some(all.into())),
        ("fullyLabeledReplicas", Some(labelled.into())),
        ("readyReplicas", Some(ready.into())),
        ("availableReplicas", Some(available.into())),
        ("observedGeneration", observed),
    ];
    check_counts(&counts, &path, errors);
    let parts = [
        ("fullyLabeledReplicas", Some(labelled)),
        ("readyReplicas", Some(ready)),
        ("availableReplicas", Some(available)),
    ];
    check_at_most(&parts, all, "status.replicas", &path, errors);
    check_at_most(&parts[2..], ready, "readyReplicas", &path, errors);
}

/// Whether a number or percentage is zero.
pub fn is_nothing(value: &IntOrString) -> bool {
    match value {
        IntOrString::Int(number) => *number == 0,
        IntOrString::String(_) => amount::percent(value).unwrap_or(0) == 0,
    }
}
