//! Everything that the start of an attempt needs.

use super::image::{self, MANIFEST_DIR};
use super::pod::{LocalPod, PodContainer};
use super::{command, containers, environment, message, resources, security, simulated_pod, user, volumes};
use crate::object::Str;
use crate::world::Start;

/// Why nothing of the pod can be started, as the event that says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartFailure {
    /// Reason of the event.
    pub reason: &'static str,
    /// Its message.
    pub message: String,
}

/// The start of an attempt; or what is missing, in Kubernetes' words.
pub fn build(pod: &LocalPod, member: &PodContainer, attempt: u32, ip: &Str) -> Result<Start, String> {
    let env = environment::container_environment(pod, member, ip)?;
    let spec = &member.spec;
    let name = spec.image.clone().unwrap_or_default();
    let image = if pod.simulated { None } else { image::find_settings(pod.world, &name) };
    let of_image: Vec<_> = image.iter().flat_map(image::ImageSettings::env).collect();
    let hostname = hostname(pod);
    let files = volumes::files(pod, member, &env, ip)?;
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
        brought: image.as_ref().map(|image| image::brought(pod, image, &[&of_image[..], &env].concat())),
        manifest_dir: pod.object.annotation(MANIFEST_DIR).map(str::to_owned),
        command: expanded(&spec.command),
        args: expanded(&spec.args),
        env: [of_image, vec![("HOSTNAME".to_owned(), hostname.to_string())], env].concat(),
        hostname,
        host_network: pod.spec.host_network == Some(true),
        files,
        names: volumes::names(pod, member),
        volume_paths: volumes::paths(pod, member),
        file_keys: environment::file_keys(member),
        working_dir: spec.working_dir.clone().or_else(|| image.as_ref()?.working_dir()),
        pull_policy: spec.image_pull_policy.clone().unwrap_or_else(|| "IfNotPresent".into()),
        termination_message_path: message::path(spec).to_owned(),
        termination_from_logs: spec.termination_message_policy.as_deref() == Some("FallbackToLogsOnError"),
        stdin: spec.stdin.unwrap_or(false),
        stdin_once: spec.stdin_once.unwrap_or(false),
        tty: spec.tty.unwrap_or(false),
        limits: resources::limits(pod, member),
        user: user::container_user(pod, member)?,
        rights: security::rights(member)?,
        processes: security::processes(pod, member),
        again: containers::restart_decision(pod, member),
        stop_signal: stop_signal.unwrap_or_else(|| "SIGTERM".into()),
        script: simulated_pod::script(&pod.object, &pod.spec, member.role),
    })
}

/// Returns the host name in the pod's containers: the node's name on the node's network, else by the spec.
pub fn hostname(pod: &LocalPod) -> Str {
    match full_name(pod) {
        _ if pod.spec.host_network == Some(true) => pod.spec.node_name.as_deref().unwrap_or_default().into(),
        Some(full) if pod.spec.set_hostname_as_fqdn == Some(true) && !overrides(pod) => full.as_str().into(),
        _ => short_name(pod),
    }
}

/// The pod's own name in its `/etc/hosts`: `spec.hostname`, or the pod's name. DNS takes 63 bytes of it at most.
pub fn short_name(pod: &LocalPod) -> Str {
    let named = pod.spec.hostname_override.as_ref().or(pod.spec.hostname.as_ref()).filter(|name| !name.is_empty());
    let name = named.map_or(&*pod.row.key.name, String::as_str);
    name.get(..63).map_or(name, |short| short.trim_end_matches(['-', '.'])).into()
}

/// The name that DNS has for the pod, when it has a subdomain.
pub fn full_name(pod: &LocalPod) -> Option<String> {
    let subdomain = pod.spec.subdomain.as_deref().filter(|name| !name.is_empty() && !overrides(pod))?;
    Some(format!("{}.{subdomain}.{}.svc.cluster.local", short_name(pod), pod.row.key.namespace))
}

/// `hostnameOverride`: the name is what it says, and DNS knows nothing of it (KEP-4762).
fn overrides(pod: &LocalPod) -> bool {
    pod.spec.hostname_override.as_ref().is_some_and(|name| !name.is_empty())
}

/// The kernel takes so many bytes of a name.
const LONGEST_NAME: usize = 64;

/// Why the pod cannot have the name that it wants.
pub fn unnameable(pod: &LocalPod) -> Option<StartFailure> {
    let name = hostname(pod);
    (name.len() > LONGEST_NAME).then(|| StartFailure {
        reason: "FailedCreatePodSandBox",
        message: format!(
            "Failed to create pod sandbox: failed to construct FQDN from Pod hostname and cluster domain, FQDN {name} is too long \
             ({LONGEST_NAME} characters is the max, {} characters requested)",
            name.len()
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::super::machine::{TestMachine, pod};
    use serde_json::{Value, json};

    fn machine(spec: Value) -> TestMachine {
        let mut spec = spec;
        spec["containers"] = json!([{"name": "c", "image": "a"}]);
        let mut machine = TestMachine::new(pod(spec));
        machine.settle();
        machine
    }

    #[test]
    fn a_container_is_told_the_name_that_its_pod_has() {
        let table = [
            (json!({}), "p"),
            (json!({"hostname": "h"}), "h"),
            (json!({"hostname": "h", "subdomain": "s"}), "h"),
            (json!({"hostname": "h", "setHostnameAsFQDN": true}), "h"),
            (json!({"hostname": "h", "subdomain": "s", "setHostnameAsFQDN": true}), "h.s.default.svc.cluster.local"),
            (json!({"hostname": "h", "subdomain": "s", "hostnameOverride": "o.example"}), "o.example"),
            (json!({"hostname": "h", "hostNetwork": true}), "n"),
        ];
        for (spec, expected) in table {
            let start = machine(spec.clone()).starts.remove(0);
            let variable = start.env.iter().find(|(name, _)| name == "HOSTNAME").map(|(_, value)| &**value);
            assert_eq!((&*start.hostname, variable), (expected, Some(expected)), "{spec}");
        }
    }

    #[test]
    fn a_name_that_the_kernel_does_not_take_is_told() {
        let subdomain = "s".repeat(40);
        let machine = machine(json!({"subdomain": subdomain, "setHostnameAsFQDN": true}));
        assert!(machine.starts.is_empty());
        let told = &machine.events[0];
        assert_eq!(told.reason, "FailedCreatePodSandBox");
        assert!(
            told.message.ends_with("is too long (64 characters is the max, 68 characters requested)"),
            "{}",
            told.message
        );
    }
}
