//! Pauses before pods that replace failed ones.
//!
//! A pause follows from the number of failures and the time of the last one. Both outlive the failed pods, which anybody
//! may delete: the World remembers those of a Job, and with `backoffLimitPerIndex` the last failed pod of an index keeps
//! its finalizer until its successor exists, which carries the number on.

use super::finish::JobOutcome;
use super::{JobState, has_succeeded, index_of, is_tracked, policy};
use crate::object::time::Shift;
use crate::object::{Str, Time, time};
use crate::world::loop_memory::JobBackoff;
use crate::world::{Memory, Row};
use jiff::SignedDuration;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Number of ignored failures above which further ones make no pause longer.
const MAX_IGNORED: usize = 20;

/// Annotation with the number of failures of a pod's index before it was created.
pub(super) const FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-failure-count";
/// Annotation with the number of failures of a pod's index that the policy ignored before it was created.
pub(super) const IGNORED_COUNT: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

impl<'w> JobState<'w> {
    /// Waits for the end of a pause. Returns whether there is one.
    pub(super) fn must_back_off(&mut self, failures: u32, until: Option<Time>) -> bool {
        let Some(until) = until else { return false };
        let seconds = until.as_second() - self.world.now.as_second();
        self.plan.wait(format!("{failures} pods failed: the next is made in {seconds} s"));
        self.plan.wake_at(until);
        true
    }

    /// The end of the pause that failures require before the next pod, unless it is over: the initial pause doubles with
    /// each failure since the last success, up to sixty times (Kubernetes: 10 s up to 10 min).
    pub(super) fn end_of_pause(&self, failures: u32, last: Option<Time>) -> Option<Time> {
        let last = last.filter(|_| failures > 0)?;
        let first = self.world.settings.backoff_seconds;
        let pause = first.saturating_mul(1 << (failures - 1).min(20)).min(60 * first);
        Some(last.later(SignedDuration::from_secs(pause))).filter(|until| self.world.now < *until)
    }

    /// Number of failures since the last success, and the time of the last one. Failed pods can be deleted, so the World
    /// remembers both (`podBackoffStore`). Failures that the policy ignores count here, though not for `backoffLimit`. With a limit for
    /// each index, only the failures of an index matter.
    pub(super) fn failures_since_success(&mut self) -> (u32, Option<Time>) {
        if self.spec.backoff_limit_per_index.is_some() {
            return (0, None);
        }
        let (visible, last) = self.visible_failures(false);
        let (_, last_ignored) = self.visible_failures(true);
        let (succeeded, failed) = (self.all_succeeded(), self.all_failed());
        let Row { key, uid, .. } = self.owner.row;
        let known = self.world.loop_memory.job_backoffs.get(key);
        let still_valid = known.filter(|known| known.uid == *uid && known.succeeded == succeeded);
        let failed_before = match still_valid {
            Some(known) => known.failed_before,
            None if succeeded == 0 => 0,
            None => failed - i64::from(visible),
        };
        let last = last.max(last_ignored).max(still_valid.map(|known| known.last_failure));
        let known_ignored = still_valid.map(|known| known.ignored.clone()).unwrap_or_default();
        let ignored = self.failures_after_success(true).map(|(pod, _)| pod.uid.clone());
        let ignored: BTreeSet<Str> = known_ignored.into_iter().chain(ignored).collect();
        let ignored: BTreeSet<Str> = ignored.into_iter().take(MAX_IGNORED).collect();
        let failures = u32::try_from(failed - failed_before).unwrap_or(0).saturating_add(ignored.len() as u32);
        let backoff = last.filter(|_| failures > 0);
        let backoff = backoff.map(|last_failure| JobBackoff {
            uid: uid.clone(),
            succeeded,
            failed_before,
            ignored,
            last_failure,
        });
        if known != backoff.as_ref() {
            self.plan.memory.push(Memory::JobBackoff { job: key.clone(), backoff });
        }
        (failures, last)
    }

    /// The number of failures since the last success that pods show, and the time of the last one; either those that the policy ignores, or
    /// the others.
    fn visible_failures(&self, ignored: bool) -> (u32, Option<Time>) {
        let failures = self.failures_after_success(ignored);
        failures.fold((0, None), |(count, last), (_, end)| (count + 1, last.max(Some(end))))
    }

    /// The pods that failed after the last success, and when.
    fn failures_after_success(&self, ignored: bool) -> impl Iterator<Item = (&'w Row, Time)> {
        let success = self.pods.iter().filter(|pod| has_succeeded(pod)).filter_map(|pod| pod.pod()?.ready_since).max();
        let ends = self.failures(&self.pods, ignored).filter_map(|pod| Some((pod, end_of(pod)?)));
        ends.filter(move |(_, end)| success.is_none_or(|success| *end > success))
    }

