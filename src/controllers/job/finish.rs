//! The end of Jobs: first the interim condition (SuccessCriteriaMet, FailureTarget), then, when every pod has ended and
//! is counted, the final one (Complete, Failed) (KEP-3998).

use super::{JobState, is_tracked, policy, release};
use crate::controllers::pods::BURST;
use crate::object::condition;
use crate::object::time::Shift;
use crate::world::{EventType, Row};
use serde_json::Value;
use std::sync::Arc;

/// Final condition of a Job, with reason and message.
pub(super) struct JobOutcome {
    pub success: bool,
    pub reason: String,
    pub message: String,
}

/// Whether a Job is Complete or Failed.
pub fn is_finished(conditions: &[Value]) -> bool {
    condition::is_true(conditions, "Complete") || condition::is_true(conditions, "Failed")
}

impl JobOutcome {
    fn failure(reason: &str, message: &str) -> JobOutcome {
        JobOutcome { success: false, reason: reason.into(), message: message.into() }
    }

    fn success(reason: &str, message: &str) -> JobOutcome {
        JobOutcome { success: true, reason: reason.into(), message: message.into() }
    }

    /// The outcome that an interim condition already records.
    pub(super) fn from_conditions(conditions: &[Value]) -> Option<JobOutcome> {
        let recorded = |kind, success| {
            let condition = condition::find(conditions, kind).filter(|condition| condition["status"] == "True")?;
            let text = |name: &str| condition[name].as_str().unwrap_or_default().to_owned();
            Some(JobOutcome { success, reason: text("reason"), message: text("message") })
        };
        recorded("FailureTarget", false).or_else(|| recorded("SuccessCriteriaMet", true))
    }
}

impl JobState<'_> {
    /// Returns the final condition when the Job ends now.
    pub(super) fn verdict(&mut self) -> Option<JobOutcome> {
        if let Some(recorded) = JobOutcome::from_conditions(&self.conditions) {
            return Some(recorded);
        }
        if let Some(message) = policy::failure_message(&self.object, &self.pods) {
            return Some(JobOutcome::failure("PodFailurePolicy", &message));
        }
        if self.all_failed() > self.spec.backoff_limit || self.restarts_exceed_limit() {
            return Some(JobOutcome::failure("BackoffLimitExceeded", "Job has reached the specified backoff limit"));
        }
        if self.is_past_deadline() {
            return Some(JobOutcome::failure("DeadlineExceeded", "Job was active longer than specified deadline"));
        }
        self.index_verdict().or_else(|| {
            self.is_done()
                .then(|| JobOutcome::success("CompletionsReached", "Reached expected number of succeeded pods"))
        })
    }

    fn is_done(&self) -> bool {
        let idle = self.active().next().is_none();
        match self.spec.completions {
            None => self.all_succeeded() > 0 && idle,
            Some(completions) => self.all_succeeded() >= completions && idle,
        }
    }

    /// Whether container restarts exceed the backoff limit. They count with `restartPolicy: OnFailure`, since the pods
    /// do not fail.
    fn restarts_exceed_limit(&self) -> bool {
        if self.object.text(&["spec", "template", "spec", "restartPolicy"]) != Some("OnFailure") {
            return false;
        }
        let restarts: i64 = self.active().filter_map(|pod| Some(pod.pod()?.restarts)).sum();
        if self.spec.backoff_limit == 0 { restarts > 0 } else { restarts >= self.spec.backoff_limit }
    }

    fn is_past_deadline(&mut self) -> bool {
        let (Some(start), Some(seconds)) = (self.start, self.spec.active_deadline) else { return false };
        let deadline = start.later(jiff::SignedDuration::from_secs(seconds));
        if self.world.now < deadline {
            self.plan.wake_at(deadline);
        }
        self.world.now >= deadline
    }

    /// Returns the final condition that failed or sufficient indexes cause.
    fn index_verdict(&mut self) -> Option<JobOutcome> {
        let completions = self.spec.completions.filter(|_| self.spec.indexed)?;
        if let Some(limit) = self.spec.backoff_limit_per_index {
            for (index, pods) in self.pods_by_index() {
                if self.completed.has(index) {
                    continue;
                }
                if self.failures_of(&pods) > limit || policy::fails_index(&self.object, &pods, index) {
                    self.failed_indexes.insert(index);
                }
            }
            let failed = self.failed_indexes.len();
            if self.object.int(&["spec", "maxFailedIndexes"]).is_some_and(|most| failed > most) {
                let message = "Job has exceeded the specified maximal number of failed indexes";
                return Some(JobOutcome::failure("MaxFailedIndexesExceeded", message));
            }
            if failed > 0 && self.completed.len() + failed >= completions && self.active().next().is_none() {
                return Some(JobOutcome::failure("FailedIndexes", "Job has failed indexes"));
            }
        }
        let message = policy::success_message(&self.object, &self.completed, completions)?;
        Some(JobOutcome::success("SuccessPolicy", &message))
    }

    /// Ends the Job: deletes the active pods, and sets the final condition once all pods are counted.
    pub(super) fn finish(&mut self, verdict: &JobOutcome) {
        let JobOutcome { success, reason, message } = verdict;
        let (target, end) = if *success { ("SuccessCriteriaMet", "Complete") } else { ("FailureTarget", "Failed") };
        if !condition::is_true(&self.conditions, target) {
            self.set_condition(target, "True", reason, message);
        }
        let active: Vec<&Arc<Row>> = self.active().collect();
        for pod in active.iter().take(BURST) {
            // Pods that a successful Job ends have not failed.
            if *success && is_tracked(pod) {
                release(pod, "its Job is finished", &mut self.plan);
            }
            self.delete(pod, "its Job is finished");
        }
        let is_counted = self.uncounted.is_empty() && self.awaiting_successor == 0;
        if !active.is_empty() || self.terminating() > 0 || !is_counted {
            return self.plan.wait("waiting for the Job's last pods to end and be counted");
        }
        self.set_condition(end, "True", reason, message);
        if *success {
            self.event(EventType::Normal, "Completed", "Job completed");
        } else {
            self.plan.event(self.owner.row, EventType::Warning, reason.clone(), message.clone());
        }
    }
}
