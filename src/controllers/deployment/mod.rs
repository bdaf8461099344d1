//! Deployments roll pods from one template to the next: a ReplicaSet per template, scaled up and down step by step.
//!
//! Selects or creates the new ReplicaSet, keeps revisions, and chooses the next step. `rolling` computes the steps,
//! `proportional` scales during a rollout, `rollback` returns to an earlier template, `progress` sets conditions, `sets`
//! edits ReplicaSets and their annotations.
//! Never: writes pods. Start reading at [`plan`].

mod progress;
mod proportional;
mod rollback;
mod rolling;
mod sets;
#[cfg(test)]
mod tests;

use super::controller_ref::Owner;
use super::{percent, pods, status};
use crate::kinds::deployment::REVISION;
use crate::object::{Key, Object, condition};
use crate::world::{EventType, Loop, Plan, Row, World, WriteVerb};
use serde_json::{Value, json};
use sets::ReplicaSetState;
use std::sync::Arc;

const ROOT: &str = "deployments.apps";
const SETS: &str = "replicasets.apps";

/// The loop of Deployments.
pub const LOOP: Loop = Loop { name: "deployment-controller", root: ROOT, concerns, plan, ..Loop::BASE };

fn concerns(world: &World, row: &Row) -> Vec<Key> {
    if row.key.resource == "pods" {
        return recreating(world, row).into_iter().collect();
    }
    pods::concerned(world, ROOT, "Deployment", &[SETS], row)
}

/// A deleted pod concerns its Deployment only with the strategy Recreate, which waits for the last old pod to end.
fn recreating(world: &World, pod: &Row) -> Option<Key> {
    if !pod.is_deleting() {
        return None;
    }
    let set = world.get(&pods::controller_key(pod, SETS, "ReplicaSet")?)?;
    pods::controller_key(set, ROOT, "Deployment")
}

/// Settings of a Deployment, with percentages resolved.
struct DeploymentSettings {
    replicas: i64,
    recreate: bool,
    paused: bool,
    min_ready: i64,
    /// Number of pods allowed above `replicas`; 0 with Recreate.
    surge: i64,
    /// Number of unavailable pods allowed; 0 with Recreate.
    unavailable: i64,
    /// Seconds; `None`: no deadline.
    deadline: Option<i64>,
    /// Number of old ReplicaSets to keep; `None`: all.
    history: Option<i64>,
}

/// State of one Deployment while its plan is made.
struct Rollout<'w> {
    world: &'w World,
    owner: Owner<'w>,
    object: Object,
    spec: DeploymentSettings,
    /// Its ReplicaSets, oldest first.
    sets: Vec<ReplicaSetState<'w>>,
    /// Index of the ReplicaSet that has the Deployment's template.
    new: Option<usize>,
    conditions: Vec<Value>,
    plan: Plan,
}

fn plan(world: &World, key: &Key) -> Plan {
    let Some(row) = world.get(key) else { return Plan::default() };
    let owner = Owner { row, api_version: "apps/v1", kind: "Deployment" };
    let mut plan = Plan::default();
    let Some(fields) = row.workload() else { return plan };
    if fields.selector.is_everything() {
        return refuse(row);
    }
    let rows = owner.claim(world, SETS, &mut plan);
    if !plan.is_empty() {
        return plan;
    }
    let rollout = Rollout::new(world, owner, rows, fields.template);
    rollout.make_plan()
}

/// Refuses an empty selector, which would match every ReplicaSet in the namespace, with an event as Kubernetes does.
fn refuse(row: &Row) -> Plan {
    let mut plan = Plan::default();
    let object = row.object();
    let mut new = status::status_map(&object);
    if new.get("observedGeneration") != Some(&row.generation.into()) {
        let message = "This deployment is selecting all pods. A non-empty selector is required.";
        plan.event(row, EventType::Warning, "SelectingAll", message);
    }
    new.insert("observedGeneration".into(), row.generation.into());
    status::write(&mut plan, object, new.into(), "the selector is empty");
    plan
}

