use super::{
    CauseChain, ContainerExit, ControlPlaneState, ConvergenceState, StoppedProcess, UnreportedExit, explain, unmet,
};
use crate::kinds;
use crate::object::{Key, Object, Time};
use crate::reconcile::convergence::reachability;
use crate::world::World;
use serde_json::{Value, json};

mod budgets;
mod chains;
mod ended;
mod placed;
mod scaled_and_placed;

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
        let mut unknown = |_: crate::kinds::read::UnknownField| {};
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

#[test]
fn each_cause_is_found_and_told_what_to_do() {
    let waiting = |reason: &str, message: &str| json!({"waiting": {"reason": reason, "message": message}});
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"phase": "Pending"},
    });
    let probe = json!({"containers": [{"name": "c", "readinessProbe": {"exec": {"command": ["cat", "/x"]}}}]});
    let unmounted = |why: &str| {
        json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "p.1"}, "reason": "FailedMount",
            "message": format!("MountVolume.SetUp failed for volume \"v\" : {why}"),
            "involvedObject": {"uid": "Pod-p"}, "lastTimestamp": "2026-01-01T00:05:00Z",
        })
    };
    let unhealthy = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "p.1"}, "involvedObject": {"uid": "Pod-p"},
        "reason": "Unhealthy", "message": "Readiness probe failed: no such file", "lastTimestamp": "2026-01-01T00:09:00Z",
    });
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"other": ""}});
    let wants_key = json!({"containers": [{"name": "c", "env": [
        {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "password"}}},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "none", "key": "k", "optional": true}}}]}]});
    let service = |selector: Value| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"selector": selector, "ports": [{"port": 80}]},
        })
    };
    let ingress = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "i"},
        "spec": {"defaultBackend": {"service": {"name": "gone", "port": {"number": 80}}}},
    });
    let led = |spec: Value| json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "i"}, "spec": spec});
    let to = |name: &str, number: u16| json!({"service": {"name": name, "port": {"number": number}}});
    let foreign = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {"name": "nginx"}, "spec": {"controller": "k8s.io/ingress-nginx"},
    });
    let mut gated = pod(json!({"readinessGates": [{"conditionType": "x.dev/ok"}]}), json!({"running": {}}));
    gated["status"]["phase"] = "Running".into();
    gated["status"]["conditions"] = json!([{"type": "ContainersReady", "status": "True"}]);
    gated["status"]["containerStatuses"][0]["ready"] = true.into();
    let runs = json!({"running": {"startedAt": "2026-01-01T00:05:00Z"}});
    let table = [
        (vec![pod(json!({}), Value::Null)], "pod/p", "pod/p", "kloop node add"),
        (
            vec![
                node("True"),
                pod(json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "9"}}}]}), Value::Null),
            ],
            "pod/p",
            "pod/p",
            "ask for less",
        ),
        (vec![node("True"), pod(json!({"nodeSelector": {"a": "b"}}), Value::Null)], "pod/p", "pod/p", "label a node"),
        (
            vec![
                node("True"),
                pod(json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}), Value::Null),
                claim,
            ],
            "pod/p",
            "persistentvolumeclaim/data",
            "PersistentVolume of at least 1Gi",
        ),
        (
            vec![node("True"), pod(json!({"schedulingGates": [{"name": "g"}]}), Value::Null)],
            "pod/p",
            "pod/p",
            "spec.schedulingGates",
        ),
        (
            vec![node("True"), pod(json!({}), waiting("ImagePullBackOff", "there is no \"x\"; install it"))],
            "pod/p",
            "container c",
            "install it",
        ),
        (
            vec![
                node("True"),
                pod(json!({}), waiting("CrashLoopBackOff", "back-off 40s restarting failed container=c")),
            ],
            "pod/p",
            "container c",
            "kloop logs p -c c --previous",
        ),
        (vec![node("True"), pod(probe, runs.clone()), unhealthy], "pod/p", "container c", "readinessProbe (cat /x)"),
        (
            vec![node("True"), pod(wants_key, waiting("CreateContainerConfigError", "couldn't find key")), secret],
            "pod/p",
            "secret/s",
            "add the key \"password\"",
        ),
        (
            vec![
                node("True"),
                pod(json!({}), waiting("CreateContainerConfigError", "fsGroup 7: only root can; leave it out")),
            ],
            "pod/p",
            "container c",
            "leave it out",
        ),
        (
            vec![
                node("True"),
                pod(json!({}), waiting("ContainerCreating", "")),
                unmounted("not supported by this node"),
            ],
            "pod/p",
            "container c",
            "use a volume of another kind",
        ),
        (
            vec![
                node("True"),
                pod(json!({}), waiting("ContainerCreating", "")),
                unmounted("hostPath type check failed: /x y is not a directory"),
            ],
            "pod/p",
            "container c",
            "make /x y a directory on this machine",
        ),
        (
            vec![
                node("True"),
                pod(json!({}), waiting("ContainerCreating", "")),
                unmounted("cannot make /x: Permission denied"),
            ],
            "pod/p",
            "container c",
            "make /x on this machine",
        ),
        (vec![node("Unknown"), pod(json!({}), runs)], "pod/p", "node/n", "kloop node remove n"),
        (vec![ingress], "ingress/i", "ingress/i", "apply the Service \"gone\""),
        (
            vec![service(Value::Null), led(json!({"defaultBackend": to("s", 81)}))],
            "ingress/i",
            "ingress/i",
            "add the port 81",
        ),
        (
            vec![service(Value::Null), led(json!({"defaultBackend": to("s", 80), "tls": [{"secretName": "none"}]}))],
            "ingress/i",
            "ingress/i",
            "kloop create secret tls none",
        ),
        (
            vec![service(json!({"app": "nobody"})), led(json!({"defaultBackend": to("s", 80)}))],
            "ingress/i",
            "service/s",
            "correct spec.selector",
        ),
        (vec![node("True"), gated], "pod/p", "pod/p", "the condition x.dev/ok"),
        (vec![service(json!({"app": "nobody"}))], "service/s", "service/s", "correct spec.selector"),
        (
            vec![
                service(json!({"app": "p"})),
                node("True"),
                pod(json!({}), waiting("ErrImagePull", "there is no \"x\"; install it")),
            ],
            "service/s",
            "container c",
            "install it",
        ),
    ];
    let left = [foreign, led(json!({"ingressClassName": "nginx", "defaultBackend": to("s", 80)}))];
    let answer = ask(&left, "ingress/i", true);
    assert_eq!(
        answer.standing(),
        ConvergenceState::Converged,
        "what is another's to serve is not missing here: {answer:#?}"
    );
    assert!(answer.links[1].seen.contains("left to the controller k8s.io/ingress-nginx"), "{answer:#?}");
    for (objects, about, cause, next) in table {
        let answer = ask(&objects, about, true);
        assert_eq!(answer.standing(), ConvergenceState::Stuck, "{answer:#?}");
        assert_eq!(answer.root_cause().map(|link| link.what.as_str()), Some(cause), "{answer:#?}");
        assert!(answer.next().contains(next), "{next}: {}", answer.next());
    }
}

