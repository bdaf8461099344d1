//! Workloads, and everything else that has a status of counts and conditions.

use super::dry_run::{dry_run, with_dry_run};
use super::remedy::{advice, in_namespace};
use super::{CauseLink, ControlPlaneState, ConvergenceState, name};
use crate::controllers::job;
use crate::controllers::revisions::REVISION_HASH;
use crate::diagnosis::convergence;
use crate::kinds::deployment::DEADLINE_EXCEEDED;
use crate::object::{Object, Str, format_count};
use crate::world::{Phase, Row, World};
use std::sync::Arc;

/// Count fields of workload statuses, and their names for users.
const COUNTS: [(&str, &str); 8] = [
    ("replicas", "pods"),
    ("currentNumberScheduled", "pods"),
    ("updatedReplicas", "updated"),
    ("updatedNumberScheduled", "updated"),
    ("readyReplicas", "ready"),
    ("numberReady", "ready"),
    ("availableReplicas", "available"),
    ("numberAvailable", "available"),
];

/// The link of a workload, or of an object that only has to be there.
pub fn link(world: &mut World, row: &Row, plane: &ControlPlaneState) -> CauseLink {
    let object = row.object();
    let link =
        CauseLink { wanted: desired_text(row, &object), seen: observed_text(row, &object), ..CauseLink::from_row(row) };
    // Running time is unknown on simulated nodes, so there it is enough that the Job runs.
    let runs = row.key.resource == "jobs.batch" && !plane.is_preview && convergence::job_runs(&object);
    let missing = runs || convergence::missing_of(row.key.resource, &object).is_some();
    let link =
        CauseLink { state: if missing { ConvergenceState::Converging } else { ConvergenceState::Converged }, ..link };
    let link = with_dry_run(world, row, link, plane);
    let link = explain_schedule(world, row, &object, link);
    let link = add_outdated_pods(world, row, &object, link);
    let link = explain_old_replica_set(world, row, link);
    let link = explain_user_decision(world, row, &object, link);
    explain_refusal(world, row, &object, link, plane)
}

/// Describes when a CronJob starts its next Job, or why it does not.
fn explain_schedule(world: &mut World, row: &Row, object: &Object, link: CauseLink) -> CauseLink {
    if row.key.resource != "cronjobs.batch" || is_true(object, "suspend") || link.state != ConvergenceState::Converged {
        return link;
    }
    let waits = dry_run(world, &row.key).waits;
    let running = object.items(&["status", "active"]).len();
    let seen = if running == 0 { waits.join("; ") } else { format!("{running} running; {}", waits.join("; ")) };
    CauseLink { seen, ..link }
}

/// The ReplicaSet that has the Deployment's template; the newest while there is none.
pub fn newest_set(world: &World, deployment: &Row) -> Option<Arc<Row>> {
    let template = deployment.workload().map(|fields| fields.template);
    let sets: Vec<&Arc<Row>> = world.controlled("replicasets.apps", &deployment.uid).collect();
    let new = sets.iter().find(|set| set.workload().map(|fields| fields.template) == template);
    new.or_else(|| sets.iter().max_by_key(|set| set.created)).map(|set| (*set).clone())
}

fn desired_text(row: &Row, object: &Object) -> String {
    let replicas = object.int(&["spec", "replicas"]).unwrap_or(1);
    match row.key.resource.0 {
        "deployments.apps" if is_true(object, "paused") => {
            format!("{replicas} available, of any template while it is paused")
        }
        "deployments.apps" => format!("{replicas} updated and available"),
        "statefulsets.apps" | "daemonsets.apps" if convergence::updates_on_delete(object) => {
            format!("{} available", count_daemons(row, object).unwrap_or(replicas))
        }
        "statefulsets.apps" => match convergence::updates_due(object, replicas) {
            Some(due) if due < replicas => format!("{due} updated (partition), {replicas} available"),
            _ => format!("{replicas} updated and available"),
        },
        "replicasets.apps" | "replicationcontrollers" => format!("{replicas} ready"),
        "daemonsets.apps" => format!("{} updated and available", count_daemons(row, object).unwrap_or(0)),
        "jobs.batch" => match object.int(&["spec", "completions"]) {
            Some(completions) => format_count(completions, "completion"),
            None => "a completion".into(),
        },
        "cronjobs.batch" => format!("a Job at {}", object.text(&["spec", "schedule"]).unwrap_or_default()),
        _ => "exists".into(),
    }
}

