//! Progress of workloads on their way to ready: for each the stage of its slowest pod, and counts of pods and restarts.
//!
//! Knows: which objects run pods, which pods belong to them, and which stage the status of a pod shows.
//! Never: explains a failure ([`super::why`] does). Start reading at [`measure`].

use super::convergence::{self, STARTING_REASONS, missing_of};
use super::why::owners;
use crate::kinds;
use crate::object::{Key, Object};
use crate::reconcile::run_end::Unmet;
use crate::world::{Phase, Row, World};
use serde_json::Value;
use std::collections::HashSet;
use std::sync::Arc;

/// Maximum depth of owners above a pod: CronJob, Job, Pod.
const DEPTH: usize = 3;

/// Stage of a workload; the earliest stage of its pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// A container keeps failing, or cannot be started.
    Failing,
    /// No pod exists yet, or a pod has no node.
    Pending,
    /// Its image is being built.
    Building,
    /// A container is about to start.
    Starting,
    /// The processes run, and are not ready yet.
    Started,
    /// As many pods are ready as the spec asks for.
    Ready,
    /// It has ended well, or has nothing to run now.
    Done,
}

impl Stage {
    /// In one word.
    pub fn word(self) -> &'static str {
        match self {
            Stage::Failing => "failing",
            Stage::Pending => "pending",
            Stage::Building => "building",
            Stage::Starting => "starting",
            Stage::Started => "started",
            Stage::Ready => "ready",
            Stage::Done => "done",
        }
    }

    /// Whether nothing more is to be waited for.
    pub fn is_settled(self) -> bool {
        self >= Stage::Ready
    }
}

/// Progress of one workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadProgress {
    /// The workload.
    pub key: Key,
    /// `deployment/web`.
    pub name: String,
    /// Its stage.
    pub stage: Stage,
    /// Ready pods; of a Job, succeeded ones.
    pub ready: i64,
    /// The pods that the spec asks for.
    pub wanted: i64,
    /// Restarts of containers of its pods.
    pub restarts: i64,
    /// The reason that a pod's status gives for the stage, such as `ErrImagePull`; may be empty.
    pub reason: String,
}

/// Returns the progress of the workloads and image builds among these objects, in the order of their names.
pub fn measure(world: &World, keys: &HashSet<Key>) -> Vec<WorkloadProgress> {
    let rows = keys.iter().filter_map(|key| world.get(key));
    let mut found: Vec<WorkloadProgress> = rows.filter_map(|row| measure_one(world, row)).collect();
    found.sort_by(|one, other| (&one.key.namespace, &one.name).cmp(&(&other.key.namespace, &other.name)));
    found
}

/// Returns the objects among these, or owned by them, that have not converged.
pub fn unmet(world: &World, keys: &HashSet<Key>) -> Vec<Unmet> {
    let is_meant = |key: &Key| {
        keys.contains(key)
            || world.get(key).is_some_and(|row| owners(world, row).iter().any(|owner| keys.contains(&owner.key)))
    };
    convergence::unmet(world).into_iter().filter(|unmet| is_meant(&unmet.key)).collect()
}

/// Returns the pods of a workload that are not being deleted.
pub fn pods<'w>(world: &'w World, workload: &Row) -> Vec<&'w Arc<Row>> {
    let mut found = Vec::new();
    collect_pods(world, &workload.uid, DEPTH, &mut found);
    found.extend(world.get(&workload.key).filter(|row| row.pod().is_some()));
    found.retain(|pod| pod.deletion.is_none());
    found
}

fn collect_pods<'w>(world: &'w World, uid: &str, depth: usize, found: &mut Vec<&'w Arc<Row>>) {
    for row in world.dependents(uid) {
        match row.pod() {
            Some(_) => found.push(row),
            None if depth > 1 => collect_pods(world, &row.uid, depth - 1, found),
            None => {}
        }
    }
}

fn measure_one(world: &World, row: &Row) -> Option<WorkloadProgress> {
    let object = row.body();
    let kind = world.kinds.by_kind(object.api_version(), object.kind())?;
    let mut tally = PodTally::default();
    pods(world, row).into_iter().for_each(|pod| tally.add(&pod_stage(pod), pod));
    measure_progress(row, &object, kind, &tally)
}

/// Pods of a workload, counted.
#[derive(Clone, Debug, Default)]
pub struct PodTally {
    /// Stage and reason of the slowest pod that is not settled.
    slowest: Option<(Stage, String)>,
    count: i64,
    ready: i64,
    restarts: i64,
}

