//! Jobs: run pods until enough have succeeded or too many have failed.
//!
//! This file reads a Job's settings and counts each ended pod exactly once. `pods` creates and deletes pods, `finish`
//! ends the Job, `policy` applies its policies, `backoff` computes the pauses after failures.
//!
//! Counting survives a stop between any two writes: an ended pod is first recorded in `status.uncountedTerminatedPods`,
//! then loses its finalizer, and only then moves into the counters (Kubernetes: job tracking with finalizers,
//! KEP-2307).

mod backoff;
mod finish;
mod indexes;
mod pods;
mod policy;
#[cfg(test)]
mod tests;

use super::controller_ref::Owner;
use super::pods::{BURST, concerned, is_full};
use super::status;
use crate::object::selector::Selector;
use crate::object::{Key, Object, Time, condition, time};
use crate::world::{EventType, Loop, Memory, Phase, Plan, Row, World, WriteVerb};
use indexes::Indexes;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

const ROOT: &str = "jobs.batch";
/// Finalizer on pods that are not counted yet.
const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// Label that finds the pods of a deleted Job.
const JOB_NAME: &str = "batch.kubernetes.io/job-name";
/// Label and annotation with a pod's completion index.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// The value of `spec.managedBy` for this controller.
const MANAGER: &str = "kubernetes.io/job-controller";

/// The controller to which `spec.managedBy` leaves a Job; `None` for this one.
pub fn foreign_manager(job: &Object) -> Option<&str> {
    job.text(&["spec", "managedBy"]).filter(|manager| *manager != MANAGER)
}

/// The loop of Jobs.
pub const LOOP: Loop = Loop { name: "job-controller", root: ROOT, concerns, plan, ..Loop::BASE };

fn concerns(world: &World, row: &Row) -> Vec<Key> {
    concerned(world, ROOT, "Job", &["pods"], row)
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    release_pods_of_missing_job(world, key, &mut plan);
    let Some(row) = world.get(key) else {
        forget_backoff(world, key, &mut plan);
        return plan;
    };
    let object = row.object();
    if let Some(manager) = foreign_manager(&object) {
        plan.wait(format!("it is left to the controller {manager} (spec.managedBy)"));
        return plan;
    }
    let owner = Owner { row, api_version: "batch/v1", kind: "Job" };
    let pods = owner.claim_tracked(world, TRACKING, &mut plan);
    if !plan.is_empty() {
        return plan;
    }
    let finished = finish::is_finished(object.items(&["status", "conditions"]));
    if finished || row.is_deleting() {
        for pod in pods.into_iter().filter(|pod| is_tracked(pod)).take(BURST) {
            release(pod, "its Job is finished", &mut plan);
        }
        forget_backoff(world, key, &mut plan);
        return plan;
    }
    JobState::new(world, owner, object, pods, plan).make_plan()
}

/// Removes the finalizer from pods whose Job is gone, but not from those that the Job will adopt.
fn release_pods_of_missing_job(world: &World, key: &Key, plan: &mut Plan) {
    let job = world.get(key).filter(|job| !job.is_deleting());
    let will_adopt = |pod: &Row| !pod.is_deleting() && job.is_some_and(|job| job.selects(pod));
    let selector = Selector::from_map([(JOB_NAME, &*key.name)]);
    for pod in world.pods_matching(&key.namespace, &selector).into_iter().filter(|pod| is_tracked(pod)).take(BURST) {
        let is_missed = match pod.controller() {
            Some(owner) => owner.kind == "Job" && world.by_uid(&owner.uid).is_none(),
            None => !will_adopt(pod),
        };
        if is_missed {
            release(pod, "its Job is gone", plan);
        }
    }
}

/// Removes the World's memory of a Job that needs no more pods.
fn forget_backoff(world: &World, key: &Key, plan: &mut Plan) {
    if world.loop_memory.job_backoffs.contains_key(key) {
        plan.memory.push(Memory::JobBackoff { job: key.clone(), backoff: None });
    }
}

fn is_tracked(pod: &Row) -> bool {
    pod.has_finalizer(TRACKING)
}

fn release(pod: &Row, why: &str, plan: &mut Plan) {
    plan.write(WriteVerb::Update(pod.object().without_finalizer(TRACKING)), why);
}

/// Settings of a Job.
struct JobSettings {
    parallelism: i64,
    /// `None`: a work queue, done when a pod has succeeded and no pod is active.
    completions: Option<i64>,
    indexed: bool,
    backoff_limit: i64,
    backoff_limit_per_index: Option<i64>,
    suspended: bool,
    active_deadline: Option<i64>,
    /// Whether a replacement is created only after the failed pod has ended (`podReplacementPolicy: Failed`).
    replace_only_failed: bool,
}

/// Uids of ended pods that are not in the counters yet.
#[derive(Clone, Default)]
struct UncountedPods {
    succeeded: BTreeSet<String>,
    failed: BTreeSet<String>,
}

