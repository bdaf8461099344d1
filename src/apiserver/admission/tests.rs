//! The built-in plugins by the answers of writes, in memory.

use crate::apiserver::create::create;
use crate::apiserver::object_parts::{EPHEMERAL_CONTAINERS, RESIZE};
use crate::apiserver::update::{UpdatePart, update};
use crate::apiserver::{Api, WriteOptions, read};
use crate::object::{Key, Object, Resource};
use serde_json::{Value, json};

struct Cluster(Api);

impl Cluster {
    /// A cluster with these objects, in YAML.
    fn new(objects: &str) -> Cluster {
        let mut cluster = Cluster(Api::in_memory("test").unwrap());
        for object in serde_yaml::Deserializer::from_str(objects) {
            let object: Value = serde::Deserialize::deserialize(object).unwrap();
            if object.is_null() {
                continue;
            }
            cluster.create(object.clone()).unwrap_or_else(|why| panic!("{object}: {why}"));
        }
        cluster
    }

    fn create(&mut self, object: Value) -> Result<Value, String> {
        let object = Object(object);
        let made = self.0.write(false, |txn| {
            let kind = txn.kinds().by_kind(object.api_version(), object.kind()).expect("a kind");
            create(txn, kind, &object, &WriteOptions::default())
        });
        made.map(|reply| reply.object.0.clone()).map_err(|status| status.message)
    }

    fn update(&mut self, object: Value, part: UpdatePart) -> Result<Value, String> {
        let object = Object(object);
        let made = self.0.write(false, |txn| {
            let kind = txn.kinds().by_kind(object.api_version(), object.kind()).expect("a kind");
            update(txn, kind, &object, part, &WriteOptions::default())
        });
        made.map(|reply| reply.object.0.clone()).map_err(|status| status.message)
    }
}

fn pod(name: &str, spec: Value) -> Value {
    let mut whole = json!({"containers": [{"name": "c", "image": "x"}]});
    json_patch::merge(&mut whole, &spec);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": whole})
}

const LIMITS: &str = "
{apiVersion: v1, kind: LimitRange, metadata: {name: l, namespace: default}, spec: {limits: [
  {type: Container, max: {cpu: '2'}, default: {cpu: '1'}, defaultRequest: {cpu: 500m}},
  {type: Pod, max: {cpu: '2'}}, {type: PersistentVolumeClaim, max: {storage: 2Gi}}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: n, labels: {kubernetes.io/os: linux}}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c, namespace: default}, spec: {accessModes: [ReadWriteOnce],
  resources: {requests: {storage: 1Gi}}}}
";

#[test]
fn limit_ranger_counts_sidecars_and_bounds_resizes_and_claims() {
    let mut cluster = Cluster::new(LIMITS);
    let sidecar = json!({"name": "s", "image": "x", "restartPolicy": "Always"});
    let init = json!({"name": "i", "image": "x", "resources": {"limits": {"cpu": "1500m"}}});
    cluster.create(pod("fits", json!({"initContainers": [init, sidecar]}))).unwrap();
    let refused = cluster.create(pod("big", json!({"initContainers": [sidecar, init]}))).unwrap_err();
    assert_eq!(refused, "pods \"big\" is forbidden: maximum cpu usage per Pod is 2, but limit is 2500m");
    let mut small = cluster.create(pod("small", json!({}))).unwrap();
    small["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "500m"}, "limits": {"cpu": "3"}});
    let refused = cluster.update(small, UpdatePart::Of(&RESIZE)).unwrap_err();
    let why = "maximum cpu usage per Container is 2, but limit is 3, maximum cpu usage per Pod is 2, but limit is 3";
    assert_eq!(refused, format!("pods \"small\" is forbidden: [{why}]"));
    let mut claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "standard"}, "status": {"phase": "Bound"}});
    let bound = cluster.update(claim.clone(), UpdatePart::Status).unwrap();
    claim["spec"] = bound["spec"].clone();
    claim["spec"]["resources"]["requests"]["storage"] = "3Gi".into();
    let refused = cluster.update(claim, UpdatePart::Main).unwrap_err();
    assert!(
        refused.contains("maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"),
        "{refused}"
    );
}

