//! Explains scheduling of one pod, node by node: the plugins that refused the node, or its scores.

use super::filter;
pub use super::neighbours::AFFINITY;
use super::nodes::{self, Candidate};
use super::score::{self, Ranked};
use super::tolerations;
use super::volumes::BINDING;
pub use super::volumes::{ELSEWHERE, NONE_LEFT};
use super::wants::Wants;
use crate::object::{Key, Object, Str};
use crate::world::{Row, Taint, World};

/// The verdict on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The node.
    pub node: Str,
    /// The plugins that refuse it, in their order; none when the pod can run there.
    pub hurdles: Vec<Hurdle>,
    /// Score of each plugin for a node that was not refused.
    pub scores: Vec<(&'static str, i64)>,
}

impl Verdict {
    /// The plugin that speaks for the others that refuse it, as in Kubernetes: the first.
    pub fn refused(&self) -> Option<&Hurdle> {
        self.hurdles.first()
    }

    /// Returns this plugin's reasons against the node.
    pub fn by(&self, plugin: &str) -> Option<&Hurdle> {
        self.hurdles.iter().find(|hurdle| hurdle.plugin == plugin)
    }
}

/// One plugin that refuses a node. The pod can run there only when each of them thinks otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hurdle {
    /// The plugin.
    pub plugin: &'static str,
    /// Its reasons, in Kubernetes' words.
    pub reasons: Vec<String>,
    /// That other pods go away cannot help.
    pub for_good: bool,
}

/// The verdict on every node, ordered by name; empty when there is no such pod.
pub fn explain(world: &World, key: &Key) -> Vec<Verdict> {
    let Some(row) = world.get(key) else { return Vec::new() };
    let (wants, candidates) = (Wants::of(world, row), nodes::candidates(world).collect::<Vec<_>>());
    let asks = filter::Asks::of(world, row, &wants);
    if let Err(problem) = &asks.storage {
        // Kubernetes does not come to look at nodes then (VolumeBinding: `PreFilter`).
        let verdict = |node: &Candidate<'_>| Verdict {
            node: node.row.key.name.clone(),
            hurdles: vec![Hurdle { plugin: BINDING, reasons: vec![problem.clone()], for_good: true }],
            scores: Vec::new(),
        };
        return candidates.iter().map(verdict).collect();
    }
    let hurdles: Vec<Vec<Hurdle>> = candidates.iter().map(|node| hurdles(&asks, node)).collect();
    let fitting = candidates.iter().zip(&hurdles).filter(|(_, hurdles)| hurdles.is_empty()).map(|(node, _)| node);
    let fitting: Vec<Ranked> = fitting.map(|node| Ranked::new(node.slot, score::merits(&asks, node))).collect();
    let mut scores = score::parts(&asks, &fitting).into_iter();
    let verdict = |(node, hurdles): (&Candidate<'_>, Vec<Hurdle>)| Verdict {
        node: node.row.key.name.clone(),
        scores: if hurdles.is_empty() { scores.next().map(Vec::from).unwrap_or_default() } else { Vec::new() },
        hurdles,
    };
    candidates.iter().zip(hurdles).map(verdict).collect()
}

fn hurdles(asks: &filter::Asks<'_>, node: &Candidate<'_>) -> Vec<Hurdle> {
    let mut hurdles: Vec<Hurdle> = Vec::new();
    for (plugin, reasons) in filter::all_refusals(asks, node) {
        // A plugin that runs twice reports the same reason.
        if hurdles.iter().all(|hurdle| hurdle.plugin != plugin) {
            let for_good = reasons.iter().any(|one| one.for_good);
            let reasons = reasons.into_iter().map(|one| one.reason.into_owned()).collect();
            hurdles.push(Hurdle { plugin, reasons, for_good });
        }
    }
    hurdles
}

/// The taints of a node that keep a pod away.
pub fn repelling<'a>(pod: &Object, node: &'a Row) -> Vec<&'a Taint> {
    let taints = node.node().map(|fields| &fields.taints[..]).unwrap_or_default();
    tolerations::repelling(pod.items(&["spec", "tolerations"]), taints).collect()
}
