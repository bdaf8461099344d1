//! A node that runs out of something: its conditions say so, and it ends pods, one at a time, until enough is left.
//!
//! Free resources are measured with every heartbeat; the usage of pods only once a threshold is crossed. The words are the kubelet's
//! (`pkg/kubelet/eviction`, `pkg/kubelet/nodestatus`).

use super::super::pod::LocalPod;
use super::rank::{self, EvictionCandidate};
use crate::kinds::pod::qos_class;
use crate::kinds::priority_class::SYSTEM_CRITICAL;
use crate::object::{Key, Resource, Time, condition, time};
use crate::world::pressure::{EvictionThreshold, PressureSignal};
use crate::world::{AppliedReport, Effect, EventType, Loop, Plan, Row, World, WriteVerb};
use jiff::SignedDuration;
use serde_json::json;

/// `status.reason` of an evicted pod, and the reason of its event.
pub const REASON: &str = "Evicted";

/// The loop of nodes under pressure.
pub const LOOP: Loop =
    Loop { name: "eviction-manager", root: "nodes", concerns, plan, reports: Some(reports), ..Loop::BASE };

/// This machine's nodes, when the report is about its pressure, or about usage that an eviction needs.
fn reports(world: &World, report: &AppliedReport) -> Vec<Key> {
    let is_due = match report {
        AppliedReport::Pressure => true,
        AppliedReport::Usage(_) => world.facts.pressure.due(&world.settings.eviction).is_some(),
        _ => false,
    };
    world.facts.real_nodes().filter(|_| is_due).map(|name| Key::new(Resource("nodes"), "", name)).collect()
}

/// Maximum wait for measurements of pods; after that an eviction uses those that have arrived.
const MEASUREMENT_TIMEOUT: SignedDuration = SignedDuration::from_secs(2);

/// Conditions: name, then reason and message when the condition is true, and when it is false.
const CONDITIONS: [(&str, [&str; 2], [&str; 2]); 3] = [
    (
        "MemoryPressure",
        ["KubeletHasInsufficientMemory", "kubelet has insufficient memory available"],
        ["KubeletHasSufficientMemory", "kubelet has sufficient memory available"],
    ),
    (
        "DiskPressure",
        ["KubeletHasDiskPressure", "kubelet has disk pressure"],
        ["KubeletHasNoDiskPressure", "kubelet has no disk pressure"],
    ),
    (
        "PIDPressure",
        ["KubeletHasInsufficientPID", "kubelet has insufficient PID available"],
        ["KubeletHasSufficientPID", "kubelet has sufficient PID available"],
    ),
];

