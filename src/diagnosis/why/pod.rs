//! Pods: whether they run.

use super::ended::known_end;
use super::last_activity::{last_event_with_reason, port_unavailable};
use super::relations::owners;
use super::remedy::in_namespace;
use super::{
    CauseLink, ControlPlaneState, ConvergenceState, StoppedProcess, UnreportedExit, name, placement, row_name,
};
use crate::kubelet;
use crate::object::{Object, time};
use crate::world::{Row, World};
use jiff::SignedDuration;
use serde_json::Value;

/// Time after the end of its grace period at which a deleted pod that still exists counts as late.
const DELETION_TIMEOUT: SignedDuration = SignedDuration::from_secs(60);

/// The link of a pod.
pub fn link(world: &mut World, row: &Row, plane: &ControlPlaneState) -> CauseLink {
    let object = row.object();
    let phase = object.text(&["status", "phase"]).unwrap_or("Pending");
    let runs_to_its_end = object.text(&["spec", "restartPolicy"]).is_some_and(|policy| policy != "Always");
    let wanted = if runs_to_its_end { "Running and Ready, or Succeeded" } else { "Running and Ready" };
    let is_ready = row.pod().is_some_and(|pod| pod.ready);
    let seen = if is_ready { format!("{phase} and Ready") } else { phase_text(&object, phase) };
    let link = CauseLink { wanted: wanted.into(), seen, ..CauseLink::from_row(row) };
    if let Some(StoppedProcess::Shim(pid)) = plane.halted.get(&row.uid) {
        let seen = format!("a signal has stopped its shim, process {pid}; its status is older and says {}", link.seen);
        return CauseLink { seen, ..link }.stuck(format!("kill -CONT {pid}"));
    }
    if row.is_deleting() {
        return explain_termination(world, row, link);
    }
    if let Some(lost) = plane.lost.get(&row.uid) {
        let what = match lost {
            UnreportedExit::All => "its processes are gone".to_owned(),
            UnreportedExit::Some(ended) => {
                let names: Vec<&str> = ended.keys().map(|name| &**name).collect();
                format!("the process of {} has ended", names.join(" and that of "))
            }
        };
        let seen = format!("{what}; its status is older and says {}", link.seen);
        return CauseLink { seen, state: ConvergenceState::Converging, ..link };
    }
    match phase {
        "Succeeded" => return link,
        "Failed" => return explain_failure(world, row, &object, link, plane),
        "Running" if is_ready => return add_denied_connections(world, row, link),
        _ => {}
    }
    let link = CauseLink { state: ConvergenceState::Converging, ..link };
    match row.pod().and_then(|pod| pod.node.as_ref()) {
        Some(_) => add_denied_connections(world, row, explain_readiness_gates(&object, link)),
        None => placement::explain_unbound(world, row, &object, link, plane),
    }
}

/// Connections that policies deny are intended, and may well explain why the pod is not ready.
fn add_denied_connections(world: &World, row: &Row, mut link: CauseLink) -> CauseLink {
    let unavailable = port_unavailable(world, row);
    link.next = link.next.or_else(|| unavailable.as_deref().and_then(suggest_host_port));
    link.more.extend(unavailable);
    if let Some(activity) = last_event_with_reason(world, row, "NetworkPolicyDenied") {
        let ago = time::age((world.now.as_second() - activity.at.as_second()).max(0));
        link.more.push(format!("{} ({ago} ago)", activity.message));
    }
    link
}

/// Returns the remedy for a hostPort that does not reach its pod, which is otherwise fine.
fn suggest_host_port(told: &str) -> Option<String> {
    let (at, why) = told.strip_prefix("hostPort ")?.split_once(" does not lead to the pod: ")?;
    let holder = why.split_once(": ").and_then(|(_, who)| who.strip_suffix(" listens there"));
    let or = holder.map(|holder| format!(", or end {holder}")).unwrap_or_default();
    Some(format!("give the pod another hostPort than {at} ({why}){or}"))
}

