//! StatefulSets end to end.

use crate::controllers::testing::{Cluster, cluster};
use crate::world::{World, WriteVerb};
use serde_json::{Value, json};

const DB: &str = "
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 3
  serviceName: db
  podManagementPolicy: OrderedReady
  revisionHistoryLimit: 10
  updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 0}}
  selector: {matchLabels: {app: db}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: c, image: 'pg:1'}]}}
  volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce]}}]
";

fn image(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}})
}

fn images(cluster: &Cluster) -> String {
    let image = |row: &std::sync::Arc<crate::world::Row>| {
        format!("{}={}", row.key.name, row.object().0["spec"]["containers"][0]["image"].as_str().unwrap())
    };
    cluster.world.list("pods").map(image).collect::<Vec<_>>().join(" ")
}

/// Asserts that a pod exists only when all previous ones are ready.
fn assert_order(world: &World) {
    let pods: Vec<_> = world.list("pods").collect();
    for pair in pods.windows(2) {
        assert!(
            pair[0].pod().unwrap().ready || pair[1].pod().unwrap().ready || pair[1].is_deleting(),
            "{}",
            pair[1].key
        );
    }
}

#[test]
fn pods_are_created_in_order_with_names_and_claims() {
    for seed in 0..6 {
        let mut cluster = cluster(DB).seeded(seed);
        cluster.check = Box::new(assert_order);
        cluster.settle();
        assert_eq!(images(&cluster), "db-0=pg:1 db-1=pg:1 db-2=pg:1");
        assert_eq!(cluster.names("persistentvolumeclaims"), "data-db-0 data-db-1 data-db-2");
        let status = cluster.value("statefulsets.apps", "db", "/status");
        for name in ["replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas"] {
            assert_eq!(status[name], 3, "{name}");
        }
        assert_eq!(status["currentRevision"], status["updateRevision"]);
        let pod = cluster.object("pods", "db-1");
        assert_eq!(pod.text(&["spec", "subdomain"]), Some("db"));
        assert_eq!(pod.label("apps.kubernetes.io/pod-index"), Some("1"));
        assert_eq!(pod.0["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], "data-db-1");
        assert!(cluster.logged("event: SuccessfulCreate Create Claim data-db-0 Pod db-0 in StatefulSet db success"));
        assert!(cluster.logged("event: SuccessfulCreate Create Pod db-0 in StatefulSet db successful"));
    }
}

/// Pods that are applied first are placed first (`golden/pods-replaced`): the first pod must not wait for a second
/// plan, which would come after the plans of all other due keys.
#[test]
fn first_plan_creates_the_revision_and_the_first_pod() {
    let cluster = cluster(DB);
    let made = (super::LOOP.plan)(&cluster.world, &cluster.key("statefulsets.apps", "db")).writes;
    let made = made.iter().filter_map(|write| match &write.verb {
        WriteVerb::Create(object) => Some(object.kind().to_owned()),
        _ => None,
    });
    assert_eq!(made.collect::<Vec<_>>(), ["ControllerRevision", "PersistentVolumeClaim", "Pod"]);
}

/// Follows `golden/rollout-sts-ds`: partition, undo, scale.
#[test]
fn rollout_proceeds_from_the_highest_ordinal_to_the_partition() {
    let mut cluster = cluster(DB);
    cluster.settle();
    cluster.patch("statefulsets.apps", "db", image("pg:2"));
    cluster.settle();
    assert_eq!(images(&cluster), "db-0=pg:2 db-1=pg:2 db-2=pg:2");
    cluster.patch("statefulsets.apps", "db", json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 2}}}}));
    cluster.patch("statefulsets.apps", "db", image("pg:3"));
    cluster.settle();
    assert_eq!(images(&cluster), "db-0=pg:2 db-1=pg:2 db-2=pg:3");
    let status = cluster.value("statefulsets.apps", "db", "/status");
    assert_eq!((&status["currentReplicas"], &status["updatedReplicas"]), (&json!(2), &json!(1)));
    cluster.delete("pods", "db-0", Default::default());
    cluster.settle();
    assert_eq!(images(&cluster), "db-0=pg:2 db-1=pg:2 db-2=pg:3");
    cluster.patch("statefulsets.apps", "db", image("pg:1"));
    cluster.settle();
    assert_eq!(images(&cluster), "db-0=pg:2 db-1=pg:2 db-2=pg:1");
    assert_eq!(cluster.count("controllerrevisions.apps"), 3);
    cluster.patch("statefulsets.apps", "db", json!({"spec": {"replicas": 1}}));
    cluster.settle();
    assert_eq!(images(&cluster), "db-0=pg:2");
    assert_eq!(cluster.count("persistentvolumeclaims"), 3);
}

#[test]
fn ended_pod_is_recreated() {
    let mut cluster = cluster(DB);
    cluster.settle();
    let uid = cluster.object("pods", "db-1").uid().to_owned();
    let mut pod = cluster.object("pods", "db-1");
    pod.set(&["status", "phase"], "Failed");
    cluster.write_status(pod);
    cluster.settle();
    assert_ne!(cluster.object("pods", "db-1").uid(), uid);
    assert!(cluster.logged("event: SuccessfulDelete Delete Pod db-1 in StatefulSet db successful"));
}

