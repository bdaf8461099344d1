//! Why no node can take a pod, in Kubernetes' sentence.

use super::node_results::RefusalCounts;
use std::collections::BTreeMap;

/// `0/3 nodes are available: ...`. `preemption` is the reason why preemption does not help, and `claims` describes changes of the pod's
/// device claims.
pub fn unschedulable(refusal_counts: &RefusalCounts<'_>, claims: &str, preemption: Option<&str>) -> String {
    let nodes = refusal_counts.nodes();
    if nodes == 0 {
        return "no nodes available to schedule pods".to_owned();
    }
    let refused = nodes_refuse(nodes, refusal_counts.reasons());
    match preemption {
        Some(why) => format!("{refused} {claims}, preemption: {why}"),
        None => refused,
    }
}

/// `0/3 nodes are available: 1 a, 2 b.`: each reason with its number of nodes.
pub fn nodes_refuse<'a>(nodes: usize, reasons: impl Iterator<Item = (&'a str, usize)>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (reason, number) in reasons {
        *counts.entry(reason).or_default() += number;
    }
    format!("0/{nodes} nodes are available: {}.", join_counts(counts))
}

/// Returns the message when the same reason excludes all nodes. (`not found` is the result of preemption without
/// candidate nodes.)
pub fn unschedulable_everywhere(nodes: usize, why: &str) -> String {
    format!("0/{nodes} nodes are available: {why}. not found")
}

/// `1 a, 2 b`, ordered by the whole text as Kubernetes orders it.
fn join_counts(counts: BTreeMap<&str, usize>) -> String {
    let mut parts: Vec<String> = counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    parts.sort();
    parts.join(", ")
}
