//! Volumes that outlive the pod: resolves a claim to its PersistentVolume, and that to a folder.

use super::super::pod::LocalPod;
use crate::kinds::persistent_volume::LOCAL_DRIVER;
use crate::world::storage;
use crate::world::volume::VolumeContent;

/// Returns the content of a claim in the pod's namespace, or why it is not available yet. The claim of an ephemeral
/// volume has to be the pod's own.
pub fn source(pod: &LocalPod, name: &str, is_ephemeral: bool) -> Result<VolumeContent, String> {
    let world = pod.world;
    let Some(claim) = world.find("persistentvolumeclaims", &pod.row.key.namespace, name) else {
        return Err(format!("persistentvolumeclaim {name:?} not found"));
    };
    if is_ephemeral {
        storage::check_made_for_pod(claim, pod.row)?;
    }
    let claim = claim.object();
    let volume = claim.text(&["spec", "volumeName"]).filter(|volume| !volume.is_empty());
    let bound = claim.text(&["status", "phase"]) == Some("Bound");
    let Some(volume) = volume.filter(|_| bound).and_then(|volume| world.find("persistentvolumes", "", volume)) else {
        return Err(format!("PersistentVolumeClaim {name:?} is not bound"));
    };
    let body = volume.object();
    let host = |path: &[&str]| body.text(path).map(str::to_owned);
    if let Some(path) = host(&["spec", "hostPath", "path"]) {
        return Ok(VolumeContent::Host { path, kind: host(&["spec", "hostPath", "type"]).unwrap_or_default() });
    }
    if let Some(path) = host(&["spec", "local", "path"]) {
        return Ok(VolumeContent::Host { path, kind: "Directory".into() });
    }
    if body.text(&["spec", "csi", "driver"]) == Some(LOCAL_DRIVER) {
        return Ok(VolumeContent::Kept(volume.key.name.clone()));
    }
    Err(format!("PersistentVolume {:?} is of a kind that is not supported by this node", &*volume.key.name))
}
