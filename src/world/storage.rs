//! Rules about claims and volumes that several loops share: the owner of a volume, and the volumes and nodes that can
//! satisfy a claim.
//!
//! A claim with `WaitForFirstConsumer` is bound on the node of its first consumer: the scheduler reserves a volume
//! there, or records the node for the provisioner ([`SELECTED_NODE`]).

use super::{Row, World, terms};
use crate::object::quantity::Quantity;
use crate::object::selector::Selector;
use crate::object::{Key, Object, Resource};
use serde_json::{Value, json};
use std::sync::Arc;

pub use super::scheduling_spec::{PodClaim, claims_of, pod_claims};

/// The claims.
pub const CLAIMS: &str = "persistentvolumeclaims";
/// The volumes.
pub const VOLUMES: &str = "persistentvolumes";
/// The classes.
pub const CLASSES: &str = "storageclasses.storage.k8s.io";

/// The annotations of a claim that name the provisioner that has to create a volume for it. Provisioners act only on
/// claims with the first; the second is the older one.
pub const PROVISIONER: [&str; 2] =
    ["volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"];

/// The annotation of a volume that names the provisioner that created it.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";

/// Prefix of the names of Kubernetes' own provisioners. kloop has none of them.
pub const BUILT_IN_PROVISIONERS: &str = "kubernetes.io/";

/// The annotation of a claim that names the node of its first consumer.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// The class of a claim.
pub fn class_of(world: &World, claim: &Object) -> Option<Object> {
    let name = claim.text(&["spec", "storageClassName"]).filter(|name| !name.is_empty())?;
    world.find(CLASSES, "", name).map(|class| class.object())
}

/// Whether a claim names no volume yet.
pub fn is_open(claim: &Row) -> bool {
    claim.mentions("volumeName").then(|| claim.body()).is_none_or(|body| volume_of(&body).is_none())
}

/// The volume that a claim names.
pub fn volume_of(claim: &Object) -> Option<&str> {
    claim.text(&["spec", "volumeName"]).filter(|name| !name.is_empty())
}

/// The existing claims that a pod uses.
pub fn used_by<'a>(world: &'a World, pod: &'a Row) -> impl Iterator<Item = &'a Arc<Row>> {
    let names = pod.pod().into_iter().flat_map(|fields| fields.claims.iter());
    names.filter_map(move |name| world.get(&key(&pod.key.namespace, name)))
}

/// Checks that a claim was made for the ephemeral volume of a pod: another claim can have the same name.
pub fn check_made_for_pod(claim: &Row, pod: &Row) -> Result<(), String> {
    if claim.controller().is_some_and(|owner| *owner.uid == *pod.uid) {
        return Ok(());
    }
    let (claim, pod) = (claim.key.path(), pod.key.path());
    Err(format!("PVC {claim} was not created for pod {pod} (pod is not owner)"))
}

/// Owner of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeOwner {
    /// The volume has no owner.
    Unclaimed,
    /// The volume is bound to the claim, or kept for it.
    This,
    /// The volume belongs to another claim.
    Other,
}

/// A volume that names a claim without its uid is kept for whichever claim has that name.
pub fn owner(volume: &Object, claim: &Row) -> VolumeOwner {
    let Some(reference) = volume.value_at(&["spec", "claimRef"]).filter(|reference| reference.is_object()) else {
        return VolumeOwner::Unclaimed;
    };
    let same = reference["name"] == *claim.key.name && reference["namespace"] == *claim.key.namespace;
    match reference["uid"].as_str() {
        Some(uid) if same && *uid == *claim.uid => VolumeOwner::This,
        None | Some("") if same => VolumeOwner::Unclaimed,
        _ => VolumeOwner::Other,
    }
}

/// Reference to a claim, for `spec.claimRef` of a volume.
pub fn reference(claim: &Row) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": *claim.key.name,
        "namespace": *claim.key.namespace, "uid": *claim.uid, "resourceVersion": claim.revision.to_string(),
    })
}

/// The volume with a claim's name in it, as the controller writes it.
pub fn bound_to_claim(mut volume: Object, claim: &Row) -> Object {
    volume.set(&["spec", "claimRef"], reference(claim));
    volume.set(&["metadata", "annotations", BOUND_BY_CONTROLLER], "yes");
    volume
}

/// Annotation of a volume and its claim when a controller bound them.
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";

/// Annotation of a claim that has a volume.
pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";

/// Ways to satisfy a claim.
#[derive(Clone)]
pub enum ClaimSource {
    /// On any node.
    Anywhere,
    /// On the node of its first consumer.
    On(Arc<Row>),
    /// The claim waits for its first consumer: until then only a volume that is kept for it is bound.
    NotYet,
}

/// The class of a claim that waits for its first consumer.
pub fn unprovisioned_class(world: &World, claim: &Object) -> Option<Object> {
    class_of(world, claim).filter(|class| class.text(&["volumeBindingMode"]) == Some("WaitForFirstConsumer"))
}

/// Whether an unbound claim waits until a pod that uses it has a node.
pub fn is_awaiting_consumer(world: &World, row: &Row, claim: &Object) -> bool {
    matches!(claim_source(world, row, claim), ClaimSource::NotYet)
}

/// Returns how a claim can be satisfied.
pub fn claim_source(world: &World, row: &Row, claim: &Object) -> ClaimSource {
    if unprovisioned_class(world, claim).is_none() {
        return ClaimSource::Anywhere;
    }
    let selected = claim.annotation(SELECTED_NODE).map(str::to_owned);
    // A pod with a manually set node has no scheduler that selects the node.
    let node = selected.or_else(|| consumers(world, row).find_map(|pod| Some(pod.pod()?.node.as_ref()?.to_string())));
    node.and_then(|node| world.find("nodes", "", &node))
        .map_or(ClaimSource::NotYet, |node| ClaimSource::On(node.clone()))
}

