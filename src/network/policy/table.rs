//! Decides whether a connection is allowed, from a text for each policy, and a text for each pod with the names of its
//! policies. Shims read the texts for each connection.
//!
//! If any policy selects a pod in a direction, only connections that at least one policy allows are possible in that
//! direction. A connection must be allowed for the client (egress) and for the server (ingress).

use crate::world::policy::{Cidr, NetworkPolicyRules, PolicyPeer, PolicyRule, PortRange};
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

/// Direction of a connection, as seen by a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Into the pod: a client connects to it.
    Ingress,
    /// Out of the pod: it connects to a server.
    Egress,
}

/// A connection, or a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyFlow<'a> {
    /// The client.
    pub from: Ipv4Addr,
    /// The server.
    pub to: SocketAddrV4,
    /// `tcp` or `udp`.
    pub protocol: &'a str,
}

impl Direction {
    fn word(self) -> &'static str {
        match self {
            Direction::Ingress => "ingress",
            Direction::Egress => "egress",
        }
    }

    /// The address to which its rules apply.
    fn peer(self, flow: &PolicyFlow) -> Ipv4Addr {
        match self {
            Direction::Ingress => flow.from,
            Direction::Egress => *flow.to.ip(),
        }
    }
}

/// Formats a policy for shims: `ingress` or `egress` if the policy applies to that direction, and below it a line for
/// each rule: peers and ports, each `*` for all.
pub fn text(policy: &NetworkPolicyRules) -> String {
    let mut text = String::new();
    for (direction, rules) in [(Direction::Ingress, &policy.ingress), (Direction::Egress, &policy.egress)] {
        let Some(rules) = rules else { continue };
        let _ = writeln!(text, "{}", direction.word());
        for rule in rules {
            let _ = writeln!(text, " {} {}", peers(rule), ports(rule));
        }
    }
    text
}

fn peers(rule: &PolicyRule) -> String {
    let Some(peers) = &rule.peers else { return "*".into() };
    let peer = |peer: &PolicyPeer| match peer {
        PolicyPeer::Pod(address) => address.to_string(),
        PolicyPeer::Block { cidr, except } => {
            std::iter::once(cidr).chain(except).map(Cidr::to_string).collect::<Vec<_>>().join("!")
        }
    };
    format!("={}", peers.iter().map(peer).collect::<Vec<_>>().join(","))
}

fn ports(rule: &PolicyRule) -> String {
    let Some(ports) = &rule.ports else { return "*".into() };
    let port = |port: &PortRange| {
        let on = port.on.map(|on| format!("@{on}")).unwrap_or_default();
        format!("{}:{}-{}{on}", port.protocol, port.first, port.last)
    };
    format!("={}", ports.iter().map(port).collect::<Vec<_>>().join(","))
}

/// Whether a policy allows a connection; `None` when it has no rules for this direction.
pub fn allows(text: &str, direction: Direction, flow: &PolicyFlow) -> Option<bool> {
    let mut lines = text.lines().skip_while(|line| *line != direction.word());
    lines.next()?;
    let mut rules = lines.take_while(|line| line.starts_with(' '));
    Some(rules.any(|rule| {
        rule.trim_start().split_once(' ').is_some_and(|(peers, ports)| {
            is_listed(peers, |peer| is_peer(peer, direction.peer(flow))) && is_listed(ports, |port| is_port(port, flow))
        })
    }))
}

fn is_listed(list: &str, is_it: impl Fn(&str) -> bool) -> bool {
    list == "*" || list.strip_prefix('=').is_some_and(|list| list.split(',').any(is_it))
}

fn is_peer(text: &str, address: Ipv4Addr) -> bool {
    let mut blocks = text.split('!').map(|block| block.parse::<Cidr>().is_ok_and(|block| block.contains(address)));
    blocks.next() == Some(true) && !blocks.any(|is_excepted| is_excepted)
}

fn is_port(text: &str, flow: &PolicyFlow) -> bool {
    let (range, on) = text.split_once('@').map_or((text, None), |(range, on)| (range, Some(on)));
    let read = || {
        let (protocol, ports) = range.split_once(':')?;
        let (first, last) = ports.split_once('-')?;
        Some((protocol, first.parse::<u16>().ok()?..=last.parse().ok()?))
    };
    let is_in = read().is_some_and(|(protocol, ports)| protocol == flow.protocol && ports.contains(&flow.to.port()));
    is_in && on.is_none_or(|on| on.parse() == Ok(*flow.to.ip()))
}

