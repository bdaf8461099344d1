//! Privileges of a container, by its security context.
//!
//! Without `capabilities` in the manifest a container keeps those of kloop itself: a developer's program, run as root, has root's rights.
//! A manifest that adds or drops some is written for a container runtime, so it starts from the default set of these.

use super::filesystem;
use super::pod::{ContainerRole, LocalPod, PodContainer};
use crate::world::{EventType, Plan, ProcessNamespace, ProcessRights};
use k8s_openapi::api::core::v1::{Capabilities, Container, SecurityContext};

/// Capabilities by the kernel's numbers (capability.h).
const NAMES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// Default capabilities of container runtimes.
const USUAL: [&str; 14] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "NET_RAW",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// Returns the rights of a container; or the message of a `CreateContainerConfigError`.
pub fn rights(member: &PodContainer) -> Result<ProcessRights, String> {
    let Some(context) = &member.spec.security_context else { return Ok(ProcessRights::default()) };
    let requested = context.capabilities.as_ref().filter(|capabilities| is_set(capabilities));
    let capabilities = match context.privileged {
        Some(true) => None,
        // An explicit `privileged: false` gets the default capabilities of container runtimes.
        Some(false) => Some(remaining_capabilities(requested.unwrap_or(&Capabilities::default()))?),
        None => requested.map(remaining_capabilities).transpose()?,
    };
    Ok(ProcessRights { capabilities, no_more: context.allow_privilege_escalation == Some(false) })
}

/// Returns the processes that a container sees (Kubernetes, "Share Process Namespace between Containers in a Pod").
pub fn processes(pod: &LocalPod, member: &PodContainer) -> ProcessNamespace {
    let target = || {
        let added = pod.spec.ephemeral_containers.iter().flatten().find(|one| one.name == member.spec.name);
        added.and_then(|one| one.target_container_name.as_deref()).filter(|name| !name.is_empty())
    };
    match (pod.spec.host_pid, pod.spec.share_process_namespace) {
        (Some(true), _) => ProcessNamespace::Machine,
        (_, Some(true)) => ProcessNamespace::Shared,
        _ if member.role == ContainerRole::Ephemeral => {
            target().map_or(ProcessNamespace::Own, |name| ProcessNamespace::Of(name.into()))
        }
        _ => ProcessNamespace::Own,
    }
}

/// Whether the container asks for a read-only root file system.
pub fn has_read_only_root(container: &Container) -> bool {
    container.security_context.as_ref().is_some_and(|context| context.read_only_root_filesystem == Some(true))
}

fn is_set(capabilities: &Capabilities) -> bool {
    capabilities.add.iter().chain(&capabilities.drop).any(|list| !list.is_empty())
}

/// The remaining capabilities as bits: `ALL` first, then the added, then the dropped ones (containerd: container_create_linux.go).
fn remaining_capabilities(capabilities: &Capabilities) -> Result<u64, String> {
    let (add, drop) =
        (capabilities.add.as_deref().unwrap_or_default(), capabilities.drop.as_deref().unwrap_or_default());
    let all = |list: &[String]| list.iter().any(|name| name.eq_ignore_ascii_case("ALL"));
    let mut left = match (all(add), all(drop)) {
        (_, true) => 0,
        (true, false) => u64::MAX,
        (false, false) => USUAL.iter().filter_map(|name| bit(name)).sum(),
    };
    for (list, verb) in [(add, "add"), (drop, "drop")] {
        for name in list.iter().filter(|name| !name.eq_ignore_ascii_case("ALL")) {
            let bit = bit(name).ok_or_else(|| format!("unknown capability {name:?} to {verb}"))?;
            left = if verb == "add" { left | bit } else { left & !bit };
        }
    }
    Ok(left)
}

fn bit(name: &str) -> Option<u64> {
    let name = name.to_ascii_uppercase();
    let name = name.strip_prefix("CAP_").unwrap_or(&name);
    NAMES.iter().position(|known| *known == name).map(|number| 1 << number)
}

/// Adds an event at a pod's first start about settings that only root could apply.
pub fn report_missing_rights(pod: &LocalPod, plan: &mut Plan) {
    for member in
        pod.members.iter().filter(|member| has_read_only_root(&member.spec) && filesystem::sees_machine(pod, member))
    {
        let message = format!(
            "container {}: securityContext.readOnlyRootFilesystem needs a private view of files: it sees, and may change, the machine's",
            member.spec.name
        );
        plan.event(pod.row, EventType::Warning, "FilesystemWritable", message);
    }
    for member in pod.members.iter().filter(|member| member.role != ContainerRole::Ephemeral) {
        report_missing_capabilities(pod, member, plan);
    }
}