    /// The pods that count as failures.
    fn failed_pods<'a>(&'a self, pods: &'a [&'w Arc<Row>]) -> impl Iterator<Item = &'w Row> {
        self.failures(pods, false)
    }

    /// The pods whose failures the policy ignores, or the others.
    fn failures<'a>(&'a self, pods: &'a [&'w Arc<Row>], ignored: bool) -> impl Iterator<Item = &'w Row> {
        let is_wanted =
            move |pod: &&&Arc<Row>| self.counts_as_failed(pod) && policy::is_ignored(&self.object, pod) == ignored;
        pods.iter().filter(is_wanted).map(|pod| &***pod)
    }

    /// The end of the pause that the failures of an index require. These are all of its pods.
    pub(super) fn end_of_index_pause(&self, pods: &[&'w Arc<Row>]) -> Option<Time> {
        self.spec.backoff_limit_per_index?;
        let last = self.failed_pods(pods).chain(self.failures(pods, true)).filter_map(end_of).max();
        let failures = self.failures_of(pods).saturating_add(self.ignored_failures_of(pods));
        self.end_of_pause(u32::try_from(failures).unwrap_or(u32::MAX), last)
    }

    /// Numbers of failed pods of an index that count, and that the policy ignores: each pod records how many failed before it.
    pub(super) fn index_failures(&self, index: i64) -> (i64, i64) {
        let pods: Vec<&Arc<Row>> = self.pods.iter().copied().filter(|pod| index_of(pod) == Some(index)).collect();
        (self.failures_of(&pods), self.ignored_failures_of(&pods))
    }

    /// Counts the failures of an index of which these are all pods.
    pub(super) fn failures_of(&self, pods: &[&'w Arc<Row>]) -> i64 {
        self.count_failures(pods, FAILURE_COUNT, false)
    }

    fn ignored_failures_of(&self, pods: &[&'w Arc<Row>]) -> i64 {
        self.count_failures(pods, IGNORED_COUNT, true)
    }

    fn count_failures(&self, pods: &[&'w Arc<Row>], annotation: &str, ignored: bool) -> i64 {
        let counted = self.failures(pods, ignored).map(|pod| count_before(pod, annotation).saturating_add(1));
        counted.chain(self.failures(pods, !ignored).map(|pod| count_before(pod, annotation))).max().unwrap_or(0)
    }

    /// The uids of the last failed pods of the indexes that still need a pod and have none
    /// (`getPodsWithDelayedDeletionPerIndex`).
    pub(super) fn pods_awaiting_successor(&self) -> BTreeSet<&'w str> {
        if self.spec.backoff_limit_per_index.is_none() || JobOutcome::from_conditions(&self.conditions).is_some() {
            return BTreeSet::new();
        }
        let needs_pod = |index: i64, pods: &[&Arc<Row>]| {
            let is_done = self.completed.has(index) || self.failed_indexes.has(index);
            !is_done && !pods.iter().any(|pod| pod.is_active_pod())
        };
        let pods = self.pods_by_index();
        let pods = pods.iter().filter(|(index, pods)| needs_pod(**index, pods));
        let last = pods.filter_map(|(_, pods)| {
            let failed = self.failed_pods(pods).chain(self.failures(pods, true)).filter(|pod| is_tracked(pod));
            failed.max_by_key(|pod| (failures_before(pod), end_of(pod)))
        });
        last.map(|pod| &*pod.uid).collect()
    }
}

/// Number of failures of a pod's index before it, also ignored ones.
fn failures_before(pod: &Row) -> i64 {
    count_before(pod, FAILURE_COUNT).saturating_add(count_before(pod, IGNORED_COUNT))
}

fn count_before(pod: &Row, annotation: &str) -> i64 {
    pod.object().annotation(annotation).and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// The end time of a failed pod: the end of its last container, or the best known substitute.
fn end_of(pod: &Row) -> Option<Time> {
    let object = pod.object();
    let ends = object.items(&["status", "containerStatuses"]).iter();
    let end = ends.filter_map(|one| time::from_json(&one["state"]["terminated"]["finishedAt"])).max();
    let grace = SignedDuration::from_secs(object.int(&["metadata", "deletionGracePeriodSeconds"]).unwrap_or(0));
    let asked = || pod.deletion.map(|deletion| deletion.checked_sub(grace).unwrap_or(deletion));
    end.or_else(asked).or_else(|| pod.pod()?.ready_since).or(pod.created)
}
