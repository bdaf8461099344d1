//! Addresses and node ports of Services: given out on create, kept on update, given back with the Service.

use super::AdmissionRequest;
use crate::apiserver::ApiResult;
use crate::apiserver::rules::addresses::{self, ServiceAllocations};
use crate::apiserver::transaction::Transaction;
use crate::kinds::shared::field;
use crate::kinds::{FieldErrors, FieldPath};
use crate::object::{Key, Object};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};

/// Port at which load balancers check whether a node has local endpoints of a Service (`externalTrafficPolicy: Local`).
const HEALTH_PORT: [&str; 2] = ["spec", "healthCheckNodePort"];

/// Admits a write.
pub fn admit(txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    if request.kind.resource != "services" {
        return Ok(());
    }
    carry_over(request);
    let service_type = request.object.text(&["spec", "type"]).unwrap_or("ClusterIP").to_owned();
    let own = Key::new(request.kind.resource, request.object.namespace(), request.object.name());
    let holdings = txn.holdings()?;
    if service_type != "ExternalName" {
        give_cluster_ip(txn, request, &own, &holdings)?;
    }
    if matches!(service_type.as_str(), "NodePort" | "LoadBalancer") {
        give_node_ports(txn, request, &own, &holdings)?;
    }
    Ok(())
}

/// Keeps the old address in an update that names none, and drops it if the new type needs none.
fn carry_over(request: &mut AdmissionRequest<'_>) {
    let Some(old) = request.old else { return };
    let was_external = old.text(&["spec", "type"]) == Some("ExternalName");
    let is_external = request.object.text(&["spec", "type"]) == Some("ExternalName");
    if was_external || is_external || request.object.text(&["spec", "clusterIP"]).is_some_and(|ip| !ip.is_empty()) {
        return;
    }
    for field in ["clusterIP", "clusterIPs"] {
        if let Some(value) = old.value_at(&["spec", field]) {
            request.object.set(&["spec", field], value.clone());
        }
    }
}