/// Combines all policies of a pod, given by name and text. Returns the policies that apply to this direction when none
/// of them allows the connection; `None` when it is allowed.
pub fn denied(policies: &[(String, Rc<str>)], direction: Direction, flow: &PolicyFlow) -> Option<Vec<String>> {
    let verdicts = policies.iter().filter_map(|(name, text)| Some((name, allows(text, direction, flow)?)));
    let mut applicable = Vec::new();
    for (name, allows) in verdicts {
        if allows {
            return None;
        }
        applicable.push(name.clone());
    }
    (!applicable.is_empty()).then_some(applicable)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: &str = "127.9.1.4";

    fn flow(to: &str, protocol: &'static str) -> PolicyFlow<'static> {
        PolicyFlow { from: CLIENT.parse().unwrap(), to: to.parse().unwrap(), protocol }
    }

    fn pod(address: &str) -> PolicyPeer {
        PolicyPeer::Pod(address.parse().unwrap())
    }

    fn block(cidr: &str, except: &[&str]) -> PolicyPeer {
        PolicyPeer::Block {
            cidr: cidr.parse().unwrap(),
            except: except.iter().map(|one| one.parse().unwrap()).collect(),
        }
    }

    fn port(protocol: &str, first: u16, last: u16, on: Option<&str>) -> PortRange {
        PortRange { protocol: protocol.into(), first, last, on: on.map(|on| on.parse().unwrap()) }
    }

    fn rule(peers: Option<Vec<PolicyPeer>>, ports: Option<Vec<PortRange>>) -> PolicyRule {
        PolicyRule { peers, ports }
    }

    fn egress(rules: Vec<PolicyRule>) -> NetworkPolicyRules {
        NetworkPolicyRules { egress: Some(rules), ..NetworkPolicyRules::default() }
    }

    #[test]
    fn rules_allow_matching_connections() {
        let outside = || vec![block("10.0.0.0/8", &["10.1.0.0/16"]), block("192.0.2.7", &[])];
        let table = [
            (NetworkPolicyRules::default(), "127.9.1.5:80", "tcp", None),
            (egress(vec![]), "127.9.1.5:80", "tcp", Some(false)),
            (egress(vec![rule(None, None)]), "127.9.1.5:80", "udp", Some(true)),
            (egress(vec![rule(Some(vec![]), None)]), "127.9.1.5:80", "tcp", Some(false)),
            (egress(vec![rule(None, Some(vec![]))]), "127.9.1.5:80", "tcp", Some(false)),
            (egress(vec![rule(Some(vec![pod("127.9.1.5")]), None)]), "127.9.1.5:80", "tcp", Some(true)),
            (egress(vec![rule(Some(vec![pod("127.9.1.5")]), None)]), "127.9.1.6:80", "tcp", Some(false)),
            (egress(vec![rule(Some(outside()), None)]), "10.2.0.1:443", "tcp", Some(true)),
            (egress(vec![rule(Some(outside()), None)]), "10.1.2.3:443", "tcp", Some(false)),
            (egress(vec![rule(Some(outside()), None)]), "192.0.2.7:443", "tcp", Some(true)),
            (egress(vec![rule(Some(outside()), None)]), "192.0.2.8:443", "tcp", Some(false)),
            (egress(vec![rule(Some(vec![block("0.0.0.0/0", &[])]), None)]), "8.8.8.8:53", "udp", Some(true)),
            (egress(vec![rule(None, Some(vec![port("tcp", 80, 90, None)]))]), "127.9.1.5:90", "tcp", Some(true)),
            (egress(vec![rule(None, Some(vec![port("tcp", 80, 90, None)]))]), "127.9.1.5:91", "tcp", Some(false)),
            (egress(vec![rule(None, Some(vec![port("tcp", 80, 90, None)]))]), "127.9.1.5:80", "udp", Some(false)),
            (
                egress(vec![rule(None, Some(vec![port("tcp", 80, 80, Some("127.9.1.5"))]))]),
                "127.9.1.5:80",
                "tcp",
                Some(true),
            ),
            (
                egress(vec![rule(None, Some(vec![port("tcp", 80, 80, Some("127.9.1.5"))]))]),
                "127.9.1.6:80",
                "tcp",
                Some(false),
            ),
            (
                egress(vec![rule(Some(vec![]), None), rule(None, Some(vec![port("udp", 53, 53, None)]))]),
                "127.9.1.6:53",
                "udp",
                Some(true),
            ),
        ];
        for (policy, to, protocol, expected) in table {
            let text = text(&policy);
            assert_eq!(allows(&text, Direction::Egress, &flow(to, protocol)), expected, "{text:?} {to} {protocol}");
            assert_eq!(allows(&text, Direction::Ingress, &flow(to, protocol)), None, "it applies only to egress");
        }
        let open = NetworkPolicyRules {
            ingress: Some(vec![rule(Some(vec![pod(CLIENT)]), None)]),
            egress: Some(vec![]),
            ..NetworkPolicyRules::default()
        };
        assert_eq!(
            allows(&text(&open), Direction::Ingress, &flow("127.9.1.5:80", "tcp")),
            Some(true),
            "ingress rules check the client"
        );
        assert_eq!(allows(&text(&open), Direction::Egress, &flow("127.9.1.5:80", "tcp")), Some(false));
    }

    #[test]
    fn one_allowing_policy_is_enough() {
        let named = |name: &str, policy: &NetworkPolicyRules| (name.to_owned(), Rc::from(text(policy)));
        let nothing = named("a/nothing", &egress(vec![]));
        let everything = named("a/everything", &egress(vec![rule(None, None)]));
        let silent = named("a/silent", &NetworkPolicyRules { ingress: Some(vec![]), ..NetworkPolicyRules::default() });
        let denied = |policies: &[(String, Rc<str>)]| denied(policies, Direction::Egress, &flow("127.9.1.5:80", "tcp"));
        assert_eq!(denied(&[]), None);
        assert_eq!(denied(std::slice::from_ref(&silent)), None);
        assert_eq!(denied(&[nothing.clone(), silent]), Some(vec!["a/nothing".to_owned()]));
        assert_eq!(denied(&[nothing, everything]), None);
    }
}
