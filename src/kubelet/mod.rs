//! The kubelet: plans the containers and the status of pods that are bound to this control plane's nodes.
//!
//! Knows: one pod at a time: its spec, its last status, and the machine's last report of it. From these it computes the
//! status to write, the attempts to commit, and the effects to carry out after the commit.
//! Never: keeps a state of its own (backoff follows from status and facts; plans write what the World remembers), starts a process, reads a
//! clock. Start reading at [`plan`]; [`pod_reader`] gathers the input, [`containers`] decides the actions, [`status`] computes the status.

mod actions;
mod address;
mod backoff;
mod builds;
mod command;
mod conditions;
mod container_status;
mod containers;
mod deadlines;
mod devices;
mod environment;
mod events;
mod eviction;
mod fields;
mod filesystem;
mod hooks;
mod hostname;
pub mod image;
mod image_files;
mod image_sources;
pub mod manifests;
mod message;
mod mirror;
mod phase;
mod pod;
mod pod_reader;
mod ports;
mod predicates;
mod probes;
mod resize;
mod resources;
mod restart_all;
mod restart_policy;
mod security;
mod simulated_pod;
mod start;
mod status;
mod sweep;
mod termination;
mod user;
mod volumes;

#[cfg(test)]
mod invariants_tests;
#[cfg(test)]
mod testing;

pub use eviction::REJECTED;
pub use probes::READY_AFTER;
pub use restart_policy::restart_decision_from_object;

use crate::object::Key;
use crate::world::{AppliedReport, Loop, NodeFacts, Phase, Plan, Row, World};
use pod::LocalPod;

/// The kubelet's loop.
pub const LOOP: Loop = Loop { name: "kubelet", root: "pods", concerns, plan, reports: Some(reports), ..Loop::BASE };

/// The loop of nodes that run out of something.
pub const PRESSURE: Loop = eviction::LOOP;

/// The loop of the watched files of images.
pub const IMAGES: Loop = image_files::LOOP;

/// Reports about a pod make it due; one about its usage only when an event about throttling is due. A digest of watched files makes the
/// pods of the image due, which may wait for it.
fn reports(world: &World, report: &AppliedReport) -> Vec<Key> {
    match report {
        AppliedReport::Pod(key) => vec![key.clone()],
        AppliedReport::Usage(key) => {
            let is_told = world.facts.pods.named(key).any(|(_, pod)| pod.needs_throttling_report());
            is_told.then(|| key.clone()).into_iter().collect()
        }
        AppliedReport::Image(key) => world.get(key).map(|row| concerns(world, row)).unwrap_or_default(),
        _ => Vec::new(),
    }
}

/// The pods that a row concerns: a pod itself; for a ConfigMap or a Secret, the pods of its namespace that are not ready, which may wait
/// for it, and the pods that follow it; for a claim or an Image object, the pods that may wait for it.
fn concerns(world: &World, row: &Row) -> Vec<Key> {
    match row.key.resource.0 {
        "pods" => vec![row.key.clone()],
        "configmaps" | "secrets" => {
            let minds = |pod: &Row| {
                let fields = pod.pod().filter(|fields| !fields.phase.is_terminal());
                fields.is_some_and(|fields| !fields.ready || fields.followed_objects.contains(&row.key.name))
            };
            let pods = world.list_in("pods", &row.key.namespace);
            pods.filter(|pod| is_ours(world, pod) && minds(pod)).map(|pod| pod.key.clone()).collect()
        }
        crate::kinds::image::RESOURCE => image::concerns(world, row),
        "persistentvolumeclaims" | crate::world::devices::CLAIMS => {
            let waits = |pod: &Row| pod.pod().is_some_and(|fields| !fields.ready && !fields.phase.is_terminal());
            let pods = world.list_in("pods", &row.key.namespace);
            pods.filter(|pod| waits(pod) && is_ours(world, pod)).map(|pod| pod.key.clone()).collect()
        }
        _ => Vec::new(),
    }
}

/// Plans the pod of this name, and the remains of earlier pods of this name on the machine.
fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    if !world.facts.inventory_complete {
        plan.wait("waiting for the runtime to report the running containers");
        return plan;
    }
    sweep::plan(world, key, &mut plan);
    if let Some(hash) = mirror::hash(world, key) {
        mirror::plan(world, key, &hash, run, &mut plan);
        plan.is_settled = false;
    } else if let Some((row, node)) = bound_to_us(world, key) {
        run(world, row, node, &mut plan);
    }
    plan
}

/// Whether a simulated pod does something that ends by itself. No machine runs it.
pub fn has_simulated_work(world: &World, row: &Row) -> bool {
    let runs = row.pod().is_some_and(|pod| pod.phase == Phase::Running) && !row.is_deleting();
    let bound = bound_to_us(world, &row.key).filter(|(_, node)| runs && node.is_simulated);
    bound
        .and_then(|(row, node)| LocalPod::read(world, row, node))
        .is_some_and(|pod| simulated_pod::next_wake(&pod).is_some())
}

/// Plans one local pod.
fn run(world: &World, row: &Row, node: &NodeFacts, plan: &mut Plan) {
    if is_at_rest(world, row) {
        return;
    }
    let Some(pod) = LocalPod::read(world, row, node) else { return plan.wait("the pod cannot be read") };
    let order = containers::decide(&pod);
    let status = status::build(&pod, &order);
    events::add_transition_events(&pod, &order, &status, plan);
    status::write(&pod, status, &order, plan);
    let changes_nothing = order.keeps_all();
    containers::carry_out(order, &pod, plan);
    termination::finish(&pod, plan);
    // Such a plan only writes the machine's reports to the status. It is not settled if it needs its own write: deadlines count from the
    // stored start time, and volumes show the stored annotations.
    let is_passive = plan.effects.is_empty() && plan.memory.is_empty() && plan.waits.is_empty();
    let has_new_deadline = pod.status.start_time.is_none() && pod.spec.active_deadline_seconds.is_some();
    let reads_the_write = has_new_deadline || volumes::show_annotations(&pod);
    plan.is_settled = changes_nothing && is_passive && !reads_the_write && !row.is_deleting();
}

/// Whether a pod has ended, has no running process, and has a status that shows both. Such a pod is not read again.
fn is_at_rest(world: &World, row: &Row) -> bool {
    let containers = world.facts.pods.get(&row.uid).into_iter().flat_map(|pod| pod.containers.values());
    let ended = row.pod().is_some_and(|pod| pod.phase.is_terminal() && !pod.shows_running);
    ended && !row.is_deleting() && containers.into_iter().all(|container| container.has_ended())
}

/// Whether a pod is bound to a node of this control plane.
fn is_ours(world: &World, pod: &Row) -> bool {
    pod.pod().and_then(|pod| pod.node.as_ref()).is_some_and(|node| world.facts.runs_node(node))
}

/// Returns a pod and its node, if the node belongs to this control plane.
fn bound_to_us<'a>(world: &'a World, key: &Key) -> Option<(&'a Row, &'a NodeFacts)> {
    let row = world.get(key)?;
    let node = world.facts.nodes.get(row.pod()?.node.as_ref()?)?;
    node.ours.then_some((row, node))
}
