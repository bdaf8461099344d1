//! Decides the content of a volume, by the type of its source.

use super::super::actions::StartFailure;
use super::super::image;
use super::super::pod::LocalPod;
use super::super::resources;
use super::files::FileBudget;
use super::{claim, files};
use crate::kinds::pod::volumes::VolumeSource;
use crate::object::Str;
use crate::world::volume::VolumeContent;
use k8s_openapi::api::core::v1::Volume;

/// Reason of the event about a volume that cannot be set up.
pub const MOUNT_FAILED: &str = "FailedMount";

/// Returns the content of one volume, whose files take their bytes from the budget, or Kubernetes' message about a missing object or key.
pub fn source(pod: &LocalPod, volume: &Volume, budget: &mut FileBudget) -> Result<VolumeContent, String> {
    let unsupported = || Err("this kind of volume is not supported by this node".into());
    let Some(source) = VolumeSource::from_volume(volume) else { return unsupported() };
    let grouped = |files| VolumeContent::Files(files::with_group(pod, files));
    match source {
        VolumeSource::EmptyDir(empty) => {
            let in_memory = empty.medium.as_deref() == Some("Memory") && !resources::is_memory_denied(pod);
            Ok(match in_memory {
                true => VolumeContent::Memory { most: resources::most_memory(pod, empty) },
                false => VolumeContent::Empty,
            })
        }
        VolumeSource::HostPath(host) => {
            Ok(VolumeContent::Host { path: host.path.clone(), kind: host.type_.clone().unwrap_or_default() })
        }
        VolumeSource::PersistentVolumeClaim(_) | VolumeSource::Ephemeral(_) => {
            let name = source.claim_name(&pod.row.key.name, &volume.name).unwrap_or_default();
            claim::source(pod, &name, matches!(source, VolumeSource::Ephemeral(_)))
        }
        VolumeSource::ConfigMap(map) => files::config_map(pod, map, budget).map(grouped),
        VolumeSource::Secret(secret) => files::secret(pod, secret, budget).map(grouped),
        VolumeSource::DownwardApi(downward) => files::downward_api(pod, downward, budget).map(grouped),
        VolumeSource::Projected(projected) => files::projected(pod, projected, budget).map(grouped),
        VolumeSource::Image(image) => image_files(pod, image.reference.as_deref().unwrap_or_default()),
        VolumeSource::Nfs(_)
        | VolumeSource::Csi(_)
        | VolumeSource::GitRepo(_)
        | VolumeSource::GcePersistentDisk(_)
        | VolumeSource::AwsElasticBlockStore(_)
        | VolumeSource::Iscsi(_)
        | VolumeSource::Glusterfs(_)
        | VolumeSource::Rbd(_)
        | VolumeSource::Cinder(_)
        | VolumeSource::Cephfs(_)
        | VolumeSource::Flocker(_)
        | VolumeSource::Fc(_)
        | VolumeSource::FlexVolume(_)
        | VolumeSource::AzureFile(_)
        | VolumeSource::VsphereVolume(_)
        | VolumeSource::PhotonPersistentDisk(_)
        | VolumeSource::PortworxVolume(_)
        | VolumeSource::Quobyte(_)
        | VolumeSource::AzureDisk(_)
        | VolumeSource::StorageOs(_)
        | VolumeSource::ScaleIo(_) => unsupported(),
    }
}

/// Returns the folder with the files of an image, by the Image object of this name. Nothing is pulled.
fn image_files(pod: &LocalPod, reference: &str) -> Result<VolumeContent, String> {
    let folder = image::find_settings(pod.world, reference).and_then(|image| image.files());
    let path = folder.ok_or_else(|| {
        format!("no Image object names the files of {reference:?}: run: kloop image set {reference} --files FOLDER")
    })?;
    if !path.starts_with('/') || path.split('/').any(|part| part == "..") {
        return Err(format!(
            "the files of {reference:?} must be an absolute path, or ./name in the manifest's folder: {path}"
        ));
    }
    Ok(VolumeContent::Host { path, kind: "Directory".to_owned() })
}

/// The first volume that cannot be set up. It is checked only until the pod's first start, because mounted volumes stay.
pub fn missing(pod: &LocalPod) -> Option<StartFailure> {
    if pod.facts.is_some() {
        return None;
    }
    // A simulated machine has every other type of volume.
    let is_made_of_objects =
        |volume: &Volume| VolumeSource::from_volume(volume).is_some_and(VolumeSource::is_made_of_objects);
    let wanted = |volume: &&Volume| !pod.is_simulated || is_made_of_objects(volume);
    let mut budget = FileBudget::default();
    let mut wanted = pod.spec.volumes.iter().flatten().filter(wanted);
    let failure = wanted.find_map(|volume| Some(mount_failure(volume, &source(pod, volume, &mut budget).err()?)));
    failure.map(|(_, message)| StartFailure { reason: MOUNT_FAILED, message })
}

/// The name of a volume whose source is missing, and Kubernetes' message about it.
pub fn mount_failure(volume: &Volume, problem: &str) -> (Str, String) {
    let message = format!("MountVolume.SetUp failed for volume {:?} : {problem}", volume.name);
    (volume.name.as_str().into(), message)
}
