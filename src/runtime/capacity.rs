//! Properties and capacity of this machine.

use rustix::system::uname;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

/// Pods that this machine offers to run, unless settings say otherwise.
pub const PODS: u32 = 2000;

/// Capacity of a machine as a node.
#[derive(Clone, Debug)]
pub struct MachineCapacity {
    /// The machine's name, which the node gets.
    pub name: String,
    /// Cores, in thousandths.
    pub cpu_milli: i64,
    /// Bytes of memory.
    pub memory: i64,
    /// Bytes of the file system that the pods' folders are on.
    pub storage: i64,
    /// Most pods.
    pub pods: u32,
    /// Release of the kernel.
    pub kernel: String,
    /// Name of the distribution.
    pub os_image: String,
    /// `amd64`, `arm64`: Go's names, which Kubernetes uses.
    pub architecture: &'static str,
    /// Identity of the machine.
    pub machine_id: String,
    /// Identity of its boot.
    pub boot_id: String,
    /// Its address for the rest of the cluster.
    pub address: IpAddr,
    /// The port where it serves as a kubelet; 0 for none.
    pub kubelet_port: u16,
    /// The address at which it accepts links of other machines; `None` when it is not linked.
    pub link_address: Option<SocketAddr>,
}

/// Measures this machine. `name` replaces the host's name. The ephemeral storage is that of the state folder's file system.
pub fn measure_capacity(name: Option<&str>, state: &Path) -> MachineCapacity {
    let host = uname().nodename().to_string_lossy().into_owned();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    MachineCapacity {
        name: name.map_or_else(|| node_name(&host), str::to_owned),
        cpu_milli: cores as i64 * 1000,
        memory: memory(),
        storage: storage(state),
        pods: PODS,
        kernel: uname().release().to_string_lossy().into_owned(),
        os_image: os_image(),
        architecture: architecture(),
        machine_id: read("/etc/machine-id"),
        boot_id: read("/proc/sys/kernel/random/boot_id"),
        address: Ipv4Addr::LOCALHOST.into(),
        kubelet_port: 0,
        link_address: None,
    }
}

/// A host's name as a node's: a DNS subdomain (kubelet: GetHostname).
fn node_name(host: &str) -> String {
    let lower = host.trim().to_ascii_lowercase();
    let name: String = lower
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || letter == '.' { letter } else { '-' })
        .collect();
    let name = name.trim_matches(['-', '.']);
    if name.is_empty() { "localhost".to_owned() } else { name.to_owned() }
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

fn memory() -> i64 {
    let info = read("/proc/meminfo");
    let total = info.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|text| text.trim().trim_end_matches(" kB").parse::<i64>().ok());
    kib.unwrap_or(0) * 1024
}

/// The size of the file system that a path is on, or will be when it is made.
fn storage(path: &Path) -> i64 {
    let path = std::path::absolute(path).unwrap_or_default();
    let disk = path.ancestors().find_map(|folder| rustix::fs::statvfs(folder).ok());
    disk.and_then(|disk| i64::try_from(disk.f_blocks.saturating_mul(disk.f_frsize)).ok()).unwrap_or(0)
}

fn os_image() -> String {
    let release = read("/etc/os-release");
    let pretty = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    pretty.map(|name| name.trim_matches('"').to_owned()).unwrap_or_else(|| "Linux".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_name_becomes_a_subdomain() {
        for (host, node) in [("My_Host", "my-host"), ("a.b", "a.b"), ("-x-", "x"), ("", "localhost")] {
            assert_eq!(node_name(host), node);
        }
    }

    #[test]
    fn this_machine_offers_something() {
        let machine = measure_capacity(None, Path::new("/no/such/folder/state.db"));
        assert!(
            machine.cpu_milli >= 1000 && machine.memory > 0 && machine.storage > 0 && !machine.boot_id.is_empty(),
            "{machine:?}"
        );
    }
}
