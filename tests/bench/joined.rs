//! Simulated nodes that join a server, and a Deployment over all of them, with the built binary: all on this machine.
//!
//! `cargo bench --bench joined [-- NODES PODS]` prints the times, and the CPU and memory of the control plane and of the server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for one of the states.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Pause between two looks.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

fn main() {
    let numbers: Vec<usize> = std::env::args().filter_map(|word| word.parse().ok()).collect();
    let (nodes, pods) = (numbers.first().copied().unwrap_or(100), numbers.get(1).copied().unwrap_or(10_000));
    let mut cluster = Cluster::new();
    let server = cluster.join(nodes);
    let started = Instant::now();
    cluster.deploy(pods);
    let ready = started.elapsed().as_secs_f64();
    println!("{pods} pods on {nodes} nodes: ready after {ready:.1} s");
    for (name, pid) in [("control plane", cluster.processes[0].id()), ("server", server)] {
        println!("{name}: {:.1} s of CPU, {} MB", cpu_seconds(pid), resident(pid));
    }
}

/// A cluster with a server, and the processes of its nodes; all end with it.
struct Cluster {
    folder: PathBuf,
    processes: Vec<Child>,
}

impl Cluster {
    fn new() -> Cluster {
        let folder = std::env::temp_dir().join(format!("kloop-bench-{}-joined", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        Cluster { folder, processes: Vec::new() }
    }

    /// Returns a command for the state with this name.
    fn command(&self, state: &str, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kloop"));
        let folder = self.folder.join(state);
        fs::create_dir_all(&folder).expect("a folder");
        command.args(words).env("KLOOP_STATE", folder.join("state.db")).env("KLOOP_CONFIG", self.folder.join("config"));
        command
    }

    fn read(&self, words: &[&str]) -> String {
        let output = self.command("main", words).stderr(Stdio::null()).output().expect("kloop runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn spawn(&mut self, state: &str, words: &[&str]) -> u32 {
        let mut command = self.command(state, words);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("kloop runs");
        let pid = child.id();
        self.processes.push(child);
        pid
    }

    /// Starts the control plane, the server and the nodes, and prints how long the joins took. Returns the pid of the server.
    fn join(&mut self, nodes: usize) -> u32 {
        self.spawn("main", &["reconcile", "--watch", "--no-local-node"]);
        let server = self.spawn("main", &["serve", "--port", "0"]);
        let token = || self.read(&["node", "token", "create"]);
        let mut join = String::new();
        until(|| {
            join = token();
            join.contains("node join https://")
        });
        let started = Instant::now();
        let words: Vec<&str> = join.split_whitespace().skip_while(|word| *word != "node").collect();
        for number in 0..nodes {
            let name = format!("n{number}");
            self.spawn(&name, &[&words[..], &["--node-name", &name, "--simulated"]].concat());
        }
        until(|| self.read(&["get", "nodes", "--no-headers"]).matches(" Ready").count() == nodes);
        println!("{nodes} nodes joined in {:.1} s", started.elapsed().as_secs_f64());
        server
    }

    fn deploy(&self, pods: usize) {
        let replicas = pods.to_string();
        self.read(&["create", "deployment", "web", "--image=busybox", "--replicas", &replicas]);
        until(|| self.read(&["get", "deployment", "web", "-o", "jsonpath={.status.readyReplicas}"]) == replicas);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for process in &mut self.processes {
            // It may have ended.
            drop(process.kill());
            drop(process.wait());
        }
        drop(fs::remove_dir_all(&self.folder));
    }
}

fn until(mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < TIMEOUT, "not reached in {TIMEOUT:?}");
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Returns the CPU time of a process so far.
fn cpu_seconds(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let ticks = |place: usize| fields.get(place).and_then(|field| field.parse::<f64>().ok()).unwrap_or_default();
    // Linux counts a hundred ticks a second for programs (times(2), USER_HZ).
    (ticks(11) + ticks(12)) / 100.0
}

/// Returns the resident memory of a process in megabytes.
fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or_default() / 1024
}
