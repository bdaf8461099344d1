//! NetworkPolicies: resolves each one to addresses.
//!
//! Resolves selectors of pods and namespaces, address blocks, ports by number, range and name, and policies without
//! rules. [`table`] combines the policies of a pod. Never: refuses a connection. The shim of the client's pod does,
//! with the table. Start reading at [`LOOP`].
//!
//! Traffic of the machine itself is always allowed ("traffic to and from the node is always allowed", NetworkPolicy in
//! the Kubernetes documentation). So is traffic of hostNetwork pods, which probes, port-forward and external proxies
//! need.

mod resolver;
pub mod table;

use crate::object::Key;
use crate::world::{Effect, Loop, Plan, Row, World};
use serde_json::Value;
use std::sync::Arc;

/// The loop of NetworkPolicies.
pub const LOOP: Loop = Loop { name: "networkpolicy-controller", root: POLICIES, concerns, plan, ..Loop::BASE };

const POLICIES: &str = "networkpolicies.networking.k8s.io";

fn concerns(world: &World, row: &Row) -> Vec<Key> {
    let all = || world.list(POLICIES);
    match row.key.resource.0 {
        POLICIES => vec![row.key.clone()],
        "pods" => all().filter(|policy| may_affect(policy, row)).map(|policy| policy.key.clone()).collect(),
        "namespaces" => {
            all().filter(|policy| policy.mentions("namespaceSelector")).map(|policy| policy.key.clone()).collect()
        }
        _ => Vec::new(),
    }
}

/// Whether a pod can affect a policy. A pod of another namespace can only through a `namespaceSelector` or a named
/// port.
fn may_affect(policy: &Row, pod: &Row) -> bool {
    let is_near = policy.key.namespace == pod.key.namespace || policy.mentions("namespaceSelector");
    is_near || policy.mentions("egress") && policy.body().items(&["spec", "egress"]).iter().any(has_named_port)
}

/// Whether a rule has a named port, whose number depends on each server.
fn has_named_port(rule: &Value) -> bool {
    rule["ports"].as_array().into_iter().flatten().any(resolver::is_named)
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let wanted = world.get(key).filter(|row| !row.is_deleting()).map(|row| resolver::resolve(world, row));
    let ordered = world.orders.policies.get(key);
    if wanted.as_ref() != ordered.map(|ordered| &**ordered) {
        plan.effects.push(Effect::SetNetworkPolicy { policy: key.clone(), rules: wanted.map(Arc::new) });
    }
    plan
}

#[cfg(test)]
mod tests;
