//! Routes of Services, as files that shims read when a connection is made: one for each Service address, replaced as a whole.
//! They outlive the control plane. A line is a port: `tcp 80 any 127.9.1.4:8080 127.9.1.5:8080`. With session affinity the third word is
//! `same`, and the next one is the timeout in seconds and the port's name: `10800@127.9.128.7/http`. A node port has its own line,
//! `tcp-node 30080 any ...`, so that it still works while the Service's port changes.

use super::super::folder;
use super::affinity::{AffinitySession, SessionAffinity};
use super::random::random_number;
use super::tables;
use crate::object::Str;
use crate::world::plan::{Route, RoutePort};
use std::collections::HashSet;
use std::fmt::Write as _;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::time::Duration;

/// The folder of routes in a cluster's folder.
pub const FOLDER: &str = "routes";

/// The file of the resolver, which is found by its port and not by an address.
pub const DNS: &str = "dns";
/// The port of DNS.
pub const DNS_PORT: u16 = 53;

/// The addresses with a file.
#[derive(Default)]
pub struct WrittenRoutes(HashSet<Str>);

impl WrittenRoutes {
    /// Writes the routes of a Service, or removes them when it has no ports.
    pub fn write(&mut self, state: &Path, route: &Route) -> io::Result<()> {
        match route.ports.is_empty() {
            true => route.addresses().for_each(|address| {
                let _ = self.0.remove(address);
            }),
            false => self.0.extend(route.addresses().cloned()),
        }
        write(state, route)
    }

    /// Removes files of Services that are gone, from an earlier control plane. Call it once all routes have been written. The files of the
    /// resolver and of the Ingress proxy stay.
    pub fn sweep(&self, state: &Path) {
        let is_gone = |name: &str| {
            let address: Option<Ipv4Addr> = name.trim_end_matches(".new").parse().ok();
            address.is_some_and(|address| address.octets()[2] != 255) && !self.0.contains(name)
        };
        tables::sweep(state, FOLDER, is_gone);
    }
}

/// Writes routes, one file per address, or removes them when there are no ports.
pub fn write(state: &Path, route: &Route) -> io::Result<()> {
    let folder = state.join(FOLDER);
    if !route.ports.is_empty() {
        folder::private_folder(&folder).map_err(io::Error::other)?;
    }
    let text = text(route);
    let written = route.addresses().try_for_each(|address| {
        let file = folder.join(&**address);
        if text.is_empty() {
            return folder::remove_if_exists(&file);
        }
        folder::replace(&file, text.as_bytes())
    });
    written.and(tables::renew(state))
}

fn text(route: &Route) -> String {
    let mut text = String::new();
    for port in &route.ports {
        let protocol = port.protocol.to_lowercase();
        let how = match port.sticky {
            Some(seconds) => format!("same {seconds}@{}", port_key(route, port)),
            None => "any".to_owned(),
        };
        let mut line = |kind: &str, number: u16| {
            let _ = write!(text, "{protocol}{kind} {number} {how}");
            for endpoint in &port.endpoints {
                let _ = write!(text, " {endpoint}");
            }
            text.push('\n');
        };
        line("", port.port);
        port.node_port.into_iter().for_each(|number| line("-node", number));
    }
    text
}

/// Returns the name of a port among all ports of the cluster, independent of its number.
fn port_key(route: &Route, port: &RoutePort) -> String {
    format!("{}/{}", route.address, port.name)
}

/// The endpoint for a client.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct EndpointChoice {
    /// The endpoints in the order in which to try them; empty when none is ready.
    pub endpoints: Vec<SocketAddrV4>,
    /// Session to record once the client is connected, for a Service with session affinity.
    session: Option<AffinitySession>,
}

impl EndpointChoice {
    /// Chooses a random endpoint; the others follow it.
    pub fn pick_endpoint(mut endpoints: Vec<SocketAddrV4>, chance: u64) -> EndpointChoice {
        if !endpoints.is_empty() {
            let first = (chance % endpoints.len() as u64) as usize;
            endpoints.rotate_left(first);
        }
        EndpointChoice { endpoints, session: None }
    }

    /// Chooses for a client of a Service's port, with session affinity if the Service has it.
    pub fn for_port(route: &Route, port: &RoutePort, endpoints: Vec<SocketAddrV4>, client: Ipv4Addr) -> EndpointChoice {
        let lasts = |seconds: u32| Duration::from_secs(seconds.into());
        let session = |seconds| AffinitySession { client, port: port_key(route, port), lasts: lasts(seconds) };
        EndpointChoice {
            session: port.sticky.map(session),
            ..EndpointChoice::pick_endpoint(endpoints, random_number())
        }
    }

    /// Moves the client's previous endpoint to the front, if the Service has session affinity.
    pub fn preferred(mut self, affinity: &SessionAffinity) -> EndpointChoice {
        self.session.iter().for_each(|session| affinity.prefer(session, &mut self.endpoints));
        self
    }

    /// Records the endpoint that the client was connected to.
    pub fn taken(self, affinity: &SessionAffinity, to: SocketAddrV4) {
        self.session.into_iter().for_each(|session| affinity.remember(session, to));
    }
}

/// Chooses the endpoint for a client of a Service's port, from the text of the Service's file.
pub fn choose(text: &str, port: u16, stream: bool, client: Ipv4Addr, chance: u64) -> EndpointChoice {
    pick_from_line(text, if stream { "tcp" } else { "udp" }, port, client, chance)
}

