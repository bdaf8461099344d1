//! NetworkPolicies: resolves each one to addresses.
//!
//! Resolves selectors of pods and namespaces, address blocks, ports by number, range and name, and policies without
//! rules. [`table`] combines the policies of a pod. Never: refuses a connection. The shim of the client's pod does,
//! with the table. Start reading at [`LOOP`].
//!
//! Traffic of the machine itself is always allowed ("traffic to and from the node is always allowed", NetworkPolicy in
//! the Kubernetes documentation). So is traffic of hostNetwork pods, which probes, port-forward and external proxies
//! need.

pub mod table;

use crate::object::selector::Selector;
use crate::object::{Key, Str};
use crate::world::policy::{Cidr, NetworkPolicyRules, PolicyPeer, PolicyRule, PortRange};
use crate::world::{Effect, Loop, Plan, Row, World};
use serde_json::Value;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// The loop of NetworkPolicies.
pub const LOOP: Loop = Loop { name: "networkpolicy-controller", root: POLICIES, concerns, plan, ..Loop::BASE };

const POLICIES: &str = "networkpolicies.networking.k8s.io";

fn concerns(world: &World, row: &Row) -> Vec<Key> {
    let all = || world.list(POLICIES);
    match row.key.resource.0 {
        POLICIES => vec![row.key.clone()],
        "pods" => all().filter(|policy| may_affect(policy, row)).map(|policy| policy.key.clone()).collect(),
        "namespaces" => {
            all().filter(|policy| policy.mentions("namespaceSelector")).map(|policy| policy.key.clone()).collect()
        }
        _ => Vec::new(),
    }
}

/// Whether a pod can affect a policy. A pod of another namespace can only through a `namespaceSelector` or a named
/// port.
fn may_affect(policy: &Row, pod: &Row) -> bool {
    let is_near = policy.key.namespace == pod.key.namespace || policy.mentions("namespaceSelector");
    is_near || policy.mentions("egress") && policy.body().items(&["spec", "egress"]).iter().any(has_named_port)
}

/// Whether a rule has a named port, whose number depends on each server.
fn has_named_port(rule: &Value) -> bool {
    rule["ports"].as_array().into_iter().flatten().any(|port| port["port"].is_string())
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let wanted = world.get(key).filter(|row| !row.is_deleting()).map(|row| policy(world, row));
    let ordered = world.orders.policies.get(key);
    if wanted.as_ref() != ordered.map(|ordered| &**ordered) {
        plan.effects.push(Effect::SetNetworkPolicy { policy: key.clone(), rules: wanted.map(Arc::new) });
    }
    plan
}

/// Resolves a policy against the current World.
fn policy(world: &World, row: &Row) -> NetworkPolicyRules {
    let object = row.body();
    let namespace = &row.key.namespace;
    let subjects = pods(world, namespace, &object.0["spec"]["podSelector"]);
    let types = object.items(&["spec", "policyTypes"]);
    let applies_to = |direction: &str| types.iter().any(|one| one == direction);
    let rules = |direction: &str, field: &str, peers: &str| {
        let rules = object.items(&["spec", field]).iter();
        let rule = |rule: &Value| {
            let others = rule[peers].as_array().filter(|peers| !peers.is_empty());
            let found = others.map(|others| others.iter().flat_map(|peer| find(world, namespace, peer)).collect());
            let found: Option<Vec<PeerMatch>> = found;
            let servers: Vec<&Row> = match field {
                "ingress" => subjects.iter().map(|row| &***row).collect(),
                _ if has_named_port(rule) => servers(world, found.as_deref()),
                _ => Vec::new(),
            };
            let ports = rule["ports"].as_array().filter(|ports| !ports.is_empty());
            let mut peers: Option<Vec<PolicyPeer>> =
                found.as_ref().map(|found| found.iter().filter_map(PeerMatch::peer).collect());
            peers.iter_mut().for_each(|peers| {
                peers.sort();
                peers.dedup();
            });
            PolicyRule {
                peers,
                ports: ports.map(|ports| ports.iter().flat_map(|port| range(port, &servers)).collect()),
            }
        };
        applies_to(direction).then(|| rules.map(rule).collect())
    };
    let mut addresses: Vec<Ipv4Addr> = subjects.iter().filter_map(|row| address(row)).collect();
    addresses.sort();
    NetworkPolicyRules {
        ingress: rules("Ingress", "ingress", "from"),
        egress: rules("Egress", "egress", "to"),
        subjects: addresses,
    }
}

