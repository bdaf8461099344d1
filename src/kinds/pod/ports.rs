//! Container ports: checks, and numbers of named ones.

use crate::kinds::shared::names;
use crate::kinds::{FieldErrors, FieldPath};
use crate::object::Object;
use k8s_openapi::api::core::v1::{Container, ContainerPort};
use std::collections::BTreeSet;

/// Returns the named ports of a pod, as name, protocol and number: those of its containers and sidecars, because the other init containers
/// have ended when the pod serves. Of several with one name and protocol the first counts (podutil.FindPort).
pub fn named_ports(pod: &Object) -> impl Iterator<Item = (&str, &str, i64)> {
    let sidecars = pod.items(&["spec", "initContainers"]).iter().filter(|one| one["restartPolicy"] == "Always");
    let containers = pod.items(&["spec", "containers"]).iter().chain(sidecars);
    let ports = containers.flat_map(|container| container["ports"].as_array().into_iter().flatten());
    ports.filter_map(|port| {
        let name = port["name"].as_str().filter(|name| !name.is_empty())?;
        Some((name, port["protocol"].as_str().unwrap_or("TCP"), port["containerPort"].as_i64()?))
    })
}

/// Checks the ports of one container.
pub fn check(ports: &[ContainerPort], path: &FieldPath, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        if let Some(name) = port.name.as_deref() {
            let problems = names::port_name(name);
            if problems.is_empty() && !seen.insert(name) {
                errors.duplicate(&path.child("name"), name);
            }
            errors.each_invalid(&path.child("name"), name, problems);
        }
        match port.container_port {
            0 => errors.required(&path.child("containerPort"), ""),
            number => errors.each_invalid(&path.child("containerPort"), number, names::port(number.into())),
        }
        if let Some(number) = port.host_port {
            errors.each_invalid(&path.child("hostPort"), number, names::port(number.into()));
        }
        match port.protocol.as_deref().unwrap_or_default() {
            "TCP" | "UDP" | "SCTP" => {}
            "" => errors.required(&path.child("protocol"), ""),
            other => errors.unsupported(&path.child("protocol"), other, &["TCP", "UDP", "SCTP"]),
        }
    }
}

/// Refuses host ports that several containers use.
pub fn check_conflicts(containers: &[Container], path: &FieldPath, errors: &mut FieldErrors) {
    let mut used = BTreeSet::new();
    for (index, container) in containers.iter().enumerate() {
        for (number, port) in container.ports.iter().flatten().enumerate() {
            let Some(host_port) = port.host_port.filter(|port| *port != 0) else { continue };
            let protocol = port.protocol.as_deref().unwrap_or_default();
            let text = format!("{protocol}/{}/{host_port}", port.host_ip.as_deref().unwrap_or_default());
            if !used.insert(text.clone()) {
                errors.duplicate(&path.index(index).child("ports").index(number).child("hostPort"), text);
            }
        }
    }
}

/// Checks that host ports equal container ports with `hostNetwork`.
pub fn check_host_network(containers: &[Container], path: &FieldPath, errors: &mut FieldErrors) {
    for (index, container) in containers.iter().enumerate() {
        for (number, port) in container.ports.iter().flatten().enumerate() {
            let host_port = port.host_port.unwrap_or(0);
            if host_port != 0 && host_port != port.container_port {
                let path = path.index(index).child("ports").index(number).child("hostPort");
                errors.invalid(&path, host_port, "must match `containerPort` when `hostNetwork` is true");
            }
        }
    }
}
