//! Dynamic provisioning: creates a volume for each pending claim of a class whose provisioner is kloop's own. The
//! volume is a folder of the cluster.
//!
//! Creates the PersistentVolume and reserves it for its claim; [`pv_binder`](super::pv_binder) binds them. The folder
//! is created when the first pod mounts it, and deleted with a volume whose claim is gone and whose policy is Delete.

use crate::kinds::persistent_volume::{LOCAL_DRIVER, PROVISIONER_FINALIZER as FINALIZER};
use crate::object::{Key, Object};
use crate::world::storage::{self, CLAIMS, CLASSES, PROVISIONED_BY, PROVISIONER, VOLUMES};
use crate::world::{Effect, EventType, Loop, Plan, Row, World, WriteVerb};
use serde_json::{Value, json};
use std::sync::Arc;

/// The kinds of data sources that CSI drivers know.
const CLAIM_KIND: &str = "PersistentVolumeClaim";
const SNAPSHOT_KIND: &str = "VolumeSnapshot";

/// The loop of claims that need a new volume.
pub const LOOP: Loop = Loop { name: "local-provisioner", root: CLAIMS, concerns, plan, ..Loop::BASE };

fn concerns(world: &World, row: &Row) -> Vec<Key> {
    let waits = |claim: &&Arc<Row>| storage::is_open(claim);
    match row.key.resource.0 {
        CLAIMS | VOLUMES => vec![row.key.clone()],
        CLASSES => world.list(CLAIMS).filter(waits).map(|claim| claim.key.clone()).collect(),
        // The pod may be the first consumer of a claim.
        "pods" => storage::used_by(world, row).filter(waits).map(|claim| claim.key.clone()).collect(),
        _ => Vec::new(),
    }
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(row) = world.get(key) else { return plan };
    match key.resource.0 {
        CLAIMS if !row.is_deleting() => provision(world, row, &row.object(), &mut plan),
        VOLUMES => reclaim(world, row, row.object(), &mut plan),
        _ => {}
    }
    plan
}

fn provision(world: &World, row: &Arc<Row>, claim: &Object, plan: &mut Plan) {
    // The binder names the provisioner of a claim that needs a new volume.
    if storage::volume_of(claim).is_some() || claim.annotation(PROVISIONER[0]) != Some(LOCAL_DRIVER) {
        return;
    }
    let Some(class) =
        storage::class_of(world, claim).filter(|class| class.text(&["provisioner"]) == Some(LOCAL_DRIVER))
    else {
        return;
    };
    let name = format!("pvc-{}", row.uid);
    if world.find(VOLUMES, "", &name).is_some() || storage::best(world, row, claim).is_some() {
        return;
    }
    if let Some(kind) = foreign_source(claim) {
        let message = "Assuming an external populator will provision the volume";
        plan.event(row, EventType::Normal, "Provisioning", message);
        return plan.wait(format!("a populator of {kind} has to provide a volume with the data"));
    }
    if let Some(why) = unsupported(claim) {
        let message = format!("failed to provision volume with StorageClass {:?}: {why}", class.name());
        plan.event(row, EventType::Warning, "ProvisioningFailed", message.clone());
        return plan.wait(message);
    }
    if storage::is_awaiting_consumer(world, row, claim) {
        return plan.wait("no pod that uses the claim has a node");
    }
    plan.event(row, EventType::Normal, "ProvisioningSucceeded", format!("Successfully provisioned volume {name}"));
    plan.write(WriteVerb::Create(volume(row, claim, &class, &name)), format!("the claim {} needs it", row.key.path()));
}

/// The object that a claim wants to have its data from.
fn data_source(claim: &Object) -> Option<&Value> {
    let fields = ["dataSourceRef", "dataSource"];
    fields.iter().find_map(|field| claim.value_at(&["spec", field])).filter(|source| source.is_object())
}

/// The kind of a data source that another program handles: neither a claim nor a snapshot.
fn foreign_source(claim: &Object) -> Option<&str> {
    let kind = data_source(claim)?["kind"].as_str()?;
    (kind != CLAIM_KIND && kind != SNAPSHOT_KIND).then_some(kind)
}

/// Returns why no volume is created for a claim. One with a data source never gets an empty volume.
fn unsupported(claim: &Object) -> Option<&'static str> {
    match data_source(claim).map(|source| source["kind"].as_str()) {
        None => {}
        Some(Some(CLAIM_KIND)) => {
            return Some(
                "CSI driver does not support clone operations: controller CLONE_VOLUME capability is not reported",
            );
        }
        Some(_) => {
            return Some(
                "CSI driver does not support snapshot restore: controller CREATE_DELETE_SNAPSHOT capability is not reported",
            );
        }
    }
    if claim.text(&["spec", "volumeMode"]) == Some("Block") {
        return Some("block volumes are not supported");
    }
    claim.value_at(&["spec", "selector"]).map(|_| "claim.Spec.Selector is not supported for dynamic provisioning")
}

