//! Checks of a Job's failure policy and success policy.

use crate::kinds::{FieldErrors, FieldPath};
use k8s_openapi::api::batch::v1::{JobSpec, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyRule};
use serde_json::json;
use std::collections::BTreeSet;

/// Checks the pod failure policy.
pub fn check_failure(spec: &JobSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(policy) = &spec.pod_failure_policy else { return };
    let path = path.child("podFailurePolicy").child("rules");
    if policy.rules.len() > 20 {
        errors.too_many(&path, policy.rules.len(), 20);
    }
    for (index, rule) in policy.rules.iter().enumerate() {
        check_rule(rule, spec, &path.index(index), errors);
    }
}

fn check_rule(rule: &PodFailurePolicyRule, spec: &JobSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let at = path.child("action");
    match rule.action.as_str() {
        "" => errors.required(&at, "valid values: \"Count\", \"FailIndex\", \"FailJob\", \"Ignore\""),
        "FailIndex" if spec.backoff_limit_per_index.is_none() => {
            errors.invalid(&at, "FailIndex", "requires the backoffLimitPerIndex to be set");
        }
        "Count" | "FailIndex" | "FailJob" | "Ignore" => {}
        other => errors.unsupported(&at, other, &["Count", "FailIndex", "FailJob", "Ignore"]),
    }
    if let Some(codes) = &rule.on_exit_codes {
        check_codes(codes, spec, &path.child("onExitCodes"), errors);
    }
    let patterns = rule.on_pod_conditions.as_deref().unwrap_or_default();
    for (index, pattern) in patterns.iter().enumerate() {
        let path = path.child("onPodConditions").index(index);
        if pattern.type_.is_empty() {
            errors.required(&path.child("type"), "");
        }
        let (status, known) = (pattern.status.as_deref().unwrap_or_default(), ["False", "True", "Unknown"]);
        if !known.contains(&status) {
            errors.unsupported(&path.child("status"), status, &known);
        }
    }
    match (rule.on_exit_codes.is_some(), !patterns.is_empty()) {
        (true, true) => {
            errors.invalid_without_value(path, "specifying both OnExitCodes and OnPodConditions is not supported");
        }
        (false, false) => {
            errors.invalid_without_value(path, "specifying one of OnExitCodes and OnPodConditions is required");
        }
        _ => {}
    }
}

fn check_codes(
    codes: &PodFailurePolicyOnExitCodesRequirement,
    spec: &JobSpec,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let known = ["In", "NotIn"];
    match codes.operator.as_str() {
        "" => errors.required(&path.child("operator"), "valid values: \"In\", \"NotIn\""),
        operator if known.contains(&operator) => {}
        other => errors.unsupported(&path.child("operator"), other, &known),
    }
    if let Some(name) = codes.container_name.as_deref() {
        let pod = spec.template.spec.as_ref();
        let mut all = pod.into_iter().flat_map(|pod| pod.containers.iter().chain(pod.init_containers.iter().flatten()));
        if !all.any(|container| container.name == name) {
            let detail = "must be one of the container or initContainer names in the pod template";
            errors.invalid(&path.child("containerName"), name, detail);
        }
    }
    let at = path.child("values");
    if codes.values.is_empty() {
        errors.invalid(&at, json!(codes.values), "at least one value is required");
    } else if codes.values.len() > 255 {
        errors.too_many(&at, codes.values.len(), 255);
    }
    let mut seen = BTreeSet::new();
    for (index, code) in codes.values.iter().enumerate() {
        if codes.operator == "In" && *code == 0 {
            errors.invalid(&at.index(index), 0, "must not be 0 for the In operator");
        }
        if !seen.insert(code) {
            errors.duplicate(&at.index(index), *code);
        }
    }
    if codes.values.windows(2).any(|pair| pair[0] > pair[1]) {
        errors.invalid(&at, json!(codes.values), "must be ordered");
    }
}

/// Checks the success policy of an Indexed Job.
pub fn check_success(spec: &JobSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(policy) = &spec.success_policy else { return };
    let path = path.child("successPolicy");
    if spec.completion_mode.as_deref() != Some("Indexed") {
        errors.invalid_without_value(&path, "requires indexed completion mode");
    }
    let path = path.child("rules");
    if policy.rules.is_empty() {
        errors.required(&path, "at least one rules must be specified when the successPolicy is specified");
    }
    if policy.rules.len() > 20 {
        errors.too_many(&path, policy.rules.len(), 20);
    }
    for (index, rule) in policy.rules.iter().enumerate() {
        let path = path.index(index);
        match (rule.succeeded_count, rule.succeeded_indexes.as_deref().unwrap_or_default()) {
            (None, "") => {
                errors.required(&path, "at least one of succeededCount or succeededIndexes must be specified");
            }
            (Some(count), _) if count <= 0 => {
                let detail = "must be greater than 0";
                errors.invalid(&path.child("succeededCount"), count, detail);
            }
            _ => {}
        }
    }
}
