//! Pod garbage collection: pods of deleted nodes, and ended pods above the limit.
//!
//! Keyed by node name; the empty name stands for pods without a node and for the limit of ended pods.

use super::pods::BURST;
use super::status;
use crate::object::time::Shift;
use crate::object::{Key, Resource, condition};
use crate::world::{Loop, Plan, Propagation, Row, World};
use jiff::SignedDuration;
use serde_json::json;
use std::sync::Arc;

const ROOT: &str = "nodes";
/// Maximum number of ended pods (Kubernetes: terminated-pod-gc-threshold).
const MAX_ENDED: usize = 12_500;
/// Seconds before a pod without a node is collected, since its node may be about to appear.
const QUARANTINE: i64 = 40;

/// The loop that collects lost pods.
pub const LOOP: Loop = Loop { name: "pod-garbage-collector", root: ROOT, concerns, plan, ..Loop::BASE };

fn concerns(world: &World, row: &Row) -> Vec<Key> {
    let of = |name: &str| Key::new(Resource(ROOT), "", name);
    if row.key.resource == ROOT {
        return vec![row.key.clone()];
    }
    let Some(pod) = row.pod() else { return Vec::new() };
    let mut keys = Vec::new();
    if let Some(node) = pod.node.as_deref().filter(|node| world.find(ROOT, "", node).is_none()) {
        keys.push(of(node));
    }
    if pod.phase.is_terminal() && world.count_of("pods") > MAX_ENDED {
        keys.push(of(""));
    }
    keys
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    if key.name.is_empty() {
        collect_ended(world, &mut plan);
    } else if world.get(key).is_none() {
        collect_lost(world, &key.name, &mut plan);
    }
    plan
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
            fail(world, row, plan);
        }
        // A pod that only finalizers keep needs no second deletion.
        if !row.is_deleting() || row.finalizers.is_empty() {
            remove(row, &format!("its node {node} is gone"), plan);
        }
    }
}

fn fail(world: &World, row: &Row, plan: &mut Plan) {
    let object = row.object();
    let mut conditions = object.items(&["status", "conditions"]).to_vec();
    let message = "PodGC: node no longer exists";
    let mut condition = condition::new("DisruptionTarget", "True", "DeletionByPodGC", message, world.now);
    condition["lastProbeTime"] = json!(null);
    condition::set(&mut conditions, condition);
    let mut new = status::status_map(&object);
    new.insert("phase".into(), json!("Failed"));
    status::set_conditions(&mut new, conditions);
    status::write(plan, object, new.into(), "its node is gone");
}

fn remove(row: &Row, why: &str, plan: &mut Plan) {
    plan.delete_with(row, Some(0), Propagation::Background, why);
}

#[cfg(test)]
mod tests {
    use crate::controllers::testing::cluster;

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
