//! PodTopologySpread: a pod's constraints that must hold (`DoNotSchedule`), and those by which nodes are ranked (`ScheduleAnyway`).

use super::nodes::{self, Candidate};
use super::{affinity, tolerations};
use crate::object::Object;
use crate::object::selector::Selector;
use crate::world::{Counted, Crowd, Row, Term, World};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;

/// One constraint, and how many pods it counts in each place.
#[derive(Clone)]
struct Constraint {
    key: String,
    max_skew: i64,
    min_domains: usize,
    /// One, when the pod itself is counted too.
    own: i64,
    term: Arc<Term>,
    crowd: Crowd,
    /// The places whose nodes count; all when nothing is said.
    counted: Option<Vec<bool>>,
    /// The smallest count of those.
    fewest: i64,
}

/// A pod's constraints, read once for all nodes.
#[derive(Clone, Default)]
pub struct Spread {
    hard: Vec<Constraint>,
    soft: Vec<Constraint>,
}

impl Spread {
    /// Reads them, and counts.
    pub fn of(world: &World, pod: &Object, row: &Row, default: &[Value]) -> Spread {
        let own = pod.items(&["spec", "topologySpreadConstraints"]);
        let given = if own.is_empty() { defaults(world, row, default) } else { Vec::new() };
        let all = if own.is_empty() { &given[..] } else { own };
        let read = |mode: &str| constraints(world, pod, all, row, mode);
        Spread { hard: read("DoNotSchedule"), soft: read("ScheduleAnyway") }
    }

    /// Whether none has to hold.
    pub fn is_empty(&self) -> bool {
        self.hard.is_empty()
    }

    /// The same with what is thought of one node.
    pub fn thinking(&self, world: &World, node: &Candidate<'_>) -> Spread {
        let mut other = self.clone();
        for constraint in other.hard.iter_mut().chain(&mut other.soft) {
            let term = constraint.term.clone();
            let counted = node.thoughts().filter(|(pod, _)| !pod.is_deleting() && term.selects(world, pod));
            constraint.crowd.shift(node.slot, counted.map(|(_, by)| by).sum());
            constraint.find_fewest();
        }
        other
    }

    /// How crowded each node's places are; none for nodes that lack one.
    fn crowds(&self, nodes: &[&Candidate<'_>]) -> Vec<Option<i64>> {
        let has_all = |node: &Candidate<'_>| self.soft.iter().all(|one| one.crowd.domains.at(node.slot).is_some());
        let weight = |constraint: &Constraint| {
            let there = nodes.iter().filter(|node| has_all(node));
            let places: HashSet<usize> = there.filter_map(|node| constraint.crowd.domains.at(node.slot)).collect();
            (places.len() as f64 + 2.0).ln()
        };
        let weights: Vec<f64> = self.soft.iter().map(weight).collect();
        let crowd = |node: &Candidate<'_>| {
            let one = |(constraint, weight): (&Constraint, &f64)| {
                constraint.crowd.at(node.slot).unwrap_or(0) as f64 * weight + (constraint.max_skew - 1) as f64
            };
            self.soft.iter().zip(&weights).map(one).sum::<f64>().round() as i64
        };
        nodes.iter().map(|node| has_all(node).then(|| crowd(node))).collect()
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
    pub fn refusal(&self, node: &Candidate<'_>) -> Option<(&'static str, bool)> {
        for constraint in &self.hard {
            let here = constraint.crowd.at(node.slot);
            if here.is_none() && node.row.label(&constraint.key).is_none() {
                return Some(("node(s) didn't match pod topology spread constraints (missing required label)", true));
            }
            if here.unwrap_or(0) + constraint.own - constraint.fewest > constraint.max_skew {
                return Some(("node(s) didn't match pod topology spread constraints", false));
            }
        }
        None
    }
}

impl Constraint {
    fn find_fewest(&mut self) {
        let is_counted = |place: &usize| self.counted.as_ref().is_none_or(|counted| counted[*place]);
        let counts = || (0..self.crowd.counts.len()).filter(is_counted).map(|place| self.crowd.counts[place]);
        self.fewest = match counts().min() {
            Some(fewest) if counts().count() >= self.min_domains => fewest,
            _ => 0,
        };
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
fn constraints(world: &World, pod: &Object, all: &[Value], row: &Row, mode: &str) -> Vec<Constraint> {
    let ours: Vec<&Value> = all.iter().filter(|one| one["whenUnsatisfiable"] == mode).collect();
    let keys: Vec<&str> = ours.iter().map(|one| one["topologyKey"].as_str().unwrap_or_default()).collect();
    let read = |constraint: &&Value| {
        let selector = selector(constraint, pod);
        let key = constraint["topologyKey"].as_str().unwrap_or_default();
        let own = i64::from(selector.matches(|key| row.label(key)));
        let term = Arc::new(Term::here(key, &row.key.namespace, selector));
        let (crowd, counted) = count(world, pod, constraint, &term, &keys);
        let mut read = Constraint {
            max_skew: constraint["maxSkew"].as_i64().unwrap_or(1),
            min_domains: constraint["minDomains"].as_u64().unwrap_or(1) as usize,
            key: key.to_owned(),
            fewest: 0,
            own,
            term,
            crowd,
            counted,
        };
        read.find_fewest();
        read
    };
    ours.iter().map(read).collect()
}

/// How many pods are where, and which places count when only some nodes do: those that the pod's own node affinity, or the taints that
/// it bears, leave.
fn count(
    world: &World,
    pod: &Object,
    constraint: &Value,
    term: &Arc<Term>,
    keys: &[&str],
) -> (Crowd, Option<Vec<bool>>) {
    let named = format!("spread {} {} {}", pod.namespace(), term.selector().is_nothing(), term.selector());
    let crowd = |key: &str, keys: &[&str]| world.crowd(&named, key, keys, || Counted::Selected(term.clone(), false));
    let honours = |field: &str, default: &str| constraint[field].as_str().unwrap_or(default) == "Honor";
    let by_affinity = honours("nodeAffinityPolicy", "Honor") && affinity::is_picky(pod);
    let by_taints = honours("nodeTaintsPolicy", "Ignore");
    let places = crowd(&term.key, keys);
    if !by_affinity && !by_taints {
        return (places, None);
    }
    let is_counted = |node: &Candidate<'_>| {
        let hard = node.fields.taints.iter().filter(|taint| taint.effect != "PreferNoSchedule");
        let borne = || tolerations::untolerated(pod.items(&["spec", "tolerations"]), hard).is_none();
        (!by_affinity || affinity::node_matches(pod, node.row)) && (!by_taints || borne())
    };
    let on_nodes = crowd("", &[]);
    let mut counts = vec![0; places.domains.count];
    let mut counted = vec![false; places.domains.count];
    for node in nodes::candidates(world).filter(is_counted) {
        if let Some(place) = places.domains.at(node.slot) {
            counts[place] += on_nodes.at(node.slot).unwrap_or(0);
            counted[place] = true;
        }
    }
    (Crowd { counts: Arc::new(counts), ..places }, Some(counted))
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
