//! Load balancer addresses: a Service of type LoadBalancer gets one of the cluster's loopback addresses. Without a
//! local node there is none, and the Service waits as in Kubernetes without a cloud.

use crate::object::{Key, Object};
use crate::world::{EventType, Loop, Plan, Row, World, WriteVerb};
use serde_json::json;
use std::collections::HashSet;

const ROOT: &str = "services";

/// The loop, by its name in Kubernetes.
pub const LOOP: Loop = Loop { name: "service-lb-controller", root: ROOT, concerns, plan, ..Loop::BASE };

/// Addresses of load balancers are 127.N.192.1 to 127.N.254.254.
const FIRST_THIRD: u32 = 192;
const THIRDS: u32 = 63;
const FOURTHS: u32 = 254;

fn concerns(world: &World, row: &Row) -> Vec<Key> {
    match row.key.resource.0 {
        ROOT => vec![row.key.clone()],
        // Load balancer addresses become available with the first local node.
        "nodes" => world.list(ROOT).filter(|row| row.mentions("LoadBalancer")).map(|row| row.key.clone()).collect(),
        _ => Vec::new(),
    }
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(row) = world.get(key).filter(|row| !row.is_deleting()) else { return plan };
    let service = row.body();
    let has = service.items(&["status", "loadBalancer", "ingress"]);
    // Another implementation handles Services with a load balancer class.
    let wants = service.text(&["spec", "type"]) == Some("LoadBalancer")
        && service.text(&["spec", "loadBalancerClass"]).is_none_or(str::is_empty);
    if wants && has.is_empty() {
        match has_local_node(world).then(|| find_free_address(world, &row.uid)).flatten() {
            Some(address) => {
                let ingress = json!([{"ip": address, "ipMode": "VIP"}]);
                plan.event(row, EventType::Normal, "EnsuredLoadBalancer", "Ensured load balancer");
                plan.write(
                    with_status(&service, json!({"ingress": ingress})),
                    format!("its load balancer address is {address}"),
                );
            }
            None => plan.wait("no local node can be its load balancer"),
        }
    }
    if !wants && !has.is_empty() {
        plan.write(with_status(&service, json!({})), "it is no longer a load balancer");
    }
    plan
}

fn has_local_node(world: &World) -> bool {
    world.facts.real_nodes().next().is_some()
}

fn with_status(service: &Object, balancer: serde_json::Value) -> WriteVerb {
    let mut changed = service.clone();
    changed.set(&["status", "loadBalancer"], balancer);
    WriteVerb::Status(changed)
}

/// Finds an unused address. The search starts at a hash of the Service's uid.
fn find_free_address(world: &World, uid: &str) -> Option<String> {
    let count = THIRDS * FOURTHS;
    let start = uid.bytes().fold(7u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())) % count;
    let address = |step: u32| {
        let place = (start + step) % count;
        format!("127.{}.{}.{}", world.settings.network, FIRST_THIRD + place / FOURTHS, 1 + place % FOURTHS)
    };
    let addresses = |row: &Row| {
        let body = row.body();
        let ingress = body.items(&["status", "loadBalancer", "ingress"]);
        ingress.iter().filter_map(|one| one["ip"].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let used: HashSet<String> = world.list(ROOT).flat_map(|row| addresses(row)).collect();
    (0..count).map(address).find(|ip| !used.contains(ip))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Resource, Time};
    use crate::world::NodeFacts;
    use serde_json::Value;

    fn world(nodes: &[(&str, bool)]) -> World {
        let mut world = World::new(Time::UNIX_EPOCH);
        world.settings.network = 9;
        for (name, simulated) in nodes {
            let node = NodeFacts { ours: true, is_simulated: *simulated, ..NodeFacts::default() };
            world.facts.nodes.insert((*name).into(), node);
        }
        world
    }

    fn put(world: &mut World, name: &str, kind: &str, ingress: Value) -> Key {
        let key = Key::new(Resource(ROOT), "default", name);
        let service = json!({"apiVersion": "v1", "kind": "Service", "spec": {"type": kind},
            "metadata": {"name": name, "namespace": "default", "uid": "same"}, "status": {"loadBalancer": ingress}});
        world.put(key.clone(), service.to_string().into());
        key
    }

    fn written(plan: &Plan) -> Option<Value> {
        plan.writes.iter().find_map(|write| match &write.verb {
            WriteVerb::Status(object) => object.value_at(&["status", "loadBalancer"]).cloned(),
            _ => None,
        })
    }

    #[test]
    fn load_balancer_gets_a_unique_address_once() {
        let mut world = world(&[("here", false)]);
        let one = put(&mut world, "one", "LoadBalancer", json!({}));
        let first = written(&plan(&world, &one)).unwrap();
        put(&mut world, "one", "LoadBalancer", first.clone());
        assert!(plan(&world, &one).is_empty(), "a Service with an address needs no write");
        let other = put(&mut world, "other", "LoadBalancer", json!({}));
        let second = written(&plan(&world, &other)).unwrap();
        assert_ne!(first, second, "two Services get different addresses, even with the same hash");
        assert!(second["ingress"][0]["ip"].as_str().unwrap().starts_with("127.9."));
    }

    #[test]
    fn load_balancer_waits_without_a_local_node() {
        let mut world = world(&[("simulated", true)]);
        let key = put(&mut world, "one", "LoadBalancer", json!({}));
        assert_eq!(written(&plan(&world, &key)), None);
    }

    #[test]
    fn former_load_balancer_gives_its_address_back() {
        let mut world = world(&[("here", false)]);
        let key = put(&mut world, "one", "ClusterIP", json!({"ingress": [{"ip": "127.9.192.1"}]}));
        assert_eq!(written(&plan(&world, &key)), Some(json!({})));
    }
}
