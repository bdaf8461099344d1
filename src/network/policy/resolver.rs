//! Resolves the rules of a NetworkPolicy to addresses and ports.
//!
//! Each selector is evaluated once, each list of peers is resolved once, and rules that resolve to the same peers become one: a policy can
//! list thousands of equal ones, and it is resolved again at each change of a pod. Start reading at [`resolve`].

use crate::object::Object;
use crate::object::selector::Selector;
use crate::world::policy::{Cidr, NetworkPolicyRules, PolicyPeer, PolicyRule, PortRange};
use crate::world::{Row, World};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::sync::Arc;

/// Resolves a policy against the current World.
pub fn resolve(world: &World, row: &Row) -> NetworkPolicyRules {
    let object = row.body();
    let mut resolver = Resolver::new(world, &row.key.namespace, count_peers(&object));
    let subjects = Selector::from_label_selector(&object.0["spec"]["podSelector"]);
    let subjects = subjects.map_or_else(|_| Vec::new(), |selector| pods(world, &row.key.namespace, &selector));
    let types = object.items(&["spec", "policyTypes"]);
    let applies_to = |direction: &str| types.iter().any(|one| one == direction);
    let mut addresses: Vec<Ipv4Addr> = subjects.iter().filter_map(|row| address(row)).collect();
    addresses.sort();
    let listed = |field: &str, peers: &str| grouped(object.items(&["spec", field]), peers);
    NetworkPolicyRules {
        ingress: applies_to("Ingress").then(|| resolver.rules(listed("ingress", "from"), Some(&subjects))),
        egress: applies_to("Egress").then(|| resolver.rules(listed("egress", "to"), None)),
        subjects: addresses,
    }
}

fn count_peers(policy: &Object) -> usize {
    let count = |field: &str, peers: &str| -> usize {
        policy.items(&["spec", field]).iter().map(|rule| rule[peers].as_array().map_or(0, Vec::len)).sum()
    };
    count("ingress", "from") + count("egress", "to")
}

/// The pods of a namespace that a selector matches, if they have an address on the pod network.
fn pods<'w>(world: &'w World, namespace: &'w str, selector: &Selector) -> Vec<&'w Arc<Row>> {
    let mut pods = world.pods_matching(namespace, selector);
    pods.retain(|row| own_address(world, row).is_some());
    pods
}

/// Ports as they are written in a policy; `None` for all of them.
type RulePorts<'w> = Option<HashSet<&'w Value>>;

/// The ports of resolved peers; `None` for all of them.
type ResolvedRules = BTreeMap<Option<Vec<PolicyPeer>>, Option<Vec<PortRange>>>;

/// Combines the ports of the rules that list the same peers. Without peers, a rule is for all.
fn grouped<'w>(rules: &'w [Value], peers: &str) -> HashMap<Option<&'w [Value]>, RulePorts<'w>> {
    let mut groups: HashMap<Option<&[Value]>, RulePorts> = HashMap::new();
    for rule in rules {
        let listed = |field: &str| rule[field].as_array().map(Vec::as_slice).filter(|listed| !listed.is_empty());
        let ports = groups.entry(listed(peers)).or_insert_with(|| Some(HashSet::new()));
        match (listed("ports"), ports.as_mut()) {
            (Some(listed), Some(ports)) => ports.extend(listed),
            _ => *ports = None,
        }
    }
    groups
}

/// The `namespaceSelector` and the `podSelector` of a peer.
type PeerSelectors<'w> = (Option<&'w Value>, Option<&'w Value>);

/// Resolves the peers and ports of one policy.
struct Resolver<'w> {
    world: &'w World,
    /// The policy's namespace.
    namespace: &'w str,
    /// The addresses that peers select.
    selected: HashMap<PeerSelectors<'w>, Rc<[Ipv4Addr]>>,
    /// All pods with an address, ordered by it; filled when a rule first needs it.
    by_address: Option<Vec<(Ipv4Addr, &'w Arc<Row>)>>,
    /// The pods of each namespace by their labels, for policies with many peers.
    by_labels: Option<HashMap<&'w str, Vec<SameLabels<'w>>>>,
}

/// Number of peers above which selectors are evaluated once for each set of labels, instead of for each pod.
const MANY_PEERS: usize = 64;

