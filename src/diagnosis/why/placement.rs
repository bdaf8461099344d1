//! Pods that have no node: the reasons of each node, and remedies that suffice.
//!
//! A remedy for one plugin helps only on nodes that no other plugin refuses, so the advice is about the node that needs the fewest
//! remedies. Start reading at [`explain_unbound`], then [`choose_remedy`].

use super::dry_run::with_dry_run;
use super::{CauseLink, ControlPlaneState, ConvergenceState, dry_run, node};
use crate::object::Object;
use crate::object::quantity::Quantity;
use crate::scheduler::explain::{AFFINITY, NodeVerdict, PluginRefusal, VOLUME_AFFINITY_CONFLICT, explain, repelling};
use crate::scheduler::{profile_of, queueing_hints};
use crate::world::plan::SchedulingWait;
use crate::world::{Row, World};
use serde_json::Value;

/// The link of a pod that the scheduler has not bound.
pub fn explain_unbound(
    world: &mut World,
    row: &Row,
    object: &Object,
    link: CauseLink,
    plane: &ControlPlaneState,
) -> CauseLink {
    let gates = object.items(&["spec", "schedulingGates"]);
    if !gates.is_empty() {
        let names: Vec<&str> = gates.iter().filter_map(|gate| gate["name"].as_str()).collect();
        let seen = format!("{}, held by scheduling gates {}", link.seen, names.join(", "));
        return CauseLink { seen, ..link }.stuck("remove its spec.schedulingGates");
    }
    if profile_of(world, row).is_none() {
        let known: Vec<&str> = world.settings.profiles.iter().map(|profile| &*profile.name).collect();
        let asked = row.pod().map_or("", |pod| &*pod.scheduler);
        let error = format!("no scheduler is named {asked:?}; known: {}", known.join(", "));
        let next =
            "correct spec.schedulerName, or give kloop a profile of that name: kloop reconcile --scheduler-config FILE";
        return CauseLink { error: Some(error), ..link }.stuck(next);
    }
    let verdicts = explain(world, &row.key);
    let result = dry_run::dry_run(world, &row.key);
    let refusal = result.waits.iter().find_map(|wait| wait.strip_prefix("Unschedulable: "));
    let more = describe_verdicts(&verdicts);
    match refusal {
        // The first control plane brings this machine along as a node.
        Some(_) if verdicts.is_empty() && !plane.runs => {
            CauseLink { seen: format!("{}, and there is no node yet", link.seen), ..link }
        }
        Some(message) => {
            let next = choose_remedy(world, row, object, &verdicts);
            let queue = result.scheduling_wait.map(|scheduling_wait| describe_queue_place(&scheduling_wait, plane));
            let more = more.into_iter().chain(queue).collect();
            CauseLink { error: Some(message.to_owned()), more, ..link }.stuck(next)
        }
        None => CauseLink { more, ..with_dry_run(world, row, link, plane) },
    }
}

/// Describes the pod's place in the queue, which exists only in a running control plane.
fn describe_queue_place(scheduling_wait: &SchedulingWait, plane: &ControlPlaneState) -> String {
    let events = queueing_hints::describe_wake_events(scheduling_wait).join(", or ");
    if plane.runs {
        format!("in the scheduler's queue of unschedulable pods until {events}; tried again after 5m in any case")
    } else {
        format!(
            "not queued, because no scheduler runs: a new scheduler tries this pod at its start, and then when {events}"
        )
    }
}

/// The verdicts on all nodes, in one line where all are refused for the same.
fn describe_verdicts(verdicts: &[NodeVerdict]) -> Vec<String> {
    match verdicts {
        [first, rest @ ..] if !rest.is_empty() && rest.iter().all(|one| one.refused() == first.refused()) => {
            match first.refused() {
                Some(PluginRefusal { plugin, reasons, .. }) => {
                    vec![format!("all {} nodes: {plugin}: {}", verdicts.len(), reasons.join(", "))]
                }
                None => verdicts.iter().map(describe_verdict).collect(),
            }
        }
        _ => verdicts.iter().map(describe_verdict).collect(),
    }
}

/// The verdict on one node in a line.
fn describe_verdict(verdict: &NodeVerdict) -> String {
    match verdict.refused() {
        Some(PluginRefusal { plugin, reasons, .. }) => {
            format!("node/{}: {plugin}: {}", verdict.node, reasons.join(", "))
        }
        None => {
            let total: i64 = verdict.scores.iter().map(|(_, score)| score).sum();
            let parts: Vec<String> = verdict.scores.iter().map(|(plugin, score)| format!("{plugin} {score}")).collect();
            format!("node/{}: fits, score {total} ({})", verdict.node, parts.join(", "))
        }
    }
}