impl DeploymentSettings {
    fn from_object(object: &Object) -> DeploymentSettings {
        let replicas = object.int(&["spec", "replicas"]).unwrap_or(1);
        let recreate = object.text(&["spec", "strategy", "type"]) == Some("Recreate");
        let (surge, unavailable) = if recreate { (0, 0) } else { resolve_fenceposts(object, replicas) };
        let bounded = |name: &str| object.int(&["spec", name]).filter(|value| *value != i64::from(i32::MAX));
        DeploymentSettings {
            replicas,
            recreate,
            paused: object.value_at(&["spec", "paused"]) == Some(&Value::Bool(true)),
            min_ready: object.int(&["spec", "minReadySeconds"]).unwrap_or(0),
            surge,
            unavailable: unavailable.min(replicas),
            deadline: bounded("progressDeadlineSeconds"),
            history: bounded("revisionHistoryLimit"),
        }
    }
}

/// `maxSurge` rounded up and `maxUnavailable` rounded down. When both are 0, one pod may be unavailable, since the
/// rollout could not proceed otherwise.
fn resolve_fenceposts(object: &Object, replicas: i64) -> (i64, i64) {
    let resolve = |name: &str, up: bool| {
        let value = object.value_at(&["spec", "strategy", "rollingUpdate", name]);
        percent::resolve_percent(Some(value.unwrap_or(&json!("25%"))), replicas, up).unwrap_or(0)
    };
    let (surge, unavailable) = (resolve("maxSurge", true), resolve("maxUnavailable", false));
    if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
}

