//! Former bugs of Kubernetes, put back: the simulator has to find each of them. Each is a loop with a wrong plan.

use super::attempt;
use kloop::controllers::{
    cronjob, daemonset, deployment, endpointslice, garbage_collector, job, namespace, replicaset, statefulset,
};
use kloop::object::{Key, Object};
use kloop::reconcile::loops;
use kloop::world::{Effect, Loop, Plan, Propagation, World, WriteVerb};
use kloop::{kubelet, scheduler};
use serde_json::{Value, json};
use std::sync::Mutex;

/// Number of seeds within which every bug has to be found, from the last successful one on.
const SEEDS: u64 = 100;

/// Changes the objects that a plan writes.
fn changed(mut plan: Plan, change: impl Fn(&mut Object)) -> Plan {
    for write in &mut plan.writes {
        match &mut write.verb {
            WriteVerb::Create(object)
            | WriteVerb::Update(object)
            | WriteVerb::AnnotateStatus(object)
            | WriteVerb::Scale(object)
            | WriteVerb::Status(object) => change(object),
            _ => {}
        }
    }
    plan
}

/// Pods are created twice (kubernetes 129795, 41675, 88851).
fn makes_too_many(world: &World, key: &Key) -> Plan {
    let mut plan = (replicaset::LOOP.plan)(world, key);
    if let Some(write) = plan.writes.iter().find(|write| matches!(write.verb, WriteVerb::Create(_))).cloned() {
        let WriteVerb::Create(mut pod) = write.verb else { return plan };
        pod.set(&["metadata", "name"], format!("{}x", pod.name()));
        plan.write(WriteVerb::Create(pod), "once more");
    }
    plan
}

/// Every plan writes something.
fn never_quiet(world: &World, key: &Key) -> Plan {
    let mut plan = (replicaset::LOOP.plan)(world, key);
    if let Some(row) = world.get(key).filter(|_| plan.is_empty()) {
        let mut object = row.object();
        object.set(&["metadata", "annotations", "seen"], world.now.to_string());
        plan.write(WriteVerb::Update(object), "seen");
    }
    plan
}

/// A start is carried out before it is committed (kubernetes 23636).
fn starts_unrecorded(world: &World, key: &Key) -> Plan {
    let mut plan = (kubelet::LOOP.plan)(world, key);
    plan.writes.retain(|write| !matches!(write.verb, WriteVerb::Attempt { attempt, .. } if attempt > 0));
    plan
}

/// Restarts are not counted.
fn forgets_restarts(world: &World, key: &Key) -> Plan {
    changed((kubelet::LOOP.plan)(world, key), |pod| {
        if let Some(statuses) = pod.0["status"]["containerStatuses"].as_array_mut() {
            statuses.iter_mut().for_each(|status| status["restartCount"] = json!(0));
        }
    })
}

/// A failed pod becomes succeeded (kubernetes 58711).
fn failure_becomes_success(world: &World, key: &Key) -> Plan {
    let mut plan = (kubelet::LOOP.plan)(world, key);
    let row = world.get(key).filter(|row| row.pod().is_some_and(|pod| pod.phase == kloop::world::Phase::Failed));
    if let Some(row) = row {
        let mut pod = row.object();
        pod.set(&["status", "phase"], "Succeeded");
        plan.write(WriteVerb::Status(pod), "it has ended");
    }
    plan
}

/// The next attempt starts while the previous one runs.
fn starts_beside(world: &World, key: &Key) -> Plan {
    let mut plan = (kubelet::LOOP.plan)(world, key);
    let mut more = Vec::new();
    for effect in &plan.effects {
        if let Effect::Start(start) = effect {
            let mut start = start.clone();
            start.attempt += 1;
            more.push(Effect::Start(start));
        }
    }
    // Ordered once the first attempt runs.
    if world.get(key).is_some_and(|row| row.pod().is_some_and(|pod| pod.ready)) {
        let uid = world.get(key).map(|row| row.uid.clone()).unwrap_or_default();
        more.push(Effect::Start(Box::new(kloop::runtime::testing::start_request(&uid, "c", 99))));
    }
    plan.effects.extend(more);
    plan
}

/// Processes of a pod stay on the machine (kubernetes 5657, containerd 9309).
fn leaves_processes(world: &World, key: &Key) -> Plan {
    let mut plan = (kubelet::LOOP.plan)(world, key);
    if world.get(key).is_none() {
        plan.effects.retain(|effect| !matches!(effect, Effect::Remove { .. }));
    }
    plan
}