/// An obstacle between a pod and a node, most useful to report first: of remedies for equally many nodes, the first is
/// shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PlacementObstacle {
    Down,
    Claims,
    Resources,
    Taint,
    Cordon,
    Labels,
    Ports,
    Spread,
    Neighbours,
    Other,
}

/// Remedy for one obstacle on one node.
struct PlacementRemedy {
    obstacle: PlacementObstacle,
    /// Alternative remedies: each one alone helps.
    ways: Vec<String>,
    /// Command that adds a node without the obstacle.
    by_adding: Option<String>,
}

impl PlacementRemedy {
    fn new(obstacle: PlacementObstacle, ways: impl Into<Vec<String>>) -> PlacementRemedy {
        PlacementRemedy { obstacle, ways: ways.into(), by_adding: None }
    }

    fn or_adding(self, pod: &Object) -> PlacementRemedy {
        PlacementRemedy { by_adding: Some(format!("add a node: {}", add_command(pod))), ..self }
    }
}

/// The command that adds a node which the pod's node selector selects.
fn add_command(pod: &Object) -> String {
    let (mut name, mut labels) = ("NAME", String::new());
    for (key, value) in pod.pairs(&["spec", "nodeSelector"]) {
        match key {
            "kubernetes.io/hostname" => name = value,
            _ => labels.push_str(&format!(" --label {key}={value}")),
        }
    }
    format!("kloop node add {name}{labels}")
}

/// Returns the remedy that helps on most of the nodes with the fewest obstacles.
fn choose_remedy(world: &World, row: &Row, pod: &Object, verdicts: &[NodeVerdict]) -> String {
    if verdicts.is_empty() {
        return "add a node: kloop node add NAME --cpu 4 --memory 8Gi --simulated, or start kloop reconcile again: it registers this machine \
                when it starts"
            .into();
    }
    let of = |verdict| remedies(world, row, pod, verdict);
    let found: Vec<(&NodeVerdict, Vec<PlacementRemedy>)> =
        verdicts.iter().map(|verdict| (verdict, of(verdict))).collect();
    // A pod must run on a node that has its volumes, so other nodes are not candidates.
    let has_volumes = |(verdict, _): &&(&NodeVerdict, _)| {
        !verdict.refusals.iter().any(|refusal| refusal.reasons.iter().any(|one| one == VOLUME_AFFINITY_CONFLICT))
    };
    let mut meant: Vec<_> = found.iter().filter(has_volumes).collect();
    if meant.is_empty() {
        meant = found.iter().collect();
    }
    let fewest = meant.iter().map(|(_, remedies)| remedies.len()).min().unwrap_or(0);
    meant.retain(|(_, remedies)| remedies.len() == fewest);
    // Nodes that the pod selects by labels are the intended ones.
    let is_asked_for = |(_, remedies): &&(&NodeVerdict, Vec<PlacementRemedy>)| {
        remedies.iter().all(|one| one.obstacle != PlacementObstacle::Labels)
    };
    if meant.iter().any(&is_asked_for) {
        meant.retain(|one| is_asked_for(one));
    }
    let kinds = |remedies: &[PlacementRemedy]| remedies.iter().map(|one| one.obstacle).collect::<Vec<_>>();
    let alike =
        |remedies: &[PlacementRemedy]| meant.iter().filter(|(_, others)| kinds(others) == kinds(remedies)).count();
    let best = meant.iter().max_by_key(|(_, remedies)| (alike(remedies), std::cmp::Reverse(kinds(remedies))));
    let Some((verdict, remedies)) = best else { return String::new() };
    // The pod of a DaemonSet is for its own node alone.
    let is_daemon = row.controller().is_some_and(|owner| owner.kind == "DaemonSet");
    let adding: Option<Vec<&String>> = remedies.iter().map(|one| one.by_adding.as_ref()).collect();
    let adding = adding.filter(|_| !is_daemon).and_then(|ways| ways.into_iter().max_by_key(|way| way.len())).cloned();
    match &remedies[..] {
        [only] => join_alternatives(only.ways.iter().cloned().chain(adding)),
        all => {
            let all: Vec<String> = all.iter().map(|one| join_alternatives(one.ways.iter().cloned())).collect();
            let or = adding.map(|adding| format!("; or {adding}")).unwrap_or_default();
            format!("node/{} needs the fewest changes: {}{or}", verdict.node, all.join("; and "))
        }
    }
}

