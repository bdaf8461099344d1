//! InterPodAffinity: near which pods a pod wants to be, and near which ones it or they do not want it.

use super::nodes::Candidate;
use crate::object::Object;
use crate::world::{Counted, Crowd, Row, Shun, Term, World};
use serde_json::Value;
use std::sync::Arc;

/// One term, and how many pods that it is about are where.
#[derive(Clone)]
struct Near {
    term: Arc<Term>,
    crowd: Crowd,
}

/// Pods that do not want this one near, and how many of them are where.
#[derive(Clone)]
struct Shunned {
    shun: Arc<Shun>,
    crowd: Crowd,
}

/// What a pod's and the other pods' terms come to, read once for all nodes.
#[derive(Clone, Default)]
pub struct Neighbours {
    near: Vec<Near>,
    /// The pod's own terms all select it: it may be the first of its kind.
    own: bool,
    far: Vec<Near>,
    shunned: Vec<Shunned>,
    /// Where the pod would like to be, or not to be, and how much.
    liked: Vec<(Near, i64)>,
}

impl Neighbours {
    /// Reads the terms, and finds the pods.
    pub fn of(world: &World, pod: &Object, row: &Row) -> Neighbours {
        let read = |field: &str| -> Vec<Near> {
            required(pod, field).iter().map(|term| Near::of(world, term, pod.namespace())).collect()
        };
        let near = read("podAffinity");
        Neighbours {
            own: !near.is_empty() && near.iter().all(|near| near.term.selects(world, row)),
            near,
            far: read("podAntiAffinity"),
            shunned: shunned(world, row),
            liked: liked(world, pod),
        }
    }

    /// Whether no term is about the pod.
    pub fn is_empty(&self) -> bool {
        self.near.is_empty() && self.far.is_empty() && self.shunned.is_empty()
    }

    /// The same with what is thought of one node.
    pub fn thinking(&self, world: &World, row: &Row, node: &Candidate<'_>) -> Neighbours {
        let mut other = self.clone();
        let terms = other.near.iter_mut().chain(&mut other.far).chain(other.liked.iter_mut().map(|(near, _)| near));
        for near in terms {
            let counted = node.thoughts().filter(|(pod, _)| near.term.selects(world, pod));
            near.crowd.shift(node.slot, counted.map(|(_, by)| by).sum());
        }
        for (pod, by) in node.thoughts() {
            let Some(text) = pod.pod().and_then(|fields| fields.shuns.as_ref()) else { continue };
            if !other.shunned.iter().any(|shunned| shunned.shun.is_of(pod)) {
                // A pod that is only thought to be there.
                let shun = Arc::new(Shun::of(&pod.key.namespace, text));
                other.shunned.extend(shunned_by(world, row, &shun));
            }
            other
                .shunned
                .iter_mut()
                .filter(|shunned| shunned.shun.is_of(pod))
                .for_each(|one| one.crowd.shift(node.slot, by));
        }
        other
    }

    /// Scores of nodes, 0 to 100, by the pod's own preferences.
    pub fn scores(&self, nodes: &[&Candidate<'_>]) -> Vec<i64> {
        if self.liked.is_empty() {
            return vec![0; nodes.len()];
        }
        let liking = |slot: usize| -> i64 {
            self.liked.iter().map(|(near, weight)| weight * near.crowd.at(slot).unwrap_or(0)).sum()
        };
        let sums: Vec<i64> = nodes.iter().map(|node| liking(node.slot)).collect();
        let (least, most) = (sums.iter().min().copied().unwrap_or(0), sums.iter().max().copied().unwrap_or(0));
        sums.into_iter().map(|sum| if most > least { 100 * (sum - least) / (most - least) } else { 0 }).collect()
    }

    /// Why a node is refused, and whether for good.
    pub fn refusal(&self, slot: usize) -> Option<(&'static str, bool)> {
        let there = |crowd: &Crowd| crowd.at(slot).is_some_and(|count| count > 0);
        if !self.near.iter().all(|near| there(&near.crowd)) {
            let has_keys = || self.near.iter().all(|near| near.crowd.at(slot).is_some());
            let is_first =
                || self.own && self.near.iter().all(|near| near.crowd.counts.iter().all(|count| *count <= 0));
            if !(has_keys() && is_first()) {
                return Some(("node(s) didn't match pod affinity rules", true));
            }
        }
        if self.far.iter().any(|near| there(&near.crowd)) {
            return Some(("node(s) didn't match pod anti-affinity rules", false));
        }
        let shunned = self.shunned.iter().any(|shunned| there(&shunned.crowd));
        shunned.then_some(("node(s) didn't satisfy existing pods anti-affinity rules", false))
    }
}

impl Near {
    fn of(world: &World, term: &Value, own: &str) -> Near {
        let term_of = Arc::new(Term::of(term, own));
        let counted = || Counted::Selected(term_of.clone(), true);
        let crowd = world.crowd(&format!("near {own} {term}"), &term_of.key, &[], counted);
        Near { term: term_of, crowd }
    }
}

fn required<'a>(pod: &'a Object, field: &str) -> &'a [Value] {
    pod.items(&["spec", "affinity", field, "requiredDuringSchedulingIgnoredDuringExecution"])
}

/// The preferred terms of a pod: each pod that a term is about counts.
fn liked(world: &World, pod: &Object) -> Vec<(Near, i64)> {
    let mut liked = Vec::new();
    for (field, sign) in [("podAffinity", 1), ("podAntiAffinity", -1)] {
        for preferred in pod.items(&["spec", "affinity", field, "preferredDuringSchedulingIgnoredDuringExecution"]) {
            let weight = preferred["weight"].as_i64().unwrap_or(0) * sign;
            liked.push((Near::of(world, &preferred["podAffinityTerm"], pod.namespace()), weight));
        }
    }
    liked
}

/// The pods whose own anti-affinity is about this pod.
fn shunned(world: &World, row: &Row) -> Vec<Shunned> {
    world.shuns().flat_map(|shun| shunned_by(world, row, shun)).collect()
}

fn shunned_by(world: &World, row: &Row, shun: &Arc<Shun>) -> Vec<Shunned> {
    let about = shun.terms.iter().filter(|term| term.selects(world, row));
    let crowd = |term: &Term| {
        let name = format!("shunning {} {}", shun.namespace, shun.text);
        world.crowd(&name, &term.key, &[], || Counted::Shunning(shun.clone()))
    };
    about.map(|term| Shunned { shun: shun.clone(), crowd: crowd(term) }).collect()
}
