//! The Lease of this machine's node, if several machines share a state. The leader sees by a node's Lease that its machine is alive.
//!
//! Knows: two machines must not run the pods of one node; the holder of the Lease runs them. Never: reads the Lease of another node.
//! Start reading at [`claim_node`], then [`renew_lease`].

use super::retry::retry_until_writable;
use crate::apiserver::update::{UpdatePart, update};
use crate::apiserver::{Api, ApiResult, WriteOptions, create};
use crate::kinds;
use crate::object::{Key, Object, Reason, Resource, Status, Time, format_hex};
use crate::runtime::capacity::MachineCapacity;
use ring::digest::{SHA256, digest};
use serde_json::json;
use std::path::Path;

const LEASES: &str = "leases.coordination.k8s.io";
/// Namespace of the leases of nodes.
const NAMESPACE: &str = "kube-node-lease";

/// Seconds after which a node without renewal is lost, as of the kubelet.
const SECONDS: i64 = 40;

/// The annotation with the identity of the machine that renews a Lease.
const HOLDER: &str = "kloop.dev/holder";

/// Returns the identity of a machine and of the folder where it keeps its pods. Copies of a machine differ by their boots.
fn machine_identity(capacity: &MachineCapacity, home: &Path) -> String {
    let text = format!("{}\n{}\n{}", capacity.machine_id, capacity.boot_id, home.display());
    format_hex(&digest(&SHA256, text.as_bytes()).as_ref()[..16])
}

/// Claims the node of this machine where several machines share the state.
pub fn claim_node(api: &mut Api, capacity: &MachineCapacity) -> anyhow::Result<()> {
    if !api.store().is_replica() {
        return Ok(());
    }
    let holder = machine_identity(capacity, api.store().home());
    retry_until_writable(|| Ok(claim_lease(api, &capacity.name, &holder, Time::now())?))
}

/// Claims a node for a machine, before it registers. Refuses the node of another machine that has renewed its Lease lately.
fn claim_lease(api: &mut Api, node: &str, holder: &str, now: Time) -> ApiResult<()> {
    let key = Key::new(Resource(LEASES), NAMESPACE, node);
    let lease = api.read_view(|txn| txn.get(&key))?;
    let other = lease.as_ref().filter(|lease| lease.annotation(HOLDER).is_some_and(|known| known != holder));
    let renewed = other.and_then(|lease| lease.text(&["spec", "renewTime"])?.parse::<Time>().ok());
    let age = renewed.map(|at| now.duration_since(at).as_secs());
    if let Some(age) = age.filter(|age| *age < SECONDS) {
        let message = format!(
            "another machine runs the node {node} of this cluster, and was there {age} s ago: choose another name with --node-name, or \
             wait {SECONDS} s if this machine has just been booted again"
        );
        return Err(Status::new(Reason::Conflict, message));
    }
    renew_lease(api, node, now)?;
    api.write(false, |txn| {
        let Some(mut lease) = txn.get(&key)? else { return Ok(()) };
        lease.set(&["metadata", "annotations", HOLDER], holder);
        update(txn, &kinds::lease::KIND, &lease, UpdatePart::Main, &WriteOptions::default()).map(|_| ())
    })
}

/// Renews the Lease of a node, or makes it.
pub fn renew_lease(api: &mut Api, node: &str, now: Time) -> ApiResult<()> {
    let (resource, kind) = (Resource(LEASES), &kinds::lease::KIND);
    let renewed = now.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
    api.write(false, |txn| {
        if let Some(mut lease) = txn.get(&Key::new(resource, NAMESPACE, node))? {
            lease.set(&["spec", "renewTime"], renewed.clone());
            return update(txn, kind, &lease, UpdatePart::Main, &WriteOptions::default()).map(|_| ());
        }
        let lease = Object(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": node, "namespace": NAMESPACE},
            "spec": {"holderIdentity": node, "leaseDurationSeconds": SECONDS, "renewTime": renewed},
        }));
        create::create(txn, kind, &lease, &WriteOptions::default()).map(|_| ())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_of_a_machine_that_lives_is_not_claimed_by_another() {
        let mut api = Api::in_memory("test").unwrap();
        let at = |seconds: i64| Time::from_second(1_800_000_000 + seconds).unwrap();
        claim_lease(&mut api, "n", "one", at(0)).unwrap();
        renew_lease(&mut api, "n", at(10)).unwrap();
        let refused = claim_lease(&mut api, "n", "two", at(15)).unwrap_err();
        assert!(refused.message.contains("was there 5 s ago: choose another name"), "{}", refused.message);
        claim_lease(&mut api, "n", "one", at(20)).unwrap();
        claim_lease(&mut api, "m", "two", at(20)).unwrap();
        claim_lease(&mut api, "n", "two", at(60)).unwrap();
        assert!(claim_lease(&mut api, "n", "one", at(61)).is_err());
    }
}
