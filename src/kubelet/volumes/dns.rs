//! DNS configuration of a pod: `/etc/resolv.conf`, made as the kubelet does from the pod's policy, its `dnsConfig` and the machine's
//! own file.
//!
//! When the cluster's resolver listens at port 53, the file names it, because some programs accept answers only from the server that they
//! asked. Otherwise the pod's shim redirects queries for any server of the machine to it; pods on the machine's network get no redirection.
//! Never: reads the machine's file. Start reading at [`file()`].

use super::super::filesystem::sees_machine;
use super::super::pod::{LocalPod, PodContainer};
use crate::world::start::DnsTarget;
use crate::world::{EventType, Plan, ingress_routes};

/// The port of resolvers.
const DNS: u16 = 53;
/// Server address for `resolv.conf` if the cluster's resolver has no address of its own at port 53. kloop answers the pods' queries to
/// every server.
const PLACEHOLDER_SERVER: &str = "127.0.0.1";
/// Maximum number of servers and of search paths, and maximum total length of the search paths, in `resolv.conf` (kubelet).
const SERVERS: usize = 3;
const SEARCHES: usize = 32;
const SEARCHES_LENGTH: usize = 2048;

/// The settings that a pod's `dnsConfig` extends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DnsBase {
    Cluster,
    Machine,
    Nothing,
}

/// A file, as it is read and written.
#[derive(Default)]
struct ResolvConf {
    servers: Vec<String>,
    searches: Vec<String>,
    options: Vec<String>,
}

fn policy<'a>(pod: &'a LocalPod) -> &'a str {
    pod.spec.dns_policy.as_deref().unwrap_or("ClusterFirst")
}

fn is_on_host(pod: &LocalPod) -> bool {
    pod.spec.host_network == Some(true)
}

/// Whether the cluster's resolver may listen at port 53.
fn has_room(pod: &LocalPod) -> bool {
    pod.world.settings.lowest_port <= DNS
}

/// Whether the pod's shim redirects its DNS queries to the cluster's resolver.
fn uses_cluster_dns(pod: &LocalPod) -> bool {
    pod.world.settings.pod_network && !is_on_host(pod)
}

/// Returns the base that its policy selects.
fn resolve_policy(pod: &LocalPod) -> DnsBase {
    match policy(pod) {
        "None" => DnsBase::Nothing,
        "ClusterFirstWithHostNet" => DnsBase::Cluster,
        "ClusterFirst" if !is_on_host(pod) => DnsBase::Cluster,
        _ => DnsBase::Machine,
    }
}

/// Returns the base in effect: without access to the cluster's resolver, the machine's.
fn base(pod: &LocalPod) -> DnsBase {
    match resolve_policy(pod) {
        DnsBase::Cluster if !has_room(pod) && !uses_cluster_dns(pod) => DnsBase::Machine,
        wanted => wanted,
    }
}

/// The pod's own file; `None` when the machine's file is right, which programs then see with all its later changes.
pub fn file(pod: &LocalPod) -> Option<String> {
    let is_plain = base(pod) == DnsBase::Machine || (base(pod) == DnsBase::Cluster && !has_room(pod));
    if is_plain && pod.spec.dns_config.is_none() {
        return None;
    }
    Some(config(pod).within_limits().text())
}

fn config(pod: &LocalPod) -> ResolvConf {
    let settings = &pod.world.settings;
    let machine = ResolvConf::read(&settings.resolv_conf);
    let mut config = match base(pod) {
        DnsBase::Nothing => ResolvConf::default(),
        DnsBase::Machine => machine,
        DnsBase::Cluster => {
            let place = if has_room(pod) {
                ingress_routes::resolver(settings.network).to_string()
            } else {
                PLACEHOLDER_SERVER.to_owned()
            };
            let own = [&*format!("{}.svc.cluster.local", pod.row.key.namespace), "svc.cluster.local", "cluster.local"];
            let searches = own.into_iter().map(str::to_owned).chain(machine.searches).collect();
            ResolvConf { servers: vec![place], searches, options: vec!["ndots:5".to_owned()] }
        }
    };
    if let Some(own) = &pod.spec.dns_config {
        config.servers.extend(own.nameservers.iter().flatten().cloned());
        config.searches.extend(own.searches.iter().flatten().cloned());
        for option in own.options.iter().flatten() {
            config.set(option.name.as_deref().unwrap_or_default(), option.value.as_deref().unwrap_or_default());
        }
    }
    for list in [&mut config.servers, &mut config.searches] {
        let mut seen = std::collections::HashSet::new();
        list.retain(|one| seen.insert(one.clone()));
    }
    config
}

