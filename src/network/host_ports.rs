//! Host ports: forwards ports of the machine to pods (`hostPort`).
//!
//! Selects the pods with an address to forward to. Without `hostIP`, and for `0.0.0.0`, the port is opened on the
//! machine's localhost: kloop never listens on every address.
//! Never: binds a port. The scheduler ensures that no other pod of the node has the same port.

use super::routes::report_blocked;
use crate::object::{Key, Object};
use crate::world::ingress_routes::HostPort;
use crate::world::{AppliedReport, Effect, Loop, Plan, Row, World};
use serde_json::Value;
use std::net::{Ipv4Addr, SocketAddrV4};

/// The loop of pods with host ports.
pub const LOOP: Loop =
    Loop { name: "hostport-controller", root: "pods", concerns, plan, reports: Some(reports), ..Loop::BASE };

fn reports(_world: &World, report: &AppliedReport) -> Vec<Key> {
    match report {
        AppliedReport::Blocked(key) if key.resource == "pods" => vec![key.clone()],
        _ => Vec::new(),
    }
}

fn concerns(_world: &World, row: &Row) -> Vec<Key> {
    if needs_host_port(row) { vec![row.key.clone()] } else { Vec::new() }
}

fn needs_host_port(row: &Row) -> bool {
    row.pod().is_some_and(|pod| pod.has_host_ports)
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let row = world.get(key);
    let wanted = row.map(|row| desired_ports(world, row)).unwrap_or_default();
    let ordered = world.orders.exposed.get(key).map_or(&[][..], Vec::as_slice);
    if wanted != ordered {
        plan.effects.push(Effect::Expose { pod: key.clone(), ports: wanted });
    }
    report_blocked(world, key, &mut plan, |at, why| format!("hostPort {at} does not lead to the pod: {why}"));
    plan
}

fn desired_ports(world: &World, row: &Row) -> Vec<HostPort> {
    let pod = row.pod();
    let is_here = pod.and_then(|pod| pod.node.as_ref()).is_some_and(|node| world.facts.runs_real_node(node));
    if !is_here || !needs_host_port(row) {
        return Vec::new();
    }
    let object = row.body();
    if object.value_at(&["spec", "hostNetwork"]) == Some(&Value::Bool(true)) {
        return Vec::new();
    }
    let Some(address) = pod.and_then(|pod| pod.address()).and_then(|ip| ip.parse().ok()) else { return Vec::new() };
    ports(&object).filter_map(|port| host_port(port, address)).collect()
}

fn ports(pod: &Object) -> impl Iterator<Item = &Value> {
    pod.containers().flat_map(|container| container["ports"].as_array().into_iter().flatten())
}

fn host_port(port: &Value, pod: Ipv4Addr) -> Option<HostPort> {
    let number = |field: &str| u16::try_from(port[field].as_u64()?).ok().filter(|port| *port > 0);
    let ip = port["hostIP"].as_str().filter(|ip| !ip.is_empty() && *ip != "0.0.0.0");
    let ip = ip.map_or(Some(Ipv4Addr::LOCALHOST), |ip| ip.parse().ok())?;
    let is_udp = match port["protocol"].as_str().unwrap_or("TCP") {
        "TCP" => false,
        "UDP" => true,
        _ => return None,
    };
    let to = SocketAddrV4::new(pod, number("containerPort")?);
    Some(HostPort { at: SocketAddrV4::new(ip, number("hostPort")?), is_udp, to })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Resource, Time};
    use crate::world::NodeFacts;
    use crate::world::ingress_routes::BlockedListener;
    use serde_json::json;

    fn world(ports: Value, host_network: bool) -> (World, Key) {
        let mut world = World::new(Time::UNIX_EPOCH);
        world.facts.nodes.insert("n".into(), NodeFacts { ours: true, ..NodeFacts::default() });
        let key = Key::new(Resource("pods"), "default", "p");
        let spec = json!({"nodeName": "n", "hostNetwork": host_network, "containers": [{"name": "c", "ports": ports}]});
        let meta = json!({"name": "p", "namespace": "default", "uid": "p"});
        let pod = json!({"metadata": meta, "spec": spec, "status": {"phase": "Running", "podIP": "127.9.1.4"}});
        world.put(key.clone(), pod.to_string().into());
        (world, key)
    }

    #[test]
    fn host_ports_are_forwarded_to_the_pod() {
        let table = [
            (json!({"containerPort": 80}), None),
            (json!({"containerPort": 80, "hostPort": 8080}), Some(("127.0.0.1:8080", false))),
            (json!({"containerPort": 80, "hostPort": 8080, "hostIP": "0.0.0.0"}), Some(("127.0.0.1:8080", false))),
            (
                json!({"containerPort": 80, "hostPort": 8080, "hostIP": "192.0.2.1", "protocol": "UDP"}),
                Some(("192.0.2.1:8080", true)),
            ),
            (json!({"containerPort": 80, "hostPort": 8080, "protocol": "SCTP"}), None),
            (json!({"containerPort": 80, "hostPort": 8080, "hostIP": "::1"}), None),
        ];
        for (port, expected) in table {
            let (world, key) = world(json!([port.clone()]), false);
            let to = "127.9.1.4:80".parse().unwrap();
            let expected: Vec<HostPort> =
                expected.map(|(at, is_udp)| HostPort { at: at.parse().unwrap(), is_udp, to }).into_iter().collect();
            let found = desired_ports(&world, world.get(&key).unwrap());
            assert_eq!(found, expected, "{port}");
        }
        let (world, key) = world(json!([{"containerPort": 80, "hostPort": 80}]), true);
        assert_eq!(desired_ports(&world, world.get(&key).unwrap()), [], "a hostNetwork pod has the port itself");
    }

    #[test]
    fn host_ports_are_opened_once_reported_when_blocked_and_closed() {
        let (mut world, key) = world(json!([{"containerPort": 80, "hostPort": 8080}]), false);
        let first = plan(&world, &key);
        assert_eq!(first.effects.len(), 1);
        world.note_order(&first.effects[0]);
        assert!(plan(&world, &key).is_empty());
        let blocked = BlockedListener {
            at: "127.0.0.1:8080".parse().unwrap(),
            is_udp: false,
            is_reserved: false,
            why: "address already in use".into(),
        };
        world.facts.apply_report(crate::world::Report::Blocked { about: key.clone(), listeners: vec![blocked] });
        let planned = plan(&world, &key);
        assert_eq!(
            planned.events[0].message,
            "hostPort 127.0.0.1:8080/TCP does not lead to the pod: address already in use"
        );
        world.remember(&planned.memory[0]);
        assert!(plan(&world, &key).is_empty(), "reported once");
        world.facts.apply_report(crate::world::Report::Blocked { about: key.clone(), listeners: Vec::new() });
        let planned = plan(&world, &key);
        assert_eq!(planned.events.iter().map(|event| &*event.reason).collect::<Vec<_>>(), ["PortAvailable"]);
        world.remember(&planned.memory[0]);
        assert!(
            plan(&world, &key).is_empty() && world.facts.blocked.is_empty(),
            "reported once, and its memory is deleted"
        );
        world.remove(&key);
        assert_eq!(plan(&world, &key).effects, [Effect::Expose { pod: key.clone(), ports: Vec::new() }]);
    }
}
