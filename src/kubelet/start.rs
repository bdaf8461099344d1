//! Everything that the start of an attempt needs.

use super::image::{self, MANIFEST_DIR};
use super::pod::{LocalPod, PodContainer};
use super::{environment, hostname, message, resources, restart_policy, security, simulated_pod, user, volumes};
use crate::object::Str;
use crate::world::Start;

/// Builds the start of an attempt, or returns Kubernetes' message about a missing object or key.
pub fn build(pod: &LocalPod, member: &PodContainer, attempt: u32, ip: &Str) -> Result<Start, String> {
    let mut variables = environment::container_environment(pod, member, ip)?;
    let spec = &member.spec;
    let name = spec.image.clone().unwrap_or_default();
    let image = if pod.is_simulated { None } else { image::find_settings(pod.world, &name) };
    let of_image: Vec<_> = image.iter().flat_map(image::ImageSettings::env).collect();
    let hostname = hostname::hostname(pod);
    let files = volumes::files(pod, member, &mut variables, ip)?;
    let mut expanded =
        |words: &Option<Vec<String>>| variables.expand_words(words.as_deref().unwrap_or_default(), &pod.start_bytes);
    let (command, args) = (expanded(&spec.command)?, expanded(&spec.args)?);
    let env = variables.into_list();
    let requested_image = image
        .as_ref()
        .map(|image| image::requested_image(pod, image, [&of_image[..], &env].concat().into()))
        .transpose()?;
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
        requested_image,
        manifest_dir: pod.object.annotation(MANIFEST_DIR).map(str::to_owned),
        command,
        args,
        env: [of_image, vec![("HOSTNAME".to_owned(), hostname.to_string())], env].concat(),
        hostname,
        host_network: pod.spec.host_network == Some(true),
        uses_services: pod.world.settings.host_uses_services || may_connect_to_linked_pods(pod),
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
        again: restart_policy::restart_decision(pod, member),
        stop_signal: stop_signal.unwrap_or_else(|| "SIGTERM".into()),
        script: simulated_pod::script(&pod.object, &pod.spec, member.role),
    })
}

/// Whether a pod on the machine's network may connect to pods of linked machines, whose addresses are not routed on this one.
fn may_connect_to_linked_pods(pod: &LocalPod) -> bool {
    let node = || pod.world.find("nodes", "", pod.spec.node_name.as_deref()?);
    pod.spec.host_network == Some(true)
        && pod.world.settings.pod_network
        && node().is_some_and(|row| row.node().is_some_and(|node| node.link.is_some()))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{TestMachine, pod};
    use serde_json::{Value, json};

    fn machine(spec: Value) -> TestMachine {
        let mut spec = spec;
        spec["containers"] = json!([{"name": "c", "image": "a"}]);
        let mut machine = TestMachine::new(pod(spec));
        machine.settle();
        machine
    }

    #[test]
    fn container_start_carries_the_name_that_its_pod_has() {
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
    fn pod_on_the_network_of_a_linked_machine_reaches_others() {
        for (host_network, link, expected) in
            [(true, Some("10.0.0.1:10245"), true), (true, None, false), (false, Some("10.0.0.1:10245"), false)]
        {
            let containers = json!([{"name": "c", "image": "a"}]);
            let mut machine = TestMachine::new(pod(json!({"hostNetwork": host_network, "containers": containers})));
            machine.world.settings.pod_network = true;
            let annotations = link.map_or(json!({}), |link| json!({"kloop.dev/node-link": link}));
            machine.put("nodes", json!({"metadata": {"name": "n", "uid": "n", "annotations": annotations}}));
            machine.settle();
            assert_eq!(machine.starts[0].uses_services, expected, "{host_network} {link:?}");
        }
    }

    #[test]
    fn hostname_that_the_kernel_refuses_is_reported() {
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
