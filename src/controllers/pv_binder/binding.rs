//! A claim's volume: the smallest that fulfils the claim, or a report of the reason why it has none.
//!
//! Never: creates a volume; users and [`volume_provisioner`](crate::controllers::volume_provisioner) do. Start reading at [`bind`].

use crate::controllers::status;
use crate::kinds::persistent_volume::LOCAL_DRIVER;
use crate::kinds::persistent_volume_claim::CLASS_ANNOTATION;
use crate::kinds::shared::default_class;
use crate::object::Object;
use crate::world::storage::{
    self, BIND_COMPLETED, BOUND_BY_CONTROLLER, BUILT_IN_PROVISIONERS, PROVISIONER, VOLUMES, VolumeOwner,
};
use crate::world::{EventType, Plan, Row, World, WriteVerb};
use serde_json::json;

/// Binds a claim to the volume that it names or to the best one, or reports why it has none.
pub fn bind(world: &World, row: &Row, mut claim: Object, plan: &mut Plan) {
    let named = storage::volume_of(&claim).map(str::to_owned);
    let volume = match &named {
        Some(name) => world.find(VOLUMES, "", name),
        None => storage::best(world, row, &claim),
    };
    let Some(volume) = volume else {
        return report_unbound(world, row, claim, named, plan);
    };
    let mut body = volume.object();
    if let Some((reason, message)) = refusal(row, &claim, volume, &body) {
        plan.event(row, EventType::Warning, reason, message.clone());
        plan.wait(message);
        return write_unbound_phase(claim, plan);
    }
    if storage::owner(&body, row) == VolumeOwner::Unclaimed {
        let was_kept = storage::is_kept(&body);
        body.set(&["spec", "claimRef"], storage::reference(row));
        if !was_kept {
            body.set(&["metadata", "annotations", BOUND_BY_CONTROLLER], "yes");
        }
        plan.write(WriteVerb::Update(body.clone()), format!("it fulfils the claim {}", row.key.path()));
    }
    let completed = claim.annotation(BIND_COMPLETED).is_some();
    if named.is_none() || !completed {
        if named.is_none() {
            claim.set(&["metadata", "annotations", BOUND_BY_CONTROLLER], "yes");
        }
        claim.set(&["metadata", "annotations", BIND_COMPLETED], "yes");
        claim.set(&["spec", "volumeName"], &*volume.key.name);
        return plan.write(WriteVerb::Update(claim), format!("volume {} fulfils it", volume.key.name));
    }
    let mut new = status::status_map(&claim);
    new.insert("phase".into(), "Bound".into());
    new.insert("accessModes".into(), body.value_at(&["spec", "accessModes"]).cloned().unwrap_or(json!([])));
    new.insert("capacity".into(), body.value_at(&["spec", "capacity"]).cloned().unwrap_or(json!({})));
    status::write(plan, claim, new.into(), "it is bound");
}

/// Returns reason and message of the event about a volume that a claim names and cannot have. A volume that names the
/// claim itself is not checked, as in Kubernetes.
fn refusal(row: &Row, claim: &Object, volume: &Row, body: &Object) -> Option<(&'static str, String)> {
    let name = &*volume.key.name;
    let completed = claim.annotation(BIND_COMPLETED).is_some();
    match storage::owner(body, row) {
        VolumeOwner::Other if completed => {
            let message = "Two claims are bound to the same volume, this one is bound incorrectly";
            Some(("ClaimMisbound", message.to_owned()))
        }
        VolumeOwner::Other => Some(("FailedBinding", format!("volume {name:?} already bound to a different claim."))),
        VolumeOwner::Unclaimed if !completed && !storage::is_kept(body) => {
            let why = storage::find_mismatch(volume, body, claim)?;
            Some(("VolumeMismatch", format!("Cannot bind to requested volume {name:?}: {why}")))
        }
        VolumeOwner::Unclaimed | VolumeOwner::This => None,
    }
}