/// Chooses the endpoint for a client of a node port.
pub fn choose_for_node(text: &str, port: u16, stream: bool, client: Ipv4Addr, chance: u64) -> EndpointChoice {
    pick_from_line(text, if stream { "tcp-node" } else { "udp-node" }, port, client, chance)
}

/// Chooses from the line that begins with these two words.
fn pick_from_line(text: &str, kind: &str, port: u16, client: Ipv4Addr, chance: u64) -> EndpointChoice {
    let mut lines = text.lines().map(|line| line.split(' '));
    let line = lines.find_map(|mut words| {
        let is_it = words.next() == Some(kind) && words.next().and_then(|number| number.parse().ok()) == Some(port);
        is_it.then_some(words)
    });
    let Some(mut words) = line else { return EndpointChoice::default() };
    let is_kept = words.next() == Some("same");
    let session = is_kept.then(|| words.next()?.split_once('@')).flatten().and_then(|(seconds, name)| {
        Some(AffinitySession { client, port: name.to_owned(), lasts: Duration::from_secs(seconds.parse().ok()?) })
    });
    let endpoints = words.filter_map(|endpoint| endpoint.parse().ok()).collect();
    EndpointChoice { session, ..EndpointChoice::pick_endpoint(endpoints, chance) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const TEXT: &str =
        "tcp 80 any 127.9.1.4:8080 127.9.1.5:8080 127.9.1.6:8080\nudp 53 any 127.9.1.7:53 127.9.1.8:53\ntcp 81 any\n";

    fn endpoints_of(port: u16, stream: bool, client: u8, chance: u64) -> Vec<String> {
        let found = choose(TEXT, port, stream, Ipv4Addr::new(127, 9, 1, client), chance);
        found.endpoints.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_endpoint_is_chosen() {
        let firsts: BTreeSet<String> = (0..3).map(|chance| endpoints_of(80, true, 1, chance)[0].clone()).collect();
        assert_eq!(firsts.len(), 3);
        assert_eq!(endpoints_of(80, true, 1, 1), ["127.9.1.5:8080", "127.9.1.6:8080", "127.9.1.4:8080"]);
        assert_eq!(endpoints_of(81, true, 1, 7), [""; 0], "no endpoint is ready");
        assert_eq!(endpoints_of(80, false, 1, 7), [""; 0], "another protocol");
        assert_eq!(endpoints_of(53, true, 1, 7), [""; 0]);
    }

    #[test]
    fn node_port_works_while_the_service_port_changes() {
        let node_port = |port: u16| {
            let (name, protocol, endpoints) = ("".into(), "TCP".into(), vec!["127.9.1.4:8080".into()]);
            let port = RoutePort {
                name,
                protocol,
                port,
                node_port: Some(30_080),
                is_open: false,
                sticky: None,
                is_h2: false,
                endpoints,
            };
            let text = text(&Route { ports: vec![port], ..Route::default() });
            choose_for_node(&text, 30_080, true, Ipv4Addr::LOCALHOST, 0).endpoints
        };
        assert_eq!(node_port(80), ["127.9.1.4:8080".parse().unwrap()]);
        assert_eq!(node_port(80), node_port(81));
        assert_eq!(endpoints_of(80, true, 1, 0).len(), 3);
        assert_eq!(choose_for_node(TEXT, 80, true, Ipv4Addr::LOCALHOST, 0).endpoints, [], "80 is not a node port");
    }

    #[test]
    fn session_affinity_covers_all_addresses_of_a_service() {
        let port = |name: &str, sticky| RoutePort {
            name: name.into(),
            protocol: "TCP".into(),
            port: 80,
            node_port: Some(30_080),
            is_open: false,
            sticky,
            is_h2: false,
            endpoints: vec!["127.9.1.4:8080".into(), "127.9.1.5:8080".into(), "127.9.1.6:8080".into()],
        };
        let route =
            |sticky| Route { address: "127.9.128.7".into(), ports: vec![port("http", sticky)], ..Route::default() };
        let (text, affinity) = (text(&route(Some(60))), SessionAffinity::default());
        assert!(text.starts_with("tcp 80 same 60@127.9.128.7/http 127.9.1.4:8080 "), "{text}");
        let first = choose(&text, 80, true, Ipv4Addr::LOCALHOST, 2).preferred(&affinity);
        let to = first.endpoints[0];
        assert_eq!(to, "127.9.1.6:8080".parse().unwrap(), "a random endpoint");
        first.taken(&affinity, to);
        for chance in 0..3 {
            let service = choose(&text, 80, true, Ipv4Addr::LOCALHOST, chance).preferred(&affinity);
            let node = choose_for_node(&text, 30_080, true, Ipv4Addr::LOCALHOST, chance).preferred(&affinity);
            let ports = &route(Some(60));
            let all = service.endpoints.clone();
            let ingress =
                EndpointChoice::for_port(ports, &ports.ports[0], all, Ipv4Addr::LOCALHOST).preferred(&affinity);
            let firsts = [service, node, ingress].map(|choice| choice.endpoints[0]);
            assert_eq!(firsts, [to; 3]);
        }
        let free = self::text(&route(None));
        assert_eq!(
            choose(&free, 80, true, Ipv4Addr::LOCALHOST, 0).preferred(&affinity).endpoints[0].ip().octets()[3],
            4
        );
    }
}
