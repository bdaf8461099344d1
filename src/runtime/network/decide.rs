//! Decides about a socket call, from the call and the pod's address alone.

use super::routes::DNS_PORT;
use crate::runtime::low_ports::PODS;
use crate::world::ingress_routes;
use crate::world::start::DnsTarget;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

/// A system call that the filter reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketCall {
    /// `bind`
    Bind,
    /// `connect`
    Connect,
    /// `sendto` with an address.
    Send,
    /// `getsockname`
    Name,
}

/// A decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallDecision {
    /// The kernel continues the call unchanged.
    GoOn,
    /// Bind the pod's own address instead.
    Bind {
        /// The port; 0 for any.
        port: u16,
    },
    /// Connect to the pod's own listener at this port, or else the host's.
    Within {
        /// The port.
        port: u16,
    },
    /// Connect to another pod, from the pod's own address.
    Pod(SocketAddrV4),
    /// Connect to an endpoint of this Service.
    Service(SocketAddrV4),
    /// A DNS query, to any server.
    Names,
}

/// Third bytes of the addresses of pods, and of Services: `127.N.1.1` to `127.N.127.254`, `127.N.128.1` to `127.N.191.254`, and
/// `127.N.192.1` to `127.N.254.254` for load balancers, `127.N.255.1` for Ingresses.
const SERVICES: std::ops::RangeInclusive<u8> = 128..=255;

/// Returns the IPv4 form of an address; `None` for IPv6 addresses without one.
pub fn v4(asked: SocketAddr) -> Option<SocketAddrV4> {
    let ip = match asked.ip() {
        IpAddr::V4(ip) => ip,
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv4Addr::UNSPECIFIED,
        IpAddr::V6(ip) if ip.is_loopback() => Ipv4Addr::LOCALHOST,
        IpAddr::V6(ip) => ip.to_ipv4_mapped()?,
    };
    Some(SocketAddrV4::new(ip, asked.port()))
}

/// Whether this is the address of the cluster's own resolver.
pub fn is_resolver(asked: &SocketAddrV4, own: Ipv4Addr) -> bool {
    *asked == SocketAddrV4::new(ingress_routes::resolver(own.octets()[1]), DNS_PORT)
}

