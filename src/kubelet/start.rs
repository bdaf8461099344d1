//! Everything that the start of an attempt needs.

use super::image::{self, MANIFEST_DIR};
use super::pod::{LocalPod, Member};
use super::{command, environment, resources, security, simulate, user, volumes};
use crate::object::Str;
use crate::world::Start;
use serde_json::json;

/// Why nothing of the pod can be started, as the event that says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unready {
    /// Reason of the event.
    pub reason: &'static str,
    /// Its message.
    pub message: String,
}

/// The start of an attempt; or what is missing, in Kubernetes' words.
pub fn build(pod: &LocalPod, member: &Member, attempt: u32, ip: &Str) -> Result<Start, String> {
    let env = environment::of(pod, member, ip)?;
    let spec = &member.spec;
    let name = spec.image.clone().unwrap_or_default();
    let image = if pod.simulated { None } else { image::of(pod.world, &name) };
    let of_image: Vec<_> = image.iter().flat_map(image::Image::env).collect();
    let hostname = hostname(pod);
    let files = volumes::files(pod, member, &env, ip, &hostname)?;
    let expanded = |words: &Option<Vec<String>>| {
        let words = words.iter().flatten();
        words.map(|word| command::expand(word, &env)).collect::<Vec<_>>()
    };
    let stop_signal = spec.lifecycle.as_ref().and_then(|lifecycle| lifecycle.stop_signal.clone());
    Ok(Start {
        pod_uid: pod.row.uid.clone(),
        namespace: pod.row.key.namespace.clone(),
        pod: pod.row.key.name.clone(),
        node: pod.spec.node_name.as_deref().unwrap_or_default().into(),
        ip: ip.clone(),
        container: spec.name.as_str().into(),
        attempt,
        image: name,
        brought: image.as_ref().map(|image| image.start(&[&of_image[..], &env].concat())),
        manifest_dir: pod.object.annotation(MANIFEST_DIR).map(str::to_owned),
        command: expanded(&spec.command),
        args: expanded(&spec.args),
        env: [of_image, vec![("HOSTNAME".to_owned(), hostname.to_string())], env].concat(),
        hostname,
        host_network: pod.spec.host_network == Some(true),
        files,
        volume_paths: volumes::paths(pod, member),
        working_dir: spec.working_dir.clone().or_else(|| image.as_ref()?.working_dir()),
        pull_policy: spec.image_pull_policy.clone().unwrap_or_else(|| "IfNotPresent".into()),
        termination_message_path: spec
            .termination_message_path
            .clone()
            .unwrap_or_else(|| "/dev/termination-log".into()),
        termination_from_logs: spec.termination_message_policy.as_deref() == Some("FallbackToLogsOnError"),
        stdin: spec.stdin.unwrap_or(false),
        stdin_once: spec.stdin_once.unwrap_or(false),
        tty: spec.tty.unwrap_or(false),
        limits: resources::limits(pod, member),
        user: user::of(pod, member)?,
        rights: security::rights(member)?,
        stop_signal: stop_signal.unwrap_or_else(|| "SIGTERM".into()),
        spec: json!({"container": encoded(spec), "pod": encoded(&pod.spec)}),
        script: simulate::script(&pod.object, &pod.spec, member.role),
    })
}

fn encoded(part: &impl serde::Serialize) -> serde_json::Value {
    serde_json::to_value(part).unwrap_or_default()
}

/// `spec.hostname`, or the pod's name; the kernel takes 63 bytes of it at most.
pub fn hostname(pod: &LocalPod) -> Str {
    let name = pod.spec.hostname.as_deref().unwrap_or(&pod.row.key.name);
    name.get(..63).map_or(name, |short| short.trim_end_matches(['-', '.'])).into()
}