impl<'w> Rollout<'w> {
    fn new(world: &'w World, owner: Owner<'w>, rows: Vec<&'w Arc<Row>>, template: u64) -> Rollout<'w> {
        let object = owner.row.object();
        let mut sets: Vec<ReplicaSetState> = rows.into_iter().map(ReplicaSetState::new).collect();
        sets.sort_by(|a, b| a.row.created.cmp(&b.row.created).then_with(|| a.row.key.name.cmp(&b.row.key.name)));
        let new = sets.iter().position(|set| set.fields().is_some_and(|fields| fields.template == template));
        let conditions = object.items(&["status", "conditions"]).to_vec();
        Rollout {
            world,
            owner,
            spec: DeploymentSettings::from_object(&object),
            object,
            sets,
            new,
            conditions,
            plan: Plan::default(),
        }
    }

    fn make_plan(mut self) -> Plan {
        if self.owner.row.is_deleting() {
            self.count_only();
            return self.finish();
        }
        self.record_pause();
        self.adjust_new_set();
        if self.new.is_some() && self.sync_own_revision() {
            return self.plan;
        }
        if let Some(revision) = rollback::wanted_revision(&self.object).filter(|_| !self.spec.paused) {
            return self.roll_back(revision);
        }
        if self.spec.paused || self.is_scaling() {
            self.scale_proportionally();
            if self.spec.paused {
                self.clean_up();
            }
            self.count_only();
            return self.finish();
        }
        if self.spec.recreate {
            self.recreate()
        } else {
            self.roll()
        }
        self.finish()
    }

    /// Whether a running set was last sized for another number of replicas.
    fn is_scaling(&self) -> bool {
        let sized_otherwise =
            |set: &ReplicaSetState| set.replicas > 0 && set.desired().is_some_and(|n| n != self.spec.replicas);
        self.sets.iter().any(sized_otherwise)
    }

    /// Sets the new set's revision, the annotations it shares with the Deployment, and `minReadySeconds`.
    fn adjust_new_set(&mut self) {
        let Some(new) = self.new else { return };
        let revision = self.next_revision();
        let (object, min_ready) = (&self.object, self.spec.min_ready);
        let set = &mut self.sets[new];
        set.share_annotations(object);
        set.raise_revision(revision);
        set.require_min_ready(min_ready);
        let name = set.row.key.name.clone();
        if self.spec.deadline.is_some() && condition::find(&self.conditions, progress::PROGRESSING).is_none() {
            self.set_progressing("True", "FoundNewReplicaSet", &format!("Found new replica set {name:?}"));
        }
    }

    /// One more than the highest revision of the old sets.
    fn next_revision(&self) -> i64 {
        let old = self.sets.iter().enumerate().filter(|(at, _)| Some(*at) != self.new).map(|(_, set)| set.revision());
        old.max().unwrap_or(0) + 1
    }

    /// Sets the Deployment's revision to that of its newest set. Returns true when this needs a write: a plan writes an
    /// object once, so the status follows in the next plan.
    fn sync_own_revision(&mut self) -> bool {
        let Some(revision) = self.new.map(|new| self.sets[new].revision().to_string()) else { return false };
        if self.object.annotation(REVISION) == Some(&revision) {
            return false;
        }
        let mut object = self.object.clone();
        object.set(&["metadata", "annotations", REVISION], revision.as_str());
        self.plan.write(WriteVerb::AnnotateStatus(object), format!("the newest ReplicaSet is revision {revision}"));
        self.write_sets();
        true
    }

    /// Creates the ReplicaSet of the Deployment's template.
    fn create_new_set(&mut self) {
        let collisions = self.object.int(&["status", "collisionCount"]);
        let template = self.object.value_at(&["spec", "template"]).cloned().unwrap_or(Value::Null);
        let hash = pods::template_hash(&template, collisions);
        let name = format!("{}-{hash}", self.owner.row.key.name);
        if self.world.find(SETS, &self.owner.row.key.namespace, &name).is_some() {
            return self.count_collision(collisions, &name);
        }
        let replicas = if self.spec.recreate { self.spec.replicas } else { self.room_for_new(0) };
        let set = sets::new_replica_set(self, template, &hash, &name, replicas);
        self.plan.write(WriteVerb::Create(set), "no ReplicaSet has the Deployment's template");
        if replicas > 0 {
            self.report_scaled(&name, 0, replicas);
        }
        if self.spec.deadline.is_some() {
            self.set_progressing("True", "NewReplicaSetCreated", &format!("Created new replica set {name:?}"));
        }
    }

    /// Counts a hash collision: the name belongs to another template, so the next plan tries another hash.
    fn count_collision(&mut self, collisions: Option<i64>, name: &str) {
        self.object.set(&["status", "collisionCount"], collisions.unwrap_or(0) + 1);
        self.plan.wait(format!("the name {name} is taken by another ReplicaSet, trying another hash"));
    }

    fn report_scaled(&mut self, set: &str, from: i64, to: i64) {
        let way = if to > from { "up" } else { "down" };
        let message = format!("Scaled {way} replica set {set} from {from} to {to}");
        self.plan.event(self.owner.row, EventType::Normal, "ScalingReplicaSet", message);
    }

    /// Scales a set, and records the desired and maximum replicas in its annotations.
    fn scale(&mut self, at: usize, to: i64) {
        let (replicas, surge) = (self.spec.replicas, self.spec.surge);
        let set = &mut self.sets[at];
        let from = set.replicas;
        set.size(to, replicas, surge);
        let name = set.row.key.name.clone();
        if from != to {
            self.report_scaled(&name, from, to);
        }
    }

    /// Deletes old ReplicaSets beyond the history limit, lowest revision first, once their status reports no pods.
    fn clean_up(&mut self) {
        let Some(limit) = self.spec.history else { return };
        let mut old: Vec<&ReplicaSetState> =
            self.old().map(|at| &self.sets[at]).filter(|set| !set.row.is_deleting()).collect();
        let excess = old.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        old.sort_by_key(|set| (set.revision(), set.row.created));
        for set in old.into_iter().take(excess).filter(|set| set.is_empty()) {
            self.plan.delete(set.row, format!("more than {limit} old ReplicaSets"));
        }
    }

    fn old(&self) -> impl Iterator<Item = usize> + use<'w> {
        let new = self.new;
        (0..self.sets.len()).filter(move |at| Some(*at) != new)
    }

    /// Total of the planned `spec.replicas`.
    fn total(&self) -> i64 {
        self.sets.iter().map(|set| set.replicas).sum()
    }

    fn write_sets(&mut self) {
        for set in &mut self.sets {
            if let Some((object, why)) = set.take_edit() {
                self.plan.write(WriteVerb::Update(object), why);
            }
        }
    }

    fn finish(mut self) -> Plan {
        self.write_sets();
        let mut new = status::status_map(&self.object);
        status::set_conditions(&mut new, std::mem::take(&mut self.conditions));
        let original = self.owner.row.object();
        status::write(&mut self.plan, original, new.into(), "the rollout's status changed");
        self.plan
    }
}
