//! NoExecute taints: evicts pods without a toleration at once, and pods with `tolerationSeconds` after that time.
//!
//! Never: adds taints; [`super::node_lifecycle`] and users do.

use super::pods::{self, BURST};
use crate::object::time::Shift;
use crate::object::{Key, Object, Time, time};
use crate::world::taint::tolerates;
use crate::world::{EventType, Loop, Plan, Row, Taint, World, WriteVerb};
use jiff::SignedDuration;
use serde_json::Value;
use std::sync::Arc;

const ROOT: &str = "nodes";

/// The loop of the nodes whose pods have to leave.
pub const LOOP: Loop = Loop { name: "taint-eviction-controller", root: ROOT, concerns, plan, ..Loop::BASE };

fn concerns(world: &World, row: &Row) -> Vec<Key> {
    match row.key.resource.0 {
        ROOT => vec![row.key.clone()],
        "pods" => {
            let node = row.pod().and_then(|pod| world.find(ROOT, "", pod.node.as_deref()?));
            let repels = |node: &&Arc<Row>| {
                node.node().is_some_and(|node| node.taints.iter().any(|taint| taint.effect == "NoExecute"))
            };
            node.filter(repels).map(|node| node.key.clone()).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// Evicts the pods of a node that are due, and schedules a wake-up for later ones.
fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(node) = world.get(key).filter(|node| !node.is_deleting()) else { return plan };
    let taints = node.node().map_or(&[][..], |node| &node.taints).iter();
    let taints: Vec<Taint> = taints.filter(|taint| taint.effect == "NoExecute").cloned().collect();
    if taints.is_empty() {
        return plan;
    }
    let mut evicted = 0;
    for pod in world.pods_on(&node.key.name).filter(|pod| !pod.is_deleting()) {
        let body = pod.object();
        let tolerations = body.items(&["spec", "tolerations"]);
        let Some(deadline) = deadline(&taints, tolerations, scheduled_at(&body), world.now) else { continue };
        if world.now < deadline {
            plan.wake_at(deadline);
        } else if evicted < BURST {
            evicted += 1;
            let condition = ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint");
            pods::mark_disrupted(world, &body, condition, &mut plan);
            let message = format!("Marking for deletion Pod {}", pod.key.path());
            plan.event(pod, EventType::Normal, "TaintManagerEviction", message);
            plan.delete(pod, format!("it does not tolerate a NoExecute taint of node {}", node.key.name));
        }
    }
    date_taints(world, node.object(), &mut plan);
    plan
}

/// The time at which a pod was scheduled, or else created.
fn scheduled_at(pod: &Object) -> Option<Time> {
    let scheduled = pod.true_condition("PodScheduled");
    let since = scheduled.and_then(|one| one["lastTransitionTime"].as_str());
    since.and_then(|since| since.parse().ok()).or_else(|| pod.created())
}

/// Returns the time at which a pod must leave; `None` when it tolerates every taint forever. A limited toleration
/// counts from the later of the taint and the pod (`handlePodUpdate`); otherwise, each replacement pod would be evicted
/// at once.
fn deadline(taints: &[Taint], tolerations: &[Value], scheduled_at: Option<Time>, now: Time) -> Option<Time> {
    let limit = |taint: &Taint| {
        let mut matching = tolerations.iter().filter(|toleration| tolerates(toleration, taint)).peekable();
        if matching.peek().is_none() {
            return Some(now);
        }
        let seconds = matching.filter_map(|toleration| toleration["tolerationSeconds"].as_i64()).min()?;
        let since = taint.added.unwrap_or(now);
        let since = scheduled_at.map_or(since, |scheduled_at| since.max(scheduled_at));
        Some(since.later(SignedDuration::from_secs(seconds.max(0))))
    };
    taints.iter().filter_map(limit).min()
}

/// Sets `timeAdded` of taints without it, since tolerations count from this time.
fn date_taints(world: &World, mut node: Object, plan: &mut Plan) {
    let undated = |taint: &Value| taint["effect"] == "NoExecute" && taint["timeAdded"].is_null();
    let mut taints = node.items(&["spec", "taints"]).to_vec();
    if plan.wake.is_none() || !taints.iter().any(undated) {
        return;
    }
    for taint in taints.iter_mut().filter(|taint| undated(taint)) {
        taint["timeAdded"] = time::rfc3339(world.now).into();
    }
    node.set(&["spec", "taints"], taints);
    plan.write(WriteVerb::Update(node), "tolerations are counted from when the taint was added");
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn eviction_deadline_counts_from_taint_or_pod() {
        let now: Time = "2026-01-01T00:01:00Z".parse().unwrap();
        let taint = Taint::read(&json!({"key": "k", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}));
        let taints = std::slice::from_ref(&taint);
        let forever = json!({"key": "k", "operator": "Exists"});
        let mut a_while = forever.clone();
        a_while["tolerationSeconds"] = 90.into();
        let at = |text: &str| Some(text.parse::<Time>().unwrap());
        let (before, since) = (at("2025-12-31T00:00:00Z"), at("2026-01-01T00:00:50Z"));
        assert_eq!(deadline(taints, &[], before, now), Some(now));
        assert_eq!(deadline(taints, &[], since, now), Some(now));
        assert_eq!(deadline(taints, &[forever], before, now), None);
        assert_eq!(deadline(taints, std::slice::from_ref(&a_while), before, now), at("2026-01-01T00:01:30Z"));
        assert_eq!(deadline(taints, &[a_while], since, now), at("2026-01-01T00:02:20Z"), "it came after the taint");
    }
}
