//! Machines for tests of several: a control plane with its API server, and network namespaces with addresses of their own.

use crate::cluster::{Cluster, Plane};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A control plane with an API server.
pub struct ControlPlane<'a> {
    cluster: &'a Cluster,
    _plane: Plane<'a>,
    /// The API server.
    pub server: Plane<'a>,
}

impl<'a> ControlPlane<'a> {
    /// Starts one at localhost.
    pub fn start(cluster: &'a Cluster) -> ControlPlane<'a> {
        ControlPlane::start_at(cluster, "127.0.0.1")
    }

    /// Starts one at this address.
    pub fn start_at(cluster: &'a Cluster, address: &str) -> ControlPlane<'a> {
        ControlPlane::start_with(cluster, address, &["--no-local-node"])
    }

    /// Starts one whose own machine is a node too, and is linked with others.
    pub fn start_linked(cluster: &'a Cluster, address: &str) -> ControlPlane<'a> {
        ControlPlane::start_with(cluster, address, &["--node-name=main", "--node-ip", address])
    }

    fn start_with(cluster: &'a Cluster, address: &str, flags: &[&str]) -> ControlPlane<'a> {
        let plane = cluster.watch_with(flags);
        plane.until_says("ready: ");
        let server = cluster.background(&["serve", "--port=0", "--address", address]);
        server.until_says("KUBECONFIG=");
        ControlPlane { cluster, _plane: plane, server }
    }

    /// Returns the arguments that join a machine.
    pub fn join_command(&self) -> Vec<String> {
        let command = self.cluster.ok("node token create");
        command.split_whitespace().skip(1).map(str::to_owned).collect()
    }
}

/// Joins a machine, and waits until its loops run.
pub fn join<'a>(machine: &'a Cluster, command: &[String], name: &str) -> Plane<'a> {
    let words: Vec<&str> = command.iter().map(String::as_str).chain(["--node-name", name]).collect();
    let node = machine.background(&words);
    node.until_says("ready: ");
    node
}

/// A machine: a network namespace with an address of its own, connected to the test's.
pub struct NetworkNamespace {
    name: String,
    link: String,
    /// Addresses of the test's side and of the machine.
    pub addresses: [String; 2],
}

impl NetworkNamespace {
    /// Makes one; says that the test is skipped, and returns `None`, where this machine does not let it.
    pub fn make() -> Option<NetworkNamespace> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let (id, number) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let (name, link) = (format!("kloop-{id}-{number}"), format!("kl{id}-{number}"));
        // A block for tests (RFC 2544), divided by process and machine.
        let block = (id / 250 % 15) * 4 + number % 4;
        let place = |last: u32| format!("198.{}.{}.{}", 18 + number / 4 % 2, id % 250, block * 4 + last);
        let made = NetworkNamespace { name, link, addresses: [place(1), place(2)] };
        let [own, other] = &made.addresses;
        let (name, link) = (&made.name, &made.link);
        let peer = format!("{link}p");
        let lines = [
            format!("netns add {name}"),
            format!("link add {link} type veth peer name {peer} netns {name}"),
            format!("addr add {own}/30 dev {link}"),
            format!("link set {link} up"),
            format!("-n {name} addr add {other}/30 dev {peer}"),
            format!("-n {name} link set {peer} up"),
            format!("-n {name} link set lo up"),
        ];
        let run =
            |line: &String| Command::new("ip").args(line.split(' ')).output().is_ok_and(|ran| ran.status.success());
        if !lines.iter().all(run) {
            skip!("no namespaces can be had here with `ip netns`");
            return None;
        }
        Some(made)
    }

    /// Sets the link to this machine `up` or `down`.
    pub fn set_link(&self, word: &str) {
        let ran = Command::new("ip").args(["link", "set", &self.link, word]).status();
        assert!(ran.expect("ip runs").success());
    }

    /// Returns a command of kloop that runs in this machine.
    pub fn command(&self, cluster: &Cluster, words: &[&str]) -> Command {
        let mut command = cluster.program("ip");
        command.args(["netns", "exec", &self.name, env!("CARGO_BIN_EXE_kloop")]).args(words);
        command
    }
}

impl Drop for NetworkNamespace {
    fn drop(&mut self) {
        // Either may be missing after a failure.
        drop(Command::new("ip").args(["link", "del", &self.link]).output());
        drop(Command::new("ip").args(["netns", "del", &self.name]).output());
    }
}