/// Pods of a namespace with the same labels.
struct SameLabels<'w> {
    /// One of them.
    row: &'w Row,
    addresses: Vec<Ipv4Addr>,
}

impl<'w> Resolver<'w> {
    fn new(world: &'w World, namespace: &'w str, peers: usize) -> Resolver<'w> {
        let by_labels = (peers > MANY_PEERS).then(HashMap::new);
        Resolver { world, namespace, selected: HashMap::new(), by_address: None, by_labels }
    }

    /// Resolves groups of rules. The servers, whose named ports count, are the same for all of them, or the peers of each group.
    fn rules(
        &mut self,
        groups: HashMap<Option<&'w [Value]>, RulePorts<'w>>,
        servers: Option<&[&'w Arc<Row>]>,
    ) -> Vec<PolicyRule> {
        let mut resolved = ResolvedRules::new();
        for (peers, ports) in groups {
            let peers = peers.map(|peers| self.peers(peers));
            let ports = ports.map(|ports| match servers {
                Some(servers) => ranges(&ports, servers),
                None if ports.iter().any(|port| is_named(port)) => ranges(&ports, &self.servers(peers.as_deref())),
                None => ranges(&ports, &[]),
            });
            match (resolved.get_mut(&peers), ports) {
                (Some(Some(known)), Some(ports)) => {
                    known.extend(ports);
                    known.sort();
                    known.dedup();
                }
                (Some(known), _) => *known = None,
                (None, ports) => drop(resolved.insert(peers, ports)),
            }
        }
        resolved.into_iter().map(|(peers, ports)| PolicyRule { peers, ports }).collect()
    }

    /// Resolves a list of peers, each once and in order. IPv6 blocks match nothing.
    fn peers(&mut self, peers: &'w [Value]) -> Vec<PolicyPeer> {
        let (mut blocks, mut lists) = (BTreeSet::new(), HashSet::new());
        for peer in peers.iter().collect::<HashSet<_>>() {
            match peer.get("ipBlock") {
                Some(block) => blocks.extend(address_block(block)),
                None => drop(lists.insert(self.selected(peer))),
            }
        }
        let pods: BTreeSet<Ipv4Addr> = lists.iter().flat_map(|list| list.iter().copied()).collect();
        pods.into_iter().map(PolicyPeer::Pod).chain(blocks).collect()
    }

    /// The addresses of the pods that the selectors of a peer match.
    fn selected(&mut self, peer: &'w Value) -> Rc<[Ipv4Addr]> {
        let selector = |field: &str| peer.get(field).filter(|selector| !selector.is_null());
        let selectors = (selector("namespaceSelector"), selector("podSelector"));
        if let Some(known) = self.selected.get(&selectors) {
            return Rc::clone(known);
        }
        let parse = |selector: Option<&Value>| selector.map(Selector::from_label_selector).transpose();
        let found: Rc<[Ipv4Addr]> = match (parse(selectors.0), parse(selectors.1)) {
            (Ok(namespaces), Ok(pods)) => {
                self.addresses(namespaces.as_ref(), &pods.unwrap_or_else(Selector::everything)).into()
            }
            _ => Rc::default(),
        };
        self.selected.insert(selectors, Rc::clone(&found));
        found
    }

    fn addresses(&mut self, namespaces: Option<&Selector>, pods: &Selector) -> Vec<Ipv4Addr> {
        let Some(namespaces) = namespaces else { return self.addresses_in(self.namespace, pods) };
        let world = self.world;
        let selected = world.list("namespaces").filter(|row| namespaces.matches(|label| row.label(label)));
        selected.flat_map(|row| self.addresses_in(&row.key.name, pods)).collect()
    }

    fn addresses_in(&mut self, namespace: &'w str, selector: &Selector) -> Vec<Ipv4Addr> {
        let world = self.world;
        let Some(by_labels) = &mut self.by_labels else {
            return pods(world, namespace, selector).into_iter().filter_map(|row| address(row)).collect();
        };
        let groups = by_labels.entry(namespace).or_insert_with(|| by_labels_in(world, namespace));
        let matching = groups.iter().filter(|group| selector.matches(|label| group.row.label(label)));
        matching.flat_map(|group| &group.addresses).copied().collect()
    }

    /// Returns the destination pods: the selected ones, those in a block, or all when the rule has no peers.
    fn servers(&mut self, peers: Option<&[PolicyPeer]>) -> Vec<&'w Arc<Row>> {
        let world = self.world;
        let all = self.by_address.get_or_insert_with(|| {
            let mut all: Vec<_> = world.list("pods").filter_map(|row| Some((address(row)?, row))).collect();
            all.sort_by_key(|(ip, _)| *ip);
            all
        });
        let Some(peers) = peers else { return all.iter().map(|(_, row)| *row).collect() };
        let mut places = BTreeSet::new();
        for peer in peers {
            let (first, is_it): (Ipv4Addr, &dyn Fn(Ipv4Addr) -> bool) = match peer {
                PolicyPeer::Pod(wanted) => (*wanted, &|ip| ip == *wanted),
                PolicyPeer::Block { cidr, .. } => (cidr.first(), &|ip| cidr.contains(ip)),
            };
            let from = all.partition_point(|(ip, _)| *ip < first);
            let found = all[from..].iter().take_while(|(ip, _)| is_it(*ip)).enumerate();
            let is_excepted = |ip: Ipv4Addr| match peer {
                PolicyPeer::Pod(_) => false,
                PolicyPeer::Block { except, .. } => except.iter().any(|block| block.contains(ip)),
            };
            places.extend(found.filter(|(_, (ip, _))| !is_excepted(*ip)).map(|(place, _)| from + place));
        }
        places.into_iter().map(|place| all[place].1).collect()
    }
}