#[test]
fn service_account_gives_its_pull_secrets_and_restricts_secrets_on_request() {
    let mut cluster = Cluster::new(
        "
{apiVersion: v1, kind: ServiceAccount, metadata: {name: free, namespace: default}, imagePullSecrets: [{name: pull}]}
---
{apiVersion: v1, kind: ServiceAccount, secrets: [{name: mine}], metadata: {name: strict, namespace: default,
  annotations: {kubernetes.io/enforce-mountable-secrets: 'true'}}}
",
    );
    let made = cluster.create(pod("a", json!({"serviceAccountName": "free"}))).unwrap();
    assert_eq!(made["spec"]["imagePullSecrets"], json!([{"name": "pull"}]));
    let mut strict = |name: &str, spec: Value| {
        let mut whole = json!({"serviceAccountName": "strict"});
        json_patch::merge(&mut whole, &spec);
        cluster.create(pod(name, whole)).map(|_| ())
    };
    let volume = |secret: &str| json!({"volumes": [{"name": "v", "secret": {"secretName": secret}}]});
    assert_eq!(strict("b", volume("mine")), Ok(()));
    let end = "is not allowed because service account strict does not reference that";
    let refused = format!("pods \"c\" is forbidden: volume with secret.secretName=\"other\" {end} secret");
    assert_eq!(strict("c", volume("other")), Err(refused));
    let refused = format!("pods \"d\" is forbidden: imagePullSecrets[0].name=\"p\" {end} imagePullSecret");
    assert_eq!(strict("d", json!({"imagePullSecrets": [{"name": "p"}]})), Err(refused));
    let variable = json!({"name": "E", "valueFrom": {"secretKeyRef": {"name": "other", "key": "k"}}});
    let refused = format!(
        "pods \"e\" is forbidden: container c with envVar E referencing secret.secretName=\"other\" {end} secret"
    );
    let env = json!({"containers": [{"name": "c", "image": "x", "env": [variable]}]});
    assert_eq!(strict("e", env), Err(refused));
    let all = json!({"secretRef": {"name": "other"}});
    let refused = format!(
        "pods \"f\" is forbidden: container c with envFrom referencing secret.secretName=\"other\" {end} secret"
    );
    assert_eq!(strict("f", json!({"containers": [{"name": "c", "image": "x", "envFrom": [all]}]})), Err(refused));
    let mut debugged = pod("b", json!({}));
    debugged["spec"]["ephemeralContainers"] = json!([{"name": "d", "image": "x", "env": [variable]}]);
    let what = "ephemeral container d with envVar E referencing secret.secretName=\"other\"";
    let refused = format!("pods \"b\" is forbidden: {what} {end} secret");
    assert_eq!(cluster.update(debugged, UpdatePart::Of(&EPHEMERAL_CONTAINERS)), Err(refused));
}

#[test]
fn objects_of_too_many_values_are_refused() {
    let mut cluster = Cluster::new("");
    let containers = |count: usize| vec![json!({}); count];
    let refused = cluster.create(pod("a", json!({"containers": containers(100_001)}))).unwrap_err();
    assert_eq!(refused, "Request entity too large: limit is 100000 values");
    let refused = cluster.create(pod("a", json!({"containers": containers(1001)}))).unwrap_err();
    assert_eq!(refused, "Pod \"a\" is invalid: spec.containers: Too many: 1001: must have at most 1000 items");
}

