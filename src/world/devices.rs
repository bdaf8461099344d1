//! Rules about device claims that several loops share: the claims of a pod, and the pods that a claim is reserved for.
//!
//! A pod names a ResourceClaim, or a template from which a controller makes one for it alone; the name of such a claim is in the pod's
//! status. The scheduler allocates a claim and reserves it for the pod; a node starts no pod whose claims are not reserved for it.
//! Start reading at [`used_by_pod`].

use super::{Row, World};
use crate::object::Object;
use serde_json::{Value, json};
use std::sync::Arc;

/// The claims.
pub const CLAIMS: &str = "resourceclaims.resource.k8s.io";
/// The templates of claims.
pub const TEMPLATES: &str = "resourceclaimtemplates.resource.k8s.io";
/// The classes of devices.
pub const CLASSES: &str = "deviceclasses.resource.k8s.io";
/// The devices that drivers offer.
pub const SLICES: &str = "resourceslices.resource.k8s.io";

/// The finalizer of an allocated claim.
pub const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// The annotation of a claim from a template: its name in the pod.
pub const POD_CLAIM: &str = "resource.kubernetes.io/pod-claim-name";

/// The annotation of a claim that was made for the extended resources of a pod.
pub const EXTENDED_CLAIM: &str = "resource.kubernetes.io/extended-resource-claim";

/// Maximum number of pods that a claim is reserved for.
const MAX_CONSUMERS: usize = 256;

/// Whether a pod names claims, or one was made for its extended resources.
pub fn has_claims(pod: &Row) -> bool {
    pod.pod().is_some_and(|fields| fields.has_devices)
}

/// A claim that a pod uses.
pub struct PodDeviceClaim {
    /// The claim.
    pub row: Arc<Row>,
    /// Its body.
    pub body: Object,
}

/// Returns the name of the claim behind an entry of `spec.resourceClaims`, and whether it was made for the pod alone; `None` where the pod
/// needs no claim. The error means that it was not created yet.
fn claim_name(pod: &Object, entry: &Value) -> Result<Option<(String, bool)>, String> {
    if let Some(name) = entry["resourceClaimName"].as_str() {
        return Ok(Some((name.to_owned(), false)));
    }
    let made = pod.items(&["status", "resourceClaimStatuses"]).iter().find(|made| made["name"] == entry["name"]);
    match made {
        Some(made) => Ok(made["resourceClaimName"].as_str().map(|name| (name.to_owned(), true))),
        None => Err(format!("pod \"{}/{}\": ResourceClaim not created yet", pod.namespace(), pod.name())),
    }
}

/// Returns the names of a pod's claims, each with whether the claim was created for the pod alone. The error means that one was not
/// created yet.
pub fn claim_names(pod: &Object) -> impl Iterator<Item = Result<(String, bool), String>> + '_ {
    let extended = pod.text(&["status", "extendedResourceClaimStatus", "resourceClaimName"]);
    let named = pod.items(&["spec", "resourceClaims"]).iter().filter_map(|entry| claim_name(pod, entry).transpose());
    named.chain(extended.map(|name| Ok((name.to_owned(), true))))
}

/// Returns the claims of a pod; the error says why it has to wait for one.
pub fn used_by_pod(world: &World, row: &Row) -> Result<Vec<PodDeviceClaim>, String> {
    if !has_claims(row) {
        return Ok(Vec::new());
    }
    let pod = row.body();
    let mut claims = Vec::new();
    for named in claim_names(&pod) {
        let (name, is_own) = named?;
        let Some(claim) = world.find(CLAIMS, &row.key.namespace, &name) else {
            return Err(format!("resourceclaim {name:?} not found"));
        };
        if claim.is_deleting() {
            return Err(format!("resourceclaim {name:?} is being deleted"));
        }
        if is_own && !is_made_for(claim, row) {
            let pod = row.key.path();
            return Err(format!("ResourceClaim {name} was not created for pod {pod} (pod is not owner)"));
        }
        claims.push(PodDeviceClaim { row: claim.clone(), body: claim.object() });
    }
    Ok(claims)
}

/// Whether a claim was made for this pod.
pub fn is_made_for(claim: &Row, pod: &Row) -> bool {
    claim.controller().is_some_and(|owner| owner.kind == "Pod" && *owner.uid == *pod.uid)
}

/// Whether a claim is allocated.
pub fn is_allocated(claim: &Object) -> bool {
    claim.value_at(&["status", "allocation"]).is_some_and(Value::is_object)
}

/// Whether a pod may use a claim.
pub fn is_reserved_for(claim: &Object, uid: &str) -> bool {
    claim.items(&["status", "reservedFor"]).iter().any(|consumer| consumer["uid"] == uid)
}

/// Whether one more pod may use an allocated claim.
pub fn can_be_reserved(claim: &Object) -> bool {
    claim.items(&["status", "reservedFor"]).len() < MAX_CONSUMERS
}

/// Returns a claim's status with one more pod that may use it.
pub fn reserved_for(claim: &Object, pod: &Row) -> Object {
    let mut consumers = claim.items(&["status", "reservedFor"]).to_vec();
    consumers.push(json!({"resource": "pods", "name": *pod.key.name, "uid": *pod.uid}));
    let mut changed = claim.status_alone();
    changed.set(&["status", "reservedFor"], consumers);
    changed
}

/// Whether a pod no longer needs its claims: it has ended, or is deleted before it had a node.
pub fn is_done(pod: &Row) -> bool {
    pod.pod().is_none_or(|fields| fields.phase.is_terminal() || (pod.is_deleting() && fields.node.is_none()))
}