fn phase_text(object: &Object, phase: &str) -> String {
    let reason = object.text(&["status", "reason"]).map(|reason| format!(", {reason}")).unwrap_or_default();
    let message = object.text(&["status", "message"]).map(|message| format!(": {message}")).unwrap_or_default();
    let ready = if phase == "Running" { ", not Ready" } else { "" };
    format!("{phase}{ready}{reason}{message}")
}

/// Describes a failed pod. Its owner replaces it; a pod without an owner stays failed.
fn explain_failure(world: &World, row: &Row, object: &Object, link: CauseLink, plane: &ControlPlaneState) -> CauseLink {
    let (me, namespace_flag) = (name(&row.key), in_namespace(&row.key));
    let alone = object.controller().is_none();
    if object.text(&["status", "message"]).is_some_and(|message| message.starts_with(kubelet::REJECTED)) {
        return link.stuck_if(alone, || {
            format!(
                "change its manifest so that its node admits it, then delete {me}{namespace_flag} and apply it again"
            )
        });
    }
    let Some(FailedContainer { name, error, next }) = find_failed_container(world, row, object, plane) else {
        return link.stuck_if(alone, || {
            format!("read its log (kloop logs {me}{namespace_flag}), then delete it and apply it again")
        });
    };
    let log = Some((row.uid.clone(), name.clone()));
    let replaced = owners(world, row).last().map(|owner| {
        let owner = row_name(owner);
        format!("read its log (kloop logs {me} -c {name}{namespace_flag}); {owner} replaces its failed pods itself")
    });
    CauseLink { error: Some(error), log, next: replaced, ..link }.stuck_if(alone, || {
        next.unwrap_or_else(|| {
            format!("read its log (kloop logs {me} -c {name}{namespace_flag}), then delete it and apply it again")
        })
    })
}

/// A container that ended badly.
struct FailedContainer {
    name: String,
    error: String,
    /// The remedy, where the log does not show it.
    next: Option<String>,
}

/// The first container that failed.
fn find_failed_container(
    world: &World,
    row: &Row,
    object: &Object,
    plane: &ControlPlaneState,
) -> Option<FailedContainer> {
    let code = |status: &Value| status["state"]["terminated"]["exitCode"].as_i64().filter(|code| *code != 0);
    let (status, code) = object.container_statuses().find_map(|status| Some((status, code(status)?)))?;
    let (name, ended) = (status["name"].as_str()?, &status["state"]["terminated"]);
    let spec = object.containers().find(|spec| spec["name"] == name);
    let known = spec.and_then(|spec| known_end(world, row, spec, ended, plane));
    let reason = ended["reason"].as_str().unwrap_or("Error");
    let detail = ended["message"].as_str().and_then(|text| text.trim().lines().last());
    // A specific reason needs no further explanation.
    let detail = detail.or_else(|| known.as_ref().filter(|_| reason == "Error").map(|known| &*known.error));
    let detail = detail.map(|text| format!(": {text}")).unwrap_or_default();
    let error = format!("container {name}: {reason} (exit code {code}){detail}");
    Some(FailedContainer { name: name.to_owned(), error, next: known.map(|known| known.next) })
}

fn explain_termination(world: &World, row: &Row, link: CauseLink) -> CauseLink {
    let late = row.deletion.is_some_and(|due| world.now.duration_since(due) > DELETION_TIMEOUT);
    let me = name(&row.key);
    let namespace_flag = in_namespace(&row.key);
    link.stuck_if(late && row.finalizers.is_empty(), || {
        format!(
            "its node does not end it; if it never will: kloop delete {me}{namespace_flag} --grace-period=0 --force"
        )
    })
}

/// Containers that are ready are not enough where the pod waits for conditions that others set.
fn explain_readiness_gates(object: &Object, link: CauseLink) -> CauseLink {
    if !object.has_condition("ContainersReady") {
        return link;
    }
    let mut gates = object.items(&["spec", "readinessGates"]).iter().filter_map(|gate| gate["conditionType"].as_str());
    match gates.find(|gate| !object.has_condition(gate)) {
        None => link,
        Some(gate) => {
            let link = CauseLink { seen: format!("{}, waits for its readiness gate {gate}", link.seen), ..link };
            link.stuck(format!("set the condition {gate} on the pod, or remove it from readinessGates"))
        }
    }
}
