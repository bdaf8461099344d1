//! Blocks of addresses for the pods of linked machines (`pkg/controller/nodeipam`), and the right of nodes to read where the others are.
//!
//! Knows: the pods of a cluster have the addresses 127.N.1.1 to 127.N.127.254. The machine of the control plane has the lower half of them,
//! each machine that joins, or shares the state, gets a block out of the upper half. Never: changes the block of a Node. Start reading at
//! [`plan`].

use crate::object::{Key, Object};
use crate::world::policy::Cidr;
use crate::world::{Loop, Plan, Row, World, WriteVerb, ingress_routes};
use serde_json::json;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// The loop, by Kubernetes' name.
pub const LOOP: Loop = Loop { name: "node-ipam-controller", root: NODES, concerns, plan, ..Loop::BASE };

const NODES: &str = "nodes";
const ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
const BINDINGS: &str = "clusterrolebindings.rbac.authorization.k8s.io";
/// The role and the binding by which nodes read all Nodes, and for NetworkPolicies all pods, as the agents of network plugins do.
const ACCESS: &str = "kloop:node-links";

/// Third bytes of the addresses that blocks are taken from.
const THIRDS: std::ops::RangeInclusive<u8> = 64..=127;
/// Pods of a node up to which half of the addresses with the same third byte are enough.
const FEW_PODS: i64 = 120;

fn concerns(world: &World, row: &Row) -> Vec<Key> {
    if row.key.resource != NODES || row.node().is_none_or(|node| node.link.is_none()) {
        return Vec::new();
    }
    // A deleted node frees its block, so nodes without a block are due.
    let waits = |row: &&Arc<Row>| row.node().is_some_and(|node| node.link.is_some() && node.pod_cidr.is_none());
    let waiting = world.list(NODES).filter(waits).map(|row| row.key.clone());
    waiting.filter(|key| *key != row.key).chain([row.key.clone()]).collect()
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(row) = world.get(key).filter(|row| !row.is_deleting()) else { return plan };
    let Some(node) = row.node().filter(|node| node.link.is_some()) else { return plan };
    if world.find(ROLES, "", ACCESS).is_none() {
        plan.write(WriteVerb::Create(role()), "linked machines read each other's Nodes and pods");
    }
    if world.find(BINDINGS, "", ACCESS).is_none() {
        plan.write(WriteVerb::Create(binding()), "linked machines read each other's Nodes and pods");
    }
    if node.pod_cidr.is_some() {
        return plan;
    }
    let own =
        Some(ingress_routes::own_pods(world.settings.network)).filter(|own| !node.is_joined && is_free(world, own));
    match own.or_else(|| free_block(world, if node.pods <= FEW_PODS { 25 } else { 24 })) {
        Some(block) => {
            let mut node = row.object();
            node.set(&["spec", "podCIDR"], block.to_string());
            node.set(&["spec", "podCIDRs"], json!([block.to_string()]));
            plan.write(WriteVerb::Update(node), "pods of a linked machine have addresses of a block of its own");
        }
        None => plan.waits.push(format!(
            "no block of addresses is free for its pods: all of 127.{0}.64.0-127.{0}.127.255 belongs to other nodes",
            world.settings.network
        )),
    }
    plan
}

/// Whether no Node has addresses of a block.
fn is_free(world: &World, block: &Cidr) -> bool {
    let overlaps = |other: Cidr| block.contains(other.address) || other.contains(block.address);
    !world.list(NODES).filter_map(|row| row.node()?.pod_cidr).any(overlaps)
}

/// Returns the last block of this prefix length that belongs to no node and has the address of no pod.
fn free_block(world: &World, bits: u8) -> Option<Cidr> {
    let network = world.settings.network;
    let size = 1u32 << (32 - bits);
    let halves = move |third: u8| (0..256 / size).rev().map(move |half| (third, (half * size) as u8));
    let blocks = THIRDS.rev().flat_map(halves);
    let mut blocks = blocks.map(|(third, last)| Cidr { address: Ipv4Addr::new(127, network, third, last), bits });
    let has_pods = |block: &Cidr| {
        let first = u32::from(block.address);
        (first..first + size).any(|ip| world.pods_at(&Ipv4Addr::from(ip).to_string()).next().is_some())
    };
    blocks.find(|block| is_free(world, block) && !has_pods(block))
}

fn role() -> Object {
    Object(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": ACCESS},
        "rules": [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list", "watch"]}],
    }))
}

fn binding() -> Object {
    let group = "rbac.authorization.k8s.io";
    Object(json!({
        "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": ACCESS},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": ACCESS},
        "subjects": [{"apiGroup": group, "kind": "Group", "name": "system:nodes"}],
    }))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Cluster, cluster};
    use serde_json::json;

    fn node(cluster: &mut Cluster, name: &str, joined: bool, pods: u32) {
        let mut annotations = json!({"kloop.dev/node-link": "10.0.0.1:10245"});
        if joined {
            annotations["kloop.dev/machine"] = "m".into();
        }
        cluster.create(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "annotations": annotations},
            "status": {"allocatable": {"pods": pods.to_string()}},
        }));
    }

    #[test]
    fn linked_nodes_get_blocks_of_their_own() {
        let mut cluster = cluster("");
        cluster.settle();
        assert_eq!(cluster.count(super::BINDINGS), 0, "no machine is linked");
        node(&mut cluster, "main", false, 110);
        for (name, pods) in [("x", 110), ("y", 250), ("z", 110)] {
            node(&mut cluster, name, true, pods);
            cluster.settle();
        }
        let block = |cluster: &Cluster, name: &str| cluster.value("nodes", name, "/spec/podCIDR");
        assert_eq!(block(&cluster, "main"), "127.77.0.0/18");
        assert_eq!(block(&cluster, "x"), "127.77.127.128/25");
        assert_eq!(block(&cluster, "y"), "127.77.126.0/24");
        assert_eq!(block(&cluster, "z"), "127.77.127.0/25");
        // Another machine of a state on etcd has not joined.
        node(&mut cluster, "second", false, 110);
        cluster.settle();
        assert_eq!(block(&cluster, "second"), "127.77.125.128/25");
        assert_eq!(block(&cluster, "a"), serde_json::Value::Null, "it is not linked");
        assert_eq!(cluster.value(super::BINDINGS, super::ACCESS, "/roleRef/name"), super::ACCESS);
    }

    #[test]
    fn block_with_a_pod_is_not_given_away() {
        let mut cluster = cluster("");
        cluster.kubelet = false;
        cluster.create(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
            "spec": {"nodeName": "a", "containers": [{"name": "c", "image": "i"}]},
            "status": {"phase": "Running", "podIP": "127.77.127.200"},
        }));
        node(&mut cluster, "x", true, 110);
        cluster.settle();
        assert_eq!(cluster.value("nodes", "x", "/spec/podCIDR"), "127.77.127.0/25");
    }
}
