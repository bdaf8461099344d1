//! Expansion of volumes: a bound claim that requests more storage than it has gets it.
//!
//! kloop enforces no sizes, so that only the capacity of its own volumes changes;
//! [`pv_binder`](super::pv_binder) copies it to the claim. Other volumes are expanded by the resizer of their driver.

use crate::kinds::persistent_volume::LOCAL_DRIVER;
use crate::object::Key;
use crate::world::storage::{self, CLAIMS, VOLUMES, VolumeOwner};
use crate::world::{EventType, Loop, Plan, Row, World, WriteVerb};

/// The loop of claims that grow.
pub const LOOP: Loop = Loop { name: "volume_expand", root: CLAIMS, concerns, plan, ..Loop::BASE };

fn concerns(_: &World, row: &Row) -> Vec<Key> {
    if row.key.resource == CLAIMS { vec![row.key.clone()] } else { Vec::new() }
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(row) = world.get(key).filter(|row| !row.is_deleting()) else { return plan };
    let claim = row.object();
    if !storage::is_too_small(&claim) {
        return plan;
    }
    let Some(volume) = storage::volume_of(&claim).and_then(|name| world.find(VOLUMES, "", name)) else { return plan };
    let mut body = volume.object();
    if storage::owner(&body, row) != VolumeOwner::This {
        return plan;
    }
    if body.text(&["spec", "csi", "driver"]) != Some(LOCAL_DRIVER) {
        let message = "waiting for an external controller to expand this PVC";
        plan.event(row, EventType::Normal, "ExternalExpanding", message);
        plan.wait(message);
    } else if storage::capacity_of(&body).is_none_or(|capacity| capacity < storage::requested_storage(&claim)) {
        let size = claim.value_at(&["spec", "resources", "requests", "storage"]).cloned().unwrap_or_default();
        body.set(&["spec", "capacity", "storage"], size);
        plan.write(WriteVerb::Update(body), format!("the claim {} requests more storage", row.key.path()));
        plan.event(row, EventType::Normal, "VolumeResizeSuccessful", "Resize volume succeeded");
    }
    plan
}

#[cfg(test)]
mod tests {
    use crate::controllers::testing::{Cluster, cluster};
    use serde_json::json;

    fn bound_claim(volume: &str) -> Cluster {
        let class = "{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: c}, provisioner: local.kloop.dev, allowVolumeExpansion: true}";
        let claim = "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], storageClassName: c, resources: {requests: {storage: 1Gi}}}}";
        let mut cluster = cluster(&[class, claim, volume].join("\n---\n"));
        cluster.settle();
        assert_eq!(cluster.value("persistentvolumeclaims", "data", "/status/capacity/storage"), "1Gi");
        let larger = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
        cluster.patch("persistentvolumeclaims", "data", larger);
        cluster.settle();
        cluster
    }

    #[test]
    fn claim_of_a_local_volume_gets_the_requested_size() {
        let cluster = bound_claim("");
        let name = cluster.value("persistentvolumeclaims", "data", "/spec/volumeName");
        assert_eq!(cluster.value("persistentvolumes", name.as_str().unwrap(), "/spec/capacity/storage"), "2Gi");
        assert_eq!(cluster.value("persistentvolumeclaims", "data", "/status/capacity/storage"), "2Gi");
        assert!(cluster.logged("event: VolumeResizeSuccessful Resize volume succeeded"));
    }

    #[test]
    fn claim_of_another_volume_waits_for_its_resizer() {
        let cluster = bound_claim(
            "{apiVersion: v1, kind: PersistentVolume, metadata: {name: other}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], storageClassName: c, claimRef: {name: data, namespace: default}, csi: {driver: d, volumeHandle: h}}}",
        );
        assert_eq!(cluster.value("persistentvolumeclaims", "data", "/spec/volumeName"), "other");
        assert_eq!(cluster.value("persistentvolumeclaims", "data", "/status/capacity/storage"), "1Gi");
        assert!(cluster.logged("event: ExternalExpanding waiting for an external controller to expand this PVC"));
    }
}
