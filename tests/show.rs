//! Tables, descriptions and output formats compared with kubectl's (`../shared/golden`), without a server.

use crate::golden;
use kloop::kinds;
use kloop::kinds::view::RelatedObjects;
use kloop::object::{Object, Time};
use kloop::show::describe::describe;
use kloop::show::print::{OutputFlags, OutputFormat};
use kloop::show::table::{Table, TableOptions, TablePrinter};
use serde_json::{Value, json};

/// The time of all events; the recordings mask all times.
const MOMENT: &str = "2026-11-20T00:00:00Z";
/// The uid of all objects; the recordings mask all uids.
const UID: &str = "0b0b0b0b-0000-4000-8000-000000000000";
const MOMENT_SHOWN: &str = "Fri, 20 Nov 2026 00:00:00 +0000";

/// The objects for descriptions, by resource.
#[derive(Default)]
struct Cluster {
    objects: Vec<(String, Object)>,
    hide_events: bool,
}

impl RelatedObjects for Cluster {
    fn list(&self, resource: &str, namespace: &str) -> Vec<Object> {
        let wanted = |(known, object): &&(String, Object)| {
            known == resource && (namespace.is_empty() || object.namespace() == namespace)
        };
        self.objects.iter().filter(wanted).map(|(_, object)| object.clone()).collect()
    }

    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Object> {
        self.list(resource, namespace).into_iter().find(|object| object.name() == name)
    }

    fn now(&self) -> Time {
        now()
    }

    fn show_events(&self) -> bool {
        !self.hide_events
    }
}

fn now() -> Time {
    MOMENT.parse::<Time>().expect("moment") + jiff::SignedDuration::from_secs(5)
}

impl Cluster {
    /// Loads the objects of a scenario's file as the server stores them.
    fn load(scenario: &str, file: &str) -> Option<Cluster> {
        let text = std::fs::read_to_string(golden::folder(scenario)?.join(file)).expect("file of a scenario");
        let mut cluster = Cluster::default();
        for document in serde_yaml::Deserializer::from_str(&text) {
            cluster.add(serde::Deserialize::deserialize(document).expect("yaml"));
        }
        Some(cluster)
    }

    /// Adds the object of a body.
    fn add(&mut self, body: Value) {
        let kind = kinds::by_kind(body["apiVersion"].as_str().unwrap_or(""), body["kind"].as_str().unwrap_or(""));
        let kind = kind.expect("a kind of the catalogue");
        let mut normal = (kind.normalize)(&body, &mut |_| {}).expect("a body");
        for (field, value) in [("status", json!({})), ("spec", json!({}))] {
            if normal.get(field).is_none() && body.get(field).is_some() {
                normal[field] = value;
            }
        }
        let metadata = &mut normal["metadata"];
        if kind.namespaced && metadata.get("namespace").is_none() {
            metadata["namespace"] = "default".into();
        }
        for (field, value) in [("uid", UID), ("resourceVersion", "<rv>"), ("creationTimestamp", MOMENT)] {
            if metadata.get(field).is_none() {
                metadata[field] = value.into();
            }
        }
        self.objects.push((kind.resource.to_string(), Object(normal)));
    }

    /// Merges fields into an object.
    fn patch(&mut self, resource: &str, name: &str, patch: Value) {
        let found = self.objects.iter_mut().find(|(known, object)| known == resource && object.name() == name);
        json_patch::merge(&mut found.expect("an object to patch").1.0, &patch);
    }

    fn event(&mut self, about: (&str, &str), from: &str, kind: &str, reason: &str, message: &str) {
        self.add(json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": format!("e{}", self.objects.len()), "namespace": "default"},
            "involvedObject": {"kind": about.0, "name": about.1, "namespace": "default"}, "type": kind, "reason": reason,
            "message": message, "eventTime": "2026-11-20T00:00:00.000000Z", "reportingComponent": from,
            "firstTimestamp": null, "lastTimestamp": null, "source": {}}));
    }

    fn describe(&self, resource: &str, name: &str) -> String {
        let kind = kinds::by_name(resource).expect("a kind");
        let namespace = if kind.namespaced { "default" } else { "" };
        let object = self.get(resource, namespace, name).unwrap_or_else(|| panic!("{resource}/{name}"));
        let text = describe(kind, &object, self);
        text.replace(MOMENT_SHOWN, "<time>")
            .replace(MOMENT, "<time>")
            .replace(UID, "<uid>")
            .replace("2026-11-20 00:00:00 +0000 UTC", "<time>")
            .replace("Age   From", "Age  From")
            .replace("  5s    ", "  <age>  ")
            .replace("5s\n", "<age>\n")
            .replace("lasts 5s", "lasts <age>")
    }

    fn table(&self, resource: &str, options: TableOptions) -> String {
        let mut objects = self.list(resource, "");
        objects.sort_by(|left, right| left.name().cmp(right.name()));
        let mut table = Table::for_kind(kinds::by_name(resource).expect("a kind"), &objects, now());
        table.remove_own_columns();
        let text = TablePrinter::new(options).print(&table, "", false);
        text.replace("5s    ", "<age>   ").replace("5s\n", "<age>\n")
    }
}

