//! Checks of a Job's status (`ValidateJobUpdateStatus`), in Kubernetes' order.
//!
//! Most rules hold only for fields that changed: a status may lag behind a changed spec for a while.

use super::policy::{count_indexes, parse_interval};
use crate::kinds::shared::go::{self, GoField, GoShape};
use crate::kinds::shared::workload;
use crate::kinds::{FieldErrors, FieldPath};
use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus, UncountedTerminatedPods};
use serde_json::json;
use std::collections::BTreeSet;

const UNCOUNTED: &[GoField] = &[("Succeeded", "succeeded", GoShape::Pointer), ("Failed", "failed", GoShape::Pointer)];

/// Checks a status against the old one.
pub fn check_status(new: &Job, old: &Job, errors: &mut FieldErrors) {
    let status = |job: &Job| job.status.clone().unwrap_or_default();
    let spec = new.spec.clone().unwrap_or_default();
    let change = StatusChange { spec: &spec, new: status(new), old: status(old), path: FieldPath::root("status") };
    change.check_counts(errors);
    change.check_conditions_and_times(errors);
    change.check_finished(errors);
    change.check_indexes(errors);
    change.check_pods(errors);
    change.check_success_criteria(errors);
    change.check_kept(errors);
    change.check_kept_criteria(errors);
}

struct StatusChange<'s> {
    spec: &'s JobSpec,
    new: JobStatus,
    old: JobStatus,
    path: FieldPath,
}

/// Whether a status has a condition of this type that is True.
fn is_true(status: &JobStatus, condition_type: &str) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions.any(|condition| condition.type_ == condition_type && condition.status == "True")
}

fn is_finished(status: &JobStatus) -> bool {
    is_true(status, "Complete") || is_true(status, "Failed")
}

