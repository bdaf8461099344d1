//! Pods: whether they have a node, and whether they run.

use super::chain::{in_namespace, with_prospect};
use super::deed::{port_unavailable, told};
use super::{Link, Plane, Standing, name, node, rehearsal};
use crate::object::{Object, Str, time};
use crate::scheduler::explain::{ELSEWHERE, Verdict, explain};
use crate::scheduler::{hints, profile_of};
use crate::world::plan::Hold;
use crate::world::{Row, World, storage};
use jiff::SignedDuration;
use serde_json::Value;

/// For so long after its deletion is due a pod may still be on its way out.
const PATIENCE: SignedDuration = SignedDuration::from_secs(60);

/// The link of a pod.
pub fn link(world: &mut World, row: &Row, of: &Plane) -> Link {
    let object = row.object();
    let phase = object.text(&["status", "phase"]).unwrap_or("Pending");
    let runs_to_its_end = object.text(&["spec", "restartPolicy"]).is_some_and(|policy| policy != "Always");
    let wanted = if runs_to_its_end { "Running and Ready, or Succeeded" } else { "Running and Ready" };
    let is_ready = row.pod().is_some_and(|pod| pod.ready);
    let seen = if is_ready { format!("{phase} and Ready") } else { said(&object, phase) };
    let link = Link { wanted: wanted.into(), seen, ..Link::of(row) };
    if row.is_deleting() {
        return ending(world, row, link);
    }
    if of.lost.contains(&row.uid) {
        let seen = format!("its processes are gone; its status, from before that, says {}", link.seen);
        return Link { seen, standing: Standing::Converging, ..link };
    }
    match phase {
        "Succeeded" => return link,
        "Failed" => return failed(row, &object, link),
        "Running" if is_ready => return denied(world, row, link),
        _ => {}
    }
    let link = Link { standing: Standing::Converging, ..link };
    match row.pod().and_then(|pod| pod.node.as_ref()) {
        Some(_) => denied(world, row, gated(&object, link)),
        None => unbound(world, row, &object, link, of),
    }
}

/// What policies keep a pod from is no fault of theirs, and may well be why it does not get ready.
fn denied(world: &World, row: &Row, mut link: Link) -> Link {
    let unavailable = port_unavailable(world, row);
    link.next = link.next.or_else(|| unavailable.as_deref().and_then(another_host_port));
    link.more.extend(unavailable);
    if let Some(deed) = told(world, row, "NetworkPolicyDenied") {
        let ago = time::age((world.now.as_second() - deed.at.as_second()).max(0));
        link.more.push(format!("{} ({ago} ago)", deed.message));
    }
    link
}

/// What to do about a hostPort that does not lead to its pod: the pod is fine otherwise.
fn another_host_port(told: &str) -> Option<String> {
    let (at, why) = told.strip_prefix("hostPort ")?.split_once(" does not lead to the pod: ")?;
    let holder = why.split_once(": ").and_then(|(_, who)| who.strip_suffix(" listens there"));
    let or = holder.map(|holder| format!(", or end {holder}")).unwrap_or_default();
    Some(format!("give the pod another hostPort than {at} ({why}){or}"))
}

fn said(object: &Object, phase: &str) -> String {
    let reason = object.text(&["status", "reason"]).map(|reason| format!(", {reason}")).unwrap_or_default();
    let message = object.text(&["status", "message"]).map(|message| format!(": {message}")).unwrap_or_default();
    let ready = if phase == "Running" { ", not Ready" } else { "" };
    format!("{phase}{ready}{reason}{message}")
}

/// One that has ended badly for good: its owner makes another one, alone it stays so.
fn failed(row: &Row, object: &Object, link: Link) -> Link {
    let me = name(&row.key);
    let alone = object.controller().is_none();
    let (error, log) = ended_badly(row, object).unzip();
    let link = Link { error, log, ..link };
    link.stuck_if(alone, || {
        format!("look at its log (kloop logs {me}), then delete it and apply it again{}", in_namespace(&row.key))
    })
}