/// Whether a boolean field of its spec is true.
fn is_true(object: &Object, field: &str) -> bool {
    object.value_at(&["spec", field]).is_some_and(|value| value == true)
}

/// Whether a ReplicaSet has the current template of its Deployment.
fn has_template_of(set: &Row, deployment: &Row) -> bool {
    set.workload().map(|fields| fields.template) == deployment.workload().map(|fields| fields.template)
}

/// Notes that a ReplicaSet has an older template than its Deployment.
fn explain_old_replica_set(world: &World, row: &Row, link: CauseLink) -> CauseLink {
    let owner = row.controller().and_then(|owner| world.by_uid(&owner.uid));
    let owner = owner.filter(|owner| owner.key.resource == "deployments.apps" && !has_template_of(row, owner));
    match owner {
        None => link,
        Some(owner) => {
            CauseLink { seen: format!("{}, of an older template than {} has now", link.seen, name(&owner.key)), ..link }
        }
    }
}

/// Number of pods that a DaemonSet should have.
fn count_daemons(row: &Row, object: &Object) -> Option<i64> {
    let wanted = || object.int(&["status", "desiredNumberScheduled"]).unwrap_or(0);
    (row.key.resource == "daemonsets.apps").then(wanted)
}

/// The pods that keep an older template until a user deletes them; no controller replaces them.
fn add_outdated_pods(world: &World, row: &Row, object: &Object, mut link: CauseLink) -> CauseLink {
    if !convergence::updates_on_delete(object) {
        return link;
    }
    let revisions = world.controlled("controllerrevisions.apps", &row.uid).map(|revision| revision.object());
    let newest = revisions.max_by_key(|revision| revision.int(&["revision"]));
    let Some(newest) = newest else { return link };
    let pods = world.controlled("pods", &row.uid).filter(|pod| !pod.is_deleting());
    // A StatefulSet labels its pods with the whole name of the revision, a DaemonSet with the hash at its end.
    let is_old = |pod: &&Arc<Row>| pod.label(REVISION_HASH).is_some_and(|of| !newest.name().ends_with(of));
    let mut old: Vec<&str> = pods.filter(is_old).map(|pod| &*pod.key.name).collect();
    old.sort();
    if let Some(first) = old.first() {
        let namespace_flag = in_namespace(&row.key);
        let all = if old.len() == 1 { "1 pod has".to_owned() } else { format!("{} pods have", old.len()) };
        link.more.push(format!(
            "{all} an older template (OnDelete); to update one: kloop delete pod {first}{namespace_flag}"
        ));
    }
    link
}

fn observed_text(row: &Row, object: &Object) -> String {
    let count = |field: &str| object.int(&["status", field]).unwrap_or(0);
    match row.key.resource.0 {
        "jobs.batch" => {
            let suspended = if is_true(object, "suspend") { "suspended; " } else { "" };
            let [active, succeeded, failed] = ["active", "succeeded", "failed"].map(count);
            format!("{suspended}{active} active, {succeeded} succeeded, {failed} failed")
        }
        "deployments.apps"
        | "statefulsets.apps"
        | "replicasets.apps"
        | "replicationcontrollers"
        | "daemonsets.apps" => {
            let is_daemon_set = row.key.resource == "daemonsets.apps";
            let has_update = !matches!(row.key.resource.0, "replicasets.apps" | "replicationcontrollers");
            let shown = COUNTS.iter().filter(|(field, word)| {
                (field.to_lowercase().contains("number") == is_daemon_set) && (has_update || *word != "updated")
            });
            let told = |(field, word): &(&str, &str)| match count(field) {
                count if *word == "pods" => format_count(count, "pod"),
                count => format!("{count} {word}"),
            };
            shown.map(told).collect::<Vec<_>>().join(", ")
        }
        "resourcequotas" => {
            let used = |resource: &str| object.text(&["status", "used", resource]).unwrap_or("0").to_owned();
            let hard = object.pairs(&["status", "hard"]);
            let told: Vec<String> = hard.map(|(name, most)| format!("{name} {} of {most}", used(name))).collect();
            if told.is_empty() { "nothing is counted yet".into() } else { told.join(", ") }
        }
        "cronjobs.batch" if is_true(object, "suspend") => "suspended".into(),
        _ => "exists".into(),
    }
}