/// Returns the recorded output of a command.
fn recorded(scenario: &str, command: &str) -> String {
    let step = golden::steps(scenario).into_iter().find(|step| step.command == command);
    step.unwrap_or_else(|| panic!("no step {command}")).stdout
}

fn same(scenario: &str, command: &str, ours: &str) {
    let recorded = recorded(scenario, command);
    assert!(ours == recorded, "{scenario}: {command}\n--- kubectl\n{recorded}--- kloop\n{ours}");
}

/// Compares only the words, where the masks change the widths of columns.
fn same_words(scenario: &str, command: &str, ours: &str) {
    let words = |text: &str| -> Vec<Vec<String>> {
        text.lines()
            .map(|line| line.split("  ").map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect())
            .collect()
    };
    assert_eq!(words(ours), words(&recorded(scenario, command)), "{scenario}: {command}");
}

/// Adds the fields of service account admission to a pod.
fn admit(cluster: &mut Cluster, name: &str, token: &str) {
    let pod = cluster.get("pods", "default", name).expect("a pod");
    let mount = json!({"name": token, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true});
    let mut patch =
        json!({"spec": {"serviceAccountName": "default", "priority": 0}, "status": {"qosClass": "BestEffort"}});
    if pod.0["spec"].get("priority").is_some() {
        patch["spec"]["priority"] = pod.0["spec"]["priority"].clone();
    }
    for field in ["initContainers", "containers"] {
        let Some(mut containers) = pod.0["spec"][field].as_array().cloned() else { continue };
        for container in &mut containers {
            let mut mounts = container["volumeMounts"].as_array().cloned().unwrap_or_default();
            mounts.push(mount.clone());
            container["volumeMounts"] = mounts.into();
        }
        patch["spec"][field] = containers.into();
    }
    let mut volumes = pod.0["spec"]["volumes"].as_array().cloned().unwrap_or_default();
    volumes.push(json!({"name": token, "projected": {"sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt"}},
        {"downwardAPI": {"items": []}}]}}));
    patch["spec"]["volumes"] = volumes.into();
    let mut tolerations = pod.0["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        tolerations.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}));
    }
    patch["spec"]["tolerations"] = tolerations.into();
    cluster.patch("pods", name, patch);
}

/// Sets the status of the recordings' kubelet for a pod, with one container state for all.
fn run(cluster: &mut Cluster, name: &str, phase: &str, state: Value, ready: bool, restarts: i64) {
    let pod = cluster.get("pods", "default", name).expect("a pod");
    let statuses = |field: &str, state: &Value, ready: bool| -> Value {
        let containers = pod.0["spec"][field].as_array().cloned().unwrap_or_default();
        let status = |container: &Value| {
            json!({"name": container["name"], "image": container["image"], "ready": ready, "restartCount": restarts,
                "imageID": format!("fake://{}", container["image"].as_str().unwrap_or("")),
                "containerID": format!("fake://{}", container["name"].as_str().unwrap_or("")), "state": state, "lastState": {}})
        };
        containers.iter().map(status).collect::<Vec<_>>().into()
    };
    let done = json!({"terminated": {"reason": "Completed", "exitCode": 0, "startedAt": MOMENT, "finishedAt": MOMENT}});
    let condition = |kind: &str, holds: bool| json!({"type": kind, "status": if holds { "True" } else { "False" }});
    let node = pod.0["spec"]["nodeName"].as_str().unwrap_or("node-a").to_owned();
    let zone = json!({"topology.kubernetes.io/zone": "z1"});
    let status = json!({"phase": phase, "podIP": "<pod-ip>", "podIPs": [{"ip": "<pod-ip>"}], "hostIP": "10.0.0.97", "startTime": MOMENT,
        "conditions": [condition("PodReadyToStartContainers", true), condition("Initialized", true), condition("Ready", ready),
            condition("ContainersReady", ready), condition("PodScheduled", true)],
        "initContainerStatuses": statuses("initContainers", &done, true),
        "containerStatuses": statuses("containers", &state, ready)});
    cluster.patch("pods", name, json!({"metadata": {"labels": zone}, "spec": {"nodeName": node}, "status": status}));
}

