//! Claims find volumes: each claim the smallest volume that fulfils it, each volume one claim. Both are held as long as they
//! are in use.
//!
//! Planned for claims and for volumes, each its own status. Volumes are made by people and by
//! [`volume_provisioner`](super::volume_provisioner); nothing is provisioned here.

use super::{pods, status};
use crate::object::quantity::Quantity;
use crate::object::selector::Selector;
use crate::object::{Key, Object, Resource, time};
use crate::world::{EventType, Loop, Plan, Row, Verb, World};
use serde_json::{Value, json};
use std::sync::Arc;

const CLAIMS: &str = "persistentvolumeclaims";
const VOLUMES: &str = "persistentvolumes";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// Finalizers of what is in use.
const CLAIM_IN_USE: &str = "kubernetes.io/pvc-protection";
const VOLUME_IN_USE: &str = "kubernetes.io/pv-protection";

/// The loop of claims and volumes.
pub const LOOP: Loop = Loop { name: "persistentvolume-controller", root: CLAIMS, concerns, plan };

fn concerns(world: &World, row: &Row) -> Vec<Key> {
    match row.key.resource.0 {
        CLAIMS => {
            let volume = row.object().text(&["spec", "volumeName"]).map(|name| Key::new(Resource(VOLUMES), "", name));
            volume.into_iter().chain([row.key.clone()]).collect()
        }
        VOLUMES => {
            let claims = world.list(CLAIMS).filter(|claim| is_open(&claim.object(), &row.key.name));
            claims.map(|claim| claim.key.clone()).chain([row.key.clone()]).collect()
        }
        "pods" => {
            let going = world.list_in(CLAIMS, &row.key.namespace).filter(|claim| claim.is_deleting());
            going.map(|claim| claim.key.clone()).collect()
        }
        _ => Vec::new(),
    }
}

/// A change of a volume concerns claims that wait, and the one that it is bound to.
fn is_open(claim: &Object, volume: &str) -> bool {
    claim.text(&["spec", "volumeName"]).is_none_or(|name| name.is_empty() || name == volume)
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::nothing();
    let Some(row) = world.get(key) else { return plan };
    let object = row.object();
    match key.resource.0 {
        CLAIMS if row.is_deleting() => release_claim(world, row, object, &mut plan),
        CLAIMS => bind(world, row, object, &mut plan),
        _ => keep_volume(world, row, object, &mut plan),
    }
    plan
}

/// A claim that is being deleted is held until no pod uses it.
fn release_claim(world: &World, row: &Row, object: Object, plan: &mut Plan) {
    if !row.finalizers.iter().any(|one| &**one == CLAIM_IN_USE) {
        return;
    }
    let uses = |pod: &&Arc<Row>| {
        let runs = pod.pod().is_some_and(|pod| pod.node.is_some() && !pod.phase.is_terminal());
        let names = |volume: &Value| volume["persistentVolumeClaim"]["claimName"] == *row.key.name;
        runs && pod.object().items(&["spec", "volumes"]).iter().any(names)
    };
    match world.list_in("pods", &row.key.namespace).find(uses) {
        Some(pod) => plan.wait(format!("pod {} uses the claim", pod.key.name)),
        None => plan.write(Verb::Update(pods::without_finalizer(object, CLAIM_IN_USE)), "no pod uses the claim"),
    }
}

fn bind(world: &World, row: &Row, mut claim: Object, plan: &mut Plan) {
    let named = claim.text(&["spec", "volumeName"]).filter(|name| !name.is_empty()).map(str::to_owned);
    let volume = match &named {
        Some(name) => world.find(VOLUMES, "", name),
        None => best(world, row, &claim),
    };
    let Some(volume) = volume else {
        return explain(world, row, claim, named, plan);
    };
    let mut body = volume.object();
    match owner(&body, row) {
        ClaimedBy::Other => return plan.wait(format!("volume {} is bound to another claim", volume.key.name)),
        ClaimedBy::This => {}
        ClaimedBy::Nobody => {
            body.set(&["spec", "claimRef"], reference(row));
            if named.is_none() {
                body.set(&["metadata", "annotations", BOUND_BY_CONTROLLER], "yes");
            }
            plan.write(Verb::Update(body.clone()), format!("it fulfils the claim {}", row.key.path()));
        }
    }
    let completed = claim.annotation(BIND_COMPLETED).is_some();
    if named.is_none() || !completed {
        if named.is_none() {
            claim.set(&["metadata", "annotations", BOUND_BY_CONTROLLER], "yes");
        }
        claim.set(&["metadata", "annotations", BIND_COMPLETED], "yes");
        claim.set(&["spec", "volumeName"], &*volume.key.name);
        return plan.write(Verb::Update(claim), format!("volume {} fulfils it", volume.key.name));
    }
    let mut new = status::of(&claim);
    new.insert("phase".into(), "Bound".into());
    new.insert("accessModes".into(), body.at(&["spec", "accessModes"]).cloned().unwrap_or(json!([])));
    new.insert("capacity".into(), body.at(&["spec", "capacity"]).cloned().unwrap_or(json!({})));
    status::write(plan, claim, new.into(), "it is bound");
}

