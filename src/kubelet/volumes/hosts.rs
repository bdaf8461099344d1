//! `/etc/hosts` and `/etc/hostname` of a pod; `/etc/resolv.conf` is in [`dns`].

use super::super::hostname;
use super::super::pod::LocalPod;
use super::dns;
use crate::world::volume::{Volume, VolumeContent, VolumeFile, VolumeMountPoint};

/// The volume that holds them: with a dot, which no volume of a pod has in its name.
const VOLUME: &str = "etc.d";

/// The files, and where they go.
pub fn hosts_files(pod: &LocalPod, ip: &str) -> (Volume, Vec<VolumeMountPoint>) {
    let mut files = Vec::new();
    // On the machine's network the machine's own file has the names.
    if pod.spec.host_network != Some(true) || pod.spec.host_aliases.iter().flatten().next().is_some() {
        files.push(("hosts", hosts(pod, ip)));
    }
    if pod.spec.host_network != Some(true) {
        // Container runtimes write it; on the machine's network the machine's own is right.
        files.push(("hostname", format!("{}\n", hostname::hostname(pod))));
    }
    files.extend(dns::file(pod).map(|text| ("resolv.conf", text)));
    let mount = |name: &str| VolumeMountPoint {
        volume: VOLUME.into(),
        path: format!("/etc/{name}"),
        sub_path: name.to_owned(),
        read_only: false,
    };
    let mounts = files.iter().map(|(name, _)| mount(name)).collect();
    let file = |(name, text): (&str, String)| VolumeFile::new(name, 0o644, text.into_bytes());
    let source = VolumeContent::Files(files.into_iter().map(file).collect());
    (Volume { name: VOLUME.into(), source }, mounts)
}

/// Returns the hosts file with the kubelet's entries, in the kubelet's order.
fn hosts(pod: &LocalPod, ip: &str) -> String {
    let mut text = String::from(
        "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\n\
         fe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n",
    );
    let full = hostname::full_name(pod).map(|name| name + "\t").unwrap_or_default();
    text += &format!("{ip}\t{full}{}\n", hostname::short_name(pod));
    let aliases: Vec<_> = pod.spec.host_aliases.iter().flatten().collect();
    if !aliases.is_empty() {
        text += "\n# Entries added by HostAliases.\n";
    }
    for alias in aliases {
        text += &format!("{}\t{}\n", alias.ip, alias.hostnames.as_deref().unwrap_or_default().join("\t"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{TestMachine, pod};
    use serde_json::{Value, json};

    /// The files that a pod's first container is started with.
    fn files(spec: Value) -> Vec<(String, String)> {
        let mut spec = spec;
        spec["containers"] = json!([{"name": "c", "image": "a"}]);
        let mut pod = pod(spec);
        pod["metadata"]["annotations"] = json!({"kloop.dev/filesystem": "private"});
        let mut machine = TestMachine::new(pod);
        machine.settle();
        let volumes = &machine.starts[0].files.volumes;
        let etc = volumes.iter().find(|volume| &*volume.name == super::VOLUME).expect("laid out");
        let super::VolumeContent::Files(files) = &etc.source else { panic!("files") };
        files.iter().map(|file| (file.path.clone(), String::from_utf8_lossy(&file.content).into_owned())).collect()
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
