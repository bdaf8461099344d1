//! View of files for a pod's containers: a private layer over the machine's files with volumes mounted, or the machine's files
//! themselves.
//!
//! A private layer is the default. The pod's annotation or the container's Image object turns it off, and some machines do not support it:
//! then an event names the settings without effect.

use super::super::command::Variables;
use super::super::filesystem::{sees_machine, wants_machine};
use super::super::pod::{LocalPod, PodContainer, ResolvedVolumes};
use super::super::security;
use super::content::{MOUNT_FAILED, mount_failure, source};
use super::files::FileBudget;
use super::hosts;
use crate::kinds::pod::filesystem::ANNOTATION;
use crate::kinds::pod::part_counts::TOKEN_VOLUME;
use crate::object::Str;
use crate::world::volume::{ContainerFiles, FilesystemView, Volume, VolumeContent, VolumeMountPoint, fingerprint};
use crate::world::{Effect, EventType, Plan};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::VolumeMount;
use std::rc::Rc;
use std::sync::Arc;

/// Prefix of the variables with the paths of volumes that could not be mounted.
const VARIABLE: &str = "KLOOP_VOLUME_";

/// Pause before volumes are updated again when that failed, such as on a full disk.
const REFRESH_RETRY: SignedDuration = SignedDuration::from_secs(10);

/// Volumes that the pod asked for itself.
fn declared_volumes<'a>(pod: &'a LocalPod) -> impl Iterator<Item = &'a k8s_openapi::api::core::v1::Volume> {
    pod.spec.volumes.iter().flatten().filter(|volume| is_declared(volume))
}

fn is_declared(volume: &k8s_openapi::api::core::v1::Volume) -> bool {
    !(volume.projected.is_some() && volume.name.starts_with(TOKEN_VOLUME))
}

/// Whether a container of the pod has a view of its own.
fn is_private(pod: &LocalPod) -> bool {
    pod.members.iter().any(|member| !sees_machine(pod, member))
}

/// Returns the view of one container, or Kubernetes' message about a missing object or key.
pub fn files(
    pod: &LocalPod,
    member: &PodContainer,
    variables: &mut Variables,
    ip: &str,
) -> Result<ContainerFiles, String> {
    let volumes = Arc::clone(&volumes(pod, ip).volumes);
    if sees_machine(pod, member) {
        return Ok(ContainerFiles { view: FilesystemView::Host, volumes, ..ContainerFiles::default() });
    }
    let mut mounts = mounts(pod, member, variables, &volumes)?;
    let (_, etc) = hosts::hosts_files(pod, ip);
    let etc = etc.into_iter().chain(shared_memory(pod).map(|(_, mount)| mount));
    mounts.extend(etc.filter(|etc| mounts.iter().all(|mount| mount.path != etc.path)).collect::<Vec<_>>());
    Ok(ContainerFiles {
        view: FilesystemView::Private,
        volumes,
        mounts,
        read_only: security::has_read_only_root(&member.spec),
    })
}

/// The pod's volumes at this address: computed once in a plan.
fn volumes(pod: &LocalPod, ip: &str) -> Rc<ResolvedVolumes> {
    let mut known = pod.volumes.borrow_mut();
    match &*known {
        Some(volumes) if volumes.ip == ip => Rc::clone(volumes),
        _ => Rc::clone(known.insert(Rc::new(compute_volumes(pod, ip)))),
    }
}

/// A volume that has lost its source since it was made keeps its content.
fn compute_volumes(pod: &LocalPod, ip: &str) -> ResolvedVolumes {
    let private = is_private(pod);
    let (mut volumes, mut failures) = (Vec::new(), Vec::new());
    let mut budget = FileBudget::default();
    for volume in pod.spec.volumes.iter().flatten().filter(|volume| private || is_declared(volume)) {
        match source(pod, volume, &mut budget) {
            Ok(source) => volumes.push(Volume { name: volume.name.as_str().into(), source }),
            Err(why) if is_declared(volume) => failures.push(mount_failure(volume, &why)),
            Err(_) => {}
        }
    }
    let etc = private.then(|| hosts::hosts_files(pod, ip).0);
    let shared = shared_memory(pod).filter(|_| private).map(|(volume, _)| volume);
    ResolvedVolumes { ip: ip.to_owned(), volumes: volumes.into_iter().chain(etc).chain(shared).collect(), failures }
}

/// The machine's POSIX shared memory, for pods with `hostIPC`; System V shared memory is the machine's in any case.
fn shared_memory(pod: &LocalPod) -> Option<(Volume, VolumeMountPoint)> {
    let path = || "/dev/shm".to_owned();
    let source = VolumeContent::Host { path: path(), kind: String::new() };
    // The dot avoids a conflict: names of a pod's volumes have none.
    let (volume, read_only) = (Str::from("shm.d"), false);
    let mount = VolumeMountPoint { volume: volume.clone(), path: path(), sub_path: String::new(), read_only };
    (pod.spec.host_ipc == Some(true)).then_some((Volume { name: volume, source }, mount))
}

