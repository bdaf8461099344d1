//! Addresses and node ports of Services: given out on create, kept on update, given back with the Service.

use super::Request;
use crate::apiserver::Result;
use crate::apiserver::ledger::Ledger;
use crate::apiserver::rules::addresses;
use crate::kinds::{Errors, Path, field};
use crate::object::Object;
use serde_json::{Value, json};
use std::collections::HashSet;

/// Where load balancers ask whether a node has pods of a Service that keeps traffic local.
const HEALTH_PORT: [&str; 2] = ["spec", "healthCheckNodePort"];

/// Admits a write.
pub fn admit(ledger: &mut dyn Ledger, request: &mut Request<'_>) -> Result<()> {
    if request.kind.resource != "services" {
        return Ok(());
    }
    carry_over(request);
    let service_type = request.object.text(&["spec", "type"]).unwrap_or("ClusterIP").to_owned();
    let own = (request.object.namespace().to_owned(), request.object.name().to_owned());
    let others: Vec<Object> = ledger
        .list(request.kind.resource, None)?
        .into_iter()
        .filter(|other| (other.namespace(), other.name()) != (own.0.as_str(), own.1.as_str()))
        .collect();
    if service_type != "ExternalName" {
        give_cluster_ip(ledger, request, &others)?;
    }
    if matches!(service_type.as_str(), "NodePort" | "LoadBalancer") {
        give_node_ports(ledger, request, &others)?;
    }
    Ok(())
}

/// An update that names no address keeps the one it had; a type that needs none loses it.
fn carry_over(request: &mut Request<'_>) {
    let Some(old) = request.old else { return };
    let was_external = old.text(&["spec", "type"]) == Some("ExternalName");
    let is_external = request.object.text(&["spec", "type"]) == Some("ExternalName");
    if was_external || is_external || request.object.text(&["spec", "clusterIP"]).is_some_and(|ip| !ip.is_empty()) {
        return;
    }
    for field in ["clusterIP", "clusterIPs"] {
        if let Some(value) = old.at(&["spec", field]) {
            request.object.set(&["spec", field], value.clone());
        }
    }
}

fn give_cluster_ip(ledger: &mut dyn Ledger, request: &mut Request<'_>, others: &[Object]) -> Result<()> {
    let taken: HashSet<String> =
        others.iter().filter_map(|other| other.text(&["spec", "clusterIP"])).map(str::to_owned).collect();
    let wanted = request.object.text(&["spec", "clusterIP"]).unwrap_or_default().to_owned();
    let mut errors = Errors::default();
    let path = Path::root("spec").child("clusterIPs");
    let ip = match wanted.as_str() {
        "None" => wanted,
        "" => match addresses::free_service_ip(ledger.network(), ledger.random(), &taken) {
            Some(ip) => ip,
            None => {
                errors.invalid(&path, Value::Null, "failed to allocate IP: range is full");
                wanted
            }
        },
        _ if !addresses::is_service_ip(ledger.network(), &wanted) => {
            let detail =
                format!("failed to allocate IP {wanted}: the provided network does not match the current range");
            errors.invalid(&path, json!([wanted]), &detail);
            wanted
        }
        _ if taken.contains(&wanted) => {
            let detail = "failed to allocate IP ".to_owned() + &wanted + ": provided IP is already allocated";
            errors.invalid(&path, json!([wanted]), &detail);
            wanted
        }
        _ => wanted,
    };
    refuse(request, &errors)?;
    request.object.set(&["spec", "clusterIPs"], json!([ip]));
    request.object.set(&["spec", "clusterIP"], ip);
    Ok(())
}

fn give_node_ports(ledger: &mut dyn Ledger, request: &mut Request<'_>, others: &[Object]) -> Result<()> {
    let ports_of = |service: &Object| -> Vec<u16> {
        let ports = service.items(&["spec", "ports"]).iter().filter_map(|port| port["nodePort"].as_u64());
        ports.filter(|port| *port > 0).map(|port| port as u16).collect()
    };
    let health_port = |service: &Object| service.int(&HEALTH_PORT).and_then(|port| u16::try_from(port).ok());
    let mut taken: HashSet<u16> = others.iter().flat_map(ports_of).collect();
    taken.extend(others.iter().filter_map(health_port));
    let kept = request.old.map(ports_of).unwrap_or_default();
    let mut ports = request.object.items(&["spec", "ports"]).to_vec();
    let mut errors = Errors::default();
    for (index, port) in ports.iter_mut().enumerate() {
        let wanted = port["nodePort"].as_u64().filter(|wanted| *wanted > 0).map(|wanted| wanted as u16);
        let kept = kept.get(index).copied().filter(|kept| !taken.contains(kept));
        let path = Path::root("spec").child("ports").index(index).child("nodePort");
        match wanted.or(kept).or_else(|| addresses::free_node_port(ledger.random(), &taken)) {
            Some(number) if wanted.is_some() && !addresses::NODE_PORTS.contains(&number) => {
                let range = format!("{}-{}", addresses::NODE_PORTS.start(), addresses::NODE_PORTS.end());
                errors.invalid(
                    &path,
                    number,
                    &format!("provided port is not in the valid range. The range of valid ports is {range}"),
                );
            }
            Some(number) if taken.contains(&number) => {
                errors.invalid(&path, number, "provided port is already allocated")
            }
            Some(number) => {
                taken.insert(number);
                port["nodePort"] = number.into();
            }
            None => errors.invalid(&path, Value::Null, "failed to allocate a nodePort: range is full"),
        }
    }
    refuse(request, &errors)?;
    request.object.set(&["spec", "ports"], ports);
    let is_local = request.object.text(&["spec", "externalTrafficPolicy"]) == Some("Local");
    if is_local
        && request.object.text(&["spec", "type"]) == Some("LoadBalancer")
        && health_port(request.object).is_none()
        && let Some(number) = addresses::free_node_port(ledger.random(), &taken)
    {
        request.object.set(&HEALTH_PORT, number);
    }
    Ok(())
}

fn refuse(request: &Request<'_>, errors: &Errors) -> Result<()> {
    if errors.0.is_empty() {
        return Ok(());
    }
    Err(field::invalid(request.kind.kind, request.kind.resource, request.object.name(), &errors.0))
}
