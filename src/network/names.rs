//! DNS names of a cluster by Kubernetes' DNS specification: `web.shop.svc.cluster.local`, members of headless Services
//! by their hostnames, `_port._protocol` for SRV, pods by their addresses, addresses by `in-addr.arpa`.
//!
//! Completes short names (`web`, `web.shop`) of clients with the machine's `/etc/resolv.conf`, in the order of
//! Kubernetes' search path. A client with that search path in its own file completes them itself, so its queries are
//! used literally.

use crate::object::{Key, Str};
use crate::world::plan::{HeadlessEndpoint, Route, RoutePort};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{Ipv4Addr, SocketAddrV4};

/// The domain of all names of the cluster.
const DOMAIN: &str = ".cluster.local";
/// Implemented version of Kubernetes' DNS specification, as `dns-version.cluster.local` reports it.
const VERSION: &str = "1.1.0";
/// Name of the authoritative server.
pub const SERVER: &str = "ns.dns.cluster.local";
/// Maximum length of a chain of aliases (as in CoreDNS).
const MAX_ALIASES: usize = 8;

/// All DNS names of the cluster.
#[derive(Default)]
pub struct DnsDirectory {
    services: BTreeMap<(Str, Str), Route>,
    /// Services by their address and their members' addresses.
    at: HashMap<Ipv4Addr, BTreeSet<(Str, Str)>>,
    /// Namespaces of pods by their address.
    pods: HashMap<Ipv4Addr, Str>,
    /// Address of the resolver.
    server: Option<Ipv4Addr>,
}

/// Query type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryType {
    /// IPv4 address.
    A,
    /// IPv6 address, which no name has.
    Aaaa,
    /// Alias.
    Cname,
    /// Hosts and ports of a service.
    Srv,
    /// Name of an address.
    Ptr,
    /// Text.
    Txt,
    /// Start of authority.
    Soa,
    /// Name server of a domain.
    Ns,
    /// A type that no name of the cluster has.
    Other,
}

/// A DNS record of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsRecord {
    /// IPv4 address.
    A(Ipv4Addr),
    /// Host, port, and the host's address.
    Srv(String, u16, Option<Ipv4Addr>),
    /// Name.
    Ptr(String),
    /// Text.
    Txt(&'static str),
    /// Target of an alias; the records after it belong to the target.
    Cname(String),
    /// Start of authority.
    Soa,
    /// Name server, with its address.
    Ns(&'static str, Option<Ipv4Addr>),
}

/// The reply to a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsReply {
    /// The records; empty when the name exists without records of this type.
    Records(Vec<DnsRecord>),
    /// A chain of aliases. The last name is outside of the cluster, and the caller queries it with the same type.
    Alias(Vec<String>),
    /// The name does not exist in the cluster.
    NoSuchName,
    /// The name is outside of the cluster.
    Elsewhere,
}

impl DnsDirectory {
    /// Sets the route of a Service.
    pub fn set_route(&mut self, service: &Key, route: &Route) {
        let place = (service.namespace.clone(), service.name.clone());
        let before = match route.is_empty() {
            true => self.services.remove(&place),
            false => self.services.insert(place.clone(), route.clone()),
        };
        for address in before.iter().flat_map(places) {
            if let Some(services) = self.at.get_mut(&address) {
                services.remove(&place);
                if services.is_empty() {
                    self.at.remove(&address);
                }
            }
        }
        if !route.is_empty() {
            for address in places(route) {
                self.at.entry(address).or_default().insert(place.clone());
            }
        }
    }

    /// Sets the address of the resolver.
    pub fn serve_at(&mut self, server: Ipv4Addr) {
        self.server = Some(server);
    }

    /// Adds the address of a pod in this namespace.
    pub fn pod(&mut self, address: Ipv4Addr, namespace: Str) {
        self.pods.insert(address, namespace);
    }

    /// Answers a query of the pod with this address. Without an address, short names are not completed.
    pub fn lookup(&self, name: &str, kind: QueryType, client: Option<Ipv4Addr>) -> DnsReply {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        if let Some(reversed) = name.strip_suffix(".in-addr.arpa") {
            return self.reverse(reversed, kind);
        }
        if let Some(name) = strip_domain(&name) {
            return self.find(name, kind).map_or(DnsReply::NoSuchName, |found| self.follow(found, kind));
        }
        let Some(client) = client else { return DnsReply::Elsewhere };
        let namespace = self.pods.get(&client).map_or("default", |namespace| namespace);
        let complete = [format!("{name}.{namespace}.svc"), format!("{name}.svc"), name];
        let found = complete.iter().find_map(|name| self.find(name, kind));
        found.map_or(DnsReply::Elsewhere, |found| self.follow(found, kind))
    }

