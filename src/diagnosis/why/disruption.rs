//! PodDisruptionBudgets: how many of their pods may be evicted now, and which unhealthy pods block more evictions.

use super::dry_run::with_dry_run;
use super::relations::owners;
use super::remedy::in_namespace;
use super::{CauseLink, ControlPlaneState, ConvergenceState, name};
use crate::object::{Object, scalar_text};
use crate::world::{Row, World};
use std::sync::Arc;

/// The resource of PodDisruptionBudgets.
pub const ROOT: &str = "poddisruptionbudgets.policy";

/// The field of a lower bound; the other field is `maxUnavailable`.
const MINIMUM: &str = "minAvailable";

/// Maximum number of blocking pods to name.
const MAX_NAMED_PODS: usize = 5;

/// The link of a budget.
pub fn link(world: &mut World, row: &Row, plane: &ControlPlaneState) -> CauseLink {
    let object = row.object();
    let count = |field: &str| object.int(&["status", field]).unwrap_or(0);
    let (healthy, desired) = (count("currentHealthy"), count("desiredHealthy"));
    let (expected, allowed) = (count("expectedPods"), count("disruptionsAllowed"));
    let bound = bound(&object);
    let link = CauseLink { wanted: format!("{desired} healthy pods ({bound})"), ..CauseLink::from_row(row) };
    let failed = object.items(&["status", "conditions"]).iter().find(|one| one["reason"] == "SyncFailed");
    if let Some(failed) = failed {
        let error = failed["message"].as_str().unwrap_or_default().to_owned();
        let link = CauseLink { seen: "its pods cannot be counted, so that none may be evicted".into(), ..link };
        let next = format!("set minAvailable to a number of pods: {}", plane.correct(world, row));
        return CauseLink { error: Some(error), ..link }.stuck(next);
    }
    let pods = pods(world, row);
    if pods.is_empty() {
        let seen = "spec.selector matches no pods".to_owned();
        let next = format!("if it should match some, correct spec.selector: {}", plane.correct(world, row));
        return with_dry_run(world, row, CauseLink { seen, next: Some(next), ..link }, plane);
    }
    let going =
        object.value_at(&["status", "disruptedPods"]).and_then(|gone| gone.as_object()).map_or(0, |gone| gone.len());
    let going = if going == 0 { String::new() } else { format!(", {going} being evicted") };
    let seen = format!("{healthy} of {expected} pods are healthy{going}; {allowed} more may be evicted");
    let link = with_dry_run(world, row, CauseLink { seen, ..link }, plane);
    if allowed > 0 || link.state != ConvergenceState::Converged {
        return link;
    }
    if healthy < desired {
        let unready: Vec<_> = pods.iter().filter(|pod| !is_healthy(pod)).collect();
        let mut more: Vec<String> =
            unready.iter().take(MAX_NAMED_PODS).map(|pod| format!("{} is not ready", name(&pod.key))).collect();
        if unready.len() > MAX_NAMED_PODS {
            more.push(format!("and {} more are not", unready.len() - MAX_NAMED_PODS));
        }
        return CauseLink { state: ConvergenceState::Converging, more, ..link };
    }
    let is_minimum = bound.starts_with(MINIMUM);
    let scale = owner(world, &pods[0]).filter(|_| is_minimum).map(|owner| {
        let namespace_flag = in_namespace(&owner.key);
        format!("add a pod (kloop scale {}{namespace_flag} --replicas={}), or ", name(&owner.key), expected + 1)
    });
    let next = format!(
        "evictions, as by kloop drain, are refused until more than {desired} are healthy: {}{} {bound}: {}",
        scale.unwrap_or_default(),
        if is_minimum { "lower" } else { "raise" },
        plane.correct(world, row)
    );
    CauseLink { next: Some(next), ..link }
}

/// `minAvailable 2`, `maxUnavailable 25%`.
fn bound(object: &Object) -> String {
    let bound_text = |field: &str| {
        let value = object.value_at(&["spec", field])?;
        Some(format!("{field} {}", scalar_text(value)))
    };
    bound_text(MINIMUM).or_else(|| bound_text("maxUnavailable")).unwrap_or_else(|| "maxUnavailable 0".into())
}

/// The pods that a budget selects.
pub fn pods(world: &World, row: &Row) -> Vec<Arc<Row>> {
    let Some(fields) = row.workload() else { return Vec::new() };
    world.pods_matching(&row.key.namespace, &fields.selector).into_iter().cloned().collect()
}

/// The pods of a budget that are not healthy, so that others may not be evicted.
pub fn unhealthy(world: &World, row: &Row) -> Vec<Arc<Row>> {
    pods(world, row).into_iter().filter(|pod| !is_healthy(pod) && !pod.is_deleting()).collect()
}

fn is_healthy(pod: &Row) -> bool {
    pod.pod().is_some_and(|pod| pod.ready) && !pod.is_deleting()
}

/// Returns the owner that sets the number of pods.
fn owner(world: &World, pod: &Row) -> Option<Arc<Row>> {
    let top = owners(world, pod).into_iter().next()?;
    ["deployments.apps", "replicasets.apps", "statefulsets.apps", "replicationcontrollers"]
        .contains(&top.key.resource.0)
        .then_some(top)
}
