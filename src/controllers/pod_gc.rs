//! Pod garbage collection: pods of deleted nodes, pods that cannot end on a node out of service,
//! deleted pods without a node, and ended pods above the limit.
//!
//! Keyed by node name. The empty name is the key for pods without a node and for the limit of ended pods.

use super::pods::BURST;
use super::status;
use crate::object::time::Shift;
use crate::object::{Key, Resource, condition};
use crate::world::{Loop, Plan, Propagation, Row, World};
use jiff::SignedDuration;
use serde_json::{Value, json};
use std::sync::Arc;

const ROOT: &str = "nodes";
/// Maximum number of ended pods (Kubernetes: terminated-pod-gc-threshold).
const MAX_ENDED: usize = 12_500;
/// Seconds before a pod without a node is collected, since its node may be about to appear.
const QUARANTINE: i64 = 40;

/// Seconds before a deleted pod without a node, which no kubelet ends, is marked as failed and removed (Kubernetes looks every 20 s).
const UNSCHEDULED_GRACE: i64 = 20;

/// The loop that collects lost pods.
pub const LOOP: Loop = Loop { name: "pod-garbage-collector", root: ROOT, concerns, plan, ..Loop::BASE };

fn concerns(world: &World, row: &Row) -> Vec<Key> {
    let of = |name: &str| Key::new(Resource(ROOT), "", name);
    if row.key.resource == ROOT {
        return vec![row.key.clone()];
    }
    let Some(pod) = row.pod() else { return Vec::new() };
    let mut keys = Vec::new();
    let is_collected = |node: &&str| match world.find(ROOT, "", node) {
        Some(node) => row.is_deleting() && is_out_of_service(node),
        None => true,
    };
    keys.extend(pod.node.as_deref().filter(is_collected).map(of));
    if is_unscheduled(row) || (pod.phase.is_terminal() && world.count_of("pods") > MAX_ENDED) {
        keys.push(of(""));
    }
    keys
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    if key.name.is_empty() {
        collect_ended(world, &mut plan);
        fail_unscheduled(world, &mut plan);
    } else {
        match world.get(key) {
            None => collect_lost(world, &key.name, &mut plan),
            Some(node) if is_out_of_service(node) => collect_terminating(world, &key.name, &mut plan),
            Some(_) => {}
        }
    }
    plan
}

/// Whether an administrator has marked an unready node as out of service (KEP-2268).
fn is_out_of_service(node: &Row) -> bool {
    let Some(fields) = node.node().filter(|fields| fields.ready != Some(true)) else { return false };
    fields.taints.iter().any(|taint| taint.key == "node.kubernetes.io/out-of-service")
}

/// Removes the pods that wait for the kubelet of a node out of service to end them.
fn collect_terminating(world: &World, node: &str, plan: &mut Plan) {
    // A pod that only finalizers keep needs no second deletion.
    let is_ended = |row: &Row| {
        let has_failed = row.pod().is_none_or(|pod| pod.phase.is_terminal());
        has_failed && row.object().int(&["metadata", "deletionGracePeriodSeconds"]) == Some(0)
    };
    let needs_end = |row: &&Arc<Row>| row.is_deleting() && (row.finalizers.is_empty() || !is_ended(row));
    for row in world.pods_on(node).filter(needs_end).take(BURST) {
        let why = format!("its node {node} is out of service");
        // Only those that finalizers keep are still seen.
        if !row.finalizers.is_empty() && row.pod().is_some_and(|pod| !pod.phase.is_terminal()) {
            fail(row, &why, None, plan);
        }
        remove(row, &why, plan);
    }
}

fn collect_ended(world: &World, plan: &mut Plan) {
    let ended = |row: &&Arc<Row>| !row.is_deleting() && row.pod().is_some_and(|pod| pod.phase.is_terminal());
    let mut ended: Vec<&Arc<Row>> = world.list("pods").filter(ended).collect();
    let excess = ended.len().saturating_sub(MAX_ENDED);
    ended.sort_by_key(|row| row.created);
    for row in ended.into_iter().take(excess.min(BURST)) {
        remove(row, "more than 12500 ended pods are kept", plan);
    }
}

/// Whether no kubelet ends a deleted pod, which its finalizers keep, or which a server marked and did not remove.
fn is_unscheduled(row: &Row) -> bool {
    let Some(pod) = row.pod().filter(|pod| row.is_deleting() && pod.node.is_none()) else { return false };
    !pod.phase.is_terminal() || row.finalizers.is_empty()
}

/// Marks deleted pods without a node as failed, since their owners wait for their end, and removes those that no finalizer keeps.
fn fail_unscheduled(world: &World, plan: &mut Plan) {
    for row in world.list("pods").filter(|row| is_unscheduled(row)).take(BURST) {
        let until = row.deletion.unwrap_or(world.now).later(SignedDuration::from_secs(UNSCHEDULED_GRACE));
        if world.now < until {
            plan.wake_at(until);
        } else {
            if row.pod().is_some_and(|pod| !pod.phase.is_terminal()) {
                fail(row, "it is deleted and has no node", None, plan);
            }
            if row.finalizers.is_empty() {
                remove(row, "it is deleted and has no node", plan);
            }
        }
    }
}