impl ResolvConf {
    /// As resolv.conf(5) has it: servers add up, of the rest the last line holds.
    fn read(text: &str) -> ResolvConf {
        let mut config = ResolvConf::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let word = words.next().unwrap_or_default();
            let rest = words.map(str::to_owned);
            match word {
                "nameserver" => config.servers.extend(rest.take(1)),
                "search" => config.searches = rest.map(|path| path.trim_end_matches('.').to_owned()).collect(),
                "options" => config.options = rest.collect(),
                _ => {}
            }
        }
        config
    }

    /// An option replaces the previous option of the same name.
    fn set(&mut self, name: &str, value: &str) {
        let text = if value.is_empty() { name.to_owned() } else { format!("{name}:{value}") };
        match self.options.iter_mut().find(|one| one.split(':').next() == Some(name)) {
            Some(known) => *known = text,
            None => self.options.push(text),
        }
    }

    fn within_limits(mut self) -> ResolvConf {
        self.servers.truncate(SERVERS);
        self.searches.truncate(SEARCHES);
        while self.searches.join(" ").len() > SEARCHES_LENGTH {
            self.searches.pop();
        }
        self
    }

    fn text(&self) -> String {
        let mut text = String::new();
        if !self.searches.is_empty() {
            text += &format!("search {}\n", self.searches.join(" "));
        }
        for server in &self.servers {
            text += &format!("nameserver {server}\n");
        }
        if !self.options.is_empty() {
            text += &format!("options {}\n", self.options.join(" "));
        }
        text
    }
}

/// Returns the DNS server for a container's queries to port 53.
pub fn names(pod: &LocalPod, member: &PodContainer) -> DnsTarget {
    // Among the machine's files the pod's own servers are not known.
    let own = pod.spec.dns_config.iter().filter(|_| !sees_machine(pod, member));
    let servers = own.flat_map(|config| config.nameservers.iter().flatten());
    let servers = servers.filter(|server| has_room(pod) || *server != PLACEHOLDER_SERVER);
    DnsTarget {
        outside: base(pod) != DnsBase::Cluster,
        servers: servers.filter_map(|server| server.parse().ok()).collect(),
    }
}