impl StatusChange<'_> {
    fn has(&self, condition_type: &str) -> bool {
        is_true(&self.new, condition_type)
    }

    /// Whether a part of the status changed.
    fn changed<T: PartialEq>(&self, part: impl Fn(&JobStatus) -> T) -> bool {
        part(&self.new) != part(&self.old)
    }

    fn condition_changed(&self, condition_type: &str) -> bool {
        self.changed(|status| is_true(status, condition_type))
    }

    fn times_changed(&self) -> (bool, bool) {
        (self.changed(|status| status.start_time.clone()), self.changed(|status| status.completion_time.clone()))
    }

    /// Refuses the conditions if they break a rule.
    fn refuse_conditions(&self, is_wrong: bool, detail: &str, errors: &mut FieldErrors) {
        if is_wrong {
            errors.invalid_without_value(&self.path.child("conditions"), detail);
        }
    }

    fn check_counts(&self, errors: &mut FieldErrors) {
        let (status, path) = (&self.new, &self.path);
        let counts = [
            ("active", status.active),
            ("succeeded", status.succeeded),
            ("failed", status.failed),
            ("ready", status.ready),
            ("terminating", status.terminating),
        ];
        workload::check_counts(&counts.map(|(field, count)| (field, count.map(i64::from))), path, errors);
        let Some(pods) = &status.uncounted_terminated_pods else { return };
        let (path, mut seen) = (path.child("uncountedTerminatedPods"), BTreeSet::new());
        for (field, uids) in [("succeeded", &pods.succeeded), ("failed", &pods.failed)] {
            for (index, uid) in uids.iter().flatten().enumerate() {
                let path = path.child(field).index(index);
                if uid.is_empty() {
                    errors.invalid(&path, "", "must not be empty");
                } else if !seen.insert(uid) {
                    errors.duplicate(&path, uid.as_str());
                }
            }
        }
    }

    fn check_conditions_and_times(&self, errors: &mut FieldErrors) {
        let (start_changed, completion_changed) = self.times_changed();
        let (complete, failed) = (self.has("Complete"), self.has("Failed"));
        let complete_changed = self.condition_changed("Complete");
        let is_wrong = complete && failed && (complete_changed || self.condition_changed("Failed"));
        self.refuse_conditions(is_wrong, "cannot set Complete=True and Failed=true conditions", errors);
        let target_changed = complete_changed || self.condition_changed("FailureTarget");
        let is_wrong = complete && self.has("FailureTarget") && target_changed;
        self.refuse_conditions(is_wrong, "cannot set Complete=True and FailureTarget=true conditions", errors);
        let path = self.path.child("completionTime");
        if complete_changed || completion_changed {
            match &self.new.completion_time {
                Some(time) if !complete => {
                    let detail = "cannot set completionTime when there is no Complete=True condition";
                    errors.invalid(&path, json!(time), detail);
                }
                None if complete => errors.required(&path, "completionTime is required for Complete jobs"),
                _ => {}
            }
        }
        if let (Some(start), Some(completion)) = (&self.new.start_time, &self.new.completion_time)
            && (start_changed || completion_changed)
            && completion < start
        {
            errors.invalid(&path, json!(completion), "must be equal to or after `startTime`");
        }
    }

    /// Checks the conditions that precede the final ones, and that a finished Job has no pods left.
    fn check_finished(&self, errors: &mut FieldErrors) {
        let failed_changed = self.condition_changed("Failed") || self.changed(|status| status.failed_indexes.clone());
        let is_wrong = failed_changed && self.has("Failed") && !self.has("FailureTarget");
        let detail = "cannot set Failed=True condition without the FailureTarget=true condition";
        self.refuse_conditions(is_wrong, detail, errors);
        let complete_changed = self.condition_changed("Complete") || self.condition_changed("SuccessCriteriaMet");
        let is_wrong = complete_changed && self.has("Complete") && !self.has("SuccessCriteriaMet");
        let detail = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
        self.refuse_conditions(is_wrong, detail, errors);
        if !is_finished(&self.new) {
            return;
        }
        let finished_now = self.changed(is_finished);
        let active = self.new.active.unwrap_or(0);
        if active > 0 && (finished_now || self.changed(|status| status.active.unwrap_or(0))) {
            errors.invalid(&self.path.child("active"), active, "active>0 is invalid for finished job");
        }
        let never_starts = self.spec.suspend == Some(true) && self.spec.completions == Some(0);
        if self.new.start_time.is_none() && (finished_now || self.times_changed().0) && !never_starts {
            errors.required(&self.path.child("startTime"), "startTime is required for finished job");
        }
        let count = |pods: &UncountedTerminatedPods| {
            pods.succeeded.as_ref().map_or(0, Vec::len) + pods.failed.as_ref().map_or(0, Vec::len)
        };
        if let Some(pods) = self.new.uncounted_terminated_pods.as_ref().filter(|pods| count(pods) > 0)
            && (finished_now || self.changed(|status| status.uncounted_terminated_pods.clone()))
        {
            let text = go::lay_out(&json!(pods), UNCOUNTED).compact();
            errors.invalid_text(&self.path.child("uncountedTerminatedPods"), &text, "must be empty for finished job");
        }
    }

    fn check_indexes(&self, errors: &mut FieldErrors) {
        let completed = self.new.completed_indexes.as_deref().unwrap_or_default();
        let failed = self.new.failed_indexes.as_deref();
        let completed_changed = self.changed(|status| status.completed_indexes.clone().unwrap_or_default());
        let failed_changed = self.changed(|status| status.failed_indexes.clone());
        let completions = self.spec.completions.map(i64::from);
        let has_limit = self.spec.backoff_limit_per_index.is_some();
        let fields = [
            ("completedIndexes", Some(completed).filter(|_| completed_changed)),
            ("failedIndexes", failed.filter(|_| failed_changed && has_limit)),
        ];
        for (field, text) in fields {
            if let (Some(completions), Some(text)) = (completions, text)
                && let Err(problem) = count_indexes(text, completions)
            {
                errors.invalid(&self.path.child(field), text, &format!("error parsing {field}: {problem}"));
            }
        }
        if completed_changed && !completed.is_empty() && self.spec.completion_mode.as_deref() != Some("Indexed") {
            let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
            errors.invalid(&self.path.child("completedIndexes"), completed, detail);
        }
        let (Some(failed), path) = (failed, self.path.child("failedIndexes")) else { return };
        if failed_changed && !has_limit {
            let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
            errors.invalid(&path, failed, detail);
        }
        if let Some(completions) = completions.filter(|_| failed_changed || completed_changed)
            && let Some(index) = find_common_index(completed, failed, completions)
        {
            let detail = format!("failedIndexes and completedIndexes overlap at index: {index}");
            errors.invalid(&path, failed, &detail);
        }
    }

    fn check_pods(&self, errors: &mut FieldErrors) {
        let finished_now = is_finished(&self.new) && self.changed(is_finished);
        if let Some(terminating) = self.new.terminating.filter(|count| *count > 0 && is_finished(&self.new))
            && (finished_now || self.changed(|status| status.terminating))
        {
            let detail = "terminating>0 is invalid for finished job";
            errors.invalid(&self.path.child("terminating"), terminating, detail);
        }
        let active = self.new.active.unwrap_or(0);
        if let Some(ready) = self.new.ready.filter(|ready| *ready > active)
            && self.changed(|status| (status.ready, status.active.unwrap_or(0)))
        {
            errors.invalid(&self.path.child("ready"), ready, "cannot set more ready pods than active");
        }
    }

    fn check_success_criteria(&self, errors: &mut FieldErrors) {
        let is_met = self.has("SuccessCriteriaMet");
        for other in ["Failed", "FailureTarget"] {
            let detail = format!("cannot set SuccessCriteriaMet=True and {other}=true conditions");
            self.refuse_conditions(is_met && self.has(other), &detail, errors);
        }
        let is_wrong = self.spec.success_policy.is_some() && !is_met && self.has("Complete");
        let detail = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True";
        self.refuse_conditions(is_wrong, detail, errors);
    }

    /// Checks that final conditions, counters and times stay.
    fn check_kept(&self, errors: &mut FieldErrors) {
        for kept in ["Failed", "Complete", "FailureTarget"] {
            let detail = format!("cannot disable the terminal {kept}=True condition");
            self.refuse_conditions(is_true(&self.old, kept) && !self.has(kept), &detail, errors);
        }
        let (failed, succeeded) = (self.new.failed.unwrap_or(0), self.new.succeeded.unwrap_or(0));
        if failed < self.old.failed.unwrap_or(0) {
            errors.invalid(&self.path.child("failed"), failed, "cannot decrease the failed counter");
        }
        // A Job of this kind may be scaled down.
        let is_indexed = self.spec.completion_mode.as_deref() == Some("Indexed");
        let is_elastic = is_indexed && self.spec.completions == self.spec.parallelism;
        if succeeded < self.old.succeeded.unwrap_or(0) && !is_elastic {
            errors.invalid(&self.path.child("succeeded"), succeeded, "cannot decrease the succeeded counter");
        }
        let (start_changed, completion_changed) = self.times_changed();
        if let Some(time) = self.new.completion_time.as_ref().filter(|_| self.old.completion_time.is_some())
            && completion_changed
        {
            errors.invalid(&self.path.child("completionTime"), json!(time), "field is immutable");
        }
        if start_changed && self.old.start_time.is_some() && self.spec.suspend != Some(true) && !self.is_resuming() {
            let detail = "startTime cannot be removed for unsuspended job";
            errors.required(&self.path.child("startTime"), detail);
        }
    }

    /// Whether the new status resumes a suspended Job.
    fn is_resuming(&self) -> bool {
        let mut conditions = self.new.conditions.iter().flatten();
        let goes_on = conditions.any(|condition| condition.type_ == "Suspended" && condition.status == "False");
        is_true(&self.old, "Suspended") && goes_on
    }

    fn check_kept_criteria(&self, errors: &mut FieldErrors) {
        let (was_met, is_met) = (is_true(&self.old, "SuccessCriteriaMet"), self.has("SuccessCriteriaMet"));
        self.refuse_conditions(was_met && !is_met, "cannot disable the SuccessCriteriaMet=True condition", errors);
        let is_wrong = is_true(&self.old, "Complete") && !was_met && is_met;
        let detail = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        self.refuse_conditions(is_wrong, detail, errors);
    }
}

