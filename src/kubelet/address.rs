//! The pod's address: one of the cluster's own range of loopback addresses, kept for the pod's whole life.

use super::actions::StartFailure;
use super::pod::LocalPod;
use crate::object::Str;

/// Addresses of pods are 127.N.1.1 to 127.N.127.254: so many third and fourth parts.
const THIRDS: u32 = 127;
const FOURTHS: u32 = 254;

/// Attempts to find a free address for a simulated pod; it then shares one, as there may be more such pods than addresses and none of them
/// listens. One attempt when half of the addresses are taken.
const FEW: u32 = 8;

/// Returns the address that the pod has, or a free one; `None` when all are taken.
pub fn pod_address(pod: &LocalPod) -> Option<Str> {
    let has = pod.status.pod_ip.as_deref().filter(|ip| !ip.is_empty());
    let has = has.or(pod.facts.as_deref().map(|facts| &*facts.ip).filter(|ip| !ip.is_empty()));
    if let Some(ip) = has {
        return Some(ip.into());
    }
    if pod.spec.host_network == Some(true) || !(pod.world.settings.pod_network || pod.simulated) {
        return Some(node_address(pod).into());
    }
    let start = hash(&pod.row.uid) % (THIRDS * FOURTHS);
    let address_at = |step| Str::from(address_at(pod.world.settings.network, start + step));
    let looks = match pod.simulated {
        true if pod.world.addresses() > (THIRDS * FOURTHS / 2) as usize => 1,
        true => FEW,
        false => THIRDS * FOURTHS,
    };
    let free = (0..looks).map(address_at).find(|ip| !is_taken(pod, ip));
    free.or_else(|| pod.simulated.then(|| address_at(0)))
}

/// The node's address, for pods on the host's network and for `status.hostIP`.
pub fn node_address(pod: &LocalPod) -> String {
    let node = pod.spec.node_name.as_deref().and_then(|name| pod.world.find("nodes", "", name));
    let address = node.and_then(|node| node.node()?.address.as_deref());
    address.unwrap_or("127.0.0.1").to_owned()
}

/// Why the pod cannot start when no address is left.
pub fn exhausted(pod: &LocalPod) -> StartFailure {
    let network = pod.world.settings.network;
    StartFailure {
        reason: "FailedCreatePodSandBox",
        message: format!("Failed to create pod sandbox: no address is free in 127.{network}.1.1-127.{network}.127.254"),
    }
}

/// Whether a pod of the store has the address, or one that still runs although the store has no object of it.
fn is_taken(pod: &LocalPod, ip: &str) -> bool {
    let on_machine = || pod.world.facts.pods.iter().any(|(_, facts)| &*facts.ip == ip);
    pod.world.pods_at(ip).next().is_some() || (!pod.simulated && on_machine())
}

fn address_at(network: u8, place: u32) -> String {
    let place = place % (THIRDS * FOURTHS);
    format!("127.{network}.{}.{}", 1 + place / FOURTHS, 1 + place % FOURTHS)
}

/// FNV-1a: the same in every process and version.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{TestMachine, named, pod};
    use super::*;
    use serde_json::json;

    #[test]
    fn addresses_stay_in_the_range() {
        let last = THIRDS * FOURTHS - 1;
        for (place, ip) in [(0, "127.77.1.1"), (253, "127.77.1.254"), (254, "127.77.2.1"), (last, "127.77.127.254")] {
            assert_eq!(address_at(77, place), ip);
        }
        assert_eq!(address_at(77, last + 1), "127.77.1.1");
    }

    #[test]
    fn two_pods_never_share_an_address_and_each_keeps_its_own() {
        let spec = json!({"containers": [{"name": "c", "image": "a"}]});
        let mut machine = TestMachine::new(pod(spec.clone()));
        machine.settle();
        let first = machine.status()["podIP"].as_str().unwrap().to_owned();
        assert!(first.starts_with("127.77."), "{first}");
        // Another pod holds the address that the same hash gives: the next free one is taken.
        let mut other = named("other", spec.clone());
        other["status"] = json!({"phase": "Running", "podIP": first});
        let mut machine = TestMachine::new(pod(spec));
        machine.put("pods", other.clone());
        machine.settle();
        let second = machine.status()["podIP"].as_str().unwrap().to_owned();
        assert_ne!(second, first);
        machine.world.remove(&super::super::testing::key("other"));
        machine.reboot();
        machine.run_to(60);
        assert_eq!(machine.status()["podIP"], second.as_str(), "for the whole life");
        assert_eq!(machine.starts.last().map(|start| &*start.ip), Some(&*second));
        // One that has ended for good gave its address back.
        other["status"]["phase"] = "Succeeded".into();
        let mut machine = TestMachine::new(pod(json!({"containers": [{"name": "c", "image": "a"}]})));
        machine.put("pods", other);
        machine.settle();
        assert_eq!(machine.status()["podIP"], first.as_str());
    }

    #[test]
    fn without_a_pod_network_pods_are_on_the_machines() {
        let mut machine = TestMachine::new(pod(json!({"containers": [{"name": "c", "image": "a"}]})));
        machine.world.settings.pod_network = false;
        machine.settle();
        assert_eq!(machine.status()["podIP"], "127.0.0.1");
    }

    #[test]
    fn pods_of_the_host_network_have_the_nodes_address() {
        let spec = json!({"hostNetwork": true, "containers": [{"name": "c", "image": "a"}]});
        let mut machine = TestMachine::new(pod(spec));
        let addresses = json!([{"type": "InternalIP", "address": "10.0.0.97"}]);
        machine.put("nodes", json!({"metadata": {"name": "n", "uid": "n"}, "status": {"addresses": addresses}}));
        machine.settle();
        assert_eq!(machine.status()["podIP"], "10.0.0.97");
        assert_eq!(machine.status()["hostIPs"], json!([{"ip": "10.0.0.97"}]));
    }
}