/// A resolved peer.
enum PeerMatch<'a> {
    Pod(&'a Arc<Row>),
    Block(Cidr, Vec<Cidr>),
}

impl PeerMatch<'_> {
    fn peer(&self) -> Option<PolicyPeer> {
        match self {
            PeerMatch::Pod(row) => address(row).map(PolicyPeer::Pod),
            PeerMatch::Block(cidr, except) => Some(PolicyPeer::Block { cidr: *cidr, except: except.clone() }),
        }
    }
}

/// Returns the destination pods: the selected ones, those in a block, or all when the rule has no peers.
fn servers<'a>(world: &'a World, found: Option<&[PeerMatch<'a>]>) -> Vec<&'a Row> {
    let is_selected = |row: &&Arc<Row>| {
        let Some(ip) = address(row) else { return false };
        let is_it = |found: &PeerMatch| match found {
            PeerMatch::Pod(pod) => pod.key == row.key,
            PeerMatch::Block(cidr, except) => cidr.contains(ip) && !except.iter().any(|cidr| cidr.contains(ip)),
        };
        found.is_none_or(|found| found.iter().any(is_it))
    };
    world.list("pods").filter(is_selected).map(|row| &**row).collect()
}

/// Resolves a peer. IPv6 blocks match nothing.
fn find<'a>(world: &'a World, namespace: &'a str, peer: &'a Value) -> Vec<PeerMatch<'a>> {
    if let Some(block) = peer.get("ipBlock") {
        let cidr = |text: &Value| text.as_str().and_then(|text| text.parse::<Cidr>().ok());
        let except = block["except"].as_array().into_iter().flatten().filter_map(cidr).collect();
        return cidr(&block["cidr"]).map(|cidr| PeerMatch::Block(cidr, except)).into_iter().collect();
    }
    let everything = Value::Object(serde_json::Map::new());
    let selector = peer.get("podSelector").filter(|selector| !selector.is_null());
    let Some(namespaces) = peer.get("namespaceSelector").filter(|selector| !selector.is_null()) else {
        return pods(world, namespace, selector.unwrap_or(&everything)).into_iter().map(PeerMatch::Pod).collect();
    };
    let Ok(namespaces) = Selector::from_label_selector(namespaces) else { return Vec::new() };
    let selected = world.list("namespaces").filter(|row| namespaces.matches(|label| row.label(label)));
    selected.flat_map(|row| pods(world, &row.key.name, selector.unwrap_or(&everything))).map(PeerMatch::Pod).collect()
}

/// The pods of a namespace that a selector matches, if they have an address on the pod network.
fn pods<'a>(world: &'a World, namespace: &'a str, selector: &Value) -> Vec<&'a Arc<Row>> {
    let Ok(selector) = Selector::from_label_selector(selector) else { return Vec::new() };
    let own = |row: &&Arc<Row>| address(row).is_some_and(|ip| ip.octets()[..2] == [127, world.settings.network]);
    world.pods_matching(namespace, &selector).into_iter().filter(own).collect()
}

fn address(pod: &Row) -> Option<Ipv4Addr> {
    pod.pod()?.address()?.parse().ok()
}

/// The ports of a rule. A named port is resolved for each server.
fn range(port: &Value, servers: &[&Row]) -> Vec<PortRange> {
    let protocol: Str = port["protocol"].as_str().unwrap_or("TCP").to_lowercase().into();
    let number = |value: &Value| value.as_u64().and_then(|number| u16::try_from(number).ok());
    let Some(name) = port["port"].as_str() else {
        let (first, last) = match number(&port["port"]) {
            None => (0, u16::MAX),
            Some(first) => (first, number(&port["endPort"]).unwrap_or(first)),
        };
        return vec![PortRange { protocol, first, last, on: None }];
    };
    let named = |server: &&Row| {
        let found = server.pod()?.named_port(name, port["protocol"].as_str().unwrap_or("TCP"))?;
        let found = u16::try_from(found).ok()?;
        Some(PortRange { protocol: protocol.clone(), first: found, last: found, on: address(server) })
    };
    servers.iter().filter_map(named).collect()
}

#[cfg(test)]
mod tests;
