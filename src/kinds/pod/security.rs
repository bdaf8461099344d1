//! Checks of the security contexts of a pod and its containers.

use super::internal;
use super::paths;
use super::ports::check_host_network;
use crate::kinds::shared::go::{self, GoField, GoShape};
use crate::kinds::shared::names;
use crate::kinds::{FieldErrors, FieldPath};
use k8s_openapi::api::core::v1::{
    AppArmorProfile, PodSecurityContext, PodSpec, SeccompProfile, SecurityContext, Sysctl,
};
use serde_json::json;
use std::collections::BTreeSet;

const SECCOMP: &[GoField] =
    &[("Type", "type", GoShape::Text), ("LocalhostProfile", "localhostProfile", GoShape::Pointer)];

/// Names of sysctls that a pod may set without permission of its node: they are namespaced and concern no other pod. In the order in which
/// Kubernetes accepted them.
pub const SAFE_SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

const MAX_ID: i64 = 2_147_483_647;
const MAX_PROFILE_BYTES: usize = 4095;
const SYSCTL: &str = r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

fn check_id(id: Option<i64>, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(id) = id {
        errors.each_invalid(path, id, names::in_range(id, 0, MAX_ID));
    }
}

/// Checks the security context of a container.
pub fn check(security: &SecurityContext, path: &FieldPath, errors: &mut FieldErrors) {
    check_id(security.run_as_user, &path.child("runAsUser"), errors);
    check_id(security.run_as_group, &path.child("runAsGroup"), errors);
    if let Some(mount) = security.proc_mount.as_deref().filter(|mount| !["Default", "Unmasked"].contains(mount)) {
        errors.unsupported(&path.child("procMount"), mount, &["Default", "Unmasked"]);
    }
    check_seccomp(security.seccomp_profile.as_ref(), &path.child("seccompProfile"), errors);
    check_app_armor(security.app_armor_profile.as_ref(), &path.child("appArmorProfile"), errors);
    if security.allow_privilege_escalation != Some(false) {
        return;
    }
    if security.privileged == Some(true) {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
        errors.invalid_text(path, &internal::security_context(security), detail);
    }
    let added = security.capabilities.iter().filter_map(|capabilities| capabilities.add.as_ref()).flatten();
    for _ in added.filter(|name| *name == "CAP_SYS_ADMIN") {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
        errors.invalid_text(path, &internal::security_context(security), detail);
    }
}

fn check_seccomp(profile: Option<&SeccompProfile>, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(profile) = profile else { return };
    let file = profile.localhost_profile.as_deref();
    let at = path.child("localhostProfile");
    match profile.type_.as_str() {
        "Localhost" | "RuntimeDefault" | "Unconfined" => {}
        "" => errors.required(&path.child("type"), "type is required when seccompProfile is set"),
        other => errors.unsupported(&path.child("type"), other, &["Localhost", "RuntimeDefault", "Unconfined"]),
    }
    match (profile.type_.as_str(), file) {
        ("Localhost", None) => errors.required(&at, "must be set when seccomp type is Localhost"),
        ("Localhost", Some(file)) => paths::check_descending(file, &at, errors),
        (_, Some(_)) => {
            let text = go::lay_out(&json!(profile), SECCOMP).compact();
            errors.invalid_text(&at, &text, "can only be set when seccomp type is Localhost");
        }
        _ => {}
    }
}

fn check_app_armor(profile: Option<&AppArmorProfile>, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(profile) = profile else { return };
    let at = path.child("localhostProfile");
    match (profile.type_.as_str(), profile.localhost_profile.as_deref()) {
        ("Localhost", Some(name)) if name.trim() != name => {
            errors.invalid(&at, name, "must not be padded with whitespace");
        }
        ("Localhost", None | Some("")) => errors.required(&at, "must be set when AppArmor type is Localhost"),
        ("Localhost", Some(name)) if name.len() > MAX_PROFILE_BYTES => errors.too_long(&at, MAX_PROFILE_BYTES),
        ("RuntimeDefault" | "Unconfined", Some(name)) => {
            errors.invalid(&at, name, "can only be set when AppArmor type is Localhost");
        }
        ("Localhost" | "RuntimeDefault" | "Unconfined", _) => {}
        ("", _) => errors.required(&path.child("type"), "type is required when appArmorProfile is set"),
        (other, _) => {
            errors.unsupported_as_listed(&path.child("type"), other, &["Localhost", "RuntimeDefault", "Unconfined"]);
        }
    }
}

