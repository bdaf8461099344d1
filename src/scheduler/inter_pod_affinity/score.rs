//! InterPodAffinity's score: the preferred terms of the pod, and the terms of existing pods that select it.

use super::{TermMatches, count_pods_with_terms};
use crate::scheduler::pod_constraints::PodConstraints;
use crate::scheduler::ranked_node::RankedNode;
use crate::world::scheduler_profile::SchedulerProfile;
use crate::world::{AffinityKind, AffinityStrength, Row, TopologyCounts, World};

/// Scores of nodes, 0 to 100; empty when no preference applies.
pub fn scores(
    world: &World,
    constraints: &PodConstraints,
    row: &Row,
    profile: &SchedulerProfile,
    nodes: &[RankedNode],
) -> Vec<i64> {
    let own = constraints
        .preferred_affinity
        .iter()
        .map(|(wish, weight)| (TermMatches::from_term(world, wish).domain_counts, *weight));
    let likings: Vec<(TopologyCounts, i64)> = own.chain(terms_about_pod(world, row, profile)).collect();
    if likings.is_empty() {
        return Vec::new();
    }
    let liking = |slot: usize| -> i64 {
        likings.iter().map(|(domain_counts, weight)| weight * domain_counts.count_of_slot(slot).unwrap_or(0)).sum()
    };
    let sums: Vec<i64> = nodes.iter().map(|node| liking(node.slot)).collect();
    let (least, most) = (sums.iter().min().copied().unwrap_or(0), sums.iter().max().copied().unwrap_or(0));
    // Kubernetes computes with floats and rounds down.
    let score = |sum: i64| (100.0 * ((sum - least) as f64 / (most - least) as f64)) as i64;
    sums.into_iter().map(|sum| if most > least { score(sum) } else { 0 }).collect()
}

/// Returns the terms of pods on nodes that concern this pod: each one counts in the domain of its pod.
fn terms_about_pod(world: &World, row: &Row, profile: &SchedulerProfile) -> Vec<(TopologyCounts, i64)> {
    let mut liking = Vec::new();
    for terms in world.affinity_terms(AffinityKind::Scored) {
        for (term, strength) in &terms.terms {
            let weight = match strength {
                AffinityStrength::Required => profile.required_affinity_weight,
                AffinityStrength::Preferred(weight) => *weight,
            };
            if weight != 0 && term.selects(world, row) {
                liking.push((count_pods_with_terms(world, terms, term), weight));
            }
        }
    }
    liking
}
