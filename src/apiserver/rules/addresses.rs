//! Allocation of addresses and ports for Services.

use crate::object::{Key, Object};
use serde::Deserialize;
use std::collections::HashMap;

/// Node ports that the server gives out (Kubernetes' default range).
pub const NODE_PORTS: std::ops::RangeInclusive<u16> = 30000..=32767;

/// Third octets of the Service addresses in the cluster's 127.N.0.0/16.
const SERVICES: std::ops::RangeInclusive<u8> = 128..=191;

/// Exclusive allocations of all Services: cluster addresses and node ports.
#[derive(Clone, Default)]
pub struct ServiceAllocations {
    services: HashMap<Key, ServiceAllocation>,
    addresses: HashMap<String, Key>,
    ports: HashMap<u16, Key>,
}

/// Allocations of one Service, parsed from its text without decoding the rest.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub struct ServiceAllocation {
    spec: AllocationSpec,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AllocationSpec {
    #[serde(rename = "clusterIP")]
    cluster_ip: String,
    ports: Vec<AllocationPort>,
    health_check_node_port: u16,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AllocationPort {
    node_port: u16,
}

impl ServiceAllocation {
    /// Reads a Service's allocations from its object.
    pub fn from_service(service: &Object) -> ServiceAllocation {
        ServiceAllocation::deserialize(&service.0).unwrap_or_default()
    }

    fn ports(&self) -> impl Iterator<Item = u16> {
        let all = self.spec.ports.iter().map(|port| port.node_port);
        all.chain([self.spec.health_check_node_port]).filter(|port| *port > 0)
    }
}

impl ServiceAllocations {
    /// Sets the allocation of a Service, replacing an earlier one.
    pub fn put(&mut self, service: &Key, held: ServiceAllocation) {
        self.remove(service);
        self.addresses.insert(held.spec.cluster_ip.clone(), service.clone());
        self.ports.extend(held.ports().map(|port| (port, service.clone())));
        self.services.insert(service.clone(), held);
    }

    /// Removes the allocation of a Service.
    pub fn remove(&mut self, service: &Key) {
        let Some(held) = self.services.remove(service) else { return };
        if self.addresses.get(&held.spec.cluster_ip) == Some(service) {
            self.addresses.remove(&held.spec.cluster_ip);
        }
        for port in held.ports() {
            if self.ports.get(&port) == Some(service) {
                self.ports.remove(&port);
            }
        }
    }

    /// Whether a Service other than this one has the address.
    pub fn has_address(&self, ip: &str, but: &Key) -> bool {
        self.addresses.get(ip).is_some_and(|holder| holder != but)
    }

    /// Whether a Service other than this one has the port.
    pub fn has_port(&self, port: u16, but: &Key) -> bool {
        self.ports.get(&port).is_some_and(|holder| holder != but)
    }
}

/// Whether an address lies in the range of Services.
pub fn is_service_ip(network: u8, ip: &str) -> bool {
    let octets: Vec<u8> = ip.split('.').filter_map(|octet| octet.parse().ok()).collect();
    matches!(octets[..], [127, n, third, _] if n == network && SERVICES.contains(&third))
}

/// A free Service address, searched from a random start.
pub fn free_service_ip(network: u8, random: u64, is_taken: impl Fn(&str) -> bool) -> Option<String> {
    let hosts = u64::from(SERVICES.end() - SERVICES.start() + 1) * 256;
    let address = |number: u64| {
        let third = u64::from(*SERVICES.start()) + number / 256;
        format!("127.{network}.{third}.{}", number % 256)
    };
    // Neither the first 16 (kept for fixed addresses, as Kubernetes does) nor .0 and .255.
    let usable = |number: &u64| *number >= 16 && !matches!(number % 256, 0 | 255);
    (0..hosts).map(|step| (random % hosts + step) % hosts).filter(usable).map(address).find(|ip| !is_taken(ip))
}

/// A free node port, searched from a random start.
pub fn free_node_port(random: u64, is_taken: impl Fn(u16) -> bool) -> Option<u16> {
    let size = u64::from(NODE_PORTS.end() - NODE_PORTS.start()) + 1;
    let port = |step: u64| NODE_PORTS.start() + ((random % size + step) % size) as u16;
    (0..size).map(port).find(|port| !is_taken(*port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Resource;
    use serde_json::json;
    use std::collections::HashSet;

    #[test]
    fn address_is_held_once() {
        let key = |name: &str| Key::new(Resource("services"), "default", name);
        let held = |ip: &str, port: u16| {
            let ports = json!([{"port": 80}, {"port": 81, "nodePort": port}]);
            ServiceAllocation::from_service(&Object(
                json!({"spec": {"clusterIP": ip, "ports": ports, "healthCheckNodePort": port + 1}}),
            ))
        };
        let (a, b) = (key("a"), key("b"));
        let mut holdings = ServiceAllocations::default();
        holdings.put(&a, held("127.9.128.20", 30_000));
        assert!(holdings.has_address("127.9.128.20", &b) && !holdings.has_address("127.9.128.20", &a));
        assert!(holdings.has_port(30_000, &b) && holdings.has_port(30_001, &b) && !holdings.has_port(0, &b));
        holdings.put(&a, held("127.9.128.21", 30_002));
        assert!(!holdings.has_address("127.9.128.20", &b) && holdings.has_address("127.9.128.21", &b));
        assert!(!holdings.has_port(30_000, &b) && holdings.has_port(30_003, &b));
        holdings.remove(&a);
        assert!(!holdings.has_address("127.9.128.21", &b) && !holdings.has_port(30_002, &b));
    }

    #[test]
    fn addresses_are_free_and_in_range() {
        let mut taken = HashSet::<String>::new();
        for random in 0..2000 {
            let ip = free_service_ip(9, random * 7, |ip| taken.contains(ip)).unwrap();
            assert!(is_service_ip(9, &ip), "{ip}");
            assert!(taken.insert(ip));
        }
        assert!(!is_service_ip(9, "127.9.1.1") && !is_service_ip(9, "127.8.128.20") && !is_service_ip(9, "x"));
    }

    #[test]
    fn node_ports_run_out() {
        assert_eq!(free_node_port(5, |port| NODE_PORTS.contains(&port)), None);
        assert_eq!(free_node_port(2768, |_| false), Some(30000));
    }
}
