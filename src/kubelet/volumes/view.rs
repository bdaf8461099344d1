//! How the containers of a pod see files: the machine's as they are, or their own view with volumes mounted.
//!
//! A view of its own costs a container's start one to two milliseconds (measured), so a pod gets one when it needs one: it has a volume that it
//! asked for itself, host aliases, a resolver or a termination message of its own or a container that may not write, or its
//! annotation says so. The token that every pod is given is no reason.

use super::super::pod::{LocalPod, Member};
use super::super::{command, image, message, security};
use super::{hosts, source};
use crate::object::Str;
use crate::world::volume::{Files, Mount, View, Volume, fingerprint};
use crate::world::{EventType, Plan};
use std::sync::Arc;

/// `host` turns the private view off, `private` on.
const ANNOTATION: &str = "kloop.dev/filesystem";
/// Begins the variable that tells where a volume is that could not be mounted.
const VARIABLE: &str = "KLOOP_VOLUME_";

/// What the pod wants of its files.
#[derive(PartialEq)]
enum Wish {
    /// Nothing: it has no volumes of its own.
    Nothing,
    /// The machine's files, and to be told where its volumes are.
    Host,
    /// A view of its own.
    Private,
}

fn wish(pod: &LocalPod) -> Wish {
    let of_container = |member: &Member| security::reads_only(&member.spec) || message::needs_file(&member.spec);
    let has_names = pod.spec.host_aliases.iter().flatten().next().is_some() || pod.spec.dns_config.is_some();
    let own = own(pod).next().is_some() || has_names || pod.members.iter().any(of_container);
    match pod.object.annotation(ANNOTATION) {
        Some("host") if own => Wish::Host,
        Some("host") => Wish::Nothing,
        Some("private") => Wish::Private,
        _ if own || image::wants_private_files(pod) => Wish::Private,
        _ => Wish::Nothing,
    }
}

/// Volumes that the pod asked for itself.
fn own<'a>(pod: &'a LocalPod) -> impl Iterator<Item = &'a k8s_openapi::api::core::v1::Volume> {
    let volumes = pod.spec.volumes.iter().flatten();
    volumes.filter(|volume| !(volume.projected.is_some() && volume.name.starts_with("kube-api-access-")))
}

fn is_private(pod: &LocalPod) -> bool {
    wish(pod) == Wish::Private && pod.world.settings.private_files
}

/// Whether a container of a pod with a view of its own sees the machine's files all the same: its Image object says so, and the pod
/// does not say otherwise.
fn stays_outside(pod: &LocalPod, member: &Member) -> bool {
    pod.object.annotation(ANNOTATION) != Some("private") && image::wants_host_files(pod, member)
}

/// Whether a container sees the machine's files as they are.
pub fn sees_machine(pod: &LocalPod, member: &Member) -> bool {
    !is_private(pod) || stays_outside(pod, member)
}

/// The files of one container; or what cannot be said of them, in Kubernetes' words.
pub fn files(pod: &LocalPod, member: &Member, env: &[(String, String)], ip: &str) -> Result<Files, String> {
    let volumes = volumes(pod, ip);
    if sees_machine(pod, member) {
        return Ok(Files { view: View::Host, volumes: volumes.into(), ..Files::default() });
    }
    let mut mounts = mounts(pod, member, env, &volumes)?;
    let (_, etc) = hosts::of(pod, ip);
    mounts.extend(etc.into_iter().filter(|etc| mounts.iter().all(|mount| mount.path != etc.path)).collect::<Vec<_>>());
    Ok(Files {
        view: View::Private,
        volumes: Arc::from(volumes),
        mounts,
        read_only: security::reads_only(&member.spec),
    })
}

