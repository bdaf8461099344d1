//! Checks of containers and init containers.

use super::mounts::{self, PodVolumes};
use super::probes::{self, ProbeRole};
use super::{env, facts, ports, resources, security};
use crate::kinds::shared::names;
use crate::kinds::{FieldErrors, FieldPath};
use k8s_openapi::api::core::v1::{Container, PodSpec};
use std::collections::BTreeSet;

const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
const ACTIONS: [&str; 2] = ["Restart", "RestartAllContainers"];
const MAX_RULES: usize = 20;
const MAX_EXIT_CODES: usize = 255;
const MESSAGE_POLICIES: [&str; 2] = ["File", "FallbackToLogsOnError"];

/// Checks the containers of a pod.
pub fn check(spec: &PodSpec, volumes: &PodVolumes<'_>, path: &FieldPath, errors: &mut FieldErrors) {
    let path = path.child("containers");
    if spec.containers.is_empty() {
        return errors.required(&path, "");
    }
    let mut seen = BTreeSet::new();
    for (index, container) in spec.containers.iter().enumerate() {
        let path = path.index(index);
        check_common(container, volumes, &path, errors);
        resources::check_resize(container, spec.restart_policy.as_deref(), &path.child("resizePolicy"), errors);
        if !seen.insert(container.name.as_str()) {
            errors.duplicate(&path.child("name"), container.name.as_str());
        }
        check_hooks_and_probes(container, spec, &path, errors);
        check_restart(container, false, &path, errors);
    }
    ports::check_conflicts(&spec.containers, &path, errors);
}

/// Checks the init containers. Only sidecars may have probes and hooks.
pub fn check_init(spec: &PodSpec, volumes: &PodVolumes<'_>, path: &FieldPath, errors: &mut FieldErrors) {
    let path = path.child("initContainers");
    let mut seen: BTreeSet<&str> = spec.containers.iter().map(|container| container.name.as_str()).collect();
    for (index, container) in spec.init_containers.iter().flatten().enumerate() {
        let at = path.index(index);
        check_common(container, volumes, &at, errors);
        resources::check_resize(container, spec.restart_policy.as_deref(), &at.child("resizePolicy"), errors);
        if !container.name.is_empty() && !seen.insert(container.name.as_str()) {
            errors.duplicate(&at.child("name"), container.name.as_str());
        }
        ports::check_conflicts(std::slice::from_ref(container), &path, errors);
        check_restart(container, true, &at, errors);
        if facts::is_sidecar(container) {
            check_hooks_and_probes(container, spec, &at, errors);
            continue;
        }
        let care = [
            ("lifecycle", container.lifecycle.is_some()),
            ("livenessProbe", container.liveness_probe.is_some()),
            ("readinessProbe", container.readiness_probe.is_some()),
            ("startupProbe", container.startup_probe.is_some()),
        ];
        for (field, _) in care.iter().filter(|(_, set)| *set) {
            let detail = "may not be set for init containers without restartPolicy=Always";
            errors.forbidden(&at.child(field), detail);
        }
    }
}

/// Checks a container's restart policy and its rules for exit codes (KEP-5307, KEP-5532).
fn check_restart(container: &Container, is_init: bool, path: &FieldPath, errors: &mut FieldErrors) {
    let known = ["Always", "Never", "OnFailure"];
    let rules = container.restart_policy_rules.as_deref().unwrap_or_default();
    match container.restart_policy.as_deref() {
        Some(policy) if !known.contains(&policy) => {
            errors.unsupported(&path.child("restartPolicy"), policy, &known);
        }
        None if !rules.is_empty() => {
            let detail = "must specify restartPolicy when restart rules are used";
            errors.required(&path.child("restartPolicy"), detail);
        }
        _ => {}
    }
    if is_init && container.restart_policy.is_none() {
        return;
    }
    let path = path.child("restartPolicyRules");
    if rules.len() > MAX_RULES {
        errors.too_many(&path, rules.len(), MAX_RULES);
    }
    for (index, rule) in rules.iter().enumerate() {
        let path = path.index(index);
        if !ACTIONS.contains(&&*rule.action) {
            errors.unsupported(&path.child("action"), &*rule.action, &ACTIONS);
        }
        let path = path.child("exitCodes");
        match &rule.exit_codes {
            None => errors.required(&path, "must be specified"),
            Some(codes) if !["In", "NotIn"].contains(&&*codes.operator) => {
                errors.unsupported(&path.child("operator"), &*codes.operator, &["In", "NotIn"]);
            }
            Some(codes) if codes.values.as_ref().is_some_and(|values| values.len() > MAX_EXIT_CODES) => {
                let count = codes.values.as_ref().map_or(0, Vec::len);
                errors.too_many(&path.child("values"), count, MAX_EXIT_CODES);
            }
            Some(_) => {}
        }
    }
}

