//! PodTopologySpread: a pod's constraints that must hold (`DoNotSchedule`), and those by which nodes are ranked (`ScheduleAnyway`).

use super::nodes::Candidate;
use super::{affinity, tolerations};
use crate::object::Object;
use crate::object::selector::Selector;
use crate::world::{Row, World};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// One constraint, and how many pods it counts in each place.
struct Constraint {
    key: String,
    max_skew: i64,
    min_domains: usize,
    /// One, when the pod itself is counted too.
    own: i64,
    counts: BTreeMap<String, i64>,
}

/// A pod's constraints, read once for all nodes.
#[derive(Default)]
pub struct Spread {
    hard: Vec<Constraint>,
    soft: Vec<Constraint>,
}

impl Spread {
    /// Reads them, and counts.
    pub fn of(world: &World, pod: &Object, row: &Row, nodes: &[Candidate<'_>], default: &[Value]) -> Spread {
        let own = pod.items(&["spec", "topologySpreadConstraints"]);
        let given = if own.is_empty() { defaults(world, row, default) } else { Vec::new() };
        let all = if own.is_empty() { &given[..] } else { own };
        let read = |mode: &str| constraints(pod, all, row, nodes, mode);
        Spread { hard: read("DoNotSchedule"), soft: read("ScheduleAnyway") }
    }

    /// Whether none has to hold.
    pub fn is_empty(&self) -> bool {
        self.hard.is_empty()
    }

    /// How crowded each node's places are; none for nodes that lack one.
    fn crowds(&self, nodes: &[&Candidate<'_>]) -> Vec<Option<i64>> {
        let has_all = |node: &Row| self.soft.iter().all(|one| node.label(&one.key).is_some());
        let there: Vec<&Row> = nodes.iter().map(|node| &**node.row).filter(|node| has_all(node)).collect();
        let weight = |constraint: &Constraint| {
            let places: BTreeSet<Option<&str>> = there.iter().map(|node| node.label(&constraint.key)).collect();
            (places.len() as f64 + 2.0).ln()
        };
        let weights: Vec<f64> = self.soft.iter().map(weight).collect();
        let crowd = |node: &Row| {
            let one = |(constraint, weight): (&Constraint, &f64)| {
                let here = node.label(&constraint.key).and_then(|place| constraint.counts.get(place));
                here.copied().unwrap_or(0) as f64 * weight + (constraint.max_skew - 1) as f64
            };
            self.soft.iter().zip(&weights).map(one).sum::<f64>().round() as i64
        };
        nodes.iter().map(|node| has_all(node.row).then(|| crowd(node.row))).collect()
    }

    /// Scores of nodes, 0 to 100: the emptier their places the better. All 0 when nothing is asked for.
    pub fn scores(&self, nodes: &[&Candidate<'_>]) -> Vec<i64> {
        if self.soft.is_empty() {
            return vec![0; nodes.len()];
        }
        let crowds = self.crowds(nodes);
        let known = || crowds.iter().flatten().copied();
        let (least, most) = (known().min().unwrap_or(0), known().max().unwrap_or(0));
        let score = |crowd: i64| if most == 0 { 100 } else { 100 * (most + least - crowd) / most };
        crowds.iter().map(|crowd| crowd.map_or(0, score)).collect()
    }

    /// Why a node is refused, and whether for good.
    pub fn refusal(&self, node: &Row) -> Option<(&'static str, bool)> {
        for constraint in &self.hard {
            let Some(place) = node.label(&constraint.key) else {
                return Some(("node(s) didn't match pod topology spread constraints (missing required label)", true));
            };
            let fewest = match constraint.counts.values().min() {
                Some(fewest) if constraint.counts.len() >= constraint.min_domains => *fewest,
                _ => 0,
            };
            let here = constraint.counts.get(place).copied().unwrap_or(0);
            if here + constraint.own - fewest > constraint.max_skew {
                return Some(("node(s) didn't match pod topology spread constraints", false));
            }
        }
        None
    }
}

/// The profile's constraints, for pods that have none: they are about the pods that the same Services and the same owner select
/// (Kubernetes: `helper.DefaultSelector`). A pod that nothing selects is spread nowhere.
fn defaults(world: &World, row: &Row, default: &[Value]) -> Vec<Value> {
    if default.is_empty() {
        return Vec::new();
    }
    let mut selector = json!({});
    let services = world.list_in("services", &row.key.namespace).map(|service| service.object());
    for service in services {
        let pairs: Vec<(&str, &str)> = service.pairs(&["spec", "selector"]).collect();
        if !pairs.is_empty() && pairs.iter().all(|(key, value)| row.label(key) == Some(value)) {
            pairs.into_iter().for_each(|(key, value)| selector["matchLabels"][key] = value.into());
        }
    }
    if let Some(owner) = row.controller().and_then(|owner| world.by_uid(&owner.uid)) {
        let body = owner.object();
        let (labels, expressions) = match owner.key.resource.0 {
            "replicationcontrollers" => (&["spec", "selector"][..], &[][..]),
            "replicasets.apps" | "statefulsets.apps" => {
                (&["spec", "selector", "matchLabels"][..], body.items(&["spec", "selector", "matchExpressions"]))
            }
            _ => (&[][..], &[][..]),
        };
        if !labels.is_empty() {
            body.pairs(labels).for_each(|(key, value)| selector["matchLabels"][key] = value.into());
        }
        if !expressions.is_empty() {
            selector["matchExpressions"] = expressions.into();
        }
    }
    if selector == json!({}) {
        return Vec::new();
    }
    let with_selector = |constraint: &Value| {
        let mut constraint = constraint.clone();
        constraint["labelSelector"] = selector.clone();
        constraint
    };
    default.iter().map(with_selector).collect()
}

/// The constraints of one mode.
fn constraints(pod: &Object, all: &[Value], row: &Row, nodes: &[Candidate<'_>], mode: &str) -> Vec<Constraint> {
    let ours: Vec<&Value> = all.iter().filter(|one| one["whenUnsatisfiable"] == mode).collect();
    let keys: Vec<&str> = ours.iter().map(|one| one["topologyKey"].as_str().unwrap_or_default()).collect();
    let is_counted = |constraint: &Value, node: &Candidate<'_>| {
        let honours = |field: &str, default: &str| constraint[field].as_str().unwrap_or(default) == "Honor";
        let hard = node.fields.taints.iter().filter(|taint| taint.effect != "PreferNoSchedule");
        let borne = || tolerations::untolerated(pod.items(&["spec", "tolerations"]), hard).is_none();
        let fits = !honours("nodeAffinityPolicy", "Honor") || affinity::node_matches(pod, node.row);
        fits && (!honours("nodeTaintsPolicy", "Ignore") || borne())
            && keys.iter().all(|key| node.row.label(key).is_some())
    };
    let read = |constraint: &&Value| {
        let selector = selector(constraint, pod);
        let key = constraint["topologyKey"].as_str().unwrap_or_default().to_owned();
        let selects = |other: &Row| {
            other.key.namespace == row.key.namespace && !other.is_deleting() && selector.matches(|key| other.label(key))
        };
        let mut counts: BTreeMap<String, i64> = BTreeMap::new();
        for node in nodes.iter().filter(|node| is_counted(constraint, node)) {
            let count = node.pods().filter(|other| selects(other)).count() as i64;
            *counts.entry(node.row.label(&key).unwrap_or_default().to_owned()).or_default() += count;
        }
        Constraint {
            max_skew: constraint["maxSkew"].as_i64().unwrap_or(1),
            min_domains: constraint["minDomains"].as_u64().unwrap_or(1) as usize,
            own: i64::from(selector.matches(|key| row.label(key))),
            key,
            counts,
        }
    };
    ours.iter().map(read).collect()
}

/// The constraint's selector, with the pod's own values of `matchLabelKeys`. None selects nothing.
fn selector(constraint: &Value, pod: &Object) -> Selector {
    let mut selector = constraint["labelSelector"].clone();
    if selector.is_null() {
        return Selector::nothing();
    }
    for key in constraint["matchLabelKeys"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if let Some(value) = pod.label(key) {
            selector["matchLabels"][key] = value.into();
        }
    }
    Selector::from_label_selector(&selector).unwrap_or_else(|_| Selector::nothing())
}
