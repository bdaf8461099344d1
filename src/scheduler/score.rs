//! The plugins that rank nodes, with Kubernetes' formulas and weights.

use super::filter::Asks;
use super::nodes::Candidate;
use super::{affinity, tolerations};

/// The best of the nodes; chance decides between equals.
pub fn best<'a, 'b>(asks: &Asks<'_>, nodes: &[&'b Candidate<'a>], seed: u64) -> Option<&'b Candidate<'a>> {
    let scores = totals(asks, nodes);
    let best = scores.iter().max()?;
    let equals: Vec<&&Candidate<'a>> =
        nodes.iter().zip(&scores).filter(|(_, score)| *score == best).map(|(node, _)| node).collect();
    equals.get((seed % equals.len().max(1) as u64) as usize).map(|node| **node)
}

/// The weighted sums of all plugins.
fn totals(asks: &Asks<'_>, nodes: &[&Candidate<'_>]) -> Vec<i64> {
    parts(asks, nodes).iter().map(|parts| parts.iter().map(|(_, score)| score).sum()).collect()
}

/// What each plugin gives each node, its weight included.
pub fn parts(asks: &Asks<'_>, nodes: &[&Candidate<'_>]) -> Vec<[(&'static str, i64); 6]> {
    let preferred: Vec<i64> = nodes.iter().map(|node| affinity::preference(asks.pod, node.row)).collect();
    let disliked: Vec<i64> = nodes.iter().map(|node| disliked_taints(asks, node)).collect();
    let (most_preferred, most_disliked) = (max(&preferred), max(&disliked));
    let (spread, neighbours) = (asks.spread.scores(nodes), asks.neighbours.scores(nodes));
    let of_node = |(index, node): (usize, &&Candidate<'_>)| {
        let affinity = if most_preferred > 0 { preferred[index] * 100 / most_preferred } else { 0 };
        let taints = if most_disliked > 0 { 100 - disliked[index] * 100 / most_disliked } else { 100 };
        [
            ("NodeResourcesFit", least_allocated(asks, node)),
            ("NodeResourcesBalancedAllocation", balanced(asks, node)),
            ("NodeAffinity", 2 * affinity),
            ("TaintToleration", 3 * taints),
            ("PodTopologySpread", 2 * spread[index]),
            ("InterPodAffinity", 2 * neighbours[index]),
        ]
    };
    nodes.iter().enumerate().map(of_node).collect()
}

fn max(scores: &[i64]) -> i64 {
    scores.iter().copied().max().unwrap_or(0)
}

/// TaintToleration: how many soft taints the pod does not bear.
fn disliked_taints(asks: &Asks<'_>, node: &Candidate<'_>) -> i64 {
    let borne = asks.pod.items(&["spec", "tolerations"]);
    let soft = node.fields.taints.iter().filter(|taint| taint.effect == "PreferNoSchedule");
    soft.filter(|taint| tolerations::untolerated(borne, std::iter::once(*taint)).is_some()).count() as i64
}

/// NodeResourcesFit, LeastAllocated: the freer the better.
fn least_allocated(asks: &Asks<'_>, node: &Candidate<'_>) -> i64 {
    let (wants, used, has) = (&asks.fields.requests, &node.load.requests, &node.fields.allocatable);
    let free = |wanted: i64, used: i64, has: i64| {
        if has <= 0 || wanted + used > has { 0 } else { (has - used - wanted) * 100 / has }
    };
    let cpu = free(wants.scored_cpu_milli, used.scored_cpu_milli, has.cpu_milli);
    let memory = free(wants.scored_memory, used.scored_memory, has.memory);
    (cpu + memory) / 2
}

/// NodeResourcesBalancedAllocation: the more evenly CPU and memory are used the better. Pods that ask for nothing do not count.
fn balanced(asks: &Asks<'_>, node: &Candidate<'_>) -> i64 {
    let (wants, used, has) = (&asks.fields.requests, &node.load.requests, &node.fields.allocatable);
    if wants.cpu_milli == 0 && wants.memory == 0 {
        return 0;
    }
    let part =
        |wanted: i64, used: i64, has: i64| if has <= 0 { 1.0 } else { ((wanted + used) as f64 / has as f64).min(1.0) };
    let cpu = part(wants.cpu_milli, used.cpu_milli, has.cpu_milli);
    let memory = part(wants.memory, used.memory, has.memory);
    ((1.0 - (cpu - memory).abs() / 2.0) * 100.0) as i64
}
