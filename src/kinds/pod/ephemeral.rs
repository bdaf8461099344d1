//! Ephemeral containers, which are added to a running pod through the subresource `ephemeralcontainers`.
//!
//! They can only be added, and may not have ports, probes, hooks or resources (Kubernetes:
//! `ValidatePodEphemeralContainersUpdate`).

use super::containers;
use super::mounts::PodVolumes;
use crate::kinds::catalogue::typed;
use crate::kinds::shared::field;
use crate::kinds::{FieldError, FieldErrors, FieldPath};
use crate::object::{Object, Status};
use k8s_openapi::api::core::v1::{Container, EphemeralContainer, Pod, PodSpec};
use std::collections::BTreeSet;

/// Checks an update of a pod's ephemeral containers.
pub fn check(new: &Object, old: &Object) -> Result<(), Status> {
    let spec = |pod: &Object| typed::view::<Pod>(pod).map(|pod| pod.spec.unwrap_or_default()).unwrap_or_default();
    let errors = problems(&spec(new), &spec(old));
    let kind = super::KIND;
    if errors.is_empty() { Ok(()) } else { Err(field::invalid(kind.kind, kind.resource, old.name(), &errors)) }
}

fn problems(new: &PodSpec, old: &PodSpec) -> Vec<FieldError> {
    let mut errors = FieldErrors::default();
    let path = FieldPath::root("spec").child("ephemeralContainers");
    let volumes = new.volumes.iter().flatten().map(|volume| (volume.name.as_str(), volume)).collect();
    check_each(new, &volumes, &path, &mut errors);
    let now = new.ephemeral_containers.as_deref().unwrap_or_default();
    for before in old.ephemeral_containers.iter().flatten() {
        let gone = |what: &str| format!("existing ephemeral containers {:?} may not be {what}\n", before.name);
        match now.iter().find(|one| one.name == before.name) {
            None => errors.forbidden(&path, &gone("removed")),
            Some(one) if one != before => errors.forbidden(&path, &gone("changed")),
            Some(_) => {}
        }
    }
    errors.0
}

/// Checks the ephemeral containers of a pod or a template.
pub fn check_each(spec: &PodSpec, volumes: &PodVolumes<'_>, path: &FieldPath, errors: &mut FieldErrors) {
    let others = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let known: BTreeSet<&str> = others.map(|container| container.name.as_str()).collect();
    let mut seen = known.clone();
    for (index, one) in spec.ephemeral_containers.iter().flatten().enumerate() {
        let at = path.index(index);
        containers::check_common(&as_container(one), volumes, &at, errors);
        containers::check_image(one.image.as_deref(), &at, errors);
        if !seen.insert(&one.name) {
            errors.duplicate(&at.child("name"), one.name.as_str());
        }
        let target = one.target_container_name.as_deref().filter(|target| !target.is_empty());
        if let Some(target) = target.filter(|target| !known.contains(target)) {
            errors.not_found(&at.child("targetContainerName"), target);
        }
        let resources = one.resources.as_ref().is_some_and(|all| all.limits.is_some() || all.requests.is_some());
        let unfit = [
            ("ports", one.ports.is_some()),
            ("livenessProbe", one.liveness_probe.is_some()),
            ("readinessProbe", one.readiness_probe.is_some()),
            ("startupProbe", one.startup_probe.is_some()),
            ("lifecycle", one.lifecycle.is_some()),
            ("resources", resources),
            ("resizePolicy", one.resize_policy.is_some()),
        ];
        for (field, _) in unfit.iter().filter(|(_, set)| *set) {
            errors.forbidden(&at.child(field), UNFIT);
        }
        for (index, mount) in one.volume_mounts.iter().flatten().enumerate() {
            let at = at.child("volumeMounts").index(index);
            for (field, set) in [("subPath", &mount.sub_path), ("subPathExpr", &mount.sub_path_expr)] {
                if set.is_some() {
                    errors.forbidden(&at.child(field), UNFIT);
                }
            }
        }
    }
}

const UNFIT: &str = "cannot be set for an Ephemeral Container";

/// Converts to a container, which has the same fields except `targetContainerName`.
pub fn as_container(container: &EphemeralContainer) -> Container {
    let container = container.clone();
    Container {
        args: container.args,
        command: container.command,
        env: container.env,
        env_from: container.env_from,
        image: container.image,
        image_pull_policy: container.image_pull_policy,
        lifecycle: container.lifecycle,
        liveness_probe: container.liveness_probe,
        name: container.name,
        ports: container.ports,
        readiness_probe: container.readiness_probe,
        resize_policy: container.resize_policy,
        resources: container.resources,
        restart_policy: container.restart_policy,
        restart_policy_rules: container.restart_policy_rules,
        security_context: container.security_context,
        startup_probe: container.startup_probe,
        stdin: container.stdin,
        stdin_once: container.stdin_once,
        termination_message_path: container.termination_message_path,
        termination_message_policy: container.termination_message_policy,
        tty: container.tty,
        volume_devices: container.volume_devices,
        volume_mounts: container.volume_mounts,
        working_dir: container.working_dir,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn messages(old: Value, new: Value) -> Vec<String> {
        let pod = |ephemeral: Value| {
            let spec = json!({"containers": [{"name": "c", "image": "a"}], "ephemeralContainers": ephemeral});
            let body = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec});
            Object((super::super::KIND.normalize)(&body, &mut |_| {}).expect("a pod"))
        };
        let (new, old) = (pod(new), pod(old));
        let spec = |pod: &Object| typed::view::<Pod>(pod).expect("a pod").spec.expect("a spec");
        problems(&spec(&new), &spec(&old)).iter().map(|error| format!("{}: {}", error.field, error.message)).collect()
    }

    #[test]
    fn ephemeral_containers_can_only_be_added() {
        let one = |name: &str, image: &str| json!({"name": name, "image": image});
        let path = "spec.ephemeralContainers";
        let table = [
            (json!([]), json!([one("d", "a")]), vec![]),
            (json!([one("d", "a")]), json!([one("e", "a"), one("d", "a")]), vec![]),
            (
                json!([one("d", "a")]),
                json!([]),
                vec![format!("{path}: Forbidden: existing ephemeral containers \"d\" may not be removed\n")],
            ),
            (
                json!([one("d", "a")]),
                json!([one("d", "b")]),
                vec![format!("{path}: Forbidden: existing ephemeral containers \"d\" may not be changed\n")],
            ),
            (json!([]), json!([one("c", "a")]), vec![format!("{path}[0].name: Duplicate value: \"c\"")]),
            (json!([]), json!([one("d", "")]), vec![format!("{path}[0].image: Required value")]),
            (
                json!([]),
                json!([{"name": "d", "image": "a", "targetContainerName": "x", "ports": [{"containerPort": 1, "protocol": "TCP"}]}]),
                vec![
                    format!("{path}[0].targetContainerName: Not found: \"x\""),
                    format!("{path}[0].ports: Forbidden: {UNFIT}"),
                ],
            ),
        ];
        for (old, new, expected) in table {
            assert_eq!(messages(old, new.clone()), expected, "{new}");
        }
    }
}
