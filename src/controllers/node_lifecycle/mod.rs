//! Nodes without heartbeats: sets their conditions to Unknown, and adds taints that evict their pods, node after node.
//! When no node has a heartbeat, no pod is evicted, because then the control plane itself is cut off.
//!
//! One loop does what Kubernetes splits over the node lifecycle and TTL controllers. [`super::taint_eviction`] evicts the pods.

mod extended_resources;
pub mod report;
mod zone;

use super::pods::BURST;
use super::status;
use crate::kinds::shared::omit;
use crate::object::time::Shift;
use crate::object::{Key, Object, Resource, Time, condition, time};
use crate::world::{EventType, Loop, Memory, Plan, Row, World, WriteVerb};
use jiff::SignedDuration;
use serde_json::{Value, json};
use std::sync::Arc;

const ROOT: &str = "nodes";
/// Seconds without a heartbeat after which a node is Unknown.
const GRACE: i64 = 50;
/// Seconds without a heartbeat after which a node that has never reported is Unknown.
const STARTUP_GRACE: i64 = 60;
/// Annotation with the number of seconds for which kubelets cache Secrets and ConfigMaps, by the size of the cluster.
const TTL: &str = "node.alpha.kubernetes.io/ttl";
const TTL_BY_NODES: [(usize, &str); 4] = [(100, "0"), (500, "15"), (1000, "30"), (2000, "60")];

/// Labels that older clients read, each with the label whose value it has (`labelReconcileInfo`).
const OLD_LABELS: [(&str, &str); 2] =
    [("beta.kubernetes.io/os", "kubernetes.io/os"), ("beta.kubernetes.io/arch", "kubernetes.io/arch")];

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Conditions that, when True, keep new pods away.
const PRESSURES: [(&str, &str); 4] = [
    ("MemoryPressure", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "node.kubernetes.io/network-unavailable"),
];

/// The loop of nodes.
pub const LOOP: Loop = Loop { name: "node-controller", root: ROOT, concerns, plan, ..Loop::BASE };

fn concerns(world: &World, row: &Row) -> Vec<Key> {
    match row.key.resource.0 {
        // The other nodes' readiness determines the eviction rate of an unready node.
        ROOT => world.unready_nodes().cloned().chain([row.key.clone()]).collect(),
        "pods" => {
            let node = row.pod().and_then(|pod| world.find(ROOT, "", pod.node.as_deref()?));
            let watched = |node: &&Arc<Row>| node.node().is_some_and(|node| node.ready != Some(true));
            node.filter(watched).map(|node| node.key.clone()).into_iter().collect()
        }
        "leases.coordination.k8s.io" => vec![Key::new(Resource(ROOT), "", &row.key.name)],
        _ => Vec::new(),
    }
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(row) = world.get(key).filter(|row| !row.is_deleting()) else {
        report_removal(world, key, &mut plan);
        return plan;
    };
    let object = row.object();
    if is_silent(world, row, &object, &mut plan) {
        set_unknown(world, row, &object, &mut plan);
        if !plan.is_empty() {
            return plan;
        }
    } else if !is_foreign(world, row) {
        restore_conditions(world, row, &object, &mut plan);
        if !plan.is_empty() {
            return plan;
        }
    }
    report::write_first_report(world, row, &object, &mut plan);
    if !plan.is_empty() {
        return plan;
    }
    extended_resources::offer(world, row, &object, &mut plan);
    if !plan.is_empty() {
        return plan;
    }
    update_metadata(world, row, &object, &mut plan);
    if is_foreign(world, row) {
        mark_pods_unready(world, row, &object, &mut plan);
    }
    plan
}

/// Reports that a node was removed.
fn report_removal(world: &World, key: &Key, plan: &mut Plan) {
    if let Some(uid) = world.loop_memory.removed_nodes.get(key) {
        let message = format!("Node {0} event: Removing Node {0} from Controller", key.name);
        plan.event_about((key, uid), EventType::Normal, "RemovingNode", message);
        plan.memory.push(Memory::NodeRemovalReported { node: key.clone() });
    }
}

fn is_foreign(world: &World, row: &Row) -> bool {
    world.facts.nodes.get(&row.key.name).is_none_or(|facts| !facts.ours)
}

