//! The checks of the level `baseline`, in the order of messages.

use super::texts::{SortedTexts, items, name_containers, pluralize, quote_all, text, violation};
use super::{Check, CheckedPod, Violation};
use crate::kinds::pod::SAFE_SYSCTLS;
use serde_json::Value;

/// All checks of the level Baseline.
pub const CHECKS: &[Check] = &[
    check("appArmorProfile", &[(0, app_armor_profile)]),
    check("capabilities_baseline", &[(0, added_capabilities)]),
    check("hostNamespaces", &[(0, host_namespaces)]),
    check("hostPathVolumes", &[(0, host_path_volumes)]),
    check("hostPorts", &[(0, host_ports)]),
    check("hostProbesAndHostLifecycle", &[(34, probe_hosts)]),
    check("privileged", &[(0, privileged)]),
    check("procMount", &[(0, proc_mount), (35, proc_mount_without_user_namespace)]),
    check("seLinuxOptions", &[(0, |pod| selinux_options(pod, 3)), (31, |pod| selinux_options(pod, 4))]),
    check("seccompProfile_baseline", &[(0, seccomp_annotations), (19, seccomp_profile)]),
    check(
        "sysctls",
        &[
            (0, |pod| sysctls(pod, 5)),
            (27, |pod| sysctls(pod, 6)),
            (29, |pod| sysctls(pod, 10)),
            (32, |pod| sysctls(pod, SAFE_SYSCTLS.len())),
        ],
    ),
    check("windowsHostProcess", &[(0, windows_host_process)]),
];

const fn check(id: &'static str, versions: &'static [(u32, super::CheckFunction)]) -> Check {
    Check { id, versions, overrides: "" }
}

const DEFAULT_CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// In the order in which versions added them.
const SELINUX_TYPES: [&str; 4] = ["container_t", "container_init_t", "container_kvm_t", "container_engine_t"];

fn is_safe_profile(profile: &Value) -> bool {
    matches!(text(&profile["type"]), "RuntimeDefault" | "Localhost")
}

fn app_armor_profile(pod: &CheckedPod<'_>) -> Option<Violation> {
    let mut bad_types = SortedTexts::new();
    let setters = pod.setters("appArmorProfile", |profile| {
        let is_bad = !is_safe_profile(profile);
        if is_bad {
            bad_types.insert(text(&profile["type"]).to_owned());
        }
        is_bad
    });
    let annotations = pod.annotations.as_object().into_iter().flatten().filter(|(key, value)| {
        let value = text(value);
        key.starts_with("container.apparmor.security.beta.kubernetes.io/")
            && !(value.is_empty() || value == "runtime/default" || value.starts_with("localhost/"))
    });
    let annotations: SortedTexts = annotations.map(|(key, value)| format!("{key}={:?}", text(value))).collect();
    let mut all: Vec<String> = setters.into_iter().collect();
    if !annotations.is_empty() {
        all.push(pluralize("annotation", "annotations", annotations.len()).to_owned());
    }
    if all.is_empty() {
        return None;
    }
    let bad: Vec<String> = bad_types.into_iter().chain(annotations).collect();
    let reason = pluralize("forbidden AppArmor profile", "forbidden AppArmor profiles", bad.len());
    violation(reason, format!("{} must not set AppArmor profile type to {}", all.join(" and "), quote_all(&bad)))
}

fn added_capabilities(pod: &CheckedPod<'_>) -> Option<Violation> {
    let mut bad = SortedTexts::new();
    let containers = pod.containers_where(|container| {
        let added = items(&container["securityContext"]["capabilities"]["add"]).iter().map(text);
        let forbidden: Vec<&str> = added.filter(|name| !DEFAULT_CAPABILITIES.contains(name)).collect();
        bad.extend(forbidden.iter().map(|name| (*name).to_owned()));
        !forbidden.is_empty()
    });
    if containers.is_empty() {
        return None;
    }
    let containers = name_containers(&containers);
    let detail = format!("{containers} must not include {} in securityContext.capabilities.add", quote_all(&bad));
    violation("non-default capabilities", detail)
}

fn host_namespaces(pod: &CheckedPod<'_>) -> Option<Violation> {
    let shared = ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|field| pod.spec[*field] == true);
    let shared: Vec<String> = shared.map(|field| format!("{field}=true")).collect();
    if shared.is_empty() { None } else { violation("host namespaces", shared.join(", ")) }
}

fn host_path_volumes(pod: &CheckedPod<'_>) -> Option<Violation> {
    let volumes = items(&pod.spec["volumes"]).iter().filter(|volume| !volume["hostPath"].is_null());
    let names: Vec<String> = volumes.map(|volume| text(&volume["name"]).to_owned()).collect();
    if names.is_empty() {
        return None;
    }
    violation("hostPath volumes", format!("{} {}", pluralize("volume", "volumes", names.len()), quote_all(&names)))
}

fn host_ports(pod: &CheckedPod<'_>) -> Option<Violation> {
    let mut ports = SortedTexts::new();
    let containers = pod.containers_where(|container| {
        let own = items(&container["ports"]).iter().filter_map(|port| port["hostPort"].as_i64());
        let own: Vec<i64> = own.filter(|port| *port != 0).collect();
        ports.extend(own.iter().map(i64::to_string));
        !own.is_empty()
    });
    if containers.is_empty() {
        return None;
    }
    let detail = format!(
        "{} {} {} {}",
        name_containers(&containers),
        pluralize("uses", "use", containers.len()),
        pluralize("hostPort", "hostPorts", ports.len()),
        Vec::from_iter(ports).join(", ")
    );
    violation("hostPort", detail)
}

