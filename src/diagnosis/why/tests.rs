//! Answers that depend on the control plane and the machine, or that follow from many combinations. Texts are in `tests/cases/why`.

use super::{CauseChain, ControlPlaneState, ConvergenceState, StoppedProcess, explain, explain_unconverged};
use crate::diagnosis::convergence::reachability;
use crate::kinds;
use crate::object::{Key, Object, Time};
use crate::world::World;
use serde_json::{Value, json};

mod autoscalers;
mod budgets;
mod chains;

fn now() -> Time {
    "2026-01-01T00:10:00Z".parse().unwrap()
}

/// A World of objects whose uid is their name.
fn world(objects: &[Value]) -> World {
    let mut world = World::new(now());
    for body in objects {
        let mut object = Object(body.clone());
        let kind = kinds::by_kind(object.api_version(), object.kind()).expect("a kind");
        let namespace = if kind.namespaced { "default" } else { "" };
        let uid = format!("{}-{}", kind.kind, object.name());
        object.set(&["metadata", "uid"], uid);
        object.set(&["metadata", "resourceVersion"], "1");
        object.set(&["metadata", "creationTimestamp"], "2026-01-01T00:00:00Z");
        if kind.namespaced {
            object.set(&["metadata", "namespace"], namespace);
        }
        let mut unknown = |_: crate::kinds::catalogue::read::UnknownField| {};
        let body = (kind.normalize)(&object.0, &mut unknown).expect("a body");
        world.put(Key::new(kind.resource, namespace, object.name()), body.to_string().into());
    }
    world
}

fn ask(objects: &[Value], about: &str, runs: bool) -> CauseChain {
    let (kind, name) = about.split_once('/').unwrap();
    let kind = kinds::by_name(kind).unwrap();
    let namespace = if kind.namespaced { "default" } else { "" };
    let mut world = world(objects);
    explain(
        &mut world,
        &Key::new(kind.resource, namespace, name),
        &ControlPlaneState { runs, ..ControlPlaneState::default() },
    )
    .expect("an answer")
}

fn node(ready: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
        "status": {
            "allocatable": {"cpu": "2", "memory": "4Gi", "pods": "10"},
            "conditions": [{"type": "Ready", "status": ready, "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}],
        },
    })
}

/// A pod on the node with one container in this state; on none where the state is null.
fn pod(spec: Value, state: Value) -> Value {
    let bound = !state.is_null();
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"app": "p"}}, "spec": spec,
        "status": {"phase": "Pending"},
    });
    if pod["spec"]["containers"].is_null() {
        pod["spec"]["containers"] = json!([{"name": "c", "image": "x"}]);
    }
    if bound {
        pod["spec"]["nodeName"] = "n".into();
        pod["status"]["containerStatuses"] = json!([{"name": "c", "ready": false, "restartCount": 4, "state": state}]);
    }
    pod
}

fn deployment(spec: Value, status: Value) -> Value {
    let mut deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "generation": 1},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "d"}},
            "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}},
        },
        "status": status,
    });
    for (field, value) in spec.as_object().unwrap() {
        deployment["spec"][field] = value.clone();
    }
    deployment
}

#[test]
fn refusal_is_found_by_a_dry_run() {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}});
    let owned = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "Deployment-d", "controller": true}]);
    for (owners, hard, refused, next) in [
        (
            json!([]),
            json!({"pods": "0"}),
            "exceeded quota: q",
            "reduce the request (kloop edit replicaset/r), or raise the quota: kloop edit quota/q",
        ),
        (
            owned.clone(),
            json!({"pods": "0"}),
            "exceeded quota: q",
            "reduce the request (kloop edit deployment/d), or raise the quota: kloop edit quota/q",
        ),
        (
            owned,
            json!({"requests.cpu": "1"}),
            "failed quota: q",
            "set the resources that the quota requires (kloop edit deployment/d), or correct the quota: kloop edit quota/q",
        ),
    ] {
        let set = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {"name": "r", "generation": 1, "ownerReferences": owners},
            "spec": {
                "replicas": 2, "selector": {"matchLabels": {"app": "r"}},
                "template": {"metadata": {"labels": {"app": "r"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}},
            },
        });
        let quota = json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard},
            "status": {"hard": hard},
        });
        let deployment = deployment(json!({}), json!({"observedGeneration": 1}));
        let mut world = world(&[set, deployment, account.clone(), namespace.clone(), quota]);
        let key = Key::new(crate::object::Resource("replicasets.apps"), "default", "r");
        let answer =
            explain(&mut world, &key, &ControlPlaneState { runs: true, ..ControlPlaneState::default() }).unwrap();
        let error = answer.links[answer.place].error.as_deref().unwrap_or_default();
        assert!(error.contains(refused), "{answer:#?}");
        assert_eq!(answer.next(), next);
        assert!(world.loop_memory.refusals.is_empty() && world.staged_count() == 0, "nothing of the rehearsal is left");
    }
}

