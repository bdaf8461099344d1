//! Links to the other machines of the cluster: each Node says where its machine accepts them, and which addresses its pods have.
//!
//! Knows: a machine is linked when its Node has both; then it reaches the pods of all other linked machines. Never: opens a connection.
//! Start reading at [`plan`].

use crate::object::{Key, Str};
use crate::world::node_links::{LinkEnd, NodeLink};
use crate::world::{Effect, Loop, Plan, Row, World};

/// The loop.
pub const LOOP: Loop = Loop { name: "node-links", root: NODES, concerns, plan, ..Loop::BASE };

const NODES: &str = "nodes";

fn concerns(world: &World, row: &Row) -> Vec<Key> {
    let has_order = world.orders.node_links.contains_key(&row.key.name);
    let is_linked = row.node().is_some_and(|node| node.link.is_some()) || has_order;
    if row.key.resource == NODES && is_linked { vec![row.key.clone()] } else { Vec::new() }
}

/// Orders the link to a node when it differs from the last order, or this machine's own end.
fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let row = world.get(key);
    if is_ours(world, &key.name) {
        let end = row.and_then(|row| link_end(row));
        if end.is_some() && end != world.orders.link_end {
            plan.effects.push(Effect::AcceptLinks(end));
        }
        return plan;
    }
    let link = row.and_then(|row| find_link(world, row));
    if link.as_ref() != world.orders.node_links.get(&key.name) {
        plan.effects.push(Effect::SetNodeLink { node: key.name.clone(), link });
    }
    plan
}

fn is_ours(world: &World, node: &Str) -> bool {
    world.facts.nodes.get(node).is_some_and(|facts| facts.ours)
}

fn link_end(row: &Row) -> Option<LinkEnd> {
    let node = row.node()?;
    Some(LinkEnd { address: node.link?, pods: node.pod_cidr? })
}

/// Returns the link to another machine; `None` for a node of this machine, and where one of the two has none.
pub(super) fn find_link(world: &World, row: &Row) -> Option<NodeLink> {
    if is_ours(world, &row.key.name) || row.is_deleting() {
        return None;
    }
    let LinkEnd { address, pods } = link_end(row)?;
    let mut own = world.list(NODES).filter(|row| is_ours(world, &row.key.name));
    let is_linked = own.any(|row| link_end(row).is_some());
    is_linked.then(|| NodeLink { node: row.key.name.clone(), pods, address })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Resource;
    use crate::world::NodeFacts;
    use serde_json::json;

    fn put(world: &mut World, name: &str, address: Option<&str>, block: Option<&str>) -> Key {
        let key = Key::new(Resource(NODES), "", name);
        let mut node = json!({"metadata": {"name": name, "uid": name, "annotations": {}}, "spec": {}});
        if let Some(address) = address {
            node["metadata"]["annotations"]["kloop.dev/node-link"] = address.into();
        }
        if let Some(block) = block {
            node["spec"]["podCIDR"] = block.into();
        }
        world.put(key.clone(), node.to_string().into());
        key
    }

    #[test]
    fn machines_are_linked_once_both_have_an_address_and_a_block() {
        let mut world = World::new("2026-01-01T00:00:00Z".parse().unwrap());
        world.facts.nodes.insert("here".into(), NodeFacts { ours: true, ..NodeFacts::default() });
        let here = put(&mut world, "here", Some("10.0.0.1:1"), None);
        let there = put(&mut world, "there", Some("10.0.0.2:1"), Some("127.77.64.0/25"));
        assert_eq!(plan(&world, &there), Plan::default(), "this machine has no block yet");
        assert_eq!(plan(&world, &here), Plan::default());
        put(&mut world, "here", Some("10.0.0.1:1"), Some("127.77.0.0/18"));
        let effects = plan(&world, &here).effects;
        let end = LinkEnd { address: "10.0.0.1:1".parse().unwrap(), pods: "127.77.0.0/18".parse().unwrap() };
        assert_eq!(effects, [Effect::AcceptLinks(Some(end))]);
        world.note_order(&effects[0]);
        assert_eq!(plan(&world, &here), Plan::default(), "it is ordered once");
        let effects = plan(&world, &there).effects;
        let link = NodeLink {
            node: "there".into(),
            pods: "127.77.64.0/25".parse().unwrap(),
            address: "10.0.0.2:1".parse().unwrap(),
        };
        assert_eq!(effects, [Effect::SetNodeLink { node: "there".into(), link: Some(link) }]);
        world.note_order(&effects[0]);
        assert_eq!(plan(&world, &there), Plan::default());
        world.remove(&there);
        let gone = Effect::SetNodeLink { node: "there".into(), link: None };
        assert_eq!(plan(&world, &there).effects, [gone]);
    }
}
