//! InterPodAffinity: near which pods a pod must be, and near which ones it or they do not want it; in [`score`] what it and they prefer.

pub mod score;

use super::nodes::Candidate;
use super::wants::{Wants, Wish};
use crate::world::{Counted, Crowd, Row, Sort, Stance, Term, World};
use std::sync::Arc;

/// Message for a node that violates the pod's affinity.
pub const AFFINITY: &str = "node(s) didn't match pod affinity rules";

/// One term, and how many pods that it is about are where.
#[derive(Clone)]
struct Near {
    term: Arc<Term>,
    crowd: Crowd,
}

/// Pods that do not want this one near, and how many of them are where.
#[derive(Clone)]
struct Shunned {
    shun: Arc<Stance>,
    crowd: Crowd,
}

/// Required (anti-)affinity of the pod, and anti-affinity of other pods towards it, computed once for all nodes.
#[derive(Clone, Default)]
pub struct Neighbours {
    near: Vec<Near>,
    /// The pod's own terms all select it: it may be the first of its kind.
    own: bool,
    far: Vec<Near>,
    shunned: Vec<Shunned>,
}

impl Neighbours {
    /// Finds the pods that the terms are about.
    pub fn of(world: &World, row: &Row, wants: &Wants) -> Neighbours {
        let find = |wishes: &[Wish]| -> Vec<Near> { wishes.iter().map(|wish| Near::of(world, wish)).collect() };
        let near = find(&wants.near);
        Neighbours {
            own: !near.is_empty() && near.iter().all(|near| near.term.selects(world, row)),
            near,
            far: find(&wants.far),
            shunned: shunned(world, row),
        }
    }

    /// Whether no term concerns the pod.
    pub fn is_empty(&self) -> bool {
        self.near.is_empty() && self.far.is_empty() && self.shunned.is_empty()
    }

    /// The same with what is thought of one node.
    pub fn thinking(&self, world: &World, row: &Row, node: &Candidate<'_>) -> Neighbours {
        let mut other = self.clone();
        for near in other.near.iter_mut().chain(&mut other.far) {
            let counted = node.thoughts().filter(|(pod, _)| near.term.selects(world, pod));
            near.crowd.shift(node.slot, counted.map(|(_, by)| by).sum());
        }
        for (pod, by) in node.thoughts() {
            let Some(text) = pod.pod().and_then(|fields| fields.shuns.as_ref()) else { continue };
            if !other.shunned.iter().any(|shunned| shunned.shun.is_of(pod)) {
                // A pod that is only thought to be there.
                let shun = Arc::new(Stance::of(Sort::Shuns, &pod.key.namespace, text));
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

    /// Why a node is refused, and whether for good.
    pub fn refusal(&self, slot: usize) -> Option<(&'static str, bool)> {
        let there = |crowd: &Crowd| crowd.at(slot).is_some_and(|count| count > 0);
        if !self.near.iter().all(|near| there(&near.crowd)) {
            let has_keys = || self.near.iter().all(|near| near.crowd.at(slot).is_some());
            let is_first =
                || self.own && self.near.iter().all(|near| near.crowd.counts.iter().all(|count| *count <= 0));
            if !(has_keys() && is_first()) {
                return Some((AFFINITY, true));
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
    fn of(world: &World, Wish { name, term }: &Wish) -> Near {
        let crowd = world.crowd(name, &term.key, &[], || Counted::Selected(term.clone(), true));
        Near { term: term.clone(), crowd }
    }
}

/// Returns the pods whose anti-affinity excludes this pod.
fn shunned(world: &World, row: &Row) -> Vec<Shunned> {
    world.stances(Sort::Shuns).flat_map(|shun| shunned_by(world, row, shun)).collect()
}

fn shunned_by(world: &World, row: &Row, shun: &Arc<Stance>) -> Vec<Shunned> {
    let about = shun.terms.iter().map(|(term, _)| term).filter(|term| term.selects(world, row));
    about.map(|term| Shunned { shun: shun.clone(), crowd: holders(world, shun, term) }).collect()
}

/// Counts the pods that have these terms, per domain.
fn holders(world: &World, stance: &Arc<Stance>, term: &Term) -> Crowd {
    let name = format!("{:?} {} {}", stance.sort, stance.namespace, stance.text);
    world.crowd(&name, &term.key, &[], || Counted::Holding(stance.clone()))
}