/// Says why a claim has no volume.
fn explain(world: &World, row: &Row, claim: Object, named: Option<String>, plan: &mut Plan) {
    let phase = if claim.annotation(BIND_COMPLETED).is_some() { "Lost" } else { "Pending" };
    let class = claim.text(&["spec", "storageClassName"]).unwrap_or_default().to_owned();
    let known = world.find("storageclasses.storage.k8s.io", "", &class).is_some();
    if phase == "Lost" {
        let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
        plan.event(row, EventType::Warning, "ClaimLost", message);
    } else if let Some(name) = named {
        plan.wait(format!("volume {name} does not exist"));
    } else if class.is_empty() {
        let message = "no persistent volumes available for this claim and no storage class is set";
        plan.event(row, EventType::Normal, "FailedBinding", message);
    } else if !known {
        let message = format!("storageclass.storage.k8s.io {class:?} not found");
        plan.event(row, EventType::Warning, "ProvisioningFailed", message);
    }
    plan.wait("no volume fulfils the claim");
    let mut new = status::of(&claim);
    new.insert("phase".into(), phase.into());
    status::write(plan, claim, new.into(), "no volume fulfils it");
}

/// Whose a volume is.
#[derive(PartialEq)]
enum ClaimedBy {
    Nobody,
    This,
    Other,
}

/// A volume that names a claim without its uid is kept for whichever claim has that name.
fn owner(volume: &Object, claim: &Row) -> ClaimedBy {
    let Some(reference) = volume.at(&["spec", "claimRef"]).filter(|reference| reference.is_object()) else {
        return ClaimedBy::Nobody;
    };
    let same = reference["name"] == *claim.key.name && reference["namespace"] == *claim.key.namespace;
    match reference["uid"].as_str() {
        Some(uid) if same && *uid == *claim.uid => ClaimedBy::This,
        None | Some("") if same => ClaimedBy::Nobody,
        _ => ClaimedBy::Other,
    }
}

/// What names a claim in a volume.
pub(super) fn reference(claim: &Row) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": *claim.key.name,
        "namespace": *claim.key.namespace, "uid": *claim.uid, "resourceVersion": claim.revision.to_string(),
    })
}

/// The volume that is kept for a claim, else the smallest that fulfils it.
pub(super) fn best<'w>(world: &'w World, row: &Row, claim: &Object) -> Option<&'w Arc<Row>> {
    let quantity = |object: &Object, path: &[&str]| object.text(path).and_then(|text| Quantity::parse(text).ok());
    let wanted = quantity(claim, &["spec", "resources", "requests", "storage"]).unwrap_or(Quantity::from_int(0));
    let selector = claim.at(&["spec", "selector"]).map(Selector::from_label_selector);
    let text = |object: &Object, name: &str, default: &str| object.text(&["spec", name]).unwrap_or(default).to_owned();
    let fitting = world.list(VOLUMES).filter(|volume| !volume.is_deleting()).filter_map(|volume| {
        let body = volume.object();
        let modes = body.items(&["spec", "accessModes"]);
        let capacity = quantity(&body, &["spec", "capacity", "storage"])?;
        let selected = match &selector {
            None => true,
            Some(Ok(selector)) => selector.matches(|key| volume.label(key)),
            Some(Err(_)) => false,
        };
        let fits = selected
            && owner(&body, row) != ClaimedBy::Other
            && capacity >= wanted
            && claim.items(&["spec", "accessModes"]).iter().all(|mode| modes.contains(mode))
            && text(&body, "volumeMode", "Filesystem") == text(claim, "volumeMode", "Filesystem")
            && text(&body, "storageClassName", "") == text(claim, "storageClassName", "");
        let kept = body.at(&["spec", "claimRef"]).is_some();
        fits.then_some((!kept, capacity, volume))
    });
    fitting.min_by(|a, b| (a.0, a.1, &a.2.key).cmp(&(b.0, b.1, &b.2.key))).map(|(_, _, volume)| volume)
}

/// Available, Bound or Released; a volume that is being deleted goes when it is not bound.
fn keep_volume(world: &World, row: &Row, volume: Object, plan: &mut Plan) {
    let reference = volume.at(&["spec", "claimRef"]).filter(|reference| reference.is_object());
    let uid = reference.and_then(|reference| reference["uid"].as_str()).filter(|uid| !uid.is_empty());
    let claimed = uid.and_then(|uid| world.by_uid(uid));
    let phase = match (uid, claimed) {
        (None, _) => "Available",
        (Some(_), Some(_)) => "Bound",
        (Some(_), None) => "Released",
    };
    let held = row.finalizers.iter().any(|one| &**one == VOLUME_IN_USE);
    if row.is_deleting() && held && phase != "Bound" {
        return plan.write(Verb::Update(pods::without_finalizer(volume, VOLUME_IN_USE)), "no claim is bound to it");
    }
    let mut new = status::of(&volume);
    if new.get("phase").and_then(Value::as_str) != Some(phase) {
        new.insert("phase".into(), phase.into());
        new.insert("lastPhaseTransitionTime".into(), time::rfc3339(world.now).into());
    }
    status::write(plan, volume, new.into(), "its claim came or went");
}

#[cfg(test)]
mod tests {
    use crate::controllers::testing::{Cluster, cluster};
    use serde_json::Value;

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

    /// As `golden/storage-binding` has it.
    #[test]
    fn claims_find_volumes() {
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
            cluster.delete("pods", "user", Default::default());
            cluster.settle();
            assert_eq!(cluster.names("persistentvolumeclaims"), "huge mode");
            assert_eq!(phase(&cluster, "persistentvolumes", "v1"), "Released");
            cluster.delete("persistentvolumes", "v1", Default::default());
            cluster.settle();
            assert_eq!(cluster.names("persistentvolumes"), "v2");
        }
    }
}