fn mounts(
    pod: &LocalPod,
    member: &PodContainer,
    variables: &mut Variables,
    volumes: &[Volume],
) -> Result<Vec<VolumeMountPoint>, String> {
    let mut mounts = Vec::new();
    for wanted in member.spec.volume_mounts.iter().flatten() {
        let of_pod = pod.spec.volumes.iter().flatten().find(|volume| volume.name == wanted.name);
        let claim = of_pod.and_then(|volume| volume.persistent_volume_claim.as_ref());
        let claim_reads = claim.is_some_and(|claim| claim.read_only == Some(true));
        let is_image = of_pod.is_some_and(|volume| volume.image.is_some());
        let follows = volumes.iter().any(|volume| *volume.name == *wanted.name && volume.source.follows());
        mounts.push(VolumeMountPoint {
            volume: wanted.name.as_str().into(),
            path: wanted.mount_path.clone(),
            sub_path: sub_path(pod, wanted, variables)?,
            read_only: follows || claim_reads || is_image || wanted.read_only == Some(true),
        });
    }
    Ok(mounts)
}

fn sub_path(pod: &LocalPod, mount: &VolumeMount, variables: &mut Variables) -> Result<String, String> {
    let Some(expression) = mount.sub_path_expr.as_deref().filter(|expression| !expression.is_empty()) else {
        return Ok(mount.sub_path.clone().unwrap_or_default());
    };
    let path = variables.expand(expression, &pod.start_bytes)?;
    match path.contains("$(") {
        true => {
            Err(format!("failed to prepare subPathExpr {expression:?} for volumeMount: missing value for a variable"))
        }
        false => Ok(path),
    }
}

/// Variables with the paths of volumes that are not mounted, by the volume's name. The machine replaces the names by paths.
pub fn paths(pod: &LocalPod, member: &PodContainer) -> Vec<(String, String)> {
    if !sees_machine(pod, member) {
        return Vec::new();
    }
    let variable = |name: &str| format!("{VARIABLE}{}", name.to_uppercase().replace('-', "_"));
    declared_volumes(pod).map(|volume| (variable(&volume.name), volume.name.clone())).collect()
}

/// Adds an event at the first start of a pod that sees the machine's files: why it does, and which of its settings have no effect because
/// of that.
pub fn report_shared_files(pod: &LocalPod, plan: &mut Plan) {
    let open: Vec<&PodContainer> = pod.members.iter().filter(|member| sees_machine(pod, member)).collect();
    let denied = open.iter().any(|member| !wants_machine(pod, member));
    let names = [
        ("hostAliases", pod.spec.host_aliases.iter().flatten().next().is_some()),
        ("dnsConfig", pod.spec.dns_config.is_some()),
    ];
    let mut problems: Vec<String> = Vec::new();
    let unmounted = declared_volumes(pod).next().is_some();
    if unmounted {
        problems.push(format!("the variables {VARIABLE}<NAME> contain the paths of its volumes"));
    }
    problems.extend(names.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| format!("{name} has no effect")));
    if pod.is_simulated || open.is_empty() || (problems.is_empty() && !denied) {
        return;
    }
    let why = match denied {
        true => "mount namespaces are not available on this machine (user namespaces are off, or a sandbox around kloop forbids them)".to_owned(),
        false => format!("the pod requests the machine's files ({ANNOTATION}: host, or its Image object says so)"),
    };
    let message = [vec![format!("{why}, so the pod sees, and may change, the machine's files")], problems].concat();
    let reason = if unmounted { "VolumesNotMounted" } else { "FilesShared" };
    plan.event(pod.row, EventType::Warning, reason, message.join("; "));
}

/// Orders the current content of a running pod's changing volumes, where it differs from the last order. Each volume is updated on its
/// own: one whose source is missing keeps its content, and an event says so. A pod without volumes of its own has none.
pub fn order_refresh(pod: &LocalPod, ip: &Str, plan: &mut Plan) {
    let Some(facts) = pod.facts.as_ref().filter(|_| !pod.is_simulated && pod.is_alive()) else { return };
    if declared_volumes(pod).next().is_none() {
        return;
    }
    let all = volumes(pod, ip);
    let missing: Vec<Str> = all.failures.iter().map(|(name, _)| name.clone()).collect();
    let follows = || all.volumes.iter().filter(|volume| volume.source.follows());
    let is_ordered = facts.volumes == Some(fingerprint(&all.volumes, &missing));
    let failed = facts.not_refreshed.as_ref().filter(|_| is_ordered);
    if (follows().next().is_none() && missing.is_empty()) || is_ordered && failed.is_none() {
        return;
    }
    if let Some((at, _)) = failed
        && pod.world.now < *at + REFRESH_RETRY
    {
        return plan.wake_at(*at + REFRESH_RETRY);
    }
    let failed = failed.map(|(_, why)| why);
    for message in all.failures.iter().map(|(_, message)| message).chain(failed) {
        plan.event(pod.row, EventType::Warning, MOUNT_FAILED, message.clone());
    }
    let follows: Arc<[Volume]> = follows().cloned().collect();
    plan.effects.push(Effect::Refresh { pod_uid: pod.row.uid.clone(), volumes: follows, missing });
}