/// Every volume that can be laid out; of those that have lost their source since, the content stays as it is.
fn volumes(pod: &LocalPod, ip: &str) -> Vec<Volume> {
    let private = is_private(pod);
    let wanted: Vec<_> = match wish(pod) {
        Wish::Nothing => return Vec::new(),
        _ if private => pod.spec.volumes.iter().flatten().collect(),
        _ => own(pod).collect(),
    };
    let volume = |volume: &k8s_openapi::api::core::v1::Volume| {
        Some(Volume { name: volume.name.as_str().into(), source: source(pod, volume).ok()? })
    };
    let etc = private.then(|| hosts::of(pod, ip).0);
    wanted.into_iter().filter_map(volume).chain(etc).collect()
}

fn mounts(pod: &LocalPod, member: &Member, env: &[(String, String)], volumes: &[Volume]) -> Result<Vec<Mount>, String> {
    let mut mounts = Vec::new();
    for wanted in member.spec.volume_mounts.iter().flatten() {
        let of_pod = pod.spec.volumes.iter().flatten().find(|volume| volume.name == wanted.name);
        let claim = of_pod.and_then(|volume| volume.persistent_volume_claim.as_ref());
        let claim_reads = claim.is_some_and(|claim| claim.read_only == Some(true));
        let follows = volumes.iter().any(|volume| *volume.name == *wanted.name && volume.source.follows());
        mounts.push(Mount {
            volume: wanted.name.as_str().into(),
            path: wanted.mount_path.clone(),
            sub_path: sub_path(wanted.sub_path.as_deref(), wanted.sub_path_expr.as_deref(), env)?,
            read_only: follows || claim_reads || wanted.read_only == Some(true),
        });
    }
    Ok(mounts)
}

fn sub_path(plain: Option<&str>, expression: Option<&str>, env: &[(String, String)]) -> Result<String, String> {
    let Some(expression) = expression.filter(|expression| !expression.is_empty()) else {
        return Ok(plain.unwrap_or_default().to_owned());
    };
    let path = command::expand(expression, env);
    match path.contains("$(") {
        true => {
            Err(format!("failed to prepare subPathExpr {expression:?} for volumeMount: missing value for a variable"))
        }
        false => Ok(path),
    }
}

/// Variables that tell where volumes are that are not mounted, by the name of the volume. The machine makes paths of the names.
pub fn paths(pod: &LocalPod, member: &Member) -> Vec<(String, String)> {
    if wish(pod) == Wish::Nothing || !sees_machine(pod, member) {
        return Vec::new();
    }
    let variable = |name: &str| format!("{VARIABLE}{}", name.to_uppercase().replace('-', "_"));
    own(pod).map(|volume| (variable(&volume.name), volume.name.clone())).collect()
}

/// Tells, with a pod's first start, that its volumes cannot be mounted here.
pub fn tell_unmounted(pod: &LocalPod, plan: &mut Plan) {
    if wish(pod) == Wish::Private && !pod.world.settings.private_files {
        let message = format!(
            "this machine lets no process have mounts of its own (user namespaces are off), so the pod sees the machine's files, \
             and its volumes are at the paths that {VARIABLE}<NAME> tells"
        );
        plan.event(pod.row, EventType::Warning, "VolumesNotMounted", message);
    }
}

/// The volumes of a running pod whose content is not what was last ordered.
pub fn outdated(pod: &LocalPod, ip: &Str) -> Option<Arc<[Volume]>> {
    let facts = pod.facts.as_ref().filter(|_| !pod.simulated && pod.lives())?;
    if wish(pod) == Wish::Nothing {
        return None;
    }
    let volumes = volumes(pod, ip);
    let complete = |volume: &k8s_openapi::api::core::v1::Volume| volumes.iter().any(|one| *one.name == *volume.name);
    // A source that is gone would look like a change: nothing follows it any more.
    let is_whole = own(pod).all(complete);
    let follows: Arc<[Volume]> = volumes.into_iter().filter(|volume| volume.source.follows()).collect();
    (is_whole && !follows.is_empty() && facts.volumes != Some(fingerprint(&follows))).then_some(follows)
}
