//! The plugins that rank nodes, with Kubernetes' formulas and weights.

use super::filter::PodQuery;
use super::nodes::CandidateNode;
use super::ranked_node::{RankedNode, RawScores};
use super::{affinity, devices, images, inter_pod_affinity, spread};
use crate::world::scheduler_profile::{SchedulerProfile, ScoredResource, ScoringShape};
use crate::world::{ResourceRequests, taint};

/// A plugin that ranks nodes.
pub struct ScorePlugin {
    /// Its name in the scheduler's configuration.
    pub name: &'static str,
    /// Its weight in Kubernetes.
    pub weight: i64,
    /// Returns the score of each of these nodes, from 0 to 100 and in their order; an empty list when it is 0 for all of them.
    pub score: fn(&PodQuery<'_>, &[RankedNode]) -> Vec<i64>,
}

/// All plugins that rank nodes.
pub static PLUGINS: [ScorePlugin; 8] = [
    ScorePlugin { name: "NodeResourcesFit", weight: 1, score: |_, nodes| map_scores(nodes, |node| node.fit.into()) },
    ScorePlugin {
        name: "NodeResourcesBalancedAllocation",
        weight: 1,
        score: |_, nodes| map_scores(nodes, |node| node.balanced.into()),
    },
    ScorePlugin { name: "NodeAffinity", weight: 2, score: |_, nodes| preferred(nodes) },
    ScorePlugin { name: "TaintToleration", weight: 3, score: |_, nodes| tolerated(nodes) },
    ScorePlugin {
        name: "PodTopologySpread",
        weight: 2,
        score: |query, nodes| spread::score::scores(query.world, query.pod, query.row, &query.profile, nodes),
    },
    ScorePlugin {
        name: "InterPodAffinity",
        weight: 2,
        score: |query, nodes| {
            inter_pod_affinity::score::scores(query.world, query.constraints, query.row, &query.profile, nodes)
        },
    },
    ScorePlugin { name: devices::PLUGIN, weight: 1, score: alternatives },
    ScorePlugin { name: "ImageLocality", weight: 1, score: images::scores },
];

/// Returns the plugins that a profile does not disable, each with its weight there.
fn weighted(profile: &SchedulerProfile) -> impl Iterator<Item = (&'static ScorePlugin, i64)> {
    let weight = |plugin: &ScorePlugin| profile.weights.get(plugin.name).copied().unwrap_or(plugin.weight);
    PLUGINS.iter().map(move |plugin| (plugin, weight(plugin))).filter(|(_, weight)| *weight != 0)
}

fn map_scores(nodes: &[RankedNode], score: impl Fn(&RawScores) -> i64) -> Vec<i64> {
    nodes.iter().map(|node| score(&node.raw_scores)).collect()
}

/// NodeAffinity: the weights of the preferred terms, in relation to the node that matches most.
fn preferred(nodes: &[RankedNode]) -> Vec<i64> {
    let most = nodes.iter().map(|node| i64::from(node.raw_scores.preferred)).max().unwrap_or(0);
    if most > 0 { map_scores(nodes, |node| i64::from(node.preferred) * 100 / most) } else { Vec::new() }
}

/// TaintToleration: the fewer taints the pod does not tolerate, in relation to the node that has most of them, the better.
fn tolerated(nodes: &[RankedNode]) -> Vec<i64> {
    let most = nodes.iter().map(|node| i64::from(node.raw_scores.untolerated_taints)).max().unwrap_or(0);
    map_scores(nodes, |node| if most > 0 { 100 - i64::from(node.untolerated_taints) * 100 / most } else { 100 })
}

/// DynamicResources: the earlier the alternatives are that the pod's claims get, in relation to the best node, the better.
fn alternatives(query: &PodQuery<'_>, nodes: &[RankedNode]) -> Vec<i64> {
    let Some(devices) = query.devices.as_ref().ok().filter(|devices| devices.has_alternatives()) else {
        return Vec::new();
    };
    let node = |ranked: &RankedNode| query.world.node_cache().get(ranked.slot);
    let scores: Vec<i64> =
        nodes.iter().map(|ranked| node(ranked).map_or(0, |node| devices.preference(&node.row))).collect();
    let most = scores.iter().copied().max().unwrap_or(0).max(1);
    scores.into_iter().map(|score| score * 100 / most).collect()
}

/// Computes the raw scores of one node.
pub fn raw_scores(query: &PodQuery<'_>, node: &CandidateNode<'_>) -> RawScores {
    RawScores {
        fit: fit(query, node) as i32,
        balanced: balanced(query, node) as i32,
        preferred: affinity::preference(query.pod, &query.profile.added_affinity, node.row) as i32,
        untolerated_taints: count_untolerated_soft_taints(query, node) as i32,
    }
}

/// Returns the index of the best node; `seed` decides between equals. A single node is not scored.
pub fn best(query: &PodQuery<'_>, nodes: &mut [RankedNode], seed: u64) -> Option<usize> {
    if let [only] = nodes {
        return Some(only.slot);
    }
    nodes.iter_mut().for_each(|node| node.total = 0);
    for (plugin, weight) in weighted(&query.profile) {
        let scores = (plugin.score)(query, nodes);
        nodes.iter_mut().zip(scores).for_each(|(node, score)| node.total += weight * score);
    }
    let best = nodes.iter().map(|node| node.total).max()?;
    let equals = || nodes.iter().filter(|node| node.total == best);
    equals().nth((seed % equals().count() as u64) as usize).map(|node| node.slot)
}

/// Returns the weighted score of each plugin for each node.
pub fn weighted_scores(query: &PodQuery<'_>, nodes: &[RankedNode]) -> Vec<Vec<(&'static str, i64)>> {
    let mut parts: Vec<Vec<(&'static str, i64)>> = nodes.iter().map(|_| Vec::new()).collect();
    for (plugin, weight) in weighted(&query.profile) {
        let scores = (plugin.score)(query, nodes);
        for (index, part) in parts.iter_mut().enumerate() {
            part.push((plugin.name, weight * scores.get(index).copied().unwrap_or(0)));
        }
    }
    parts
}

/// TaintToleration: the number of soft taints that the pod does not tolerate.
fn count_untolerated_soft_taints(query: &PodQuery<'_>, node: &CandidateNode<'_>) -> i64 {
    let tolerations = query.pod.items(&["spec", "tolerations"]);
    let soft = node.fields.taints.iter().filter(|taint| taint.effect == "PreferNoSchedule");
    soft.filter(|taint| taint::untolerated(tolerations, std::iter::once(*taint)).is_some()).count() as i64
}

/// NodeResourcesFit, by the profile's strategy. Resources that the node does not have do not count, nor do
/// extended resources that the pod does not request.
fn fit(query: &PodQuery<'_>, node: &CandidateNode<'_>) -> i64 {
    let (wants, used, has) = (&query.fields.requests, &node.load.requests, &node.fields.allocatable);
    let amount = |list: &ResourceRequests, name: &ScoredResource| match name {
        ScoredResource::Cpu => list.scored_cpu_milli,
        ScoredResource::Memory => list.scored_memory,
        ScoredResource::Storage => list.ephemeral,
        ScoredResource::Other(name) => list.others.get(name).copied().unwrap_or(0),
    };
    let strategy = &query.profile.strategy;
    let (mut sum, mut weights) = (0, 0);
    for (name, weight) in &strategy.resources {
        let (wanted, offered) = (amount(wants, name), amount(has, name));
        if offered <= 0 || (wanted == 0 && matches!(name, ScoredResource::Other(_))) {
            continue;
        }
        let score = resource_score(&strategy.shape, wanted + amount(used, name), offered);
        // Kubernetes leaves resources that score nothing out of this strategy's mean.
        if score > 0 || !matches!(strategy.shape, ScoringShape::Ratio(_)) {
            (sum, weights) = (sum + score * weight, weights + weight);
        }
    }
    match strategy.shape {
        _ if weights == 0 => 0,
        ScoringShape::Ratio(_) => (sum as f64 / weights as f64).round() as i64,
        _ => sum / weights,
    }
}

/// The score of one resource.
fn resource_score(shape: &ScoringShape, asked: i64, has: i64) -> i64 {
    match shape {
        ScoringShape::Least if asked > has => 0,
        ScoringShape::Least => (has - asked) * 100 / has,
        ScoringShape::Most => asked.min(has) * 100 / has,
        ScoringShape::Ratio(points) => interpolate(points, if asked > has { 100 } else { asked * 100 / has }),
    }
}

/// The height of a line through points (Kubernetes: `BuildBrokenLinearFunction`).
fn interpolate(points: &[(i64, i64)], at: i64) -> i64 {
    match points.iter().position(|point| at <= point.0) {
        Some(0) => points[0].1,
        Some(place) => {
            let (from, to) = (points[place - 1], points[place]);
            from.1 + (to.1 - from.1) * (at - from.0) / (to.0 - from.0)
        }
        None => points.last().map_or(0, |point| point.1),
    }
}

/// NodeResourcesBalancedAllocation: the more evenly CPU and memory are used the better. Pods that ask for nothing do not count.
fn balanced(query: &PodQuery<'_>, node: &CandidateNode<'_>) -> i64 {
    let (wants, used, has) = (&query.fields.requests, &node.load.requests, &node.fields.allocatable);
    if wants.cpu_milli == 0 && wants.memory == 0 {
        return 0;
    }
    let part =
        |wanted: i64, used: i64, has: i64| if has <= 0 { 1.0 } else { ((wanted + used) as f64 / has as f64).min(1.0) };
    let cpu = part(wants.cpu_milli, used.cpu_milli, has.cpu_milli);
    let memory = part(wants.memory, used.memory, has.memory);
    ((1.0 - (cpu - memory).abs() / 2.0) * 100.0) as i64
}
