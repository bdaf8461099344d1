//! The plugins that refuse nodes, in Kubernetes' order, with its words.

use super::neighbours::Neighbours;
use super::nodes::Candidate;
use super::spread::Spread;
use super::{affinity, profile_of, tolerations};
use crate::object::Object;
use crate::world::profile::Profile;
use crate::world::{PodFields, Row, Taint, World};
use serde_json::Value;
use std::borrow::Cow;

/// What a pod asks for, read once for all nodes.
#[derive(Clone)]
pub struct Asks<'a> {
    /// The picture.
    pub world: &'a World,
    /// The pod.
    pub pod: &'a Object,
    /// Its row.
    pub row: &'a Row,
    /// How it is to be placed.
    pub profile: Cow<'a, Profile>,
    /// Its fields.
    pub fields: Cow<'a, PodFields>,
    /// The plugins that may refuse nodes.
    plugins: Vec<&'static (&'static str, Plugin)>,
    /// The nodes that all of its required terms name, if they do.
    pub named: Option<Vec<&'a str>>,
    /// Whether it asks for some nodes rather than others.
    is_picky: bool,
    /// Its host ports: address, protocol, port.
    host_ports: Vec<(String, String, i64)>,
    /// Near which pods it wants to be.
    pub neighbours: Neighbours,
    /// How it wants to be spread.
    pub spread: Spread,
}

impl<'a> Asks<'a> {
    /// Reads them from the pod.
    pub fn of(world: &'a World, pod: &'a Object, row: &'a Row) -> Asks<'a> {
        // Who is asked about the pod of another scheduler says what this one would do.
        let profile = profile_of(world, row).map_or_else(|| Cow::Owned(Profile::default()), Cow::Borrowed);
        Asks {
            world,
            pod,
            row,
            fields: row.pod().map_or_else(Cow::default, Cow::Borrowed),
            plugins: PLUGINS.iter().filter(|(name, _)| !profile.without.contains(name)).collect(),
            named: affinity::named_nodes(pod),
            is_picky: affinity::is_picky(pod) || !profile.added_affinity.is_null(),
            host_ports: host_ports(pod),
            neighbours: Neighbours::of(world, pod, row),
            spread: Spread::of(world, pod, row, &profile),
            profile,
        }
    }

    /// The same with what is thought of one node.
    pub fn thinking(&self, node: &Candidate<'_>) -> Cow<'_, Asks<'a>> {
        if node.is_real() || (!self.go_by_pods() && !node.thoughts().any(|(pod, _)| shuns(pod))) {
            return Cow::Borrowed(self);
        }
        let neighbours = self.neighbours.thinking(self.world, self.row, node);
        Cow::Owned(Asks { neighbours, spread: self.spread.thinking(self.world, node), ..self.clone() })
    }

    /// Whether it matters which pods run where, beyond what they use.
    fn go_by_pods(&self) -> bool {
        !self.spread.is_empty() || !self.neighbours.is_empty()
    }
}

fn shuns(pod: &Row) -> bool {
    pod.pod().is_some_and(|fields| fields.shuns.is_some())
}

/// A reason for which a node is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The plugin that refuses.
    pub plugin: &'static str,
    /// In Kubernetes' words.
    pub reason: Cow<'static, str>,
    /// Removing other pods cannot help.
    pub for_good: bool,
}

impl Refusal {
    fn new(reason: Cow<'static, str>, for_good: bool) -> Refusal {
        Refusal { plugin: "", reason, for_good }
    }
}

/// One plugin: the reasons for which it refuses a node.
type Plugin = fn(&Asks<'_>, &Candidate<'_>) -> Vec<Refusal>;

/// The plugins, in order. The first that refuses a node speaks for it, as in Kubernetes.
const PLUGINS: &[(&str, Plugin)] = &[
    ("NodeAffinity", named_nodes),
    ("NodeUnschedulable", unschedulable),
    ("NodeName", node_name),
    ("TaintToleration", taints),
    ("NodeAffinity", node_affinity),
    ("NodePorts", ports),
    ("NodeResourcesFit", resources),
    ("PodTopologySpread", spread),
    ("InterPodAffinity", neighbours),
];

/// Why a node cannot take the pod; empty when it can.
pub fn refusals(asks: &Asks<'_>, node: &Candidate<'_>) -> Vec<Refusal> {
    refused_by(asks, node).map_or_else(Vec::new, |(_, reasons)| reasons)
}

/// The plugin that refuses a node, and why; none when the pod can run there.
pub fn refused_by(asks: &Asks<'_>, node: &Candidate<'_>) -> Option<(&'static str, Vec<Refusal>)> {
    let asks = asks.thinking(node);
    let mut verdicts = asks.plugins.iter().map(|(name, plugin)| (*name, plugin(&asks, node)));
    let (name, mut reasons) = verdicts.find(|(_, reasons)| !reasons.is_empty())?;
    reasons.iter_mut().for_each(|reason| reason.plugin = name);
    Some((name, reasons))
}