#[test]
fn ports_that_cannot_be_had_are_what_to_do_next() {
    let event = |reason: &str, message: &str| {
        json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "p.1"}, "involvedObject": {"uid": "Pod-p"},
            "reason": reason, "message": message, "lastTimestamp": "2026-01-01T00:09:00Z",
        })
    };
    let waiting =
        json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container=c"}});
    let message =
        "Container c declares port 80, and ports below 1024 are for root here: let it listen on another, or set x=80";
    for (message, expected) in [
        (message, "ports that low are for root: let it listen on another, or set x=80; if it"),
        (&message.replace("Container c", "Container d"), "see why it ends"),
    ] {
        let mut objects = vec![node("True"), pod(json!({}), waiting.clone()), event("PortReserved", message)];
        let next = ask(&objects, "pod/p", true).next();
        assert!(next.starts_with(expected), "{next}");
        objects[1]["status"]["containerStatuses"][0]["restartCount"] = 1.into();
        let error = ask(&objects, "pod/p", true).root_cause().and_then(|link| link.error.clone()).unwrap();
        assert!(error.ends_with("was restarted once"), "{error}");
    }
    let mut ready = pod(json!({}), json!({"running": {"startedAt": "2026-01-01T00:05:00Z"}}));
    ready["status"]["phase"] = "Running".into();
    ready["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    ready["status"]["containerStatuses"][0]["ready"] = true.into();
    let taken =
        "hostPort 127.0.0.1:8099/TCP does not lead to the pod: address already in use: nc (pid 7) listens there";
    for (reason, expected) in [
        (
            "PortUnavailable",
            "give the pod another hostPort than 127.0.0.1:8099/TCP (address already in use: nc (pid 7) listens there), or end nc (pid 7)",
        ),
        ("PortAvailable", "nothing, it is as it was asked for"),
    ] {
        let answer = ask(&[node("True"), ready.clone(), event(reason, taken)], "pod/p", true);
        assert_eq!((answer.standing(), &*answer.next()), (ConvergenceState::Converged, expected), "{answer:#?}");
    }
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
fn without_a_control_plane_that_is_the_first_cause() {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}});
    let objects = [namespace, deployment(json!({}), json!({}))];
    let answer = ask(&objects, "deployment/d", false);
    assert_eq!(
        (answer.standing(), answer.root_cause().unwrap().what.as_str()),
        (ConvergenceState::Stuck, "control plane")
    );
    assert_eq!(answer.next(), "run: kloop reconcile --watch");
    assert!(answer.links[1].seen.contains("due: "), "the loops say what they would do: {answer:#?}");
    let answer = ask(&objects, "deployment/d", true);
    assert_eq!(answer.standing(), ConvergenceState::Converging);
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    assert_eq!(ask(&[config], "configmap/c", false).standing(), ConvergenceState::Converged, "nothing is missing");
}

