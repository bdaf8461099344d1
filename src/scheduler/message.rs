//! Why no node can take a pod, in Kubernetes' sentence.

use super::filter::Refusal;
use std::collections::BTreeMap;

/// `0/3 nodes are available: ...`, with what preemption could do about it.
pub fn unschedulable(verdicts: &[Vec<Refusal>], preemption_policy: Option<&str>) -> String {
    if verdicts.is_empty() {
        return "no nodes available to schedule pods".to_owned();
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for refusal in verdicts.iter().flatten() {
        *counts.entry(&refusal.reason).or_default() += 1;
    }
    let reasons = sentence(counts);
    let preemption = preemption(verdicts, preemption_policy);
    format!(
        "0/{} nodes are available: {reasons}. no new claims to deallocate, preemption: {preemption}",
        verdicts.len()
    )
}

/// What keeps the pod from all nodes alike. (`not found` is what is left of preemption, which finds no node to look at.)
pub fn nowhere(nodes: usize, why: &str) -> String {
    format!("0/{nodes} nodes are available: {why}. not found")
}

fn preemption(verdicts: &[Vec<Refusal>], policy: Option<&str>) -> String {
    if policy == Some("Never") {
        return "not eligible due to preemptionPolicy=Never.".to_owned();
    }
    let hopeless = |refusals: &&Vec<Refusal>| refusals.iter().any(|refusal| refusal.for_good);
    let unhelpful = verdicts.iter().filter(hopeless).count();
    let mut counts = BTreeMap::new();
    if unhelpful > 0 {
        counts.insert("Preemption is not helpful for scheduling", unhelpful);
    }
    if unhelpful < verdicts.len() {
        counts.insert("No preemption victims found for incoming pod", verdicts.len() - unhelpful);
    }
    format!("0/{} nodes are available: {}.", verdicts.len(), sentence(counts))
}

/// `1 a, 2 b`, ordered by the whole text as Kubernetes orders it.
fn sentence(counts: BTreeMap<&str, usize>) -> String {
    let mut parts: Vec<String> = counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    parts.sort();
    parts.join(", ")
}