#[test]
fn mirror_pod_needs_nothing_of_the_api() {
    let mut cluster = Cluster::new("");
    let mut mirror = |spec: Value| {
        let mut pod = pod("m", spec);
        pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        cluster.create(pod).unwrap_err()
    };
    let start = "pods \"m\" is forbidden: a mirror pod may not";
    assert_eq!(mirror(json!({"serviceAccountName": "default"})), format!("{start} reference service accounts"));
    let secret = json!({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]});
    assert_eq!(mirror(secret), format!("{start} reference secrets"));
    let token = json!({"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]});
    assert_eq!(mirror(token), format!("{start} use ServiceAccountToken volume projections"));
}

#[test]
fn refusal_before_validation_names_the_start_of_a_generated_name() {
    let mut cluster = Cluster::new("");
    let mut pod = pod("", json!({"serviceAccountName": "none"}));
    pod["metadata"] = json!({"generateName": "web-", "namespace": "default"});
    let refused = cluster.create(pod).unwrap_err();
    assert_eq!(
        refused,
        "pods \"web-\" is forbidden: error looking up service account default/none: serviceaccount \"none\" not found"
    );
}

#[test]
fn one_priority_class_is_the_default() {
    let class = |name: &str, default: bool| json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 5, "globalDefault": default});
    let mut cluster = Cluster::new("");
    cluster.create(class("a", true)).unwrap();
    cluster.create(class("b", false)).unwrap();
    let refused = |name: &str| {
        format!(
            "priorityclasses.scheduling.k8s.io \"{name}\" is forbidden: PriorityClass a is already marked as default. Only one default can exist"
        )
    };
    assert_eq!(cluster.create(class("c", true)), Err(refused("c")));
    assert_eq!(cluster.update(class("b", true), UpdatePart::Main), Err(refused("b")));
    cluster.update(class("a", true), UpdatePart::Main).unwrap();
}

#[test]
fn replaced_pod_keeps_its_priority_and_default_tolerations() {
    let mut cluster = Cluster::new("");
    let made = cluster.create(pod("a", json!({}))).unwrap();
    let mut body = made.clone();
    for field in ["priority", "preemptionPolicy", "tolerations"] {
        body["spec"].as_object_mut().unwrap().remove(field);
    }
    body["metadata"]["labels"] = json!({"new": "1"});
    let kept = cluster.update(body, UpdatePart::Main).unwrap();
    assert_eq!(kept["spec"], made["spec"]);
}

#[test]
fn runtime_class_without_overhead_refuses_one_after_validation() {
    let mut cluster = Cluster::new("{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: r}, handler: x}");
    let with = json!({"overhead": {"cpu": "1"}});
    assert_eq!(
        cluster.create(pod("a", with)).unwrap_err(),
        "pods \"a\" is forbidden: pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
    );
    let wrong = cluster.create(pod("a", json!({"overhead": {"cpu": "1"}, "dnsPolicy": "Wrong"}))).unwrap_err();
    assert!(wrong.contains("spec.dnsPolicy"), "{wrong}");
}

#[test]
fn resize_stays_within_the_node() {
    let mut cluster = Cluster::new("{apiVersion: v1, kind: Node, metadata: {name: n}}");
    let requests = json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2"}});
    let container = json!([{"name": "c", "image": "x", "resources": requests}]);
    let mut made = cluster.create(pod("a", json!({"nodeName": "n", "containers": container}))).unwrap();
    made["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1500m".into();
    assert_eq!(
        cluster.update(made, UpdatePart::Of(&RESIZE)).unwrap_err(),
        "pods \"a\" is forbidden: Node didn't have enough allocatable resources: cpu, requested: 1500, allocatable: 0"
    );
}

#[test]
fn quota_counts_ports_of_nodes_and_devices() {
    let mut cluster = Cluster::new(
        "
{apiVersion: v1, kind: ResourceQuota, metadata: {name: q, namespace: default}, spec: {hard: {services.nodeports: '2',
  gpu.deviceclass.resource.k8s.io/devices: '3'}}}
",
    );
    let service = |ports: usize| {
        let ports: Vec<Value> = (0..ports).map(|port| json!({"name": format!("p{port}"), "port": 80 + port})).collect();
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "default"},
            "spec": {"type": "NodePort", "ports": ports}})
    };
    let mut made = cluster.create(service(2)).unwrap();
    made["spec"]["ports"] = service(3)["spec"]["ports"].clone();
    assert_eq!(
        cluster.update(made, UpdatePart::Main).unwrap_err(),
        "services \"s\" is forbidden: exceeded quota: q, requested: services.nodeports=1, used: services.nodeports=2, limited: services.nodeports=2"
    );
    let alternatives = json!([{"name": "few", "deviceClassName": "gpu", "count": 1}, {"name": "many", "deviceClassName": "gpu", "count": 4}]);
    let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c", "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "r", "firstAvailable": alternatives}]}}});
    let refused = cluster.create(claim).unwrap_err();
    assert!(refused.contains("requested: gpu.deviceclass.resource.k8s.io/devices=4,"), "{refused}");
}

