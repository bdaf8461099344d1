//! Eviction of pods from devices with a NoExecute taint that their claims do not tolerate (`devicetainteviction`).
//!
//! Knows: a taint counts from when it was added, and a limited toleration from the same moment. DeviceTaintRules are off by default in
//! Kubernetes 1.36, and are not served. Never: changes a claim; [`super::resource_claim_release`] frees its devices when the pod has ended.

use super::pods::mark_disrupted;
use crate::object::time::Shift;
use crate::object::{Key, Object, Resource, Time};
use crate::world::{EventType, Loop, Plan, Row, Taint, World, devices, taint};
use jiff::SignedDuration;
use serde_json::Value;

/// The loop of pods with devices.
pub const LOOP: Loop = Loop { name: "device-taint-eviction", root: ROOT, concerns, plan, ..Loop::BASE };

const ROOT: &str = "pods";
const NO_EXECUTE: &str = "NoExecute";

fn concerns(world: &World, row: &Row) -> Vec<Key> {
    match row.key.resource.0 {
        ROOT if is_placed(row) => vec![row.key.clone()],
        devices::CLAIMS => {
            let claim = row.body();
            let consumers = claim.items(&["status", "reservedFor"]).iter().filter(|one| one["resource"] == ROOT);
            let names = consumers.filter_map(|consumer| consumer["name"].as_str());
            names.map(|name| Key::new(Resource(ROOT), &row.key.namespace, name)).collect()
        }
        devices::SLICES => world.list(ROOT).filter(|pod| is_placed(pod)).map(|pod| pod.key.clone()).collect(),
        _ => Vec::new(),
    }
}

fn is_placed(pod: &Row) -> bool {
    devices::has_claims(pod) && !pod.is_deleting() && pod.pod().is_some_and(|fields| fields.node.is_some())
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(row) = world.get(key).filter(|row| is_placed(row)) else { return plan };
    let claims = devices::used_by_pod(world, row).unwrap_or_default();
    let reserved = claims.iter().filter(|claim| devices::is_reserved_for(&claim.body, &row.uid));
    let Some(deadline) = reserved.filter_map(|claim| claim_deadline(world, &claim.body)).min() else { return plan };
    if world.now < deadline {
        plan.wake_at(deadline);
        return plan;
    }
    let condition = ("DeletionByDeviceTaintManager", "Device Taint manager: deleting due to NoExecute taint");
    mark_disrupted(world, &row.object(), condition, &mut plan);
    plan.event(row, EventType::Normal, "DeviceTaintManagerEviction", "Marking for deletion");
    plan.delete(row, "a device of its claims has a NoExecute taint that they do not tolerate");
    plan
}

/// Returns the time at which the pods of a claim must leave its devices, if they must.
fn claim_deadline(world: &World, claim: &Object) -> Option<Time> {
    let results = claim.items(&["status", "allocation", "devices", "results"]).iter();
    results
        .filter_map(|result| {
            let tolerations = result["tolerations"].as_array().map(Vec::as_slice).unwrap_or_default();
            device_taints(world, result).iter().filter_map(|taint| deadline(taint, tolerations, world.now)).min()
        })
        .min()
}

/// Returns the time at which a taint evicts; `None` when it is tolerated forever.
fn deadline(taint: &Taint, tolerations: &[Value], now: Time) -> Option<Time> {
    let since = taint.added.unwrap_or(now);
    let matches = |one: &&Value| one["effect"] == NO_EXECUTE && taint::tolerates(one, taint);
    let limits: Vec<Option<i64>> =
        tolerations.iter().filter(matches).map(|one| one["tolerationSeconds"].as_i64()).collect();
    if limits.iter().any(Option::is_none) {
        return None;
    }
    let seconds = limits.into_iter().flatten().min().unwrap_or(0).max(0);
    Some(since.later(SignedDuration::from_secs(seconds)))
}

