//! Binding, protection and phases of claims and volumes, each with all controllers.

use crate::controllers::testing::{Cluster, cluster};
use serde_json::{Value, json};

const STORAGE: &str = "
{apiVersion: v1, kind: PersistentVolume, metadata: {name: v1, finalizers: [kubernetes.io/pv-protection]}, spec: {capacity: {storage: 2Gi}, accessModes: [ReadWriteOnce], storageClassName: hand}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: v2}, spec: {capacity: {storage: 5Gi}, accessModes: [ReadWriteOnce], storageClassName: hand}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: small, finalizers: [kubernetes.io/pvc-protection]}, spec: {accessModes: [ReadWriteOnce], storageClassName: hand, resources: {requests: {storage: 1Gi}}}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: huge}, spec: {accessModes: [ReadWriteOnce], storageClassName: hand, resources: {requests: {storage: 50Gi}}}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: mode}, spec: {accessModes: [ReadWriteMany], storageClassName: hand, resources: {requests: {storage: 1Gi}}}}
";

fn phase(cluster: &Cluster, resource: &'static str, name: &str) -> String {
    cluster.value(resource, name, "/status/phase").as_str().unwrap_or_default().to_owned()
}

/// Follows `golden/storage-binding`.
#[test]
fn claims_bind_to_volumes() {
    for seed in 0..6 {
        let mut cluster = cluster(STORAGE).seeded(seed);
        cluster.settle();
        let claims = ["small", "huge", "mode"].map(|name| phase(&cluster, "persistentvolumeclaims", name));
        assert_eq!(claims, ["Bound", "Pending", "Pending"]);
        assert_eq!(["v1", "v2"].map(|name| phase(&cluster, "persistentvolumes", name)), ["Bound", "Available"]);
        assert_eq!(cluster.value("persistentvolumeclaims", "small", "/spec/volumeName"), "v1");
        assert_eq!(cluster.value("persistentvolumeclaims", "small", "/status/capacity/storage"), "2Gi");
        cluster.add("{apiVersion: v1, kind: Pod, metadata: {name: user}, spec: {containers: [{name: c}], volumes: [{name: d, persistentVolumeClaim: {claimName: small}}]}}");
        cluster.settle();
        cluster.delete("persistentvolumeclaims", "small", Default::default());
        cluster.settle();
        assert_ne!(cluster.value("persistentvolumeclaims", "small", "/metadata/deletionTimestamp"), Value::Null);
        cluster.patch("pods", "user", json!({"status": {"phase": "Succeeded"}}));
        cluster.settle();
        assert_eq!(cluster.names("persistentvolumeclaims"), "huge mode small", "a claim in use still exists");
        cluster.delete("pods", "user", Default::default());
        cluster.settle();
        assert_eq!(cluster.names("persistentvolumeclaims"), "huge mode");
        assert_eq!(phase(&cluster, "persistentvolumes", "v1"), "Released");
        cluster.delete("persistentvolumes", "v1", Default::default());
        cluster.settle();
        assert_eq!(cluster.names("persistentvolumes"), "v2");
    }
}

#[test]
fn volume_attributes_class_ends_with_its_last_claim() {
    let mut cluster = cluster(
        "
{apiVersion: storage.k8s.io/v1, kind: VolumeAttributesClass, driverName: d, metadata: {name: fast, finalizers: [kubernetes.io/vac-protection]}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c}, spec: {volumeAttributesClassName: fast, storageClassName: hand}}
",
    );
    cluster.delete("volumeattributesclasses.storage.k8s.io", "fast", Default::default());
    cluster.settle();
    assert_eq!(cluster.names("volumeattributesclasses.storage.k8s.io"), "fast");
    cluster.delete("persistentvolumeclaims", "c", Default::default());
    cluster.settle();
    assert_eq!(cluster.names("volumeattributesclasses.storage.k8s.io"), "");
}

const NAMED: &str = "
{apiVersion: v1, kind: PersistentVolume, metadata: {name: one}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], storageClassName: hand}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c}, spec: {volumeName: one, accessModes: [ReadWriteOnce], storageClassName: hand, resources: {requests: {storage: 1Gi}}}}
";

#[test]
fn volume_names_the_controller_unless_it_was_kept_for_the_claim() {
    for (kept, by_controller) in [("", true), ("claimRef: {namespace: default, name: c}, ", false)] {
        let mut cluster = cluster(&NAMED.replacen("spec: {", &format!("spec: {{{kept}"), 1));
        cluster.settle();
        assert_eq!(phase(&cluster, "persistentvolumes", "one"), "Bound");
        let annotation =
            cluster.object("persistentvolumes", "one").annotation("pv.kubernetes.io/bound-by-controller").is_some();
        assert_eq!(annotation, by_controller, "{kept:?}");
    }
}

#[test]
fn named_volume_must_satisfy_the_claim() {
    let cases = [
        ("resources: {requests: {storage: 1Gi}}", "resources: {requests: {storage: 2Gi}}", "requested PV is too small"),
        ("storageClassName: hand, res", "storageClassName: other, res", "storageClassName does not match"),
        ("volumeName: one", "volumeName: one, volumeMode: Block", "incompatible volumeMode"),
        ("one, accessModes: [ReadWriteOnce]", "one, accessModes: [ReadWriteMany]", "incompatible accessMode"),
    ];
    for (old, new, why) in cases {
        let mut cluster = cluster(&NAMED.replacen(old, new, 1));
        cluster.settle();
        assert_eq!(phase(&cluster, "persistentvolumeclaims", "c"), "Pending", "{why}");
        assert_eq!(phase(&cluster, "persistentvolumes", "one"), "Available", "{why}");
        let event = format!("event: VolumeMismatch Cannot bind to requested volume \"one\": {why}");
        assert!(cluster.logged(&event), "{why}: {:?}", cluster.log);
    }
    let kept =
        NAMED.replace("capacity: {storage: 1Gi}", "capacity: {storage: 1Mi}, claimRef: {namespace: default, name: c}");
    let mut cluster = cluster(&kept);
    cluster.settle();
    assert_eq!(phase(&cluster, "persistentvolumeclaims", "c"), "Bound", "the volume names the claim, too");
}

