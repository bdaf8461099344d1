//! Extended resources that a user adds to the capacity of a node, such as `example.com/dongle`: pods may request all of them
//! (Kubernetes: advertise extended resources for a node; `pkg/kubelet/nodestatus`, MachineInfo).
//!
//! Never: changes resources that a machine or a manifest declares. Start reading at [`offer`].

use super::super::status;
use crate::kinds::node::RUNTIME_SCHEME;
use crate::kinds::shared::resource_names;
use crate::object::Object;
use crate::world::{Plan, Row, World};
use serde_json::{Map, Value};

/// Makes the extended resources of a node's capacity allocatable, and no others. A simulated node keeps those of its manifest, and
/// another kubelet's node those that the kubelet reports.
pub fn offer(world: &World, row: &Row, node: &Object, plan: &mut Plan) {
    let is_simulated = world.facts.nodes.get(&row.key.name).is_some_and(|facts| facts.is_simulated);
    let runtime = node.text(&["status", "nodeInfo", "containerRuntimeVersion"]).unwrap_or_default();
    if is_simulated || !runtime.starts_with(RUNTIME_SCHEME) {
        return;
    }
    let amounts = |what: &str| node.value_at(&["status", what]).and_then(Value::as_object).cloned().unwrap_or_default();
    let is_extended = |name: &str| resource_names::is_extended(name);
    let mut allocatable: Map<String, Value> =
        amounts("allocatable").into_iter().filter(|(name, _)| !is_extended(name)).collect();
    allocatable.extend(amounts("capacity").into_iter().filter(|(name, _)| is_extended(name)));
    let mut new = status::status_map(node);
    new.insert("allocatable".into(), allocatable.into());
    status::write(plan, node.clone(), new.into(), "pods may request its extended resources");
}

#[cfg(test)]
mod tests {
    use super::super::report;
    use super::*;
    use crate::object::{Key, Resource, Time};
    use crate::world::{NodeFacts, WriteVerb};
    use serde_json::json;

    #[test]
    fn extended_resources_of_the_capacity_are_allocatable() {
        let allocatable = |capacity: Value, allocatable: Value, simulated: bool| {
            let info = json!({"containerRuntimeVersion": report::RUNTIME});
            let mut world = World::new(Time::UNIX_EPOCH);
            world.facts.nodes.insert("n".into(), NodeFacts { ours: true, is_simulated: simulated, heartbeat: None });
            let key = Key::new(Resource("nodes"), "", "n");
            let status = json!({"capacity": capacity, "allocatable": allocatable, "nodeInfo": info});
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": status});
            world.put(key.clone(), node.to_string().into());
            let (row, mut plan) = (world.get(&key).unwrap(), Plan::default());
            offer(&world, row, &row.object(), &mut plan);
            plan.writes.pop().map(|write| match write.verb {
                WriteVerb::Status(node) => node.0["status"]["allocatable"].clone(),
                other => panic!("{other:?}"),
            })
        };
        let (machine, dongles) = (json!({"cpu": "1"}), json!({"cpu": "2", "example.com/dongle": "4"}));
        let offered = json!({"cpu": "1", "example.com/dongle": "4"});
        assert_eq!(allocatable(dongles.clone(), machine.clone(), false), Some(offered.clone()));
        assert_eq!(allocatable(json!({"cpu": "2"}), offered.clone(), false), Some(machine.clone()));
        assert_eq!(allocatable(dongles.clone(), offered, false), None);
        assert_eq!(allocatable(dongles, machine, true), None, "a simulated node");
    }
}
