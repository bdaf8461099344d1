//! `/etc/hosts`, `/etc/hostname` and `/etc/resolv.conf` of a pod.

use super::super::pod::LocalPod;
use super::super::start;
use crate::world::entrance;
use crate::world::volume::{File, Mount, Source, Volume};
use k8s_openapi::api::core::v1::PodDNSConfig;
use std::sync::Arc;

/// The volume that holds them: with a dot, which no volume of a pod has in its name.
const VOLUME: &str = "etc.d";

/// The files, and where they go.
pub fn of(pod: &LocalPod, ip: &str) -> (Volume, Vec<Mount>) {
    let mut files = Vec::new();
    // On the machine's network the machine's own file tells the names.
    if pod.spec.host_network != Some(true) || pod.spec.host_aliases.iter().flatten().next().is_some() {
        files.push(("hosts", hosts(pod, ip)));
    }
    if pod.spec.host_network != Some(true) {
        // Container runtimes write it; on the machine's network the machine's own is right.
        files.push(("hostname", format!("{}\n", start::hostname(pod))));
    }
    files.extend(resolver(pod).map(|text| ("resolv.conf", text)));
    let mount = |name: &str| Mount {
        volume: VOLUME.into(),
        path: format!("/etc/{name}"),
        sub_path: name.to_owned(),
        read_only: false,
    };
    let mounts = files.iter().map(|(name, _)| mount(name)).collect();
    let file = |(name, text): (&str, String)| File {
        path: name.to_owned(),
        mode: 0o644,
        content: Arc::from(text.into_bytes()),
    };
    let source = Source::Files(files.into_iter().map(file).collect());
    (Volume { name: VOLUME.into(), source }, mounts)
}

/// As the kubelet writes it, entry for entry.
fn hosts(pod: &LocalPod, ip: &str) -> String {
    let mut text = String::from(
        "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\n\
         fe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n",
    );
    let full = start::full_name(pod).map(|name| name + "\t").unwrap_or_default();
    text += &format!("{ip}\t{full}{}\n", start::short_name(pod));
    let aliases: Vec<_> = pod.spec.host_aliases.iter().flatten().collect();
    if !aliases.is_empty() {
        text += "\n# Entries added by HostAliases.\n";
    }
    for alias in aliases {
        text += &format!("{}\t{}\n", alias.ip, alias.hostnames.as_deref().unwrap_or_default().join("\t"));
    }
    text
}

/// The port of resolvers.
const DNS: u16 = 53;

/// What is to be asked where the cluster's resolver has no place at port 53: whatever server pods ask, it is the one that answers.
const ANY: &str = "127.0.0.1";

