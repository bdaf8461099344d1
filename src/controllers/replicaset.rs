//! ReplicaSets keep a number of pods: create missing ones, delete the least useful ones, and count the pods.

use super::controller_ref::Owner;
use super::pods::{self, BATCH, PodCreationBudget};
use super::status;
use crate::object::time::Shift;
use crate::object::{Key, Object, Time, condition};
use crate::world::{EventType, Loop, Phase, Plan, PodFields, Row, World, WriteVerb, free_name};
use hashbrown::HashMap;
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::sync::Arc;

const ROOT: &str = "replicasets.apps";
/// Condition that reports that pods cannot be created.
const FAILURE: &str = "ReplicaFailure";

/// The loop of ReplicaSets.
pub const LOOP: Loop = Loop { name: "replicaset-controller", root: ROOT, concerns, plan, ..Loop::BASE };

fn concerns(world: &World, row: &Row) -> Vec<Key> {
    pods::concerned(world, ROOT, "ReplicaSet", &["pods"], row)
}

fn plan(world: &World, key: &Key) -> Plan {
    let Some(row) = world.get(key) else { return Plan::default() };
    let owner = Owner { row, api_version: "apps/v1", kind: "ReplicaSet" };
    sync_replicas(world, LOOP.name, &owner)
}

/// Makes the plan of a ReplicaSet or ReplicationController.
pub(super) fn sync_replicas(world: &World, name: &'static str, owner: &Owner) -> Plan {
    let mut plan = Plan::default();
    let children = owner.claim(world, "pods", &mut plan);
    if !plan.is_empty() {
        return plan;
    }
    let object = owner.row.object();
    let active: Vec<&Arc<Row>> = children.iter().copied().filter(|pod| pod.is_active_pod()).collect();
    let mut failure = None;
    if !owner.row.is_deleting() {
        failure = scale(world, name, owner, &object, &active, &mut plan);
    }
    let terminating = children.iter().filter(|pod| pod.is_deleting() && !is_terminal(pod)).count();
    count(world, owner, object, &active, terminating, failure, &mut plan);
    plan
}

fn is_terminal(pod: &Row) -> bool {
    pod.pod().is_some_and(|pod| pod.phase.is_terminal())
}

/// Creates or deletes pods until the number of active ones is `replicas`. Returns the message when pods are refused.
fn scale(
    world: &World,
    name: &'static str,
    owner: &Owner,
    object: &Object,
    active: &[&Arc<Row>],
    plan: &mut Plan,
) -> Option<String> {
    let wanted = usize::try_from(object.int(&["spec", "replicas"]).unwrap_or(1)).unwrap_or(0);
    if active.len() > wanted {
        let mut ranked = ranked(world, owner.row, active);
        ranked.truncate((active.len() - wanted).min(BATCH));
        for pod in ranked {
            plan.event(owner.row, EventType::Normal, "SuccessfulDelete", format!("Deleted pod: {}", pod.key.name));
            plan.delete(pod, format!("{} pods are active, {wanted} are desired", active.len()));
        }
    }
    if active.len() >= wanted {
        return None;
    }
    let missing = wanted - active.len();
    let mut allowance = PodCreationBudget::new(world, name, owner.row, active.iter().copied(), missing, plan);
    let known = object.has_condition(FAILURE);
    if matches!(allowance, PodCreationBudget::UpTo(1..)) && known {
        allowance = PodCreationBudget::One;
    }
    let missing = allowance.limit(wanted - active.len()).min(pods::creation_batch(active.len()));
    let why = format!("{} pods are active, {wanted} are desired", active.len());
    create(world, owner, object, missing, &why, plan);
    allowance.report_refusal(owner.row, plan);
    allowance.failure()
}

fn create(world: &World, owner: &Owner, object: &Object, count: usize, why: &str, plan: &mut Plan) {
    let template = object.value_at(&["spec", "template"]).unwrap_or(&Value::Null);
    let pod = pods::from_template(owner, template);
    for slot in 0..count {
        let name = free_name(world, "pods", owner.row, &format!("{}-", owner.row.key.name), slot);
        let mut pod = pod.clone();
        pod.set(&["metadata", "name"], name.as_str());
        plan.event(owner.row, EventType::Normal, "SuccessfulCreate", format!("Created pod: {name}"));
        plan.write(WriteVerb::Create(pod), why);
    }
}

/// Pods in the order of their deletion.
fn ranked<'a>(world: &World, owner: &Row, active: &[&'a Arc<Row>]) -> Vec<&'a Arc<Row>> {
    let counts_by_node = counts_by_node(world, owner, active);
    let mut ranked: Vec<(&Arc<Row>, &PodFields)> = active.iter().filter_map(|row| Some((*row, row.pod()?))).collect();
    ranked.sort_by(|a, b| order(*a, *b, &counts_by_node, world.now));
    ranked.into_iter().map(|(row, _)| row).collect()
}

