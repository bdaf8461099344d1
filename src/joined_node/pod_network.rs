//! The network of the pods of a joined node: linked with the cluster's other machines if the server is kloop, else the machine's own
//! network.
//!
//! Knows: a cluster of kloop has addresses 127.N.0.0/16; the address of its Service `kubernetes` contains N. Never: opens a link; the
//! gateway does.
//! Start reading at [`choose_network`].

use super::identity;
use super::registration::node_path;
use crate::apiserver::Api;
use crate::client::{ApiClient, ClientRequest};
use crate::object::{Key, Object, Resource};
use crate::runtime::capacity::MachineCapacity;
use crate::runtime::is_network_free;
use crate::runtime::machine::choose_link_address;
use crate::store::OpenMode;
use crate::world::resources::NodeFields;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time that the control plane gets to give the node a block of addresses.
const ADDRESS_BLOCK_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The network of a node's pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeNetwork {
    /// Pods have addresses of the cluster, 127.N.0.0/16, and links lead to the other machines.
    Linked(u8),
    /// Pods have addresses that only this machine knows.
    Apart,
    /// Pods are on the machine's own network.
    Host,
}

/// Chooses the network of a node's pods, and where its machine accepts links. Reads `state`, the node's own state, while the
/// server does not answer.
pub fn choose_network(
    client: Option<&ApiClient>,
    machine: &mut MachineCapacity,
    state: &Path,
    log: &dyn Fn(&str),
) -> Result<NodeNetwork, String> {
    let stored = Api::open(state, OpenMode::Existing, "join").ok();
    let path = "/api/v1/namespaces/default/services/kubernetes";
    let service = match client {
        Some(client) => {
            let service = client.send(ClientRequest::get(path)).and_then(|reply| reply.json()).map(Object);
            Some(service.map_err(|error| format!("cannot read the Service kubernetes: {error}"))?)
        }
        None => stored.as_ref().and_then(|api| find(api, &Key::new(Resource("services"), "default", "kubernetes"))),
    };
    let Some(network) = service.as_ref().and_then(cluster_network) else { return Ok(NodeNetwork::Host) };
    let node = stored.as_ref().and_then(|api| find(api, &Key::new(Resource("nodes"), "", &machine.name)));
    let before = node.and_then(|node| NodeFields::from_node(&node).link);
    if machine.address.is_loopback() || !(is_network_free(network) || before.is_some()) {
        let why = match machine.address.is_loopback() {
            true => "the machine has no address that others reach (--node-ip)".to_owned(),
            false => format!("another cluster on this machine has the addresses 127.{network}.0.0/16"),
        };
        log(&format!("pods here and pods of other machines do not reach each other: {why}"));
        return Ok(NodeNetwork::Apart);
    }
    let address = choose_link_address(machine.address, before);
    machine.link_address = Some(address.map_err(|error| format!("cannot listen on {}: {error}", machine.address))?);
    Ok(NodeNetwork::Linked(network))
}

fn find(api: &Api, key: &Key) -> Option<Object> {
    let stored = api.read(|snapshot| snapshot.get(key)).ok()??;
    serde_json::from_str(&stored.body).ok().map(Object)
}

/// Returns the N of a cluster of kloop, by its Service `kubernetes`.
fn cluster_network(service: &Object) -> Option<u8> {
    let address: Ipv4Addr = service.text(&["spec", "clusterIP"])?.parse().ok()?;
    address.is_loopback().then(|| address.octets()[1])
}

/// Waits until the control plane has given a linked node the block of its pods' addresses. Returns the Node as the server has it.
pub fn wait_for_block(client: &ApiClient, mut node: Object, log: &dyn Fn(&str)) -> Result<Object, String> {
    let started = Instant::now();
    while node.text(&["spec", "podCIDR"]).is_none() {
        if started.elapsed() >= ADDRESS_BLOCK_TIMEOUT {
            log(
                "pods here and pods of other machines do not reach each other yet: the control plane has given this node no block of \
                 addresses (kloop why at the server)",
            );
            break;
        }
        std::thread::sleep(POLL_INTERVAL);
        let path = node_path(node.name());
        let found = client.send(ClientRequest::get(path)).and_then(|reply| reply.json());
        node = Object(found.map_err(|error| identity::explain(&error))?);
    }
    Ok(node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn cluster_of_kloop_is_known_by_its_service() {
        let network = |address: &str| cluster_network(&Object(json!({"spec": {"clusterIP": address}})));
        assert_eq!(network("127.9.128.1"), Some(9));
        assert_eq!(network("10.96.0.1"), None);
        assert_eq!(network("None"), None);
        assert_eq!(cluster_network(&Object(json!({}))), None);
    }
}