#[test]
fn a_deployment_is_held_by_people_and_by_deadlines() {
    let late = json!({"observedGeneration": 1, "conditions": [{
        "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out progressing",
    }]});
    let table = [
        (deployment(json!({"paused": true}), json!({})), "kloop rollout resume deployment/d"),
        (deployment(json!({}), late), "kloop rollout undo deployment/d"),
    ];
    for (object, next) in table {
        let answer = ask(&[object], "deployment/d", true);
        assert_eq!(answer.standing(), ConvergenceState::Stuck, "{answer:#?}");
        assert!(answer.next().contains(next), "{}", answer.next());
    }
}

#[test]
fn what_is_refused_is_told_without_anybody_having_tried() {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}});
    let owned = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "Deployment-d", "controller": true}]);
    for (owners, hard, refused, next) in [
        (
            json!([]),
            json!({"pods": "0"}),
            "exceeded quota: q",
            "ask for less (kloop edit replicaset/r), or raise the quota: kloop edit quota/q",
        ),
        (
            owned.clone(),
            json!({"pods": "0"}),
            "exceeded quota: q",
            "ask for less (kloop edit deployment/d), or raise the quota: kloop edit quota/q",
        ),
        (
            owned,
            json!({"requests.cpu": "1"}),
            "failed quota: q",
            "say what it must (kloop edit deployment/d), or correct the quota: kloop edit quota/q",
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
fn a_job_that_runs_is_on_its_way_and_its_cron_job_is_as_it_was_asked_for() {
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
    for (status, pretends, standing) in [
        (&running, false, ConvergenceState::Converging),
        (&running, true, ConvergenceState::Converged),
        (&complete, false, ConvergenceState::Converged),
    ] {
        let mut world = world(&[node("True"), runs.clone(), cron_job.clone(), job(status.clone())]);
        let plane = ControlPlaneState { runs: true, pretends, ..ControlPlaneState::default() };
        let mut ask = |resource, name| {
            explain(&mut world, &Key::new(crate::object::Resource(resource), "default", name), &plane).unwrap()
        };
        let answer = ask("jobs.batch", "j");
        assert_eq!(answer.links[answer.place].standing, standing, "{answer:#?}");
        let answer = ask("cronjobs.batch", "t");
        assert!(
            answer.links.iter().all(|link| !(link.what == "job/j" && link.standing != ConvergenceState::Converged)),
            "{answer:#?}"
        );
    }
}

#[test]
fn finalizers_hold_what_is_deleted() {
    let held = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": "c", "finalizers": ["x.dev/hold"], "deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let answer = ask(&[held], "configmap/c", true);
    assert_eq!(answer.standing(), ConvergenceState::Stuck);
    assert!(answer.next().starts_with("let who set x.dev/hold finish"), "{}", answer.next());
}

#[test]
fn what_holds_a_deletion_in_the_foreground_is_named() {
    let mut owner = deployment(json!({}), json!({"observedGeneration": 1}));
    owner["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    owner["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
    let mut leaving = pod(json!({}), json!({"terminated": {"exitCode": 0, "reason": "Completed"}}));
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    leaving["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
    let held = |kind: &str, name: &str, blocks: bool| {
        let (version, owner) = if kind == "Pod" { ("v1", "p") } else { ("apps/v1", "d") };
        let reference = json!({"apiVersion": version, "kind": kind, "name": owner, "uid": format!("{kind}-{owner}"), "blockOwnerDeletion": blocks});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": name, "finalizers": ["x.dev/hold"], "deletionTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": [reference]}})
    };
    for (owner, kind, about) in [(owner, "Deployment", "deployment/d"), (leaving, "Pod", "pod/p")] {
        let answer = ask(&[node("True"), owner, held(kind, "free", false), held(kind, "child", true)], about, true);
        assert_eq!(answer.root_cause().map(|link| &*link.what), Some("configmap/child"), "{answer:#?}");
    }
}

#[test]
fn each_node_is_told_with_the_plugin_that_refused_it_or_its_scores() {
    let mut small = node("True");
    small["metadata"]["name"] = "small".into();
    small["status"]["allocatable"]["cpu"] = "1".into();
    let mut asks = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "1500m"}}}]});
    let answer = ask(&[node("True"), small.clone(), pod(asks.clone(), Value::Null)], "pod/p", true);
    let more = &answer.links[1].more;
    assert!(more[0].starts_with("node/n: fits, score ") && more[0].contains("NodeResourcesFit "), "{more:?}");
    assert_eq!(more[1], "node/small: NodeResourcesFit: Insufficient cpu");
    asks["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "none"}}]);
    let answer = ask(&[node("True"), small, pod(asks, Value::Null)], "pod/p", true);
    let more = &answer.links[1].more;
    assert_eq!(more[0], "all 2 nodes: VolumeBinding: persistentvolumeclaim \"none\" not found", "none of them fits");
    assert_eq!(answer.root_cause().unwrap().what, "persistentvolumeclaim/none");
}