/// Counts the active pods of the same workload (all ReplicaSets of one Deployment) on each node.
fn counts_by_node(world: &World, owner: &Row, active: &[&Arc<Row>]) -> HashMap<String, usize> {
    let mut counts_by_node = HashMap::new();
    let mut note = |pod: &Row| {
        if let Some(node) = pod.pod().and_then(|pod| pod.node.as_deref()) {
            *counts_by_node.entry(node.to_owned()).or_insert(0) += 1;
        }
    };
    match owner.controller() {
        None => active.iter().for_each(|pod| note(pod)),
        Some(above) => {
            for sibling in world.controlled(ROOT, &above.uid) {
                world.controlled("pods", &sibling.uid).filter(|pod| pod.is_active_pod()).for_each(|pod| note(pod));
            }
        }
    }
    counts_by_node
}

/// Kubernetes' order of deleting pods (`ActivePodsWithRanks`): the first difference decides.
fn order(
    a: (&Arc<Row>, &PodFields),
    b: (&Arc<Row>, &PodFields),
    counts_by_node: &HashMap<String, usize>,
    now: Time,
) -> Ordering {
    let domain_counts =
        |pod: &PodFields| pod.node.as_deref().and_then(|node| counts_by_node.get(node)).copied().unwrap_or(0);
    let phase = |pod: &PodFields| match pod.phase {
        Phase::Pending => 0,
        Phase::Unknown => 1,
        _ => 2,
    };
    let ((a_row, a), (b_row, b)) = (a, b);
    let by_uid = || a_row.uid.cmp(&b_row.uid);
    a.node
        .is_some()
        .cmp(&b.node.is_some())
        .then_with(|| phase(a).cmp(&phase(b)))
        .then_with(|| a.ready.cmp(&b.ready))
        .then_with(|| a.deletion_cost.cmp(&b.deletion_cost))
        .then_with(|| domain_counts(b).cmp(&domain_counts(a)))
        .then_with(
            || if a.ready && b.ready { by_age(a.ready_since, b.ready_since, now, by_uid) } else { Ordering::Equal },
        )
        .then_with(|| b.restarts.cmp(&a.restarts))
        .then_with(|| by_age(a_row.created, b_row.created, now, by_uid))
        .then_with(by_uid)
}

/// Younger first, but ages of one power of two count as equal, so that scaling down does not always take the
/// newest zone (KEP-2185).
fn by_age(a: Option<Time>, b: Option<Time>, now: Time, tie: impl Fn() -> Ordering) -> Ordering {
    let rank = |time: Time| match now.as_nanosecond() - time.as_nanosecond() {
        age if age > 0 => i64::from(age.ilog2()),
        _ => -1,
    };
    match (a, b) {
        (a, b) if a == b => Ordering::Equal,
        (Some(a), Some(b)) => rank(a).cmp(&rank(b)).then_with(tie),
        (a, _) => {
            if a.is_none() {
                Ordering::Less
            } else {
                Ordering::Greater
            }
        }
    }
}