    /// Resolves aliases of names in the cluster. As in CoreDNS, an alias of a missing name does not exist.
    fn follow(&self, found: DnsReply, kind: QueryType) -> DnsReply {
        let DnsReply::Alias(mut names) = found else { return found };
        while let Some(target) = names.last().and_then(|name| strip_domain(name)) {
            match self.find(target, kind) {
                Some(DnsReply::Alias(more)) if names.len() < MAX_ALIASES => names.extend(more),
                Some(DnsReply::Records(records)) if !records.is_empty() => {
                    return DnsReply::Records(names.into_iter().map(DnsRecord::Cname).chain(records).collect());
                }
                _ => return DnsReply::Records(Vec::new()),
            }
        }
        DnsReply::Alias(names)
    }

    /// Finds a full name, given without the domain.
    fn find(&self, name: &str, kind: QueryType) -> Option<DnsReply> {
        let labels: Vec<&str> = name.split('.').collect();
        match labels[..] {
            [""] => Some(DnsReply::Records(match kind {
                QueryType::Soa => vec![DnsRecord::Soa],
                QueryType::Ns => vec![DnsRecord::Ns(SERVER, self.server)],
                _ => Vec::new(),
            })),
            ["ns", "dns"] => Some(addresses(kind, self.server)),
            ["dns-version"] => {
                Some(DnsReply::Records(if kind == QueryType::Txt { vec![DnsRecord::Txt(VERSION)] } else { Vec::new() }))
            }
            // A name with names below it exists without records.
            ["svc" | "pod"] => Some(DnsReply::Records(Vec::new())),
            [namespace, "svc" | "pod"] if self.has_namespace(namespace) => Some(DnsReply::Records(Vec::new())),
            [address, namespace, "pod"] => {
                let address: Ipv4Addr = address.replace('-', ".").parse().ok()?;
                let is_known = self.pods.get(&address).is_some_and(|known| **known == *namespace);
                is_known.then(|| addresses(kind, [address]))
            }
            [service, namespace, "svc"] => {
                let service = self.service(service, namespace).filter(|service| !service.is_headless_and_empty())?;
                Some(service.addresses(kind, full(&[name])))
            }
            [host, service, namespace, "svc"] => {
                self.service(service, namespace)?.find_member(host, kind, &labels[1..])
            }
            [port, protocol, service, namespace, "svc"] => {
                let (port, protocol) = (port.strip_prefix('_')?, protocol.strip_prefix('_')?);
                let hosts = self.service(service, namespace)?.hosts_of_port(port, protocol, &labels[2..])?;
                Some(DnsReply::Records(if kind == QueryType::Srv { hosts } else { Vec::new() }))
            }
            _ => None,
        }
    }

    /// Whether a namespace contains any name.
    fn has_namespace(&self, namespace: &str) -> bool {
        let first = self.services.range((Str::from(namespace), Str::from(""))..).next();
        first.is_some_and(|((of, _), _)| **of == *namespace) || self.pods.values().any(|of| **of == *namespace)
    }

    fn service(&self, name: &str, namespace: &str) -> Option<ServiceMatch<'_>> {
        self.services.get(&(namespace.into(), name.into())).map(ServiceMatch)
    }

    fn reverse(&self, reversed: &str, kind: QueryType) -> DnsReply {
        let forward: Vec<&str> = reversed.rsplit('.').collect();
        let Ok(address) = forward.join(".").parse::<Ipv4Addr>() else { return DnsReply::Elsewhere };
        let Some(name) = self.name_of(address) else { return DnsReply::Elsewhere };
        DnsReply::Records(if kind == QueryType::Ptr { vec![DnsRecord::Ptr(name)] } else { Vec::new() })
    }

    fn name_of(&self, address: Ipv4Addr) -> Option<String> {
        let of_service = |place: &(Str, Str)| {
            let ((namespace, service), route) = self.services.get_key_value(place)?;
            if route.address.parse() == Ok(address) {
                return Some(full(&[service, namespace, "svc"]));
            }
            let member = route.members.iter().find(|one| ip(one) == Some(address))?;
            Some(full(&[&host(member), service, namespace, "svc"]))
        };
        let of_pod = || self.pods.get(&address).map(|namespace| full(&[&dashed(address), namespace, "pod"]));
        self.at.get(&address).into_iter().flatten().find_map(of_service).or_else(of_pod)
    }
}

/// A Service that matches a name.
struct ServiceMatch<'a>(&'a Route);

