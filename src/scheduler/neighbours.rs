//! InterPodAffinity: near which pods a pod wants to be, and near which ones it or they do not want it.

use super::nodes::Candidate;
use crate::object::Object;
use crate::object::selector::Selector;
use crate::world::{Row, World};
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// A place: the label of nodes that names it, and its value.
type Place = (String, String);

/// One required term and the places where pods are that it selects.
struct Term {
    key: String,
    places: HashSet<String>,
}

/// What a pod's and the other pods' terms come to, read once for all nodes.
#[derive(Default)]
pub struct Neighbours {
    near: Vec<Term>,
    /// The pod is the first of its kind: its own terms select it, and no other pod.
    first: bool,
    far: Vec<Term>,
    /// Where pods are that do not want this one near.
    shunned: HashSet<Place>,
    /// How much the pod would like to be, or not to be, where others are.
    liked: HashMap<Place, i64>,
}

impl Neighbours {
    /// Reads the terms, and finds the pods.
    pub fn of(world: &World, pod: &Object, row: &Row, nodes: &[Candidate<'_>]) -> Neighbours {
        let read = |field: &str| -> Vec<(Term, bool)> {
            let terms = required(pod, field).iter();
            terms
                .map(|term| (find(world, term, pod.namespace(), nodes), selects(world, term, pod.namespace(), row)))
                .collect()
        };
        let near = read("podAffinity");
        let alone = near.iter().all(|(term, own)| *own && term.places.is_empty());
        let far = read("podAntiAffinity");
        Neighbours {
            first: alone && !near.is_empty(),
            near: near.into_iter().map(|(term, _)| term).collect(),
            far: far.into_iter().map(|(term, _)| term).collect(),
            shunned: shunned(world, row, nodes),
            liked: liked(world, pod, nodes),
        }
    }

    /// Whether no term is about the pod.
    pub fn is_empty(&self) -> bool {
        self.near.is_empty() && self.far.is_empty() && self.shunned.is_empty()
    }

    /// Scores of nodes, 0 to 100, by the pod's own preferences.
    pub fn scores(&self, nodes: &[&Candidate<'_>]) -> Vec<i64> {
        let liking = |node: &Row| -> i64 {
            self.liked.iter().filter(|((key, value), _)| node.label(key) == Some(value)).map(|(_, weight)| weight).sum()
        };
        let sums: Vec<i64> = nodes.iter().map(|node| liking(node.row)).collect();
        let (least, most) = (sums.iter().min().copied().unwrap_or(0), sums.iter().max().copied().unwrap_or(0));
        sums.into_iter().map(|sum| if most > least { 100 * (sum - least) / (most - least) } else { 0 }).collect()
    }

    /// Why a node is refused, and whether for good.
    pub fn refusal(&self, node: &Row) -> Option<(&'static str, bool)> {
        let there = |term: &Term| node.label(&term.key).is_some_and(|value| term.places.contains(value));
        let wanted = |term: &Term| there(term) || (self.first && node.label(&term.key).is_some());
        if !self.near.iter().all(wanted) {
            return Some(("node(s) didn't match pod affinity rules", true));
        }
        if self.far.iter().any(there) {
            return Some(("node(s) didn't match pod anti-affinity rules", false));
        }
        let shunned = self.shunned.iter().any(|(key, value)| node.label(key) == Some(value));
        shunned.then_some(("node(s) didn't satisfy existing pods anti-affinity rules", false))
    }
}

fn required<'a>(pod: &'a Object, field: &str) -> &'a [Value] {
    pod.items(&["spec", "affinity", field, "requiredDuringSchedulingIgnoredDuringExecution"])
}

/// The weights of places by the preferred terms of a pod: each pod there that a term selects counts.
fn liked(world: &World, pod: &Object, nodes: &[Candidate<'_>]) -> HashMap<Place, i64> {
    let mut liked = HashMap::new();
    for (field, sign) in [("podAffinity", 1), ("podAntiAffinity", -1)] {
        for preferred in pod.items(&["spec", "affinity", field, "preferredDuringSchedulingIgnoredDuringExecution"]) {
            let (term, weight) = (&preferred["podAffinityTerm"], preferred["weight"].as_i64().unwrap_or(0) * sign);
            let key = term["topologyKey"].as_str().unwrap_or_default();
            for node in nodes {
                let Some(value) = node.row.label(key) else { continue };
                let count = node.pods().filter(|other| selects(world, term, pod.namespace(), other)).count() as i64;
                *liked.entry((key.to_owned(), value.to_owned())).or_default() += weight * count;
            }
        }
    }
    liked
}

/// The places of all pods that a term selects.
fn find(world: &World, term: &Value, own: &str, nodes: &[Candidate<'_>]) -> Term {
    let key = term["topologyKey"].as_str().unwrap_or_default().to_owned();
    let mut places = HashSet::new();
    for node in nodes {
        let Some(value) = node.row.label(&key) else { continue };
        if !places.contains(value) && node.pods().any(|pod| selects(world, term, own, pod)) {
            places.insert(value.to_owned());
        }
    }
    Term { key, places }
}

/// Whether a term of a pod in namespace `own` selects a pod.
fn selects(world: &World, term: &Value, own: &str, pod: &Row) -> bool {
    let by_labels =
        || Selector::from_label_selector(&term["labelSelector"]).is_ok_and(|it| it.matches(|key| pod.label(key)));
    in_namespaces(world, term, own, &pod.key.namespace) && !term["labelSelector"].is_null() && by_labels()
}

/// The namespaces that a term is about: those it names and selects, or else the pod's own.
fn in_namespaces(world: &World, term: &Value, own: &str, namespace: &str) -> bool {
    let named = term["namespaces"].as_array().map_or(&[][..], Vec::as_slice);
    let selector = &term["namespaceSelector"];
    if named.is_empty() && selector.is_null() {
        return namespace == own;
    }
    let row = || world.list("namespaces").find(|row| &*row.key.name == namespace);
    let selected = || {
        let selector = Selector::from_label_selector(selector).ok();
        selector.is_some_and(|it| row().is_some_and(|row| it.matches(|key| row.label(key))))
    };
    named.iter().any(|name| name == namespace) || (!selector.is_null() && selected())
}

/// The places of pods whose own anti-affinity selects this pod.
fn shunned(world: &World, row: &Row, nodes: &[Candidate<'_>]) -> HashSet<Place> {
    let mut places = HashSet::new();
    let is_there = |other: &Row| !nodes.iter().any(|node| node.is_away(&other.key));
    for other in world.shunning().filter(|other| is_there(other)) {
        let node = other.pod().and_then(|fields| world.find("nodes", "", fields.node.as_ref()?));
        for term in required(&other.body(), "podAntiAffinity") {
            let key = term["topologyKey"].as_str().unwrap_or_default();
            if let Some(value) = node.and_then(|node| node.label(key))
                && selects(world, term, &other.key.namespace, row)
            {
                places.insert((key.to_owned(), value.to_owned()));
            }
        }
    }
    places
}
