//! The phase of a volume, why nothing reclaims a released one, and the end of a deleted one.
//!
//! Never: writes claims. Start reading at [`sync_volume`].

use crate::controllers::status;
use crate::kinds::persistent_volume::{self, LOCAL_DRIVER};
use crate::object::{Object, time};
use crate::world::storage::{BUILT_IN_PROVISIONERS, PROVISIONED_BY};
use crate::world::{EventType, Plan, Row, World, WriteVerb};
use serde_json::Value;

/// Sets a volume's phase (Available, Bound, Released or Failed), and removes the finalizer of a deleted volume that is
/// not bound.
pub fn sync_volume(world: &World, row: &Row, volume: Object, plan: &mut Plan) {
    let uid = volume.text(&["spec", "claimRef", "uid"]).filter(|uid| !uid.is_empty());
    let (phase, failure) = match uid.map(|uid| world.by_uid(uid)) {
        None => ("Available", None),
        Some(Some(_)) => ("Bound", None),
        Some(None) => match reclaim_failure(row, &volume, plan) {
            None => ("Released", None),
            failure => ("Failed", failure),
        },
    };
    let held = row.has_finalizer(persistent_volume::PROTECTION);
    if row.is_deleting() && held && phase != "Bound" {
        return plan.write(
            WriteVerb::Update(volume.without_finalizer(persistent_volume::PROTECTION)),
            "no claim is bound to it",
        );
    }
    let mut new = status::status_map(&volume);
    if new.get("phase").and_then(Value::as_str) != Some(phase) {
        new.insert("phase".into(), phase.into());
        new.insert("lastPhaseTransitionTime".into(), time::rfc3339(world.now).into());
        if let Some((reason, message)) = &failure {
            plan.event(row, EventType::Warning, *reason, message.clone());
        }
    }
    match failure {
        Some((_, message)) => drop(new.insert("message".into(), message.into())),
        None => drop(new.remove("message")),
    }
    status::write(plan, volume, new.into(), "its claim was created or deleted");
}

/// Returns reason and message of the event about a released volume whose reclaim policy cannot be carried out. kloop
/// deletes the content of its own volumes only: paths of the machine can hold files that nothing else has.
fn reclaim_failure(row: &Row, volume: &Object, plan: &mut Plan) -> Option<(&'static str, String)> {
    let failure = match volume.text(&["spec", "persistentVolumeReclaimPolicy"]) {
        Some("Recycle") => ("VolumeFailedRecycle", "No recycler plugin found for the volume!".to_owned()),
        Some("Delete") => ("VolumeFailedDelete", deletion_failure(row, volume, plan)?),
        _ => return None,
    };
    plan.wait(failure.1.clone());
    Some(failure)
}

/// Returns why nothing deletes the content of a released volume; `None` if a provisioner does.
fn deletion_failure(row: &Row, volume: &Object, plan: &mut Plan) -> Option<String> {
    if volume.text(&["spec", "csi", "driver"]) == Some(LOCAL_DRIVER) {
        return None;
    }
    let provisioner = volume.annotation(PROVISIONED_BY).unwrap_or(BUILT_IN_PROVISIONERS);
    if !provisioner.starts_with(BUILT_IN_PROVISIONERS) {
        plan.wait(format!("the external provisioner {provisioner} has to delete it"));
        return None;
    }
    Some(match volume.text(&["spec", "hostPath", "path"]) {
        Some(path) => format!(
            "kloop deletes no hostPath: remove the files in {path} and delete the volume, or set its reclaim policy to \
             Retain"
        ),
        None => {
            let name = &*row.key.name;
            format!("error getting deleter volume plugin for volume {name:?}: no deletable volume plugin matched")
        }
    })
}