/// Whether the last heartbeat is too old. Heartbeats of kloop's own nodes are facts; an own node that has not started
/// yet is never too old.
fn is_silent(world: &World, row: &Row, object: &Object, plan: &mut Plan) -> bool {
    let facts = world.facts.nodes.get(&row.key.name);
    let heartbeat = match facts {
        Some(facts) if facts.ours => facts.heartbeat,
        facts => last_heartbeat(world, row, object).max(facts.and_then(|facts| facts.heartbeat)),
    };
    let Some(heartbeat) = heartbeat else { return false };
    let reported = object.condition("Ready").is_some();
    let grace = if reported { GRACE } else { STARTUP_GRACE };
    let deadline = add_seconds(heartbeat, grace);
    if world.now < deadline {
        plan.wake_at(deadline);
    }
    world.now >= deadline
}

/// The newest heartbeat of a foreign node: that of its Lease, its status report or its creation. A report counts once the clock of this
/// machine has reached its time.
fn last_heartbeat(world: &World, row: &Row, object: &Object) -> Option<Time> {
    let seen = world.lease_heartbeat(&row.key.name);
    let ready = object.condition("Ready");
    let reported = ready.and_then(|ready| time::from_json(&ready["lastHeartbeatTime"]));
    let reported = reported.filter(|reported| seen.is_none() || *reported <= world.now);
    seen.max(reported).max(row.created)
}

fn add_seconds(time: Time, seconds: i64) -> Time {
    time.later(SignedDuration::from_secs(seconds))
}

/// Sets the conditions that the kubelet reports to Unknown.
fn set_unknown(world: &World, row: &Row, object: &Object, plan: &mut Plan) {
    let now = time::rfc3339(world.now);
    let mut conditions = object.items(&["status", "conditions"]).to_vec();
    let was_ready = condition::is_true(&conditions, "Ready");
    for kind in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"] {
        match conditions.iter_mut().find(|known| known["type"] == kind) {
            Some(known) if known["status"] == "Unknown" => {}
            Some(known) => {
                let message = "Kubelet stopped posting node status.";
                condition::change(known, "Unknown", "NodeStatusUnknown", message, world.now);
            }
            None => conditions.push(json!({
                "type": kind, "status": "Unknown", "reason": "NodeStatusNeverUpdated",
                "message": "Kubelet never posted node status.",
                "lastHeartbeatTime": row.created.map(time::rfc3339), "lastTransitionTime": now,
            })),
        }
    }
    for condition in &mut conditions {
        omit::null_when_missing(condition, &["lastHeartbeatTime"]);
    }
    if was_ready {
        let message = format!("Node {} status is now: NodeNotReady", row.key.name);
        plan.event(row, EventType::Normal, "NodeNotReady", message);
    }
    let mut new = status::status_map(object);
    status::set_conditions(&mut new, conditions);
    status::write(plan, object.clone(), new.into(), "no heartbeat for too long");
}

/// Restores the conditions of an own node whose heartbeats resumed, as its kubelet would.
fn restore_conditions(world: &World, row: &Row, object: &Object, plan: &mut Plan) {
    let mut conditions = object.items(&["status", "conditions"]).to_vec();
    let silence = [json!("NodeStatusUnknown"), json!("NodeStatusNeverUpdated")];
    let silent = |one: &&mut Value| one["status"] == "Unknown" && silence.contains(&one["reason"]);
    for known in conditions.iter_mut().filter(silent) {
        let well = report::WELL.iter().find(|(kind, ..)| known["type"] == *kind);
        let Some((_, status, reason, message)) = well else { continue };
        condition::change(known, status, reason, message, world.now);
    }
    if conditions == object.items(&["status", "conditions"]) {
        return;
    }
    plan.event(row, EventType::Normal, "NodeReady", format!("Node {} status is now: NodeReady", row.key.name));
    let mut new = status::status_map(object);
    status::set_conditions(&mut new, conditions);
    status::write(plan, object.clone(), new.into(), "its heartbeats are back");
}

