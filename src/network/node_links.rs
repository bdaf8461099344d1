//! Links to the other machines of the cluster. Each Node contains the address at which its machine accepts links, and its pods'
//! addresses.
//!
//! Knows: a machine is linked when its Node has both; then it reaches the pods of all other linked machines. Never: opens a connection.
//! Start reading at [`plan`].

use crate::object::{Key, Str};
use crate::world::node_links::{LinkEnd, NodeLink};
use crate::world::{AppliedReport, Effect, Loop, Plan, Row, World, WriteVerb};
use serde_json::json;

/// The loop.
pub const LOOP: Loop = Loop { name: "node-links", root: NODES, concerns, plan, reports: Some(reports), ..Loop::BASE };

fn reports(world: &World, report: &AppliedReport) -> Vec<Key> {
    match report {
        AppliedReport::Links => own_nodes(world).map(|row| row.key.clone()).collect(),
        _ => Vec::new(),
    }
}

const NODES: &str = "nodes";
/// The condition of a Node whose machine is linked: False while a link is down.
pub const CONDITION: &str = "NodeLinks";
/// Maximum number of links that the condition names.
const MAX_NAMED_LINKS: usize = 4;

fn concerns(world: &World, row: &Row) -> Vec<Key> {
    let has_order = world.orders.node_links.contains_key(&row.key.name);
    let is_linked = row.node().is_some_and(|node| node.link.is_some()) || has_order;
    if row.key.resource == NODES && is_linked { vec![row.key.clone()] } else { Vec::new() }
}

/// Orders the link to a node when it differs from the last order, or this machine's own end.
fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let row = world.get(key);
    if world.facts.runs_node(&key.name) {
        let end = row.and_then(|row| link_end(row));
        if end.is_some() && end != world.orders.link_end {
            plan.effects.push(Effect::AcceptLinks(end));
        }
        row.filter(|_| end.is_some()).into_iter().for_each(|row| report_links(world, row, &mut plan));
        return plan;
    }
    let link = row.and_then(|row| find_link(world, row));
    if link.as_ref() != world.orders.node_links.get(&key.name) {
        plan.effects.push(Effect::SetNodeLink { node: key.name.clone(), link });
    }
    plan
}

/// Plans the condition of this machine's Node that names the broken links.
fn report_links(world: &World, row: &Row, plan: &mut Plan) {
    let is_wanted = |node: &Str| node.is_empty() || world.orders.node_links.contains_key(node);
    let broken: Vec<String> = world
        .facts
        .broken_links
        .iter()
        .filter(|(node, _)| is_wanted(node))
        .map(|(node, why)| if node.is_empty() { why.to_string() } else { format!("to node {node}: {why}") })
        .collect();
    let (status, reason, message) = match &broken[..] {
        [] => ("True", "LinksUp", "pods of other machines can be reached".to_owned()),
        [first, rest @ ..] => {
            let shown =
                rest.iter().take(MAX_NAMED_LINKS - 1).fold(first.clone(), |text, next| format!("{text}; {next}"));
            let more = broken.len().saturating_sub(MAX_NAMED_LINKS);
            let more = if more > 0 { format!("; and {more} more") } else { String::new() };
            ("False", "LinkDown", format!("link down, pods there cannot be reached: {shown}{more}"))
        }
    };
    let mut node = row.object();
    let known = node.condition(CONDITION);
    let is_same = known.is_some_and(|known| known["status"] == status && known["message"] == *message);
    if is_same || known.is_none() && broken.is_empty() {
        return;
    }
    let now = world.now.to_string();
    node.set_condition(json!({
        "type": CONDITION, "status": status, "reason": reason, "message": message,
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    }));
    plan.write(WriteVerb::Status(node), "the set of broken links has changed");
}

fn own_nodes(world: &World) -> impl Iterator<Item = &Row> {
    world.list(NODES).filter(|row| world.facts.runs_node(&row.key.name)).map(|row| &**row)
}

fn link_end(row: &Row) -> Option<LinkEnd> {
    let node = row.node()?;
    Some(LinkEnd { address: node.link?, pods: node.pod_cidr? })
}

/// Returns the link to another machine; `None` for a node of this machine, and where one of the two has none.
pub(super) fn find_link(world: &World, row: &Row) -> Option<NodeLink> {
    if world.facts.runs_node(&row.key.name) || row.is_deleting() {
        return None;
    }
    let LinkEnd { address, pods } = link_end(row)?;
    let is_linked = own_nodes(world).any(|row| link_end(row).is_some());
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
        world.facts.broken_links.insert("there".into(), "no answer in time".into());
        let down = plan(&world, &here);
        let WriteVerb::Status(node) = &down.writes[0].verb else { panic!("{:?}", down.writes) };
        let condition = &node.items(&["status", "conditions"])[0];
        assert_eq!((&condition["type"], &condition["status"]), (&CONDITION.into(), &"False".into()));
        assert_eq!(condition["message"], "link down, pods there cannot be reached: to node there: no answer in time");
        world.put(here.clone(), node.0.to_string().into());
        assert_eq!(plan(&world, &here), Plan::default(), "it is told once");
        world.facts.broken_links.clear();
        let WriteVerb::Status(node) = &plan(&world, &here).writes[0].verb else { panic!() };
        assert_eq!(node.items(&["status", "conditions"])[0]["status"], "True");
        world.put(here.clone(), node.0.to_string().into());
        world.remove(&there);
        let gone = Effect::SetNodeLink { node: "there".into(), link: None };
        assert_eq!(plan(&world, &there).effects, [gone]);
    }
}
