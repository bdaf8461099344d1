//! Explains scheduling of one pod, node by node: the plugins that refused the node, or its scores.

use super::filter;
pub use super::inter_pod_affinity::AFFINITY;
use super::nodes::{self, CandidateNode};
use super::pod_constraints::PodConstraints;
use super::ranked_node::RankedNode;
use super::score;
pub use super::volumes::{NO_MATCHING_VOLUME, VOLUME_AFFINITY_CONFLICT};
use crate::object::{Key, Object, Str};
use crate::world::{Row, Taint, World, taint};

/// The verdict on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeVerdict {
    /// The node.
    pub node: Str,
    /// The plugins that refuse it, in their order; none when the pod can run there.
    pub refusals: Vec<PluginRefusal>,
    /// Score of each plugin for a node that was not refused.
    pub scores: Vec<(&'static str, i64)>,
}

impl NodeVerdict {
    /// The first plugin that refuses the node; Kubernetes reports only this one.
    pub fn refused(&self) -> Option<&PluginRefusal> {
        self.refusals.first()
    }

    /// Returns this plugin's reasons against the node.
    pub fn refusal_of(&self, plugin: &str) -> Option<&PluginRefusal> {
        self.refusals.iter().find(|refusal| refusal.plugin == plugin)
    }
}

/// A plugin that refuses a node. The pod can run on the node only when no plugin refuses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginRefusal {
    /// The plugin.
    pub plugin: &'static str,
    /// Its reasons, in Kubernetes' words.
    pub reasons: Vec<String>,
    /// Whether the removal of other pods cannot help.
    pub unresolvable: bool,
}

/// The verdict on every node, ordered by name; empty when there is no such pod.
pub fn explain(world: &World, key: &Key) -> Vec<NodeVerdict> {
    let Some(row) = world.get(key) else { return Vec::new() };
    let (constraints, candidates) =
        (PodConstraints::from_pod(world, row), nodes::candidates(world).collect::<Vec<_>>());
    let query = filter::PodQuery::from_pod(world, row, &constraints);
    if let Some((plugin, problem)) = query.refusal_everywhere() {
        // Kubernetes does not filter nodes then (VolumeBinding: `PreFilter`).
        let verdict = |node: &CandidateNode<'_>| NodeVerdict {
            node: node.row.key.name.clone(),
            refusals: vec![PluginRefusal { plugin, reasons: vec![problem.to_owned()], unresolvable: true }],
            scores: Vec::new(),
        };
        return candidates.iter().map(verdict).collect();
    }
    let refusals: Vec<Vec<PluginRefusal>> = candidates.iter().map(|node| refusals(&query, node)).collect();
    let fitting = candidates.iter().zip(&refusals).filter(|(_, refusals)| refusals.is_empty()).map(|(node, _)| node);
    let fitting: Vec<RankedNode> =
        fitting.map(|node| RankedNode::new(node.slot, score::raw_scores(&query, node))).collect();
    let mut scores = score::weighted_scores(&query, &fitting).into_iter();
    let verdict = |(node, refusals): (&CandidateNode<'_>, Vec<PluginRefusal>)| NodeVerdict {
        node: node.row.key.name.clone(),
        scores: if refusals.is_empty() { scores.next().unwrap_or_default() } else { Vec::new() },
        refusals,
    };
    candidates.iter().zip(refusals).map(verdict).collect()
}

fn refusals(query: &filter::PodQuery<'_>, node: &CandidateNode<'_>) -> Vec<PluginRefusal> {
    let mut refusals: Vec<PluginRefusal> = Vec::new();
    for (plugin, reasons) in filter::all_refusals(query, node) {
        // A plugin that runs twice reports the same reason.
        if refusals.iter().all(|refusal| refusal.plugin != plugin) {
            let unresolvable = reasons.iter().any(|one| one.unresolvable);
            let reasons = reasons.into_iter().map(|one| one.reason.into_owned()).collect();
            refusals.push(PluginRefusal { plugin, reasons, unresolvable });
        }
    }
    refusals
}

/// The taints of a node that keep a pod away.
pub fn repelling<'a>(pod: &Object, node: &'a Row) -> Vec<&'a Taint> {
    let taints = node.node().map(|fields| &fields.taints[..]).unwrap_or_default();
    taint::repelling(pod.items(&["spec", "tolerations"]), taints).collect()
}