/// Adds an event at a container's first start about capabilities that it asks for and does not get.
pub fn report_missing_capabilities(pod: &LocalPod, member: &PodContainer, plan: &mut Plan) {
    let (me, _) = pod.world.settings.runs_as;
    let Some(context) = member.spec.security_context.as_ref().filter(|_| me != 0) else { return };
    let adds = |context: &SecurityContext| {
        context
            .capabilities
            .as_ref()
            .is_some_and(|capabilities| capabilities.add.as_ref().is_some_and(|add| !add.is_empty()))
    };
    let field = match () {
        () if context.privileged == Some(true) => "privileged",
        () if adds(context) => "capabilities.add",
        () => return,
    };
    let message = format!(
        "container {}: securityContext.{field} needs root: kloop runs as user {me}, whose processes have no capabilities; \
         it is started all the same",
        member.spec.name
    );
    plan.event(pod.row, EventType::Warning, "NoCapabilities", message);
}

#[cfg(test)]
mod tests {
    use super::super::testing::{TestMachine, pod};
    use serde_json::{Value, json};

    fn machine(runs_as: u32, context: Value) -> TestMachine {
        let container = json!({"name": "c", "image": "a", "securityContext": context});
        let mut machine = TestMachine::new(pod(json!({"containers": [container]})));
        machine.world.settings.runs_as = (runs_as, runs_as);
        machine.settle();
        machine
    }

    #[test]
    fn capabilities_are_left_as_a_container_runtime_leaves_them() {
        let usual: u64 = 0xa804_25fb;
        let table = [
            (json!({}), None),
            (json!({"capabilities": {"add": [], "drop": []}}), None),
            (json!({"privileged": true, "capabilities": {"drop": ["ALL"]}}), None),
            (json!({"privileged": false}), Some(usual)),
            (json!({"privileged": false, "capabilities": {"drop": ["ALL"]}}), Some(0)),
            (json!({"capabilities": {"drop": ["ALL"]}}), Some(0)),
            (json!({"capabilities": {"drop": ["all"], "add": ["NET_BIND_SERVICE"]}}), Some(1 << 10)),
            (json!({"capabilities": {"drop": ["CAP_NET_RAW"]}}), Some(usual & !(1 << 13))),
            (json!({"capabilities": {"add": ["SYS_PTRACE"]}}), Some(usual | 1 << 19)),
            (json!({"capabilities": {"add": ["ALL"], "drop": ["CHOWN"]}}), Some(u64::MAX - 1)),
        ];
        for (context, expected) in table {
            let found = machine(0, context.clone()).starts.pop().expect("started").rights.capabilities;
            assert_eq!(found, expected, "{context}");
        }
        let refused = machine(0, json!({"capabilities": {"add": ["FLY"]}}));
        assert_eq!(refused.container("c")["state"]["waiting"]["message"], "unknown capability \"FLY\" to add");
    }

    #[test]
    fn pod_without_a_private_view_is_told_that_its_files_are_open() {
        let told = |private: bool| {
            let container = json!({"name": "c", "image": "a", "securityContext": {"readOnlyRootFilesystem": true}});
            let mut machine = TestMachine::new(pod(json!({"containers": [container]})));
            machine.world.settings.private_files = private;
            machine.settle();
            let is_closed = machine.starts[0].files.read_only;
            (is_closed, machine.reasons().contains(&"FilesystemWritable"))
        };
        assert_eq!((told(true), told(false)), ((true, false), (false, true)));
    }

    #[test]
    fn ordinary_user_is_told_which_settings_need_root() {
        let told =
            |machine: TestMachine| machine.events.iter().filter(|event| event.reason == "NoCapabilities").count();
        assert_eq!(told(machine(0, json!({"privileged": true}))), 0);
        assert_eq!(told(machine(5, json!({"privileged": true}))), 1);
        assert_eq!(told(machine(5, json!({"capabilities": {"add": ["CHOWN"]}}))), 1);
        assert_eq!(told(machine(5, json!({"capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": false}))), 0);
        let mut machine = machine(5, json!({}));
        let mut changed = machine.pod();
        let context = json!({"capabilities": {"add": ["NET_ADMIN"]}});
        changed.0["spec"]["ephemeralContainers"] = json!([{"name": "d", "image": "a", "securityContext": context}]);
        machine.put("pods", changed.0);
        machine.settle();
        assert_eq!(told(machine), 1, "of one that came later, too");
    }
}