impl PodTally {
    /// Counts a pod at this stage, unless it is being deleted.
    pub fn add(&mut self, (stage, reason): &(Stage, String), row: &Row) {
        if row.deletion.is_some() {
            return;
        }
        self.count += 1;
        self.ready += i64::from(*stage == Stage::Ready);
        self.restarts += row.pod().map_or(0, |pod| pod.restarts);
        if !stage.is_settled() {
            self.note_slowest(*stage, reason);
        }
    }

    /// Counts the pods of another tally, too.
    pub fn merge(&mut self, other: &PodTally) {
        self.count += other.count;
        self.ready += other.ready;
        self.restarts += other.restarts;
        if let Some((stage, reason)) = &other.slowest {
            self.note_slowest(*stage, reason);
        }
    }

    fn note_slowest(&mut self, stage: Stage, reason: &str) {
        if self.slowest.as_ref().is_none_or(|(known, _)| stage < *known) {
            self.slowest = Some((stage, reason.to_owned()));
        }
    }

    /// Stage and reason of the slowest pod; ready when all are settled.
    pub fn slowest(&self) -> (Stage, &str) {
        self.slowest.as_ref().map_or((Stage::Ready, ""), |(stage, reason)| (*stage, reason))
    }

    /// The number of ready pods, and of all.
    pub fn counts(&self) -> (i64, i64) {
        (self.ready, self.count)
    }

    /// Restarts of all containers.
    pub fn restarts(&self) -> i64 {
        self.restarts
    }
}

/// Returns the progress of a workload or an image build whose pods are these; `None` for other objects.
pub fn measure_progress(row: &Row, object: &Object, kind: &kinds::Kind, tally: &PodTally) -> Option<WorkloadProgress> {
    let progress = |stage, wanted| WorkloadProgress {
        key: row.key.clone(),
        name: format!("{}/{}", kind.kind.to_lowercase(), row.key.name),
        stage,
        ready: 0,
        wanted,
        restarts: 0,
        reason: String::new(),
    };
    if row.key.resource.0 == kinds::image::RESOURCE {
        return build_stage(object).map(|stage| progress(stage, 0));
    }
    let wanted = wanted_pods(row, object)?;
    let is_missing = missing_of(row.key.resource, object).is_some();
    let (stage, reason) = match &tally.slowest {
        Some((stage, reason)) if is_missing || *stage == Stage::Failing => (*stage, reason.clone()),
        _ if is_missing && failed(object) => (Stage::Failing, "Failed".to_owned()),
        _ if is_missing && tally.count < wanted => (Stage::Pending, String::new()),
        _ if is_missing => (Stage::Started, String::new()),
        _ if is_done(row, object) => (Stage::Done, String::new()),
        _ => (Stage::Ready, String::new()),
    };
    let ready = match object.int(&["status", "succeeded"]) {
        succeeded if row.key.resource.0 == "jobs.batch" => succeeded.unwrap_or(0),
        _ => tally.ready,
    };
    Some(WorkloadProgress { ready, restarts: tally.restarts, reason, ..progress(stage, wanted) })
}

/// Returns the stage of an Image object's build; `None` without one.
fn build_stage(image: &Object) -> Option<Stage> {
    Some(match image.text(&["status", "build", "state"])? {
        "Building" => Stage::Building,
        "Succeeded" => Stage::Done,
        _ => Stage::Failing,
    })
}

/// Returns the number of pods that a workload asks for; `None` for objects that are not workloads.
fn wanted_pods(row: &Row, object: &Object) -> Option<i64> {
    match row.key.resource.0 {
        "deployments.apps" | "replicasets.apps" | "statefulsets.apps" | "replicationcontrollers" => {
            Some(object.int(&["spec", "replicas"]).unwrap_or(1))
        }
        "daemonsets.apps" => Some(object.int(&["status", "desiredNumberScheduled"]).unwrap_or(0)),
        "jobs.batch" => {
            let parallelism = object.int(&["spec", "parallelism"]).unwrap_or(1);
            Some(object.int(&["spec", "completions"]).unwrap_or(parallelism))
        }
        "cronjobs.batch" => Some(0),
        "pods" => Some(1),
        _ => None,
    }
}

fn failed(object: &Object) -> bool {
    object.has_condition("Failed")
}

fn is_done(row: &Row, object: &Object) -> bool {
    match row.key.resource.0 {
        "jobs.batch" => object.has_condition("Complete"),
        "pods" => row.pod().is_some_and(|pod| pod.phase == Phase::Succeeded),
        _ => false,
    }
}

