//! Tests of explanations that follow owners, children and prerequisites.

use super::*;

#[test]
fn service_is_idle_when_every_owner_of_its_pods_wants_none() {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
        "spec": {"selector": {"app": "p"}, "ports": [{"port": 80}]}});
    let workload = |kind: &str, name: &str, replicas: i64| {
        let template = json!({"metadata": {"labels": {"app": "p"}}});
        json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "p"}}, "template": template}})
    };
    let none = workload("Deployment", "none", 0);
    let some = workload("StatefulSet", "some", 1);
    let mut old = workload("ReplicaSet", "old", 0);
    let owner = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "d", "controller": true});
    old["metadata"]["ownerReferences"] = json!([owner]);
    let runs = pod(json!({}), json!({"running": {}}));
    let table = [
        (vec![none.clone()], true),
        (vec![none.clone(), some], false),
        (vec![none, runs.clone()], false),
        (vec![old.clone()], false),
        (vec![old, runs], false),
        (vec![], false),
    ];
    for (mut objects, expected) in table {
        objects.push(service.clone());
        let world = world(&objects);
        let row = world.find("services", "default", "s").expect("it is there");
        assert_eq!(reachability::find_idle_workload(&world, row, &row.object()).is_some(), expected, "{objects:?}");
    }
}

fn image(build: Value) -> Value {
    json!({
        "apiVersion": "kloop.dev/v1alpha1", "kind": "Image", "metadata": {"name": "x"},
        "spec": {"patterns": ["x"], "entrypoint": ["/x"], "build": {"command": ["make"]}}, "status": {"build": build},
    })
}

#[test]
fn stuck_objects_are_listed_once_for_each_cause() {
    let meta = |name: &str| json!({"name": name});
    let service = |name: &str, app: &str| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": meta(name),
            "spec": {"selector": {"app": app}, "ports": [{"port": 80}]},
        })
    };
    let ingress = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": meta("i"),
        "spec": {"defaultBackend": {"service": {"name": "gone", "port": {"number": 80}}}},
    });
    let behind = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": meta("behind"),
        "spec": {"defaultBackend": {"service": {"name": "nobody", "port": {"number": 80}}}},
    });
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta("data"), "status": {"phase": "Pending"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}},
    });
    let scaler = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": meta("h"),
        "spec": {"maxReplicas": 2, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "none"}},
        "status": {"conditions": [{"type": "AbleToScale", "status": "False", "reason": "FailedGetScale", "message": "not found"}]},
    });
    let mut lost = node("Unknown");
    lost["metadata"]["name"] = "lost".into();
    let crashes = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting"}});
    let objects = [
        node("True"),
        lost,
        ingress,
        behind,
        claim,
        scaler,
        service("nobody", "nobody"),
        service("crashing", "p"),
        pod(json!({}), crashes),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": meta("default")}),
        image(json!({"state": "Failed", "message": "m", "output": "o"})),
    ];
    let mut objects = objects.to_vec();
    let unbuilt = objects.last_mut().expect("an image");
    unbuilt["spec"]["patterns"] = json!(["of-nobody"]);
    let plane = ControlPlaneState { runs: true, ..ControlPlaneState::default() };
    let told: Vec<String> =
        explain_unconverged(&mut world(&objects), Some("default"), &plane).into_iter().map(|one| one.about).collect();
    let expected = [
        "pod/p",
        "image/x",
        "node/lost",
        "persistentvolumeclaim/data",
        "service/nobody",
        "ingress/i",
        "horizontalpodautoscaler/h",
    ];
    assert_eq!(told, expected);
    assert!(explain_unconverged(&mut world(&[node("True")]), None, &plane).is_empty());
}

fn runs_without(disabled_controllers: &[&str]) -> ControlPlaneState {
    let disabled_controllers = disabled_controllers.iter().map(|name| (*name).to_owned()).collect();
    ControlPlaneState { runs: true, disabled_controllers, ..ControlPlaneState::default() }
}

#[test]
fn disabled_controller_is_the_cause() {
    let template = json!({"metadata": {"labels": {"app": "p"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}});
    let meta = json!({"name": "x", "generation": 1});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": template,
        "selector": {"matchLabels": {"app": "p"}}, "completions": 1, "parallelism": 1}});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta,
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "p"}}, "template": template}});
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta,
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "p"}}}});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}});
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    for (object, about, disabled_controllers) in [
        (&job, "jobs.batch", "job-controller"),
        (&deployment, "deployments.apps", "deployment-controller"),
        (&budget, "poddisruptionbudgets.policy", "controllermanager"),
    ] {
        let mut world = world(&[node("True"), namespace.clone(), account.clone(), object.clone()]);
        let key = Key::new(crate::object::Resource(about), "default", "x");
        let plane = runs_without(&[disabled_controllers]);
        let answer = explain(&mut world, &key, &plane).expect("it is there");
        let link = &answer.links[answer.place];
        let error = format!("{disabled_controllers} is not running: it was left out by --controllers");
        assert_eq!((link.state, link.error.as_deref()), (ConvergenceState::Stuck, Some(&*error)), "{answer:#?}");
        assert!(answer.next().contains(&format!("start one that runs {disabled_controllers}")), "{}", answer.next());
        assert_eq!(explain_unconverged(&mut world, None, &plane).len(), 1, "{about}");
        // Without a control plane, and with one that runs everything, this is not a cause.
        for plane in [
            ControlPlaneState { runs: false, ..runs_without(&[disabled_controllers]) },
            runs_without(&["ttl-controller"]),
        ] {
            let answer = explain(&mut world, &key, &plane).expect("it is there");
            assert_eq!(answer.links[answer.place].error, None, "{answer:#?}");
        }
    }
}

#[test]
fn stopped_process_is_the_cause_with_the_command_that_continues_it() {
    let mut runs = pod(json!({}), json!({"running": {"startedAt": "2026-01-01T00:05:00Z"}}));
    runs["status"]["phase"] = "Running".into();
    runs["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    runs["status"]["containerStatuses"][0]["ready"] = true.into();
    let key = Key::new(crate::object::Resource("pods"), "default", "p");
    let halted =
        |stopped: StoppedProcess| ControlPlaneState { halted: [("Pod-p".into(), stopped)].into(), ..runs_without(&[]) };
    for (plane, what, next) in [
        (halted(StoppedProcess::Shim(7)), "pod/p", "kill -CONT 7"),
        (halted(StoppedProcess::Containers([("c".into(), 8)].into())), "container c", "kill -CONT 8"),
        (ControlPlaneState { stopped: Some(9), ..runs_without(&[]) }, "control plane", "run: kill -CONT 9"),
    ] {
        let mut world = world(&[node("True"), runs.clone()]);
        let answer = explain(&mut world, &key, &plane).expect("it is there");
        assert_eq!(answer.root_cause().map(|link| &*link.what), Some(what), "{answer:#?}");
        assert_eq!(answer.next(), next);
        assert_eq!(explain_unconverged(&mut world, None, &plane).len(), 1, "{what}");
    }
}
