use super::*;
use crate::kinds::FieldErrors;
use serde_json::json;

const BASELINE: PolicyLevel = PolicyLevel { level: Level::Baseline, version: None };
const RESTRICTED: PolicyLevel = PolicyLevel { level: Level::Restricted, version: None };

/// A hardened pod, changed by a merge patch.
fn hardened(patch: Value) -> Value {
    let container =
        json!({"name": "c", "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}});
    let mut pod = json!({"metadata": {}, "spec": {
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}}, "containers": [container],
    }});
    json_patch::merge(&mut pod, &patch);
    pod
}

fn in_version(level: Level, minor: u32) -> PolicyLevel {
    PolicyLevel { level, version: Some(minor) }
}

/// A pod whose only container has this security context on top of the hardened one.
fn with_context(security: Value) -> Value {
    let mut pod = hardened(json!({}));
    json_patch::merge(&mut pod["spec"]["containers"][0]["securityContext"], &security);
    pod
}

#[test]
fn each_check_names_fields_and_containers() {
    let sysctl = |name: &str| json!({"spec": {"securityContext": {"sysctls": [{"name": name, "value": "1"}]}}});
    let annotated = |key: &str, value: &str| json!({"metadata": {"annotations": {key: value}}});
    let container = |fields: Value| {
        let mut pod = hardened(json!({}));
        json_patch::merge(&mut pod["spec"]["containers"][0], &fields);
        pod
    };
    let cases = [
        (BASELINE, hardened(json!({})), ""),
        (RESTRICTED, hardened(json!({})), ""),
        (
            BASELINE,
            hardened(json!({"spec": {"hostNetwork": true, "hostIPC": true}})),
            "host namespaces (hostNetwork=true, hostIPC=true)",
        ),
        (
            BASELINE,
            hardened(
                json!({"spec": {"volumes": [{"name": "a", "hostPath": {"path": "/"}}, {"name": "b", "nfs": {}}]}}),
            ),
            "hostPath volumes (volume \"a\")",
        ),
        (
            RESTRICTED,
            hardened(
                json!({"spec": {"volumes": [{"name": "a", "hostPath": {"path": "/"}}, {"name": "b", "nfs": {}}, {"name": "c", "secret": {}}]}}),
            ),
            "restricted volume types (volumes \"a\", \"b\" use restricted volume types \"hostPath\", \"nfs\")",
        ),
        (
            BASELINE,
            container(json!({"ports": [{"hostPort": 9}, {"hostPort": 80}, {"containerPort": 1}]})),
            "hostPort (container \"c\" uses hostPorts 80, 9)",
        ),
        (
            BASELINE,
            container(
                json!({"livenessProbe": {"httpGet": {"host": "h"}}, "lifecycle": {"preStop": {"tcpSocket": {"host": "i"}}}}),
            ),
            "probe or lifecycle host (container \"c\" uses probe or lifecycle hosts \"h\", \"i\")",
        ),
        (
            BASELINE,
            with_context(json!({"privileged": true})),
            "privileged (container \"c\" must not set securityContext.privileged=true)",
        ),
        (
            BASELINE,
            with_context(json!({"procMount": "Unmasked"})),
            "procMount (container \"c\" must not set securityContext.procMount to \"Unmasked\")",
        ),
        (
            BASELINE,
            with_context(json!({"capabilities": {"add": ["NET_RAW", "CHOWN"]}})),
            "non-default capabilities (container \"c\" must not include \"NET_RAW\" in securityContext.capabilities.add)",
        ),
        (
            RESTRICTED,
            with_context(json!({"capabilities": {"drop": null, "add": ["NET_RAW", "NET_BIND_SERVICE"]}})),
            "unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"]; container \"c\" must \
             not include \"NET_RAW\" in securityContext.capabilities.add)",
        ),
        (
            BASELINE,
            with_context(json!({"seLinuxOptions": {"type": "x", "role": "r"}})),
            "seLinuxOptions (container \"c\" set forbidden securityContext.seLinuxOptions: type \"x\"; role may not be set)",
        ),
        (
            BASELINE,
            with_context(json!({"seccompProfile": {"type": "Unconfined"}})),
            "seccompProfile (container \"c\" must not set securityContext.seccompProfile.type to \"Unconfined\")",
        ),
        (BASELINE, hardened(sysctl("kernel.sem")), "forbidden sysctls (kernel.sem)"),
        (
            BASELINE,
            hardened(json!({"spec": {"securityContext": {"windowsOptions": {"hostProcess": true}}}})),
            "hostProcess (pod must not set securityContext.windowsOptions.hostProcess=true)",
        ),
        (
            BASELINE,
            with_context(json!({"appArmorProfile": {"type": "Unconfined"}})),
            "forbidden AppArmor profile (container \"c\" must not set AppArmor profile type to \"Unconfined\")",
        ),
        (
            BASELINE,
            hardened(annotated("container.apparmor.security.beta.kubernetes.io/c", "unconfined")),
            "forbidden AppArmor profile (annotation must not set AppArmor profile type to \
             \"container.apparmor.security.beta.kubernetes.io/c=\"unconfined\"\")",
        ),
        (
            RESTRICTED,
            with_context(json!({"runAsUser": 0, "runAsNonRoot": false})),
            "runAsNonRoot != true (container \"c\" must not set securityContext.runAsNonRoot=false), runAsUser=0 (container \"c\" \
             must not set runAsUser=0)",
        ),
    ];
    for (level, pod, expected) in cases {
        assert_eq!(list_details(&evaluate(level, &pod)), expected, "{level} {pod}");
    }
}