#[test]
fn parallel_pod_management_does_not_wait() {
    let mut cluster = cluster(&DB.replace("OrderedReady", "Parallel"));
    cluster.kubelet = false;
    cluster.settle();
    assert_eq!(cluster.count("pods"), 3);
}

#[test]
fn revision_history_is_bounded() {
    let mut cluster = cluster(&DB.replace("revisionHistoryLimit: 10", "revisionHistoryLimit: 1"));
    for next in ["pg:2", "pg:3", "pg:4"] {
        cluster.patch("statefulsets.apps", "db", image(next));
        cluster.settle();
    }
    assert_eq!(cluster.count("controllerrevisions.apps"), 2);
}

#[test]
fn rollout_replaces_one_pod_at_a_time_even_with_max_unavailable() {
    for seed in 0..6 {
        let mut cluster = cluster(DB).seeded(seed);
        let spec = json!({"replicas": 4, "podManagementPolicy": "Parallel",
            "updateStrategy": {"rollingUpdate": {"maxUnavailable": 2}}});
        cluster.patch("statefulsets.apps", "db", json!({ "spec": spec }));
        cluster.settle();
        cluster.check = Box::new(|world| {
            let ready = world.list("pods").filter(|pod| pod.pod().unwrap().ready && !pod.is_deleting()).count();
            assert!(ready >= 3, "{ready} are ready");
        });
        cluster.patch("statefulsets.apps", "db", image("pg:2"));
        cluster.settle();
        assert_eq!(images(&cluster), "db-0=pg:2 db-1=pg:2 db-2=pg:2 db-3=pg:2", "seed {seed}");
    }
}

