//! Defaults of a pod spec (`SetDefaults_*` of core/v1).

use crate::kinds::image::pull_policy::pull_policy;
use crate::kinds::shared::amount;
use crate::kinds::shared::omit::{self, default_text, empty};
use crate::kinds::shared::probe_handler;
use k8s_openapi::api::core::v1::{Affinity, ContainerPort, EnvFromSource, PodAffinityTerm, Toleration};
use k8s_openapi::api::core::v1::{
    Container, EnvVar, EphemeralContainer, Lifecycle, Pod, PodSpec, PodTemplateSpec, Probe, ResourceRequirements,
    SecurityContext, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

/// Sets the defaults of a pod: those of its spec, and those that templates do not get.
pub fn set_pod_defaults(pod: &mut Pod) {
    omit::metadata(&mut pod.metadata);
    let spec = pod.spec.get_or_insert_default();
    set_spec_defaults(spec);
    // Only of pods, so that templates keep their meaning (Kubernetes: Convert_v1_Pod_To_core_Pod).
    spec.termination_grace_period_seconds =
        spec.termination_grace_period_seconds.map(|seconds| if seconds < 0 { 1 } else { seconds });
    spec.enable_service_links.get_or_insert(true);
    for container in containers(spec) {
        set_requests_from_limits(container.resources.get_or_insert_default());
    }
    if spec.host_network == Some(true) {
        let ports = containers(spec).flat_map(|container| container.ports.iter_mut().flatten());
        ports.filter(|port| port.host_port.is_none()).for_each(|port| port.host_port = Some(port.container_port));
    }
    set_pod_level_requests(spec);
}

/// Sets the defaults of a pod template.
pub fn set_template_defaults(template: &mut PodTemplateSpec) {
    omit::metadata(template.metadata.get_or_insert_default());
    set_spec_defaults(template.spec.get_or_insert_default());
}

/// Sets the default of an absent or zero number.
fn set_default_number(field: &mut Option<i32>, default: i32) {
    if field.unwrap_or(0) == 0 {
        *field = Some(default);
    }
}

fn containers(spec: &mut PodSpec) -> impl Iterator<Item = &mut Container> {
    spec.init_containers.iter_mut().flatten().chain(&mut spec.containers)
}

fn set_spec_defaults(spec: &mut PodSpec) {
    omit_empty(spec);
    default_text(&mut spec.dns_policy, "ClusterFirst");
    default_text(&mut spec.restart_policy, "Always");
    default_text(&mut spec.scheduler_name, "default-scheduler");
    spec.security_context.get_or_insert_default();
    spec.termination_grace_period_seconds.get_or_insert(30);
    spec.volumes.iter_mut().flatten().for_each(super::volumes::fill_in_defaults);
    containers(spec).for_each(set_container_defaults);
    spec.ephemeral_containers.iter_mut().flatten().for_each(set_ephemeral_defaults);
}

/// Omits empty values, and sets `serviceAccount` and `serviceAccountName` to the same value, since the first is an
/// alias.
fn omit_empty(spec: &mut PodSpec) {
    let texts = [
        &mut spec.node_name,
        &mut spec.hostname,
        &mut spec.subdomain,
        &mut spec.priority_class_name,
        &mut spec.service_account,
        &mut spec.service_account_name,
    ];
    texts.into_iter().for_each(empty);
    [&mut spec.host_network, &mut spec.host_pid, &mut spec.host_ipc].into_iter().for_each(empty);
    empty(&mut spec.init_containers);
    empty(&mut spec.ephemeral_containers);
    empty(&mut spec.volumes);
    empty(&mut spec.node_selector);
    empty(&mut spec.tolerations);
    empty(&mut spec.host_aliases);
    empty(&mut spec.image_pull_secrets);
    empty(&mut spec.readiness_gates);
    empty(&mut spec.scheduling_gates);
    empty(&mut spec.resource_claims);
    empty(&mut spec.topology_spread_constraints);
    empty(&mut spec.overhead);
    // The feature of scheduling groups is off by default.
    spec.scheduling_group = None;
    amount::round_up(&mut spec.overhead);
    spec.resources.iter_mut().for_each(|resources| {
        amount::round_up(&mut resources.limits);
        amount::round_up(&mut resources.requests);
    });
    spec.service_account_name = spec.service_account_name.take().or(spec.service_account.take());
    spec.service_account = spec.service_account_name.clone();
    spec.tolerations.iter_mut().flatten().for_each(omit_empty_toleration);
    spec.affinity.iter_mut().for_each(omit_empty_affinity);
    for constraint in spec.topology_spread_constraints.iter_mut().flatten() {
        empty(&mut constraint.match_label_keys);
        constraint.label_selector.iter_mut().for_each(omit::selector);
    }
    if let Some(security) = &mut spec.security_context {
        empty(&mut security.supplemental_groups);
        empty(&mut security.sysctls);
    }
}

fn omit_empty_toleration(toleration: &mut Toleration) {
    [&mut toleration.key, &mut toleration.operator, &mut toleration.value, &mut toleration.effect]
        .into_iter()
        .for_each(empty);
}

fn omit_empty_affinity(affinity: &mut Affinity) {
    if let Some(node) = &mut affinity.node_affinity {
        let required = node.required_during_scheduling_ignored_during_execution.as_mut();
        let required = required.into_iter().flat_map(|required| &mut required.node_selector_terms);
        let preferred = node.preferred_during_scheduling_ignored_during_execution.iter_mut().flatten();
        for term in required.chain(preferred.map(|weighted| &mut weighted.preference)) {
            empty(&mut term.match_expressions);
            empty(&mut term.match_fields);
        }
        empty(&mut node.preferred_during_scheduling_ignored_during_execution);
    }
    if let Some(pods) = &mut affinity.pod_affinity {
        empty(&mut pods.required_during_scheduling_ignored_during_execution);
        empty(&mut pods.preferred_during_scheduling_ignored_during_execution);
    }
    if let Some(pods) = &mut affinity.pod_anti_affinity {
        empty(&mut pods.required_during_scheduling_ignored_during_execution);
        empty(&mut pods.preferred_during_scheduling_ignored_during_execution);
    }
    super::prepare::for_each_term(affinity, |term: &mut PodAffinityTerm| {
        empty(&mut term.namespaces);
        empty(&mut term.match_label_keys);
        empty(&mut term.mismatch_label_keys);
        term.label_selector.iter_mut().for_each(omit::selector);
    });
}

fn set_container_defaults(container: &mut Container) {
    empty(&mut container.image);
    empty(&mut container.working_dir);
    empty(&mut container.command);
    empty(&mut container.args);
    empty(&mut container.volume_devices);
    empty(&mut container.resize_policy);
    empty(&mut container.restart_policy_rules);
    [&mut container.stdin, &mut container.stdin_once, &mut container.tty].into_iter().for_each(empty);
    empty(&mut container.ports);
    empty(&mut container.env);
    empty(&mut container.env_from);
    empty(&mut container.volume_mounts);
    default_text(&mut container.image_pull_policy, pull_policy(container.image.as_deref().unwrap_or_default()));
    default_text(&mut container.termination_message_path, "/dev/termination-log");
    default_text(&mut container.termination_message_policy, "File");
    omit_empty_resources(container.resources.get_or_insert_default());
    container.ports.iter_mut().flatten().for_each(set_port_defaults);
    container.env.iter_mut().flatten().for_each(set_variable_defaults);
    container.env_from.iter_mut().flatten().for_each(omit_empty_prefix);
    container.volume_mounts.iter_mut().flatten().for_each(omit_empty_mount);
    container.lifecycle.iter_mut().for_each(set_hook_defaults);
    container.security_context.iter_mut().for_each(omit_empty_capabilities);
    let probes = [&mut container.liveness_probe, &mut container.readiness_probe, &mut container.startup_probe];
    probes.into_iter().flatten().for_each(set_probe_defaults);
}

/// Sets the defaults of an ephemeral container, which has its own type.
fn set_ephemeral_defaults(debug: &mut EphemeralContainer) {
    empty(&mut debug.image);
    empty(&mut debug.working_dir);
    empty(&mut debug.command);
    empty(&mut debug.args);
    empty(&mut debug.env);
    empty(&mut debug.env_from);
    empty(&mut debug.volume_mounts);
    debug.ports.iter_mut().flatten().for_each(set_port_defaults);
    empty(&mut debug.target_container_name);
    [&mut debug.stdin, &mut debug.stdin_once, &mut debug.tty].into_iter().for_each(empty);
    default_text(&mut debug.image_pull_policy, pull_policy(debug.image.as_deref().unwrap_or_default()));
    default_text(&mut debug.termination_message_path, "/dev/termination-log");
    default_text(&mut debug.termination_message_policy, "File");
    omit_empty_resources(debug.resources.get_or_insert_default());
    debug.env.iter_mut().flatten().for_each(set_variable_defaults);
    debug.env_from.iter_mut().flatten().for_each(omit_empty_prefix);
    debug.volume_mounts.iter_mut().flatten().for_each(omit_empty_mount);
    debug.security_context.iter_mut().for_each(omit_empty_capabilities);
}

fn omit_empty_resources(resources: &mut ResourceRequirements) {
    amount::round_up(&mut resources.limits);
    amount::round_up(&mut resources.requests);
    empty(&mut resources.limits);
    empty(&mut resources.requests);
    empty(&mut resources.claims);
}

/// Sets each absent request to the limit.
fn set_requests_from_limits(resources: &mut ResourceRequirements) {
    for (name, limit) in resources.limits.iter().flatten() {
        resources.requests.get_or_insert_default().entry(name.clone()).or_insert_with(|| limit.clone());
    }
}

/// Sets absent pod-level requests to the sum of the containers' requests, or to the pod-level limits.
fn set_pod_level_requests(spec: &mut PodSpec) {
    let mut defaulted: BTreeMap<String, Quantity> = BTreeMap::new();
    let of_containers = super::facts::container_requests(spec);
    let Some(resources) = &mut spec.resources else { return };
    for name in resources.limits.iter().flatten().map(|(name, _)| name) {
        if let Some(sum) = of_containers.quantity(name) {
            defaulted.insert(name.clone(), sum);
        }
    }
    omit_empty_resources(resources);
    if !defaulted.is_empty() {
        let requests = resources.requests.get_or_insert_default();
        for (name, sum) in defaulted {
            requests.entry(name).or_insert(sum);
        }
    }
    // Limits of other names are errors; no request is made of them.
    for (name, limit) in resources.limits.iter().flatten().filter(|(name, _)| is_of_pods(name)) {
        resources.requests.get_or_insert_default().entry(name.clone()).or_insert_with(|| limit.clone());
    }
}

/// Whether a pod as a whole can have this resource.
fn is_of_pods(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

fn set_port_defaults(port: &mut ContainerPort) {
    empty(&mut port.name);
    empty(&mut port.host_ip);
    empty(&mut port.host_port);
    default_text(&mut port.protocol, "TCP");
}

fn set_variable_defaults(variable: &mut EnvVar) {
    empty(&mut variable.value);
    let Some(from) = &mut variable.value_from else { return };
    if let Some(field) = &mut from.field_ref {
        default_text(&mut field.api_version, "v1");
    }
    if let Some(resource) = &mut from.resource_field_ref {
        empty(&mut resource.container_name);
        resource.divisor.get_or_insert_with(|| Quantity("0".into()));
    }
    if let Some(file) = &mut from.file_key_ref {
        file.optional.get_or_insert(false);
    }
}

fn omit_empty_prefix(source: &mut EnvFromSource) {
    empty(&mut source.prefix);
}

fn omit_empty_mount(mount: &mut VolumeMount) {
    empty(&mut mount.read_only);
    empty(&mut mount.sub_path);
    empty(&mut mount.sub_path_expr);
}

fn omit_empty_capabilities(security: &mut SecurityContext) {
    if let Some(capabilities) = &mut security.capabilities {
        empty(&mut capabilities.add);
        empty(&mut capabilities.drop);
    }
}

fn set_probe_defaults(probe: &mut Probe) {
    empty(&mut probe.initial_delay_seconds);
    set_default_number(&mut probe.timeout_seconds, 1);
    set_default_number(&mut probe.period_seconds, 10);
    set_default_number(&mut probe.success_threshold, 1);
    set_default_number(&mut probe.failure_threshold, 3);
    probe_handler::fill_in_probe(probe);
}

fn set_hook_defaults(lifecycle: &mut Lifecycle) {
    let hooks = [&mut lifecycle.post_start, &mut lifecycle.pre_stop];
    hooks.into_iter().flatten().for_each(probe_handler::fill_in_hook);
}
