//! Where Services lead, as files that shims read at the moment of a connection: one for each Service address, replaced as a whole.
//! They outlive the control plane. A line is a port: `tcp 80 any 127.9.1.4:8080 127.9.1.5:8080`; the third word is `same` when a
//! client is to come to the same endpoint each time. A node port has a line of its own, `tcp-node 30080 any ...`: it leads on while the
//! Service's port becomes another.

use super::tables;
use crate::object::Str;
use crate::world::plan::Route;
use std::cell::Cell;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;

/// The folder of routes in a cluster's folder.
pub const FOLDER: &str = "routes";

/// The file of the resolver, which is reached by its port and not by its address.
pub const DNS: &str = "dns";
/// The port of resolvers.
pub const DNS_PORT: u16 = 53;

/// The addresses that have a file.
#[derive(Default)]
pub struct Written(HashSet<Str>);

impl Written {
    /// Writes, or with no ports removes, the routes of a Service.
    pub fn write(&mut self, state: &Path, route: &Route) -> io::Result<()> {
        match route.ports.is_empty() {
            true => route.addresses().for_each(|address| {
                let _ = self.0.remove(address);
            }),
            false => self.0.extend(route.addresses().cloned()),
        }
        write(state, route)
    }

    /// Removes what an earlier control plane has written of Services that are gone: call it once all routes have been written. The
    /// files of the resolver and of the proxy for Ingresses are theirs.
    pub fn sweep(&self, state: &Path) {
        let is_gone = |name: &str| {
            let address: Option<Ipv4Addr> = name.trim_end_matches(".new").parse().ok();
            address.is_some_and(|address| address.octets()[2] != 255) && !self.0.contains(name)
        };
        for entry in fs::read_dir(state.join(FOLDER)).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(is_gone) {
                let _ = fs::remove_file(entry.path());
            }
        }
        let _ = tables::renew(state);
    }
}

/// Writes, or with no ports removes, routes: a file for each address.
pub fn write(state: &Path, route: &Route) -> io::Result<()> {
    let folder = state.join(FOLDER);
    if !route.ports.is_empty() {
        fs::create_dir_all(&folder)?;
    }
    let text = text(route);
    let written = route.addresses().try_for_each(|address| {
        let file = folder.join(&**address);
        if text.is_empty() {
            let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
            return fs::remove_file(&file).or_else(|error| if gone(&error) { Ok(()) } else { Err(error) });
        }
        let new = folder.join(format!("{address}.new"));
        fs::write(&new, &text)?;
        fs::rename(&new, &file)
    });
    written.and(tables::renew(state))
}