/// Adds an event at a pod's first start about DNS settings that have no effect.
pub fn report_unusable_names(pod: &LocalPod, plan: &mut Plan) {
    let lacks = match resolve_policy(pod) {
        // First the case that a free port 53 would not change.
        DnsBase::Cluster if !uses_cluster_dns(pod) && pod.members.iter().any(|member| sees_machine(pod, member)) => {
            Some("the pod sees the machine's /etc/resolv.conf")
        }
        DnsBase::Cluster if base(pod) != DnsBase::Cluster => Some(
            "the cluster's resolver may not listen at port 53 \
             (sudo sysctl net.ipv4.ip_unprivileged_port_start=53 lets it, once kloop reconcile is started again)",
        ),
        _ => None,
    };
    if let Some(why) = lacks {
        let policy = policy(pod);
        let message = format!("cannot use {policy:?} policy: {why}. Falling back to \"Default\" policy.");
        plan.event(pod.row, EventType::Warning, "MissingClusterDNS", message);
    }
    if file(pod).is_none() {
        return;
    }
    let (whole, config) = (config(pod), config(pod).within_limits());
    if whole.servers != config.servers {
        let message = format!(
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: {}",
            config.servers.join(" ")
        );
        plan.event(pod.row, EventType::Warning, "DNSConfigForming", message);
    }
    if whole.searches != config.searches {
        let message = format!(
            "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {}",
            config.searches.join(" ")
        );
        plan.event(pod.row, EventType::Warning, "DNSConfigForming", message);
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{TestMachine, pod};
    use crate::world::start::{DnsTarget, Start};
    use crate::world::volume::VolumeContent;
    use serde_json::{Value, json};

    /// The machine's resolver and the content of its file.
    const MACHINE: &str = "# local\nnameserver 192.0.2.9\nsearch lan.\noptions edns0 timeout:3\n";

    /// The first start of a pod with this spec, and the reasons of its events.
    fn start(spec: Value, lowest_port: u16) -> (Start, Vec<String>) {
        let mut spec = spec;
        spec["containers"] = json!([{"name": "c", "image": "a"}]);
        let mut pod = pod(spec);
        pod["metadata"]["annotations"] = json!({"kloop.dev/filesystem": "private"});
        let mut machine = TestMachine::new(pod);
        machine.world.settings.lowest_port = lowest_port;
        machine.world.settings.resolv_conf = MACHINE.into();
        machine.settle();
        let reasons = machine.reasons().iter().map(ToString::to_string).collect();
        (machine.starts[0].clone(), reasons)
    }

    fn file(start: &Start) -> Option<String> {
        let files = start.files.volumes.iter().filter_map(|volume| match &volume.source {
            VolumeContent::Files(files) => Some(files.iter()),
            _ => None,
        });
        let found = files.flatten().find(|file| file.path == "resolv.conf")?;
        Some(String::from_utf8_lossy(&found.content).into_owned())
    }

    #[test]
    fn resolver_follows_dns_policy_and_dns_config() {
        let config = json!({"searches": ["a.example", "lan"], "nameservers": ["192.0.2.1"],
            "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}, {"name": "timeout", "value": "1"}]});
        let searches = "search default.svc.cluster.local svc.cluster.local cluster.local lan";
        let cluster = format!("{searches}\nnameserver 127.77.255.53\noptions ndots:5\n");
        let both = format!(
            "{searches} a.example\nnameserver 127.77.255.53\nnameserver 192.0.2.1\noptions ndots:2 edns0 timeout:1\n"
        );
        let table = [
            (json!({}), 0, Some(cluster.as_str())),
            (json!({}), 1024, None),
            (json!({"dnsConfig": config}), 0, Some(&both)),
            (json!({"dnsConfig": config}), 1024, Some(&both.replace("127.77.255.53", "127.0.0.1"))),
            (json!({"dnsPolicy": "Default"}), 0, None),
            (
                json!({"dnsPolicy": "Default", "dnsConfig": config}),
                0,
                Some(
                    "search lan a.example\nnameserver 192.0.2.9\nnameserver 192.0.2.1\noptions edns0 timeout:1 ndots:2\n",
                ),
            ),
            (
                json!({"dnsPolicy": "None", "dnsConfig": config}),
                0,
                Some("search a.example lan\nnameserver 192.0.2.1\noptions ndots:2 edns0 timeout:1\n"),
            ),
            (json!({"hostNetwork": true}), 0, None),
            (json!({"hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet"}), 0, Some(&cluster)),
            (json!({"hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet"}), 1024, None),
            (json!({"dnsPolicy": "ClusterFirstWithHostNet"}), 0, Some(&cluster)),
        ];
        for (spec, lowest_port, expected) in table {
            let (start, reasons) = start(spec.clone(), lowest_port);
            assert_eq!(file(&start).as_deref(), expected, "{spec} {lowest_port}");
            let is_told = reasons.iter().any(|reason| reason == "MissingClusterDNS");
            assert_eq!(is_told, spec["hostNetwork"] == true && lowest_port > 53, "{reasons:?}");
        }
    }

    #[test]
    fn dns_port_is_advised_only_where_it_would_help() {
        for (filesystem, is_advised) in [("private", true), ("host", false)] {
            let mut pod = pod(
                json!({"hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet", "containers": [{"name": "c", "image": "a"}]}),
            );
            pod["metadata"]["annotations"] = json!({"kloop.dev/filesystem": filesystem});
            let mut machine = TestMachine::new(pod);
            machine.world.settings.lowest_port = 1024;
            machine.settle();
            let told: Vec<_> = machine.events.iter().filter(|event| event.reason == "MissingClusterDNS").collect();
            assert_eq!(told.len(), 1, "{filesystem}");
            assert_eq!(told[0].message.contains("sysctl"), is_advised, "{}", told[0].message);
        }
    }

    #[test]
    fn servers_that_a_pod_names_are_asked_themselves() {
        let config = json!({"nameservers": ["192.0.2.1", "2001:db8::1", "127.0.0.1"]});
        let names = |outside, servers: &[&str]| DnsTarget {
            outside,
            servers: servers.iter().map(|server| server.parse().unwrap()).collect(),
        };
        let table = [
            (json!({}), 0, names(false, &[])),
            (json!({"dnsPolicy": "Default"}), 0, names(true, &[])),
            (json!({"dnsPolicy": "None", "dnsConfig": config}), 0, names(true, &["192.0.2.1", "127.0.0.1"])),
            (json!({"dnsConfig": config}), 0, names(false, &["192.0.2.1", "127.0.0.1"])),
            (json!({"dnsConfig": config}), 1024, names(false, &["192.0.2.1"])),
        ];
        for (spec, lowest_port, expected) in table {
            assert_eq!(start(spec.clone(), lowest_port).0.names, expected, "{spec} {lowest_port}");
        }
    }

    #[test]
    fn dropped_resolver_lines_are_reported() {
        let config = json!({"nameservers": ["192.0.2.1", "192.0.2.2", "192.0.2.3"]});
        let (start, reasons) = start(json!({"dnsConfig": config}), 0);
        assert!(!file(&start).unwrap().contains("192.0.2.3"));
        assert!(reasons.iter().any(|reason| reason == "DNSConfigForming"), "{reasons:?}");
    }
}