/// No start is ever carried out.
fn starts_nothing(world: &World, key: &Key) -> Plan {
    let mut plan = (kubelet::LOOP.plan)(world, key);
    plan.effects.retain(|effect| !matches!(effect, Effect::Start(_)));
    plan
}

/// Existing owners are not found, so their dependents are deleted (kubernetes 65200, 54940, 88097).
fn collects_the_living(world: &World, key: &Key) -> Plan {
    let mut plan = (garbage_collector::LOOP.plan)(world, key);
    if let Some(row) = world.get(key).filter(|row| row.key.resource == "configmaps" && !row.owners.is_empty()) {
        let verb = WriteVerb::Delete {
            key: key.clone(),
            uid: row.uid.clone(),
            grace: None,
            propagation: Propagation::Background,
        };
        plan.write(verb, "its owner is not found");
    }
    plan
}

/// An ended pod is counted twice (kubernetes 105200).
fn counts_twice(world: &World, key: &Key) -> Plan {
    changed((job::LOOP.plan)(world, key), |object| {
        if let Some(count) = object.int(&["status", "succeeded"]).filter(|_| object.kind() == "Job") {
            object.set(&["status", "succeeded"], count + 1);
        }
    })
}

/// A finished pod is no longer counted once it is deleted (kubernetes 81227, 78721).
fn counts_fall(world: &World, key: &Key) -> Plan {
    let mut plan = (job::LOOP.plan)(world, key);
    let row = world.get(key).filter(|_| plan.is_empty());
    if let Some(row) = row {
        let mut job = row.object();
        if job.int(&["status", "failed"]).is_some_and(|failed| failed > 1) {
            job.set(&["status", "failed"], 1);
            plan.write(WriteVerb::Status(job), "its pods were counted");
        }
    }
    plan
}

/// A pod is bound where there is no room (kubernetes: stale cache of the scheduler).
fn overbooks(world: &World, key: &Key) -> Plan {
    let plan = (scheduler::LOOP.plan)(world, key);
    let Some(row) = world.get(key) else { return plan };
    let waits = row.pod().is_some_and(|pod| pod.node.is_none()) && !row.is_deleting();
    if !waits || plan.writes.iter().any(|write| matches!(write.verb, WriteVerb::Bind { .. })) {
        return plan;
    }
    let mut wrong = Plan::default();
    wrong.write(WriteVerb::Bind { pod: key.clone(), uid: row.uid.clone(), node: "here".into() }, "there is room");
    wrong
}

/// The new ReplicaSet gets its final size at once, ignoring the surge.
fn surges(world: &World, key: &Key) -> Plan {
    let replicas = world.get(key).and_then(|row| row.workload().map(|fields| fields.replicas)).unwrap_or(0);
    changed((deployment::LOOP.plan)(world, key), |object| {
        if object.kind() == "ReplicaSet" && object.int(&["spec", "replicas"]) > Some(0) {
            object.set(&["spec", "replicas"], replicas + 3);
        }
    })
}

/// Old pods are deleted at once, ignoring the minimum of available pods.
fn gives_up_the_old(world: &World, key: &Key) -> Plan {
    let mut plan = (deployment::LOOP.plan)(world, key);
    let Some(row) = world.get(key) else { return plan };
    let template = row.workload().map(|fields| fields.template);
    let written =
        plan.writes.iter().any(|write| matches!(&write.verb, WriteVerb::Update(set) if set.kind() == "ReplicaSet"));
    for set in world.controlled("replicasets.apps", &row.uid).filter(|_| !written) {
        let old = set.workload().is_some_and(|fields| Some(fields.template) != template && fields.replicas > 0);
        if old && !row.is_deleting() {
            let mut object = set.object();
            object.set(&["spec", "replicas"], 0);
            plan.write(WriteVerb::Update(object), "it is old");
        }
    }
    plan
}

/// A second ReplicaSet of the same template is created (kubernetes 69376: uid and name confused).
fn doubles_sets(world: &World, key: &Key) -> Plan {
    let mut plan = (deployment::LOOP.plan)(world, key);
    let Some(row) = world.get(key).filter(|row| !row.is_deleting()) else { return plan };
    let mut sets = world.controlled("replicasets.apps", &row.uid);
    if let (Some(set), None) = (sets.next(), sets.next()) {
        let mut object = set.object();
        let metadata = json!({"name": format!("{}-again", object.name()), "namespace": object.namespace(),
            "labels": object.0["metadata"]["labels"], "ownerReferences": object.0["metadata"]["ownerReferences"]});
        object.0["metadata"] = metadata;
        object.0["status"] = Value::Null;
        object.set(&["spec", "replicas"], 0);
        plan.write(WriteVerb::Create(object), "once more");
    }
    plan
}

