//! Which addresses and ports Services are given.

use std::collections::HashSet;

/// Node ports that the server gives out (Kubernetes' default range).
pub const NODE_PORTS: std::ops::RangeInclusive<u16> = 30000..=32767;

/// Third octets of the Service addresses in the cluster's 127.N.0.0/16.
const SERVICES: std::ops::RangeInclusive<u8> = 128..=191;

/// The address of the `kubernetes` Service: the first of the range.
pub fn first_service_ip(network: u8) -> String {
    format!("127.{network}.{}.1", SERVICES.start())
}

/// Whether an address lies in the range of Services.
pub fn is_service_ip(network: u8, ip: &str) -> bool {
    let octets: Vec<u8> = ip.split('.').filter_map(|octet| octet.parse().ok()).collect();
    matches!(octets[..], [127, n, third, _] if n == network && SERVICES.contains(&third))
}

/// A free Service address, searched from a place that chance gives.
pub fn free_service_ip(network: u8, chance: u64, taken: &HashSet<String>) -> Option<String> {
    let hosts = u64::from(SERVICES.end() - SERVICES.start() + 1) * 256;
    let address = |number: u64| {
        let third = u64::from(*SERVICES.start()) + number / 256;
        format!("127.{network}.{third}.{}", number % 256)
    };
    // Neither the first 16 (kept for fixed addresses, as Kubernetes does) nor .0 and .255.
    let usable = |number: &u64| *number >= 16 && !matches!(number % 256, 0 | 255);
    (0..hosts).map(|step| (chance % hosts + step) % hosts).filter(usable).map(address).find(|ip| !taken.contains(ip))
}

/// A free node port, searched from a place that chance gives.
pub fn free_node_port(chance: u64, taken: &HashSet<u16>) -> Option<u16> {
    let size = u64::from(NODE_PORTS.end() - NODE_PORTS.start()) + 1;
    let port = |step: u64| NODE_PORTS.start() + ((chance % size + step) % size) as u16;
    (0..size).map(port).find(|port| !taken.contains(port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_free_and_in_range() {
        let mut taken = HashSet::new();
        for chance in 0..2000 {
            let ip = free_service_ip(9, chance * 7, &taken).unwrap();
            assert!(is_service_ip(9, &ip), "{ip}");
            assert!(taken.insert(ip));
        }
        assert!(!is_service_ip(9, "127.9.1.1") && !is_service_ip(9, "127.8.128.20") && !is_service_ip(9, "x"));
    }

    #[test]
    fn node_ports_run_out() {
        let taken: HashSet<u16> = NODE_PORTS.collect();
        assert_eq!(free_node_port(5, &taken), None);
        assert_eq!(free_node_port(2768, &HashSet::new()), Some(30000));
    }
}
