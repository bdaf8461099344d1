//! Checks of the operating system that a pod names, and of the fields that a pod of this system may not have.

use crate::kinds::{FieldErrors, FieldPath};
use k8s_openapi::api::core::v1::{PodSecurityContext, PodSpec, SecurityContext};

const FOR_WINDOWS_ONLY: &str = "windows options cannot be set for a linux pod";
const NOT_FOR_WINDOWS: &str = "cannot be set for a windows pod";

/// Checks `spec.os`, and the fields that the system refuses.
pub fn check(spec: &PodSpec, path: &FieldPath, errors: &mut FieldErrors) {
    match spec.os.as_ref().map(|os| os.name.as_str()) {
        Some("") => errors.required(&path.child("os").child("name"), ""),
        Some("linux") => check_linux(spec, path, errors),
        Some("windows") => check_windows(spec, path, errors),
        None => {}
        Some(other) => errors.unsupported(&path.child("os"), other, &["linux", "windows"]),
    }
}

/// Whether the pod is for nodes with Windows.
pub fn is_windows(spec: &PodSpec) -> bool {
    spec.os.as_ref().is_some_and(|os| os.name == "windows")
}

fn check_linux(spec: &PodSpec, path: &FieldPath, errors: &mut FieldErrors) {
    if spec.security_context.as_ref().is_some_and(|security| security.windows_options.is_some()) {
        errors.forbidden(&path.child("securityContext").child("windowsOptions"), FOR_WINDOWS_ONLY);
    }
    for_each_security_context(spec, path, |security, at| {
        if security.windows_options.is_some() {
            errors.forbidden(&at.child("windowsOptions"), FOR_WINDOWS_ONLY);
        }
    });
}

fn check_windows(spec: &PodSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let none = PodSecurityContext::default();
    let security = spec.security_context.as_ref().unwrap_or(&none);
    let at = path.child("securityContext");
    let fields = [
        (&at, "appArmorProfile", security.app_armor_profile.is_some()),
        (&at, "seLinuxOptions", security.se_linux_options.is_some()),
        (path, "hostUsers", spec.host_users.is_some()),
        (path, "hostPID", spec.host_pid == Some(true)),
        (path, "hostIPC", spec.host_ipc == Some(true)),
        (&at, "seccompProfile", security.seccomp_profile.is_some()),
        (&at, "fsGroup", security.fs_group.is_some()),
        (&at, "fsGroupChangePolicy", security.fs_group_change_policy.is_some()),
        (&at, "sysctls", security.sysctls.as_ref().is_some_and(|sysctls| !sysctls.is_empty())),
        (path, "shareProcessNamespace", spec.share_process_namespace.is_some()),
        (&at, "runAsUser", security.run_as_user.is_some()),
        (&at, "runAsGroup", security.run_as_group.is_some()),
        (&at, "supplementalGroups", security.supplemental_groups.is_some()),
        (&at, "supplementalGroupsPolicy", security.supplemental_groups_policy.is_some()),
        (&at, "seLinuxChangePolicy", security.se_linux_change_policy.is_some()),
    ];
    for (parent, field, _) in fields.into_iter().filter(|(_, _, is_set)| *is_set) {
        errors.forbidden(&parent.child(field), NOT_FOR_WINDOWS);
    }
    for_each_security_context(spec, path, |security, at| check_windows_container(security, at, errors));
}

fn check_windows_container(security: &SecurityContext, at: &FieldPath, errors: &mut FieldErrors) {
    let fields = [
        ("appArmorProfile", security.app_armor_profile.is_some()),
        ("seLinuxOptions", security.se_linux_options.is_some()),
        ("seccompProfile", security.seccomp_profile.is_some()),
        ("capabilities", security.capabilities.is_some()),
        ("readOnlyRootFilesystem", security.read_only_root_filesystem.is_some()),
        ("privileged", security.privileged.is_some()),
        ("allowPrivilegeEscalation", security.allow_privilege_escalation.is_some()),
        ("procMount", security.proc_mount.is_some()),
        ("runAsUser", security.run_as_user.is_some()),
        ("runAsGroup", security.run_as_group.is_some()),
    ];
    for (field, _) in fields.into_iter().filter(|(_, is_set)| *is_set) {
        errors.forbidden(&at.child(field), NOT_FOR_WINDOWS);
    }
}

/// Calls a function with the security context of each container, and its path.
fn for_each_security_context(spec: &PodSpec, path: &FieldPath, mut check: impl FnMut(&SecurityContext, &FieldPath)) {
    let init = spec.init_containers.iter().flatten().map(|container| container.security_context.as_ref());
    let main = spec.containers.iter().map(|container| container.security_context.as_ref());
    let ephemeral = spec.ephemeral_containers.iter().flatten().map(|container| container.security_context.as_ref());
    let lists = [
        ("initContainers", init.collect::<Vec<_>>()),
        ("containers", main.collect()),
        ("ephemeralContainers", ephemeral.collect()),
    ];
    for (list, contexts) in lists {
        for (index, security) in contexts.into_iter().enumerate() {
            if let Some(security) = security {
                check(security, &path.child(list).index(index).child("securityContext"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::testing::refusals;
    use serde_json::{Value, json};

    fn refused(spec: Value) -> Vec<String> {
        let body = json!({"apiVersion": "v1", "kind": "Pod", "spec": spec});
        refusals(body).into_iter().map(|error| error.split(": ").next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn windows_pod_has_no_options_of_linux() {
        let container = |security: Value| json!({"name": "c", "image": "i", "securityContext": security});
        let options = json!({"windowsOptions": {"runAsUserName": "a"}});
        let spec = |os: &str, security: Value, of_container: Value| json!({"os": {"name": os}, "securityContext": security, "containers": [container(of_container)]});
        assert_eq!(refused(spec("windows", options.clone(), options.clone())), [""; 0]);
        let fields = ["spec.securityContext.windowsOptions", "spec.containers[0].securityContext.windowsOptions"];
        assert_eq!(refused(spec("linux", options.clone(), options)), fields);
        let user = json!({"runAsUser": 1});
        let mut pod = spec("windows", user.clone(), json!({"privileged": true, "runAsUser": 1}));
        let fields = [
            "spec.hostPID",
            "spec.securityContext.runAsUser",
            "spec.containers[0].securityContext.privileged",
            "spec.containers[0].securityContext.runAsUser",
        ];
        pod["hostPID"] = json!(true);
        assert_eq!(refused(pod), fields);
        let mut pod = spec("windows", json!({}), json!({}));
        pod["resources"] = json!({"limits": {"cpu": "-1"}});
        assert_eq!(refused(pod), ["spec.resources"]);
    }
}
