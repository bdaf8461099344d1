//! A node while nodes are ranked: its raw scores, which depend on it alone, and the sum of all scores.

/// Raw scores of a node, independent of other nodes.
#[derive(Clone, Copy, Debug, Default)]
pub struct RawScores {
    pub(super) fit: i32,
    pub(super) balanced: i32,
    /// The weights of the preferred terms that the node matches.
    pub(super) preferred: i32,
    /// Number of `PreferNoSchedule` taints that the pod does not tolerate.
    pub(super) untolerated_taints: i32,
}

/// A node to be ranked.
pub struct RankedNode {
    /// Slot in the node cache.
    pub slot: usize,
    /// Its raw scores.
    pub(super) raw_scores: RawScores,
    /// The weighted sum of all scores.
    pub(super) total: i64,
}

impl RankedNode {
    /// A node that is not ranked yet.
    pub fn new(slot: usize, raw_scores: RawScores) -> RankedNode {
        RankedNode { slot, raw_scores, total: 0 }
    }
}
