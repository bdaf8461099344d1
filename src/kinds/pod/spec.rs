//! Checks of a whole pod spec, in the order of Kubernetes (`ValidatePodSpec`).

use super::part_counts::has_too_many_parts;
use super::{containers, dns, env, ephemeral, os, resource_claims, resources, scheduling, security, volumes};
use crate::kinds::shared::{metadata, names};
use crate::kinds::{FieldErrors, FieldPath};
use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec};

const RESTART_POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];

/// Checks the template of a workload.
pub fn check_template(template: &PodTemplateSpec, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(meta) = &template.metadata {
        // Kubernetes names both without the `metadata` around them.
        if let Some(labels) = &meta.labels {
            metadata::check_labels(labels, &path.child("labels"), errors);
        }
        if let Some(annotations) = &meta.annotations {
            metadata::check_annotations(annotations, &path.child("annotations"), errors);
        }
    }
    let none = PodSpec::default();
    let (spec, path) = (template.spec.as_ref().unwrap_or(&none), path.child("spec"));
    check(spec, &path, errors);
    if spec.ephemeral_containers.is_some() {
        errors.forbidden(&path.child("ephemeralContainers"), "ephemeral containers not allowed in pod template");
    }
}

/// Checks the spec of a pod, with the checks of a template and some that only pods have.
pub fn check_pod(spec: &PodSpec, path: &FieldPath, errors: &mut FieldErrors) {
    check(spec, path, errors);
    containers::check_images(&spec.containers, &path.child("containers"), errors);
    let init = spec.init_containers.as_deref().unwrap_or_default();
    containers::check_images(init, &path.child("initContainers"), errors);
    volumes::check_in_pod(spec.volumes.as_deref().unwrap_or_default(), &path.child("volumes"), errors);
}

/// Checks fields that a pod may not have at its creation.
pub fn check_new_pod(spec: &PodSpec, path: &FieldPath, errors: &mut FieldErrors) {
    if spec.ephemeral_containers.is_some() {
        errors.forbidden(&path.child("ephemeralContainers"), "cannot be set on create");
    }
    if spec.node_name.is_some() && spec.scheduling_gates.is_some() {
        let detail = "cannot be set until all schedulingGates have been cleared";
        errors.forbidden(&path.child("nodeName"), detail);
    }
}

fn check(spec: &PodSpec, path: &FieldPath, errors: &mut FieldErrors) {
    if has_too_many_parts(spec, path, errors) {
        return;
    }
    let volumes = volumes::check(spec.volumes.as_deref().unwrap_or_default(), &path.child("volumes"), errors);
    containers::check(spec, &volumes, path, errors);
    containers::check_init(spec, &volumes, path, errors);
    ephemeral::check_each(spec, &volumes, &path.child("ephemeralContainers"), errors);
    resource_claims::check(spec, path, errors);
    resources::check_pod(spec, &path.child("resources"), errors);
    let policy = spec.restart_policy.as_deref().unwrap_or_default();
    if !RESTART_POLICIES.contains(&policy) {
        errors.unsupported_as_listed(&path.child("restartPolicy"), policy, &RESTART_POLICIES);
    }
    dns::check_policy(spec, path, errors);
    if let Some(labels) = &spec.node_selector {
        metadata::check_labels(labels, &path.child("nodeSelector"), errors);
    }
    security::check_pod(spec, path, errors);
    scheduling::check_affinity(spec.affinity.as_ref(), &path.child("affinity"), errors);
    dns::check_config(spec, path, errors);
    scheduling::check_gates(spec, path, errors);
    let spread = spec.topology_spread_constraints.as_deref().unwrap_or_default();
    scheduling::check_spread(spread, &path.child("topologySpreadConstraints"), errors);
    check_other_fields(spec, path, errors);
    env::check_file_volumes(spec, path, errors);
}

fn check_other_fields(spec: &PodSpec, path: &FieldPath, errors: &mut FieldErrors) {
    for (field, name) in [("serviceAccountName", &spec.service_account_name), ("nodeName", &spec.node_name)] {
        if let Some(name) = name {
            errors.each_invalid(&path.child(field), name.as_str(), names::subdomain(name));
        }
    }
    if let Some(seconds) = spec.active_deadline_seconds {
        let problems = names::in_range(seconds, 1, i32::MAX.into());
        errors.each_invalid(&path.child("activeDeadlineSeconds"), seconds, problems);
    }
    dns::check_host(spec, path, errors);
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    scheduling::check_tolerations(tolerations, &path.child("tolerations"), errors);
    dns::check_aliases(spec, path, errors);
    for (field, name) in
        [("priorityClassName", &spec.priority_class_name), ("runtimeClassName", &spec.runtime_class_name)]
    {
        if let Some(name) = name {
            errors.each_invalid(&path.child(field), name.as_str(), names::subdomain(name));
        }
    }
    if let Some(policy) = spec.preemption_policy.as_deref() {
        let known = ["PreemptLowerPriority", "Never"];
        if !known.contains(&policy) {
            errors.unsupported_as_listed(&path.child("preemptionPolicy"), policy, &known);
        }
    }
    if let Some(overhead) = &spec.overhead {
        resources::check_overhead(overhead, &path.child("overhead"), errors);
    }
    os::check(spec, path, errors);
}
