//! The pod's address: one of the cluster's own range of loopback addresses, kept for the pod's whole life.

use super::actions::StartFailure;
use super::pod::LocalPod;
use crate::object::{Str, hash_fnv1a};
use crate::world::ingress_routes;
use crate::world::policy::Cidr;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

/// Attempts to find a free address for a simulated pod; it then shares one, as there may be more such pods than addresses and none of them
/// listens. One attempt when half of the addresses are taken.
const MAX_ADDRESS_ATTEMPTS: u32 = 8;

/// Returns the address that the pod has, or a free one; `None` when all are taken. The machine's report counts more than the status, which
/// clients can write; an address in the status counts if the pod could have been given it.
pub fn pod_address(pod: &LocalPod) -> Option<Str> {
    if let Some(facts) = pod.facts.as_deref().filter(|facts| !facts.ip.is_empty()) {
        return Some(facts.ip.clone());
    }
    if pod.spec.host_network == Some(true) || !(pod.world.settings.pod_network || pod.is_simulated) {
        return Some(node_address(pod).into());
    }
    let range = PodRange::new(pod_block(pod));
    let has = pod.status.pod_ip.as_deref().filter(|ip| range.contains(ip) && !belongs_to_another(pod, ip));
    if let Some(ip) = has {
        return Some(ip.into());
    }
    let start = hash_fnv1a(&pod.row.uid) % range.count();
    let address_at = |step| Str::from(range.address_at(start + step).to_string());
    let looks = match pod.is_simulated {
        true if pod.world.addresses() > (range.count() / 2) as usize => 1,
        true => MAX_ADDRESS_ATTEMPTS,
        false => range.count(),
    };
    let free = (0..looks).map(address_at).find(|ip| !is_taken(pod, ip));
    free.or_else(|| pod.is_simulated.then(|| address_at(0)))
}

/// The node's address, for pods on the host's network and for `status.hostIP`.
pub fn node_address(pod: &LocalPod) -> String {
    let node = pod.spec.node_name.as_deref().and_then(|name| pod.world.find("nodes", "", name));
    let address = node.and_then(|node| node.node()?.address.as_deref());
    address.unwrap_or("127.0.0.1").to_owned()
}

/// Why the pod cannot start when no address is left.
pub fn exhausted(pod: &LocalPod) -> StartFailure {
    let range = PodRange::new(pod_block(pod));
    let (first, last) = (range.address_at(0), range.address_at(range.count() - 1));
    StartFailure {
        reason: "FailedCreatePodSandBox",
        message: format!("Failed to create pod sandbox: no address is free in {first}-{last}"),
    }
}

/// Returns the block of addresses of the pod's node.
fn pod_block(pod: &LocalPod) -> Cidr {
    let own = ingress_routes::own_pods(pod.world.settings.network);
    let node = pod.spec.node_name.as_deref().and_then(|name| pod.world.find("nodes", "", name));
    let block = node.and_then(|node| node.node()?.pod_cidr);
    // A node of a cluster with other addresses, such as one that has restored a backup, may have a block of those.
    block.filter(|block| block.address.octets()[..2] == own.address.octets()[..2]).unwrap_or(own)
}

/// Whether a pod of the store has the address, or one that still runs although the store has no object of it.
fn is_taken(pod: &LocalPod, ip: &str) -> bool {
    pod.world.pods_at(ip).next().is_some() || (!pod.is_simulated && pod.world.facts.pods.have_address(ip))
}

/// Whether another pod has the address as well. Simulated pods may share one.
fn belongs_to_another(pod: &LocalPod, ip: &str) -> bool {
    !pod.is_simulated && pod.world.pods_at(ip).any(|other| other.uid != pod.row.uid)
}

/// The addresses of a block that pods may have: their third bytes are 1 to 127, and none ends in 0 or 255.
struct PodRange {
    network: u8,
    thirds: RangeInclusive<u32>,
    fourths: RangeInclusive<u32>,
}

impl PodRange {
    fn new(block: Cidr) -> PodRange {
        let [_, network, third, fourth] = block.address.octets().map(u32::from);
        let addresses = 1u32 << (32 - block.bits.clamp(16, 31));
        let thirds = third.max(1)..=(third + (addresses / 256).max(1) - 1).min(127);
        let fourths = fourth.max(1)..=(fourth + addresses.min(256) - 1).min(254);
        PodRange { network: network as u8, thirds, fourths }
    }

