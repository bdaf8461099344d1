//! ReplicationControllers, the predecessors of ReplicaSets, which keep pods in the same way.

use super::controller_ref::Owner;
use super::{pods, replicaset};
use crate::object::Key;
use crate::world::{Loop, Plan, Row, World};

const ROOT: &str = "replicationcontrollers";

/// The loop of ReplicationControllers.
pub const LOOP: Loop = Loop { name: "replication-controller", root: ROOT, concerns, plan, ..Loop::BASE };

fn concerns(world: &World, row: &Row) -> Vec<Key> {
    pods::concerned(world, ROOT, "ReplicationController", &["pods"], row)
}

fn plan(world: &World, key: &Key) -> Plan {
    let Some(row) = world.get(key) else { return Plan::default() };
    replicaset::sync_replicas(world, LOOP.name, &Owner { row, api_version: "v1", kind: "ReplicationController" })
}

#[cfg(test)]
mod tests {
    use crate::controllers::testing::cluster;
    use serde_json::json;

    #[test]
    fn replication_controller_keeps_its_replicas() {
        let mut cluster = cluster(
            "
apiVersion: v1
kind: ReplicationController
metadata: {name: old}
spec: {replicas: 2, selector: {a: old}, template: {metadata: {labels: {a: old}}, spec: {containers: [{name: c}]}}}
",
        );
        cluster.settle();
        let wanted = json!({"availableReplicas": 2, "fullyLabeledReplicas": 2, "observedGeneration": 1, "readyReplicas": 2,
            "replicas": 2});
        assert_eq!(cluster.value("replicationcontrollers", "old", "/status"), wanted);
    }
}