fn volume(row: &Row, claim: &Object, class: &Object, name: &str) -> Object {
    let spec = |field: &str| claim.value_at(&["spec", field]).cloned().unwrap_or_default();
    let size = claim.value_at(&["spec", "resources", "requests", "storage"]).cloned().unwrap_or(json!("0"));
    let mut volume = Object(json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: LOCAL_DRIVER}},
        "spec": {
            "capacity": {"storage": size}, "accessModes": spec("accessModes"), "volumeMode": "Filesystem",
            "persistentVolumeReclaimPolicy": class.text(&["reclaimPolicy"]).unwrap_or("Delete"),
            "storageClassName": class.name(), "claimRef": storage::reference(row),
            "csi": {"driver": LOCAL_DRIVER, "volumeHandle": name},
        },
    }));
    if has_policy_delete(&volume) {
        volume.set(&["metadata", "finalizers"], json!([FINALIZER]));
    }
    volume
}

fn has_policy_delete(volume: &Object) -> bool {
    volume.text(&["spec", "persistentVolumeReclaimPolicy"]) == Some("Delete")
}

/// Deletes a volume whose claim is gone, with its content, unless the policy retains it. A volume that a user deletes
/// first stays until then, so that its content is deleted, too.
fn reclaim(world: &World, row: &Row, volume: Object, plan: &mut Plan) {
    if volume.text(&["spec", "csi", "driver"]) != Some(LOCAL_DRIVER) {
        return;
    }
    let claim = volume.text(&["spec", "claimRef", "uid"]).filter(|uid| !uid.is_empty());
    let is_free = match claim {
        Some(uid) => world.by_uid(uid).is_none(),
        None => row.is_deleting(),
    };
    if !has_policy_delete(&volume) || !is_free {
        return sync_finalizer(row, volume, plan);
    }
    plan.effects.push(Effect::DeleteVolume { volume: row.key.name.clone() });
    if !row.is_deleting() {
        plan.delete(row, "its claim is gone and its reclaim policy is Delete");
    } else if row.has_finalizer(FINALIZER) {
        let released = volume.without_finalizer(FINALIZER);
        plan.write(WriteVerb::Update(released), "its content is deleted");
    }
}