    fn width(&self) -> u32 {
        self.fourths.end() - self.fourths.start() + 1
    }

    fn count(&self) -> u32 {
        (self.thirds.end() + 1).saturating_sub(*self.thirds.start()).max(1) * self.width()
    }

    /// Whether a text is one of the addresses.
    fn contains(&self, text: &str) -> bool {
        let Ok(address) = text.parse::<Ipv4Addr>() else { return false };
        let [first, second, third, fourth] = address.octets();
        (first, second) == (127, self.network)
            && self.thirds.contains(&third.into())
            && self.fourths.contains(&fourth.into())
    }

    fn address_at(&self, place: u32) -> Ipv4Addr {
        let place = place % self.count();
        let (third, fourth) = (self.thirds.start() + place / self.width(), self.fourths.start() + place % self.width());
        Ipv4Addr::new(127, self.network, third as u8, fourth as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{TestMachine, named, pod};
    use super::*;
    use serde_json::json;

    #[test]
    fn addresses_stay_in_the_block() {
        let ends = |block: &str| {
            let range = PodRange::new(block.parse().unwrap());
            let at = |place| range.address_at(place).to_string();
            assert_eq!(at(range.count()), at(0), "{block}");
            [at(0), at(range.count() - 1)].join(" ")
        };
        assert_eq!(ends("127.77.0.0/18"), "127.77.1.1 127.77.63.254");
        assert_eq!(ends("127.77.64.0/24"), "127.77.64.1 127.77.64.254");
        assert_eq!(ends("127.77.64.0/25"), "127.77.64.1 127.77.64.127");
        assert_eq!(ends("127.77.127.128/25"), "127.77.127.128 127.77.127.254");
        assert_eq!(PodRange::new("127.77.0.0/18".parse().unwrap()).address_at(254).to_string(), "127.77.2.1");
    }

    #[test]
    fn pod_gets_an_address_of_its_nodes_block() {
        for (block, expected) in
            [("127.77.90.0/25", "127.77.90."), ("10.1.0.0/24", "127.77."), ("127.5.90.0/25", "127.77.")]
        {
            let mut machine = TestMachine::new(pod(json!({"containers": [{"name": "c", "image": "a"}]})));
            machine.put("nodes", json!({"metadata": {"name": "n", "uid": "n"}, "spec": {"podCIDR": block}}));
            machine.settle();
            let ip = machine.status()["podIP"].as_str().unwrap().to_owned();
            assert!(ip.starts_with(expected), "{block}: {ip}");
        }
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
        // A pod that has ended has released its address.
        other["status"]["phase"] = "Succeeded".into();
        let mut machine = TestMachine::new(pod(json!({"containers": [{"name": "c", "image": "a"}]})));
        machine.put("pods", other);
        machine.settle();
        assert_eq!(machine.status()["podIP"], first.as_str());
    }

    #[test]
    fn address_that_a_client_wrote_is_not_taken() {
        let spec = json!({"containers": [{"name": "c", "image": "a"}]});
        let mut other = named("other", spec.clone());
        other["status"] = json!({"phase": "Running", "podIP": "127.77.9.9"});
        let written = |ip: &str| {
            let mut pod = pod(spec.clone());
            pod["status"] = json!({"phase": "Pending", "podIP": ip, "podIPs": [{"ip": ip}]});
            pod
        };
        for (ip, is_kept) in [("8.8.8.8", false), ("127.77.9.9", false), ("127.77.200.1", false), ("127.77.9.10", true)]
        {
            let mut machine = TestMachine::new(written(ip));
            machine.put("pods", other.clone());
            machine.settle();
            assert_eq!(machine.status()["podIP"] == ip, is_kept, "{ip}");
            let own = machine.status()["podIP"].clone();
            // The machine knows the address of a pod that runs.
            let mut changed = machine.pod();
            changed.set(&["status", "podIP"], "127.77.9.11");
            machine.put("pods", changed.0);
            machine.run_to(60);
            assert_eq!(machine.status()["podIP"], own, "{ip}");
        }
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
