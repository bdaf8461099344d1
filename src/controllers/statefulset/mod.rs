//! StatefulSets keep pods with stable names, storage and an order: `db-0`, `db-1`, ... each created when the previous
//! ones are ready.
//!
//! `identity` creates a pod and its claims, `claims` sets owners of claims, `tally` counts for the status. Start
//! reading at [`StatefulSetState::act`].

mod claims;
mod identity;
mod tally;
#[cfg(test)]
mod tests;

use super::controller_ref::Owner;
use super::pods::{self, BATCH, PodCreationBudget};
use super::revisions::{self, History, REVISION_HASH};
use crate::object::time::Shift;
use crate::object::{Key, Object};
use crate::world::{EventType, Loop, Phase, Plan, Row, World, WriteVerb};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

const ROOT: &str = "statefulsets.apps";

/// The loop of StatefulSets.
pub const LOOP: Loop = Loop { name: "statefulset-controller", root: ROOT, concerns, plan, ..Loop::BASE };

fn concerns(world: &World, row: &Row) -> Vec<Key> {
    match row.key.resource.0 {
        claims::CLAIMS => claims::sets_with_claim(world, &row.key),
        _ => pods::concerned(world, ROOT, "StatefulSet", &["pods", revisions::REVISIONS], row),
    }
}

/// State of one StatefulSet while its plan is made.
struct StatefulSetState<'w> {
    world: &'w World,
    owner: Owner<'w>,
    object: Object,
    history: History,
    replicas: i64,
    start: i64,
    /// Whether pods are created and deleted in order (`podManagementPolicy: OrderedReady`).
    ordered: bool,
    min_ready: i64,
    /// Its pods by ordinal.
    pods: BTreeMap<i64, &'w Arc<Row>>,
    /// The number of pods that this plan may still create.
    allowed: usize,
    /// The API server's message when it refused the last pod, until the next retry.
    refused: Option<String>,
    plan: Plan,
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(row) = world.get(key) else { return plan };
    let owner = Owner { row, api_version: "apps/v1", kind: "StatefulSet" };
    let is_member = |pod: &Row| identity::ordinal(row, &pod.key.name).is_some();
    let rows = owner.claim_if(world, "pods", is_member, &mut plan);
    let claimed = owner.claim(world, revisions::REVISIONS, &mut plan);
    if !plan.is_empty() || row.is_deleting() {
        return plan;
    }
    let object = row.object();
    let Some(history) = revisions::sync_revisions(world, &owner, &object, &claimed, &mut plan) else {
        revisions::count_collision(object, &mut plan);
        return plan;
    };
    let replicas = object.int(&["spec", "replicas"]).unwrap_or(1);
    let missing = usize::try_from(replicas).unwrap_or(0).saturating_sub(rows.len());
    let allowance = PodCreationBudget::new(world, LOOP.name, row, rows.iter().copied(), missing, &mut plan);
    let pods = rows.into_iter().filter_map(|pod| Some((identity::ordinal(row, &pod.key.name)?, pod))).collect();
    let set = StatefulSetState {
        world,
        allowed: allowance.limit(usize::MAX),
        refused: allowance.refusal(),
        replicas,
        start: object.int(&["spec", "ordinals", "start"]).unwrap_or(0),
        ordered: object.text(&["spec", "podManagementPolicy"]) != Some("Parallel"),
        min_ready: object.int(&["spec", "minReadySeconds"]).unwrap_or(0),
        owner,
        object,
        history,
        pods,
        plan,
    };
    set.make_plan()
}

impl<'w> StatefulSetState<'w> {
    fn make_plan(mut self) -> Plan {
        self.update_claim_owners();
        self.act();
        self.clean_up();
        self.count()
    }

    /// Creates missing pods from the lowest ordinal, deletes excess pods from the highest, then updates old pods.
    fn act(&mut self) {
        let mut missing = 0;
        for ordinal in self.ordinals() {
            missing += usize::from(!self.pods.contains_key(&ordinal));
            if missing > BATCH || pods::is_full(&self.plan) {
                return self.plan.wait("more replicas are created after these");
            }
            if !self.keep_replica(ordinal) {
                return;
            }
        }
        if self.condemn() && self.object.text(&["spec", "updateStrategy", "type"]) != Some("OnDelete") {
            self.roll();
        }
    }

    /// Creates or recreates one pod. Returns false when later ordinals have to wait.
    fn keep_replica(&mut self, ordinal: i64) -> bool {
        let Some(pod) = self.pods.get(&ordinal).copied() else {
            self.create_pod(ordinal);
            return !self.ordered;
        };
        let name = pod.key.name.clone();
        let fields = pod.pod();
        if fields.is_some_and(|pod| pod.phase.is_terminal()) && !pod.is_deleting() {
            self.delete(pod, "it has ended and is recreated");
            return false;
        }
        if fields.is_some_and(|pod| pod.phase == Phase::Pending) {
            self.create_missing_claims(ordinal, &name);
        }
        if pod.is_deleting() && self.ordered {
            self.plan.wait(format!("waiting for {name} to end"));
            return false;
        }
        if !self.is_available(pod) && self.ordered {
            self.plan.wait(format!("waiting for {name} to be ready"));
            return false;
        }
        if !pod.is_deleting() && pod.label(identity::POD_NAME) != Some(&name) {
            let mut object = pod.object();
            identity::set_labels(&mut object, &name, ordinal);
            self.plan.write(WriteVerb::Update(object), "its labels do not name it");
        }
        true
    }