/// Updates the taints of conditions, the TTL annotation and the old labels. A node without the annotation is new.
fn update_metadata(world: &World, row: &Row, object: &Object, plan: &mut Plan) {
    let mut wanted = object.clone();
    let taints = taints(world, row, object, plan);
    if taints != object.items(&["spec", "taints"]) {
        if taints.is_empty() {
            wanted.unset(&["spec", "taints"]);
        } else {
            wanted.set(&["spec", "taints"], taints);
        }
    }
    let nodes = world.count_of(ROOT);
    let ttl = TTL_BY_NODES.iter().find(|(most, _)| nodes <= *most).map_or("300", |(_, ttl)| *ttl);
    if object.annotation(TTL).is_none() {
        wanted.set(&["metadata", "annotations", TTL], ttl);
        let message = format!("Node {0} event: Registered Node {0} in Controller", row.key.name);
        plan.event(row, EventType::Normal, "RegisteredNode", message);
    }
    for (old, label) in OLD_LABELS {
        if let Some(value) = object.label(label) {
            wanted.set(&["metadata", "labels", old], value);
        }
    }
    if wanted != *object {
        plan.write(WriteVerb::Update(wanted), format!("the taints of {} follow its conditions", row.key.name));
    }
}

/// The desired taints: keeps those that users set, and adds or removes those of conditions.
fn taints(world: &World, row: &Row, object: &Object, plan: &mut Plan) -> Vec<Value> {
    let conditions = object.items(&["status", "conditions"]);
    let mut wanted: Vec<(&str, &str)> = Vec::new();
    // Without the condition Ready, too, the loop removes the taint of a new node (`doNoScheduleTaintingPass`).
    let mut managed = [UNSCHEDULABLE, NOT_READY, UNREACHABLE].map(|key| (key, "NoSchedule")).to_vec();
    if let Some(ready) = condition::find(conditions, "Ready") {
        let key = match ready["status"].as_str() {
            Some("True") => None,
            Some("False") => Some(NOT_READY),
            _ => Some(UNREACHABLE),
        };
        wanted.extend(key.map(|key| (key, "NoSchedule")));
        wanted.extend(key.filter(|_| must_evict(world, row, object, plan)).map(|key| (key, "NoExecute")));
        managed.extend([NOT_READY, UNREACHABLE].map(|key| (key, "NoExecute")));
    }
    for (kind, key) in PRESSURES {
        managed.push((key, "NoSchedule"));
        if condition::is_true(conditions, kind) {
            wanted.push((key, "NoSchedule"));
        }
    }
    if object.value_at(&["spec", "unschedulable"]) == Some(&Value::Bool(true)) {
        wanted.push((UNSCHEDULABLE, "NoSchedule"));
    }
    let is = |taint: &Value, (key, effect): &(&str, &str)| taint["key"] == *key && taint["effect"] == *effect;
    let mut taints: Vec<Value> = object.items(&["spec", "taints"]).to_vec();
    taints.retain(|taint| !managed.iter().any(|one| is(taint, one)) || wanted.iter().any(|one| is(taint, one)));
    for one in wanted {
        if !taints.iter().any(|taint| is(taint, &one)) {
            let (key, effect) = one;
            taints.push(json!({ "key": key, "effect": effect, "timeAdded": time::rfc3339(world.now) }));
        }
    }
    taints
}

/// Whether the pods of an unreachable node must be evicted now, within the zone's rate limit.
fn must_evict(world: &World, row: &Row, object: &Object, plan: &mut Plan) -> bool {
    let Some(turn) = zone::next_eviction_turn(world, row) else {
        plan.wait("too many nodes are unreachable: no pods are evicted");
        return has_no_execute_taint(object) && world.list(ROOT).any(is_ready);
    };
    if turn > world.now && !has_no_execute_taint(object) {
        plan.wait("waiting for the eviction rate limit: unreachable nodes are evicted one after the other");
        plan.wake_at(turn);
    }
    turn <= world.now || has_no_execute_taint(object)
}

fn is_ready(node: &Arc<Row>) -> bool {
    node.node().is_some_and(|node| node.ready == Some(true))
}

/// Whether the node already has the NoExecute taint for unreachable nodes.
fn has_no_execute_taint(object: &Object) -> bool {
    let keys = [NOT_READY, UNREACHABLE];
    let is = |taint: &Value| taint["effect"] == "NoExecute" && keys.iter().any(|key| taint["key"] == *key);
    object.items(&["spec", "taints"]).iter().any(is)
}

