//! InterPodAffinity's score: near which pods a pod would like to be, and which pods would like it near or not.

use super::{TermMatches, holders};
use crate::scheduler::filter::PodQuery;
use crate::scheduler::score::RankedNode;
use crate::world::{AffinityKind, AffinityStrength, TopologyCounts};

/// Scores of nodes, 0 to 100; empty when no preference applies.
pub fn scores(asks: &PodQuery<'_>, nodes: &[RankedNode]) -> Vec<i64> {
    let own =
        asks.wants.liked.iter().map(|(wish, weight)| (TermMatches::from_term(asks.world, wish).domain_counts, *weight));
    let likings: Vec<(TopologyCounts, i64)> = own.chain(terms_about_pod(asks)).collect();
    if likings.is_empty() {
        return Vec::new();
    }
    let liking = |slot: usize| -> i64 {
        likings.iter().map(|(domain_counts, weight)| weight * domain_counts.count_of_slot(slot).unwrap_or(0)).sum()
    };
    let sums: Vec<i64> = nodes.iter().map(|node| liking(node.slot)).collect();
    let (least, most) = (sums.iter().min().copied().unwrap_or(0), sums.iter().max().copied().unwrap_or(0));
    // Kubernetes rounds down what floats make of it.
    let score = |sum: i64| (100.0 * ((sum - least) as f64 / (most - least) as f64)) as i64;
    sums.into_iter().map(|sum| if most > least { score(sum) } else { 0 }).collect()
}

/// Returns the terms of pods on nodes that concern this pod: each one counts in the domain of its pod.
fn terms_about_pod(asks: &PodQuery<'_>) -> Vec<(TopologyCounts, i64)> {
    let mut liking = Vec::new();
    for stance in asks.world.stances(AffinityKind::Likes) {
        for (term, strength) in &stance.terms {
            let weight = match strength {
                AffinityStrength::Required => asks.profile.required_affinity_weight,
                AffinityStrength::Preferred(weight) => *weight,
            };
            if weight != 0 && term.selects(asks.world, asks.row) {
                liking.push((holders(asks.world, stance, term), weight));
            }
        }
    }
    liking
}