/// Checks hooks and probes.
fn check_hooks_and_probes(container: &Container, spec: &PodSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let grace = spec.termination_grace_period_seconds.unwrap_or(30);
    probes::check_lifecycle(container.lifecycle.as_ref(), grace, &path.child("lifecycle"), errors);
    let probes = [
        ("livenessProbe", &container.liveness_probe, ProbeRole::Liveness),
        ("readinessProbe", &container.readiness_probe, ProbeRole::Readiness),
        ("startupProbe", &container.startup_probe, ProbeRole::Startup),
    ];
    for (field, probe, role) in probes {
        probes::check(probe.as_ref(), role, grace, &path.child(field), errors);
    }
}

/// Validates the fields that all container types share.
pub fn check_common(container: &Container, volumes: &PodVolumes<'_>, path: &FieldPath, errors: &mut FieldErrors) {
    match container.name.as_str() {
        "" => errors.required(&path.child("name"), ""),
        name => errors.each_invalid(&path.child("name"), name, names::label(name)),
    }
    if container.image.as_ref().is_none_or(String::is_empty) {
        errors.required(&path.child("image"), "");
    }
    let policy = container.termination_message_policy.as_deref().unwrap_or_default();
    if !MESSAGE_POLICIES.contains(&policy) {
        errors.unsupported_as_listed(&path.child("terminationMessagePolicy"), policy, &MESSAGE_POLICIES);
    }
    ports::check(container.ports.as_deref().unwrap_or_default(), &path.child("ports"), errors);
    env::check(container.env.as_deref().unwrap_or_default(), &path.child("env"), errors);
    env::check_from(container.env_from.as_deref().unwrap_or_default(), &path.child("envFrom"), errors);
    mounts::check(container, volumes, path, errors);
    let policy = container.image_pull_policy.as_deref().unwrap_or_default();
    if !PULL_POLICIES.contains(&policy) {
        errors.unsupported(&path.child("imagePullPolicy"), policy, &PULL_POLICIES);
    }
    if let Some(all) = &container.resources {
        resources::check(all, &path.child("resources"), errors);
    }
    if let Some(context) = &container.security_context {
        security::check(context, &path.child("securityContext"), errors);
    }
}

/// Refuses blanks around image names in pods; templates may have them.
pub fn check_images(containers: &[Container], path: &FieldPath, errors: &mut FieldErrors) {
    for (index, container) in containers.iter().enumerate() {
        check_image(container.image.as_deref(), &path.index(index), errors);
    }
}

