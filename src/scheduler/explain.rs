//! Explains scheduling of one pod, node by node: the plugins that refused the node, or its scores.

use super::filter;
pub use super::inter_pod_affinity::AFFINITY;
use super::nodes::{self, CandidateNode};
use super::pod_constraints::PodConstraints;
use super::ranked_node::RankedNode;
use super::score;
use super::tolerations;
use super::volumes::BINDING;
pub use super::volumes::{ELSEWHERE, NONE_LEFT};
use crate::object::{Key, Object, Str};
use crate::world::{Row, Taint, World};

/// The verdict on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeVerdict {
    /// The node.
    pub node: Str,
    /// The plugins that refuse it, in their order; none when the pod can run there.
    pub hurdles: Vec<PluginRefusal>,
    /// Score of each plugin for a node that was not refused.
    pub scores: Vec<(&'static str, i64)>,
}

impl NodeVerdict {
    /// The first plugin that refuses the node; Kubernetes reports only this one.
    pub fn refused(&self) -> Option<&PluginRefusal> {
        self.hurdles.first()
    }

    /// Returns this plugin's reasons against the node.
    pub fn refusal_of(&self, plugin: &str) -> Option<&PluginRefusal> {
        self.hurdles.iter().find(|hurdle| hurdle.plugin == plugin)
    }
}

/// One plugin that refuses a node. The pod can run there only when each of them thinks otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginRefusal {
    /// The plugin.
    pub plugin: &'static str,
    /// Its reasons, in Kubernetes' words.
    pub reasons: Vec<String>,
    /// That other pods go away cannot help.
    pub for_good: bool,
}

/// The verdict on every node, ordered by name; empty when there is no such pod.
pub fn explain(world: &World, key: &Key) -> Vec<NodeVerdict> {
    let Some(row) = world.get(key) else { return Vec::new() };
    let (wants, candidates) = (PodConstraints::from_pod(world, row), nodes::candidates(world).collect::<Vec<_>>());
    let asks = filter::PodQuery::from_pod(world, row, &wants);
    if let Err(problem) = &asks.storage {
        // Kubernetes does not filter nodes then (VolumeBinding: `PreFilter`).
        let verdict = |node: &CandidateNode<'_>| NodeVerdict {
            node: node.row.key.name.clone(),
            hurdles: vec![PluginRefusal { plugin: BINDING, reasons: vec![problem.clone()], for_good: true }],
            scores: Vec::new(),
        };
        return candidates.iter().map(verdict).collect();
    }
    let hurdles: Vec<Vec<PluginRefusal>> = candidates.iter().map(|node| hurdles(&asks, node)).collect();
    let fitting = candidates.iter().zip(&hurdles).filter(|(_, hurdles)| hurdles.is_empty()).map(|(node, _)| node);
    let fitting: Vec<RankedNode> =
        fitting.map(|node| RankedNode::new(node.slot, score::raw_scores(&asks, node))).collect();
    let mut scores = score::parts(&asks, &fitting).into_iter();
    let verdict = |(node, hurdles): (&CandidateNode<'_>, Vec<PluginRefusal>)| NodeVerdict {
        node: node.row.key.name.clone(),
        scores: if hurdles.is_empty() { scores.next().unwrap_or_default() } else { Vec::new() },
        hurdles,
    };
    candidates.iter().zip(hurdles).map(verdict).collect()
}

fn hurdles(asks: &filter::PodQuery<'_>, node: &CandidateNode<'_>) -> Vec<PluginRefusal> {
    let mut hurdles: Vec<PluginRefusal> = Vec::new();
    for (plugin, reasons) in filter::all_refusals(asks, node) {
        // A plugin that runs twice reports the same reason.
        if hurdles.iter().all(|hurdle| hurdle.plugin != plugin) {
            let for_good = reasons.iter().any(|one| one.for_good);
            let reasons = reasons.into_iter().map(|one| one.reason.into_owned()).collect();
            hurdles.push(PluginRefusal { plugin, reasons, for_good });
        }
    }
    hurdles
}

/// The taints of a node that keep a pod away.
pub fn repelling<'a>(pod: &Object, node: &'a Row) -> Vec<&'a Taint> {
    let taints = node.node().map(|fields| &fields.taints[..]).unwrap_or_default();
    tolerations::repelling(pod.items(&["spec", "tolerations"]), taints).collect()
}