fn running() -> Value {
    json!({"running": {"startedAt": MOMENT}})
}

fn ended(reason: &str, code: i64) -> Value {
    json!({"terminated": {"reason": reason, "exitCode": code, "startedAt": MOMENT, "finishedAt": MOMENT}})
}

#[test]
fn states_of_pods() {
    let Some(mut cluster) = Cluster::load("pod-states", "pods.yaml") else { return };
    for pod in cluster.list("pods", "") {
        cluster.patch("pods", pod.name(), json!({"status": {"phase": "Pending"}}));
    }
    let tokens =
        [("s1", "1"), ("s3", "2"), ("s4", "3"), ("crash", "4"), ("failed", "5"), ("pending", "6"), ("hold", "7")];
    for (name, number) in tokens {
        admit(&mut cluster, name, &format!("kube-api-access-<r0{number}>"));
    }
    run(&mut cluster, "running", "Running", running(), true, 0);
    run(&mut cluster, "hold", "Running", running(), true, 0);
    run(&mut cluster, "unready", "Running", running(), false, 0);
    run(&mut cluster, "crash", "Running", json!({"waiting": {"reason": "CrashLoopBackOff"}}), false, 3);
    run(&mut cluster, "done", "Succeeded", ended("Completed", 0), false, 0);
    run(&mut cluster, "failed", "Failed", ended("Error", 2), false, 0);
    cluster.patch("pods", "hold", json!({"metadata": {"deletionTimestamp": MOMENT, "deletionGracePeriodSeconds": 0}}));
    let gated = json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]});
    cluster.patch("pods", "gated", json!({"status": gated}));
    cluster.patch("pods", "pending", json!({"status": {"conditions": [{"type": "PodScheduled", "status": "False"}]}}));
    for step in golden::steps("pod-states") {
        let words: Vec<&str> = step.command.splitn(6, ' ').collect();
        if let ["kubectl", "patch", "pod", name, "--subresource=status", patch] = words[..] {
            let patch = patch.trim_start_matches("-p ").trim_matches('\'');
            cluster.patch("pods", name, serde_json::from_str(patch).expect("json"));
        }
    }
    same("pod-states", "kubectl get pods", &cluster.table("pods", TableOptions::default()));
    let wide = cluster.table("pods", TableOptions { wide: true, ..TableOptions::default() });
    same_words("pod-states", "kubectl get pods -o wide", &wide);
    let message = "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector. no new claims to deallocate, preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.";
    cluster.event(("Pod", "pending"), "default-scheduler", "Warning", "FailedScheduling", message);
    for (name, _) in tokens {
        same("pod-states", &format!("kubectl describe pod {name}"), &cluster.describe("pods", name));
    }
}

