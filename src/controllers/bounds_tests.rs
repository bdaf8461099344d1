//! The rule that plans are bounded, for every controller: one plan has few writes, even for objects with huge numbers or many dependents.

use super::ALL;
use super::pods::BURST;
use super::testing::key_of;
use crate::object::{Key, Object};
use crate::world::World;
use serde_json::{Value, json};

/// Number of objects of each owner: several times the maximum of writes in one plan.
const MANY: usize = 3 * BURST;

/// The largest value of Kubernetes' 32-bit fields.
const HUGE: i64 = i32::MAX as i64;

/// Maximum of writes in one plan: creations and deletions, plus the owner's status and revision.
const MAX_WRITES: usize = BURST + 8;

fn put(world: &mut World, kind: (&str, &str), name: &str, mut body: Value) {
    body["apiVersion"] = kind.0.into();
    body["kind"] = kind.1.into();
    let metadata = body["metadata"].take();
    body["metadata"] = json!({"name": name, "uid": name, "creationTimestamp": "2025-12-01T00:00:00Z"});
    if kind.1 != "Node" && kind.1 != "Namespace" {
        body["metadata"]["namespace"] = "default".into();
    }
    for (field, value) in metadata.as_object().into_iter().flatten() {
        body["metadata"][field] = value.clone();
    }
    let object = Object(body);
    world.put(key_of(&object), object.0.to_string().into());
}

fn owner(kind: (&str, &str), name: &str) -> Value {
    json!([{"apiVersion": kind.0, "kind": kind.1, "name": name, "uid": name, "controller": true}])
}

/// Adds available pods of an older template to a workload, one on each node.
fn pods(world: &mut World, kind: (&str, &str), name: &str) {
    for number in 0..MANY {
        let body = json!({
            "metadata": {"labels": {"app": name, "controller-revision-hash": "old"}, "ownerReferences": owner(kind, name)},
            "spec": {"nodeName": format!("n{number}"), "containers": [{"name": "c"}]},
            "status": {"phase": "Running", "conditions":
                [{"type": "Ready", "status": "True", "lastTransitionTime": "2025-12-01T00:00:00Z"}]},
        });
        put(world, ("v1", "Pod"), &format!("{name}-{number}"), body);
    }
}

fn workload(name: &str, mut spec: Value) -> Value {
    spec["selector"] = json!({"matchLabels": {"app": name}});
    spec["template"] = json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c"}]}});
    json!({"spec": spec})
}