fn text(route: &Route) -> String {
    let mut text = String::new();
    for port in &route.ports {
        let (protocol, how) = (port.protocol.to_lowercase(), if port.sticky { "same" } else { "any" });
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

/// The endpoints of a Service's port, in the order in which to try them; none when there are none.
pub fn endpoints(folder: &Path, service: &str, port: u16, stream: bool, client: Ipv4Addr) -> Vec<SocketAddrV4> {
    let text = fs::read_to_string(folder.join(service)).unwrap_or_default();
    choose(&text, port, stream, client, chance())
}

thread_local! {
    /// What makes chance of a number, and how often it was asked for: the system is asked once.
    static CHANCE: (RandomState, Cell<u64>) = (RandomState::new(), Cell::new(0));
}

/// A random number; good enough to choose by, and for nothing secret.
pub fn chance() -> u64 {
    CHANCE.with(|(chance, count)| {
        count.set(count.get().wrapping_add(1));
        chance.hash_one(count.get())
    })
}

/// The same from what the file of a Service says.
pub fn choose(text: &str, port: u16, stream: bool, client: Ipv4Addr, chance: u64) -> Vec<SocketAddrV4> {
    among(text, if stream { "tcp" } else { "udp" }, port, client, chance)
}

/// The same for a node port.
pub fn choose_for_node(text: &str, port: u16, stream: bool, client: Ipv4Addr, chance: u64) -> Vec<SocketAddrV4> {
    among(text, if stream { "tcp-node" } else { "udp-node" }, port, client, chance)
}

/// The endpoints in the line that begins with these two words.
fn among(text: &str, kind: &str, port: u16, client: Ipv4Addr, chance: u64) -> Vec<SocketAddrV4> {
    let mut lines = text.lines().map(|line| line.split(' '));
    let line = lines.find_map(|mut words| {
        let is_it = words.next() == Some(kind) && words.next().and_then(|number| number.parse().ok()) == Some(port);
        is_it.then_some(words)
    });
    let Some(mut words) = line else { return Vec::new() };
    let sticky = words.next() == Some("same");
    in_order(words.filter_map(|endpoint| endpoint.parse().ok()).collect(), sticky, client, chance)
}

/// Endpoints in the order in which a client is to try them.
pub fn in_order(mut found: Vec<SocketAddrV4>, sticky: bool, client: Ipv4Addr, chance: u64) -> Vec<SocketAddrV4> {
    if sticky {
        // The endpoint that likes this client best: it stays the same while it is there, whichever others come and go.
        found.sort_by_key(|endpoint| std::cmp::Reverse(liking(client, *endpoint)));
    } else if !found.is_empty() {
        let first = (chance % found.len() as u64) as usize;
        found.rotate_left(first);
    }
    found
}

/// FNV-1a over both addresses.
fn liking(client: Ipv4Addr, endpoint: SocketAddrV4) -> u64 {
    let port = endpoint.port().to_ne_bytes();
    let bytes = client.octets().into_iter().chain(endpoint.ip().octets()).chain(port);
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const TEXT: &str =
        "tcp 80 any 127.9.1.4:8080 127.9.1.5:8080 127.9.1.6:8080\nudp 53 same 127.9.1.7:53 127.9.1.8:53\ntcp 81 any\n";

    fn at(port: u16, stream: bool, client: u8, chance: u64) -> Vec<String> {
        let found = choose(TEXT, port, stream, Ipv4Addr::new(127, 9, 1, client), chance);
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_endpoint_has_its_turn() {
        let firsts: BTreeSet<String> = (0..3).map(|chance| at(80, true, 1, chance)[0].clone()).collect();
        assert_eq!(firsts.len(), 3);
        assert_eq!(at(80, true, 1, 1), ["127.9.1.5:8080", "127.9.1.6:8080", "127.9.1.4:8080"]);
        assert_eq!(at(81, true, 1, 7), [""; 0], "nobody is there");
        assert_eq!(at(80, false, 1, 7), [""; 0], "another protocol");
        assert_eq!(at(53, true, 1, 7), [""; 0]);
    }

    #[test]
    fn a_node_port_leads_on_while_the_port_becomes_another() {
        let node_port = |port: u16| {
            let (name, protocol, endpoints) = ("".into(), "TCP".into(), vec!["127.9.1.4:8080".into()]);
            let port = crate::world::plan::RoutePort {
                name,
                protocol,
                port,
                node_port: Some(30_080),
                is_open: false,
                sticky: false,
                is_h2: false,
                endpoints,
            };
            let text = text(&Route { ports: vec![port], ..Route::default() });
            choose_for_node(&text, 30_080, true, Ipv4Addr::LOCALHOST, 0)
        };
        assert_eq!(node_port(80), ["127.9.1.4:8080".parse().unwrap()]);
        assert_eq!(node_port(80), node_port(81));
        assert_eq!(at(80, true, 1, 0).len(), 3);
        assert_eq!(choose_for_node(TEXT, 80, true, Ipv4Addr::LOCALHOST, 0), [], "it is no node port");
    }

    #[test]
    fn a_client_comes_to_the_same_endpoint() {
        let firsts: BTreeSet<String> = (0..9).map(|chance| at(53, false, 1, chance)[0].clone()).collect();
        assert_eq!(firsts.len(), 1);
        let all: BTreeSet<String> = (0..20).map(|client| at(53, false, client, 0)[0].clone()).collect();
        assert_eq!(all.len(), 2, "not all clients to one");
    }
}