#[test]
fn descriptions_of_workloads() {
    const SCENARIO: &str = "describe-workloads";
    let Some(mut cluster) = Cluster::load(SCENARIO, "all.yaml") else { return };
    let controlled = |kind: &str, name: &str| json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": UID, "controller": true}]);
    let counts = json!({"replicas": 1, "updatedReplicas": 1, "availableReplicas": 1, "readyReplicas": 1, "conditions": [
        {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"},
        {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}]});
    let revision = json!({"deployment.kubernetes.io/revision": "1"});
    cluster.patch("deployments.apps", "web", json!({"status": counts, "metadata": {"annotations": revision}}));
    let deployment = cluster.get("deployments.apps", "default", "web").expect("the deployment").0;
    let mut set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "spec": deployment["spec"], "metadata": {
        "name": "web-7c7c959dd7", "labels": {"app": "web", "pod-template-hash": "7c7c959dd7"}, "ownerReferences": controlled("Deployment", "web"),
        "annotations": {"note": "hello", "deployment.kubernetes.io/desired-replicas": "1", "deployment.kubernetes.io/max-replicas": "2",
            "deployment.kubernetes.io/revision": "1"}}});
    set["spec"]["selector"]["matchLabels"]["pod-template-hash"] = "7c7c959dd7".into();
    set["spec"]["template"]["metadata"]["labels"]["pod-template-hash"] = "7c7c959dd7".into();
    set["spec"]
        .as_object_mut()
        .expect("spec")
        .retain(|field, _| matches!(field.as_str(), "replicas" | "selector" | "template"));
    cluster.add(set);
    cluster.patch("replicasets.apps", "web-7c7c959dd7", json!({"status": {"replicas": 1}}));
    let set = cluster.list("replicasets.apps", "")[0].0.clone();
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": set["spec"]["template"]["spec"], "metadata": {
        "name": "web-7c7c959dd7-<r01>", "labels": set["spec"]["template"]["metadata"]["labels"], "annotations": {"pod/note": "x"},
        "ownerReferences": controlled("ReplicaSet", "web-7c7c959dd7")}});
    pod["spec"]["priority"] = 2_000_001_000.into();
    cluster.add(pod);
    admit(&mut cluster, "web-7c7c959dd7-<r01>", "kube-api-access-<r02>");
    run(&mut cluster, "web-7c7c959dd7-<r01>", "Running", running(), true, 0);
    cluster.patch("pods", "web-7c7c959dd7-<r01>", json!({"status": {"qosClass": "Burstable"}}));
    admit(&mut cluster, "solo", "kube-api-access-<r05>");
    run(&mut cluster, "solo", "Running", running(), true, 0);

    let message = "Scaled up replica set web-7c7c959dd7 from 0 to 1";
    cluster.event(("Deployment", "web"), "deployment-controller", "Normal", "ScalingReplicaSet", message);
    let message = "Created pod: web-7c7c959dd7-<r01>";
    cluster.event(("ReplicaSet", "web-7c7c959dd7"), "replicaset-controller", "Normal", "SuccessfulCreate", message);
    same(SCENARIO, "kubectl describe deployment web", &cluster.describe("deployments.apps", "web"));
    same(SCENARIO, "kubectl describe rs -l app=web", &cluster.describe("replicasets.apps", "web-7c7c959dd7"));
    same(SCENARIO, "kubectl describe pod solo", &cluster.describe("pods", "solo"));
    // The recording lost the rows of this pod's events to a mask.
    let pods = recorded(SCENARIO, "kubectl describe pods -l app=web");
    let (recorded_part, _) = pods.split_once("Events:").expect("events");
    assert_eq!(
        cluster.describe("pods", "web-7c7c959dd7-<r01>").split_once("Events:").expect("events").0,
        recorded_part
    );

    let replicas = json!({"status": {"replicas": 1}});
    cluster.patch("statefulsets.apps", "db", replicas);
    let bodies = [("StatefulSet", "db", "Pending"), ("DaemonSet", "agent", "Running")];
    for (kind, owner, phase) in bodies {
        cluster.add(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("{owner}-0"), "labels": {"app": owner},
            "ownerReferences": controlled(kind, owner)}, "spec": {"containers": [{"name": "c", "image": "a:1"}]}}));
        cluster.patch("pods", &format!("{owner}-0"), json!({"status": {"phase": phase}}));
    }
    for message in
        ["Create Claim data-db-0 Pod db-0 in StatefulSet db success", "Create Pod db-0 in StatefulSet db successful"]
    {
        cluster.event(("StatefulSet", "db"), "statefulset-controller", "Normal", "SuccessfulCreate", message);
    }
    same(SCENARIO, "kubectl describe sts db", &cluster.describe("statefulsets.apps", "db"));

    let counts = json!({"desiredNumberScheduled": 1, "currentNumberScheduled": 1, "updatedNumberScheduled": 1, "numberAvailable": 1, "numberMisscheduled": 0});
    let generation = json!({"deprecated.daemonset.template.generation": "1"});
    cluster.patch("daemonsets.apps", "agent", json!({"status": counts, "metadata": {"annotations": generation}}));
    cluster.event(
        ("DaemonSet", "agent"),
        "daemonset-controller",
        "Normal",
        "SuccessfulCreate",
        "Created pod: agent-<r03>",
    );
    same(SCENARIO, "kubectl describe ds agent", &cluster.describe("daemonsets.apps", "agent"));

    let labels = json!({"batch.kubernetes.io/controller-uid": UID, "batch.kubernetes.io/job-name": "work", "controller-uid": UID, "job-name": "work"});
    let selector = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": UID}});
    let status =
        json!({"startTime": MOMENT, "completionTime": MOMENT, "ready": 0, "succeeded": 1, "completedIndexes": "0"});
    cluster.patch(
        "jobs.batch",
        "work",
        json!({"metadata": {"labels": labels}, "status": status,
        "spec": {"parallelism": 1, "selector": selector, "template": {"metadata": {"labels": labels}}}}),
    );
    cluster.event(("Job", "work"), "job-controller", "Normal", "SuccessfulCreate", "Created pod: work-0-<r04>");
    cluster.event(("Job", "work"), "job-controller", "Normal", "Completed", "Job completed");
    // The recording lost the line of the duration to a mask.
    let job = cluster.describe("jobs.batch", "work").replace("Duration:                    0s\n", "");
    same(SCENARIO, "kubectl describe job work", &job);
    same(SCENARIO, "kubectl describe cronjob tick", &cluster.describe("cronjobs.batch", "tick"));
}

