//! The scheduler: selects a node for each pod.
//!
//! Knows: the plugins that refuse nodes ([`filter`]) and that rank the rest ([`score`]), with Kubernetes' weights and messages, and
//! preemption of pods by more important ones ([`preemption`]).
//! Writes the binding, the condition PodScheduled with the nominated node, the claims and volumes that it binds with the pod, and the
//! condition DisruptionTarget and the deletion of preempted pods. Never: orders anything of the machine.
//! Start reading at [`plan`].

mod affinity;
pub mod config;
mod devices;
pub mod explain;
mod filter;
mod images;
mod inter_pod_affinity;
mod message;
mod node_results;
mod nodes;
mod pod_constraints;
mod preemption;
pub mod queueing_hints;
mod ranked_node;
mod score;
mod spread;
mod volume_limits;
mod volumes;

use crate::object::{Key, Object, Str, Time, time};
use crate::world::scheduler_profile::SchedulerProfile;
use crate::world::{EventType, Loop, Plan, Row, World, WriteVerb};
use filter::PodQuery;
use node_results::{FITS, NodeResultCache};
use pod_constraints::PodConstraints;
use preemption::{PreemptionChoice, PreemptionOutcome, Preemptor};
use ranked_node::RankedNode;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use volumes::PodStorage;

/// The loop.
pub const LOOP: Loop = Loop {
    name: "default-scheduler",
    root: "pods",
    concerns,
    plan,
    wait_filter: Some(&queueing_hints::WAIT_FILTER),
    ..Loop::BASE
};

/// A pod that waits for a node. Which other changes could help it is known by [`queueing_hints`].
fn concerns(_: &World, row: &Row) -> Vec<Key> {
    if row.key.resource == "pods" && waits_for_node(row) { vec![row.key.clone()] } else { Vec::new() }
}

fn waits_for_node(row: &Row) -> bool {
    row.pod().is_some_and(|pod| pod.node.is_none() && !pod.phase.is_terminal()) && !row.is_deleting()
}

/// Binds a pod to the best node that can take it, or records why none can.
fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(row) = world.get(key).filter(|row| waits_for_node(row)) else { return plan };
    let Some(profile) = profile_of(world, row) else {
        plan.wait("no profile of this scheduler has its schedulerName: another scheduler is responsible for it");
        return plan;
    };
    let constraints = PodConstraints::from_pod(world, row);
    if !constraints.pod.items(&["spec", "schedulingGates"]).is_empty() {
        let message = "Scheduling is blocked due to non-empty scheduling gates";
        record_unschedulable(world, row, &mut plan, &Unschedulable { reason: GATED, message, nominated: None });
        return plan;
    }
    if let Err(why) = crate::world::devices::used_by_pod(world, row) {
        // Kubernetes does not even queue the pod (`DynamicResources.PreEnqueue`): it gets neither condition nor event.
        plan.scheduling_wait =
            Some(queueing_hints::build_wait(row, &constraints, BTreeSet::from([devices::PLUGIN]), None));
        plan.wait(format!("Unschedulable: {why}"));
        return plan;
    }
    let query = PodQuery::from_pod(world, row, &constraints);
    if let Some((plugin, problem)) = query.refusal_everywhere() {
        let why = message::unschedulable_everywhere(nodes::count(world), problem);
        plan.scheduling_wait = Some(queueing_hints::build_wait(row, &constraints, BTreeSet::from([plugin]), None));
        record_unschedulable(
            world,
            row,
            &mut plan,
            &Unschedulable { reason: "Unschedulable", message: &why, nominated: None },
        );
        return plan;
    }
    if let Some(until) = query.devices.as_ref().ok().and_then(|devices| devices.awaited_until(row)) {
        let node = query.fields.nominated.clone();
        wait_for_devices(&query, node.as_ref(), until, &mut plan);
        return plan;
    }
    NodeResultCache::with_results(&query, |node_results| place(&query, node_results, profile, &mut plan));
    plan
}

