//! Release of device claims: pods that have ended lose their reservation, a claim that no pod uses loses its devices, and a claim that was
//! made for one pod is deleted when its pod no longer needs it.
//!
//! Never: creates or allocates a claim; [`super::resource_claim_templates`] and the scheduler do.

use crate::object::{Key, Object, Resource};
use crate::world::{Loop, Plan, Row, World, WriteVerb, devices};
use serde_json::Value;

/// The loop of device claims.
pub const LOOP: Loop = Loop { name: "resource_claim_release", root: devices::CLAIMS, concerns, plan, ..Loop::BASE };

fn concerns(_: &World, row: &Row) -> Vec<Key> {
    match row.key.resource.0 {
        devices::CLAIMS => vec![row.key.clone()],
        "pods" if devices::has_claims(row) => {
            let pod = row.body();
            let names = devices::claim_names(&pod).flatten();
            names.map(|(name, _)| Key::new(Resource(devices::CLAIMS), &row.key.namespace, &name)).collect()
        }
        _ => Vec::new(),
    }
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(row) = world.get(key) else { return plan };
    let claim = row.object();
    let consumers = claim.items(&["status", "reservedFor"]);
    let valid: Vec<Value> = consumers.iter().filter(|consumer| is_needed(world, row, consumer)).cloned().collect();
    if valid.len() < consumers.len() {
        let why = if valid.is_empty() { "no pod uses its devices" } else { "a pod that used it has ended" };
        release(&claim, valid, why, &mut plan);
        return plan;
    }
    if !valid.is_empty() {
        return plan;
    }
    let is_protected = claim.has_finalizer(devices::FINALIZER);
    if is_protected && !devices::is_allocated(&claim) {
        plan.write(WriteVerb::Update(claim.without_finalizer(devices::FINALIZER)), "its devices are free");
    } else if is_protected && row.is_deleting() {
        release(&claim, valid, "it is deleted, and no pod uses it", &mut plan);
    } else if !row.is_deleting() && !is_owner_waiting(world, row) {
        plan.delete(row, "its pod no longer needs it");
    }
    plan
}

/// Writes the pods that still use a claim. Without any, its devices are free.
fn release(claim: &Object, valid: Vec<Value>, why: &str, plan: &mut Plan) {
    let mut status = claim.status_alone();
    if valid.is_empty() {
        for field in ["reservedFor", "allocation", "devices"] {
            status.unset(&["status", field]);
        }
    } else {
        status.set(&["status", "reservedFor"], valid);
    }
    plan.write(WriteVerb::Status(status), why);
}

/// Whether a consumer still uses a claim. Consumers other than pods are left alone.
fn is_needed(world: &World, claim: &Row, consumer: &Value) -> bool {
    if consumer["resource"] != "pods" || consumer["apiGroup"].as_str().is_some_and(|group| !group.is_empty()) {
        return true;
    }
    let name = consumer["name"].as_str().unwrap_or_default();
    let pod = world.find("pods", &claim.key.namespace, name).filter(|pod| consumer["uid"] == *pod.uid);
    pod.is_some_and(|pod| !devices::is_done(pod))
}

/// Whether a claim belongs to no pod, or to a pod that may still need it. The garbage collector removes claims of deleted pods.
fn is_owner_waiting(world: &World, claim: &Row) -> bool {
    let Some(owner) = claim.controller().filter(|owner| owner.kind == "Pod") else { return true };
    match world.find("pods", &claim.key.namespace, &owner.name) {
        Some(pod) => *pod.uid == *owner.uid && !devices::is_done(pod),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use crate::controllers::testing::{Cluster, cluster};
    use crate::world::devices::CLAIMS;
    use serde_json::{Value, json};

    /// A pod `web` that uses a claim with a device, which is reserved for it.
    fn running(pod_more: &str, claim_more: Value) -> Cluster {
        let pod = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: web, annotations: {{fake/stay: 'true'}}}}, spec: {{containers: [{{name: c}}], resourceClaims: [{{name: gpu, resourceClaimName: one}}]{pod_more}}}}}"
        );
        let mut cluster = cluster(&pod);
        let uid = cluster.value("pods", "web", "/metadata/uid");
        let result = json!({"request": "gpu", "driver": "d.example.com", "pool": "p", "device": "x"});
        let mut claim = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": "one", "namespace": "default", "finalizers": ["resource.kubernetes.io/delete-protection"]},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}]}},
            "status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": [{"resource": "pods", "name": "web", "uid": uid}]},
        });
        json_patch::merge(&mut claim, &claim_more);
        cluster.create(claim);
        cluster.settle();
        cluster
    }

    #[test]
    fn claim_is_released_when_its_last_pod_has_ended() {
        let mut cluster = running("", json!({}));
        assert_eq!(cluster.value(CLAIMS, "one", "/status/allocation/devices/results/0/device"), "x");
        cluster.delete("pods", "web", Default::default());
        cluster.settle();
        assert_eq!(cluster.names(CLAIMS), "one", "a claim of its own stays");
        assert_eq!(cluster.value(CLAIMS, "one", "/status"), json!({}));
        assert_eq!(cluster.value(CLAIMS, "one", "/metadata/finalizers"), Value::Null);
    }

    #[test]
    fn claim_with_another_pod_keeps_its_devices() {
        let other = "{apiVersion: v1, kind: Pod, metadata: {name: other}, spec: {containers: [{name: c}], resourceClaims: [{name: gpu, resourceClaimName: one}]}}";
        let mut cluster = running("", json!({}));
        cluster.add(other);
        cluster.settle();
        assert_eq!(
            cluster.value(CLAIMS, "one", "/status/reservedFor/1/name"),
            "other",
            "a pod with a node reserves it"
        );
        cluster.delete("pods", "web", Default::default());
        cluster.settle();
        assert_eq!(cluster.value(CLAIMS, "one", "/status/reservedFor/0/name"), "other");
        assert_eq!(cluster.value(CLAIMS, "one", "/status/allocation/devices/results/0/device"), "x");
    }

    #[test]
    fn deleted_claim_goes_when_no_pod_uses_it() {
        let mut cluster = running("", json!({"status": {"reservedFor": null}}));
        cluster.delete("pods", "web", Default::default());
        cluster.settle();
        cluster.delete(CLAIMS, "one", Default::default());
        cluster.settle();
        assert_eq!(cluster.names(CLAIMS), "");
    }
}