/// Counts the pods, and schedules a wake-up for the next pod that becomes available.
fn count(
    world: &World,
    owner: &Owner,
    object: Object,
    active: &[&Arc<Row>],
    terminating: usize,
    failure: Option<String>,
    plan: &mut Plan,
) {
    let min_ready = object.int(&["spec", "minReadySeconds"]).unwrap_or(0);
    let labels: Vec<(&str, &str)> = object.pairs(&["spec", "template", "metadata", "labels"]).collect();
    let fully_labeled = |pod: &Row| labels.iter().all(|(key, value)| pod.label(key) == Some(value));
    let (mut labeled, mut ready, mut available) = (0, 0, 0);
    for pod in active {
        let Some(fields) = pod.pod() else { continue };
        labeled += i64::from(fully_labeled(pod));
        ready += i64::from(fields.ready);
        if pod.is_available_pod(min_ready, world.now) {
            available += 1;
        } else if let Some(since) = fields.ready_since.filter(|_| fields.ready) {
            plan.wake_at(since.later(jiff::SignedDuration::from_secs(min_ready)));
        }
    }
    let mut new = status::status_map(&object);
    new.insert("replicas".into(), active.len().into());
    status::set_count(&mut new, "fullyLabeledReplicas", labeled);
    status::set_count(&mut new, "readyReplicas", ready);
    status::set_count(&mut new, "availableReplicas", available);
    new.insert("observedGeneration".into(), owner.row.generation.into());
    if owner.kind == "ReplicaSet" {
        new.insert("terminatingReplicas".into(), json!(terminating));
    }
    let mut conditions = object.items(&["status", "conditions"]).to_vec();
    match failure {
        None => condition::remove(&mut conditions, FAILURE),
        // The message contains a pod's name, which changes with each retry: the first message stays.
        Some(_) if condition::is_true(&conditions, FAILURE) => {}
        Some(message) => {
            condition::set(&mut conditions, condition::new(FAILURE, "True", "FailedCreate", &message, world.now));
        }
    }
    status::set_conditions(&mut new, conditions);
    let wanted = object.int(&["spec", "replicas"]).unwrap_or(1);
    if plan.is_empty() && available < wanted {
        plan.wait(format!("{available} of {wanted} pods are available, {ready} are ready"));
    }
    status::write(plan, object, new.into(), "the counts of pods changed");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::testing::{Cluster, cluster, key_of};
    use crate::object::Resource;
    use crate::world::plan::Write;

    const WEB: &str = "
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web}
spec: {replicas: 3, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c}]}}}
";

    fn active(world: &World) -> usize {
        world.list("pods").filter(|pod| pod.is_active_pod()).count()
    }

    #[test]
    fn replica_set_keeps_its_replicas() {
        for seed in 0..10 {
            let mut cluster = cluster(WEB).seeded(seed);
            cluster.crashes = seed as u32;
            cluster.check = Box::new(|world| assert!(active(world) <= 3));
            cluster.settle();
            assert_eq!(active(&cluster.world), 3);
            let victim = cluster.world.list("pods").next().unwrap().key.name.to_string();
            cluster.delete("pods", &victim, Default::default());
            cluster.settle();
            assert_eq!((active(&cluster.world), cluster.world.find("pods", "default", &victim).is_none()), (3, true));
            let status = cluster.value("replicasets.apps", "web", "/status");
            let wanted = json!({"availableReplicas": 3, "fullyLabeledReplicas": 3, "observedGeneration": 1, "readyReplicas": 3,
                "replicas": 3, "terminatingReplicas": 0});
            assert_eq!(status, wanted);
        }
    }

    fn put(world: &mut World, body: Value) {
        let object = Object(body);
        world.put(key_of(&object), object.0.to_string().into());
    }

    #[test]
    fn pods_that_wait_for_a_node_are_bounded() {
        let mut world = World::new(Time::UNIX_EPOCH);
        let meta = |name: &str| json!({"name": name, "namespace": "default", "uid": name, "generation": 1});
        let mut set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta("web"), "spec": {"replicas": 1_000_000_000,
            "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}}, "spec": {}}}});
        put(&mut world, set.clone());
        let waiting_pod = |world: &mut World, number: usize| {
            let mut metadata = meta(&format!("web-{number}"));
            metadata["labels"] = json!({"app": "web"});
            metadata["ownerReferences"] =
                json!([{"kind": "ReplicaSet", "name": "web", "uid": "web", "controller": true}]);
            put(
                world,
                json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "c"}]}}),
            );
        };
        (3..pods::MAX_WAITING_PODS).for_each(|number| waiting_pod(&mut world, number));
        let key = Key::new(Resource(ROOT), "default", "web");
        let creates = |plan: &Plan| plan.writes.iter().filter(|one| matches!(one.verb, WriteVerb::Create(_))).count();
        let failures = |plan: &Plan| plan.events.iter().filter(|event| event.reason == "FailedCreate").count();
        let last = plan(&world, &key);
        assert_eq!((creates(&last), failures(&last)), (3, 1), "the maximum is reached");
        (0..3).for_each(|number| waiting_pod(&mut world, number));
        let full = plan(&world, &key);
        let [Write { verb: WriteVerb::Status(object), .. }] = &full.writes[..] else { panic!("{:?}", full.writes) };
        let condition = condition::find(object.items(&["status", "conditions"]), FAILURE).expect("it is set");
        let text = "10000 of its pods wait for a node, and more are created when some of them have one: add nodes, or lower replicas";
        assert_eq!((condition["status"].as_str(), condition["message"].as_str()), (Some("True"), Some(text)));
        assert_eq!((full.events.len(), &full.waits[0]), (0, &text.to_owned()));
        set["status"] = object.0["status"].clone();
        set["spec"]["replicas"] = 5.into();
        put(&mut world, set);
        let fewer = plan(&world, &key);
        let deleted = fewer.writes.iter().filter(|one| matches!(one.verb, WriteVerb::Delete { .. })).count();
        assert_eq!(deleted, BATCH, "it is scaled down in steps");
    }

    #[test]
    fn replica_set_adopts_and_releases_pods() {
        let mut cluster = cluster(&format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: lone, labels: {{app: web}}}}, spec: {{containers: [{{name: c}}]}}}}\n---\n{WEB}"
        ));
        cluster.settle();
        assert_eq!(active(&cluster.world), 3);
        assert_eq!(cluster.object("pods", "lone").controller().unwrap().name, "web");
        cluster.patch("pods", "lone", json!({"metadata": {"labels": {"app": "other"}}}));
        cluster.settle();
        assert_eq!(active(&cluster.world), 4);
        assert!(cluster.object("pods", "lone").owners().is_empty());
    }

    #[test]
    fn replica_set_creates_one_growing_batch_per_plan() {
        for (active, wanted, batch) in [(0, 1200, 8), (8, 1200, 8), (16, 1200, 16), (100, 1200, BATCH), (100, 103, 3)] {
            let mut cluster = cluster("");
            cluster.add(&WEB.replace("replicas: 3", &format!("replicas: {active}")));
            cluster.settle();
            cluster.patch("replicasets.apps", "web", json!({"spec": {"replicas": wanted}}));
            let plan = plan(&cluster.world, &Key::new(Resource(ROOT), "default", "web"));
            let names: std::collections::BTreeSet<&str> = plan
                .writes
                .iter()
                .filter_map(|write| if let WriteVerb::Create(pod) = &write.verb { Some(pod.name()) } else { None })
                .collect();
            assert_eq!(names.len(), batch, "{active} of {wanted}");
        }
    }

    #[test]
    fn refused_pods_are_reported_and_retried_one_by_one() {
        let mut cluster = cluster(WEB);
        cluster.allowed_pods = 1;
        cluster.pass(60);
        assert_eq!(active(&cluster.world), 1);
        let condition = cluster.value("replicasets.apps", "web", "/status/conditions/0");
        assert_eq!((&condition["type"], &condition["reason"]), (&json!(FAILURE), &json!("FailedCreate")));
        assert!(condition["message"].as_str().unwrap().contains("exceeded quota"));
        assert!(cluster.logged("event: FailedCreate Error creating: pods"));
        assert!(cluster.log.len() < 40, "{} writes and events", cluster.log.len());
        cluster.allowed_pods = usize::MAX;
        cluster.pass(100);
        assert_eq!(active(&cluster.world), 3);
        assert!(cluster.value("replicasets.apps", "web", "/status/conditions").is_null());
    }

    fn pod(cluster: &mut Cluster, name: &str, spec: &str) {
        let spec: Value = serde_yaml::from_str(spec).unwrap();
        let mut pod =
            Object(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}},
            "spec": {"nodeName": "a"}, "status": {"phase": "Running", "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2025-12-31T00:00:00Z"}]}}));
        json_patch::merge(&mut pod.0, &spec);
        cluster.create(pod.0);
    }

    #[test]
    fn least_useful_pod_is_deleted_first() {
        let day = "{type: Ready, status: 'True', lastTransitionTime: '2025-12-31T23:00:00Z'}";
        for (why, worse) in [
            ("unassigned", "{spec: {nodeName: null}}".to_owned()),
            ("pending", "{status: {phase: Pending}}".into()),
            ("not ready", "{status: {conditions: [{type: Ready, status: 'False'}]}}".into()),
            ("cheaper", "{metadata: {annotations: {controller.kubernetes.io/pod-deletion-cost: '-5'}}}".into()),
            ("ready more recently", format!("{{status: {{conditions: [{day}]}}}}")),
            ("restarted", "{status: {containerStatuses: [{restartCount: 3}]}}".into()),
        ] {
            let mut cluster = cluster("");
            for name in ["p1", "p3"] {
                pod(&mut cluster, name, "{}");
            }
            pod(&mut cluster, "p2", &worse);
            let rows: Vec<&Arc<Row>> = cluster.world.list("pods").collect();
            let first = ranked(&cluster.world, &rows[0].clone(), &rows)[0].key.name.to_string();
            assert_eq!(first, "p2", "{why}");
        }
        let mut crowded = cluster("");
        for (name, node) in [("p1", "a"), ("p2", "b"), ("p3", "b")] {
            pod(&mut crowded, name, &format!("{{spec: {{nodeName: {node}}}}}"));
        }
        let rows: Vec<&Arc<Row>> = crowded.world.list("pods").collect();
        assert_ne!(&*ranked(&crowded.world, &rows[0].clone(), &rows)[0].key.name, "p1");
    }
}