#[test]
fn named_volume_of_another_claim_is_reported() {
    let other = NAMED.split("---").nth(1).unwrap().replace("name: c}", "name: d}");
    let mut cluster = cluster(NAMED);
    cluster.settle();
    assert_eq!(phase(&cluster, "persistentvolumeclaims", "c"), "Bound");
    cluster.add(&other);
    cluster.settle();
    assert_eq!(phase(&cluster, "persistentvolumeclaims", "d"), "Pending");
    assert!(cluster.logged("event: FailedBinding volume \"one\" already bound to a different claim."));
}

#[test]
fn default_class_is_given_to_claims_from_before_it() {
    let claim = |name: &str, class: &str| {
        format!(
            "{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: {name}}}, spec: {{accessModes: [ReadWriteOnce]{class}, resources: {{requests: {{storage: 1Gi}}}}}}}}"
        )
    };
    let claims =
        [claim("none", ""), claim("empty", ", storageClassName: ''"), claim("named", ", storageClassName: hand")];
    let mut cluster = cluster(&claims.join("\n---\n"));
    cluster.settle();
    assert!(
        cluster
            .logged("event: FailedBinding no persistent volumes available for this claim and no storage class is set")
    );
    cluster.add("{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: standard, annotations: {storageclass.kubernetes.io/is-default-class: 'true'}}, provisioner: local.kloop.dev}");
    cluster.settle();
    let classes =
        ["none", "empty", "named"].map(|name| cluster.value("persistentvolumeclaims", name, "/spec/storageClassName"));
    assert_eq!(classes, ["standard", "", "hand"]);
    assert_eq!(phase(&cluster, "persistentvolumeclaims", "none"), "Bound");
}

#[test]
fn claim_names_the_provisioner_that_it_waits_for() {
    let class = "{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: c}, provisioner: PROVISIONER}";
    let claim = "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c}, spec: {accessModes: [ReadWriteOnce], storageClassName: c, resources: {requests: {storage: 1Gi}}}}";
    for (provisioner, event) in [
        (
            "example.com/nfs",
            "event: ExternalProvisioning Waiting for a volume to be created either by the external provisioner 'example.com/nfs' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered.",
        ),
        ("local.kloop.dev", "event: ProvisioningSucceeded"),
        (
            "kubernetes.io/no-provisioner",
            "event: ProvisioningFailed no volume plugin matched name: kubernetes.io/no-provisioner",
        ),
    ] {
        let mut cluster = cluster(&[&class.replace("PROVISIONER", provisioner), claim].join("\n---\n"));
        cluster.settle();
        assert!(cluster.logged(event), "{provisioner}: {:?}", cluster.log);
        let is_named = !provisioner.starts_with("kubernetes.io/");
        for annotation in crate::world::storage::PROVISIONER {
            let claim = cluster.object("persistentvolumeclaims", "c");
            assert_eq!(claim.annotation(annotation), is_named.then_some(provisioner));
        }
    }
}

#[test]
fn released_volume_that_nothing_reclaims_has_failed() {
    let volume = |name: &str, policy: &str, source: &str| {
        format!(
            "{{apiVersion: v1, kind: PersistentVolume, metadata: {{name: {name}}}, spec: {{capacity: {{storage: 1Gi}}, accessModes: [ReadWriteOnce], persistentVolumeReclaimPolicy: {policy}, claimRef: {{namespace: default, name: gone, uid: gone}}, {source}}}}}"
        )
    };
    let (host, nfs) = ("hostPath: {path: /tmp/x}", "nfs: {server: s, path: /}");
    let cases = [
        (
            "Delete",
            host,
            "Failed",
            "kloop deletes no hostPath: remove the files in /tmp/x and delete the volume, or set its reclaim policy to Retain",
        ),
        (
            "Delete",
            nfs,
            "Failed",
            "error getting deleter volume plugin for volume \"v\": no deletable volume plugin matched",
        ),
        ("Recycle", host, "Failed", "No recycler plugin found for the volume!"),
        ("Retain", host, "Released", ""),
    ];
    for (policy, source, wanted, message) in cases {
        let mut cluster = cluster(&volume("v", policy, source));
        cluster.settle();
        assert_eq!(phase(&cluster, "persistentvolumes", "v"), wanted, "{policy} {source}");
        let status = cluster.value("persistentvolumes", "v", "/status/message");
        assert_eq!(status.as_str().unwrap_or_default(), message);
        assert_eq!(cluster.logged(&format!("event: VolumeFailed{policy} {message}")), wanted == "Failed");
        cluster.patch("persistentvolumes", "v", json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}}));
        cluster.settle();
        assert_eq!(cluster.value("persistentvolumes", "v", "/status/message"), Value::Null);
        assert_eq!(phase(&cluster, "persistentvolumes", "v"), "Released");
    }
    let external = volume("v", "Delete", "csi: {driver: d, volumeHandle: h}")
        .replace("name: v}", "name: v, annotations: {pv.kubernetes.io/provisioned-by: d}}");
    let mut cluster = cluster(&external);
    cluster.settle();
    assert_eq!(phase(&cluster, "persistentvolumes", "v"), "Released", "its provisioner deletes it");
}