/// State of one Job while its plan is made.
struct JobState<'w> {
    world: &'w World,
    owner: Owner<'w>,
    object: Object,
    spec: JobSettings,
    pods: Vec<&'w Arc<Row>>,
    succeeded: i64,
    failed: i64,
    uncounted: UncountedPods,
    /// Number of failed pods that are counted once they have a successor.
    awaiting_successor: i64,
    completed: Indexes,
    failed_indexes: Indexes,
    conditions: Vec<Value>,
    start: Option<Time>,
    plan: Plan,
}

impl JobSettings {
    fn from_object(object: &Object) -> JobSettings {
        let int = |name: &str| object.int(&["spec", name]);
        JobSettings {
            parallelism: int("parallelism").unwrap_or(1),
            completions: int("completions").or_else(|| int("parallelism").is_none().then_some(1)),
            indexed: object.text(&["spec", "completionMode"]) == Some("Indexed"),
            backoff_limit: int("backoffLimit").unwrap_or(6),
            backoff_limit_per_index: int("backoffLimitPerIndex"),
            suspended: object.value_at(&["spec", "suspend"]) == Some(&Value::Bool(true)),
            active_deadline: int("activeDeadlineSeconds"),
            replace_only_failed: object.text(&["spec", "podReplacementPolicy"]) == Some("Failed"),
        }
    }
}

impl UncountedPods {
    fn from_object(object: &Object) -> UncountedPods {
        let uids = |name: &str| {
            let items = object.items(&["status", "uncountedTerminatedPods", name]).iter();
            items.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        UncountedPods { succeeded: uids("succeeded"), failed: uids("failed") }
    }

    fn has(&self, uid: &str) -> bool {
        self.succeeded.contains(uid) || self.failed.contains(uid)
    }

    fn is_empty(&self) -> bool {
        self.succeeded.is_empty() && self.failed.is_empty()
    }

    fn to_value(&self) -> Value {
        let mut value = json!({});
        for (name, uids) in [("succeeded", &self.succeeded), ("failed", &self.failed)] {
            if !uids.is_empty() {
                value[name] = json!(uids);
            }
        }
        value
    }
}

impl<'w> JobState<'w> {
    fn new(world: &'w World, owner: Owner<'w>, object: Object, pods: Vec<&'w Arc<Row>>, plan: Plan) -> JobState<'w> {
        let spec = JobSettings::from_object(&object);
        let below = spec.completions.unwrap_or(0);
        let indexes = |name: &str| Indexes::parse(object.text(&["status", name]).unwrap_or_default(), below);
        JobState {
            world,
            owner,
            pods,
            succeeded: object.int(&["status", "succeeded"]).unwrap_or(0),
            failed: object.int(&["status", "failed"]).unwrap_or(0),
            uncounted: UncountedPods::from_object(&object),
            awaiting_successor: 0,
            completed: indexes("completedIndexes"),
            failed_indexes: indexes("failedIndexes"),
            conditions: object.items(&["status", "conditions"]).to_vec(),
            start: object.time(&["status", "startTime"]),
            spec,
            object,
            plan,
        }
    }

    fn make_plan(mut self) -> Plan {
        self.record_start();
        self.count_ended();
        match self.verdict() {
            Some(verdict) => self.finish(&verdict),
            None => self.run(),
        }
        self.write_status()
    }

    fn record_start(&mut self) {
        let now = self.world.now;
        if self.spec.suspended {
            if !condition::is_true(&self.conditions, "Suspended") {
                self.set_condition("Suspended", "True", "JobSuspended", "Job suspended");
                self.event(EventType::Normal, "Suspended", "Job suspended");
            }
            self.start = None;
        } else {
            if condition::is_true(&self.conditions, "Suspended") {
                self.set_condition("Suspended", "False", "JobResumed", "Job resumed");
                self.event(EventType::Normal, "Resumed", "Job resumed");
                self.start = Some(now);
            }
            self.start.get_or_insert(now);
        }
    }

    /// Moves every ended pod one step closer to the counters.
    fn count_ended(&mut self) {
        let recorded = self.uncounted.clone();
        let recorded_indexes = self.completed.clone();
        let tracked: BTreeSet<&str> = self.pods.iter().filter(|pod| is_tracked(pod)).map(|pod| &*pod.uid).collect();
        for uid in recorded.succeeded.iter().filter(|uid| !tracked.contains(uid.as_str())) {
            self.succeeded += 1;
            self.uncounted.succeeded.remove(uid);
        }
        for uid in recorded.failed.iter().filter(|uid| !tracked.contains(uid.as_str())) {
            self.failed += 1;
            self.uncounted.failed.remove(uid);
        }
        let held = self.pods_awaiting_successor();
        let mut freed = 0;
        for pod in self.pods.clone().into_iter().filter(|pod| is_tracked(pod)) {
            let index = index_of(pod).filter(|_| self.spec.indexed);
            let done = recorded.has(&pod.uid)
                || (has_succeeded(pod) && index.is_some_and(|index| recorded_indexes.has(index)));
            if done && freed < BURST {
                freed += 1;
                release(pod, "it is counted", &mut self.plan);
            } else if held.contains(&*pod.uid) && !done {
                self.awaiting_successor += i64::from(!policy::is_ignored(&self.object, pod));
            } else if !done {
                self.record_ended(pod);
            }
        }
        if self.spec.indexed {
            self.succeeded = self.completed.len();
        }
    }

    /// Records a pod that has ended and is not counted yet.
    fn record_ended(&mut self, pod: &'w Arc<Row>) {
        if has_succeeded(pod) {
            match index_of(pod).filter(|_| self.spec.indexed) {
                Some(index) if Some(index) < self.spec.completions => {
                    self.completed.insert(index);
                }
                Some(_) if is_full(&self.plan) => {}
                Some(_) => release(pod, "its index is no longer needed", &mut self.plan),
                None => {
                    self.uncounted.succeeded.insert(pod.uid.to_string());
                }
            }
        } else if self.counts_as_failed(pod) {
            if is_full(&self.plan) {
                // A later plan records it.
            } else if policy::is_ignored(&self.object, pod) {
                release(pod, "its failure does not count", &mut self.plan);
            } else {
                self.uncounted.failed.insert(pod.uid.to_string());
            }
        }
    }

    /// Whether a pod counts as failed. A pod that is being deleted counts immediately, unless the Job replaces pods only after they have
    /// ended (`podReplacementPolicy: Failed`); a failing Job replaces none. A pod without the finalizer is counted already, or was surplus.
    fn counts_as_failed(&self, pod: &Row) -> bool {
        if pod.is_deleting() && !is_tracked(pod) {
            return false;
        }
        let failed = pod.pod().is_some_and(|pod| pod.phase == Phase::Failed);
        let waits_for_end = self.spec.replace_only_failed && !condition::is_true(&self.conditions, "FailureTarget");
        failed || (pod.is_deleting() && !waits_for_end && !has_succeeded(pod))
    }

    fn all_succeeded(&self) -> i64 {
        self.succeeded + self.uncounted.succeeded.len() as i64
    }

    fn all_failed(&self) -> i64 {
        self.failed + self.uncounted.failed.len() as i64 + self.awaiting_successor
    }

    fn active(&self) -> impl Iterator<Item = &'w Arc<Row>> + use<'w, '_> {
        self.pods.iter().copied().filter(|pod| pod.is_active_pod())
    }