/// Decides about a call of the pod with the address `own`, whose programs use the DNS server `names`.
pub fn decide(call: SocketCall, asked: SocketAddr, own: Ipv4Addr, names: &DnsTarget) -> CallDecision {
    let Some(asked) = v4(asked) else { return CallDecision::GoOn };
    let (ip, port) = (*asked.ip(), asked.port());
    let is_here = ip.is_unspecified() || ip == Ipv4Addr::LOCALHOST;
    let [loopback, network, third, _] = ip.octets();
    let is_ours = loopback == 127 && network == own.octets()[1];
    match call {
        // A bind to any port of any address cannot conflict, and a client that binds this way may connect outside the cluster.
        SocketCall::Bind if ip.is_unspecified() && port == 0 => CallDecision::GoOn,
        SocketCall::Bind if is_here || ip == own => CallDecision::Bind { port },
        SocketCall::Bind | SocketCall::Name => CallDecision::GoOn,
        _ if port == DNS_PORT && !is_ours && !names.outside && !names.servers.contains(&ip) => CallDecision::Names,
        _ if is_resolver(&asked, own) => CallDecision::Names,
        _ if is_here => CallDecision::Within { port },
        _ if is_ours && SERVICES.contains(&third) => CallDecision::Service(SocketAddrV4::new(ip, port)),
        _ if is_ours && PODS.contains(&third) => CallDecision::Pod(SocketAddrV4::new(ip, port)),
        _ => CallDecision::GoOn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_decided_by_address() {
        let own = Ipv4Addr::new(127, 9, 1, 4);
        let to = |text: &str| match text.parse().unwrap() {
            SocketAddr::V4(to) => to,
            SocketAddr::V6(_) => unreachable!(),
        };
        let table = [
            (SocketCall::Bind, "0.0.0.0:80", CallDecision::Bind { port: 80 }),
            (SocketCall::Bind, "[::]:80", CallDecision::Bind { port: 80 }),
            (SocketCall::Bind, "127.0.0.1:80", CallDecision::Bind { port: 80 }),
            (SocketCall::Bind, "0.0.0.0:0", CallDecision::GoOn),
            (SocketCall::Bind, "[::]:0", CallDecision::GoOn),
            (SocketCall::Bind, "127.0.0.1:0", CallDecision::Bind { port: 0 }),
            (SocketCall::Send, "127.9.128.7:53", CallDecision::Service(to("127.9.128.7:53"))),
            (SocketCall::Bind, "[::1]:80", CallDecision::Bind { port: 80 }),
            (SocketCall::Bind, "[::ffff:0.0.0.0]:80", CallDecision::Bind { port: 80 }),
            (SocketCall::Bind, "127.9.1.4:80", CallDecision::Bind { port: 80 }),
            (SocketCall::Bind, "127.9.1.5:80", CallDecision::GoOn),
            (SocketCall::Bind, "10.0.0.1:80", CallDecision::GoOn),
            (SocketCall::Connect, "127.0.0.1:80", CallDecision::Within { port: 80 }),
            (SocketCall::Connect, "[::1]:80", CallDecision::Within { port: 80 }),
            (SocketCall::Send, "0.0.0.0:54", CallDecision::Within { port: 54 }),
            (SocketCall::Send, "0.0.0.0:53", CallDecision::Names),
            (SocketCall::Connect, "192.0.2.1:53", CallDecision::Names),
            (SocketCall::Connect, "127.9.1.7:53", CallDecision::Pod(to("127.9.1.7:53"))),
            (SocketCall::Connect, "127.9.128.1:443", CallDecision::Service(to("127.9.128.1:443"))),
            (SocketCall::Connect, "[::ffff:127.9.191.7]:443", CallDecision::Service(to("127.9.191.7:443"))),
            (SocketCall::Connect, "127.9.254.7:443", CallDecision::Service(to("127.9.254.7:443"))),
            (SocketCall::Connect, "127.9.255.53:53", CallDecision::Names),
            (SocketCall::Connect, "127.9.255.1:80", CallDecision::Service(to("127.9.255.1:80"))),
            (SocketCall::Connect, "127.9.2.2:80", CallDecision::Pod(to("127.9.2.2:80"))),
            (SocketCall::Connect, "127.8.128.1:443", CallDecision::GoOn),
            (SocketCall::Connect, "127.9.0.1:80", CallDecision::GoOn),
            (SocketCall::Connect, "192.0.2.1:80", CallDecision::GoOn),
            (SocketCall::Connect, "[2001:db8::1]:80", CallDecision::GoOn),
        ];
        for (call, asked, expected) in table {
            assert_eq!(decide(call, asked.parse().unwrap(), own, &DnsTarget::default()), expected, "{call:?} {asked}");
        }
        let beside = DnsTarget { outside: false, servers: vec!["192.0.2.1".parse().unwrap()] };
        let outside = DnsTarget { outside: true, servers: Vec::new() };
        let table = [
            ("192.0.2.1:53", CallDecision::GoOn, CallDecision::GoOn),
            ("192.0.2.2:53", CallDecision::Names, CallDecision::GoOn),
            ("127.0.0.53:53", CallDecision::Names, CallDecision::GoOn),
            ("127.0.0.1:53", CallDecision::Names, CallDecision::Within { port: 53 }),
            ("127.9.255.53:53", CallDecision::Names, CallDecision::Names),
        ];
        for (asked, beside_it, outside_it) in table {
            let found = |names| decide(SocketCall::Connect, asked.parse().unwrap(), own, names);
            assert_eq!((found(&beside), found(&outside)), (beside_it, outside_it), "{asked}");
        }
    }
}
