//! PodTopologySpread's score: the emptier the places of a node, the better.

use super::SpreadConstraint;
use crate::object::Object;
use crate::scheduler::ranked_node::RankedNode;
use crate::world::scheduler_profile::SchedulerProfile;
use crate::world::{Row, World};

/// The label whose domains are single nodes: as many as there are candidates.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// Scores of nodes, 0 to 100. Empty when there are no constraints.
pub fn scores(world: &World, pod: &Object, row: &Row, profile: &SchedulerProfile, nodes: &[RankedNode]) -> Vec<i64> {
    let (soft, strict) = super::constraints(world, pod, row, profile, "ScheduleAnyway");
    if soft.is_empty() {
        return Vec::new();
    }
    let raw_scores = raw_scores(&soft, strict, nodes);
    let known = || raw_scores.iter().flatten().copied();
    let (least, most) = (known().min().unwrap_or(0), known().max().unwrap_or(0));
    let score = |raw: i64| if most == 0 { 100 } else { 100 * (most + least - raw) / most };
    // Most neighbours in the list have the same count, and a division takes longer than all else here.
    let mut last = (least, score(least));
    let mut score = |raw: i64| {
        if raw != last.0 {
            last = (raw, score(raw));
        }
        last.1
    };
    raw_scores.iter().map(|raw| raw.map_or(0, &mut score)).collect()
}

/// Computes a raw score from the counts of each node's domains; `None` for nodes without a required label. Other
/// missing labels do not count.
fn raw_scores(soft: &[SpreadConstraint], strict: bool, nodes: &[RankedNode]) -> Vec<Option<i64>> {
    let is_ranked =
        |node: &RankedNode| !strict || soft.iter().all(|one| one.domain_counts.count_of_slot(node.slot).is_some());
    let ranked: Vec<bool> = nodes.iter().map(is_ranked).collect();
    let there = || nodes.iter().zip(&ranked).filter(|(_, ranked)| **ranked).map(|(node, _)| node.slot);
    let mut sums = vec![0.0; nodes.len()];
    for one in soft {
        let size = if one.key == HOSTNAME { there().count() } else { count_domains(one, there()) };
        let (weight, skew) = ((size as f64 + 2.0).ln(), (one.max_skew - 1) as f64);
        for (sum, node) in sums.iter_mut().zip(nodes) {
            if let Some(count) = one.domain_counts.count_of_slot(node.slot) {
                *sum += count as f64 * weight + skew;
            }
        }
    }
    sums.into_iter().zip(&ranked).map(|(sum, ranked)| ranked.then(|| round(sum))).collect()
}

/// Rounds a number to the nearest integer, halves up. Sums of counts are not negative.
fn round(number: f64) -> i64 {
    let whole = number as i64;
    if number - whole as f64 >= 0.5 { whole + 1 } else { whole }
}

/// Number of domains of these nodes; nodes without a domain count as one.
fn count_domains(constraint: &SpreadConstraint, slots: impl Iterator<Item = usize>) -> usize {
    let domains = &constraint.domain_counts.domains;
    let mut seen = vec![false; domains.count + 1];
    slots.for_each(|slot| seen[domains.domain_of_slot(slot).unwrap_or(domains.count)] = true);
    seen.into_iter().filter(|seen| *seen).count()
}
