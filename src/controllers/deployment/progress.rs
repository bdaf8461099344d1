//! A Deployment's status: counts, and the conditions Available, Progressing and ReplicaFailure.

use super::{ReplicaSetState, Rollout};
use crate::controllers::status;
use crate::kinds::deployment::DEADLINE_EXCEEDED;
use crate::object::time::Shift;
use crate::object::{condition, time};
use serde_json::{Value, json};

pub(super) const PROGRESSING: &str = "Progressing";
const AVAILABLE: &str = "Available";
const REPLICA_FAILURE: &str = "ReplicaFailure";
const COMPLETE: &str = "NewReplicaSetAvailable";

/// Replica counts for the status.
#[derive(Clone, Copy, PartialEq)]
struct ReplicaCounts {
    replicas: i64,
    updated: i64,
    ready: i64,
    available: i64,
}

impl Rollout<'_> {
    /// Updates counts and the condition Available, but not Progressing (paused, scaling, being deleted).
    pub(super) fn count_only(&mut self) {
        self.count();
    }

    /// Updates counts and the conditions.
    pub(super) fn update_progress(&mut self) {
        let before = self.counted();
        let now = self.count();
        if self.spec.deadline.is_none() {
            condition::remove(&mut self.conditions, PROGRESSING);
        } else {
            self.set_progress_condition(before, now);
        }
        self.set_failure_condition();
    }

    fn set_progress_condition(&mut self, before: ReplicaCounts, now: ReplicaCounts) {
        let reason = self.progressing_reason();
        if now.replicas == now.updated && reason.as_deref() == Some(COMPLETE) {
            return;
        }
        let name = self.new.map(|new| self.sets[new].row.key.name.to_string());
        let subject = match name {
            Some(name) => format!("ReplicaSet {name:?}"),
            None => format!("Deployment {:?}", &*self.owner.row.key.name),
        };
        if self.is_complete() {
            self.set_progressing("True", COMPLETE, &format!("{subject} has successfully progressed."));
        } else if now.is_ahead_of(before) {
            self.refresh_progressing(&format!("{subject} is progressing."));
        } else if reason.as_deref() != Some(COMPLETE) && self.has_timed_out() {
            self.set_progressing("False", DEADLINE_EXCEEDED, &format!("{subject} has timed out progressing."));
        }
        let wanted = self.spec.replicas;
        let (updated, available) = (now.updated, now.available);
        if !self.is_complete() {
            self.plan.wait(format!("{updated} of {wanted} pods are updated, {available} are available"));
        }
    }

    fn progressing_reason(&self) -> Option<String> {
        Some(condition::find(&self.conditions, PROGRESSING)?["reason"].as_str()?.to_owned())
    }

    /// Whether the rollout made no progress within the deadline, counted from `lastUpdateTime`.
    fn has_timed_out(&mut self) -> bool {
        let (Some(condition), Some(seconds)) = (condition::find(&self.conditions, PROGRESSING), self.spec.deadline)
        else {
            return false;
        };
        if condition["reason"] == DEADLINE_EXCEEDED {
            return true;
        }
        let Some(since) = time::from_json(&condition["lastUpdateTime"]) else {
            return false;
        };
        let deadline = since.later(jiff::SignedDuration::from_secs(seconds));
        if self.world.now < deadline {
            self.plan.wake_at(deadline);
        }
        self.world.now >= deadline
    }

    /// Restarts the progress clock.
    fn refresh_progressing(&mut self, message: &str) {
        let before = condition::find(&self.conditions, PROGRESSING).cloned();
        condition::remove(&mut self.conditions, PROGRESSING);
        self.set_condition(PROGRESSING, "True", "ReplicaSetUpdated", message);
        let (Some(before), Some(fresh)) = (before, self.conditions.last_mut()) else { return };
        if before["status"] == "True" {
            fresh["lastTransitionTime"] = before["lastTransitionTime"].clone();
        }
    }

    pub(super) fn set_progressing(&mut self, status: &str, reason: &str, message: &str) {
        self.set_condition(PROGRESSING, status, reason, message);
    }

    /// Sets a condition. A changed condition moves to the end of the list; one with the same status and reason stays.
    fn set_condition(&mut self, kind: &str, status: &str, reason: &str, message: &str) {
        let before = condition::find(&self.conditions, kind);
        if before.is_some_and(|known| known["status"] == status && known["reason"] == reason) {
            return;
        }
        let now = json!(time::rfc3339(self.world.now));
        let kept = before.filter(|known| known["status"] == status).map(|known| known["lastTransitionTime"].clone());
        let transition = kept.unwrap_or_else(|| now.clone());
        condition::remove(&mut self.conditions, kind);
        self.conditions.push(json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastUpdateTime": now, "lastTransitionTime": transition,
        }));
    }

    /// Records pause and resumption, so that the time between does not count against the deadline.
    pub(super) fn record_pause(&mut self) {
        let reason = self.progressing_reason();
        if self.spec.deadline.is_none() || reason.as_deref() == Some(DEADLINE_EXCEEDED) {
            return;
        }
        let noted = reason.as_deref() == Some("DeploymentPaused");
        if self.spec.paused && !noted {
            self.set_progressing("Unknown", "DeploymentPaused", "Deployment is paused");
        } else if !self.spec.paused && noted {
            self.set_progressing("Unknown", "DeploymentResumed", "Deployment is resumed");
        }
    }

    /// Copies the condition ReplicaFailure from the ReplicaSets.
    fn set_failure_condition(&mut self) {
        let failure = |set: &ReplicaSetState| set.object().condition(REPLICA_FAILURE).cloned();
        let newest = self.new.and_then(|new| failure(&self.sets[new]));
        let running = |at: &usize| self.sets[*at].replicas > 0;
        let found = newest.or_else(|| self.old().filter(running).find_map(|at| failure(&self.sets[at])));
        match found {
            None => condition::remove(&mut self.conditions, REPLICA_FAILURE),
            Some(failure) => {
                let text = |name: &str| failure[name].as_str().unwrap_or_default().to_owned();
                self.set_condition(REPLICA_FAILURE, &text("status"), &text("reason"), &text("message"));
            }
        }
    }

    /// Whether all replicas are updated and available, and no old pods exist.
    pub(super) fn is_complete(&self) -> bool {
        let (now, wanted) = (self.tally(), self.spec.replicas);
        now.updated == wanted && now.replicas == wanted && now.available == wanted
    }

    fn counted(&self) -> ReplicaCounts {
        let count = |name: &str| self.object.int(&["status", name]).unwrap_or(0);
        ReplicaCounts {
            replicas: count("replicas"),
            updated: count("updatedReplicas"),
            ready: count("readyReplicas"),
            available: count("availableReplicas"),
        }
    }

    fn tally(&self) -> ReplicaCounts {
        let sum = |count: fn(&ReplicaSetState) -> i64| self.sets.iter().map(count).sum();
        ReplicaCounts {
            replicas: sum(|set| set.counts().replicas),
            updated: self.new.map_or(0, |new| self.sets[new].counts().replicas),
            ready: sum(|set| set.counts().ready),
            available: sum(|set| set.counts().available),
        }
    }

    fn count(&mut self) -> ReplicaCounts {
        let now = self.tally();
        let terminating: i64 = self.sets.iter().map(|set| set.counts().terminating).sum();
        let missing = (self.total() - now.available).max(0);
        let mut new = status::status_map(&self.object);
        for (name, count) in [
            ("replicas", now.replicas),
            ("updatedReplicas", now.updated),
            ("readyReplicas", now.ready),
            ("availableReplicas", now.available),
            ("unavailableReplicas", missing),
        ] {
            status::set_count(&mut new, name, count);
        }
        new.insert("terminatingReplicas".into(), terminating.into());
        new.insert("observedGeneration".into(), self.owner.row.generation.into());
        self.object.set(&["status"], Value::Object(new));
        if now.available >= self.spec.replicas - self.spec.unavailable {
            let message = "Deployment has minimum availability.";
            self.set_condition(AVAILABLE, "True", "MinimumReplicasAvailable", message);
        } else {
            let message = "Deployment does not have minimum availability.";
            self.set_condition(AVAILABLE, "False", "MinimumReplicasUnavailable", message);
        }
        now
    }
}

impl ReplicaCounts {
    /// Whether the rollout made progress.
    fn is_ahead_of(self, before: ReplicaCounts) -> bool {
        self.updated > before.updated
            || self.replicas - self.updated < before.replicas - before.updated
            || self.ready > before.ready
            || self.available > before.available
    }
}