/// Reads an `ipBlock`; `None` for one of IPv6.
fn address_block(block: &Value) -> Option<PolicyPeer> {
    let cidr = |text: &Value| text.as_str().and_then(|text| text.parse::<Cidr>().ok());
    let except = block["except"].as_array().into_iter().flatten().filter_map(cidr).collect();
    Some(PolicyPeer::Block { cidr: cidr(&block["cidr"])?, except })
}

fn address(pod: &Row) -> Option<Ipv4Addr> {
    pod.pod()?.address()?.parse().ok()
}

/// The address of a pod on the pod network.
fn own_address(world: &World, pod: &Row) -> Option<Ipv4Addr> {
    address(pod).filter(|ip| ip.octets()[..2] == [127, world.settings.network])
}

fn by_labels_in<'w>(world: &'w World, namespace: &'w str) -> Vec<SameLabels<'w>> {
    let mut groups: HashMap<_, SameLabels> = HashMap::new();
    for row in world.list_in("pods", namespace) {
        if let Some(address) = own_address(world, row) {
            let group = groups.entry(&row.labels).or_insert_with(|| SameLabels { row, addresses: Vec::new() });
            group.addresses.push(address);
        }
    }
    groups.into_values().collect()
}

/// Whether a port is given by name: its number then depends on each server.
pub fn is_named(port: &Value) -> bool {
    port["port"].is_string()
}

/// The ports of a rule, each once and in order. A named port is resolved for each server.
fn ranges(ports: &HashSet<&Value>, servers: &[&Arc<Row>]) -> Vec<PortRange> {
    let (mut names, mut ranges) = (HashSet::new(), BTreeSet::new());
    for port in ports {
        let protocol = port["protocol"].as_str().unwrap_or("TCP");
        match port["port"].as_str() {
            Some(name) => drop(names.insert((name, protocol))),
            None => drop(ranges.insert(numbered(port, protocol))),
        }
    }
    for server in servers.iter().filter(|_| !names.is_empty()) {
        let Some(pod) = server.pod() else { continue };
        let mut seen = HashSet::new();
        for (name, protocol, number) in pod.ports_by_name() {
            if names.contains(&(name, protocol))
                && seen.insert((name, protocol))
                && let Ok(number) = u16::try_from(number)
            {
                let protocol = protocol.to_lowercase().into();
                ranges.insert(PortRange { protocol, first: number, last: number, on: address(server) });
            }
        }
    }
    ranges.into_iter().collect()
}

/// A port or a range by number, or every port of the protocol.
fn numbered(port: &Value, protocol: &str) -> PortRange {
    let number = |value: &Value| value.as_u64().and_then(|number| u16::try_from(number).ok());
    let (first, last) = match number(&port["port"]) {
        None => (0, u16::MAX),
        Some(first) => (first, number(&port["endPort"]).unwrap_or(first)),
    };
    PortRange { protocol: protocol.to_lowercase().into(), first, last, on: None }
}
