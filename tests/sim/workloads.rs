//! The users' manifests in the runs, and their changes.

use super::dice::Dice;
use serde_json::{Value, json};

/// Runs until it is stopped.
pub const SOUND: [&str; 3] = ["sound:1", "sound:2", "sound:3"];
/// Ends with an error after two seconds.
pub const CRASHING: &str = "crash:1";
/// An image that does not exist.
pub const MISSING: &str = "missing:1";
/// Succeeds after three seconds.
pub const DONE: &str = "done:1";

/// The workloads that a run may consist of.
pub const ALL: &[fn(&mut Dice, &str) -> Vec<Value>] =
    &[rolling, rolling, rolling, recreate, crashing, job, failing_job, service, unschedulable, pod, owners, tenant];

/// The workloads of every third run: StatefulSets, DaemonSets, CronJobs, and failing probes.
pub const HARDER: &[fn(&mut Dice, &str) -> Vec<Value>] = &[stateful, daemons, cron_job, poorly, rolling];

/// A container whose probes always fail.
pub const POORLY: &str = "poorly";

/// A Deployment of pods with one container.
pub fn deployment(name: &str, replicas: i64, image: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "terminationGracePeriodSeconds": 5,
                    "containers": [{"name": "c", "image": image, "resources": {"requests": {"cpu": "100m", "memory": "16Mi"}}}],
                },
            },
        },
    })
}

fn rolling(dice: &mut Dice, name: &str) -> Vec<Value> {
    let mut body = deployment(name, dice.between(1, 6), SOUND[0]);
    let steps = [("25%", "25%"), ("1", "0"), ("0", "1"), ("2", "1"), ("100%", "0"), ("0", "50%"), ("50%", "50%")];
    let (surge, unavailable) = *dice.pick(&steps).unwrap();
    let number = |text: &str| text.parse::<i64>().map_or(json!(text), |number| json!(number));
    body["spec"]["strategy"] = json!({
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": number(surge), "maxUnavailable": number(unavailable)},
    });
    if dice.one_in(3) {
        body["spec"]["minReadySeconds"] = json!(dice.between(1, 5));
    }
    if dice.one_in(3) {
        body["spec"]["revisionHistoryLimit"] = json!(dice.between(0, 2));
    }
    if dice.one_in(3) {
        let probe = json!({"tcpSocket": {"port": 80}, "periodSeconds": dice.between(10, 30)});
        body["spec"]["template"]["spec"]["containers"][0]["readinessProbe"] = probe;
    }
    vec![body]
}

fn recreate(dice: &mut Dice, name: &str) -> Vec<Value> {
    let mut body = deployment(name, dice.between(1, 4), SOUND[0]);
    body["spec"]["strategy"] = json!({"type": "Recreate"});
    vec![body]
}

fn crashing(dice: &mut Dice, name: &str) -> Vec<Value> {
    vec![deployment(name, dice.between(1, 2), CRASHING)]
}

fn job(dice: &mut Dice, name: &str) -> Vec<Value> {
    let mut body = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "completions": dice.between(1, 5), "parallelism": dice.between(1, 3), "backoffLimit": dice.between(0, 4),
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": DONE}]}},
        },
    });
    if dice.one_in(2) {
        body["spec"]["completionMode"] = json!("Indexed");
    }
    if dice.one_in(3) {
        body["spec"]["template"]["spec"]["restartPolicy"] = json!("OnFailure");
    }
    vec![body]
}

fn failing_job(dice: &mut Dice, name: &str) -> Vec<Value> {
    let mut jobs = job(dice, name);
    jobs[0]["spec"]["template"]["spec"]["containers"][0]["image"] = json!(CRASHING);
    jobs
}

fn service(dice: &mut Dice, name: &str) -> Vec<Value> {
    let mut all = rolling(dice, name);
    all[0]["spec"]["template"]["spec"]["containers"][0]["ports"] = json!([{"name": "http", "containerPort": 80}]);
    all.push(json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": "http"}]},
    }));
    all
}

