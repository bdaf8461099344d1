//! The plugins that refuse nodes, in Kubernetes' order, with its words.

use super::nodes::Candidate;
use super::{affinity, tolerations};
use crate::object::Object;
use crate::world::{PodFields, Row, Taint};
use serde_json::Value;

/// What a pod asks for, read once for all nodes.
pub struct Asks<'a> {
    /// The pod.
    pub pod: &'a Object,
    /// Its fields.
    pub fields: PodFields,
    /// Its host ports: address, protocol, port.
    host_ports: Vec<(String, String, i64)>,
}

impl<'a> Asks<'a> {
    /// Reads them from the pod.
    pub fn of(pod: &'a Object, row: &Row) -> Asks<'a> {
        let fields = row.pod().cloned().unwrap_or_default();
        Asks { pod, fields, host_ports: host_ports(pod) }
    }
}

/// One plugin: the reasons for which it refuses a node.
type Plugin = fn(&Asks<'_>, &Candidate<'_>) -> Vec<String>;

/// The plugins, in order. The first that refuses a node speaks for it, as in Kubernetes.
const PLUGINS: &[Plugin] = &[unschedulable, node_name, taints, node_affinity, ports, resources];

/// Why a node cannot take the pod; empty when it can.
pub fn refusals(asks: &Asks<'_>, node: &Candidate<'_>) -> Vec<String> {
    PLUGINS.iter().map(|plugin| plugin(asks, node)).find(|reasons| !reasons.is_empty()).unwrap_or_default()
}

fn because(refused: bool, reason: &str) -> Vec<String> {
    if refused { vec![reason.to_owned()] } else { Vec::new() }
}

/// NodeUnschedulable: a cordoned node, unless the pod bears the taint that says so.
fn unschedulable(asks: &Asks<'_>, node: &Candidate<'_>) -> Vec<String> {
    let taint =
        Taint { key: "node.kubernetes.io/unschedulable".into(), value: String::new(), effect: "NoSchedule".into() };
    let borne = tolerations::untolerated(asks.pod.items(&["spec", "tolerations"]), std::iter::once(&taint)).is_none();
    because(node.fields.unschedulable && !borne, "node(s) were unschedulable")
}

/// NodeName. A pod that names a node is bound already; what is left here is a name that no node has.
fn node_name(asks: &Asks<'_>, node: &Candidate<'_>) -> Vec<String> {
    let named = asks.pod.text(&["spec", "nodeName"]).unwrap_or_default();
    because(!named.is_empty() && named != &*node.row.key.name, "node(s) didn't match the requested node name")
}

/// TaintToleration.
fn taints(asks: &Asks<'_>, node: &Candidate<'_>) -> Vec<String> {
    let hard = node.fields.taints.iter().filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"));
    let borne = asks.pod.items(&["spec", "tolerations"]);
    let reason = |taint: &Taint| format!("node(s) had untolerated taint {{{}: {}}}", taint.key, taint.value);
    tolerations::untolerated(borne, hard).map(reason).into_iter().collect()
}

/// NodeAffinity.
fn node_affinity(asks: &Asks<'_>, node: &Candidate<'_>) -> Vec<String> {
    because(!affinity::node_matches(asks.pod, node.row), "node(s) didn't match Pod's node affinity/selector")
}

/// NodePorts.
fn ports(asks: &Asks<'_>, node: &Candidate<'_>) -> Vec<String> {
    let taken = || node.pods.iter().flat_map(|pod| host_ports(&pod.object()));
    let clash = |(ip, protocol, port): &(String, String, i64)| {
        let wildcard = |ip: &str| ip.is_empty() || ip == "0.0.0.0";
        taken().any(|(other_ip, other_protocol, other_port)| {
            let same_ip = wildcard(ip) || wildcard(&other_ip) || *ip == other_ip;
            *port == other_port && *protocol == other_protocol && same_ip
        })
    };
    because(asks.host_ports.iter().any(clash), "node(s) didn't have free ports for the requested pod ports")
}

fn host_ports(pod: &Object) -> Vec<(String, String, i64)> {
    let ports = pod.items(&["spec", "containers"]).iter().flat_map(|one| one["ports"].as_array().into_iter().flatten());
    let text = |value: &Value, default: &str| value.as_str().unwrap_or(default).to_owned();
    let port = |port: &Value| {
        let number = port["hostPort"].as_i64().filter(|number| *number > 0)?;
        Some((text(&port["hostIP"], ""), text(&port["protocol"], "TCP"), number))
    };
    ports.filter_map(port).collect()
}

/// NodeResourcesFit: every resource that does not fit is told.
fn resources(asks: &Asks<'_>, node: &Candidate<'_>) -> Vec<String> {
    let (wants, used, has) = (&asks.fields.requests, &node.used, &node.fields.allocatable);
    let mut short = because(node.pods.len() as i64 + 1 > node.fields.pods, "Too many pods");
    let mut need = |name: &str, wanted: i64, used: i64, offered: i64| {
        if wanted > 0 && wanted > offered - used {
            short.push(format!("Insufficient {name}"));
        }
    };
    need("cpu", wants.cpu_milli, used.cpu_milli, has.cpu_milli);
    need("memory", wants.memory, used.memory, has.memory);
    need("ephemeral-storage", wants.ephemeral, used.ephemeral, has.ephemeral);
    for (name, wanted) in &wants.others {
        let of = |list: &crate::world::Requests| list.others.get(name).copied().unwrap_or(0);
        need(name, *wanted, of(used), of(has));
    }
    short
}