fn probe_hosts(pod: &CheckedPod<'_>) -> Option<Violation> {
    let mut hosts = SortedTexts::new();
    let containers = pod.containers_where(|container| {
        let probes = ["livenessProbe", "readinessProbe", "startupProbe"].map(|probe| &container[probe]);
        let hooks = ["postStart", "preStop"].map(|hook| &container["lifecycle"][hook]);
        let handlers = probes.into_iter().chain(hooks);
        let own = handlers.flat_map(|handler| ["httpGet", "tcpSocket"].map(|action| text(&handler[action]["host"])));
        let own: Vec<&str> = own.filter(|host| !host.is_empty()).collect();
        hosts.extend(own.iter().map(|host| (*host).to_owned()));
        !own.is_empty()
    });
    if containers.is_empty() {
        return None;
    }
    let containers = Vec::from_iter(SortedTexts::from_iter(containers));
    let detail = format!(
        "{} {} {} {}",
        name_containers(&containers),
        pluralize("uses", "use", containers.len()),
        pluralize("probe or lifecycle host", "probe or lifecycle hosts", hosts.len()),
        quote_all(&hosts)
    );
    violation("probe or lifecycle host", detail)
}

fn privileged(pod: &CheckedPod<'_>) -> Option<Violation> {
    let containers = pod.containers_where(|container| container["securityContext"]["privileged"] == true);
    if containers.is_empty() {
        return None;
    }
    violation("privileged", format!("{} must not set securityContext.privileged=true", name_containers(&containers)))
}

/// Refuses every type of mount but the default one.
pub fn proc_mount(pod: &CheckedPod<'_>) -> Option<Violation> {
    let mut bad = SortedTexts::new();
    let containers = pod.containers_where(|container| {
        let mount = container["securityContext"]["procMount"].as_str().filter(|mount| *mount != "Default");
        bad.extend(mount.map(str::to_owned));
        mount.is_some()
    });
    if containers.is_empty() {
        return None;
    }
    let containers = name_containers(&containers);
    violation("procMount", format!("{containers} must not set securityContext.procMount to {}", quote_all(&bad)))
}

fn proc_mount_without_user_namespace(pod: &CheckedPod<'_>) -> Option<Violation> {
    if pod.has_user_namespace() { None } else { proc_mount(pod) }
}

fn selinux_options(pod: &CheckedPod<'_>, allowed: usize) -> Option<Violation> {
    let (mut types, mut has_user, mut has_role) = (SortedTexts::new(), false, false);
    let setters = pod.setters("seLinuxOptions", |options| {
        let (kind, user, role) = (text(&options["type"]), text(&options["user"]), text(&options["role"]));
        let is_bad_type = !kind.is_empty() && !SELINUX_TYPES[..allowed].contains(&kind);
        if is_bad_type {
            types.insert(kind.to_owned());
        }
        has_user |= !user.is_empty();
        has_role |= !role.is_empty();
        is_bad_type || !user.is_empty() || !role.is_empty()
    })?;
    let mut bad = Vec::new();
    if !types.is_empty() {
        bad.push(format!("{} {}", pluralize("type", "types", types.len()), quote_all(&types)));
    }
    bad.extend(has_user.then(|| "user may not be set".to_owned()));
    bad.extend(has_role.then(|| "role may not be set".to_owned()));
    let detail = format!("{setters} set forbidden securityContext.seLinuxOptions: {}", bad.join("; "));
    violation("seLinuxOptions", detail)
}

fn seccomp_annotations(pod: &CheckedPod<'_>) -> Option<Violation> {
    const POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
    let of_containers = pod
        .containers()
        .map(|container| format!("container.seccomp.security.alpha.kubernetes.io/{}", text(&container["name"])));
    let bad = std::iter::once(POD.to_owned()).chain(of_containers).filter_map(|key| {
        let value = pod.annotations[&key].as_str()?;
        let is_allowed = matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/");
        (!is_allowed).then(|| format!("{key}={value:?}"))
    });
    let bad: SortedTexts = bad.collect();
    if bad.is_empty() {
        return None;
    }
    let word = pluralize("annotation", "annotations", bad.len());
    violation("seccompProfile", format!("forbidden {word} {}", Vec::from_iter(bad).join(", ")))
}

fn seccomp_profile(pod: &CheckedPod<'_>) -> Option<Violation> {
    let mut bad = SortedTexts::new();
    let setters = pod.setters("seccompProfile", |profile| is_bad_seccomp(profile, &mut bad))?;
    let detail = format!("{setters} must not set securityContext.seccompProfile.type to {}", quote_all(&bad));
    violation("seccompProfile", detail)
}

/// Whether a profile is none of the safe ones; notes its type then.
pub fn is_bad_seccomp(profile: &Value, bad: &mut SortedTexts) -> bool {
    let is_bad = !is_safe_profile(profile);
    if is_bad {
        bad.insert(text(&profile["type"]).to_owned());
    }
    is_bad
}

fn sysctls(pod: &CheckedPod<'_>, allowed: usize) -> Option<Violation> {
    let set = items(&pod.spec["securityContext"]["sysctls"]).iter().map(|sysctl| text(&sysctl["name"]));
    let bad: Vec<&str> = set.filter(|name| !SAFE_SYSCTLS[..allowed].contains(name)).collect();
    if bad.is_empty() { None } else { violation("forbidden sysctls", bad.join(", ")) }
}

fn windows_host_process(pod: &CheckedPod<'_>) -> Option<Violation> {
    let setters = pod.setters("windowsOptions", |options| options["hostProcess"] == true)?;
    violation("hostProcess", format!("{setters} must not set securityContext.windowsOptions.hostProcess=true"))
}