/// Checks the security context of the pod, and its ports with `hostNetwork`.
pub fn check_pod(spec: &PodSpec, spec_path: &FieldPath, errors: &mut FieldErrors) {
    let path = &spec_path.child("securityContext");
    if spec.host_network == Some(true) {
        check_host_network(&spec.containers, &spec_path.child("containers"), errors);
        let init = spec.init_containers.as_deref().unwrap_or_default();
        check_host_network(init, &spec_path.child("initContainers"), errors);
    }
    check_users(spec, spec_path, errors);
    let Some(security) = &spec.security_context else { return };
    check_ids(security, path, errors);
    if spec.share_process_namespace == Some(true) && spec.host_pid == Some(true) {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid(&path.child("shareProcessNamespace"), true, detail);
    }
    check_sysctls(spec, security.sysctls.as_deref().unwrap_or_default(), &path.child("sysctls"), errors);
    let check_policy = |field: &str, policy: &Option<String>, known: &[&str], errors: &mut FieldErrors| {
        if let Some(policy) = policy.as_deref().filter(|policy| !known.contains(policy)) {
            errors.unsupported(&path.child(field), policy, known);
        }
    };
    check_policy("fsGroupChangePolicy", &security.fs_group_change_policy, &["OnRootMismatch", "Always"], errors);
    check_seccomp(security.seccomp_profile.as_ref(), &path.child("seccompProfile"), errors);
    check_app_armor(security.app_armor_profile.as_ref(), &path.child("appArmorProfile"), errors);
    check_policy("supplementalGroupsPolicy", &security.supplemental_groups_policy, &["Merge", "Strict"], errors);
    // The other policy, MountOption, belongs to a feature that is off by default.
    check_policy("seLinuxChangePolicy", &security.se_linux_change_policy, &["Recursive"], errors);
}

/// Validates combinations with pods in user namespaces.
fn check_users(spec: &PodSpec, path: &FieldPath, errors: &mut FieldErrors) {
    if spec.host_users == Some(false) {
        let fields = [("hostNetwork", spec.host_network), ("HostPID", spec.host_pid), ("HostIPC", spec.host_ipc)];
        for (field, _) in fields.into_iter().filter(|(_, value)| *value == Some(true)) {
            errors.forbidden(&path.child(field), "when `hostUsers` is false");
        }
    }
    let lists = [("initContainers", spec.init_containers.as_deref()), ("containers", Some(&spec.containers[..]))];
    for (list, containers) in lists {
        for (index, container) in containers.into_iter().flatten().enumerate() {
            if spec.host_users == Some(false) {
                if container.volume_devices.is_some() {
                    let at = path.child(list).index(index).child("volumeDevices");
                    errors.forbidden(&at, "when `hostUsers` is false");
                }
                continue;
            }
            let mount = container.security_context.as_ref().and_then(|context| context.proc_mount.as_deref());
            if mount == Some("Unmasked") {
                let at = path.child(list).index(index).child("securityContext").child("procMount");
                errors.invalid(&at, "Unmasked", "`hostUsers` must be false to use `Unmasked`");
            }
        }
    }
}

fn check_ids(security: &PodSecurityContext, path: &FieldPath, errors: &mut FieldErrors) {
    check_id(security.fs_group, &path.child("fsGroup"), errors);
    check_id(security.run_as_user, &path.child("runAsUser"), errors);
    check_id(security.run_as_group, &path.child("runAsGroup"), errors);
    for (index, group) in security.supplemental_groups.iter().flatten().enumerate() {
        check_id(Some(*group), &path.child("supplementalGroups").index(index), errors);
    }
}

fn check_sysctls(spec: &PodSpec, sysctls: &[Sysctl], path: &FieldPath, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for (index, sysctl) in sysctls.iter().enumerate() {
        let path = path.index(index).child("name");
        if sysctl.name.is_empty() {
            errors.required(&path, "");
        } else if !is_sysctl(&sysctl.name) {
            let detail = format!("must have at most 253 characters and match regex {SYSCTL}");
            errors.invalid(&path, sysctl.name.as_str(), &detail);
        } else if !seen.insert(sysctl.name.as_str()) {
            errors.duplicate(&path, sysctl.name.as_str());
        }
        let name = sysctl.name.replace('/', ".");
        let is_ipc = ["kernel.shm", "kernel.msg", "fs.mqueue."].iter().any(|start| name.starts_with(start))
            || name == "kernel.sem";
        for (field, shared, concerned) in
            [("hostNetwork", spec.host_network, name.starts_with("net.")), ("hostIPC", spec.host_ipc, is_ipc)]
        {
            if shared == Some(true) && concerned {
                let detail = format!("may not be specified when '{field}' is true");
                errors.invalid(&path, sysctl.name.as_str(), &detail);
            }
        }
    }
}

fn is_sysctl(name: &str) -> bool {
    let end = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let part = |part: &str| {
        let bytes = part.as_bytes();
        let inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(byte);
        end(bytes.first()) && end(bytes.last()) && bytes.iter().all(inner)
    };
    name.len() <= 253 && name.split(['.', '/']).all(part)
}
