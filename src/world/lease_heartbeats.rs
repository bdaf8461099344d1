//! Heartbeats of nodes as this control plane has seen them: a renewed Lease counts from the moment at which it arrives, because the clock
//! of the node may differ (kube-controller-manager: node_lifecycle_controller.go, probeTimestamp).
//!
//! Never: decides that a node is lost.

use super::row::Row;
use crate::object::{Key, Str, Time};
use std::collections::HashMap;

const LEASES: &str = "leases.coordination.k8s.io";
/// The namespace of the Leases of nodes.
const NAMESPACE: &str = "kube-node-lease";

/// The renewals by node: the time that the Lease says, and when it was seen first.
#[derive(Default)]
pub struct LeaseHeartbeats(HashMap<Str, (Option<Time>, Time)>);

impl LeaseHeartbeats {
    /// Takes an object in, if it is the Lease of a node.
    pub fn note(&mut self, row: &Row, now: Time) {
        if !is_node_lease(&row.key) {
            return;
        }
        let renewed = row.body().time(&["spec", "renewTime"]);
        let known = self.0.get(&row.key.name);
        if known.is_none_or(|(known, _)| *known != renewed) {
            self.0.insert(row.key.name.clone(), (renewed, now));
        }
    }

    /// Forgets a Lease that is gone.
    pub fn forget(&mut self, key: &Key) {
        if is_node_lease(key) {
            self.0.remove(&key.name);
        }
    }

    /// Returns when the last renewal was seen.
    pub fn last_seen(&self, node: &str) -> Option<Time> {
        self.0.get(node).filter(|(renewed, _)| renewed.is_some()).map(|(_, seen)| *seen)
    }
}

fn is_node_lease(key: &Key) -> bool {
    key.resource == LEASES && *key.namespace == *NAMESPACE
}

#[cfg(test)]
mod tests {
    use super::super::World;
    use crate::object::{Key, Resource, Time};
    use serde_json::json;

    #[test]
    fn renewals_count_from_the_moment_at_which_they_are_seen() {
        let at = |seconds: i64| Time::from_second(1_800_000_000 + seconds).unwrap();
        let mut world = World::new(at(0));
        let key = |namespace: &str| Key::new(Resource(super::LEASES), namespace, "n");
        let renew = |world: &mut World, namespace: &str, time: &str| {
            let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": "n", "namespace": namespace, "uid": "1"}, "spec": {"renewTime": time}});
            world.put(key(namespace), lease.to_string().into());
        };
        assert_eq!(world.lease_heartbeat("n"), None);
        renew(&mut world, super::NAMESPACE, "2020-01-01T00:00:00.000000Z");
        world.now = at(30);
        // Another change of the Lease is not a renewal, nor is another Lease.
        renew(&mut world, super::NAMESPACE, "2020-01-01T00:00:00.000000Z");
        renew(&mut world, "default", "2020-01-01T00:00:10.000000Z");
        assert_eq!(world.lease_heartbeat("n"), Some(at(0)));
        renew(&mut world, super::NAMESPACE, "2020-01-01T00:00:10.000000Z");
        assert_eq!(world.lease_heartbeat("n"), Some(at(30)));
        world.remove(&key(super::NAMESPACE));
        assert_eq!(world.lease_heartbeat("n"), None);
    }
}