/// A namespace is never finalized.
fn holds_namespaces(world: &World, key: &Key) -> Plan {
    let mut plan = (namespace::LOOP.plan)(world, key);
    plan.writes.retain(|write| !matches!(write.verb, WriteVerb::Update(_)));
    plan
}

/// Pods of a Job keep the finalizer that guards their count.
fn keeps_finalizers(world: &World, key: &Key) -> Plan {
    let mut plan = (job::LOOP.plan)(world, key);
    plan.writes.retain(|write| !matches!(&write.verb, WriteVerb::Update(pod) if pod.kind() == "Pod"));
    plan
}

/// A node gets two pods of a DaemonSet (kubernetes 78974).
fn doubles_daemons(world: &World, key: &Key) -> Plan {
    let mut plan = (daemonset::LOOP.plan)(world, key);
    let made = plan.writes.iter().find_map(|write| match &write.verb {
        WriteVerb::Create(pod) if pod.kind() == "Pod" => Some(pod.clone()),
        _ => None,
    });
    if let Some(mut pod) = made {
        pod.set(&["metadata", "name"], format!("{}x", pod.name()));
        plan.write(WriteVerb::Create(pod), "once more");
    }
    plan
}

/// A scheduled time gets two Jobs (kubernetes: CronJobs before the second controller, after a restart).
fn fires_twice(world: &World, key: &Key) -> Plan {
    let mut plan = (cronjob::LOOP.plan)(world, key);
    let made = plan.writes.iter().find_map(|write| match &write.verb {
        WriteVerb::Create(job) => Some(job.clone()),
        _ => None,
    });
    if let Some(mut job) = made {
        job.set(&["metadata", "name"], format!("{}x", job.name()));
        plan.write(WriteVerb::Create(job), "once more");
    }
    plan
}

/// Claims are deleted with their pods (Sieve: volume claims deleted by a stale controller).
fn deletes_claims(world: &World, key: &Key) -> Plan {
    let mut plan = (statefulset::LOOP.plan)(world, key);
    let gone: Vec<String> = plan
        .writes
        .iter()
        .filter_map(|write| match &write.verb {
            WriteVerb::Delete { key, .. } if key.resource == "pods" => Some(format!("data-{}", key.name)),
            _ => None,
        })
        .collect();
    for name in gone {
        if let Some(row) = world.find("persistentvolumeclaims", &key.namespace, &name) {
            let (key, uid) = (row.key.clone(), row.uid.clone());
            let verb = WriteVerb::Delete { key, uid, grace: None, propagation: Propagation::Background };
            plan.write(verb, "its pod goes");
        }
    }
    plan
}

/// Endpoints stay when their pods are no longer ready (kubernetes 109414).
fn forgets_endpoints(world: &World, key: &Key) -> Plan {
    let ready = |slice: &Object| {
        slice.items(&["endpoints"]).iter().filter(|endpoint| endpoint["conditions"]["ready"] == true).count()
    };
    let known = |slice: &Object| world.find("endpointslices.discovery.k8s.io", &key.namespace, slice.name());
    let mut plan = (endpointslice::LOOP.plan)(world, key);
    plan.writes.retain(|write| match &write.verb {
        WriteVerb::Update(slice) => known(slice).is_none_or(|known| ready(&known.object()) <= ready(slice)),
        _ => true,
    });
    plan
}

/// A StatefulSet does not wait for its pods in order (kubernetes 59848, 60478: its view is outdated).
fn forgets_order(world: &World, key: &Key) -> Plan {
    let mut plan = (statefulset::LOOP.plan)(world, key);
    let made = plan.writes.iter().find_map(|write| match &write.verb {
        WriteVerb::Create(pod) if pod.kind() == "Pod" => Some(pod.clone()),
        _ => None,
    });
    if let Some(mut pod) = made {
        let (set, ordinal) = pod.name().rsplit_once('-').expect("an ordinal");
        let next = format!("{set}-{}", ordinal.parse::<i64>().expect("a number") + 1);
        if world.find("pods", &key.namespace, &next).is_none() {
            pod.set(&["metadata", "name"], &*next);
            pod.set(&["metadata", "labels", "statefulset.kubernetes.io/pod-name"], &*next);
            plan.write(WriteVerb::Create(pod), "its turn comes anyway");
        }
    }
    plan
}

