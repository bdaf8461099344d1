//! Why no node can take a pod, in Kubernetes' sentence.

use std::collections::BTreeMap;

/// Reasons that removing other pods cannot help against.
const FOR_GOOD: [&str; 4] = [
    "node(s) were unschedulable",
    "node(s) didn't match the requested node name",
    "node(s) had untolerated taint",
    "node(s) didn't match Pod's node affinity/selector",
];

/// `0/3 nodes are available: ...`, with what preemption could do about it.
pub fn unschedulable(verdicts: &[Vec<String>], preemption_policy: Option<&str>) -> String {
    if verdicts.is_empty() {
        return "no nodes available to schedule pods".to_owned();
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for reason in verdicts.iter().flatten() {
        *counts.entry(reason).or_default() += 1;
    }
    let reasons = sentence(counts);
    let preemption = preemption(verdicts, preemption_policy);
    format!(
        "0/{} nodes are available: {reasons}. no new claims to deallocate, preemption: {preemption}",
        verdicts.len()
    )
}

fn preemption(verdicts: &[Vec<String>], policy: Option<&str>) -> String {
    if policy == Some("Never") {
        return "not eligible due to preemptionPolicy=Never.".to_owned();
    }
    let hopeless =
        |refusals: &&Vec<String>| refusals.iter().any(|reason| FOR_GOOD.iter().any(|text| reason.starts_with(text)));
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