#[test]
fn what_an_unschedulable_pod_waits_for_is_told() {
    let asks = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "64"}}}]});
    let wakers = "a node is added, or a node offers more, or a pod ends on a node that has room for it then";
    for (runs, place, next) in [
        (true, "in the scheduler's queue of unschedulable pods until", "; looked at again after 5m in any case"),
        (false, "in no queue, because no scheduler runs: one that starts looks at it at once, and then when", ""),
    ] {
        let answer = ask(&[node("True"), pod(asks.clone(), Value::Null)], "pod/p", runs);
        let link = answer.links.iter().find(|link| link.what == "pod/p").unwrap();
        assert_eq!(link.more.last(), Some(&format!("{place} {wakers}{next}")), "{link:#?}");
    }
}

#[test]
fn a_status_that_nobody_keeps_is_not_believed() {
    let mut runs = pod(json!({}), json!({"running": {"startedAt": "2026-01-01T00:05:00Z"}}));
    runs["status"]["phase"] = "Running".into();
    runs["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    runs["status"]["containerStatuses"][0]["ready"] = true.into();
    let key = Key::new(crate::object::Resource("pods"), "default", "p");
    let ended = ContainerExit { code: 3, at: now() };
    for (lost, expected) in [
        (None, ConvergenceState::Converged),
        (Some(UnreportedExit::All), ConvergenceState::Stuck),
        (Some(UnreportedExit::Some([("c".into(), ended)].into())), ConvergenceState::Stuck),
    ] {
        let told = usize::from(lost.is_some());
        let plane = ControlPlaneState {
            lost: lost.into_iter().map(|lost| ("Pod-p".into(), lost)).collect(),
            ..ControlPlaneState::default()
        };
        let mut world = world(&[node("True"), runs.clone()]);
        let answer = explain(&mut world, &key, &plane).unwrap();
        assert_eq!(answer.standing(), expected, "{answer:#?}");
        assert_eq!(unmet(&mut world, None, &plane).len(), told);
    }
    let heard = Some("2026-01-01T00:04:00Z".parse().unwrap());
    let silent = ControlPlaneState { runs: true, is_silent: true, heard, ..ControlPlaneState::default() };
    let mut fine = world(&[node("True"), runs.clone()]);
    let answer = explain(&mut fine, &key, &silent).unwrap();
    assert_eq!(
        (answer.standing(), answer.root_cause().map(|link| &*link.what)),
        (ConvergenceState::Stuck, Some("control plane"))
    );
    assert!(answer.next().contains("see what it says"), "{}", answer.next());
    assert_eq!(unmet(&mut fine, None, &silent).len(), 1);
    for (runs_now, expected) in [(false, "to start one: kloop reconcile --watch"), (true, "as it was asked for")] {
        let plane = ControlPlaneState { runs: runs_now, heard, ..ControlPlaneState::default() };
        let answer = explain(&mut world(&[node("True"), runs.clone()]), &key, &plane).unwrap();
        assert_eq!(answer.standing(), ConvergenceState::Converged);
        assert!(answer.next().ends_with(expected), "{}", answer.next());
    }
}

#[test]
fn a_link_that_is_not_as_it_should_be_tells_what_was_done_last() {
    let event = |name: &str, field: Value, reason: &str, minute: u8| {
        json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "reason": reason, "message": format!("{reason} it"),
            "involvedObject": {"uid": "Pod-p", "fieldPath": field}, "lastTimestamp": format!("2026-01-01T00:0{minute}:00Z"),
        })
    };
    let waiting = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting"}});
    let answer = ask(
        &[
            node("True"),
            pod(json!({}), waiting),
            event("p.1", Value::Null, "Scheduled", 1),
            event("p.2", "spec.containers{c}".into(), "BackOff", 5),
            event("p.3", "spec.containers{c}".into(), "Started", 4),
            event("p.4", "spec.containers{other}".into(), "Killing", 9),
        ],
        "pod/p",
        true,
    );
    let told: Vec<_> =
        answer.links.iter().map(|link| (&*link.what, link.last.as_ref().map(|last| &*last.reason))).collect();
    assert_eq!(told, [("control plane", None), ("pod/p", Some("Scheduled")), ("container c", Some("BackOff"))]);
}

#[test]
fn a_panic_of_the_loop_of_a_pod_a_node_or_an_autoscaler_is_its_cause() {
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
            let is_told = link.error.as_deref() == Some("InternalError it") && link.standing == ConvergenceState::Stuck;
            assert_eq!(is_told, is_shown, "{about} {second}: {answer:#?}");
            let next = link.next.as_deref().unwrap_or_default();
            assert_eq!(next.contains("bug in kloop"), is_shown, "{about}: {next}");
        }
    }
}
