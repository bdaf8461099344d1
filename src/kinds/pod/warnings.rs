//! What the writer of a pod spec is told although it is in order (Kubernetes: `pkg/api/pod/warnings.go`).

use super::{filesystem, unsupported};
use crate::kinds::names;
use crate::object::Object;
use crate::object::quantity::Quantity;
use serde_json::Value;

/// Warnings about a pod.
pub fn of_pod(pod: &Object) -> Vec<String> {
    let mut warnings = pod.at(&["spec"]).map(|spec| of_spec(spec, "spec")).unwrap_or_default();
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
pub fn of_template(object: &Object) -> Vec<String> {
    let spec = object.at(&["spec", "template", "spec"]);
    let mut warnings = spec.map(|spec| of_spec(spec, "spec.template.spec")).unwrap_or_default();
    warnings.extend(filesystem::warnings(object, &["spec", "template"]));
    warnings
}

fn of_spec(spec: &Value, path: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    for (index, spread) in list(&spec["topologySpreadConstraints"]).iter().enumerate() {
        if spread["labelSelector"].is_null() {
            let text = "labelSelector: a null labelSelector results in matching no pod";
            warnings.push(format!("{path}.topologySpreadConstraints[{index}].{text}"));
        }
    }
    for field in ["initContainers", "containers"] {
        for (index, container) in list(&spec[field]).iter().enumerate() {
            let at = format!("{path}.{field}[{index}]");
            fractional_bytes(container, &at, &mut warnings);
            repeated_ports(container, &at, &mut warnings);
        }
    }
    let unsupported = unsupported::fields(spec, path).into_iter();
    warnings.extend(unsupported.map(|(field, instead)| format!("{field}: not supported by kloop yet: {instead}")));
    warnings
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn fractional_bytes(container: &Value, path: &str, warnings: &mut Vec<String>) {
    for field in ["limits", "requests"] {
        for resource in ["memory", "ephemeral-storage"] {
            let Some(text) = container["resources"][field][resource].as_str() else { continue };
            if Quantity::parse(text).is_ok_and(|amount| amount.milli() % 1000 != 0) {
                let what = format!("fractional byte value {text:?} is invalid, must be an integer");
                warnings.push(format!("{path}.resources.{field}[{resource}]: {what}"));
            }
        }
    }
}

fn repeated_ports(container: &Value, path: &str, warnings: &mut Vec<String>) {
    let ports = list(&container["ports"]);
    let same = |one: &Value, other: &Value| {
        ["containerPort", "protocol", "hostPort", "hostIP"].iter().all(|field| one[field] == other[field])
    };
    for (index, port) in ports.iter().enumerate() {
        if let Some(first) = ports[..index].iter().position(|other| same(port, other)) {
            warnings.push(format!("{path}.ports[{index}]: duplicate port definition with {path}.ports[{first}]"));
        }
    }
}
