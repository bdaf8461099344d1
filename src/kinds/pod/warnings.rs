//! Warnings about valid pod specs (Kubernetes: `pkg/api/pod/warnings.go`).

use super::{filesystem, path_warnings, port_warnings, unsupported};
use crate::kinds::shared::volume_source::DEAD_VOLUMES;
use crate::kinds::shared::{names, node_labels};
use crate::object::Object;
use crate::object::quantity::Quantity;
use serde_json::Value;
use std::collections::BTreeSet;

/// Annotations without effect, and their replacements.
const DEAD_ANNOTATIONS: &[(&str, &str)] = &[
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    ("security.alpha.kubernetes.io/unsafe-sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
];

const SECCOMP: &str = "non-functional in v1.27+; use the \"seccompProfile\" field instead";
const APP_ARMOR: &str = "deprecated since v1.30; use the \"appArmorProfile\" field instead";
const NO_POD: &str = "labelSelector: a null labelSelector results in matching no pod";

/// Warnings about a pod.
pub fn warn_about_pod(pod: &Object) -> Vec<String> {
    let mut warnings = warn_about_template_at(&pod.0, "");
    warnings.extend(filesystem::warnings(pod, &[]));
    let problems = names::label(pod.name());
    if !problems.is_empty() && !pod.name().is_empty() {
        let text = "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is \
                    recommended";
        warnings.insert(0, format!("{text}: [{}]", problems.join(" ")));
    }
    warnings
}

/// Warnings about the template of a workload; none for kinds without one.
pub fn warn_about_template(object: &Object) -> Vec<String> {
    let path: &[&str] = match object.kind() {
        "CronJob" => &["spec", "jobTemplate", "spec", "template"],
        "PodTemplate" => &["template"],
        _ => &["spec", "template"],
    };
    let template = object.value_at(path).filter(|template| template["spec"].is_object());
    let mut warnings = Vec::from_iter(warn_about_name(object));
    warnings.extend(
        template.map(|template| warn_about_template_at(template, &format!("{}.", path.join(".")))).unwrap_or_default(),
    );
    warnings.extend(filesystem::warnings(object, path));
    warnings
}

/// Whether Kubernetes does not repeat the warnings about the old form of an object: of a pod, or of a workload whose generation stays.
pub fn are_known(new: &Object, old: &Object) -> bool {
    match new.kind() {
        "Pod" => true,
        "CSIDriver" => new.value_at(&["spec", "tokenRequests"]) == old.value_at(&["spec", "tokenRequests"]),
        "DaemonSet" => new.value_at(&["spec", "template"]) == old.value_at(&["spec", "template"]),
        "CronJob" | "Deployment" | "Job" | "ReplicaSet" | "ReplicationController" | "StatefulSet" => {
            new.value_at(&["spec"]) == old.value_at(&["spec"])
        }
        _ => false,
    }
}

/// Warns of a workload's name that is not a DNS label, since host names of pods derive from it.
fn warn_about_name(object: &Object) -> Option<String> {
    let named = ["Deployment", "ReplicaSet", "ReplicationController", "Job"].contains(&object.kind());
    let problems = names::label(object.name());
    let text = "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is \
                recommended";
    (named && !object.name().is_empty() && !problems.is_empty()).then(|| format!("{text}: [{}]", problems.join(" ")))
}

/// Warnings about a pod or template; `prefix` is the path of its fields in messages.
fn warn_about_template_at(template: &Value, prefix: &str) -> Vec<String> {
    let (spec, path) = (&template["spec"], format!("{prefix}spec"));
    let mut warnings = Vec::new();
    warn_about_nodes(spec, &path, &mut warnings);
    for (key, message) in DEAD_ANNOTATIONS {
        if template["metadata"]["annotations"].get(*key).is_some() {
            warnings.push(format!("{prefix}metadata.annotations[{key}]: {message}"));
        }
    }
    warn_about_volumes(spec, &path, &mut warnings);
    path_warnings::check(list(&spec["volumes"]), &mut warnings);
    warn_of_repeated(spec, &path, "hostAliases", "ip", &mut warnings);
    warn_of_repeated(spec, &path, "imagePullSecrets", "name", &mut warnings);
    for (index, secret) in list(&spec["imagePullSecrets"]).iter().enumerate() {
        if secret["name"].as_str().unwrap_or_default().is_empty() {
            warnings.push(format!("{path}.imagePullSecrets[{index}].name: invalid empty name \"\""));
        }
    }
    fractional_bytes(&spec["overhead"], &format!("{path}.overhead"), &mut warnings);
    warn_about_profile(
        template,
        "seccompProfile",
        SECCOMP,
        "seccomp.security.alpha.kubernetes.io/pod",
        prefix,
        &mut warnings,
    );
    let containers = all_containers(spec, &path);
    for (at, container) in &containers {
        warn_about_container(template, container, prefix, &mut warnings);
        for field in ["limits", "requests"] {
            fractional_bytes(&container["resources"][field], &format!("{at}.resources.{field}"), &mut warnings);
        }
        warn_of_repeated_variables(container, at, &mut warnings);
    }
    port_warnings::check(&containers, &mut warnings);
    warn_about_pod_affinity(spec, &path, &mut warnings);
    let unsupported = unsupported::fields(spec, &path).into_iter();
    warnings.extend(unsupported.map(|(field, instead)| format!("{field}: not supported by kloop yet: {instead}")));
    warnings
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Every container with its path, init containers first as in Kubernetes.
fn all_containers<'s>(spec: &'s Value, path: &str) -> Vec<(String, &'s Value)> {
    let mut found = Vec::new();
    for field in ["initContainers", "containers", "ephemeralContainers"] {
        let all = list(&spec[field]).iter().enumerate();
        found.extend(all.map(|(index, container)| (format!("{path}.{field}[{index}]"), container)));
    }
    found
}

/// Warns of deprecated node labels, and of spread constraints that match no pod.
fn warn_about_nodes(spec: &Value, path: &str, warnings: &mut Vec<String>) {
    for key in spec["nodeSelector"].as_object().into_iter().flatten().map(|(key, _)| key) {
        if let Some(message) = node_labels::deprecated(key) {
            warnings.push(format!("{path}.nodeSelector[{key}]: {message}"));
        }
    }
    let (affinity, path_to) = (&spec["affinity"]["nodeAffinity"], format!("{path}.affinity.nodeAffinity"));
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    for (index, term) in list(&affinity[required]["nodeSelectorTerms"]).iter().enumerate() {
        let at = format!("{path_to}.{required}.nodeSelectorTerms[{index}]");
        node_labels::warn_of_term(term, &at, false, warnings);
    }
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    for (index, term) in list(&affinity[preferred]).iter().enumerate() {
        let at = format!("{path_to}.{preferred}[{index}].preference");
        node_labels::warn_of_term(&term["preference"], &at, true, warnings);
    }
    for (index, spread) in list(&spec["topologySpreadConstraints"]).iter().enumerate() {
        let at = format!("{path}.topologySpreadConstraints[{index}]");
        let key = spread["topologyKey"].as_str().unwrap_or_default();
        if let Some(message) = node_labels::deprecated(key) {
            warnings.push(format!("{at}.topologyKey: {key} is {message}"));
        }
        if spread["labelSelector"].is_null() {
            warnings.push(format!("{at}.{NO_POD}"));
        }
    }
}

fn warn_about_volumes(spec: &Value, path: &str, warnings: &mut Vec<String>) {
    let volumes = list(&spec["volumes"]);
    for (index, volume) in volumes.iter().enumerate() {
        for (field, shown, message) in DEAD_VOLUMES {
            if volume.get(*field).is_some_and(|source| !source.is_null()) {
                warnings.push(format!("{path}.volumes[{index}].{shown}: {message}"));
            }
        }
    }
    let sources = |volume: &'_ Value| list(&volume["projected"]["sources"]).to_vec();
    let tokens: BTreeSet<String> = volumes
        .iter()
        .flat_map(sources)
        .filter_map(|source| source["serviceAccountToken"]["path"].as_str().map(str::to_owned))
        .collect();
    for (index, volume) in volumes.iter().enumerate().filter(|_| !tokens.is_empty()) {
        let at = format!("{path}.volumes[{index}].projected.sources");
        for source in list(&volume["projected"]["sources"]) {
            for (field, shown) in [("configMap", "configMap"), ("secret", "secrets"), ("downwardAPI", "downwardAPI")] {
                for (item, file) in list(&source[field]["items"]).iter().enumerate() {
                    let Some(file) = file["path"].as_str().filter(|file| tokens.contains(*file)) else { continue };
                    let text = "has duplicated path with ServiceAccountToken";
                    warnings.push(format!("{at}.{shown}[{item}]: {text} {file:?}"));
                }
            }
        }
    }
}

/// Warns of list items with the same value of one field.
fn warn_of_repeated(spec: &Value, path: &str, field: &str, key: &str, warnings: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for (index, item) in list(&spec[field]).iter().enumerate() {
        let value = item[key].as_str().unwrap_or_default();
        if !seen.insert(value) {
            warnings.push(format!("{path}.{field}[{index}].{key}: duplicate {key} {value:?}"));
        }
    }
}

/// Warns of an annotation that a field of the pod's security context replaces, if the field is not set.
fn warn_about_profile(
    template: &Value,
    field: &str,
    message: &str,
    key: &str,
    prefix: &str,
    warnings: &mut Vec<String>,
) {
    let is_set = template["spec"]["securityContext"][field].is_object();
    if !is_set && template["metadata"]["annotations"].get(key).is_some() {
        warnings.push(format!("{prefix}metadata.annotations[{key}]: {message}"));
    }
}

/// Warns of the same annotations of a container.
fn warn_about_container(template: &Value, container: &Value, prefix: &str, warnings: &mut Vec<String>) {
    let name = container["name"].as_str().unwrap_or_default();
    let own = &container["securityContext"];
    if !own["seccompProfile"].is_object() {
        let key = format!("container.seccomp.security.alpha.kubernetes.io/{name}");
        if template["metadata"]["annotations"].get(&key).is_some() {
            warnings.push(format!("{prefix}metadata.annotations[{key}]: {SECCOMP}"));
        }
    }
    if !own["appArmorProfile"].is_object() {
        let key = format!("container.apparmor.security.beta.kubernetes.io/{name}");
        warn_about_profile(template, "appArmorProfile", APP_ARMOR, &key, prefix, warnings);
    }
}

fn fractional_bytes(amounts: &Value, path: &str, warnings: &mut Vec<String>) {
    for resource in ["memory", "ephemeral-storage"] {
        let Some(text) = amounts[resource].as_str() else { continue };
        if Quantity::parse(text).is_ok_and(|amount| amount.milli() % 1000 != 0) {
            warnings.push(format!("{path}[{resource}]: fractional byte value {text:?} is invalid, must be an integer"));
        }
    }
}

/// Warns of a variable that is set again without a reference to its earlier value.
fn warn_of_repeated_variables(container: &Value, path: &str, warnings: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for (index, variable) in list(&container["env"]).iter().enumerate() {
        let text = |field: &str| variable[field].as_str().unwrap_or_default();
        let (name, value) = (text("name"), text("value"));
        let earlier = format!("$({name})");
        let builds_on_it = variable["valueFrom"].is_null() && value != earlier && value.contains(&earlier);
        if !seen.insert(name) && !builds_on_it {
            let text = "which may be dropped when using apply";
            warnings.push(format!("{path}.env[{index}]: hides previous definition of {name:?}, {text}"));
        }
    }
}

/// Warns of pod affinity that matches no pod.
fn warn_about_pod_affinity(spec: &Value, path: &str, warnings: &mut Vec<String>) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let terms = &spec["affinity"][kind];
        for (field, within) in [
            ("requiredDuringSchedulingIgnoredDuringExecution", ""),
            ("preferredDuringSchedulingIgnoredDuringExecution", "podAffinityTerm."),
        ] {
            for (index, term) in list(&terms[field]).iter().enumerate() {
                let term = if within.is_empty() { term } else { &term["podAffinityTerm"] };
                if term["labelSelector"].is_null() {
                    warnings.push(format!("{path}.affinity.{kind}.{field}[{index}].{within}{NO_POD}"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn template_is_warned_about_where_the_kind_has_it() {
        let template = json!({"spec": {"volumes": [{"name": "v", "glusterfs": {}}]}});
        let message = "volumes[0].glusterfs: deprecated in v1.25, non-functional in v1.26+";
        let pods = Object(json!({"kind": "PodTemplate", "template": template}));
        assert_eq!(warn_about_template(&pods), [format!("template.spec.{message}")]);
        let set = Object(json!({"kind": "DaemonSet", "spec": {"template": template}}));
        assert_eq!(warn_about_template(&set), [format!("spec.template.spec.{message}")]);
    }

    #[test]
    fn warnings_are_repeated_when_their_cause_has_changed() {
        let object = |kind: &str, paused: bool, image: &str| {
            Object(json!({"kind": kind, "spec": {"paused": paused, "template": {"spec": {"image": image}}}}))
        };
        for (kind, when_paused, with_image) in [
            ("Deployment", false, false),
            ("DaemonSet", true, false),
            ("Pod", true, true),
            ("PodTemplate", false, false),
        ] {
            let old = object(kind, false, "a");
            let found = [are_known(&object(kind, true, "a"), &old), are_known(&object(kind, false, "b"), &old)];
            assert_eq!(found, [when_paused, with_image], "{kind}");
        }
        assert!(are_known(&object("Job", false, "a"), &object("Job", false, "a")));
    }

    #[test]
    fn pod_warnings_have_kubernetes_wording() {
        let zone = "failure-domain.beta.kubernetes.io/zone";
        let node = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": {"matchExpressions": [{"key": zone, "operator": "In", "values": ["a b"]}]}}]},
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "x"}]}});
        let port = |number: i32| json!({"containerPort": number, "protocol": "TCP"});
        let pod = Object(json!({
            "kind": "Pod", "metadata": {"name": "p", "annotations": {
                "seccomp.security.alpha.kubernetes.io/pod": "x", "container.apparmor.security.beta.kubernetes.io/c": "y"}},
            "spec": {
                "affinity": node, "nodeSelector": {"beta.kubernetes.io/os": "linux"},
                "topologySpreadConstraints": [{"topologyKey": zone, "labelSelector": {}}],
                "volumes": [{"name": "v", "glusterfs": {}}],
                "imagePullSecrets": [{"name": "s"}, {"name": "s"}, {"name": ""}],
                "hostAliases": [{"ip": "1.2.3.4"}, {"ip": "1.2.3.4"}],
                "initContainers": [{"name": "i", "ports": [port(80)]}],
                "containers": [{"name": "c", "ports": [port(80), port(81)],
                    "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}, {"name": "A", "value": "3"}],
                    "resources": {"limits": {"memory": "100m"}}}],
            },
        }));
        let expected = [
            "spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead",
            "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].key",
            "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].values[0]",
            "spec.topologySpreadConstraints[0].topologyKey: failure-domain.beta.kubernetes.io/zone is deprecated since v1.17",
            "spec.volumes[0].glusterfs: deprecated in v1.25, non-functional in v1.26+",
            "spec.hostAliases[1].ip: duplicate ip \"1.2.3.4\"",
            "spec.imagePullSecrets[1].name: duplicate name \"s\"",
            "spec.imagePullSecrets[2].name: invalid empty name \"\"",
            "metadata.annotations[seccomp.security.alpha.kubernetes.io/pod]: non-functional in v1.27+",
            "metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: deprecated since v1.30",
            "spec.containers[0].resources.limits[memory]: fractional byte value \"100m\" is invalid",
            "spec.containers[0].env[2]: hides previous definition of \"A\"",
            "spec.containers[0].ports[0]: duplicate port definition with spec.initContainers[0].ports[0]",
            "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector: a null",
        ];
        let warnings = warn_about_pod(&pod);
        assert_eq!(warnings.len(), expected.len(), "{warnings:#?}");
        for (warnings, expected) in warnings.iter().zip(expected) {
            assert!(warnings.starts_with(expected), "{warnings}\n{expected}");
        }
    }

    #[test]
    fn warnings_cover_nested_templates() {
        let pod = json!({"metadata": {}, "spec": {"nodeSelector": {"beta.kubernetes.io/arch": "x"}}});
        let spec = json!({"jobTemplate": {"spec": {"template": pod}}});
        let warnings =
            warn_about_template(&Object(json!({"kind": "CronJob", "metadata": {"name": "a.b"}, "spec": spec})));
        assert!(warnings[0].starts_with("spec.jobTemplate.spec.template.spec.nodeSelector[beta"), "{warnings:?}");
        let warnings =
            warn_about_template(&Object(json!({"kind": "Job", "metadata": {"name": "a.b"}, "spec": {"template": {}}})));
        assert!(warnings[0].starts_with("metadata.name: this is used in Pod names"), "{warnings:?}");
    }
}