#[test]
fn retention_policy_deletes_claims_on_scale_down_or_deletion() {
    let owners = |cluster: &Cluster, name: &str| {
        let claim = cluster.object("persistentvolumeclaims", name);
        let kinds = claim.items(&["metadata", "ownerReferences"]).iter();
        kinds.map(|owner| owner["kind"].as_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
    };
    let retention = |scaled: &str, deleted: &str| json!({"spec": {"persistentVolumeClaimRetentionPolicy": {"whenScaled": scaled, "whenDeleted": deleted}}});
    for (scaled, deleted, of_set, left, at_the_end) in [
        ("Retain", "Retain", "", 3, 3),
        ("Retain", "Delete", "StatefulSet", 3, 0),
        ("Delete", "Retain", "", 1, 1),
        ("Delete", "Delete", "StatefulSet", 1, 0),
    ] {
        let mut cluster = cluster(DB);
        cluster.settle();
        // The policy may change at any time.
        cluster.patch("statefulsets.apps", "db", retention(scaled, deleted));
        cluster.settle();
        assert_eq!(owners(&cluster, "data-db-2"), of_set, "{scaled} {deleted}");
        cluster.patch("statefulsets.apps", "db", json!({"spec": {"replicas": 1}}));
        cluster.settle();
        assert_eq!(cluster.count("persistentvolumeclaims"), left, "{scaled} {deleted}");
        cluster.patch("statefulsets.apps", "db", json!({"spec": {"replicas": 3}}));
        cluster.pass(10);
        assert_eq!(images(&cluster), "db-0=pg:1 db-1=pg:1 db-2=pg:1", "{scaled} {deleted}");
        assert_eq!(cluster.count("persistentvolumeclaims"), 3);
        assert_eq!(owners(&cluster, "data-db-2"), of_set, "{scaled} {deleted}");
        cluster.patch("statefulsets.apps", "db", json!({"spec": {"replicas": 1}}));
        cluster.settle();
        cluster.delete("statefulsets.apps", "db", Default::default());
        cluster.pass(10);
        assert_eq!(cluster.count("persistentvolumeclaims"), at_the_end, "{scaled} {deleted}");
    }
}

#[test]
fn owners_of_claims_are_restored_unless_others_control_the_claim() {
    let mut cluster = cluster(&format!("{DB}\n---\n{{apiVersion: v1, kind: ConfigMap, metadata: {{name: other}}}}"));
    let retention = json!({"whenScaled": "Retain", "whenDeleted": "Delete"});
    cluster.patch("statefulsets.apps", "db", json!({"spec": {"persistentVolumeClaimRetentionPolicy": retention}}));
    cluster.settle();
    let path = "/metadata/ownerReferences";
    let own = cluster.value("persistentvolumeclaims", "data-db-0", path)[0].clone();
    let with = |field: &str, value: serde_json::Value| {
        let mut changed = own.clone();
        changed[field] = value;
        changed
    };
    let uid = cluster.value("configmaps", "other", "/metadata/uid");
    let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": uid});
    let mut controller = other.clone();
    controller["controller"] = true.into();
    for (owners, expected) in [
        (json!([with("controller", json!(false)), other]), json!([other, own])),
        (json!([own, controller]), json!([controller])),
        (json!([controller]), json!([controller])),
    ] {
        cluster.patch("persistentvolumeclaims", "data-db-0", json!({"metadata": {"ownerReferences": owners}}));
        cluster.settle();
        assert_eq!(cluster.value("persistentvolumeclaims", "data-db-0", path), expected, "{owners}");
    }
}

#[test]
fn refused_pods_are_reported_and_created_once_allowed() {
    let mut cluster = cluster(DB);
    cluster.allowed_pods = 1;
    cluster.pass(60);
    assert_eq!(cluster.names("pods"), "db-0");
    assert!(
        cluster
            .logged("event: FailedCreate Create Pod db-1 in StatefulSet db failed error: pods \"db-1\" is forbidden")
    );
    assert!(cluster.log.len() < 60, "{} writes and events", cluster.log.len());
    cluster.allowed_pods = usize::MAX;
    cluster.pass(100);
    assert_eq!(cluster.names("pods"), "db-0 db-1 db-2");
}

/// Sets the condition Ready of a pod.
fn set_ready(cluster: &mut Cluster, name: &str, ready: &str) {
    let mut pod = cluster.object("pods", name);
    pod.set(&["status", "conditions"], vec![json!({"type": "Ready", "status": ready})]);
    cluster.write_status(pod);
    cluster.settle();
}

#[test]
fn scaling_halts_at_an_unready_pod() {
    let mut cluster = cluster(DB);
    cluster.settle();
    cluster.kubelet = false;
    for name in ["db-2", "db-0"] {
        set_ready(&mut cluster, name, "False");
    }
    cluster.patch("statefulsets.apps", "db", json!({"spec": {"replicas": 5}}));
    cluster.settle();
    assert_eq!(cluster.names("pods"), "db-0 db-1 db-2", "no more pods while one is unready");
    cluster.patch("statefulsets.apps", "db", json!({"spec": {"replicas": 1}}));
    cluster.settle();
    assert!(cluster.world.list("pods").all(|pod| !pod.is_deleting()), "no fewer pods while an earlier one is unready");
    set_ready(&mut cluster, "db-0", "True");
    let deleted: Vec<&str> =
        cluster.world.list("pods").filter(|pod| pod.is_deleting()).map(|pod| &*pod.key.name).collect();
    assert!(deleted == ["db-2"] || cluster.names("pods") == "db-0 db-1", "{deleted:?} {}", cluster.names("pods"));
}

#[test]
fn recreated_stateful_set_adopts_its_orphaned_pods_and_revisions() {
    let mut cluster = cluster(DB);
    cluster.settle();
    let uids = |cluster: &Cluster| -> Vec<String> {
        let rows = cluster.world.list("pods").chain(cluster.world.list("controllerrevisions.apps"));
        rows.map(|row| row.uid.to_string()).collect()
    };
    let before = uids(&cluster);
    cluster.delete("statefulsets.apps", "db", crate::world::Propagation::Orphan);
    cluster.settle();
    cluster.add(DB);
    cluster.settle();
    assert_eq!(uids(&cluster), before);
    let owner = cluster.object("statefulsets.apps", "db").uid().to_owned();
    for row in cluster.world.list("pods").chain(cluster.world.list("controllerrevisions.apps")) {
        assert_eq!(row.controller().map(|owner| owner.uid.to_string()), Some(owner.clone()), "{}", row.key);
    }
    assert!(cluster.value("statefulsets.apps", "db", "/status/collisionCount") == 0);
}

#[test]
fn missing_claim_of_a_pending_pod_is_created_again() {
    let mut cluster = cluster(DB);
    cluster.kubelet = false;
    cluster.settle();
    let before = cluster.object("persistentvolumeclaims", "data-db-0").uid().to_owned();
    cluster.delete("persistentvolumeclaims", "data-db-0", Default::default());
    cluster.settle();
    assert_ne!(cluster.object("persistentvolumeclaims", "data-db-0").uid(), before);
    cluster.kubelet = true;
    cluster.settle();
    cluster.delete("persistentvolumeclaims", "data-db-0", Default::default());
    cluster.settle();
    assert_eq!(cluster.names("persistentvolumeclaims"), "data-db-1 data-db-2", "a running pod needs no new claim");
}

#[test]
fn pod_gets_its_identity_labels_back() {
    let mut cluster = cluster(DB);
    cluster.settle();
    for label in ["db-1", ""] {
        let label = Some(label).filter(|label| !label.is_empty());
        let labels = json!({"statefulset.kubernetes.io/pod-name": label, "apps.kubernetes.io/pod-index": null});
        cluster.patch("pods", "db-0", json!({"metadata": {"labels": labels}}));
        cluster.settle();
        let pod = cluster.object("pods", "db-0");
        assert_eq!(pod.label("statefulset.kubernetes.io/pod-name"), Some("db-0"));
        assert_eq!(pod.label("apps.kubernetes.io/pod-index"), Some("0"));
    }
}
