//! InterPodAffinity: required affinity and anti-affinity, of the pod and of pods that exist; [`score`] has the preferred terms.

pub mod score;

use super::nodes::CandidateNode;
use super::pod_constraints::{PodConstraints, PodTermConstraint};
use crate::world::{AffinityKind, AffinityTerms, CountedPods, PodTerm, Row, TopologyCounts, World};
use std::sync::Arc;

/// Message for a node that violates the pod's affinity.
pub const AFFINITY: &str = "node(s) didn't match pod affinity rules";

/// One term, and how many pods that it is about are where.
#[derive(Clone)]
struct TermMatches {
    term: Arc<PodTerm>,
    domain_counts: TopologyCounts,
}

/// Pods that do not want this one near, and how many of them are where.
#[derive(Clone)]
struct AntiAffinityMatches {
    shun: Arc<AffinityTerms>,
    domain_counts: TopologyCounts,
}

/// Required (anti-)affinity of the pod, and anti-affinity of other pods towards it, computed once for all nodes.
#[derive(Clone, Default)]
pub struct InterPodAffinity {
    near: Vec<TermMatches>,
    /// The pod's own terms all select it: it may be the first of its kind.
    own: bool,
    far: Vec<TermMatches>,
    shunned: Vec<AntiAffinityMatches>,
}

impl InterPodAffinity {
    /// Finds the pods that the terms are about.
    pub fn from_pod(world: &World, row: &Row, wants: &PodConstraints) -> InterPodAffinity {
        let find = |pod_spec: &[PodTermConstraint]| -> Vec<TermMatches> {
            pod_spec.iter().map(|wish| TermMatches::from_term(world, wish)).collect()
        };
        let near = find(&wants.near);
        InterPodAffinity {
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

    /// The same, with the hypothetical pods of one node taken into account.
    pub fn thinking(&self, world: &World, row: &Row, node: &CandidateNode<'_>) -> InterPodAffinity {
        let mut other = self.clone();
        for near in other.near.iter_mut().chain(&mut other.far) {
            let counted = node.thoughts().filter(|(pod, _)| near.term.selects(world, pod));
            near.domain_counts.shift(node.slot, counted.map(|(_, by)| by).sum());
        }
        for (pod, by) in node.thoughts() {
            let Some(text) = pod.pod().and_then(|fields| fields.shuns.as_ref()) else { continue };
            if !other.shunned.iter().any(|shunned| shunned.shun.is_of(pod)) {
                // A pod that is only thought to be there.
                let shun = Arc::new(AffinityTerms::parse(AffinityKind::Shuns, &pod.key.namespace, text));
                other.shunned.extend(shunned_by(world, row, &shun));
            }
            other
                .shunned
                .iter_mut()
                .filter(|shunned| shunned.shun.is_of(pod))
                .for_each(|one| one.domain_counts.shift(node.slot, by));
        }
        other
    }

    /// Why a node is refused, and whether for good.
    pub fn refusal(&self, slot: usize) -> Option<(&'static str, bool)> {
        let there = |domain_counts: &TopologyCounts| domain_counts.count_of_slot(slot).is_some_and(|count| count > 0);
        if !self.near.iter().all(|near| there(&near.domain_counts)) {
            let has_keys = || self.near.iter().all(|near| near.domain_counts.count_of_slot(slot).is_some());
            let is_first =
                || self.own && self.near.iter().all(|near| near.domain_counts.counts.iter().all(|count| *count <= 0));
            if !(has_keys() && is_first()) {
                return Some((AFFINITY, true));
            }
        }
        if self.far.iter().any(|near| there(&near.domain_counts)) {
            return Some(("node(s) didn't match pod anti-affinity rules", false));
        }
        let shunned = self.shunned.iter().any(|shunned| there(&shunned.domain_counts));
        shunned.then_some(("node(s) didn't satisfy existing pods anti-affinity rules", false))
    }
}

impl TermMatches {
    fn from_term(world: &World, PodTermConstraint { name, term }: &PodTermConstraint) -> TermMatches {
        let domain_counts = world.domain_counts(name, &term.key, &[], || CountedPods::Selected(term.clone(), true));
        TermMatches { term: term.clone(), domain_counts }
    }
}

/// Returns the pods whose anti-affinity excludes this pod.
fn shunned(world: &World, row: &Row) -> Vec<AntiAffinityMatches> {
    world.stances(AffinityKind::Shuns).flat_map(|shun| shunned_by(world, row, shun)).collect()
}

fn shunned_by(world: &World, row: &Row, shun: &Arc<AffinityTerms>) -> Vec<AntiAffinityMatches> {
    let about = shun.terms.iter().map(|(term, _)| term).filter(|term| term.selects(world, row));
    about.map(|term| AntiAffinityMatches { shun: shun.clone(), domain_counts: holders(world, shun, term) }).collect()
}

/// Counts the pods that have these terms, per domain.
fn holders(world: &World, stance: &Arc<AffinityTerms>, term: &PodTerm) -> TopologyCounts {
    let name = format!("{:?} {} {}", stance.sort, stance.namespace, stance.text);
    world.domain_counts(&name, &term.key, &[], || CountedPods::Holding(stance.clone()))
}