impl ServiceMatch<'_> {
    /// Whether it is headless and has no endpoint. CoreDNS answers that its name does not exist.
    fn is_headless_and_empty(&self) -> bool {
        self.0.address.is_empty() && self.0.alias.is_empty() && self.0.members.is_empty()
    }

    /// Finds a member by its host name; `labels` are the name of the Service.
    fn find_member(&self, host: &str, kind: QueryType, labels: &[&str]) -> Option<DnsReply> {
        let at: Vec<Ipv4Addr> = self.addresses_of_member(host);
        if at.is_empty() {
            return None;
        }
        if kind != QueryType::Srv {
            return Some(addresses(kind, at));
        }
        let is_it = |record: &DnsRecord| matches!(record, DnsRecord::Srv(_, _, Some(ip)) if at.contains(ip));
        let below = full(labels);
        let records = self.0.ports.iter().flat_map(|port| self.members(port, &below));
        Some(DnsReply::Records(records.filter(is_it).collect()))
    }

    /// Returns the SRV records of the port with this name and protocol; `labels` are the name of the Service.
    fn hosts_of_port(&self, name: &str, protocol: &str, labels: &[&str]) -> Option<Vec<DnsRecord>> {
        let is_it = |one: &&RoutePort| *one.name == *name && one.protocol.eq_ignore_ascii_case(protocol);
        let hosts = self.hosts(self.0.ports.iter().find(is_it)?, &full(labels));
        (!hosts.is_empty()).then_some(hosts)
    }

    fn addresses(&self, kind: QueryType, name: String) -> DnsReply {
        let route = self.0;
        let alias = || route.alias.trim_end_matches('.').to_ascii_lowercase();
        match kind {
            QueryType::A | QueryType::Aaaa | QueryType::Txt if !route.alias.is_empty() => {
                DnsReply::Alias(vec![alias()])
            }
            QueryType::Cname if !route.alias.is_empty() => DnsReply::Records(vec![DnsRecord::Cname(alias())]),
            QueryType::Srv if !route.alias.is_empty() => DnsReply::Records(vec![DnsRecord::Srv(alias(), 0, None)]),
            QueryType::Srv => DnsReply::Records(route.ports.iter().flat_map(|port| self.hosts(port, &name)).collect()),
            _ if route.address.is_empty() => addresses(kind, route.members.iter().filter_map(ip)),
            _ => addresses(kind, route.address.parse()),
        }
    }

    /// Returns the targets of a port: the Service's address, or each of its members.
    fn hosts(&self, port: &RoutePort, name: &str) -> Vec<DnsRecord> {
        if !self.0.address.is_empty() {
            return vec![DnsRecord::Srv(name.to_owned(), port.port, self.0.address.parse().ok())];
        }
        self.members(port, name)
    }

    /// Returns the members that have an endpoint of the port.
    fn members(&self, port: &RoutePort, name: &str) -> Vec<DnsRecord> {
        let known = |at: &Ipv4Addr| self.0.members.iter().find(|one| ip(one) == Some(*at));
        let member = |to: &Str| {
            let to: SocketAddrV4 = to.parse().ok()?;
            let host = known(to.ip()).map_or_else(|| dashed(*to.ip()), host);
            Some(DnsRecord::Srv(format!("{host}.{name}"), to.port(), Some(*to.ip())))
        };
        port.endpoints.iter().filter_map(member).collect()
    }

    /// The addresses of members with this name: their hostname, or else their address with dashes.
    fn addresses_of_member(&self, name: &str) -> Vec<Ipv4Addr> {
        let members: Vec<Ipv4Addr> = self.0.members.iter().filter(|one| host(one) == name).filter_map(ip).collect();
        if !members.is_empty() || self.0.address.is_empty() {
            return members;
        }
        let ports = self.0.ports.iter().flat_map(|port| &port.endpoints);
        let found = ports.filter_map(|to| to.parse::<SocketAddrV4>().ok()).map(|to| *to.ip());
        let mut found: Vec<Ipv4Addr> = found.filter(|at| dashed(*at) == name).collect();
        found.dedup();
        found.truncate(1);
        found
    }
}

/// A full name of the cluster without its domain; empty for the domain itself.
fn strip_domain(name: &str) -> Option<&str> {
    name.strip_suffix(DOMAIN).or_else(|| (name == &DOMAIN[1..]).then_some(""))
}

/// Returns the host name of an endpoint within its Service.
fn host(member: &HeadlessEndpoint) -> String {
    if member.hostname.is_empty() { member.address.replace('.', "-") } else { member.hostname.to_string() }
}

fn dashed(address: Ipv4Addr) -> String {
    address.to_string().replace('.', "-")
}