fn collect_lost(world: &World, node: &str, plan: &mut Plan) {
    for row in world.pods_on(node).take(BURST) {
        let appeared = row.created.unwrap_or(world.now);
        let until = appeared.later(SignedDuration::from_secs(QUARANTINE));
        if world.now < until {
            plan.wait(format!("node {node} does not exist (yet)"));
            plan.wake_at(until);
            continue;
        }
        if row.pod().is_some_and(|pod| !pod.phase.is_terminal()) {
            let message = "PodGC: node no longer exists";
            let mut condition = condition::new("DisruptionTarget", "True", "DeletionByPodGC", message, world.now);
            condition["lastProbeTime"] = json!(null);
            condition["observedGeneration"] = row.generation.into();
            fail(row, "its node is gone", Some(condition), plan);
        }
        // A pod that only finalizers keep needs no second deletion.
        if !row.is_deleting() || row.finalizers.is_empty() {
            remove(row, &format!("its node {node} is gone"), plan);
        }
    }
}

/// Writes that a pod failed, with a further condition.
fn fail(row: &Row, why: &str, condition: Option<Value>, plan: &mut Plan) {
    let object = row.object();
    let mut new = status::status_map(&object);
    new.insert("phase".into(), json!("Failed"));
    new.insert("observedGeneration".into(), object.generation().into());
    if let Some(condition) = condition {
        let mut conditions = object.items(&["status", "conditions"]).to_vec();
        condition::set(&mut conditions, condition);
        status::set_conditions(&mut new, conditions);
    }
    status::write(plan, object, new.into(), why);
}

fn remove(row: &Row, why: &str, plan: &mut Plan) {
    plan.delete_with(row, Some(0), Propagation::Background, why);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::testing::cluster;
    use crate::world::WriteVerb;

    #[test]
    fn marked_pod_without_a_node_is_removed_after_a_while() {
        for phase in ["Pending", "Failed"] {
            removes_marked_pod(phase);
        }
    }

    fn removes_marked_pod(phase: &str) {
        let mut cluster = cluster("");
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default", "uid": "u",
            "deletionTimestamp": crate::object::time::rfc3339(cluster.world.now), "deletionGracePeriodSeconds": 0},
            "spec": {"containers": [{"name": "c"}]}, "status": {"phase": phase}});
        cluster.world.put(Key::new(Resource("pods"), "default", "p"), pod.to_string().into());
        let key = Key::new(Resource(ROOT), "", "");
        assert!(plan(&cluster.world, &key).writes.is_empty());
        cluster.world.now = cluster.world.now.later(SignedDuration::from_secs(UNSCHEDULED_GRACE));
        let writes = plan(&cluster.world, &key).writes;
        assert!(
            writes.iter().any(|write| matches!(&write.verb, WriteVerb::Delete { uid, .. } if **uid == *"u")),
            "{phase}"
        );
    }

    #[test]
    fn deleted_pod_without_a_node_fails_after_a_while() {
        let mut cluster = cluster("");
        cluster.kubelet = false;
        cluster.add("{apiVersion: v1, kind: Pod, metadata: {name: p, finalizers: [a.b/c]}, spec: {schedulerName: nobody, containers: [{name: c}]}, status: {phase: Pending}}");
        cluster.delete("pods", "p", Default::default());
        cluster.pass(15);
        assert_eq!(cluster.value("pods", "p", "/status/phase"), "Pending");
        cluster.pass(10);
        assert_eq!(cluster.value("pods", "p", "/status/phase"), "Failed");
        let generation = cluster.value("pods", "p", "/metadata/generation");
        assert_eq!(cluster.value("pods", "p", "/status/observedGeneration"), generation);
    }

    #[test]
    fn terminating_pods_of_a_node_out_of_service_are_removed() {
        let pod = |name: &str, finalizers: &str| {
            format!(
                "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, finalizers: [{finalizers}]}}, spec: {{nodeName: a, tolerations: [{{operator: Exists}}], containers: [{{name: c}}]}}}}\n---\n"
            )
        };
        for (tainted, ready, left) in
            [(true, "False", "held stays"), (true, "True", "ends held stays"), (false, "False", "ends held stays")]
        {
            let mut cluster =
                cluster(&format!("{}{}{}", pod("ends", ""), pod("held", "example.com/hold"), pod("stays", "")));
            cluster.settle();
            cluster.kubelet = false;
            cluster.lost_node = Some("a");
            cluster.delete("pods", "ends", Default::default());
            cluster.delete("pods", "held", Default::default());
            let mut node = cluster.object("nodes", "a");
            node.set(&["status", "conditions"], json!([{"type": "Ready", "status": ready}]));
            cluster.write_status(node);
            if tainted {
                let taint = json!({"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoSchedule"});
                cluster.patch("nodes", "a", json!({"spec": {"taints": [taint]}}));
            }
            cluster.settle();
            assert_eq!(cluster.names("pods"), left, "{tainted} {ready}");
            let has_failed = cluster.value("pods", "held", "/status/phase") == "Failed";
            assert_eq!(has_failed, tainted && ready == "False", "{tainted} {ready}");
        }
    }

    #[test]
    fn pods_of_a_lost_node_are_replaced() {
        let mut cluster = cluster(
            "
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web}
spec: {replicas: 6, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c}]}}}
",
        );
        cluster.settle();
        let on_a = |cluster: &crate::controllers::testing::Cluster| cluster.world.pods_on("a").count();
        assert!(on_a(&cluster) > 0);
        cluster.lost_node = Some("a");
        cluster.delete("nodes", "a", Default::default());
        cluster.pass(41);
        assert_eq!((on_a(&cluster), cluster.count("pods")), (0, 6));
    }
}