/// Whether one plugin refuses a node whatever runs on it.
pub fn is_refused_for_good_by(plugin: &str, asks: &Asks<'_>, node: &Candidate<'_>) -> bool {
    let mut asked = asks.plugins.iter().filter(|(name, _)| *name == plugin);
    asked.any(|(_, plugin)| plugin(asks, node).iter().any(|refusal| refusal.for_good))
}

fn because(refused: bool, reason: &'static str, for_good: bool) -> Vec<Refusal> {
    if refused { vec![Refusal::new(reason.into(), for_good)] } else { Vec::new() }
}

/// NodeAffinity, before the others: a pod whose every term names nodes looks at no other ones.
fn named_nodes(asks: &Asks<'_>, node: &Candidate<'_>) -> Vec<Refusal> {
    let elsewhere = asks.named.as_ref().is_some_and(|names| !names.iter().any(|name| *name == &*node.row.key.name));
    because(elsewhere, "node(s) didn't satisfy plugin(s) [NodeAffinity]", true)
}

/// PodTopologySpread.
fn spread(asks: &Asks<'_>, node: &Candidate<'_>) -> Vec<Refusal> {
    asks.spread.refusal(node).map(|(reason, for_good)| Refusal::new(reason.into(), for_good)).into_iter().collect()
}

/// InterPodAffinity.
fn neighbours(asks: &Asks<'_>, node: &Candidate<'_>) -> Vec<Refusal> {
    asks.neighbours
        .refusal(node.slot)
        .map(|(reason, for_good)| Refusal::new(reason.into(), for_good))
        .into_iter()
        .collect()
}

/// NodeUnschedulable: a cordoned node, unless the pod bears the taint that says so.
fn unschedulable(asks: &Asks<'_>, node: &Candidate<'_>) -> Vec<Refusal> {
    if !node.fields.unschedulable {
        return Vec::new();
    }
    let taint =
        Taint { key: "node.kubernetes.io/unschedulable".into(), effect: "NoSchedule".into(), ..Taint::default() };
    let borne = tolerations::untolerated(asks.pod.items(&["spec", "tolerations"]), std::iter::once(&taint)).is_none();
    because(!borne, "node(s) were unschedulable", true)
}

/// NodeName. A pod that names a node is bound already; what is left here is a name that no node has.
fn node_name(asks: &Asks<'_>, node: &Candidate<'_>) -> Vec<Refusal> {
    let named = asks.pod.text(&["spec", "nodeName"]).unwrap_or_default();
    because(!named.is_empty() && named != &*node.row.key.name, "node(s) didn't match the requested node name", true)
}

/// TaintToleration.
fn taints(asks: &Asks<'_>, node: &Candidate<'_>) -> Vec<Refusal> {
    if node.fields.taints.is_empty() {
        return Vec::new();
    }
    let hard = node.fields.taints.iter().filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"));
    let borne = asks.pod.items(&["spec", "tolerations"]);
    because(tolerations::untolerated(borne, hard).is_some(), "node(s) had untolerated taint(s)", true)
}

/// NodeAffinity.
fn node_affinity(asks: &Asks<'_>, node: &Candidate<'_>) -> Vec<Refusal> {
    if !asks.is_picky {
        return Vec::new();
    }
    if !affinity::required_matches(&asks.profile.added_affinity, node.row) {
        return because(true, "node(s) didn't match scheduler-enforced node affinity", true);
    }
    because(!affinity::node_matches(asks.pod, node.row), "node(s) didn't match Pod's node affinity/selector", true)
}

/// NodePorts.
fn ports(asks: &Asks<'_>, node: &Candidate<'_>) -> Vec<Refusal> {
    let taken = || node.pods().flat_map(|pod| host_ports(&pod.object()));
    let clash = |(ip, protocol, port): &(String, String, i64)| {
        let wildcard = |ip: &str| ip.is_empty() || ip == "0.0.0.0";
        taken().any(|(other_ip, other_protocol, other_port)| {
            let same_ip = wildcard(ip) || wildcard(&other_ip) || *ip == other_ip;
            *port == other_port && *protocol == other_protocol && same_ip
        })
    };
    because(asks.host_ports.iter().any(clash), "node(s) didn't have free ports for the requested pod ports", false)
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

fn insufficient(resource: &str) -> Cow<'static, str> {
    match resource {
        "cpu" => "Insufficient cpu".into(),
        "memory" => "Insufficient memory".into(),
        other => format!("Insufficient {other}").into(),
    }
}

/// NodeResourcesFit: every resource that does not fit is told.
fn resources(asks: &Asks<'_>, node: &Candidate<'_>) -> Vec<Refusal> {
    let (wants, used, has) = (&asks.fields.requests, &node.load.requests, &node.fields.allocatable);
    let mut short = because(node.load.pods + 1 > node.fields.pods, "Too many pods", false);
    let mut need = |name: &str, wanted: i64, used: i64, offered: i64| {
        if wanted > 0 && wanted > offered - used {
            // More than the node has at all.
            short.push(Refusal::new(insufficient(name), wanted > offered));
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