    fn terminating(&self) -> usize {
        self.pods.iter().filter(|pod| is_terminating(pod)).count()
    }

    fn event(&mut self, kind: EventType, reason: &'static str, message: &str) {
        self.plan.event(self.owner.row, kind, reason, message);
    }

    fn set_condition(&mut self, kind: &str, value: &str, reason: &str, message: &str) {
        let mut condition = condition::new(kind, value, reason, message, self.world.now);
        condition["lastProbeTime"] = condition["lastTransitionTime"].clone();
        condition::set(&mut self.conditions, condition);
    }

    fn write_status(mut self) -> Plan {
        let mut new = status::status_map(&self.object);
        let ready = self.active().filter(|pod| pod.pod().is_some_and(|pod| pod.ready)).count();
        status::set_count(&mut new, "active", self.active().count() as i64);
        status::set_count(&mut new, "succeeded", self.succeeded);
        status::set_count(&mut new, "failed", self.failed);
        new.insert("ready".into(), ready.into());
        new.insert("terminating".into(), self.terminating().into());
        new.insert("uncountedTerminatedPods".into(), self.uncounted.to_value());
        // Fewer completions can leave none.
        match self.completed.len() {
            0 => new.remove("completedIndexes"),
            _ => new.insert("completedIndexes".into(), self.completed.to_string().into()),
        };
        if self.spec.backoff_limit_per_index.is_some() {
            new.insert("failedIndexes".into(), self.failed_indexes.to_string().into());
        }
        match self.start {
            Some(start) => new.insert("startTime".into(), time::rfc3339(start).into()),
            None => new.remove("startTime"),
        };
        if condition::is_true(&self.conditions, "Complete") {
            new.entry("completionTime").or_insert_with(|| time::rfc3339(self.world.now).into());
        }
        status::set_conditions(&mut new, std::mem::take(&mut self.conditions));
        status::write(&mut self.plan, self.object, new.into(), "the counts of pods changed");
        self.plan
    }
}

/// Whether a pod is being deleted and has not ended.
fn is_terminating(pod: &Row) -> bool {
    pod.is_deleting() && !pod.pod().is_some_and(|pod| pod.phase.is_terminal())
}

fn has_succeeded(pod: &Row) -> bool {
    pod.pod().is_some_and(|pod| pod.phase == Phase::Succeeded)
}

fn index_of(pod: &Row) -> Option<i64> {
    pod.label(INDEX)?.parse().ok()
}
