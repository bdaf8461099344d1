//! NoExecute taints: evicts pods without a toleration at once, and pods with `tolerationSeconds` after that time.
//!
//! Never: adds taints; [`super::node_lifecycle`] and users do.

use super::pods::{self, BURST};
use crate::object::time::Shift;
use crate::object::{Key, Object, Time};
use crate::world::taint::tolerates;
use crate::world::{EventType, Loop, Memory, Plan, Row, Taint, World};
use jiff::SignedDuration;
use serde_json::Value;
use std::collections::BTreeMap;
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

/// Plans evictions, and remembers since when there are taints that do not say it: Kubernetes leaves them as users wrote them.
fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let node = world.get(key).filter(|node| !node.is_deleting());
    let taints = node.and_then(|node| node.node()).map_or(&[][..], |node| &node.taints).iter();
    let mut taints: Vec<Taint> = taints.filter(|taint| taint.effect == "NoExecute").cloned().collect();
    let undated: Vec<String> =
        taints.iter().filter(|taint| taint.added.is_none()).map(|taint| taint.key.clone()).collect();
    let known = world.loop_memory.tainted_since.get(key);
    for taint in taints.iter_mut().filter(|taint| taint.added.is_none()) {
        taint.added = Some(known.and_then(|known| known.get(&taint.key)).copied().unwrap_or(world.now));
    }
    if let Some(node) = node.filter(|_| !taints.is_empty()) {
        evict(world, node, &taints, &mut plan);
    }
    let is_counted = |taint: &&Taint| {
        let is_known = known.is_some_and(|known| known.contains_key(&taint.key));
        undated.contains(&taint.key) && (is_known || plan.wake.is_some())
    };
    let counted = taints.iter().filter(is_counted);
    let since: BTreeMap<String, Time> = counted.filter_map(|taint| Some((taint.key.clone(), taint.added?))).collect();
    if known.map_or(!since.is_empty(), |known| *known != since) {
        plan.memory.push(Memory::TaintedSince { node: key.clone(), since });
    }
    plan
}

/// Evicts the pods of a node that are due, and schedules a wake-up for later ones.
fn evict(world: &World, node: &Row, taints: &[Taint], plan: &mut Plan) {
    let mut evicted = 0;
    for pod in world.pods_on(&node.key.name) {
        let body = pod.object();
        // A pod that is being deleted is marked as well, once.
        if pod.is_deleting() && body.has_condition("DisruptionTarget") {
            continue;
        }
        let tolerations = body.items(&["spec", "tolerations"]);
        let Some(deadline) = deadline(taints, tolerations, scheduled_at(&body), world.now) else { continue };
        if world.now < deadline {
            plan.wake_at(deadline);
        } else if evicted < BURST {
            evicted += 1;
            let condition = ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint");
            pods::mark_disrupted(world, &body, condition, plan);
            let message = format!("Marking for deletion Pod {}", pod.key.path());
            plan.event(pod, EventType::Normal, "TaintManagerEviction", message);
            if !pod.is_deleting() {
                plan.delete(pod, format!("it does not tolerate a NoExecute taint of node {}", node.key.name));
            }
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::testing::cluster;
    use serde_json::json;

    const PODS: &str = "
{apiVersion: v1, kind: Pod, metadata: {name: waits}, spec: {nodeName: a, tolerations: [{key: k, operator: Exists, tolerationSeconds: 60}], containers: [{name: c}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: ends}, spec: {nodeName: a, terminationGracePeriodSeconds: 600, containers: [{name: c}]}}
";

    #[test]
    fn taint_of_a_user_stays_as_it_is_and_tolerations_count_from_its_appearance() {
        let mut cluster = cluster(PODS);
        cluster.settle();
        let taints = json!([{"key": "k", "effect": "NoExecute"}]);
        cluster.patch("nodes", "a", json!({"spec": {"taints": taints}}));
        cluster.pass(30);
        assert_eq!(cluster.value("nodes", "a", "/spec/taints"), taints);
        // Neither another label nor another taint restarts the time.
        cluster.patch("nodes", "a", json!({"metadata": {"labels": {"x": "y"}}}));
        cluster.pass(20);
        assert!(!cluster.object("pods", "waits").has_condition("DisruptionTarget"));
        cluster.pass(11);
        assert!(!cluster.names("pods").contains("waits"));
        cluster.patch("nodes", "a", json!({"spec": {"taints": null}}));
        cluster.settle();
        assert!(cluster.world.loop_memory.tainted_since.is_empty());
    }

    #[test]
    fn pod_that_is_being_deleted_is_marked_too() {
        let mut cluster = cluster(PODS);
        cluster.kubelet = false;
        cluster.settle();
        cluster.delete("pods", "ends", Default::default());
        cluster.settle();
        let deleted = cluster.object("pods", "ends").deletion();
        cluster.patch("nodes", "a", json!({"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}}));
        cluster.settle();
        let pod = cluster.object("pods", "ends");
        let condition = pod.condition("DisruptionTarget").unwrap();
        assert_eq!(condition["reason"], "DeletionByTaintManager");
        assert_eq!(condition["observedGeneration"], pod.generation());
        assert_eq!(pod.deletion(), deleted);
        assert!(cluster.logged("event: TaintManagerEviction Marking for deletion Pod default/ends"));
    }

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