/// Requests more than the machine has: some pods wait until a node is added.
fn unschedulable(dice: &mut Dice, name: &str) -> Vec<Value> {
    let mut body = deployment(name, dice.between(2, 4), SOUND[0]);
    body["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("1500m");
    vec![body]
}

fn pod(dice: &mut Dice, name: &str) -> Vec<Value> {
    let policy = *dice.pick(&["Always", "OnFailure", "Never"]).unwrap();
    let mut body = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"restartPolicy": policy, "terminationGracePeriodSeconds": dice.between(0, 30),
            "containers": [{"name": "c", "image": SOUND[0]}, {"name": "d", "image": if dice.one_in(2) && policy != "Always" { DONE } else { SOUND[1] }}]},
    });
    if dice.one_in(2) {
        body["spec"]["initContainers"] = json!([{"name": "i", "image": DONE}]);
    }
    if dice.one_in(3) {
        let sidecar = json!({"name": "s", "image": SOUND[2], "restartPolicy": "Always"});
        match body["spec"]["initContainers"].as_array_mut() {
            Some(init) => init.push(sidecar),
            None => body["spec"]["initContainers"] = json!([sidecar]),
        }
    }
    vec![body]
}

/// A ConfigMap that will own others; see the edit that adds children.
fn owners(_: &mut Dice, name: &str) -> Vec<Value> {
    vec![
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": {"a": "b"}}),
    ]
}

/// A namespace with objects.
fn tenant(dice: &mut Dice, name: &str) -> Vec<Value> {
    let mut all = vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})];
    for mut body in rolling(dice, "inner").into_iter().chain(job(dice, "work")) {
        body["metadata"]["namespace"] = json!(name);
        all.push(body);
    }
    all
}

/// A StatefulSet, sometimes with storage.
fn stateful(dice: &mut Dice, name: &str) -> Vec<Value> {
    let mut body = deployment(name, dice.between(1, 4), SOUND[0]);
    body["kind"] = json!("StatefulSet");
    body["spec"]["serviceName"] = json!(name);
    body["spec"]["podManagementPolicy"] = json!(*dice.pick(&["OrderedReady", "Parallel"]).unwrap());
    if dice.one_in(2) {
        body["spec"]["updateStrategy"] = json!({"rollingUpdate": {"maxUnavailable": dice.between(1, 3)}});
    }
    if dice.one_in(2) {
        let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}});
        body["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": claim}]);
        body["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] =
            json!([{"name": "data", "mountPath": "/data"}]);
    }
    vec![body]
}

/// A DaemonSet.
fn daemons(dice: &mut Dice, name: &str) -> Vec<Value> {
    let mut body = deployment(name, 0, SOUND[0]);
    body["kind"] = json!("DaemonSet");
    body["spec"].as_object_mut().unwrap().remove("replicas");
    let (surge, unavailable) = *dice.pick(&[(0, 1), (1, 0), (0, 2)]).unwrap();
    body["spec"]["updateStrategy"] = json!({"rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}});
    vec![body]
}

/// A CronJob with a Job every minute.
fn cron_job(dice: &mut Dice, name: &str) -> Vec<Value> {
    let policy = *dice.pick(&["Allow", "Forbid", "Replace"]).unwrap();
    let mut work = job(dice, name).remove(0);
    vec![json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedule": "* * * * *", "concurrencyPolicy": policy, "jobTemplate": {"spec": work["spec"].take()}},
    })]
}

/// Pods with failing probes: never ready, and restarted again and again.
fn poorly(dice: &mut Dice, name: &str) -> Vec<Value> {
    let mut body = deployment(name, dice.between(1, 2), SOUND[0]);
    let probe = json!({"tcpSocket": {"port": 80}, "periodSeconds": dice.between(5, 30)});
    let container = &mut body["spec"]["template"]["spec"]["containers"][0];
    container["name"] = json!(POORLY);
    container[*dice.pick(&["livenessProbe", "readinessProbe", "startupProbe"]).unwrap()] = probe;
    vec![body]
}

/// A node that simulates another machine.
pub fn node(name: &str) -> Value {
    let room = json!({"cpu": "8", "memory": "32Gi", "pods": "110"});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "annotations": {"kloop.dev/runtime": "simulated"}, "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]},
    })
}