/// Old ReplicaSets are never deleted.
fn never_trims(world: &World, key: &Key) -> Plan {
    let mut plan = (deployment::LOOP.plan)(world, key);
    plan.writes
        .retain(|write| !matches!(&write.verb, WriteVerb::Delete { key, .. } if key.resource == "replicasets.apps"));
    plan
}

/// Objects whose owners are deleted are never collected (kubernetes 92743).
fn leaves_orphans(world: &World, key: &Key) -> Plan {
    let mut plan = (garbage_collector::LOOP.plan)(world, key);
    plan.writes.retain(|write| !matches!(write.verb, WriteVerb::Delete { .. }));
    plan
}

/// An object that is deleted in the foreground does not wait for its dependents.
fn waits_for_nobody(world: &World, key: &Key) -> Plan {
    let plan = (garbage_collector::LOOP.plan)(world, key);
    let held = |row: &&std::sync::Arc<kloop::world::Row>| row.is_deleting();
    let Some(row) = world.get(key).filter(held) else { return plan };
    let mut object = row.object();
    let kept: Vec<String> =
        object.finalizers().into_iter().filter(|one| *one != "foregroundDeletion").map(str::to_owned).collect();
    if kept.len() == object.finalizers().len() {
        return plan;
    }
    object.set(&["metadata", "finalizers"], kept);
    let mut wrong = Plan::default();
    wrong.write(WriteVerb::Update(object), "it waits for nobody");
    wrong
}

macro_rules! known_bugs {
    ($($name:ident instead of $real:expr, seed $seed:literal;)*) => {
        &[$((stringify!($name), &Loop { plan: $name, ..$real }, $seed)),*]
    };
}

static KNOWN_BUGS: &[(&str, &Loop, u64)] = known_bugs![
    makes_too_many instead of replicaset::LOOP, seed 4;
    never_quiet instead of replicaset::LOOP, seed 1;
    starts_unrecorded instead of kubelet::LOOP, seed 6;
    forgets_restarts instead of kubelet::LOOP, seed 6;
    failure_becomes_success instead of kubelet::LOOP, seed 6;
    starts_beside instead of kubelet::LOOP, seed 0;
    leaves_processes instead of kubelet::LOOP, seed 0;
    starts_nothing instead of kubelet::LOOP, seed 1;
    collects_the_living instead of garbage_collector::LOOP, seed 7;
    counts_twice instead of job::LOOP, seed 0;
    counts_fall instead of job::LOOP, seed 139;
    keeps_finalizers instead of job::LOOP, seed 15;
    overbooks instead of scheduler::LOOP, seed 48;
    surges instead of deployment::LOOP, seed 1;
    gives_up_the_old instead of deployment::LOOP, seed 43;
    doubles_sets instead of deployment::LOOP, seed 1;
    holds_namespaces instead of namespace::LOOP, seed 15;
    doubles_daemons instead of daemonset::LOOP, seed 11;
    fires_twice instead of cronjob::LOOP, seed 2;
    deletes_claims instead of statefulset::LOOP, seed 14;
    forgets_endpoints instead of endpointslice::LOOP, seed 0;
    forgets_order instead of statefulset::LOOP, seed 11;
    never_trims instead of deployment::LOOP, seed 9;
    leaves_orphans instead of garbage_collector::LOOP, seed 2;
    waits_for_nobody instead of garbage_collector::LOOP, seed 3;
];

#[test]
fn every_known_bug_is_found() {
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let waiting = Mutex::new(KNOWN_BUGS.iter());
    let next = || waiting.lock().expect("no worker panics while it holds the lock").next();
    let find = |(name, wrong, from): &(&'static str, &'static Loop, u64)| (*name, find_seed(wrong, *from));
    let work = || std::iter::from_fn(next).map(find).collect::<Vec<_>>();
    let results: Vec<_> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        running.into_iter().flat_map(|worker| worker.join().expect("panics are caught")).collect()
    });
    results.iter().for_each(|(name, seed)| println!("{name}: found by seed {seed:?}"));
    let unseen: Vec<&str> = results.iter().filter(|(_, seed)| seed.is_none()).map(|(name, _)| *name).collect();
    assert!(unseen.is_empty(), "not found within {SEEDS} seeds: {unseen:?}");
}

/// Returns the first seed that shows that a loop is wrong.
fn find_seed(wrong: &'static Loop, from: u64) -> Option<u64> {
    let loops =
        || loops::all_loops().into_iter().map(|each| if each.name == wrong.name { wrong } else { each }).collect();
    (from..from + SEEDS).find(|seed| attempt(*seed, loops()).is_err())
}