/// Refuses blanks around the image name of a container of a pod.
pub fn check_image(image: Option<&str>, path: &FieldPath, errors: &mut FieldErrors) {
    let image = image.unwrap_or_default();
    if image.trim() != image {
        errors.invalid(&path.child("image"), image, "must not have leading or trailing whitespace");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Volume;
    use serde_json::{Value, json};

    #[test]
    fn rules_for_exit_codes_are_checked() {
        let rule = |action: &str, operator: &str| json!({"action": action, "exitCodes": {"operator": operator, "values": [1]}});
        let good = json!([rule("Restart", "In"), rule("RestartAllContainers", "NotIn")]);
        let table: [(&str, Value, &[&str]); 5] = [
            ("Never", good.clone(), &[]),
            ("", good, &["c.restartPolicy"]),
            ("Sometimes", json!([]), &["c.restartPolicy"]),
            (
                "Never",
                json!([rule("Stop", "In"), rule("Restart", "")]),
                &["c.restartPolicyRules[0].action", "c.restartPolicyRules[1].exitCodes.operator"],
            ),
            ("Never", json!([{"action": "Restart"}]), &["c.restartPolicyRules[0].exitCodes"]),
        ];
        for (policy, rules, expected) in table {
            let policy = (!policy.is_empty()).then_some(policy);
            let body = json!({"name": "c", "restartPolicy": policy, "restartPolicyRules": rules});
            let container: Container = serde_json::from_value(body).unwrap();
            let mut errors = FieldErrors::default();
            check_restart(&container, false, &FieldPath::root("c"), &mut errors);
            let found: Vec<String> = errors.0.iter().map(|error| error.field.clone()).collect();
            assert_eq!(found, expected, "{rules}");
        }
    }

    #[test]
    fn files_of_variables_are_checked() {
        let volumes: Vec<Volume> =
            serde_json::from_value(json!([{"name": "v", "emptyDir": {}}, {"name": "h", "hostPath": {"path": "/"}}]))
                .unwrap();
        let volumes: PodVolumes<'_> = volumes.iter().map(|volume| (volume.name.as_str(), volume)).collect();
        let required = |field: &str| format!("{field}: Required value");
        for (volume, file, key, expected) in [
            ("v", "a/b.env", "KEY", Vec::new()),
            ("", "", "", ["key", "volumeName", "path"].map(required).into()),
            ("v", "/etc/passwd", "KEY", Vec::new()),
            ("v", "a/../../b", "KEY", vec!["path: Invalid value: \"a/../../b\": must not contain '..'".into()]),
            (
                "v",
                "a",
                "A=B",
                vec![
                    "key: Invalid value: \"A=B\": a valid environment variable name must consist only of printable \
                     ASCII characters other than '='"
                        .into(),
                ],
            ),
        ] {
            let body = json!({"name": "c", "image": "i", "imagePullPolicy": "Always", "terminationMessagePolicy": "File",
                "env": [{"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": volume, "path": file, "key": key}}}]});
            let container: Container = serde_json::from_value(body).unwrap();
            let mut errors = FieldErrors::default();
            check_common(&container, &volumes, &FieldPath::root("c"), &mut errors);
            let found: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
            let at = |text: String| format!("c.env[0].valueFrom.fileKeyRef.{text}");
            assert_eq!(found, expected.into_iter().map(at).collect::<Vec<_>>(), "{volume} {file} {key}");
        }
        let at = "spec.containers[0].env[0].valueFrom.fileKeyRef.volumeName";
        for (volume, expected) in [
            ("v", String::new()),
            ("w", format!("{at}: Not found: \"w\"")),
            ("h", format!("{at}: Invalid value: \"h\": referenced volume must be of type emptyDir")),
        ] {
            let variable =
                json!({"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": volume, "path": "a", "key": "K"}}});
            let volumes = json!([{"name": "v", "emptyDir": {}}, {"name": "h", "hostPath": {"path": "/"}}]);
            let spec = json!({"containers": [{"name": "c", "image": "i", "env": [variable]}], "volumes": volumes});
            let found = crate::kinds::testing::refusals(json!({"apiVersion": "v1", "kind": "Pod", "spec": spec}));
            assert_eq!(found.join("; "), expected);
        }
    }

    #[test]
    fn rules_without_a_policy_are_not_checked_in_init_containers() {
        let found = |list: &str| {
            let mut spec =
                json!({"containers": [{"name": "c", "image": "i"}], "initContainers": [{"name": "d", "image": "i"}]});
            spec[list][0]["restartPolicyRules"] = json!([{"action": "Odd"}]);
            crate::kinds::testing::refusals(json!({"apiVersion": "v1", "kind": "Pod", "spec": spec})).len()
        };
        assert_eq!((found("initContainers"), found("containers")), (1, 3));
    }
}
