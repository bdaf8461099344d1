//! Pod failure policy and success policy of a Job (KEP-3329, KEP-3998).

use super::index_of;
use super::indexes::Indexes;
use crate::object::Object;
use crate::world::{Phase, Row};
use serde_json::Value;
use std::sync::Arc;

/// Whether the policy ignores a pod's failure.
pub(super) fn is_ignored(job: &Object, pod: &Row) -> bool {
    match_rule(job, pod).is_some_and(|(action, _)| action == "Ignore")
}

/// Returns the message of the first pod whose failure fails the whole Job.
pub(super) fn failure_message(job: &Object, pods: &[&Arc<Row>]) -> Option<String> {
    pods.iter()
        .filter_map(|pod| match_rule(job, pod))
        .find(|(action, _)| action == "FailJob")
        .map(|(_, message)| message)
}

/// Whether the failure of a pod fails its index.
pub(super) fn fails_index(job: &Object, pods: &[&Arc<Row>], index: i64) -> bool {
    let of_index = pods.iter().filter(|pod| index_of(pod) == Some(index));
    of_index.filter_map(|pod| match_rule(job, pod)).any(|(action, _)| action == "FailIndex")
}

/// The action and message of the first rule that a failed pod matches.
fn match_rule(job: &Object, pod: &Row) -> Option<(String, String)> {
    let rules = job.items(&["spec", "podFailurePolicy", "rules"]);
    if rules.is_empty() || pod.pod().is_none_or(|pod| pod.phase != Phase::Failed) {
        return None;
    }
    let object = pod.object();
    let place = pod.key.path();
    rules.iter().enumerate().find_map(|(at, rule)| {
        let action = rule["action"].as_str().unwrap_or_default().to_owned();
        let rule_text = format!("matching {action} rule at index {at}");
        let code = failed_container(&object, &rule["onExitCodes"]);
        let code = code
            .map(|(name, code)| format!("Container {name} for pod {place} failed with exit code {code} {rule_text}"));
        let condition = || condition_type(&object, &rule["onPodConditions"]);
        let message = code.or_else(|| condition().map(|kind| format!("Pod {place} has condition {kind} {rule_text}")));
        Some((action, message?))
    })
}

fn failed_container(pod: &Object, rule: &Value) -> Option<(String, i64)> {
    let values: Vec<i64> = rule["values"].as_array()?.iter().filter_map(Value::as_i64).collect();
    let wanted = rule["operator"] == "In";
    let statuses = pod.container_statuses();
    statuses.filter(|one| rule["containerName"].is_null() || rule["containerName"] == one["name"]).find_map(|one| {
        let code = one["state"]["terminated"]["exitCode"].as_i64().filter(|code| *code != 0)?;
        (values.contains(&code) == wanted).then(|| (one["name"].as_str().unwrap_or_default().to_owned(), code))
    })
}

fn condition_type(pod: &Object, rules: &Value) -> Option<String> {
    let conditions = pod.items(&["status", "conditions"]);
    rules.as_array()?.iter().find_map(|rule| {
        let value = rule["status"].as_str().unwrap_or("True");
        let hit = conditions.iter().any(|one| one["type"] == rule["type"] && one["status"] == value);
        hit.then(|| rule["type"].as_str().unwrap_or_default().to_owned())
    })
}

/// Returns the message when the completed indexes satisfy the success policy.
pub(super) fn success_message(job: &Object, done: &Indexes, completions: i64) -> Option<String> {
    if done.len() == 0 {
        return None;
    }
    let satisfied = |rule: &Value| {
        let wanted = rule["succeededIndexes"].as_str().map(|text| Indexes::parse(text, completions));
        let counted = wanted.as_ref().map_or(done.len(), |wanted| wanted.count_common(done));
        match (rule["succeededCount"].as_i64(), wanted) {
            (_, Some(wanted)) if wanted.len() == 0 => false,
            (Some(count), _) => counted >= count,
            (None, Some(wanted)) => counted == wanted.len(),
            (None, None) => false,
        }
    };
    let at = job.items(&["spec", "successPolicy", "rules"]).iter().position(satisfied)?;
    Some(format!("Matched rules at index {at}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn success_rule_without_indexes_or_without_a_success_is_not_satisfied() {
        for (rule, done, satisfied) in [
            (json!({"succeededIndexes": "garbage"}), "0", false),
            (json!({"succeededIndexes": "", "succeededCount": 0}), "0", false),
            (json!({"succeededCount": 0}), "", false),
            (json!({"succeededCount": 0}), "0", true),
            (json!({"succeededIndexes": "0,2"}), "0", false),
            (json!({"succeededIndexes": "0,2"}), "0-2", true),
        ] {
            let job = Object(json!({"spec": {"successPolicy": {"rules": [rule]}}}));
            let message = success_message(&job, &Indexes::parse(done, 5), 5);
            assert_eq!(message.is_some(), satisfied, "{rule} {done:?}");
        }
    }
}
