//! Checks of a Job's failure policy and success policy.

use crate::kinds::shared::go::{self, GoField, GoShape};
use crate::kinds::shared::{names, workload};
use crate::kinds::{FieldErrors, FieldPath};
use k8s_openapi::api::batch::v1::{
    JobSpec, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyRule, SuccessPolicyRule,
};
use serde_json::json;
use std::collections::BTreeSet;

/// Maximum length of a list of completion indexes (Kubernetes: `maxJobSuccessPolicySucceededIndexesLimit`).
const MAX_INDEXES_LENGTH: usize = 64 * 1024;

const SUCCESS_POLICY: &[GoField] = &[("Rules", "rules", GoShape::List(SUCCESS_RULE))];
const SUCCESS_RULE: &[GoField] = &[
    ("SucceededIndexes", "succeededIndexes", GoShape::Pointer),
    ("SucceededCount", "succeededCount", GoShape::Pointer),
];

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
        "" => errors.required(&at, "valid values: [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]"),
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
        errors.each_invalid(&path.child("type"), pattern.type_.as_str(), names::qualified(&pattern.type_));
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
        "" => errors.required(&path.child("operator"), "valid values: [\"In\" \"NotIn\"]"),
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
        let text = go::lay_out(&json!(policy), SUCCESS_POLICY).compact();
        return errors.invalid_text(&path, &text, "requires indexed completion mode");
    }
    let path = path.child("rules");
    if policy.rules.is_empty() {
        errors.required(&path, "at least one rules must be specified when the successPolicy is specified");
    }
    if policy.rules.len() > 20 {
        errors.too_many(&path, policy.rules.len(), 20);
    }
    // The absence of completions is an error already.
    let Some(completions) = spec.completions else { return };
    for (index, rule) in policy.rules.iter().enumerate() {
        check_success_rule(rule, completions, &path.index(index), errors);
    }
}

fn check_success_rule(rule: &SuccessPolicyRule, completions: i32, path: &FieldPath, errors: &mut FieldErrors) {
    if rule.succeeded_count.is_none() && rule.succeeded_indexes.is_none() {
        errors.required(path, "at least one of succeededCount or succeededIndexes must be specified");
    }
    let indexes = rule.succeeded_indexes.as_deref().map(|text| {
        let at = path.child("succeededIndexes");
        if text.len() > MAX_INDEXES_LENGTH {
            errors.too_long(&at, MAX_INDEXES_LENGTH);
        }
        count_indexes(text, completions.into()).unwrap_or_else(|problem| {
            errors.invalid(&at, text, &format!("error parsing succeededIndexes: {problem}"));
            0
        })
    });
    let Some(count) = rule.succeeded_count.map(i64::from) else { return };
    workload::check_counts(&[("succeededCount", Some(count))], path, errors);
    let limits = [
        (Some(completions.into()), "the number of specified completions"),
        (indexes, "the number of indexes in the specified succeededIndexes field"),
    ];
    for (limit, meaning) in limits {
        if let Some(limit) = limit.filter(|limit| count > *limit) {
            let detail = format!("must be less than or equal to {limit} ({meaning})");
            errors.invalid(&path.child("succeededCount"), count, &detail);
        }
    }
}

/// Counts the completion indexes in a list such as `0,2-5`, which must rise and be below `completions`.
pub fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    let (mut total, mut previous) = (0, None);
    for interval in text.split(',').filter(|_| !text.is_empty()) {
        let (first, last) = parse_interval(interval, completions)?;
        if let Some(previous) = previous.filter(|previous| *previous >= first) {
            return Err(format!("non-increasing order, previous: {previous}, current: {first}"));
        }
        total += last - first + 1;
        previous = Some(last);
    }
    Ok(total)
}

/// Parses `3` or `2-5`.
pub fn parse_interval(interval: &str, completions: i64) -> Result<(i64, i64), String> {
    let parse = |text: &str| match text.parse::<i64>() {
        Err(_) => Err(format!("cannot convert string to integer for index: {text:?}")),
        Ok(index) if index >= completions => Err(format!("too large index: {text:?}")),
        Ok(index) => Ok(index),
    };
    let Some((first, last)) = interval.split_once('-') else {
        return parse(interval).map(|index| (index, index));
    };
    if last.contains('-') {
        let rule = "that an index interval can have at most two parts separated by '-'";
        return Err(format!("the fragment {interval:?} violates the requirement {rule}"));
    }
    match (parse(first)?, parse(last)?) {
        (first, last) if first < last => Ok((first, last)),
        (first, last) => Err(format!("non-increasing order, previous: {first}, current: {last}")),
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::testing::refusals;
    use serde_json::{Value, json};

    /// Returns the errors of an Indexed Job with five completions and one rule of success.
    fn rule_refusals(rule: &Value) -> String {
        let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
        let spec = json!({"completions": 5, "completionMode": "Indexed", "template": template,
            "successPolicy": {"rules": [rule]}});
        let found = refusals(json!({"apiVersion": "batch/v1", "kind": "Job", "spec": spec}));
        found.join("; ").replace("spec.successPolicy.rules[0]", "rule")
    }

    #[test]
    fn success_policy_with_malformed_or_too_few_indexes_is_refused() {
        let parsing = |text: &str, problem: &str| {
            format!("rule.succeededIndexes: Invalid value: {text:?}: error parsing succeededIndexes: {problem}")
        };
        let rules = [
            (json!({"succeededIndexes": "0,2-4"}), String::new()),
            (json!({"succeededIndexes": "1-2", "succeededCount": 2}), String::new()),
            (
                json!({"succeededIndexes": "garbage"}),
                parsing("garbage", "cannot convert string to integer for index: \"garbage\""),
            ),
            (json!({"succeededIndexes": "3,1"}), parsing("3,1", "non-increasing order, previous: 3, current: 1")),
            (json!({"succeededIndexes": "2-2"}), parsing("2-2", "non-increasing order, previous: 2, current: 2")),
            (json!({"succeededIndexes": "4-5"}), parsing("4-5", "too large index: \"5\"")),
            (
                json!({"succeededIndexes": "1-2-3"}),
                parsing(
                    "1-2-3",
                    "the fragment \"1-2-3\" violates the requirement that an index interval can have at most two parts \
                     separated by '-'",
                ),
            ),
            (
                json!({"succeededIndexes": "1-2", "succeededCount": 3}),
                "rule.succeededCount: Invalid value: 3: must be less than or equal to 2 (the number of indexes in the \
                 specified succeededIndexes field)"
                    .into(),
            ),
            (
                json!({"succeededCount": 6}),
                "rule.succeededCount: Invalid value: 6: must be less than or equal to 5 (the number of specified \
                 completions)"
                    .into(),
            ),
        ];
        for (rule, problem) in rules {
            assert_eq!(rule_refusals(&rule), problem, "{rule}");
        }
        let long = format!("0,{}1", "0".repeat(64 * 1024));
        let problem = "rule.succeededIndexes: Too long: may not be more than 65536 bytes";
        assert_eq!(rule_refusals(&json!({"succeededIndexes": long})), problem);
    }
}