/// How the first container that ended badly did, and whose log tells more.
fn ended_badly(row: &Row, object: &Object) -> Option<(String, (Str, String))> {
    let mut statuses =
        ["initContainerStatuses", "containerStatuses"].iter().flat_map(|list| object.items(&["status", list]));
    let code = |status: &Value| status["state"]["terminated"]["exitCode"].as_i64().filter(|code| *code != 0);
    let (status, code) = statuses.find_map(|status| Some((status, code(status)?)))?;
    let (name, ended) = (status["name"].as_str()?, &status["state"]["terminated"]);
    let said = ended["message"].as_str().and_then(|text| text.trim().lines().last());
    let said = said.map(|text| format!(": {text}")).unwrap_or_default();
    let reason = ended["reason"].as_str().unwrap_or("Error");
    let text = format!("container {name}: {reason} (exit code {code}){said}");
    Some((text, (row.uid.clone(), name.to_owned())))
}

fn ending(world: &World, row: &Row, link: Link) -> Link {
    let late = row.deletion.is_some_and(|due| world.now.duration_since(due) > PATIENCE);
    let me = name(&row.key);
    let place = in_namespace(&row.key);
    link.stuck_if(late && row.finalizers.is_empty(), || {
        format!("its node does not end it; if it never will: kloop delete {me}{place} --grace-period=0 --force")
    })
}

/// Containers that are ready are not enough where the pod waits for conditions that others set.
fn gated(object: &Object, link: Link) -> Link {
    let conditions = object.items(&["status", "conditions"]);
    let is_true = |kind: &Value| conditions.iter().any(|one| one["type"] == *kind && one["status"] == "True");
    if !is_true(&"ContainersReady".into()) {
        return link;
    }
    let gates = object.items(&["spec", "readinessGates"]).iter().map(|gate| &gate["conditionType"]);
    match gates.filter(|gate| !is_true(gate)).find_map(Value::as_str) {
        None => link,
        Some(gate) => {
            let link = Link { seen: format!("{}, waits for its readiness gate {gate}", link.seen), ..link };
            link.stuck(format!("let who sets the condition {gate} set it, or take the gate away"))
        }
    }
}

/// Nobody has given it a node yet.
fn unbound(world: &mut World, row: &Row, object: &Object, link: Link, of: &Plane) -> Link {
    let gates = object.items(&["spec", "schedulingGates"]);
    if !gates.is_empty() {
        let names: Vec<&str> = gates.iter().filter_map(|gate| gate["name"].as_str()).collect();
        let seen = format!("{}, held by scheduling gates {}", link.seen, names.join(", "));
        return Link { seen, ..link }.stuck("take its spec.schedulingGates away");
    }
    if profile_of(world, row).is_none() {
        let known: Vec<&str> = world.settings.profiles.iter().map(|profile| &*profile.name).collect();
        let asked = row.pod().map_or("", |pod| &*pod.scheduler);
        let error = format!("no scheduler has the name {asked:?}; there are: {}", known.join(", "));
        let next =
            "correct spec.schedulerName, or give kloop a profile of that name: kloop reconcile --scheduler-config FILE";
        return Link { error: Some(error), ..link }.stuck(next);
    }
    let verdicts = explain(world, &row.key);
    let prospect = rehearsal::prospect(world, &row.key);
    let refusal = prospect.waits.iter().find_map(|wait| wait.strip_prefix("Unschedulable: "));
    let more = lines(&verdicts);
    match refusal {
        // The first control plane brings this machine along as a node.
        Some(_) if verdicts.is_empty() && !of.runs => {
            Link { seen: format!("{}, and there is no node yet", link.seen), ..link }
        }
        Some(message) => {
            let next = advice(world, row, &verdicts, message);
            let queue = prospect.hold.map(|hold| queued(&hold, of));
            let more = more.into_iter().chain(queue).collect();
            Link { error: Some(message.to_owned()), more, ..link }.stuck(next)
        }
        None => Link { more, ..with_prospect(world, row, link) },
    }
}

/// Where it waits. The queue is nowhere but in a control plane that runs.
fn queued(hold: &Hold, of: &Plane) -> String {
    let wakers = hints::wakers(hold).join(", or ");
    if of.runs {
        format!("in the scheduler's queue of unschedulable pods until {wakers}; looked at again after 5m in any case")
    } else {
        format!("in no queue, because no scheduler runs: one that starts looks at it at once, and then when {wakers}")
    }
}