/// `a, b, or c`.
fn join_alternatives(ways: impl Iterator<Item = String>) -> String {
    let mut ways: Vec<String> = ways.collect();
    let last = ways.pop().unwrap_or_default();
    if ways.is_empty() { last } else { format!("{}, or {last}", ways.join(", ")) }
}

/// All that has to be done before the pod can run on this node.
fn remedies(world: &World, row: &Row, pod: &Object, verdict: &NodeVerdict) -> Vec<PlacementRemedy> {
    verdict.refusals.iter().flat_map(|refusal| remedies_of_refusal(world, row, pod, verdict, refusal)).collect()
}

fn remedies_of_refusal(
    world: &World,
    row: &Row,
    pod: &Object,
    verdict: &NodeVerdict,
    refusal: &PluginRefusal,
) -> Vec<PlacementRemedy> {
    let name = &*verdict.node;
    let one = |obstacle: PlacementObstacle, ways: &[&str]| {
        PlacementRemedy::new(obstacle, ways.iter().map(|way| (*way).to_owned()).collect::<Vec<_>>())
    };
    vec![match refusal.plugin {
        "NodeResourcesFit" => return vec![resources(row, pod, name, refusal)],
        "TaintToleration" => return taints(world, pod, verdict),
        "NodeAffinity" => return vec![labels(world, pod, name)],
        "NodeUnschedulable" => {
            one(PlacementObstacle::Cordon, &[&format!("make {name} schedulable: kloop uncordon {name}")]).or_adding(pod)
        }
        "NodePorts" => one(PlacementObstacle::Ports, &["use another hostPort"]).or_adding(pod),
        "PodTopologySpread" => return vec![spread(world, pod, name)],
        // Without any matching pod, required affinity fits no node.
        "InterPodAffinity" if refusal.reasons.iter().any(|reason| reason == AFFINITY) => {
            one(PlacementObstacle::Neighbours, &["run a pod that spec.affinity.podAffinity asks for", "loosen that"])
        }
        "InterPodAffinity" => {
            one(PlacementObstacle::Neighbours, &["loosen spec.affinity.podAntiAffinity"]).or_adding(pod)
        }
        "VolumeBinding" | "VolumeZone" | "VolumeRestrictions" => {
            one(PlacementObstacle::Claims, &["check its claims: kloop get pvc"])
        }
        "DynamicResources" => one(
            PlacementObstacle::Claims,
            &["check its device claims: kloop get resourceclaims", "offer more devices: kloop get resourceslices"],
        ),
        "NodeVolumeLimits" => {
            one(PlacementObstacle::Other, &[&format!("end a pod on {name} that uses volumes")]).or_adding(pod)
        }
        _ => one(PlacementObstacle::Other, &[&format!("check why plugin {} refuses node {name}", refusal.plugin)]),
    }]
}

/// Room on a node. That pods end there helps only where the whole node is large enough.
fn resources(row: &Row, pod: &Object, name: &str, refusal: &PluginRefusal) -> PlacementRemedy {
    let less = "reduce resources.requests".to_owned();
    if !refusal.unresolvable {
        let free = format!("free {name}");
        let is_crowded = refusal.reasons.iter().all(|reason| reason == "Too many pods");
        let ways = if is_crowded { vec![free] } else { vec![less, free] };
        return PlacementRemedy::new(PlacementObstacle::Resources, ways).or_adding(pod);
    }
    let Some(wants) = row.pod().map(|pod| &pod.requests) else {
        return PlacementRemedy::new(PlacementObstacle::Resources, [less]);
    };
    let flags = [("cpu", Quantity::from_milli(wants.cpu_milli)), ("memory", Quantity::from_bytes(wants.memory))];
    let is_short = |of: &str| refusal.reasons.iter().any(|reason| reason.strip_prefix("Insufficient ") == Some(of));
    let short = flags.iter().filter(|(of, _)| is_short(of));
    let flags: Vec<String> = short.map(|(of, wanted)| format!(" --{of} {wanted}")).collect();
    // Amounts of extended resources come from the node's own manifest.
    let others: Vec<&str> = refusal.reasons.iter().filter_map(|reason| reason.strip_prefix("Insufficient ")).collect();
    let others: Vec<&str> = others.into_iter().filter(|of| !["cpu", "memory"].contains(of)).collect();
    let larger = match others.is_empty() {
        true => format!("add a larger node: {}{}", add_command(pod), flags.concat()),
        false => {
            format!("apply a Node (kloop.dev/runtime: simulated) with more {} in status.capacity", others.join(" and "))
        }
    };
    PlacementRemedy { by_adding: Some(larger), ..PlacementRemedy::new(PlacementObstacle::Resources, [less]) }
}

