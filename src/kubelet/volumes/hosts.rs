//! `/etc/hosts` and `/etc/resolv.conf` of a pod.

use super::super::pod::LocalPod;
use crate::world::volume::{File, Mount, Source, Volume};
use std::sync::Arc;

/// The volume that holds them: with a dot, which no volume of a pod has in its name.
const VOLUME: &str = "etc.d";

/// The files, and where they go.
pub fn of(pod: &LocalPod, ip: &str, hostname: &str) -> (Volume, Vec<Mount>) {
    let mut files = vec![("hosts", hosts(pod, ip, hostname))];
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
fn hosts(pod: &LocalPod, ip: &str, hostname: &str) -> String {
    let mut text = String::from(
        "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\n\
         fe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n",
    );
    let subdomain = pod.spec.subdomain.as_deref().filter(|name| !name.is_empty());
    let full = subdomain.map(|name| format!("{hostname}.{name}.{}.svc.cluster.local\t", pod.row.key.namespace));
    text += &format!("{ip}\t{}{hostname}\n", full.unwrap_or_default());
    let aliases: Vec<_> = pod.spec.host_aliases.iter().flatten().collect();
    if !aliases.is_empty() {
        text += "\n# Entries added by HostAliases.\n";
    }
    for alias in aliases {
        text += &format!("{}\t{}\n", alias.ip, alias.hostnames.as_deref().unwrap_or_default().join("\t"));
    }
    text
}

/// What the pod itself says about its resolver; the machine's own for pods that say nothing.
fn resolver(pod: &LocalPod) -> Option<String> {
    let config = pod.spec.dns_config.as_ref().filter(|_| pod.spec.dns_policy.as_deref() == Some("None"))?;
    let mut text = String::new();
    let searches = config.searches.as_deref().unwrap_or_default();
    if !searches.is_empty() {
        text += &format!("search {}\n", searches.join(" "));
    }
    for server in config.nameservers.iter().flatten() {
        text += &format!("nameserver {server}\n");
    }
    let option = |option: &k8s_openapi::api::core::v1::PodDNSConfigOption| {
        let name = option.name.clone().unwrap_or_default();
        option.value.as_ref().map_or(name.clone(), |value| format!("{name}:{value}"))
    };
    let options: Vec<String> = config.options.iter().flatten().map(option).collect();
    if !options.is_empty() {
        text += &format!("options {}\n", options.join(" "));
    }
    Some(text)
}
