//! InterPodAffinity: required affinity and anti-affinity, of the pod and of pods that exist; [`score`] has the preferred terms.

pub mod score;

use super::nodes::CandidateNode;
use super::pod_constraints::{PodConstraints, PodTermConstraint};
use crate::world::{AffinityKind, AffinityTerms, CountedPods, PodTerm, Row, TopologyCounts, World};
use std::sync::Arc;

/// Message for a node that violates the pod's affinity.
pub const AFFINITY: &str = "node(s) didn't match pod affinity rules";

/// One term, and the number of pods that it selects per domain.
#[derive(Clone)]
struct TermMatches {
    term: Arc<PodTerm>,
    domain_counts: TopologyCounts,
}

/// Required anti-affinity of existing pods against this pod, and the number of these pods per domain.
#[derive(Clone)]
struct AntiAffinityMatches {
    terms: Arc<AffinityTerms>,
    domain_counts: TopologyCounts,
}

/// Required (anti-)affinity of the pod, and anti-affinity of other pods towards it, computed once for all nodes.
#[derive(Clone, Default)]
pub struct InterPodAffinity {
    affinity: Vec<TermMatches>,
    /// Whether all of the pod's own terms select it, so that it may be the first such pod.
    own: bool,
    anti_affinity: Vec<TermMatches>,
    existing_anti_affinity: Vec<AntiAffinityMatches>,
}

impl InterPodAffinity {
    /// Counts the pods that the terms select.
    pub fn from_pod(world: &World, row: &Row, constraints: &PodConstraints) -> InterPodAffinity {
        let find = |pod_spec: &[PodTermConstraint]| -> Vec<TermMatches> {
            pod_spec.iter().map(|wish| TermMatches::from_term(world, wish)).collect()
        };
        let affinity = find(&constraints.affinity);
        InterPodAffinity {
            own: !affinity.is_empty() && affinity.iter().all(|affinity| affinity.term.selects(world, row)),
            affinity,
            anti_affinity: find(&constraints.anti_affinity),
            existing_anti_affinity: existing_anti_affinity(world, row),
        }
    }

    /// Whether no term concerns the pod.
    pub fn is_empty(&self) -> bool {
        self.affinity.is_empty() && self.anti_affinity.is_empty() && self.existing_anti_affinity.is_empty()
    }

    /// The same, with the hypothetical pods of one node taken into account.
    pub fn with_assumptions(&self, world: &World, row: &Row, node: &CandidateNode<'_>) -> InterPodAffinity {
        let mut other = self.clone();
        for affinity in other.affinity.iter_mut().chain(&mut other.anti_affinity) {
            let counted = node.assumed_changes().filter(|(pod, _)| affinity.term.selects(world, pod));
            affinity.domain_counts.shift(node.slot, counted.map(|(_, by)| by).sum());
        }
        for (pod, by) in node.assumed_changes() {
            let Some(text) = pod.pod().and_then(|fields| fields.anti_affinity.as_ref()) else { continue };
            if !other
                .existing_anti_affinity
                .iter()
                .any(|existing_anti_affinity| existing_anti_affinity.terms.is_of(pod))
            {
                // A pod that is only assumed to be there.
                let terms = Arc::new(AffinityTerms::parse(AffinityKind::AntiAffinity, &pod.key.namespace, text));
                other.existing_anti_affinity.extend(anti_affinity_against(world, row, &terms));
            }
            other
                .existing_anti_affinity
                .iter_mut()
                .filter(|existing_anti_affinity| existing_anti_affinity.terms.is_of(pod))
                .for_each(|one| one.domain_counts.shift(node.slot, by));
        }
        other
    }

    /// Returns why a node is refused, and whether removing pods cannot change that.
    pub fn refusal(&self, slot: usize) -> Option<(&'static str, bool)> {
        let there = |domain_counts: &TopologyCounts| domain_counts.count_of_slot(slot).is_some_and(|count| count > 0);
        if !self.affinity.iter().all(|affinity| there(&affinity.domain_counts)) {
            let has_keys = || self.affinity.iter().all(|affinity| affinity.domain_counts.count_of_slot(slot).is_some());
            let is_first = || {
                self.own
                    && self
                        .affinity
                        .iter()
                        .all(|affinity| affinity.domain_counts.counts.iter().all(|count| *count <= 0))
            };
            if !(has_keys() && is_first()) {
                return Some((AFFINITY, true));
            }
        }
        if self.anti_affinity.iter().any(|affinity| there(&affinity.domain_counts)) {
            return Some(("node(s) didn't match pod anti-affinity rules", false));
        }
        let existing_anti_affinity = self
            .existing_anti_affinity
            .iter()
            .any(|existing_anti_affinity| there(&existing_anti_affinity.domain_counts));
        existing_anti_affinity.then_some(("node(s) didn't satisfy existing pods anti-affinity rules", false))
    }
}

impl TermMatches {
    fn from_term(world: &World, PodTermConstraint { name, term }: &PodTermConstraint) -> TermMatches {
        let domain_counts = world.domain_counts(name, &term.key, &[], || CountedPods::Selected(term.clone(), true));
        TermMatches { term: term.clone(), domain_counts }
    }
}

/// Returns the pods whose anti-affinity excludes this pod.
fn existing_anti_affinity(world: &World, row: &Row) -> Vec<AntiAffinityMatches> {
    world
        .affinity_terms(AffinityKind::AntiAffinity)
        .flat_map(|terms| anti_affinity_against(world, row, terms))
        .collect()
}

fn anti_affinity_against(world: &World, row: &Row, terms: &Arc<AffinityTerms>) -> Vec<AntiAffinityMatches> {
    let about = terms.terms.iter().map(|(term, _)| term).filter(|term| term.selects(world, row));
    about
        .map(|term| AntiAffinityMatches {
            terms: terms.clone(),
            domain_counts: count_pods_with_terms(world, terms, term),
        })
        .collect()
}

/// Counts the pods that have these terms, per domain.
fn count_pods_with_terms(world: &World, terms: &Arc<AffinityTerms>, term: &PodTerm) -> TopologyCounts {
    let name = format!("{:?} {} {}", terms.sort, terms.namespace, terms.text);
    world.domain_counts(&name, &term.key, &[], || CountedPods::WithTerms(terms.clone()))
}
