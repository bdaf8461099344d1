//! The ServiceCIDR `kubernetes`, the range of the Services' addresses: made again when it is gone, as Kubernetes' API server does.

use super::status;
use crate::kinds::service_cidr::DEFAULT;
use crate::object::{Key, Object, Resource, Time, condition};
use crate::world::{AppliedFields, Loop, Plan, Row, World, WriteVerb, ingress_routes};
use serde_json::{Value, json};

/// The loop plans for the namespace that the objects of the API server belong to.
const ROOT: &str = "namespaces";
const NAMESPACE: &str = "default";
const RANGES: &str = "servicecidrs.networking.k8s.io";

/// The loop, by the name of the part of the API server that does it.
pub const LOOP: Loop = Loop { name: "kubernetes-service-cidr-controller", root: ROOT, concerns, plan, ..Loop::BASE };

/// The range as a new cluster with this network has it.
pub fn range(network: u8) -> Object {
    Object(json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": DEFAULT},
        "spec": {"cidrs": [ingress_routes::service_range(network)]},
    }))
}

/// The status of a range that addresses are taken from.
pub fn ready(now: Time) -> Value {
    json!({"conditions": [condition::new("Ready", "True", "", "Kubernetes default Service CIDR is ready", now)]})
}

fn concerns(_: &World, row: &Row) -> Vec<Key> {
    match (row.key.resource.0, &*row.key.name) {
        (ROOT, NAMESPACE) | (RANGES, DEFAULT) => vec![Key::new(Resource(ROOT), "", NAMESPACE)],
        _ => Vec::new(),
    }
}

/// The condition Ready.
static APPLIED: AppliedFields = AppliedFields {
    manager: "kubernetes-service-cidr-controller",
    is_status: true,
    paths: &[&["status", "conditions"]],
};

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    if *key.name != *NAMESPACE || world.get(key).is_none_or(|row| row.is_deleting()) {
        return plan;
    }
    let Some(row) = world.find(RANGES, "", DEFAULT) else {
        let range = range(world.settings.network);
        plan.write(WriteVerb::Create(range), "every cluster has the range of its Services' addresses");
        return plan;
    };
    let range = row.object();
    if !row.is_deleting() && !range.has_condition("Ready") {
        status::apply(&mut plan, range, ready(world.now), &APPLIED, "Services get addresses of this range");
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::super::testing::cluster;
    use crate::world::Propagation;

    #[test]
    fn range_is_made_again_and_becomes_ready() {
        let mut cluster = cluster("");
        cluster.settle();
        assert_eq!(cluster.value(super::RANGES, "kubernetes", "/spec/cidrs/0"), "127.77.128.0/18");
        assert_eq!(cluster.value(super::RANGES, "kubernetes", "/status/conditions/0/status"), "True");
        let before = cluster.object(super::RANGES, "kubernetes").uid().to_owned();
        cluster.delete(super::RANGES, "kubernetes", Propagation::Background);
        cluster.settle();
        assert_ne!(cluster.object(super::RANGES, "kubernetes").uid(), before);
        assert_eq!(cluster.value(super::RANGES, "kubernetes", "/status/conditions/0/type"), "Ready");
    }
}
