//! The scheduler: which node a pod goes to.
//!
//! Knows: the plugins that refuse nodes ([`filter`]) and that rank the rest ([`score`]), with Kubernetes' weights and words.
//! Never: writes anything but a binding and the condition PodScheduled.
//! Start reading at [`plan`].

mod affinity;
mod claims;
pub mod explain;
mod filter;
mod message;
mod neighbours;
mod nodes;
mod score;
mod spread;
mod tolerations;

use crate::object::{Key, Object, time};
use crate::world::{EventType, Loop, Plan, Row, Verb, World};
use nodes::Candidate;
use serde_json::json;

/// The loop.
pub const LOOP: Loop = Loop { name: "default-scheduler", root: "pods", concerns, plan };

/// A pod that waits for a node, or all that wait when something changed that could help: a node, or a pod that went away.
fn concerns(world: &World, row: &Row) -> Vec<Key> {
    match row.key.resource.0 {
        "pods" if waits_for_node(row) => vec![row.key.clone()],
        "pods" if frees_room(world, row) => waiting(world),
        "pods" => world.minding().filter(|row| waits_for_node(row)).map(|row| row.key.clone()).collect(),
        "nodes" | "persistentvolumeclaims" => waiting(world),
        _ => Vec::new(),
    }
}

fn waits_for_node(row: &Row) -> bool {
    row.pod().is_some_and(|pod| pod.node.is_none() && !pod.phase.is_terminal()) && !row.is_deleting()
}

/// A bound pod that is gone or has ended.
fn frees_room(world: &World, row: &Row) -> bool {
    let ended = |row: &Row| row.pod().is_some_and(|pod| pod.phase.is_terminal());
    row.pod().is_some_and(|pod| pod.node.is_some()) && world.get(&row.key).is_none_or(|now| ended(now))
}

fn waiting(world: &World) -> Vec<Key> {
    world.pods_on("").filter(|row| waits_for_node(row)).map(|row| row.key.clone()).collect()
}

/// Binds a pod to the best node that can take it, or says why none can.
fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::nothing();
    let Some(row) = world.get(key).filter(|row| waits_for_node(row)) else { return plan };
    if row.pod().is_some_and(|pod| &*pod.scheduler != LOOP.name) {
        plan.wait("another scheduler is responsible for it");
        return plan;
    }
    let pod = row.body();
    let gates = pod.items(&["spec", "schedulingGates"]);
    if !gates.is_empty() {
        hold_back(world, &pod, &mut plan, "SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates");
        return plan;
    }
    let candidates = nodes::candidates(world);
    if let Some(problem) = claims::problem(world, &pod) {
        let why = message::nowhere(candidates.len(), &problem);
        plan.event(row, EventType::Warning, "FailedScheduling", why.as_str());
        hold_back(world, &pod, &mut plan, "Unschedulable", &why);
        return plan;
    }
    let asks = filter::Asks::of(world, &pod, row, &candidates);
    let verdicts: Vec<Vec<filter::Refusal>> = candidates.iter().map(|node| filter::refusals(&asks, node)).collect();
    let fitting: Vec<&Candidate<'_>> =
        candidates.iter().zip(&verdicts).filter(|(_, refusals)| refusals.is_empty()).map(|(node, _)| node).collect();
    match score::best(&asks, &fitting, world.seed) {
        Some(node) => assign(row, node, &mut plan),
        None => {
            let why = message::unschedulable(&verdicts, pod.text(&["spec", "preemptionPolicy"]));
            plan.event(row, EventType::Warning, "FailedScheduling", why.as_str());
            hold_back(world, &pod, &mut plan, "Unschedulable", &why);
        }
    }
    plan
}

fn assign(row: &Row, node: &Candidate<'_>, plan: &mut Plan) {
    let name = &node.row.key.name;
    let bind = Verb::Bind { pod: row.key.clone(), uid: row.uid.clone(), node: name.clone() };
    plan.write(bind, format!("bound {} to node {name}", row.key.path()));
    let message = format!("Successfully assigned {} to {name}", row.key.path());
    plan.event(row, EventType::Normal, "Scheduled", message);
}

/// Writes the condition PodScheduled=False, unless it already says this. The event goes with the write.
fn hold_back(world: &World, pod: &Object, plan: &mut Plan, reason: &str, message: &str) {
    plan.wait(format!("{reason}: {message}"));
    let known = pod.items(&["status", "conditions"]).iter().find(|one| one["type"] == "PodScheduled");
    if known.is_some_and(|one| one["reason"] == reason && one["message"] == message) {
        plan.events.clear();
        return;
    }
    let since = known.filter(|one| one["status"] == "False").map(|one| one["lastTransitionTime"].clone());
    let condition = json!({
        "type": "PodScheduled", "status": "False", "reason": reason, "message": message,
        "observedGeneration": pod.generation(), "lastProbeTime": null,
        "lastTransitionTime": since.unwrap_or_else(|| time::rfc3339(world.now).into()),
    });
    let mut changed = pod.clone();
    let mut conditions = pod.items(&["status", "conditions"]).to_vec();
    conditions.retain(|one| one["type"] != "PodScheduled");
    conditions.push(condition);
    changed.set(&["status", "conditions"], conditions);
    plan.write(Verb::Status(changed), format!("said why {} is not scheduled", pod.name()));
}

#[cfg(test)]
mod tests;