/// Marks the pods of an unreachable node as not ready, so that Services leave them out. Those of a node that reports itself not ready stay
/// as their kubelet says.
fn mark_pods_unready(world: &World, row: &Row, object: &Object, plan: &mut Plan) {
    let ready = object.condition("Ready");
    if ready.is_none_or(|ready| ready["status"] != "Unknown") {
        return;
    }
    let pods = world.pods_on(&row.key.name).filter(|pod| pod.pod().is_some_and(|pod| pod.ready));
    for pod in pods.take(BURST) {
        let object = pod.object();
        let mut conditions = object.items(&["status", "conditions"]).to_vec();
        for ready in conditions.iter_mut().filter(|condition| condition["type"] == "Ready") {
            ready["status"] = "False".into();
            ready["lastTransitionTime"] = time::rfc3339(world.now).into();
        }
        let mut new = status::status_map(&object);
        status::set_conditions(&mut new, conditions);
        plan.event(pod, EventType::Warning, "NodeNotReady", "Node is not ready");
        status::write(plan, object, new.into(), "its node is unreachable");
    }
}

#[cfg(test)]
mod tests {
    use crate::controllers::testing::{Cluster, cluster};
    use crate::object::Time;
    use crate::world::NodeFacts;
    use serde_json::{Value, json};