#[test]
fn versions_choose_the_form_of_a_check() {
    let rmem = hardened(json!({"spec": {"securityContext": {"sysctls": [{"name": "net.ipv4.tcp_rmem"}]}}}));
    let engine = with_context(json!({"seLinuxOptions": {"type": "container_engine_t"}}));
    let bare = json!({"metadata": {}, "spec": {"os": {"name": "windows"}, "containers": [{"name": "c"}]}});
    let in_user_namespace = json!({"metadata": {}, "spec": {"hostUsers": false, "containers": [{"name": "c"}]}});
    let annotated =
        hardened(json!({"metadata": {"annotations": {"seccomp.security.alpha.kubernetes.io/pod": "unconfined"}}}));
    let cases = [
        (Level::Baseline, 31, &rmem, "forbidden sysctls"),
        (Level::Baseline, 32, &rmem, ""),
        (Level::Baseline, 30, &engine, "seLinuxOptions"),
        (Level::Baseline, 31, &engine, ""),
        (Level::Baseline, 18, &annotated, "seccompProfile"),
        (Level::Baseline, 19, &annotated, ""),
        (Level::Restricted, 7, &bare, "runAsNonRoot != true"),
        (
            Level::Restricted,
            24,
            &bare,
            "allowPrivilegeEscalation != false, unrestricted capabilities, runAsNonRoot != true, seccompProfile",
        ),
        (Level::Restricted, 25, &bare, "runAsNonRoot != true"),
        (
            Level::Restricted,
            34,
            &in_user_namespace,
            "allowPrivilegeEscalation != false, unrestricted capabilities, runAsNonRoot != true, seccompProfile",
        ),
        (
            Level::Restricted,
            99,
            &in_user_namespace,
            "allowPrivilegeEscalation != false, unrestricted capabilities, seccompProfile",
        ),
        (Level::Privileged, 35, &bare, ""),
    ];
    for (level, minor, pod, expected) in cases {
        assert_eq!(list_reasons(&evaluate(in_version(level, minor), pod)), expected, "{level:?} v1.{minor}");
    }
}

#[test]
fn labels_are_read_with_their_errors() {
    let read = |labels: Value| {
        let mut errors = FieldErrors::default();
        let prefixed: serde_json::Map<String, Value> = labels
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| (format!("pod-security.kubernetes.io/{key}"), value.clone()))
            .collect();
        let policy = NamespacePolicy::from_labels(&Object(json!({"metadata": {"labels": prefixed}})), &mut errors);
        let shown = [policy.enforce, policy.audit, policy.warn].map(|level| level.to_string()).join(" ");
        (shown, errors.0.into_iter().map(|error| error.message).collect::<Vec<_>>())
    };
    let cases = [
        (json!({}), "privileged:latest privileged:latest privileged:latest", vec![]),
        (
            json!({"enforce": "baseline", "enforce-version": "v1.30", "audit": "restricted"}),
            "baseline:v1.30 restricted:latest baseline:v1.30",
            vec![],
        ),
        (
            json!({"enforce": "restricted", "warn": "privileged"}),
            "restricted:latest privileged:latest privileged:latest",
            vec![],
        ),
        (
            json!({"enforce": "strict", "warn-version": "v1.07"}),
            "restricted:latest privileged:latest privileged:latest",
            vec![
                "Invalid value: \"strict\": must be one of privileged, baseline, restricted",
                "Invalid value: \"v1.07\": must be \"latest\" or \"v1.x\"",
            ],
        ),
    ];
    for (labels, shown, messages) in cases {
        let messages = messages.into_iter().map(str::to_owned).collect::<Vec<String>>();
        assert_eq!(read(labels.clone()), (shown.to_owned(), messages), "{labels}");
    }
}

#[test]
fn update_counts_when_an_image_or_a_container_changes() {
    let pod = |image: &str, debug: &[&str]| {
        let debug: Vec<Value> = debug.iter().map(|name| json!({"name": name, "image": "d"})).collect();
        Object(json!({"metadata": {"labels": {"n": debug.len().to_string()}},
            "spec": {"containers": [{"name": "c", "image": image}], "ephemeralContainers": debug}}))
    };
    assert!(!is_significant_update(&pod("a", &["d"]), &pod("a", &["d"])));
    assert!(is_significant_update(&pod("b", &[]), &pod("a", &[])));
    assert!(is_significant_update(&pod("a", &["d"]), &pod("a", &[])));
}