/// Reports why a claim has no volume, and asks the provisioner of its class for one.
fn report_unbound(world: &World, row: &Row, claim: Object, named: Option<String>, plan: &mut Plan) {
    if claim.annotation(BIND_COMPLETED).is_some() {
        let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
        plan.event(row, EventType::Warning, "ClaimLost", message);
    } else if let Some(name) = named {
        plan.wait(format!("volume {name} does not exist"));
    } else if let Some(class) = default_class(world, &claim) {
        let mut claim = claim;
        claim.set(&["spec", "storageClassName"], class.name());
        let why = format!("it names no class, and {} is the default class", class.name());
        return plan.write(WriteVerb::Update(claim), why);
    } else if let Some(class) = storage::class_of(world, &claim) {
        match storage::is_awaiting_consumer(world, row, &claim) {
            true => await_consumer(world, row, plan),
            false => request_volume(row, &claim, &class, plan),
        }
    } else {
        report_missing_class(row, &claim, plan);
    }
    if plan.writes.is_empty() {
        plan.wait("no volume fulfils the claim");
        write_unbound_phase(claim, plan);
    }
}

/// Returns the default class for a claim that names none, because it was created before there was a default class.
fn default_class(world: &World, claim: &Object) -> Option<Object> {
    let names_class = claim.value_at(&["spec", "storageClassName"]).is_some_and(|class| !class.is_null());
    if names_class || claim.annotation(CLASS_ANNOTATION).is_some() {
        return None;
    }
    let classes: Vec<Object> = world.list(storage::CLASSES).map(|class| class.object()).collect();
    default_class::find_default_class(&classes, default_class::STORAGE).cloned()
}

fn report_missing_class(row: &Row, claim: &Object, plan: &mut Plan) {
    match claim.text(&["spec", "storageClassName"]).filter(|class| !class.is_empty()) {
        None => {
            let message = "no persistent volumes available for this claim and no storage class is set";
            plan.event(row, EventType::Normal, "FailedBinding", message);
        }
        Some(class) => {
            let message = format!("storageclass.storage.k8s.io {class:?} not found");
            plan.event(row, EventType::Warning, "ProvisioningFailed", message);
        }
    }
}

/// Names the provisioner of the class in the claim, which makes it act, and reports that the claim waits for it.
fn request_volume(row: &Row, claim: &Object, class: &Object, plan: &mut Plan) {
    let provisioner = class.text(&["provisioner"]).unwrap_or_default();
    if provisioner.starts_with(BUILT_IN_PROVISIONERS) {
        let message = format!("no volume plugin matched name: {provisioner}");
        return plan.event(row, EventType::Warning, "ProvisioningFailed", message);
    }
    if PROVISIONER.iter().any(|annotation| claim.annotation(annotation) != Some(provisioner)) {
        let mut claim = claim.clone();
        for annotation in PROVISIONER {
            claim.set(&["metadata", "annotations", annotation], provisioner);
        }
        return plan.write(WriteVerb::Update(claim), format!("{provisioner} has to create a volume for it"));
    }
    if provisioner != LOCAL_DRIVER {
        let message = format!(
            "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the \
             system administrator. If volume creation is delayed, please verify that the provisioner is running and \
             correctly registered."
        );
        plan.event(row, EventType::Normal, "ExternalProvisioning", message);
        plan.wait(format!("the external provisioner {provisioner} has to create a volume"));
    }
}

/// Writes the phase of a claim that has no volume: Lost if it had one.
fn write_unbound_phase(claim: Object, plan: &mut Plan) {
    let phase = if claim.annotation(BIND_COMPLETED).is_some() { "Lost" } else { "Pending" };
    let mut new = status::status_map(&claim);
    new.insert("phase".into(), phase.into());
    status::write(plan, claim, new.into(), "no volume fulfils it");
}

/// Reports that a claim with `WaitForFirstConsumer` waits for a pod, or for the pod's node.
fn await_consumer(world: &World, row: &Row, plan: &mut Plan) {
    let pods: Vec<&str> = storage::consumers(world, row).map(|pod| &*pod.key.name).collect();
    let (reason, message) = match &pods[..] {
        [] => ("WaitForFirstConsumer", "waiting for first consumer to be created before binding".to_owned()),
        [pod] => ("WaitForPodScheduled", format!("waiting for pod {pod} to be scheduled")),
        pods => ("WaitForPodScheduled", format!("waiting for pods {} to be scheduled", pods.join(","))),
    };
    plan.event(row, EventType::Normal, reason, message.clone());
    plan.wait(message);
}