/// Explains a state that only a user can change: a pause, a deadline, a failed Job.
fn explain_user_decision(world: &World, row: &Row, object: &Object, link: CauseLink) -> CauseLink {
    let namespace_flag = in_namespace(&row.key);
    let (kind, me) = (row.key.resource.0, name(&row.key));
    if kind == "deployments.apps"
        && is_true(object, "paused")
        && !newest_set(world, row).is_some_and(|set| has_template_of(&set, row))
    {
        let seen = format!("paused: its newest template is not rolled out; {}", link.seen);
        return CauseLink { seen, ..link }.stuck(format!("kloop rollout resume {me}{namespace_flag}"));
    }
    if let Some(manager) = job::foreign_manager(object).filter(|_| kind == "jobs.batch")
        && link.state != ConvergenceState::Converged
    {
        if object.value_at(&["status", "startTime"]).is_some() {
            return CauseLink { next: Some(format!("wait, the controller {manager} runs it")), ..link };
        }
        let error = format!("spec.managedBy leaves this Job to the controller {manager}");
        let next = format!("run {manager}, or delete the Job and apply it without spec.managedBy");
        return CauseLink { error: Some(error), ..link }.stuck(next);
    }
    let conditions = object.items(&["status", "conditions"]);
    let has = |kind: &str, reason: &str| {
        conditions.iter().find(|one| one["type"] == kind && (reason.is_empty() || one["reason"] == reason))
    };
    if let Some(late) = has("Progressing", DEADLINE_EXCEEDED) {
        let error = late["message"].as_str().unwrap_or("the progress deadline is exceeded").to_owned();
        let next = format!("correct the template and apply it again, or: kloop rollout undo {me}{namespace_flag}");
        return CauseLink { error: Some(error), ..link }.stuck(next);
    }
    if let Some(failed) = has("Failed", "").filter(|one| one["status"] == "True" && kind == "jobs.batch") {
        let text = |field: &str| failed[field].as_str().unwrap_or_default();
        let error = format!("{}: {}", text("reason"), text("message"));
        let next = format!("read its pods' logs (kloop logs {me}{namespace_flag}), then delete it and apply it again");
        return CauseLink { error: Some(error), log: failed_pod(world, row).map(|(_, log)| log), ..link }.stuck(next);
    }
    if kind == "jobs.batch"
        && link.state == ConvergenceState::Converging
        && let Some((pod, log)) = failed_pod(world, row)
    {
        let next =
            format!("wait for its next attempt, or read the log of a failed one: kloop logs {pod}{namespace_flag}");
        return CauseLink { log: Some(log), next: link.next.or(Some(next)), ..link };
    }
    link
}

/// Returns the newest failed pod of a Job by name, and the log of its first container.
fn failed_pod(world: &World, job: &Row) -> Option<(String, (Str, String))> {
    let failed = |pod: &&Arc<Row>| pod.pod().is_some_and(|fields| fields.phase == Phase::Failed);
    let pod = world.controlled("pods", &job.uid).filter(failed).max_by_key(|pod| pod.created)?;
    let container = pod.body().items(&["spec", "containers"]).first()?["name"].as_str()?.to_owned();
    Some((name(&pod.key), (pod.uid.clone(), container)))
}

/// Explains a refusal that the status reports.
fn explain_refusal(world: &World, row: &Row, object: &Object, link: CauseLink, plane: &ControlPlaneState) -> CauseLink {
    let message = object.true_condition("ReplicaFailure").and_then(|one| one["message"].as_str());
    match message {
        Some(message) if link.state != ConvergenceState::Converged && link.error.is_none() => {
            CauseLink { error: Some(message.to_owned()), ..link }.stuck(advice(world, row, message, plane))
        }
        _ => link,
    }
}