/// Binds a pod to the best node, or preempts other pods for it, or records why it has to wait.
fn place(query: &PodQuery<'_>, node_results: &mut NodeResultCache, profile: &SchedulerProfile, plan: &mut Plan) {
    let PodQuery { world, row, constraints, .. } = *query;
    let mut results = find_fitting_nodes(query, node_results, nodes_to_find(profile, nodes::count(world)));
    if let Some(error) = results.failed.and_then(|verdict| node_results.error(verdict)) {
        // Without a wait for certain changes, any change lets the pod be tried again.
        let message = &format!("running {:?} filter plugin: {}", error.plugin, error.reason);
        let held = Unschedulable { reason: SCHEDULER_ERROR, message, nominated: None };
        return record_unschedulable(world, row, plan, &held);
    }
    if !results.fit.is_empty() {
        let best = score::best(query, &mut results.fit, world.seed).and_then(|slot| world.node_cache().get(slot));
        best.into_iter().for_each(|node| assign(query, &node.row, plan));
        node_results.last_results = results;
        return;
    }
    let outcome = profile.preempts.then(|| Preemptor { query, verdicts: &results.verdicts }.preempt(node_results));
    let refusal_counts = node_results.refusal_counts(&results.verdicts);
    let nominated = match &outcome {
        Some(PreemptionOutcome::Victims(choice)) => Some(&choice.node.key.name),
        Some(PreemptionOutcome::UnderWay) => query.fields.nominated.as_ref(),
        _ => None,
    };
    plan.scheduling_wait = Some(queueing_hints::build_wait(row, constraints, refusal_counts.plugins(), nominated));
    let deallocation = match &outcome {
        Some(PreemptionOutcome::Nothing(_)) if refusal_counts.plugins().contains(devices::PLUGIN) => {
            let nodes = (0..nodes::count(world)).filter_map(|slot| world.node_cache().get(slot)).map(|node| &*node.row);
            query.devices.as_ref().ok().and_then(|devices| devices.deallocation(row, nodes))
        }
        _ => None,
    };
    let claims = match &deallocation {
        Some(_) => "deallocation of ResourceClaim completed",
        None if query.has_devices() => "still not schedulable",
        None => "no new claims to deallocate",
    };
    if let Some((verb, why)) = deallocation {
        plan.write(verb, why);
    }
    let mut wait = |why_not: Option<&str>, nominated: Option<&str>| {
        let message = &message::unschedulable(&refusal_counts, claims, why_not);
        record_unschedulable(world, row, plan, &Unschedulable { reason: "Unschedulable", message, nominated });
    };
    match outcome {
        None => wait(None, None),
        Some(PreemptionOutcome::UnderWay) => plan.wait("the pods that it preempts have not ended yet"),
        Some(PreemptionOutcome::Nothing(why)) => wait(Some(&why), None),
        Some(PreemptionOutcome::Victims(choice)) => {
            wait(None, Some(&*choice.node.key.name));
            preempt_victims(world, row, &choice, plan);
        }
    }
    node_results.last_results = results;
}

/// Returns the profile of a pod's `schedulerName`; `None` when another scheduler is responsible.
pub fn profile_of<'a>(world: &'a World, row: &Row) -> Option<&'a SchedulerProfile> {
    let name = row.pod().map(|pod| &pod.scheduler);
    world.settings.profiles.iter().find(|profile| Some(&profile.name) == name)
}

/// In a cluster with fewer nodes than this, every node is filtered. In a larger one, filtering stops after at least this many feasible
/// nodes (Kubernetes: `minFeasibleNodesToFind`).
const MIN_FEASIBLE_NODES: usize = 100;

/// Returns the number of feasible nodes after which filtering stops. Their percentage falls as the cluster grows
/// (Kubernetes: `numFeasibleNodesToFind`).
fn nodes_to_find(profile: &SchedulerProfile, nodes: usize) -> usize {
    let percentage = match profile.percentage {
        0 => 50usize.saturating_sub(nodes / 125).max(5),
        given => given,
    };
    if nodes < MIN_FEASIBLE_NODES { nodes } else { (nodes * percentage / 100).max(MIN_FEASIBLE_NODES) }
}

/// Results of filtering all nodes for a pod.
#[derive(Default)]
struct FilterResults {
    /// As many nodes that can take it as are to be ranked.
    fit: Vec<RankedNode>,
    /// When there are none, the number of each node's verdict.
    verdicts: Vec<usize>,
    /// The number of a verdict with an error, which ends the attempt.
    failed: Option<usize>,
}