/// The verdicts on all nodes, in one line where all are refused for the same.
fn lines(verdicts: &[Verdict]) -> Vec<String> {
    match verdicts {
        [first, rest @ ..] if !rest.is_empty() && rest.iter().all(|one| one.refused == first.refused) => {
            match &first.refused {
                Some((plugin, reasons)) => {
                    vec![format!("all {} nodes: {plugin}: {}", verdicts.len(), reasons.join(", "))]
                }
                None => verdicts.iter().map(line).collect(),
            }
        }
        _ => verdicts.iter().map(line).collect(),
    }
}

/// The verdict on one node in a line.
fn line(verdict: &Verdict) -> String {
    match &verdict.refused {
        Some((plugin, reasons)) => format!("node/{}: {plugin}: {}", verdict.node, reasons.join(", ")),
        None => {
            let total: i64 = verdict.scores.iter().map(|(_, score)| score).sum();
            let parts: Vec<String> = verdict.scores.iter().map(|(plugin, score)| format!("{plugin} {score}")).collect();
            format!("node/{}: fits, score {total} ({})", verdict.node, parts.join(", "))
        }
    }
}

/// What helps most often against what refused the most nodes.
fn advice(world: &World, row: &Row, verdicts: &[Verdict], message: &str) -> String {
    if verdicts.is_empty() {
        return "add a node: kloop node add NAME --cpu 4 --memory 8Gi --simulated, or run reconcile with this machine"
            .into();
    }
    let is_elsewhere = message.contains(ELSEWHERE);
    if message.contains("ersistent") && !is_elsewhere {
        return "see to its claims: kloop get pvc".into();
    }
    // Where its volumes are is where it has to go, whatever the other nodes say.
    let meant = |verdict: &&Verdict| !is_elsewhere || has_its_volumes(world, row, &verdict.node);
    let meant: Vec<&Verdict> = verdicts.iter().filter(meant).collect();
    if meant.is_empty() {
        return "see to its claims: kloop get pvc".into();
    }
    let by = |plugin: &'static str| {
        let is_it = move |verdict: &&&Verdict| verdict.refused.as_ref().is_some_and(|(name, _)| *name == plugin);
        meant.iter().filter(is_it).map(|verdict| &verdict.node)
    };
    let down = by("TaintToleration").find_map(|name| {
        let link = node::link(world.find("nodes", "", name)?);
        let next = link.next.filter(|_| link.standing == Standing::Stuck)?;
        Some(format!("{} is {}: {next}", link.what, link.seen))
    });
    let cordoned = by("NodeUnschedulable").next().map_or("NAME", |name| name);
    let tainted = by("TaintToleration").next().map_or("NAME", |name| name);
    let table = [
        ("NodeResourcesFit", "ask for less in resources.requests, free a node, or add one: kloop node add".to_owned()),
        (
            "TaintToleration",
            format!("tolerate the taint in spec.tolerations, or take it away: kloop taint node {tainted} KEY-"),
        ),
        ("NodeUnschedulable", format!("let a node take pods again: kloop uncordon {cordoned}")),
        (
            "NodeAffinity",
            "label a node as spec.nodeSelector or nodeAffinity ask (kloop label node NAME KEY=VALUE), or ask otherwise"
                .to_owned(),
        ),
        ("NodePorts", "use another hostPort, or add a node: kloop node add".to_owned()),
        (
            "PodTopologySpread",
            "allow more skew in spec.topologySpreadConstraints, or add a node where one is missing".to_owned(),
        ),
        ("InterPodAffinity", "loosen spec.affinity, or add a node: kloop node add".to_owned()),
    ];
    // A node that is down is the nearest cause among equals.
    let is_down = |plugin: &str| plugin == "TaintToleration" && down.is_some();
    let most = table.into_iter().rev().max_by_key(|(plugin, _)| (by(plugin).count(), is_down(plugin)));
    match most {
        Some((plugin, _)) if is_down(plugin) => down.unwrap_or_default(),
        most => most.map_or_else(String::new, |(_, advice)| advice),
    }
}

/// Whether all volumes that its claims are bound to can be had on a node.
fn has_its_volumes(world: &World, row: &Row, node: &str) -> bool {
    let Some(node) = world.find("nodes", "", node) else { return false };
    storage::used_by(world, row).all(|claim| {
        let volume = storage::volume_of(&claim.body()).and_then(|name| world.find(storage::VOLUMES, "", name));
        volume.is_none_or(|volume| storage::reaches(&volume.body(), node))
    })
}