fn addresses(kind: QueryType, found: impl IntoIterator<Item = Ipv4Addr>) -> DnsReply {
    let found = found.into_iter().map(DnsRecord::A);
    DnsReply::Records(if kind == QueryType::A { found.collect() } else { Vec::new() })
}

/// Returns the addresses that a reverse query may resolve to a name of the Service.
fn places(route: &Route) -> impl Iterator<Item = Ipv4Addr> {
    route.address.parse().ok().into_iter().chain(route.members.iter().filter_map(ip))
}

fn ip(member: &HeadlessEndpoint) -> Option<Ipv4Addr> {
    member.address.parse().ok()
}

fn full(labels: &[&str]) -> String {
    format!("{}{DOMAIN}", labels.join("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Resource;

    const CLIENT: Ipv4Addr = Ipv4Addr::new(127, 9, 1, 4);

    fn directory() -> DnsDirectory {
        let mut directory = DnsDirectory::default();
        let key = |namespace: &str, name: &str| Key::new(Resource("services"), namespace, name);
        let endpoints = vec!["127.9.1.5:5432".into(), "127.9.1.6:5432".into()];
        let port = |number| RoutePort {
            name: "sql".into(),
            protocol: "TCP".into(),
            port: number,
            node_port: None,
            is_open: false,
            sticky: None,
            is_h2: false,
            endpoints: endpoints.clone(),
        };
        let no_endpoints = RoutePort { endpoints: Vec::new(), ..port(5432) };
        directory.set_route(
            &key("shop", "web"),
            &Route { address: "127.9.128.7".into(), ports: vec![port(80)], ..Route::default() },
        );
        let member =
            |address: &str, hostname: &str| HeadlessEndpoint { address: address.into(), hostname: hostname.into() };
        let members = vec![member("127.9.1.5", "db-0"), member("127.9.1.6", "")];
        directory.set_route(&key("shop", "db"), &Route { members, ports: vec![port(5432)], ..Route::default() });
        directory.set_route(&key("shop", "empty"), &Route { ports: vec![no_endpoints], ..Route::default() });
        for (name, alias) in [
            ("out", "Example.com."),
            ("in", "web.shop.svc.cluster.local"),
            ("twice", "in.shop.svc.cluster.local"),
            ("nobody", "no.shop.svc.cluster.local"),
            ("circle", "circle.shop.svc.cluster.local"),
        ] {
            directory.set_route(&key("shop", name), &Route { alias: alias.into(), ..Route::default() });
        }
        directory.serve_at([127, 9, 255, 53].into());
        directory.pod(CLIENT, "shop".into());
        directory
    }

    #[test]
    fn names_are_resolved() {
        use QueryType::{A, Aaaa, Cname, Ns, Other, Ptr, Soa, Srv, Txt};
        let a = |addresses: &[&str]| {
            DnsReply::Records(addresses.iter().map(|ip| DnsRecord::A(ip.parse().unwrap())).collect())
        };
        let srv = |hosts: &[(&str, u16, &str)]| {
            let record = |(host, port, ip): &(&str, u16, &str)| {
                DnsRecord::Srv(format!("{host}.cluster.local"), *port, Some(ip.parse().unwrap()))
            };
            DnsReply::Records(hosts.iter().map(record).collect())
        };
        let nothing = DnsReply::Records(Vec::new());
        let ptr = |name: &str| DnsReply::Records(vec![DnsRecord::Ptr(name.into())]);
        let web = a(&["127.9.128.7"]);
        let led = |name: &str, to: &[&str]| {
            let names = to.iter().map(|one| DnsRecord::Cname((*one).into()));
            let DnsReply::Records(records) = directory().lookup(name, A, Some(CLIENT)) else { panic!("{name}") };
            DnsReply::Records(names.chain(records).collect())
        };
        let cases = [
            ("web", A, web.clone()),
            ("WEB.shop", A, web.clone()),
            ("web.shop.svc", A, web.clone()),
            ("web.shop.svc.cluster.local.", A, web),
            ("web.shop.svc.cluster.local", Other, DnsReply::Records(Vec::new())),
            ("web.other.svc.cluster.local", A, DnsReply::NoSuchName),
            ("web.other", A, DnsReply::Elsewhere),
            ("example.com", A, DnsReply::Elsewhere),
            ("db", A, a(&["127.9.1.5", "127.9.1.6"])),
            ("db-0.db", A, a(&["127.9.1.5"])),
            ("empty.shop.svc.cluster.local", A, DnsReply::NoSuchName),
            ("_sql._tcp.empty.shop.svc.cluster.local", Srv, DnsReply::NoSuchName),
            ("db-1.db.shop.svc.cluster.local", A, DnsReply::NoSuchName),
            ("out", A, DnsReply::Alias(vec!["example.com".into()])),
            ("out", Aaaa, DnsReply::Alias(vec!["example.com".into()])),
            ("out", Cname, DnsReply::Records(vec![DnsRecord::Cname("example.com".into())])),
            ("out", Srv, DnsReply::Records(vec![DnsRecord::Srv("example.com".into(), 0, None)])),
            ("out", Other, nothing.clone()),
            ("in", A, led("web", &["web.shop.svc.cluster.local"])),
            ("twice", A, led("web", &["in.shop.svc.cluster.local", "web.shop.svc.cluster.local"])),
            ("in", Aaaa, nothing.clone()),
            ("nobody", A, nothing.clone()),
            ("circle", A, nothing.clone()),
            ("cluster.local.", Soa, DnsReply::Records(vec![DnsRecord::Soa])),
            ("Cluster.Local", Ns, DnsReply::Records(vec![DnsRecord::Ns(SERVER, Some([127, 9, 255, 53].into()))])),
            ("cluster.local", A, nothing.clone()),
            ("web.shop.svc.cluster.local", Soa, nothing.clone()),
            ("ns.dns.cluster.local", A, a(&["127.9.255.53"])),
            ("ns.dns.cluster.local", Aaaa, nothing.clone()),
            ("_sql._tcp.web", Srv, srv(&[("web.shop.svc", 80, "127.9.128.7")])),
            (
                "_sql._tcp.db",
                Srv,
                srv(&[("db-0.db.shop.svc", 5432, "127.9.1.5"), ("127-9-1-6.db.shop.svc", 5432, "127.9.1.6")]),
            ),
            ("_sql._tcp.db-0.db.shop.svc.cluster.local", Srv, DnsReply::NoSuchName),
            ("db-0.db.shop.svc.cluster.local", Srv, srv(&[("db-0.db.shop.svc", 5432, "127.9.1.5")])),
            ("127-9-1-6.db.shop.svc.cluster.local", A, a(&["127.9.1.6"])),
            ("127-9-1-5.db.shop.svc.cluster.local", A, DnsReply::NoSuchName),
            ("127-9-1-5.web.shop.svc.cluster.local", A, a(&["127.9.1.5"])),
            ("127-9-1-9.web.shop.svc.cluster.local", A, DnsReply::NoSuchName),
            ("dns-version.cluster.local", Txt, DnsReply::Records(vec![DnsRecord::Txt("1.1.0")])),
            ("dns-version.cluster.local", A, nothing.clone()),
            ("shop.svc.cluster.local", A, nothing.clone()),
            ("svc.cluster.local", A, nothing.clone()),
            ("nowhere.svc.cluster.local", A, DnsReply::NoSuchName),
            ("nothing.cluster.local", A, DnsReply::NoSuchName),
            ("_sql._udp.db.shop.svc.cluster.local", Srv, DnsReply::NoSuchName),
            ("127-9-1-4.shop.pod.cluster.local", A, a(&["127.9.1.4"])),
            ("127-9-1-9.shop.pod.cluster.local", A, DnsReply::NoSuchName),
            ("7.128.9.127.in-addr.arpa", Ptr, ptr("web.shop.svc.cluster.local")),
            ("5.1.9.127.in-addr.arpa", Ptr, ptr("db-0.db.shop.svc.cluster.local")),
            ("4.1.9.127.in-addr.arpa", Ptr, ptr("127-9-1-4.shop.pod.cluster.local")),
            ("1.2.0.192.in-addr.arpa", Ptr, DnsReply::Elsewhere),
        ];
        for (name, kind, expected) in cases {
            assert_eq!(directory().lookup(name, kind, Some(CLIENT)), expected, "{name} {kind:?}");
        }
        let elsewhere = directory().lookup("web", A, Some(Ipv4Addr::LOCALHOST));
        assert_eq!(elsewhere, DnsReply::Elsewhere, "of another namespace");
        for name in ["web", "web.shop", "web.shop.svc"] {
            assert_eq!(directory().lookup(name, A, None), DnsReply::Elsewhere, "{name}");
        }
        assert_eq!(directory().lookup("web.shop.svc.cluster.local", A, None), a(&["127.9.128.7"]));
    }

    #[test]
    fn deleted_service_has_no_name() {
        let mut directory = directory();
        directory.set_route(&Key::new(Resource("services"), "shop", "web"), &Route::default());
        assert_eq!(directory.lookup("web.shop.svc.cluster.local", QueryType::A, Some(CLIENT)), DnsReply::NoSuchName);
    }
}
