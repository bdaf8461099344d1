//! Low ports of pods on machines that reserve low ports for root.
//!
//! A program in a pod may listen at port 80 as in a cluster, although an ordinary user may not: its socket is bound to a higher port of the
//! pod's address, and every part of kloop that connects to the pod's port 80 connects to that port. Every process
//! computes the higher port from the low one: 61520 for 80, above the ports that Linux assigns by itself (32768 to 60999). Never: moves a
//! port of an address that is not a pod's.

use crate::world::ingress_routes::LOW_PORTS_MOVED_BY as MOVED_BY;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

/// Third bytes of the addresses of pods: `127.N.1.1` to `127.N.127.254`.
pub(super) const PODS: std::ops::RangeInclusive<u8> = 1..=127;

/// Whether this is an address of a pod of its own; pods on the host's network have another.
pub fn is_pod(ip: Ipv4Addr) -> bool {
    let [loopback, network, third, _] = ip.octets();
    loopback == 127 && network > 0 && PODS.contains(&third)
}

/// The lowest port that processes of this user may bind: 0 for root, else the machine's `net.ipv4.ip_unprivileged_port_start`.
pub fn lowest_allowed() -> u16 {
    if rustix::process::geteuid().is_root() {
        return 0;
    }
    let setting = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    setting.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(1024)
}

/// The place where a socket is bound that was to be bound to this one, which is the same but for low ports of pods.
pub fn moved_address(asked: SocketAddrV4) -> SocketAddrV4 {
    let may_move = is_pod(*asked.ip()) && (1..=u16::MAX - MOVED_BY).contains(&asked.port());
    if may_move { with_low_moved(asked, lowest_allowed()) } else { asked }
}

/// As [`moved_address`], of an address of any family.
pub fn socket_address(asked: SocketAddr) -> SocketAddr {
    match asked {
        SocketAddr::V4(asked) => moved_address(asked).into(),
        SocketAddr::V6(_) => asked,
    }
}

/// The port that was asked for where a socket of a pod is bound to this one.
pub fn requested_port(own: Ipv4Addr, port: u16) -> u16 {
    let low = port.checked_sub(MOVED_BY).filter(|low| is_pod(own) && *low > 0);
    low.filter(|low| *low < lowest_allowed()).unwrap_or(port)
}

fn with_low_moved(asked: SocketAddrV4, lowest: u16) -> SocketAddrV4 {
    let port = asked.port();
    let to = Some(port).filter(|port| *port < lowest).and_then(|port| port.checked_add(MOVED_BY));
    SocketAddrV4::new(*asked.ip(), to.unwrap_or(port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_ports_are_moved_and_the_others_stay() {
        let own = Ipv4Addr::new(127, 9, 1, 4);
        let port = |port, lowest| with_low_moved(SocketAddrV4::new(own, port), lowest).port();
        let table = [(80, 1024, 61_520), (1023, 1024, 62_463), (1024, 1024, 1024), (80, 80, 80), (79, 80, 61_519)];
        for (asked, lowest, expected) in table.into_iter().chain([(80, 0, 80), (60_000, u16::MAX, 60_000)]) {
            assert_eq!(port(asked, lowest), expected, "{asked}, {lowest}");
        }
    }

    #[test]
    fn only_pods_have_moved_ports_and_both_ways_agree() {
        for ip in [Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 9, 128, 1), Ipv4Addr::new(192, 0, 2, 1)] {
            assert_eq!(moved_address(SocketAddrV4::new(ip, 80)).port(), 80, "{ip}");
            assert_eq!(requested_port(ip, 61_520), 61_520, "{ip}");
        }
        let own = Ipv4Addr::new(127, 9, 1, 4);
        for port in [0, 1, 53, 80, 1023, 1024, 8080, 61_440, 65_535] {
            let place = moved_address(SocketAddrV4::new(own, port));
            assert_eq!(requested_port(own, place.port()), port, "{port}");
        }
    }
}