    fn is_ready(&self, pod: &Row) -> bool {
        pod.pod().is_some_and(|pod| pod.phase == Phase::Running && pod.ready)
    }

    fn is_available(&mut self, pod: &Row) -> bool {
        let ready = self.is_ready(pod);
        let available = ready && pod.is_available_pod(self.min_ready, self.world.now);
        if let Some(since) = pod.pod().and_then(|pod| pod.ready_since).filter(|_| ready && !available) {
            self.plan.wake_at(since.later(jiff::SignedDuration::from_secs(self.min_ready)));
        }
        available
    }

    fn ordinals(&self) -> Range<i64> {
        self.start..self.start.saturating_add(self.replicas)
    }

    fn is_wanted(&self, ordinal: i64) -> bool {
        self.ordinals().contains(&ordinal)
    }

    fn create_pod(&mut self, ordinal: i64) {
        if self.awaits_claims(ordinal) || !self.may_create(ordinal) {
            return;
        }
        let revision = self.revision_for(ordinal);
        let pod = identity::pod(&self.owner, &self.object, &revision, ordinal);
        let (set, name) = (self.owner.row.key.name.clone(), pod.name().to_owned());
        self.create_missing_claims(ordinal, &name);
        let message = format!("Create Pod {name} in StatefulSet {set} successful");
        self.plan.event(self.owner.row, EventType::Normal, "SuccessfulCreate", message);
        self.plan.write(WriteVerb::Create(pod), format!("{name} is wanted"));
    }

    /// Whether one more pod may be created. Reports a refusal once.
    fn may_create(&mut self, ordinal: i64) -> bool {
        let may = self.allowed > 0;
        self.allowed = self.allowed.saturating_sub(1);
        if let Some(message) = self.refused.take() {
            let set = &self.owner.row.key.name;
            let text = format!("Create Pod {set}-{ordinal} in StatefulSet {set} failed error: {message}");
            self.plan.event(self.owner.row, EventType::Warning, "FailedCreate", text);
        }
        may
    }

    /// The revision for a new pod: the current one below the partition and for pods that the rollout has not reached.
    fn revision_for(&self, ordinal: i64) -> Object {
        let current = self.object.text(&["status", "currentRevision"]).and_then(|name| self.history.find(name));
        let place = ordinal - self.start;
        let keeps_current = match self.object.int(&["spec", "updateStrategy", "rollingUpdate", "partition"]) {
            Some(partition) => place < partition,
            None => place < self.object.int(&["status", "currentReplicas"]).unwrap_or(0),
        };
        let rolls = self.object.text(&["spec", "updateStrategy", "type"]) != Some("OnDelete");
        current.filter(|_| keeps_current && rolls).unwrap_or(self.history.newest()).clone()
    }

    fn delete(&mut self, pod: &Row, why: &str) {
        let (set, name) = (&self.owner.row.key.name, &pod.key.name);
        let message = format!("Delete Pod {name} in StatefulSet {set} successful");
        self.plan.event(self.owner.row, EventType::Normal, "SuccessfulDelete", message);
        self.plan.delete(pod, why);
    }

    /// Deletes excess pods, highest first. Returns false when the rollout has to wait.
    fn condemn(&mut self) -> bool {
        let condemned: Vec<&Arc<Row>> =
            self.pods.iter().rev().filter(|(ordinal, _)| !self.is_wanted(**ordinal)).map(|(_, pod)| *pod).collect();
        let unhealthy =
            condemned.iter().rev().find(|pod| !self.is_ready(pod) || pod.is_deleting()).map(|pod| pod.uid.clone());
        for pod in condemned {
            if pod.is_deleting() {
                self.plan.wait(format!("waiting for {} to end", pod.key.name));
                if self.ordered {
                    return false;
                }
                continue;
            }
            if self.ordered && !self.is_available(pod) && unhealthy.as_ref() != Some(&pod.uid) {
                self.plan.wait(format!("waiting for {} to be ready before it is deleted", pod.key.name));
                return false;
            }
            self.delete(pod, "fewer replicas are desired");
            if self.ordered || pods::is_full(&self.plan) {
                return false;
            }
        }
        true
    }

    /// Replaces pods of other revisions, highest first, down to the partition, one at a time. Kubernetes ignores `maxUnavailable` unless a
    /// feature gate is set.
    fn roll(&mut self) {
        let partition = self.object.int(&["spec", "updateStrategy", "rollingUpdate", "partition"]).unwrap_or(0);
        let newest = self.history.newest().name().to_owned();
        for ordinal in (self.start.saturating_add(partition)..self.ordinals().end).rev() {
            let Some(pod) = self.pods.get(&ordinal).copied() else { return };
            if pod.label(REVISION_HASH) != Some(&newest) && !pod.is_deleting() {
                return self.delete(pod, "its template is out of date");
            }
            if pod.is_deleting() || !self.is_available(pod) {
                return self.plan.wait(format!("waiting for {} to be ready", pod.key.name));
            }
        }
    }

    fn clean_up(&mut self) {
        let limit = self.object.int(&["spec", "revisionHistoryLimit"]).unwrap_or(10);
        let mut live: BTreeSet<String> =
            self.pods.values().filter_map(|pod| pod.label(REVISION_HASH)).map(str::to_owned).collect();
        live.extend(self.object.text(&["status", "currentRevision"]).map(str::to_owned));
        self.history.truncate(self.world, &self.owner, limit, &live, &mut self.plan);
    }
}