#[test]
fn descriptions_of_others() {
    const SCENARIO: &str = "describe-others";
    let Some(mut cluster) = Cluster::load(SCENARIO, "all.yaml") else { return };
    let last_applied = "kubectl.kubernetes.io/last-applied-configuration";
    let network = json!({"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"], "clusterIP": "<cluster-ip>", "clusterIPs": ["<cluster-ip>"]});
    cluster.patch("services", "svc", json!({"spec": network}));
    let mut service = cluster.get("services", "default", "svc").expect("the service").0;
    for port in service["spec"]["ports"].as_array_mut().expect("ports") {
        // The mask of an allocated port; any number is replaced below.
        port["nodePort"] = 30_000.into();
    }
    cluster.patch("services", "svc", json!({"spec": {"ports": service["spec"]["ports"]}}));
    let trigger = json!({"endpoints.kubernetes.io/last-change-trigger-time": MOMENT});
    let ports =
        json!([{"name": "raw", "port": 8081, "protocol": "UDP"}, {"name": "web", "port": 8080, "protocol": "TCP"}]);
    cluster.add(json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "svc", "annotations": trigger,
        "labels": {"endpoints.kubernetes.io/managed-by": "endpoint-controller", "l": "v"}},
        "subsets": [{"addresses": [{"ip": "192.0.2.1"}], "ports": ports}]}));
    cluster.patch("endpoints", "svc", json!({"subsets": [{"addresses": [{"ip": "<pod-ip>"}], "ports": ports}]}));
    cluster.add(json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "ports": ports,
        "metadata": {"name": "svc-<r01>", "annotations": trigger, "labels": {"kubernetes.io/service-name": "svc", "l": "v",
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}},
        "endpoints": [{"addresses": ["<pod-ip>"], "conditions": {"ready": true}, "nodeName": "node-a", "zone": "z1", "targetRef": {"kind": "Pod", "name": "back"}}]}));
    let used = json!({"pods": "1", "requests.cpu": "0", "secrets": "1"});
    cluster.patch(
        "resourcequotas",
        "q",
        json!({"status": {"hard": {"pods": "5", "requests.cpu": "2", "secrets": "4"}, "used": used}}),
    );
    cluster.patch(
        "persistentvolumes",
        "golden-dpv",
        json!({"metadata": {"finalizers": ["kubernetes.io/pv-protection"]}, "status": {"phase": "Available"}}),
    );
    cluster.patch(
        "persistentvolumeclaims",
        "pvc",
        json!({"metadata": {"finalizers": ["kubernetes.io/pvc-protection"]}, "status": {"phase": "Pending"}}),
    );
    let condition = json!({"type": "AbleToScale", "status": "False", "reason": "FailedGetScale",
        "message": "the HPA controller was unable to get the target's current scale: deployments.apps \"nope\" not found"});
    cluster.patch("horizontalpodautoscalers.autoscaling", "hpa", json!({"status": {"conditions": [condition]}}));
    let counts = json!({"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1});
    cluster.patch("poddisruptionbudgets.policy", "pdb", json!({"status": counts}));
    let applied = r#"{"apiVersion":"scheduling.k8s.io/v1","description":"just a test","kind":"PriorityClass","metadata":{"annotations":{},"name":"golden-dpc"},"value":10}"#;
    cluster.patch(
        "priorityclasses.scheduling.k8s.io",
        "golden-dpc",
        json!({"metadata": {"annotations": {last_applied: format!("{applied}\n")}}}),
    );
    let applied = r#"{"apiVersion":"storage.k8s.io/v1","kind":"StorageClass","metadata":{"annotations":{"storageclass.kubernetes.io/is-default-class":"false"},"name":"golden-dsc"},"parameters":{"type":"fast"},"provisioner":"example.dev/none"}"#;
    cluster.patch(
        "storageclasses.storage.k8s.io",
        "golden-dsc",
        json!({"metadata": {"annotations": {last_applied: format!("{applied}\n")}}}),
    );
    cluster.add(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": {"kubernetes.io/metadata.name": "default"}}}));
    cluster.patch("namespaces", "default", json!({"status": {"phase": "Active"}}));
    let cases = [
        ("svc svc", "services"),
        ("svc ext", "services"),
        ("endpoints svc", "endpoints"),
        ("cm cm", "configmaps"),
        ("secret sec", "secrets"),
        ("ingress ing", "ingresses.networking.k8s.io"),
        ("pv golden-dpv", "persistentvolumes"),
        ("quota q", "resourcequotas"),
        ("limits lr", "limitranges"),
        ("pdb pdb", "poddisruptionbudgets.policy"),
        ("role r", "roles.rbac.authorization.k8s.io"),
        ("rolebinding rb", "rolebindings.rbac.authorization.k8s.io"),
        ("sa sa", "serviceaccounts"),
        ("networkpolicy np", "networkpolicies.networking.k8s.io"),
        ("priorityclass golden-dpc", "priorityclasses.scheduling.k8s.io"),
        ("sc golden-dsc", "storageclasses.storage.k8s.io"),
        ("lease l", "leases.coordination.k8s.io"),
        ("namespace default", "namespaces"),
    ];
    for (words, resource) in cases {
        let name = words.rsplit(' ').next().expect("a name");
        let ours = cluster.describe(resource, name).replace("30000", "<node-port>");
        same(SCENARIO, &format!("kubectl describe {words}"), &ours);
    }
    let slice = cluster.describe("endpointslices.discovery.k8s.io", "svc-<r01>");
    same(SCENARIO, "kubectl describe endpointslice -l kubernetes.io/service-name=svc", &slice);
    // The recordings lost the rows of these events to a mask.
    for (words, resource) in
        [("pvc pvc", "persistentvolumeclaims"), ("hpa hpa", "horizontalpodautoscalers.autoscaling")]
    {
        let recorded = recorded(SCENARIO, &format!("kubectl describe {words}"));
        let name = words.rsplit(' ').next().expect("a name");
        let before = |text: &str| text.split_once("\nEvents:").expect("events").0.to_owned();
        assert_eq!(before(&cluster.describe(resource, name)), before(&recorded), "{words}");
    }
    let wide = cluster.table("persistentvolumeclaims", TableOptions { wide: true, ..TableOptions::default() });
    same(SCENARIO, "kubectl get pvc pvc -o wide", &wide);
}

#[test]
fn description_of_a_node() {
    const SCENARIO: &str = "describe-node";
    let Some(mut cluster) = Cluster::load(SCENARIO, "node.yaml") else { return };
    let pod = std::fs::read_to_string(golden::folder(SCENARIO).expect("folder").join("pod.yaml")).expect("file");
    cluster.add(serde_yaml::from_str(&pod).expect("yaml"));
    cluster.patch(
        "nodes",
        "golden-nd",
        json!({"metadata": {"annotations": {"node.alpha.kubernetes.io/ttl": "0", "n": null, "false": "v"}},
        "spec": {"podCIDRs": ["10.9.0.0/24"]}}),
    );
    let patch = golden::steps(SCENARIO)
        .into_iter()
        .find(|step| step.command.contains("patch node"))
        .expect("the patch")
        .command;
    let patch = patch.split_once("-p '").expect("a patch").1.trim_end_matches('\'').replace("<time>", MOMENT);
    cluster.patch("nodes", "golden-nd", serde_json::from_str(&patch).expect("json"));
    cluster.hide_events = true;
    same(SCENARIO, "kubectl describe node golden-nd --show-events=false", &cluster.describe("nodes", "golden-nd"));
    let wide = cluster.table("nodes", TableOptions { wide: true, ..TableOptions::default() });
    same_words(SCENARIO, "kubectl get node golden-nd -o wide", &wide);
}

/// Returns the three pods of a scenario; the third is like the second except for some fields.
fn recorded_pods() -> Option<[Value; 3]> {
    golden::folder("get-outputs")?;
    let alpha: Value = serde_yaml::from_str(&recorded("get-outputs", "kubectl get pod alpha -o yaml")).expect("yaml");
    let beta: Value = serde_yaml::from_str(&recorded("get-outputs", "kubectl get pods -o kyaml beta")).expect("kyaml");
    let mut gamma = beta.clone();
    for (path, value) in [
        ("/metadata/name", "gamma"),
        ("/metadata/labels/app", "a"),
        ("/spec/nodeName", "node-c"),
        ("/spec/containers/0/image", "nginx:1.28"),
        ("/status/containerStatuses/0/image", "nginx:1.28"),
    ] {
        *gamma.pointer_mut(path).expect("a field") = value.into();
    }
    Some([alpha, beta, gamma])
}

/// Removes quotes of masks in JSON; a masked time or revision has no quotes in YAML, a real one has.
fn unquoted(text: &str) -> String {
    let text = text.replace("\\u003c", "<").replace("\\u003e", ">");
    // The recording has no empty lines at the end and always a newline.
    text.replace("\"<time>\"", "<time>").replace("\"<rv>\"", "<rv>").trim_end_matches('\n').to_owned()
}

#[test]
fn output_formats() {
    let Some([alpha, beta, gamma]) = recorded_pods() else { return };
    let mut compared = 0;
    for step in golden::steps("get-outputs") {
        let command = step.command.as_str();
        let (objects, rest) = if let Some(rest) = command.strip_prefix("kubectl get pods -o ") {
            (vec![&alpha, &beta, &gamma], rest)
        } else if let Some(rest) = command.strip_prefix("kubectl get pods beta gamma -o ") {
            (vec![&beta, &gamma], rest)
        } else if let Some(rest) = command.strip_prefix("kubectl get pod alpha -o ") {
            (vec![&alpha], rest)
        } else {
            continue;
        };
        // The words after the shell has removed the quotes.
        let output = rest.replace(['\'', '"'], "");
        let output = match rest.split_once('=') {
            Some((name, text)) if text.starts_with('\'') => format!("{name}={}", text.trim_end().trim_matches('\'')),
            Some((name, text)) if text.starts_with('"') => format!("{name}={}", text.trim_matches('"')),
            _ => output,
        };
        if output.starts_with("wide") || rest.contains(" --") || output.contains(' ') && !output.contains('{') {
            continue;
        }
        let mut read = |path: &str| {
            std::fs::read_to_string(golden::folder("get-outputs").expect("folder").join(path))
                .map_err(|error| error.to_string())
        };
        let flags = OutputFlags { tables: true, ..OutputFlags::default() };
        let printed = OutputFormat::parse(&output, flags, &mut read).and_then(|format| {
            let mut printer = kloop::show::print::ObjectPrinter::new(format, false);
            match objects.as_slice() {
                [one] => printer.object(one),
                several => printer.list(several.iter().map(|object| (*object).clone()).collect()),
            }
        });
        match printed {
            Ok(text) => assert_eq!(unquoted(&text), unquoted(&step.stdout), "{command}"),
            Err(error) => assert_eq!(format!("error: {error}\n"), step.stderr, "{command}"),
        }
        compared += 1;
    }
    assert!(compared >= 25, "{compared} compared");
    let ours = kloop::show::kyaml::to_kyaml(&beta);
    same("get-outputs", "kubectl get pods -o kyaml beta", &ours);
}

#[test]
fn every_kind_has_as_many_cells_as_columns() {
    let cluster = Cluster::default();
    for kind in kinds::ALL {
        let object = Object(json!({"kind": kind.kind, "metadata": {"name": "x"}}));
        let view = kind.view;
        assert_eq!((view.cells)(&object, now()).len(), view.columns.len(), "{}", kind.kind);
        assert!(describe(kind, &object, &cluster).starts_with("Name:"), "{}", kind.kind);
    }
}