/// Gives a volume the finalizer if its content is deleted with it, and takes it away if the policy has changed.
fn sync_finalizer(row: &Row, mut volume: Object, plan: &mut Plan) {
    match (has_policy_delete(&volume), row.has_finalizer(FINALIZER)) {
        (true, false) if !row.is_deleting() => {
            volume.add_finalizer(FINALIZER);
            plan.write(WriteVerb::Update(volume), "its content is deleted before it");
        }
        (false, true) => {
            let released = volume.without_finalizer(FINALIZER);
            plan.write(WriteVerb::Update(released), "its reclaim policy keeps its content");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use crate::controllers::testing::cluster;
    use serde_json::json;

    const CLAIM: &str = "
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: standard}, provisioner: local.kloop.dev, reclaimPolicy: POLICY, volumeBindingMode: MODE}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, finalizers: [kubernetes.io/pvc-protection]}, spec: {accessModes: [ReadWriteOnce], storageClassName: standard, resources: {requests: {storage: 1Gi}}}}
";

    #[test]
    fn reclaim_policy_deletes_or_retains_the_volume() {
        for (policy, left) in [("Delete", 0), ("Retain", 1)] {
            for seed in 0..4 {
                let mut cluster = cluster(&CLAIM.replace("POLICY", policy).replace("MODE", "Immediate")).seeded(seed);
                cluster.settle();
                assert_eq!(cluster.value("persistentvolumeclaims", "data", "/status/phase"), "Bound");
                let name = cluster.value("persistentvolumeclaims", "data", "/spec/volumeName");
                let volume = cluster.object("persistentvolumes", name.as_str().unwrap());
                assert_eq!(volume.text(&["spec", "persistentVolumeReclaimPolicy"]), Some(policy));
                assert_eq!(volume.text(&["spec", "capacity", "storage"]), Some("1Gi"));
                assert_eq!(cluster.count("persistentvolumes"), 1);
                cluster.delete("persistentvolumeclaims", "data", Default::default());
                cluster.settle();
                assert_eq!((cluster.count("persistentvolumeclaims"), cluster.count("persistentvolumes")), (0, left));
            }
        }
    }

    #[test]
    fn claim_waits_for_a_pod_or_is_unsupported() {
        let mut cluster = cluster(&CLAIM.replace("POLICY", "Delete").replace("MODE", "WaitForFirstConsumer"));
        cluster.settle();
        assert_eq!(cluster.value("persistentvolumeclaims", "data", "/status/phase"), "Pending");
        assert!(cluster.logged("waiting for first consumer"));
        cluster.add("{apiVersion: v1, kind: Pod, metadata: {name: user}, spec: {containers: [{name: c}], volumes: [{name: d, persistentVolumeClaim: {claimName: data}}]}}");
        cluster.settle();
        assert_eq!(cluster.value("persistentvolumeclaims", "data", "/status/phase"), "Bound");
        cluster.add("{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: raw}, spec: {accessModes: [ReadWriteOnce], volumeMode: Block, storageClassName: standard, resources: {requests: {storage: 1Gi}}}}");
        cluster.add("{apiVersion: v1, kind: Pod, metadata: {name: raw}, spec: {containers: [{name: c}], volumes: [{name: d, persistentVolumeClaim: {claimName: raw}}]}}");
        cluster.settle();
        assert_eq!(cluster.value("persistentvolumeclaims", "raw", "/status/phase"), json!("Pending"));
        assert!(cluster.logged("block volumes are not supported"));
    }

    fn immediate_class(policy: &str) -> String {
        CLAIM.replace("POLICY", policy).replace("MODE", "Immediate")
    }

    #[test]
    fn claim_with_a_data_source_never_gets_an_empty_volume() {
        let clone = "CSI driver does not support clone operations: controller CLONE_VOLUME capability is not reported";
        let restore = "CSI driver does not support snapshot restore: controller CREATE_DELETE_SNAPSHOT capability is \
                       not reported";
        let failed = "event: ProvisioningFailed failed to provision volume with StorageClass \"standard\": ";
        let cases = [
            ("dataSource: {kind: PersistentVolumeClaim, name: old}", format!("{failed}{clone}")),
            ("dataSourceRef: {kind: PersistentVolumeClaim, name: old}", format!("{failed}{clone}")),
            (
                "dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: old}",
                format!("{failed}{restore}"),
            ),
            (
                "dataSourceRef: {apiGroup: example.com, kind: Backup, name: old}",
                "event: Provisioning Assuming an external populator will provision the volume".to_owned(),
            ),
        ];
        for (source, event) in cases {
            let mut cluster =
                cluster(&immediate_class("Delete").replace("accessModes", &format!("{source}, accessModes")));
            cluster.settle();
            assert_eq!(cluster.value("persistentvolumeclaims", "data", "/status/phase"), "Pending", "{source}");
            assert_eq!(cluster.count("persistentvolumes"), 0, "{source}");
            assert!(cluster.logged(&event), "{source}: {:?}", cluster.log);
        }
    }

    #[test]
    fn volume_that_is_deleted_before_its_claim_loses_its_content() {
        for seed in 0..6 {
            let mut cluster = cluster(&immediate_class("Delete")).seeded(seed);
            cluster.settle();
            let name = cluster.value("persistentvolumeclaims", "data", "/spec/volumeName");
            let name = name.as_str().unwrap();
            assert_eq!(cluster.value("persistentvolumes", name, "/metadata/finalizers"), json!([super::FINALIZER]));
            cluster.delete("persistentvolumes", name, Default::default());
            cluster.settle();
            assert_eq!(cluster.count("persistentvolumes"), 1, "its claim uses it");
            cluster.delete("persistentvolumeclaims", "data", Default::default());
            cluster.settle();
            assert_eq!(cluster.count("persistentvolumes"), 0);
            assert!(cluster.logged(&format!("effect: delete volume {name}")), "{:?}", cluster.log);
        }
    }

    #[test]
    fn finalizer_follows_the_reclaim_policy() {
        let mut cluster = cluster(&immediate_class("Retain"));
        cluster.settle();
        let name = cluster.value("persistentvolumeclaims", "data", "/spec/volumeName");
        let name = name.as_str().unwrap();
        for (policy, finalizers) in [("Delete", json!([super::FINALIZER])), ("Retain", json!(null))] {
            cluster.patch("persistentvolumes", name, json!({"spec": {"persistentVolumeReclaimPolicy": policy}}));
            cluster.settle();
            assert_eq!(cluster.value("persistentvolumes", name, "/metadata/finalizers"), finalizers);
        }
    }
}