/// Filters nodes until `wanted` fit: only the nominated node when it fits, else the nodes that the pod names, else all nodes, from a
/// different start each time.
fn find_fitting_nodes(query: &PodQuery<'_>, node_results: &mut NodeResultCache, wanted: usize) -> FilterResults {
    let PodQuery { world, constraints, .. } = *query;
    let count = nodes::count(world);
    // Reuses the buffers of the previous pod; they have one entry per node.
    let mut results = std::mem::take(&mut node_results.last_results);
    results.fit.clear();
    results.failed = None;
    results.verdicts.resize(count, FITS);
    let mut evaluate = |slot: usize| {
        let (verdict, raw_scores) = node_results.verdict(query, slot);
        results.verdicts[slot] = verdict;
        if verdict == FITS {
            results.fit.push(RankedNode::new(slot, raw_scores));
        } else if results.failed.is_none() && node_results.error(verdict).is_some() {
            results.failed = Some(verdict);
        }
        results.fit.len()
    };
    let nominated = query.fields.nominated.as_ref().and_then(|node| world.slot_of(node));
    if nominated.is_some_and(|slot| evaluate(slot) > 0) {
        return results;
    }
    let named: Vec<usize> = constraints.named.iter().flatten().filter_map(|node| world.slot_of(node)).collect();
    let first = if count < MIN_FEASIBLE_NODES { 0 } else { (world.seed >> 16) as usize % count };
    let others = (first..count).chain(0..first).filter(|slot| !named.contains(slot));
    let mut fit = 0;
    for (number, slot) in named.iter().copied().chain(others).enumerate() {
        if fit >= wanted || (number >= named.len() && !named.is_empty() && fit > 0) {
            break;
        }
        fit = evaluate(slot);
    }
    results
}

fn assign(query: &PodQuery<'_>, node: &Row, plan: &mut Plan) {
    let (row, name) = (query.row, &node.key.name);
    let for_devices = query.devices.as_ref().map_or(Vec::new(), |devices| devices.claim_writes(row, node));
    let waits_for_devices = query.devices.as_ref().is_ok_and(|devices| devices.has_to_wait(&for_devices));
    let waits_for_volumes = query.storage.as_ref().is_ok_and(PodStorage::has_to_wait);
    let for_storage = query.storage.iter().flat_map(|storage| storage.claim_writes(node));
    let writes: Vec<(WriteVerb, String)> = for_storage.chain(for_devices).collect();
    if waits_for_devices || waits_for_volumes {
        reserve(query, name, writes, plan);
        if !waits_for_devices {
            return wait_for_volumes(query, name, plan);
        }
        let message = format!("waiting for binding conditions for device on node {name}");
        plan.event(row, EventType::Normal, "BindingConditionsPending", message);
        return wait_for_devices(query, Some(name), None, plan);
    }
    for (verb, why) in writes {
        plan.write(verb, why);
    }
    let bind = WriteVerb::Bind { pod: row.key.clone(), uid: row.uid.clone(), node: name.clone() };
    plan.write(bind, format!("bound {} to node {name}", row.key.path()));
    let message = format!("Successfully assigned {} to {name}", row.key.path());
    plan.event(row, EventType::Normal, "Scheduled", message);
}

/// Writes the claims of a pod for a node and nominates the pod there, without binding it: its devices have to be made
/// ready first, or its claims bound.
fn reserve(query: &PodQuery<'_>, node: &Str, mut writes: Vec<(WriteVerb, String)>, plan: &mut Plan) {
    let row = query.row;
    let nominate = |pod: &mut Object| pod.set(&["status", "nominatedNodeName"], &**node);
    let own = writes.iter_mut().find_map(|(verb, _)| match verb {
        WriteVerb::Status(status) if status.kind() == "Pod" => Some(status),
        _ => None,
    });
    if let Some(status) = own {
        nominate(status);
    } else if query.fields.nominated.as_ref() != Some(node) {
        let mut status = row.body().status_alone();
        nominate(&mut status);
        writes.push((WriteVerb::Status(status), format!("{} waits for its claims on node {node}", row.key.name)));
    }
    writes.into_iter().for_each(|(verb, why)| plan.write(verb, why));
}

/// Waits until the claims of a pod are bound.
fn wait_for_volumes(query: &PodQuery<'_>, node: &Str, plan: &mut Plan) {
    let claims = query.storage.as_ref().map(PodStorage::unbound_claims).unwrap_or_default().join(", ");
    plan.wait(format!("waiting for the claims {claims} to be bound on node {node}"));
    let causes = BTreeSet::from([volumes::BINDING]);
    plan.scheduling_wait = Some(queueing_hints::build_wait(query.row, query.constraints, causes, Some(node)));
}