/// Returns the remedy for a topology spread constraint: other pods, or the missing topology label on the node.
fn spread(world: &World, pod: &Object, name: &str) -> PlacementRemedy {
    let keys = pod.items(&["spec", "topologySpreadConstraints"]).iter();
    let keys =
        keys.filter(|one| one["whenUnsatisfiable"] == "DoNotSchedule").filter_map(|one| one["topologyKey"].as_str());
    let has = |key: &str| world.find("nodes", "", name).is_some_and(|node| node.label(key).is_some());
    let missing: Vec<String> = keys.filter(|key| !has(key)).map(|key| format!("{key}=VALUE")).collect();
    let loosen = "allow more skew in spec.topologySpreadConstraints".to_owned();
    let other = match missing.is_empty() {
        true => "add a node where one is missing".to_owned(),
        false => format!("label {name} as they ask: kloop label node {name} {}", missing.join(" ")),
    };
    PlacementRemedy::new(PlacementObstacle::Spread, [loosen, other])
}

/// Returns remedies for taints. Users can remove their own; kloop's go when their cause is over.
fn taints(world: &World, pod: &Object, verdict: &NodeVerdict) -> Vec<PlacementRemedy> {
    let Some(row) = world.find("nodes", "", &verdict.node) else { return Vec::new() };
    let (taints, name) = (repelling(pod, row), &verdict.node);
    // A cordon and its taint go together.
    let is_cordoned = verdict.refusal_of("NodeUnschedulable").is_some();
    let (own, foreign): (Vec<_>, Vec<_>) = taints
        .into_iter()
        .filter(|taint| !(is_cordoned && taint.key == "node.kubernetes.io/unschedulable"))
        .partition(|taint| taint.key.starts_with("node.kubernetes.io/"));
    let mut remedies = Vec::new();
    if let Some(first) = own.first() {
        let link = node::link(row);
        let next = link.next.filter(|_| link.state == ConvergenceState::Stuck);
        let next = next.map_or_else(
            || format!("fix the cause of the taint {}: kloop describe node/{name}", first.key),
            |next| format!("{} is {}: {next}", link.what, link.seen),
        );
        remedies.push(PlacementRemedy::new(PlacementObstacle::Down, [next]));
    }
    if !foreign.is_empty() {
        let taints_text: Vec<String> = foreign.iter().map(|taint| taint.to_string()).collect();
        let mut keys: Vec<String> = foreign.iter().map(|taint| format!("{}-", taint.key)).collect();
        keys.dedup();
        let (which, it) = match &taints_text[..] {
            [one] => (format!("the taint {one}"), "it"),
            several => (format!("the taints {}", several.join(" and ")), "them"),
        };
        let ways = [
            format!("tolerate {which} in spec.tolerations"),
            format!("remove {it}: kloop taint node {name} {}", keys.join(" ")),
        ];
        remedies.push(PlacementRemedy::new(PlacementObstacle::Taint, ways));
    }
    remedies
}

/// The labels that a pod asks of its node. What only affinity asks for may be met in many ways.
fn labels(world: &World, pod: &Object, name: &str) -> PlacementRemedy {
    let required = pod.value_at(&["spec", "nodeSelector"]).and_then(Value::as_object).into_iter().flatten();
    let node = world.find("nodes", "", name);
    let has = |key: &str| node.and_then(|node| node.label(key));
    let missing: Vec<(&str, &str)> = required
        .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
        .filter(|(key, value)| has(key).is_none_or(|label| *label != **value))
        .collect();
    let one = |way: String, other: String| PlacementRemedy::new(PlacementObstacle::Labels, [way, other]);
    if let Some((_, host)) = missing.iter().find(|(key, _)| *key == "kubernetes.io/hostname") {
        if world.find("nodes", "", host).is_some() {
            return PlacementRemedy::new(
                PlacementObstacle::Labels,
                ["ask for another node in spec.nodeSelector".to_owned()],
            );
        }
        let ask = format!("name an existing node in spec.nodeSelector (node {host} does not exist)");
        return one(ask, format!("add it: kloop node add {host}"));
    }
    if missing.is_empty() {
        let label = "label a node as spec.affinity.nodeAffinity asks (kloop label node NAME KEY=VALUE)";
        return one(label.into(), "change spec.affinity.nodeAffinity".into());
    }
    let overwrite = if missing.iter().any(|(key, _)| has(key).is_some()) { " --overwrite" } else { "" };
    let pairs: Vec<String> = missing.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let label =
        format!("label a node as spec.nodeSelector asks (kloop label node {name} {}{overwrite})", pairs.join(" "));
    one(label, "change spec.nodeSelector".into())
}
