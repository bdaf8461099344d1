//! What the scheduler thinks of each node about one pod: who refused it and why, or how it scores.

use super::filter;
use super::nodes::{self, Candidate};
use super::score::{self, Ranked};
use super::volumes::BINDING;
pub use super::volumes::{ELSEWHERE, NONE_LEFT};
use super::wants::Wants;
use crate::object::{Key, Str};
use crate::world::World;

/// The verdict on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The node.
    pub node: Str,
    /// The plugin that refused it and its reasons; none when the pod can run there.
    pub refused: Option<(&'static str, Vec<String>)>,
    /// What each plugin gave a node that was not refused.
    pub scores: Vec<(&'static str, i64)>,
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
            refused: Some((BINDING, vec![problem.clone()])),
            scores: Vec::new(),
        };
        return candidates.iter().map(verdict).collect();
    }
    let refused: Vec<_> = candidates.iter().map(|node| filter::refused_by(&asks, node)).collect();
    let fitting = candidates.iter().zip(&refused).filter(|(_, refused)| refused.is_none()).map(|(node, _)| node);
    let fitting: Vec<Ranked> = fitting.map(|node| Ranked::new(node.slot, score::merits(&asks, node))).collect();
    let mut scores = score::parts(&asks, &fitting).into_iter();
    let verdict = |(node, refused): (&Candidate<'_>, Option<(&'static str, Vec<filter::Refusal>)>)| Verdict {
        node: node.row.key.name.clone(),
        scores: if refused.is_none() { scores.next().map(Vec::from).unwrap_or_default() } else { Vec::new() },
        refused: refused
            .map(|(plugin, reasons)| (plugin, reasons.into_iter().map(|one| one.reason.into_owned()).collect())),
    };
    candidates.iter().zip(refused).map(verdict).collect()
}