/// A node itself, and the node of a pod while an eviction is due.
fn concerns(world: &World, row: &Row) -> Vec<Key> {
    match row.key.resource.0 {
        "nodes" => vec![row.key.clone()],
        "pods" if world.facts.pressure.due(&world.settings.eviction).is_some() => {
            let node = row.pod().and_then(|pod| pod.node.clone());
            node.map(|node| Key::new(Resource("nodes"), "", &node)).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let node = world.get(key).filter(|row| !row.is_deleting());
    let Some(node) = node.filter(|row| world.facts.runs_real_node(&row.key.name) && world.facts.pressure.at.is_some())
    else {
        return plan;
    };
    update_conditions(world, node, &mut plan);
    if let Some((line, _)) = world.facts.pressure.due(&world.settings.eviction).filter(|_| !world.settings.closing) {
        evict(world, node, line, &mut plan);
    }
    plan
}

/// Brings the node's conditions up to date.
fn update_conditions(world: &World, node: &Row, plan: &mut Plan) {
    let mut object = node.object();
    let mut conditions = object.items(&["status", "conditions"]).to_vec();
    let now = time::rfc3339(world.now);
    for (kind, under, free) in CONDITIONS {
        let holds = world.facts.pressure.holds(kind);
        let (status, [reason, message]) = if holds { ("True", under) } else { ("False", free) };
        // A condition that is Unknown is set again by the node's heartbeat.
        let other = if holds { "False" } else { "True" };
        let Some(known) = conditions.iter_mut().find(|one| one["type"] == kind && one["status"] == other) else {
            continue;
        };
        condition::change(known, status, reason, message, world.now);
        known["lastHeartbeatTime"] = now.as_str().into();
        let reason = event_of(reason);
        let message = format!("Node {} status is now: {reason}", node.key.name);
        plan.event(node, EventType::Normal, reason, message);
    }
    if conditions != object.items(&["status", "conditions"]) {
        object.set(&["status", "conditions"], conditions);
        plan.write(WriteVerb::Status(object), "a pressure condition changed");
    }
}

/// The kubelet's reasons of conditions begin with its own name, those of events with the node's.
fn event_of(reason: &str) -> &'static str {
    match reason {
        "KubeletHasInsufficientMemory" => "NodeHasInsufficientMemory",
        "KubeletHasSufficientMemory" => "NodeHasSufficientMemory",
        "KubeletHasDiskPressure" => "NodeHasDiskPressure",
        "KubeletHasNoDiskPressure" => "NodeHasNoDiskPressure",
        "KubeletHasInsufficientPID" => "NodeHasInsufficientPID",
        _ => "NodeHasSufficientPID",
    }
}

/// Ends the pod that is to go first, once the one before has ended.
fn evict(world: &World, node: &Row, line: EvictionThreshold, plan: &mut Plan) {
    let Some(at) = world.facts.pressure.at else { return };
    let on_node = || world.pods_on(&node.key.name).filter(|pod| runs(world, pod));
    if on_node().any(|pod| is_going(pod)) {
        return plan.wait("a pod is on its way out already");
    }
    let critical = |pod: &Row| pod.pod().is_some_and(|pod| i64::from(pod.priority) >= SYSTEM_CRITICAL);
    let candidates: Vec<&Row> = on_node().map(|pod| &**pod).filter(|pod| !critical(pod)).collect();
    if candidates.is_empty() {
        return plan.wait("no pod is left that could be ended");
    }
    if line.signal == PressureSignal::Memory && !are_measured(world, &candidates, at, plan) {
        return plan.wait("measuring the usage of its pods");
    }
    let known = |row| EvictionCandidate::read(row, world.facts.pods.get(&row.uid)?);
    let Some(goes) = rank::first(candidates.into_iter().filter_map(known).collect(), line.signal) else { return };
    let Some(level) = world.facts.pressure.levels.get(&line.signal) else { return };
    let message = format!("Attempting to reclaim {}", line.signal.resource());
    plan.event(node, EventType::Warning, "EvictionThresholdMet", message);
    let message = goes.message(line, *level);
    let mut object = goes.row.object();
    object.set(&["status", "reason"], REASON);
    object.set(&["status", "message"], json!(message));
    plan.event(goes.row, EventType::Warning, REASON, message);
    plan.write(WriteVerb::Status(object), format!("its node is low on {}", line.signal.resource()));
}

fn runs(world: &World, pod: &Row) -> bool {
    let containers = world.facts.pods.get(&pod.uid).into_iter().flat_map(|pod| pod.containers.values());
    containers.into_iter().any(|one| !one.has_ended())
}

/// Whether it ends already, evicted or not.
fn is_going(pod: &Row) -> bool {
    let is_evicted = || pod.mentions(REASON) && pod.body().text(&["status", "reason"]) == Some(REASON);
    pod.is_deleting() || pod.pod().is_some_and(|fields| fields.phase.is_terminal()) || is_evicted()
}

/// Whether the usage of these pods since `at` is known, or the wait for it is over; orders a measurement when none has arrived.
fn are_measured(world: &World, pods: &[&Row], at: Time, plan: &mut Plan) -> bool {
    let answered = |pod: &&&Row| world.facts.pods.get(&pod.uid).is_some_and(|facts| facts.measured >= Some(at));
    let answers = pods.iter().filter(answered).count();
    if answers == 0 && world.now < at + MEASUREMENT_TIMEOUT {
        plan.effects.push(Effect::Measure { pods: pods.iter().map(|pod| pod.uid.clone()).collect() });
    }
    if answers < pods.len() && world.now < at + MEASUREMENT_TIMEOUT {
        plan.wake_at(at + MEASUREMENT_TIMEOUT);
        return false;
    }
    true
}

/// Why a node under pressure does not admit a new pod; `None` when it does. Under memory pressure alone it admits pods that request
/// memory or tolerate the pressure (kubelet: criticalPodAdmission, evictionManager.Admit).
pub fn refused(pod: &LocalPod) -> Option<String> {
    if pod.status.start_time.is_some() || pod.facts.is_some() || pod.is_simulated {
        return None;
    }
    let pressure = &pod.world.facts.pressure;
    let held: Vec<&str> = CONDITIONS.iter().map(|(kind, ..)| *kind).filter(|kind| pressure.holds(kind)).collect();
    let critical = pod.spec.priority.is_some_and(|priority| i64::from(priority) >= SYSTEM_CRITICAL);
    let bears = pod.spec.tolerations.iter().flatten().any(|one| {
        let key = one.key.as_deref().is_none_or(|key| key.is_empty() || key == "node.kubernetes.io/memory-pressure");
        key && one.effect.as_deref().is_none_or(|effect| effect.is_empty() || effect == "NoSchedule")
    });
    let is_taken =
        held.is_empty() || critical || (held == ["MemoryPressure"] && (qos_class(&pod.spec) != "BestEffort" || bears));
    (!is_taken && !pod.has_ended()).then(|| format!("The node had condition: [{}]. ", held.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::facts::ContainerUsage;
    use crate::world::pressure::{EvictionFlags, EvictionThresholds, ResourceLevel};
    use crate::world::usage::{Usage, UsageSample};
    use crate::world::{ContainerFacts, ContainerState, NodeFacts, PodFacts};
    use serde_json::{Value, json};

    fn now() -> Time {
        "2026-01-01T00:10:00Z".parse().unwrap()
    }

    /// A node with less than it should have, and pods: name, priority, requested and used memory in Mi, the reason in its status.
    fn world(pods: &[(&str, i64, i64, i64, &str)], available: i64) -> World {
        let mut world = World::new(now());
        let words = EvictionFlags { hard: "memory.available<100Mi", ..EvictionFlags::default() };
        world.settings.eviction = EvictionThresholds::parse(words, SignedDuration::from_mins(5)).unwrap();
        let levels = [(PressureSignal::Memory, ResourceLevel { available: available << 20, capacity: 1 << 30 })].into();
        world.facts.pressure.update(levels, &world.settings.eviction.clone(), now());
        world.facts.inventory_complete = true;
        world.facts.nodes.insert("a".into(), NodeFacts { ours: true, is_simulated: false, heartbeat: Some(now()) });
        let conditions =
            json!([{"type": "MemoryPressure", "status": "False"}, {"type": "DiskPressure", "status": "Unknown"}]);
        put(
            &mut world,
            "nodes",
            "",
            "a",
            json!({"metadata": {"name": "a", "uid": "a"}, "status": {"conditions": conditions}}),
        );
        for (name, priority, asked, used, reason) in pods {
            let resources = if *asked > 0 { json!({"requests": {"memory": format!("{asked}Mi")}}) } else { json!({}) };
            let spec = json!({"nodeName": "a", "priority": priority,
                "containers": [{"name": "c", "image": "i", "resources": resources}]});
            let status = if reason.is_empty() { json!({}) } else { json!({"phase": "Running", "reason": reason}) };
            let pod =
                json!({"metadata": {"name": name, "namespace": "d", "uid": name}, "spec": spec, "status": status});
            put(&mut world, "pods", "d", name, pod);
            let running = ContainerFacts::new(0, ContainerState::Running { pid: 1, since: now() });
            let usage = Usage { cpu_milli: 0, memory: used << 20, swap: 0 };
            let sample = UsageSample::default();
            let measured = ContainerUsage { since: now(), at: now(), sample, usage, throttling: sample.throttling };
            let facts = PodFacts {
                namespace: "d".into(),
                name: (*name).into(),
                containers: [("c".into(), running)].into(),
                usage: [("c".into(), measured)].into(),
                measured: Some(now()),
                ..PodFacts::default()
            };
            world.facts.pods.insert((*name).into(), facts);
        }
        world
    }

    fn put(world: &mut World, resource: &'static str, namespace: &str, name: &str, object: Value) {
        world.put(Key::new(Resource(resource), namespace, name), object.to_string().into());
    }

    fn planned(world: &World) -> Plan {
        plan(world, &Key::new(Resource("nodes"), "", "a"))
    }

    /// The pods that go, with their messages.
    fn going(plan: &Plan) -> Vec<String> {
        let evicted = plan.events.iter().filter(|event| event.reason == REASON);
        evicted.map(|event| format!("{}: {}", event.about.name, event.message)).collect()
    }

    #[test]
    fn eviction_order_is_excess_usage_then_priority() {
        type Pod = (&'static str, i64, i64, i64, &'static str);
        let table: [(&[Pod], &str); 5] = [
            (&[("modest", 0, 50, 40, ""), ("greedy", 9, 10, 20, "")], "greedy"),
            (&[("low", 1, 10, 20, ""), ("high", 2, 10, 90, "")], "low"),
            (&[("less", 0, 10, 20, ""), ("more", 0, 10, 30, "")], "more"),
            (&[("system", SYSTEM_CRITICAL, 0, 90, ""), ("other", 0, 50, 1, "")], "other"),
            (&[("going", 0, 0, 90, "Evicted"), ("next", 0, 0, 80, "")], ""),
        ];
        for (pods, expected) in table {
            let plan = planned(&world(pods, 50));
            let going = going(&plan);
            let names: Vec<&str> = going.iter().filter_map(|line| line.split(':').next()).collect();
            assert_eq!(names.join(" "), expected);
        }
        let plan = planned(&world(&[("greedy", 0, 10, 20, "")], 50));
        let message = "greedy: The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. \
            Container c was using 20Mi, request is 10Mi, has larger consumption of memory. ";
        assert_eq!(going(&plan), [message]);
        assert!(plan.events.iter().any(|event| event.message == "Attempting to reclaim memory"));
        assert_eq!(going(&planned(&world(&[("greedy", 0, 10, 20, "")], 150))), [""; 0], "enough is left");
    }

    #[test]
    fn pods_are_measured_once_before_one_goes() {
        let mut world = world(&[("one", 0, 0, 10, "")], 50);
        world.facts.pods.get_mut("one").unwrap().measured = None;
        let asks = |plan: &Plan| plan.effects.iter().filter(|effect| matches!(effect, Effect::Measure { .. })).count();
        let plan = planned(&world);
        assert_eq!((asks(&plan), going(&plan).len(), plan.wake), (1, 0, Some(now() + MEASUREMENT_TIMEOUT)));
        world.now = now() + MEASUREMENT_TIMEOUT;
        let plan = planned(&world);
        assert_eq!((asks(&plan), going(&plan).len()), (0, 1), "nobody waits for an answer for ever");
    }

    #[test]
    fn conditions_follow_and_what_is_unknown_stays() {
        let plan = planned(&world(&[], 50));
        let Some(WriteVerb::Status(node)) = plan.writes.first().map(|write| &write.verb) else { panic!("no write") };
        let conditions = node.items(&["status", "conditions"]);
        assert_eq!(
            (&conditions[0]["status"], &conditions[0]["reason"]),
            (&json!("True"), &json!("KubeletHasInsufficientMemory"))
        );
        assert_eq!(conditions[1]["status"], "Unknown");
        assert!(plan.events.iter().any(|event| event.message == "Node a status is now: NodeHasInsufficientMemory"));
        assert!(planned(&world(&[], 150)).writes.is_empty(), "nothing to tell");
    }
}