/// Returns the NoExecute taints of an allocated device, by the newest slices of its pool.
fn device_taints(world: &World, result: &Value) -> Vec<Taint> {
    let Some(pool) = result["pool"].as_str() else { return Vec::new() };
    let of_pool = |slice: &Object| {
        slice.value_at(&["spec", "driver"]) == Some(&result["driver"])
            && slice.value_at(&["spec", "pool", "name"]).and_then(Value::as_str) == Some(pool)
    };
    let generation = |slice: &Object| slice.int(&["spec", "pool", "generation"]).unwrap_or_default();
    let slices_with = |text: &str| -> Vec<Object> {
        let rows = world.list(devices::SLICES).filter(|row| !row.is_deleting() && row.mentions(text));
        rows.map(|row| row.object()).filter(of_pool).collect()
    };
    // Most pools have no taint, so that few slices are read.
    let tainted = slices_with(NO_EXECUTE);
    if tainted.is_empty() {
        return Vec::new();
    }
    let newest = slices_with(pool).iter().map(generation).max();
    let newest_slices = tainted.iter().filter(|slice| Some(generation(slice)) == newest);
    let devices = newest_slices.flat_map(|slice| slice.items(&["spec", "devices"]));
    let taints = devices.filter(|device| device["name"] == result["device"]).filter_map(|one| one["taints"].as_array());
    taints.flatten().map(Taint::read).filter(|taint| taint.effect == NO_EXECUTE).collect()
}

#[cfg(test)]
mod tests {
    use crate::controllers::testing::{Cluster, cluster};
    use crate::world::devices::SLICES;
    use serde_json::{Value, json};

    /// A pod `web` that has device `x` of a pool, with these tolerations.
    fn running(tolerations: Value) -> Cluster {
        let mut cluster = cluster(
            "{apiVersion: v1, kind: Pod, metadata: {name: web, annotations: {fake/stay: 'true'}}, spec: {containers: [{name: c}], resourceClaims: [{name: gpu, resourceClaimName: one}]}}",
        );
        let uid = cluster.value("pods", "web", "/metadata/uid");
        let result = json!({"request": "gpu", "driver": "d.example.com", "pool": "p", "device": "x", "tolerations": tolerations});
        cluster.create(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": "one", "namespace": "default", "finalizers": ["resource.kubernetes.io/delete-protection"]},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}]}},
            "status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": [{"resource": "pods", "name": "web", "uid": uid}]},
        }));
        cluster.settle();
        cluster
    }

    /// Offers the device in a slice of this generation of its pool.
    fn offer(cluster: &mut Cluster, generation: i64, taints: Value) {
        cluster.create(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": format!("s{generation}")},
            "spec": {
                "driver": "d.example.com", "nodeName": "a", "devices": [{"name": "x", "taints": taints}],
                "pool": {"name": "p", "generation": generation, "resourceSliceCount": 1},
            },
        }));
        cluster.settle();
    }

    fn taint(effect: &str) -> Value {
        json!([{"key": "broken", "effect": effect, "timeAdded": "2026-01-01T00:00:00Z"}])
    }

    #[test]
    fn pod_leaves_a_device_with_a_taint_that_it_does_not_tolerate() {
        let mut cluster = running(Value::Null);
        offer(&mut cluster, 1, taint("NoSchedule"));
        assert_eq!(cluster.names("pods"), "web");
        offer(&mut cluster, 2, taint("NoExecute"));
        assert!(cluster.logged("event: DeviceTaintManagerEviction Marking for deletion"), "{:?}", cluster.log);
        assert_eq!(cluster.names("pods"), "");
    }

    #[test]
    fn toleration_keeps_the_pod_for_its_time() {
        let forever = json!([{"key": "broken", "operator": "Exists", "effect": "NoExecute"}]);
        let mut cluster = running(forever);
        offer(&mut cluster, 1, taint("NoExecute"));
        assert_eq!(cluster.names("pods"), "web");
        let a_while = json!([{"key": "broken", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]);
        let taint = super::Taint::read(&taint("NoExecute")[0]);
        let due = super::deadline(&taint, a_while.as_array().unwrap(), super::Time::UNIX_EPOCH);
        assert_eq!(due, "2026-01-01T00:01:00Z".parse().ok());
    }

    #[test]
    fn slices_of_an_older_generation_do_not_count() {
        let mut cluster = running(Value::Null);
        offer(&mut cluster, 2, json!([]));
        offer(&mut cluster, 1, taint("NoExecute"));
        assert_eq!((cluster.names("pods"), cluster.count(SLICES)), ("web".to_owned(), 2));
    }
}