/// Waits for the binding conditions of a pod's devices, until this moment if there is one.
fn wait_for_devices(query: &PodQuery<'_>, node: Option<&Str>, until: Option<Time>, plan: &mut Plan) {
    let place = node.map(|node| format!(" on node {node}")).unwrap_or_default();
    plan.wait(format!(
        "waiting for binding conditions for device{place}: the device's driver has to report them in the claim"
    ));
    let causes = BTreeSet::from([devices::PLUGIN]);
    plan.scheduling_wait = Some(queueing_hints::build_wait(query.row, query.constraints, causes, node));
    until.into_iter().for_each(|until| plan.wake_at(until));
}

/// The reason of a pod with scheduling gates.
const GATED: &str = "SchedulingGated";

/// The reason of a pod whose attempt ended with an error.
const SCHEDULER_ERROR: &str = "SchedulerError";

/// Why a pod is not bound.
struct Unschedulable<'a> {
    reason: &'static str,
    message: &'a str,
    /// The nominated node, from which other pods are removed for this pod.
    nominated: Option<&'a str>,
}

/// Writes the condition PodScheduled=False and the nominated node, and records the event, unless the pod has them already.
fn record_unschedulable(world: &World, row: &Row, plan: &mut Plan, held: &Unschedulable<'_>) {
    let Unschedulable { reason, message, nominated } = *held;
    plan.wait(format!("{reason}: {message}"));
    let pod = row.body();
    let known = pod.condition("PodScheduled");
    let is_told = known.is_some_and(|one| one["reason"] == reason && one["message"] == message);
    if is_told && pod.text(&["status", "nominatedNodeName"]) == nominated {
        return;
    }
    if !is_told && reason != GATED {
        plan.event(row, EventType::Warning, "FailedScheduling", message);
    }
    let mut changed = pod.status_alone();
    changed.set_condition(json!({
        "type": "PodScheduled", "status": "False", "reason": reason, "message": message,
        "observedGeneration": pod.generation(), "lastProbeTime": null, "lastTransitionTime": time::rfc3339(world.now),
    }));
    match nominated {
        Some(node) => changed.set(&["status", "nominatedNodeName"], node),
        None => drop(changed.unset(&["status", "nominatedNodeName"])),
    }
    plan.write(WriteVerb::Status(changed), format!("said why {} is not scheduled", row.key.name));
}

/// Deletes the victims, and clears the nominations of less important pods for the same node.
fn preempt_victims(world: &World, row: &Row, choice: &PreemptionChoice<'_>, plan: &mut Plan) {
    let (node, own) = (&choice.node.key.name, row.pod().map_or(0, |fields| fields.priority));
    for victim in choice.victims.pods.iter().filter(|victim| !victim.is_deleting()) {
        plan.write(WriteVerb::Status(with_disruption_target(world, victim, row)), "it is about to be preempted");
        plan.delete(victim, format!("preempted {} for {}", victim.key.path(), row.key.path()));
        plan.event(victim, EventType::Normal, "Preempted", format!("Preempted by pod {} on node {node}", row.uid));
    }
    let loses = |other: &&Arc<Row>| other.key != row.key && other.pod().is_some_and(|pod| pod.priority < own);
    for other in world.pods_nominated_to(node).filter(loses) {
        let mut changed = other.body().status_alone();
        changed.unset(&["status", "nominatedNodeName"]);
        plan.write(WriteVerb::Status(changed), format!("node {node} is promised to a more important pod"));
    }
}

/// The victim's status with the condition DisruptionTarget (KEP-3329).
fn with_disruption_target(world: &World, victim: &Row, row: &Row) -> Object {
    let scheduler = row.pod().map_or(LOOP.name, |pod| &*pod.scheduler);
    let mut changed = victim.body().status_alone();
    changed.set_condition(json!({
        "type": "DisruptionTarget", "status": "True", "reason": preemption::REASON,
        "message": format!("{scheduler}: preempting to accommodate a higher priority pod"),
        "observedGeneration": victim.generation, "lastProbeTime": null, "lastTransitionTime": time::rfc3339(world.now),
    }));
    changed
}

#[cfg(test)]
mod tests;