    const PODS: &str = "
{apiVersion: v1, kind: Pod, metadata: {name: plain}, spec: {nodeName: a, tolerations: [{key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 300}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: stays}, spec: {nodeName: a, tolerations: [{operator: Exists}]}}
";

    fn tick(cluster: &mut Cluster, node: &str, at: Time) {
        let facts = NodeFacts { ours: true, is_simulated: false, heartbeat: Some(at) };
        cluster.world.facts.nodes.insert(node.into(), facts);
    }

    fn taints(cluster: &Cluster, node: &str) -> String {
        let taints = cluster.object("nodes", node).items(&["spec", "taints"]).to_vec();
        let text = |taint: &Value| format!("{}:{}", taint["key"].as_str().unwrap(), taint["effect"].as_str().unwrap());
        taints.iter().map(text).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn removed_node_is_reported_once() {
        let mut cluster = cluster("");
        cluster.settle();
        let event = "event: RemovingNode Node a event: Removing Node a from Controller";
        assert!(!cluster.logged(event));
        cluster.delete("nodes", "a", Default::default());
        cluster.settle();
        assert!(cluster.logged(event));
        assert!(cluster.world.loop_memory.removed_nodes.is_empty());
    }

    #[test]
    fn pods_of_a_node_without_heartbeats_are_evicted() {
        let mut cluster = cluster(PODS);
        let start = cluster.world.now;
        tick(&mut cluster, "a", start);
        cluster.patch("nodes", "a", json!({"metadata": {"labels": {"x": "y"}}}));
        cluster.pass(49);
        assert_eq!(taints(&cluster, "a"), "");
        cluster.pass(2);
        assert!(
            cluster.conditions("nodes", "a").starts_with("Ready=Unknown NodeStatusUnknown, MemoryPressure=Unknown")
        );
        assert_eq!(
            taints(&cluster, "a"),
            "node.kubernetes.io/unreachable:NoSchedule node.kubernetes.io/unreachable:NoExecute"
        );
        assert!(cluster.logged("event: NodeNotReady Node a status is now: NodeNotReady"));
        cluster.pass(290);
        assert_eq!(cluster.names("pods"), "plain stays");
        cluster.pass(15);
        assert_eq!(cluster.names("pods"), "stays");
        assert!(cluster.logged("event: TaintManagerEviction Marking for deletion Pod default/plain"));
    }

    #[test]
    fn node_with_resumed_heartbeats_becomes_ready() {
        let mut cluster = cluster(PODS);
        let start = cluster.world.now;
        tick(&mut cluster, "a", start);
        cluster.patch("nodes", "a", json!({"metadata": {"labels": {"x": "y"}}}));
        cluster.pass(60);
        assert!(cluster.conditions("nodes", "a").starts_with("Ready=Unknown"));
        let now = cluster.world.now;
        tick(&mut cluster, "a", now);
        cluster.patch("nodes", "a", json!({"metadata": {"labels": {"x": "z"}}}));
        cluster.settle();
        let conditions = cluster.conditions("nodes", "a");
        assert!(conditions.starts_with("Ready=True KubeletReady, MemoryPressure=False"), "{conditions}");
        assert_eq!(taints(&cluster, "a"), "");
        assert_eq!(cluster.names("pods"), "plain stays");
    }

    #[test]
    fn no_pod_is_evicted_while_no_node_has_heartbeats() {
        let mut cluster = cluster(PODS);
        let start = cluster.world.now;
        for node in ["a", "b"] {
            tick(&mut cluster, node, start);
            cluster.patch("nodes", node, json!({"metadata": {"labels": {"x": "y"}}}));
        }
        cluster.pass(1000);
        assert_eq!(cluster.names("pods"), "plain stays");
        assert_eq!(taints(&cluster, "a"), "node.kubernetes.io/unreachable:NoSchedule");
    }

    /// Counts the nodes whose pods are evicted after some seconds without heartbeats of some nodes.
    fn executing(cluster: &mut Cluster, zone: &[&str], others: &[&str], silent: usize, seconds: i64) -> usize {
        let start = cluster.world.now;
        for name in zone.iter().chain(others) {
            let at =
                if zone.iter().position(|one| one == name).is_some_and(|at| at < silent) { start } else { Time::MAX };
            tick(cluster, name, at);
            cluster.patch("nodes", name, json!({"metadata": {"labels": {"x": "y"}}}));
        }
        cluster.pass(seconds);
        zone.iter().filter(|name| taints(cluster, name).contains("unreachable:NoExecute")).count()
    }

    #[test]
    fn nodes_of_a_zone_are_evicted_one_after_the_other() {
        let zone = ["z0", "z1", "z2", "z3", "z4"];
        let nodes: Vec<String> = zone
            .iter()
            .map(|name| {
                format!("{{apiVersion: v1, kind: Node, metadata: {{name: {name}, labels: {{topology.kubernetes.io/zone: z}}}}, status: {{conditions: [{{type: Ready, status: 'True'}}]}}}}")
            })
            .collect();
        for (case, silent, seconds, wanted) in [
            ("the first at once", 2, 52, 1..=1),
            ("the next ten seconds later", 2, 62, 2..=2),
            ("no more once most of the zone is silent", 3, 500, 0..=1),
            ("all nodes of a silent zone", 5, 500, 5..=5),
        ] {
            let mut cluster = cluster(&nodes.join("\n---\n"));
            let executing = executing(&mut cluster, &zone, &["a", "b"], silent, seconds);
            assert!(wanted.contains(&executing), "{case}: {executing}");
        }
    }

    #[test]
    fn new_node_is_reported_once_and_gets_the_labels_of_older_clients() {
        let mut cluster = cluster("");
        cluster.create(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "new", "labels": {"kubernetes.io/arch": "arm64"}},
            "spec": {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]},
        }));
        cluster.settle();
        cluster.patch("nodes", "new", json!({"metadata": {"labels": {"beta.kubernetes.io/arch": "other"}}}));
        cluster.settle();
        assert_eq!(taints(&cluster, "new"), "");
        let labels = json!({"kubernetes.io/arch": "arm64", "beta.kubernetes.io/arch": "arm64"});
        assert_eq!(cluster.value("nodes", "new", "/metadata/labels"), labels);
        let reports =
            cluster.log.iter().filter(|line| line.contains("Node new event: Registered Node new in Controller"));
        assert_eq!(reports.count(), 1);
    }

    #[test]
    fn cordoned_node_is_tainted() {
        let mut cluster = cluster("");
        cluster.patch(
            "nodes",
            "a",
            json!({"spec": {"unschedulable": true, "taints": [{"key": "own", "effect": "NoSchedule"}]}}),
        );
        cluster.settle();
        assert_eq!(taints(&cluster, "a"), "own:NoSchedule node.kubernetes.io/unschedulable:NoSchedule");
        assert_eq!(cluster.object("nodes", "a").annotation("node.alpha.kubernetes.io/ttl"), Some("0"));
        cluster.patch("nodes", "a", json!({"spec": {"unschedulable": null}}));
        cluster.settle();
        assert_eq!(taints(&cluster, "a"), "own:NoSchedule");
    }

    #[test]
    fn no_schedule_taint_evicts_no_pods() {
        let mut cluster = cluster(PODS);
        cluster.settle();
        cluster.patch("nodes", "a", json!({"spec": {"taints": [{"key": "dedicated", "effect": "NoSchedule"}]}}));
        cluster.settle();
        assert_eq!(cluster.names("pods"), "plain stays");
        cluster.patch("nodes", "a", json!({"spec": {"taints": [{"key": "dedicated", "effect": "NoExecute"}]}}));
        cluster.settle();
        assert_eq!(cluster.names("pods"), "stays");
    }
}