/// A world of workloads with huge `replicas` and no pods, and of workloads with no `replicas` and many pods.
fn world_of_huge_objects() -> World {
    const APPS: [(&str, &str); 4] =
        [("apps/v1", "StatefulSet"), ("apps/v1", "ReplicaSet"), ("apps/v1", "DaemonSet"), ("apps/v1", "Deployment")];
    let [set, replicas, daemons, deployment] = APPS;
    let (job, cron, map) = (("batch/v1", "Job"), ("batch/v1", "CronJob"), ("v1", "ConfigMap"));
    let mut world = World::new("2026-01-01T00:00:00Z".parse().unwrap());
    let all = json!({"rollingUpdate": {"maxUnavailable": "100%"}, "type": "RollingUpdate"});
    for number in 0..MANY {
        put(
            &mut world,
            ("v1", "Node"),
            &format!("n{number}"),
            json!({"spec": {}, "status": {"allocatable": {"pods": "10"}}}),
        );
    }
    for (kind, name, spec) in [
        (set, "huge-set", json!({"replicas": HUGE, "podManagementPolicy": "Parallel"})),
        (
            set,
            "late-set",
            json!({"replicas": HUGE, "podManagementPolicy": "Parallel", "ordinals": {"start": HUGE},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}]}),
        ),
        (replicas, "huge-replicas", json!({"replicas": HUGE})),
        (deployment, "huge-deployment", json!({"replicas": HUGE, "revisionHistoryLimit": 0})),
        (job, "huge-job", json!({"parallelism": HUGE, "completions": HUGE})),
        (
            job,
            "huge-indexed",
            json!({"parallelism": HUGE, "completions": HUGE, "completionMode": "Indexed", "backoffLimitPerIndex": 1}),
        ),
        (daemons, "new-daemons", json!({"updateStrategy": all})),
    ] {
        put(&mut world, kind, name, workload(name, spec));
    }
    for (kind, name, spec) in [
        (set, "gone-set", json!({"replicas": 0, "podManagementPolicy": "Parallel"})),
        (set, "old-set", json!({"replicas": MANY, "podManagementPolicy": "Parallel", "updateStrategy": all})),
        (replicas, "gone-replicas", json!({"replicas": 0})),
        (daemons, "old-daemons", json!({"updateStrategy": all})),
        (
            daemons,
            "surging-daemons",
            json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "100%"}}}),
        ),
        (job, "suspended-job", json!({"parallelism": HUGE, "completions": HUGE, "suspend": true})),
    ] {
        put(&mut world, kind, name, workload(name, spec));
        pods(&mut world, kind, name);
    }
    let done = json!({"spec": {"parallelism": HUGE, "completions": HUGE, "completionMode": "Indexed", "template": {"spec": {}}},
        "status": {"completedIndexes": format!("0-{}", HUGE - 100)}});
    put(&mut world, job, "nearly-done", done);
    let schedule = json!({"spec": {"schedule": "* * * * *", "successfulJobsHistoryLimit": 0, "jobTemplate": {"spec": {}}},
        "status": {"lastScheduleTime": "2020-01-01T00:00:00Z"}});
    put(&mut world, cron, "cron", schedule);
    let deleted = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["orphan"]});
    put(&mut world, map, "orphaning", json!({"metadata": deleted}));
    for number in 0..MANY {
        let finished = json!({"metadata": {"ownerReferences": owner(cron, "cron")}, "spec": {"template": {"spec": {}}},
            "status": {"startTime": "2025-12-01T00:00:00Z", "conditions": [{"type": "Complete", "status": "True"}]}});
        put(&mut world, job, &format!("cron-{number}"), finished);
        put(
            &mut world,
            map,
            &format!("child-{number}"),
            json!({"metadata": {"ownerReferences": owner(map, "orphaning")}}),
        );
        put(&mut world, map, &format!("left-{number}"), json!({"metadata": {"namespace": "ending"}}));
    }
    let deleted = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    put(
        &mut world,
        ("v1", "Namespace"),
        "ending",
        json!({"metadata": deleted, "spec": {"finalizers": ["kubernetes"]}}),
    );
    put(
        &mut world,
        ("v1", "Service"),
        "web",
        json!({"spec": {"selector": {"app": "old-set"}, "ports": [{"port": 80}]}}),
    );
    world
}

#[test]
fn plans_of_absurdly_large_objects_are_bounded() {
    let world = world_of_huge_objects();
    let roots: Vec<Key> = world.all_rows().map(|row| row.key.clone()).collect();
    let mut largest = 0;
    for spec in ALL {
        let is_root = |key: &&Key| spec.root == "*" && *key.name == *"orphaning" || key.resource == spec.root;
        // A few of many equal objects are enough.
        let is_alike =
            |key: &&Key| key.name.rsplit_once('-').is_some_and(|(_, end)| end.len() > 1 && end.parse::<u32>().is_ok());
        for key in roots.iter().filter(is_root).filter(|key| !is_alike(key)) {
            let plan = (spec.plan)(&world, key);
            let (writes, events) = (plan.writes.len(), plan.events.len());
            assert!(
                writes <= MAX_WRITES && events <= MAX_WRITES,
                "{} {key}: {writes} writes, {events} events",
                spec.name
            );
            largest = largest.max(writes);
        }
    }
    assert!(largest >= 64, "nothing was planned: {largest}");
}