/// Returns the first index that is in both texts. Malformed intervals are skipped: they have an error of their own.
fn find_common_index(completed: &str, failed: &str, completions: i64) -> Option<i64> {
    let intervals = |text: &str| -> Vec<(i64, i64)> {
        text.split(',').filter_map(|interval| parse_interval(interval, completions).ok()).collect()
    };
    let (completed, failed) = (intervals(completed), intervals(failed));
    let (mut completed, mut failed) = (completed.iter().peekable(), failed.iter().peekable());
    while let (Some((first, last)), Some((failed_first, failed_last))) = (completed.peek(), failed.peek()) {
        if first <= failed_last && failed_first <= last {
            return Some(*first.max(failed_first));
        }
        if first <= failed_first {
            completed.next();
        } else {
            failed.next();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use crate::kinds::testing::status_refusals;
    use serde_json::{Value, json};

    /// The errors of a status of a Job with this spec, which had the status `before`.
    fn refusals(spec: &Value, before: Value, after: Value) -> Vec<String> {
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "spec": spec});
        status_refusals(job, &json!({"status": before}), &json!({"status": after}))
    }

    fn conditions(types: &[&str]) -> Value {
        types.iter().map(|name| json!({"type": name, "status": "True"})).collect()
    }

    const START: &str = "2026-01-01T00:00:00Z";
    const END: &str = "2026-01-01T00:01:00Z";

    #[test]
    fn counts_of_pods_are_checked() {
        let cases = [
            (json!({"succeeded": 1}), json!({"active": 2, "ready": 1, "succeeded": 3}), ""),
            (
                json!({}),
                json!({"succeeded": -4}),
                "status.succeeded: Invalid value: -4: must be greater than or equal to 0; \
                 status.succeeded: Invalid value: -4: cannot decrease the succeeded counter",
            ),
            (
                json!({}),
                json!({"active": 1, "ready": 2}),
                "status.ready: Invalid value: 2: cannot set more ready pods than active",
            ),
            (
                json!({"failed": 2}),
                json!({"failed": 1}),
                "status.failed: Invalid value: 1: cannot decrease the failed counter",
            ),
            (
                json!({}),
                json!({"uncountedTerminatedPods": {"succeeded": ["a"], "failed": ["a", ""]}}),
                "status.uncountedTerminatedPods.failed[0]: Duplicate value: \"a\"; \
                 status.uncountedTerminatedPods.failed[1]: Invalid value: \"\": must not be empty",
            ),
        ];
        for (before, after, problems) in cases {
            assert_eq!(refusals(&json!({}), before, after.clone()).join("; "), problems, "{after}");
        }
    }

    #[test]
    fn final_conditions_exclude_each_other_and_stay() {
        let done = |types: &[&str]| json!({"startTime": START, "completionTime": END, "conditions": conditions(types)});
        let complete = ["SuccessCriteriaMet", "Complete"];
        let rule = |text: &str| format!("status.conditions: Invalid value: {text}");
        let cases = [
            (json!({}), done(&complete), String::new()),
            (
                json!({}),
                done(&["SuccessCriteriaMet", "Complete", "Failed", "FailureTarget"]),
                [
                    "cannot set Complete=True and Failed=true conditions",
                    "cannot set Complete=True and FailureTarget=true conditions",
                    "cannot set SuccessCriteriaMet=True and Failed=true conditions",
                    "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
                ]
                .map(rule)
                .join("; "),
            ),
            (
                json!({}),
                done(&["Complete"]),
                rule("cannot set Complete=True condition without the SuccessCriteriaMet=true condition"),
            ),
            (
                json!({}),
                json!({"startTime": START, "conditions": conditions(&["Failed"])}),
                rule("cannot set Failed=True condition without the FailureTarget=true condition"),
            ),
            (
                done(&complete),
                json!({"conditions": conditions(&["SuccessCriteriaMet"])}),
                format!(
                    "status.completionTime: Invalid value: {END:?}: cannot set completionTime when there is no \
                     Complete=True condition; {}",
                    rule("cannot disable the terminal Complete=True condition")
                ),
            ),
            (
                json!({"conditions": conditions(&["SuccessCriteriaMet"])}),
                json!({"conditions": []}),
                rule("cannot disable the SuccessCriteriaMet=True condition"),
            ),
        ];
        for (before, after, problems) in cases {
            assert_eq!(refusals(&json!({}), before, after.clone()).join("; "), problems, "{after}");
        }
    }

    #[test]
    fn finished_job_has_its_times_and_no_pods() {
        let complete = conditions(&["SuccessCriteriaMet", "Complete"]);
        let cases = [
            (
                json!({}),
                json!({"conditions": complete, "active": 1, "terminating": 1, "uncountedTerminatedPods": {"failed": ["a"]}}),
                "status.completionTime: Required value: completionTime is required for Complete jobs; \
                 status.active: Invalid value: 1: active>0 is invalid for finished job; \
                 status.startTime: Required value: startTime is required for finished job; \
                 status.uncountedTerminatedPods: Invalid value: {\"Succeeded\":null,\"Failed\":[\"a\"]}: \
                 must be empty for finished job; \
                 status.terminating: Invalid value: 1: terminating>0 is invalid for finished job",
            ),
            (
                json!({}),
                json!({"conditions": complete, "startTime": END, "completionTime": START}),
                "status.completionTime: Invalid value: \"2026-01-01T00:00:00Z\": must be equal to or after `startTime`",
            ),
            (
                json!({"conditions": complete, "startTime": START, "completionTime": END}),
                json!({"completionTime": "2026-01-01T00:02:00Z"}),
                "status.completionTime: Invalid value: \"2026-01-01T00:02:00Z\": field is immutable",
            ),
            (
                json!({"startTime": START}),
                json!({"startTime": null}),
                "status.startTime: Required value: startTime cannot be removed for unsuspended job",
            ),
        ];
        for (before, after, problems) in cases {
            assert_eq!(refusals(&json!({}), before, after.clone()).join("; "), problems, "{after}");
        }
        let suspended = json!({"suspend": true});
        assert_eq!(refusals(&suspended, json!({"startTime": START}), json!({"startTime": null})), [""; 0]);
    }

    #[test]
    fn completion_indexes_are_checked() {
        let indexed =
            json!({"completionMode": "Indexed", "completions": 5, "parallelism": 5, "backoffLimitPerIndex": 1});
        let cases = [
            (&indexed, json!({"completedIndexes": "0,2-3", "failedIndexes": "1,4"}), ""),
            (
                &indexed,
                json!({"completedIndexes": "0,5", "failedIndexes": "x"}),
                "status.completedIndexes: Invalid value: \"0,5\": error parsing completedIndexes: too large index: \"5\"; \
                 status.failedIndexes: Invalid value: \"x\": error parsing failedIndexes: cannot convert string to \
                 integer for index: \"x\"",
            ),
            (
                &indexed,
                json!({"completedIndexes": "0,2-3", "failedIndexes": "1,3-4"}),
                "status.failedIndexes: Invalid value: \"1,3-4\": failedIndexes and completedIndexes overlap at index: 3",
            ),
            (
                &json!({}),
                json!({"completedIndexes": "0", "failedIndexes": ""}),
                "status.completedIndexes: Invalid value: \"0\": cannot set non-empty completedIndexes when non-indexed \
                 completion mode; status.failedIndexes: Invalid value: \"\": cannot set non-null failedIndexes when \
                 backoffLimitPerIndex is null",
            ),
        ];
        for (spec, after, problems) in cases {
            assert_eq!(refusals(spec, json!({}), after.clone()).join("; "), problems, "{after}");
        }
    }
}