#[test]
fn admin_access_to_devices_needs_a_label_of_the_namespace() {
    const LABEL: &str = "resource.kubernetes.io/admin-access";
    let mut cluster = Cluster::new(&format!(
        "{{apiVersion: v1, kind: Namespace, metadata: {{name: admin, labels: {{{LABEL}: 'true'}}}}}}\n---\n\
         {{apiVersion: v1, kind: Namespace, metadata: {{name: other, labels: {{{LABEL}: 'false'}}}}}}"
    ));
    let object = |kind: &str, namespace: &str, access: bool| {
        let exactly = json!({"deviceClassName": "gpu", "adminAccess": access});
        let claim = json!({"devices": {"requests": [{"name": "r", "exactly": exactly}]}});
        let spec = if kind == "ResourceClaim" { claim } else { json!({"spec": claim}) };
        let name = format!("c-{access}");
        json!({"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec})
    };
    for kind in ["ResourceClaim", "ResourceClaimTemplate"] {
        let refused = format!(
            "{kind}.resource.k8s.io \"c-true\" is invalid: spec.devices.requests[0].adminAccess: Forbidden: admin access to devices requires the `{LABEL}: true` label \
             on the containing namespace"
        );
        for (namespace, access, expected) in [
            ("default", false, None),
            ("default", true, Some(&refused)),
            ("other", true, Some(&refused)),
            ("admin", true, None),
        ] {
            let answer = cluster.create(object(kind, namespace, access));
            assert_eq!(answer.as_ref().err(), expected, "{kind} {namespace} {access}");
        }
    }
    let mut claim = cluster
        .0
        .read_view(|txn| txn.get(&Key::new(Resource("resourceclaims.resource.k8s.io"), "default", "c-false")))
        .unwrap()
        .unwrap();
    let result = json!({"request": "r", "driver": "d.example", "pool": "p", "device": "d", "adminAccess": true});
    claim.set(&["status", "allocation", "devices", "results"], json!([result]));
    let refused = cluster.update(claim.0.clone(), UpdatePart::Status).unwrap_err();
    assert!(refused.contains("status.allocation.devices.results[0].adminAccess: Forbidden: admin access"), "{refused}");
}

#[test]
fn quota_charges_writes_to_the_usage_in_its_status() {
    let mut cluster = Cluster::new("");
    let hard = json!({"count/configmaps": "5", "requests.memory": "10Gi"});
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": hard}});
    let mut made = cluster.create(quota).unwrap();
    made["status"] = json!({"hard": hard, "used": {"count/configmaps": "3", "requests.memory": "1Gi"}});
    cluster.update(made, UpdatePart::Status).unwrap();
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}});
    let used = |cluster: &mut Cluster, name: &str| {
        let quota = Key::new(Resource("resourcequotas"), "default", "q");
        cluster.0.write(false, |txn| read::exact(txn, &quota)).unwrap().0["status"]["used"][name].clone()
    };
    for (name, count) in [("a", "4"), ("b", "5")] {
        cluster.create(map(name)).unwrap();
        assert_eq!(used(&mut cluster, "count/configmaps"), count, "other objects are not counted");
    }
    cluster.create(map("c")).unwrap();
    assert_eq!(used(&mut cluster, "count/configmaps"), "3", "counted where the status would refuse it");
    let asks = |memory: &str| {
        let container = json!([{"name": "c", "image": "x", "resources": {"requests": {"memory": memory}}}]);
        pod("p", json!({"containers": container}))
    };
    for huge in ["9223372036854775807", "7E", "100E"] {
        let refused = cluster.create(asks(huge)).unwrap_err();
        assert!(refused.contains("exceeded quota: q, requested: requests.memory="), "{refused}");
    }
    cluster.create(asks("2Gi")).unwrap();
    assert_eq!(used(&mut cluster, "requests.memory"), "3Gi");
}

#[test]
fn volume_attributes_class_is_protected() {
    let mut cluster = Cluster::new("");
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass", "metadata": {"name": "v"}, "driverName": "d",
        "parameters": {"a": "b"}});
    assert_eq!(cluster.create(class).unwrap()["metadata"]["finalizers"], json!(["kubernetes.io/vac-protection"]));
}