/// The pods that use a claim.
pub fn consumers<'a>(world: &'a World, claim: &'a Row) -> impl Iterator<Item = &'a Arc<Row>> {
    let uses = |pod: &Row| pod.pod().is_some_and(|fields| fields.claims.contains(&claim.key.name));
    world.list_in("pods", &claim.key.namespace).filter(move |pod| uses(pod))
}

/// The pod that keeps a protected claim from its deletion, if there is one. An ended pod does so, too: it refers to the claim as long as it
/// exists.
pub fn find_keeper<'a>(world: &'a World, claim: &'a Row) -> Option<&'a Arc<Row>> {
    consumers(world, claim).find(|pod| pod.pod().is_some_and(|pod| pod.node.is_some()))
}

/// Whether a volume is accessible from a node. A volume that does not say on which nodes it is belongs to the control plane's machine: its
/// folder is on that machine's disk, which all nodes share but those that have joined.
pub fn is_available_on(volume: &Object, node: &Row) -> bool {
    match volume.value_at(&["spec", "nodeAffinity", "required"]) {
        Some(required) => terms::any_matches(required, node),
        None => !is_joined(node),
    }
}

/// Whether a node is a machine that has joined.
pub fn is_joined(node: &Row) -> bool {
    node.node().is_some_and(|fields| fields.is_joined)
}

/// The volume that is kept for a claim, else the smallest that fulfils it where it may be met.
pub fn best<'w>(world: &'w World, row: &Row, claim: &Object) -> Option<&'w Arc<Row>> {
    let source = claim_source(world, row, claim);
    let wanted = |volume: &VolumeCandidate<'_>| match &source {
        _ if volume.is_kept => true,
        ClaimSource::Anywhere => true,
        ClaimSource::On(node) => is_available_on(&volume.body, node),
        ClaimSource::NotYet => false,
    };
    candidates(world, row, claim).into_iter().find(wanted).map(|volume| volume.row)
}

/// A volume that would fulfil a claim.
#[derive(Clone)]
pub struct VolumeCandidate<'w> {
    /// The volume.
    pub row: &'w Arc<Row>,
    /// Its body.
    pub body: Object,
    /// Whether the volume already names the claim.
    pub is_kept: bool,
    /// Size of the volume.
    capacity: Quantity,
}

fn quantity(object: &Object, path: &[&str]) -> Option<Quantity> {
    Quantity::parse(object.text(path)?).ok()
}

/// Size of a volume.
pub fn capacity_of(volume: &Object) -> Option<Quantity> {
    quantity(volume, &["spec", "capacity", "storage"])
}

/// Requested size of a claim.
pub fn requested_storage(claim: &Object) -> Quantity {
    quantity(claim, &["spec", "resources", "requests", "storage"]).unwrap_or(Quantity::from_int(0))
}

/// Returns why a volume does not fulfil a claim, in Kubernetes' words; `None` if it does.
pub fn find_mismatch(volume: &Row, body: &Object, claim: &Object) -> Option<String> {
    if volume.is_deleting() {
        return Some(format!("the volume is marked for deletion {:?}", &*volume.key.name));
    }
    let differs = |name: &str, default: &str| {
        body.text(&["spec", name]).unwrap_or(default) != claim.text(&["spec", name]).unwrap_or(default)
    };
    let modes = body.items(&["spec", "accessModes"]);
    let is_too_small = capacity_of(body).is_none_or(|capacity| capacity < requested_storage(claim));
    let why = match () {
        () if is_too_small => "requested PV is too small",
        () if differs("storageClassName", "") => "storageClassName does not match",
        () if differs("volumeMode", "Filesystem") => "incompatible volumeMode",
        () if !claim.items(&["spec", "accessModes"]).iter().all(|mode| modes.contains(mode)) => {
            "incompatible accessMode"
        }
        () => return None,
    };
    Some(why.to_owned())
}

/// Whether a bound claim requests more storage than it has got.
pub fn is_too_small(claim: &Object) -> bool {
    claim.text(&["status", "phase"]) == Some("Bound")
        && quantity(claim, &["status", "capacity", "storage"]).is_some_and(|size| size < requested_storage(claim))
}

/// The volumes that fulfil a claim: those kept for it first, then the smallest.
pub fn candidates<'w>(world: &'w World, row: &Row, claim: &Object) -> Vec<VolumeCandidate<'w>> {
    let selector = claim.value_at(&["spec", "selector"]).map(Selector::from_label_selector);
    let fitting = world.list(VOLUMES).filter(|volume| !volume.is_deleting()).filter_map(|volume| {
        let body = volume.object();
        let capacity = capacity_of(&body)?;
        let selected = match &selector {
            None => true,
            Some(Ok(selector)) => selector.matches(|key| volume.label(key)),
            Some(Err(_)) => false,
        };
        let fits = selected && owner(&body, row) != VolumeOwner::Other && find_mismatch(volume, &body, claim).is_none();
        let is_kept = is_kept(&body);
        fits.then_some(VolumeCandidate { row: volume, body, is_kept, capacity })
    });
    let mut fitting: Vec<VolumeCandidate<'_>> = fitting.collect();
    fitting.sort_by(|a, b| (!a.is_kept, a.capacity, &a.row.key).cmp(&(!b.is_kept, b.capacity, &b.row.key)));
    fitting
}

/// Whether a volume names the claim that it is kept for.
pub fn is_kept(volume: &Object) -> bool {
    volume.value_at(&["spec", "claimRef"]).is_some_and(Value::is_object)
}

/// The claim's key.
pub fn key(namespace: &str, name: &str) -> Key {
    Key::new(Resource(CLAIMS), namespace, name)
}