/// Returns the stage of a pod, and the reason in its status.
pub fn pod_stage(row: &Row) -> (Stage, String) {
    let Some(fields) = row.pod() else { return (Stage::Pending, String::new()) };
    if fields.ready && !fields.phase.is_terminal() {
        return (Stage::Ready, String::new());
    }
    let pod = row.body();
    let text = |path: &[&str]| pod.text(path).unwrap_or_default().to_owned();
    match fields.phase {
        Phase::Succeeded => return (Stage::Done, String::new()),
        Phase::Failed => return (Stage::Failing, text(&["status", "reason"])),
        _ if fields.node.is_none() => return (Stage::Pending, unscheduled_reason(&pod)),
        _ => {}
    }
    let statuses: Vec<&Value> = pod.container_statuses().collect();
    let waiting = || statuses.iter().filter_map(|status| status["state"]["waiting"]["reason"].as_str());
    if let Some(reason) = waiting().find(|reason| !STARTING_REASONS.contains(reason)) {
        // The status changes between the two at every attempt.
        let reason = if reason == "ImagePullBackOff" { "ErrImagePull" } else { reason };
        return (Stage::Failing, reason.to_owned());
    }
    let stage = if waiting().next().is_some() || statuses.is_empty() { Stage::Starting } else { Stage::Started };
    (stage, String::new())
}

fn unscheduled_reason(pod: &Object) -> String {
    pod.condition("PodScheduled").and_then(|condition| condition["reason"].as_str()).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Resource;
    use serde_json::json;

    fn world(objects: Vec<(&'static str, Value)>) -> World {
        let mut world = World::new(crate::object::Time::UNIX_EPOCH);
        for (resource, body) in objects {
            let object = Object(body);
            let key = Key::new(Resource(resource), object.namespace(), object.name());
            world.put(key, object.0.to_string().into());
        }
        world
    }

    fn deployment(available: i64) -> (&'static str, Value) {
        let body = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "default", "uid": "d", "generation": 1}, "spec": {"replicas": 2},
            "status": {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": available, "availableReplicas": available},
        });
        ("deployments.apps", body)
    }

    fn owned(kind: &str, uid: &str) -> Value {
        json!([{"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": uid, "controller": true}])
    }

    fn set() -> (&'static str, Value) {
        let meta =
            json!({"name": "web-1", "namespace": "default", "uid": "r", "ownerReferences": owned("Deployment", "d")});
        ("replicasets.apps", json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta}))
    }

    fn pod(name: &str, node: Option<&str>, status: Value) -> (&'static str, Value) {
        let meta =
            json!({"name": name, "namespace": "default", "uid": name, "ownerReferences": owned("ReplicaSet", "r")});
        let spec = json!({"nodeName": node, "containers": [{"name": "main"}]});
        ("pods", json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}))
    }

    fn waiting(reason: &str) -> Value {
        json!({"phase": "Pending", "containerStatuses": [{"name": "main", "restartCount": 1, "state": {"waiting": {"reason": reason}}}]})
    }

    fn ready() -> Value {
        json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})
    }

    fn stage_of(objects: Vec<(&'static str, Value)>) -> String {
        let world = world(objects);
        let keys = [Key::new(Resource("deployments.apps"), "default", "web")].into();
        let found = measure(&world, &keys);
        let line = &found[0];
        format!("{} {}/{} {} {} {}", line.name, line.ready, line.wanted, line.stage.word(), line.restarts, line.reason)
    }

    #[test]
    fn workload_is_as_far_as_its_slowest_pod() {
        let running = json!({"phase": "Running", "containerStatuses": [{"name": "main", "state": {"running": {}}}]});
        for (status, node, expected) in [
            (json!({"phase": "Pending"}), None, "deployment/web 1/2 pending 0 "),
            (waiting("ContainerCreating"), Some("n"), "deployment/web 1/2 starting 1 "),
            (waiting("CrashLoopBackOff"), Some("n"), "deployment/web 1/2 failing 1 CrashLoopBackOff"),
            (running, Some("n"), "deployment/web 1/2 started 0 "),
        ] {
            let objects = vec![deployment(1), set(), pod("a", Some("n"), ready()), pod("b", node, status)];
            assert_eq!(stage_of(objects), expected);
        }
    }

    #[test]
    fn workload_without_pods_is_pending_and_with_all_of_them_ready() {
        assert_eq!(stage_of(vec![deployment(0)]), "deployment/web 0/2 pending 0 ");
        let objects = vec![deployment(2), set(), pod("a", Some("n"), ready()), pod("b", Some("n"), ready())];
        assert_eq!(stage_of(objects), "deployment/web 2/2 ready 0 ");
    }

    #[test]
    fn unmet_objects_are_those_of_the_manifests_and_below() {
        let stray = (
            "pods",
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stray", "namespace": "default", "uid": "s"}}),
        );
        let world = world(vec![deployment(1), stray]);
        let keys = [Key::new(Resource("deployments.apps"), "default", "web")].into();
        let found: Vec<String> = unmet(&world, &keys).iter().map(|one| one.key.name.to_string()).collect();
        assert_eq!(found, ["web"]);
    }
}