#[test]
fn deleted_claim_waits_for_the_pod_that_uses_it() {
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data",
        "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["kubernetes.io/pvc-protection"]}, "spec": {}});
    let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": "data"}});
    let user = pod(json!({"volumes": [volume]}), json!({"running": {"startedAt": "2026-01-01T00:05:00Z"}}));
    let name = user["metadata"]["name"].as_str().unwrap();
    let key = Key::new(crate::object::Resource("persistentvolumeclaims"), "default", "data");
    let plane = ControlPlaneState { runs: true, ..ControlPlaneState::default() };
    for (node, phase, keeps) in [("n", "Running", true), ("n", "Succeeded", true), ("", "Pending", false)] {
        let mut user = user.clone();
        user["status"]["phase"] = phase.into();
        user["spec"]["nodeName"] = node.into();
        let mut world = world(&[claim.clone(), user]);
        let answer = explain(&mut world, &key, &plane).unwrap();
        let by = answer.links[answer.place].by;
        assert_eq!(by == "persistentvolume-controller", keeps, "{phase}: {by}");
        let next = format!("delete the pod: kloop delete pod/{name}");
        assert_eq!(answer.next() == next, keeps, "{phase}: {:?}", answer.next());
    }
}

#[test]
fn running_job_is_on_its_way_and_its_cron_job_is_as_wanted() {
    let mut runs = pod(json!({"restartPolicy": "Never"}), json!({"running": {"startedAt": "2026-01-01T00:05:00Z"}}));
    runs["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "Job-j", "controller": true}]);
    runs["status"]["phase"] = "Running".into();
    runs["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    runs["status"]["containerStatuses"][0]["ready"] = true.into();
    let job = |status: Value| {
        let template = json!({"metadata": {"labels": {"app": "p"}}, "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}});
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "CronJob", "name": "t", "uid": "CronJob-t", "controller": true}]},
            "spec": {"completions": 1, "parallelism": 1, "backoffLimit": 6, "selector": {"matchLabels": {"app": "p"}}, "template": template},
            "status": status})
    };
    let template = json!({"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}}});
    let cron_job = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "t"}, "spec":
        {"schedule": "0 0 1 1 *", "jobTemplate": template}, "status": {
        "lastScheduleTime": "2026-01-01T00:00:00Z",
        "active": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "namespace": "default", "uid": "Job-j", "resourceVersion": "1"}]}});
    let running = json!({"active": 1, "ready": 1, "terminating": 0, "uncountedTerminatedPods": {}, "startTime": "2026-01-01T00:05:00Z"});
    let complete = json!({"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]});
    for (status, is_preview, state) in [
        (&running, false, ConvergenceState::Converging),
        (&running, true, ConvergenceState::Converged),
        (&complete, false, ConvergenceState::Converged),
    ] {
        let mut world = world(&[node("True"), runs.clone(), cron_job.clone(), job(status.clone())]);
        let plane = ControlPlaneState { runs: true, is_preview, ..ControlPlaneState::default() };
        let mut ask = |resource, name| {
            explain(&mut world, &Key::new(crate::object::Resource(resource), "default", name), &plane).unwrap()
        };
        let answer = ask("jobs.batch", "j");
        assert_eq!(answer.links[answer.place].state, state, "{answer:#?}");
        let answer = ask("cronjobs.batch", "t");
        assert!(
            answer.links.iter().all(|link| !(link.what == "job/j" && link.state != ConvergenceState::Converged)),
            "{answer:#?}"
        );
    }
}

#[test]
fn panic_of_the_loop_of_a_pod_a_node_or_an_autoscaler_is_its_cause() {
    let event = |name: &str, uid: &str, reason: &str, second: u8| {
        let namespace = "default";
        json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": namespace}, "reason": reason,
            "message": format!("{reason} it"), "involvedObject": {"uid": uid}, "lastTimestamp": format!("2026-01-01T00:05:0{second}Z"),
        })
    };
    let waiting = json!({"waiting": {"reason": "ContainerCreating"}});
    let scaler = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "none"}, "maxReplicas": 2},
    });
    let objects = [node("False"), pod(json!({}), waiting), scaler];
    for (about, uid) in [("pod/p", "Pod-p"), ("node/n", "Node-n"), ("hpa/a", "HorizontalPodAutoscaler-a")] {
        // The events of one second are not in order.
        for (second, is_shown) in [(1, true), (0, true), (2, false)] {
            let panic = event("x.1", uid, "InternalError", 1);
            let answer = ask(&[&objects[..], &[panic, event("x.2", uid, "Scheduled", second)]].concat(), about, true);
            let link = &answer.links[answer.place];
            let is_told = link.error.as_deref() == Some("InternalError it") && link.state == ConvergenceState::Stuck;
            assert_eq!(is_told, is_shown, "{about} {second}: {answer:#?}");
            let next = link.next.as_deref().unwrap_or_default();
            assert_eq!(next.contains("bug in kloop"), is_shown, "{about}: {next}");
        }
    }
}