/// What the pod itself says about its resolver, after what its policy says. Where the cluster's resolver has a place of its own, that is
/// told to whoever uses it, because some programs believe only the server that they asked; else pods that say nothing have the
/// machine's own file.
fn resolver(pod: &LocalPod) -> Option<String> {
    let settings = &pod.world.settings;
    let has_place = settings.lowest_port <= DNS;
    let none = PodDNSConfig::default();
    let mut text = String::new();
    let policy = pod.spec.dns_policy.as_deref().unwrap_or("ClusterFirst");
    let on_host = pod.spec.host_network == Some(true);
    let is_cluster = policy == "ClusterFirstWithHostNet" || (policy == "ClusterFirst" && !on_host);
    let config = pod.spec.dns_config.as_ref().or_else(|| (is_cluster && !on_host && has_place).then_some(&none))?;
    let place = entrance::resolver(settings.network).to_string();
    let server = if is_cluster && !on_host && has_place { &place } else { ANY };
    let namespace = &pod.row.key.namespace;
    let of_cluster = || [format!("{namespace}.svc.cluster.local"), "svc.cluster.local".into(), "cluster.local".into()];
    let mut searches: Vec<String> = if is_cluster { of_cluster().into() } else { Vec::new() };
    searches.extend(config.searches.iter().flatten().cloned());
    if !searches.is_empty() {
        text += &format!("search {}\n", searches.join(" "));
    }
    let of_policy = (policy != "None").then_some(server);
    for server in of_policy.into_iter().chain(config.nameservers.iter().flatten().map(String::as_str)) {
        text += &format!("nameserver {server}\n");
    }
    let option = |option: &k8s_openapi::api::core::v1::PodDNSConfigOption| {
        let name = option.name.clone().unwrap_or_default();
        option.value.as_ref().map_or(name.clone(), |value| format!("{name}:{value}"))
    };
    let of_policy = is_cluster.then(|| "ndots:5".to_owned());
    let own = config.options.iter().flatten();
    let has_ndots = own.clone().any(|option| option.name.as_deref() == Some("ndots"));
    let options: Vec<String> = of_policy.into_iter().filter(|_| !has_ndots).chain(own.map(option)).collect();
    if !options.is_empty() {
        text += &format!("options {}\n", options.join(" "));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::super::super::machine::{Machine, pod};
    use serde_json::{Value, json};

    /// The files that a pod's first container is started with.
    fn files(spec: Value) -> Vec<(String, String)> {
        let mut spec = spec;
        spec["containers"] = json!([{"name": "c", "image": "a"}]);
        let mut pod = pod(spec);
        pod["metadata"]["annotations"] = json!({"kloop.dev/filesystem": "private"});
        let mut machine = Machine::new(pod);
        machine.settle();
        let volumes = &machine.starts[0].files.volumes;
        let etc = volumes.iter().find(|volume| &*volume.name == super::VOLUME).expect("laid out");
        let super::Source::Files(files) = &etc.source else { panic!("files") };
        files.iter().map(|file| (file.path.clone(), String::from_utf8_lossy(&file.content).into_owned())).collect()
    }

    fn resolver(spec: Value) -> Option<String> {
        files(spec).into_iter().find_map(|(path, text)| (path == "resolv.conf").then_some(text))
    }

    #[test]
    fn the_resolver_is_what_policy_and_configuration_say() {
        let config = json!({"searches": ["a.example"], "nameservers": ["192.0.2.1"],
            "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}]});
        let plain = "search default.svc.cluster.local svc.cluster.local cluster.local\nnameserver 127.77.255.53\noptions ndots:5\n";
        assert_eq!(resolver(json!({})).as_deref(), Some(plain));
        assert_eq!(resolver(json!({"dnsPolicy": "Default"})), None);
        assert_eq!(
            resolver(json!({"dnsPolicy": "None", "dnsConfig": config})).as_deref(),
            Some("search a.example\nnameserver 192.0.2.1\noptions ndots:2 edns0\n")
        );
        let of_cluster =
            "search default.svc.cluster.local svc.cluster.local cluster.local a.example\nnameserver 127.77.255.53\n";
        assert_eq!(
            resolver(json!({"dnsConfig": {"searches": ["a.example"]}})),
            Some(format!("{of_cluster}options ndots:5\n"))
        );
        assert_eq!(
            resolver(json!({"dnsPolicy": "Default", "dnsConfig": {"searches": ["a.example"]}})).as_deref(),
            Some("search a.example\nnameserver 127.0.0.1\n")
        );
    }

    #[test]
    fn names_are_those_of_the_pod_or_of_the_machine() {
        let file = |name: &str, spec| files(spec).into_iter().find_map(|(path, text)| (path == name).then_some(text));
        let hosts = |spec| file("hosts", spec);
        let line = |spec| {
            hosts(spec)
                .expect("laid out")
                .lines()
                .last()
                .unwrap_or_default()
                .split('\t')
                .skip(1)
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(line(json!({})), "p");
        assert_eq!(line(json!({"hostname": "h", "subdomain": "s"})), "h.s.default.svc.cluster.local h");
        assert_eq!(line(json!({"hostname": "h", "subdomain": "s", "hostnameOverride": "o"})), "o");
        assert_eq!(hosts(json!({"hostNetwork": true})), None);
        assert_eq!(file("hostname", json!({"hostname": "h"})).as_deref(), Some("h\n"));
        assert_eq!(file("hostname", json!({"hostNetwork": true})), None);
    }
}