fn give_cluster_ip(
    txn: &mut dyn Transaction,
    request: &mut AdmissionRequest<'_>,
    own: &Key,
    others: &ServiceAllocations,
) -> ApiResult<()> {
    let is_taken = |ip: &str| others.has_address(ip, own);
    let wanted = request.object.text(&["spec", "clusterIP"]).unwrap_or_default().to_owned();
    let mut errors = FieldErrors::default();
    let path = FieldPath::root("spec").child("clusterIPs");
    let ip = match wanted.as_str() {
        "None" => wanted,
        "" => match addresses::free_service_ip(txn.network(), txn.random(), is_taken) {
            Some(ip) => ip,
            None => {
                errors.invalid(&path, Value::Null, "failed to allocate IP: range is full");
                wanted
            }
        },
        _ if !addresses::is_service_ip(txn.network(), &wanted) => {
            let detail =
                format!("failed to allocate IP {wanted}: the provided network does not match the current range");
            errors.invalid(&path, json!([wanted]), &detail);
            wanted
        }
        _ if is_taken(&wanted) => {
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

fn give_node_ports(
    txn: &mut dyn Transaction,
    request: &mut AdmissionRequest<'_>,
    own: &Key,
    others: &ServiceAllocations,
) -> ApiResult<()> {
    let ports_of = |service: &Object| -> Vec<u16> {
        let ports = service.items(&["spec", "ports"]).iter().filter_map(|port| port["nodePort"].as_u64());
        ports.filter(|port| *port > 0).map(|port| port as u16).collect()
    };
    let mut given: HashSet<u16> = HashSet::new();
    // Node ports by the Service's port: TCP and UDP on one port share a node port.
    let mut shared: HashMap<i64, u16> = HashMap::new();
    let kept = request.old.map(ports_of).unwrap_or_default();
    let mut ports = request.object.items(&["spec", "ports"]).to_vec();
    let mut errors = FieldErrors::default();
    let spec = request.object.value_at(&["spec"]).cloned().unwrap_or_default();
    // With `allocateLoadBalancerNodePorts: false` only the node ports that the Service names are allocated.
    let gets_more = spec["type"] != "LoadBalancer" || spec["allocateLoadBalancerNodePorts"] != false;
    let named = named_node_ports(&ports);
    for (index, port) in ports.iter_mut().enumerate() {
        let asked = port["nodePort"].as_i64().filter(|asked| *asked != 0);
        let number = port["port"].as_i64().unwrap_or_default();
        let of_number = shared.get(&number).or(named.get(&number)).copied();
        let is_shared = |port: u16| shared.get(&number) == Some(&port);
        let is_taken = |port: u16| !is_shared(port) && (given.contains(&port) || others.has_port(port, own));
        let kept = kept.get(index).copied().filter(|kept| !is_taken(*kept));
        let path = FieldPath::root("spec").child("ports").index(index).child("nodePort");
        let of_number = of_number.filter(|port| !is_taken(*port));
        let find_free = || of_number.or_else(|| addresses::free_node_port(txn.random(), is_taken));
        match choose_node_port(asked, kept, gets_more, is_taken, find_free) {
            Ok(Some(node_port)) => {
                given.insert(node_port);
                shared.entry(number).or_insert(node_port);
                port["nodePort"] = node_port.into();
            }
            Ok(None) => {}
            Err((value, detail)) => errors.invalid(&path, value, &detail),
        }
    }
    refuse(request, &errors)?;
    request.object.set(&["spec", "ports"], ports);
    give_health_check_port(txn, request, |port| given.contains(&port) || others.has_port(port, own));
    Ok(())
}

/// Chooses the node port of a port: the one that it asks for, else the one that it had. Otherwise it gets a free one, or with
/// `gets_more` false none. An error is the wrong value and the reason.
fn choose_node_port(
    asked: Option<i64>,
    kept: Option<u16>,
    gets_more: bool,
    is_taken: impl Fn(u16) -> bool,
    find_free: impl FnOnce() -> Option<u16>,
) -> Result<Option<u16>, (Value, String)> {
    match asked {
        Some(asked) => {
            let Some(port) = u16::try_from(asked).ok().filter(|port| addresses::NODE_PORTS.contains(port)) else {
                let (first, last) = (addresses::NODE_PORTS.start(), addresses::NODE_PORTS.end());
                let detail = "provided port is not in the valid range. The range of valid ports is";
                return Err((asked.into(), format!("{detail} {first}-{last}")));
            };
            if is_taken(port) {
                return Err((port.into(), "provided port is already allocated".to_owned()));
            }
            Ok(Some(port))
        }
        None if kept.is_some() || !gets_more => Ok(kept),
        None => {
            let full = || (Value::Null, "failed to allocate a nodePort: range is full".to_owned());
            Ok(Some(find_free().ok_or_else(full)?))
        }
    }
}

/// Gives a load balancer with `externalTrafficPolicy: Local` a health check port, unless it has one.
fn give_health_check_port(
    txn: &mut dyn Transaction,
    request: &mut AdmissionRequest<'_>,
    is_taken: impl Fn(u16) -> bool,
) {
    let health_port = |service: &Object| service.int(&HEALTH_PORT).and_then(|port| u16::try_from(port).ok());
    let health = health_port(request.object);
    if health.is_some() && request.old.and_then(health_port) != health {
        request.warnings.push("spec.healthCheckNodePort: has no effect, kloop opens no health check port".into());
    }
    let is_local = request.object.text(&["spec", "externalTrafficPolicy"]) == Some("Local");
    if is_local
        && request.object.text(&["spec", "type"]) == Some("LoadBalancer")
        && health.is_none()
        && let Some(number) = addresses::free_node_port(txn.random(), is_taken)
    {
        request.object.set(&HEALTH_PORT, number);
    }
}

/// Returns the first node port that the ports of each number name.
fn named_node_ports(ports: &[Value]) -> HashMap<i64, u16> {
    let named = ports.iter().rev().filter_map(|port| {
        let node_port = port["nodePort"].as_u64().and_then(|port| u16::try_from(port).ok());
        Some((port["port"].as_i64()?, node_port.filter(|port| addresses::NODE_PORTS.contains(port))?))
    });
    named.collect()
}

fn refuse(request: &AdmissionRequest<'_>, errors: &FieldErrors) -> ApiResult<()> {
    if errors.0.is_empty() {
        return Ok(());
    }
    Err(field::invalid(request.kind.kind, request.kind.resource, request.object.name(), &errors.0))
}

#[cfg(test)]
mod tests {
    use crate::apiserver::{Api, WriteOptions, create};
    use crate::kinds;
    use crate::object::Object;
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn created(spec: Value) -> (Arc<Object>, Vec<String>) {
        let mut api = Api::in_memory("test").unwrap();
        let metadata = json!({"name": "lb", "namespace": "default"});
        let service = Object(json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}));
        let kind = kinds::by_name("services").unwrap();
        let reply = api.write(false, |txn| create::create(txn, kind, &service, &WriteOptions::default())).unwrap();
        (reply.object, reply.warnings)
    }

    #[test]
    fn ports_of_one_number_share_a_node_port() {
        for named in [[None, None], [Some(30053), None], [None, Some(30053)], [Some(30053), Some(30053)]] {
            let ports: Vec<Value> = ["TCP", "UDP"]
                .into_iter()
                .zip(named)
                .map(|(protocol, node_port)| {
                    json!({"name": protocol.to_lowercase(), "port": 53, "protocol": protocol, "nodePort": node_port})
                })
                .collect();
            let (service, _) = created(json!({"type": "NodePort", "ports": ports}));
            let given: Vec<Option<i64>> =
                service.items(&["spec", "ports"]).iter().map(|port| port["nodePort"].as_i64()).collect();
            assert!(given[0].is_some() && given[0] == given[1], "{named:?}: {given:?}");
            if let Some(wanted) = named[0].or(named[1]) {
                assert_eq!(given[0], Some(wanted), "{named:?}");
            }
        }
    }

    #[test]
    fn load_balancer_may_do_without_node_ports_and_fields_without_effect_are_warned_about() {
        let ports = |first: Value| json!([first, {"name": "b", "port": 81}]);
        for (allocates, expected) in [(true, [true, true]), (false, [true, false])] {
            let named = json!({"name": "a", "port": 80, "nodePort": 30100});
            let spec = json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": allocates,
                "externalTrafficPolicy": "Local", "ports": ports(named)});
            let (service, warnings) = created(spec);
            let has: Vec<bool> =
                service.items(&["spec", "ports"]).iter().map(|port| port["nodePort"].is_number()).collect();
            assert_eq!((has, warnings), (expected.to_vec(), vec![]), "{allocates}");
        }
        let more = [
            ("loadBalancerIP", json!("10.0.0.1")),
            ("healthCheckNodePort", json!(30200)),
            ("trafficDistribution", json!("PreferSameZone")),
            ("loadBalancerSourceRanges", json!(["10.0.0.0/8"])),
        ];
        for (field, value) in more {
            let mut spec = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80}]});
            spec[field] = value;
            let (_, warnings) = created(spec);
            assert!(matches!(&warnings[..], [one] if one.starts_with(&format!("spec.{field}: "))), "{warnings:?}");
        }
    }
}
