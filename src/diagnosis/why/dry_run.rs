//! Dry run of the loops: asks them for their next writes, passes these to the API server, and rolls them back.

use super::remedy::advice;
use super::{CauseLink, ControlPlaneState, ConvergenceState};
use crate::apiserver::create::PodTemplateCache;
use crate::apiserver::user::User;
use crate::controllers::garbage_collector;
use crate::object::{Key, Time};
use crate::reconcile::loops;
use crate::reconcile::stage_write::{StagingContext, stage_write};
use crate::runtime::contain::contain;
use crate::world::plan::SchedulingWait;
use crate::world::{Loop, Row, World};
use crate::{kubelet, network, scheduler};
use hashbrown::HashMap;
use std::sync::Arc;

/// Result for the loops of one object.
#[derive(Debug, Default)]
pub struct DryRunResult {
    /// Reasons for waiting.
    pub waits: Vec<String>,
    /// Next writes, described.
    pub due: Vec<String>,
    /// The refusal of a write, if any.
    pub refused: Option<String>,
    /// Time at which a loop plans again even if nothing changes.
    pub wake: Option<Time>,
    /// Changes that could make an unschedulable pod schedulable.
    pub scheduling_wait: Option<SchedulingWait>,
}

/// The loop that is responsible for an object: for a pod the scheduler until it has a node, and its kubelet after that.
pub fn responsible_loop(row: &Row) -> &'static str {
    let all = loops::all_loops();
    let of_root = all.iter().find(|each| each.root == row.key.resource.0).map(|each| each.name);
    match row.pod() {
        _ if row.is_deleting() && row.pod().is_none() && row.key.resource != "namespaces" => {
            garbage_collector::LOOP.name
        }
        Some(pod) if pod.node.is_none() => scheduler::LOOP.name,
        Some(_) => kubelet::LOOP.name,
        None => of_root.unwrap_or("apiserver"),
    }
}

/// Whether a loop depends only on objects. The others also depend on reports of machines or, as loops of nodes, on heartbeats, which only
/// the running control plane has. Loops of the network write nothing that could be refused.
fn goes_by_objects(each: &Loop) -> bool {
    each.reports.is_none() && each.root != "nodes" && !network::ALL.iter().any(|one| one.name == each.name)
}

/// Adds the writes of an object's loops that are refused, and the times at which the loops run again.
pub fn with_dry_run(world: &mut World, row: &Row, link: CauseLink, plane: &ControlPlaneState) -> CauseLink {
    let result = dry_run(world, &row.key);
    let link = CauseLink { wake: result.wake.or(link.wake), ..link };
    let pending = !result.due.is_empty();
    match result.refused {
        Some(message) => {
            let next = advice(world, row, &message, plane);
            CauseLink { error: Some(message), ..link }.stuck(next)
        }
        None if pending && link.state == ConvergenceState::Converged => CauseLink {
            state: ConvergenceState::Converging,
            seen: format!("{}; due: {}", link.seen, result.due[0]),
            ..link
        },
        None if link.state == ConvergenceState::Converging && pending => {
            CauseLink { seen: format!("{}; due: {}", link.seen, result.due[0]), ..link }
        }
        None => link,
    }
}

/// Runs the loops of an object's kind, and undoes their writes.
pub fn dry_run(world: &mut World, key: &Key) -> DryRunResult {
    let mut result = DryRunResult::default();
    for each in loops::all_loops().into_iter().filter(|each| each.root == key.resource.0 && goes_by_objects(each)) {
        dry_run_loop(world, each, key, &mut result);
    }
    result
}

/// The loops that the control plane leaves out and that can be asked here.
pub fn disabled_loops(plane: &ControlPlaneState) -> impl Iterator<Item = &'static Loop> {
    let is_out = |each: &&Loop| {
        plane.runs && plane.disabled_controllers.iter().any(|name| name == each.name) && goes_by_objects(each)
    };
    loops::all_loops().into_iter().filter(is_out)
}

/// Whether a loop has anything to write for an object.
pub fn is_due(world: &mut World, each: &'static Loop, key: &Key) -> bool {
    let mut result = DryRunResult::default();
    dry_run_loop(world, each, key, &mut result);
    !result.due.is_empty() || result.refused.is_some()
}

fn dry_run_loop(world: &mut World, each: &'static Loop, key: &Key, result: &mut DryRunResult) {
    let known = world.loop_memory.refusals.replace(each.name, key, None);
    // Refused once, a loop tries less, as it does when it runs.
    for _ in 0..2 {
        let plan = match contain(|| (each.plan)(world, key)) {
            Ok(plan) => plan,
            Err(panic) => {
                result.refused = Some(panic);
                break;
            }
        };
        let (mark, mut last) = (world.stage_mark(), HashMap::new());
        let (mut due, mut refused, mut template_cache) = (Vec::new(), None, PodTemplateCache::default());
        let user = Arc::new(User::component(each.name));
        for write in &plan.writes {
            let context = StagingContext {
                user: &user,
                inputs: None,
                last: &mut last,
                template_cache: Some(&mut template_cache),
                random: &mut || 7,
            };
            match stage_write(world, &write.verb, context) {
                Ok(()) => due.push(write.why.clone()),
                Err(status) => {
                    refused = Some(status.message);
                    break;
                }
            }
        }
        world.undo_to(mark);
        let Some(message) = refused else {
            result.due.extend(due);
            result.waits.extend(plan.waits);
            result.scheduling_wait = plan.scheduling_wait.or(result.scheduling_wait.take());
            result.wake = [result.wake, plan.wake].into_iter().flatten().min();
            if result.refused.is_some() && !result.due.is_empty() {
                result.refused = None;
            }
            break;
        };
        world.refuse(each.name, key, &message);
        result.refused = Some(message);
    }
    world.loop_memory.refusals.replace(each.name, key, known);
}
