//! Joined nodes whose network is slow or cut in one direction, that hang, and whose clock jumps.

use super::joined_nodes::POD;
use super::machines::{ControlPlane, join};
use super::slow_forwarder::{Direction, SlowForwarder};
use crate::cluster::{Cluster, Plane};
use kloop::object::Time;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The library that sets the clock of one program.
const CLOCK: [&str; 2] =
    ["/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1", "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1"];

/// Joins a machine through a forwarder.
fn join_through<'a>(plane: &ControlPlane<'_>, machine: &'a Cluster) -> (SlowForwarder, Plane<'a>) {
    let mut command = plane.join_command();
    let port = command[2].rsplit_once(':').expect("a port").1.parse().expect("a number");
    let network = SlowForwarder::start(port);
    command[2] = format!("https://127.0.0.1:{}", network.port);
    (network, join(machine, &command, "worker"))
}

#[test]
fn node_works_over_a_slow_network() {
    let (cluster, machine) = (Cluster::new(), Cluster::new());
    let plane = ControlPlane::start(&cluster);
    let (network, _node) = join_through(&plane, &machine);
    network.delay(Duration::from_millis(200));
    cluster.apply(POD);
    cluster.ok("wait --for=condition=Ready pod/a --timeout=60s");
    cluster.ok("delete pod/a");
    assert!(!machine.kloop("get pod/a").out.contains("Running"));
}

#[test]
fn cut_in_one_direction_delays_only_that_direction() {
    let (cluster, machine) = (Cluster::new(), Cluster::new());
    let plane = ControlPlane::start(&cluster);
    let (network, _node) = join_through(&plane, &machine);
    cluster.apply(POD);
    cluster.ok("wait --for=condition=Ready pod/a --timeout=60s");
    // The server hears nothing; the node hears of the deletion, and ends the processes.
    network.cut(Direction::Up, true);
    let process = machine.pid("a");
    cluster.ok("delete pod/a --wait=false");
    machine.until("the process has ended", || !Path::new(&format!("/proc/{process}")).exists());
    assert_eq!(cluster.kloop("get pod/a").code, 0);
    network.cut(Direction::Up, false);
    cluster.until("the server knows of the end", || cluster.kloop("get pod/a").code == 1);
    // The node hears nothing, and keeps the pod; then it hears of the deletion.
    cluster.apply(POD);
    cluster.ok("wait --for=condition=Ready pod/a --timeout=60s");
    network.cut(Direction::Down, true);
    let process = machine.pid("a");
    cluster.ok("delete pod/a --wait=false");
    cluster.until_reads("pod/a", "{.metadata.deletionGracePeriodSeconds}", "1");
    assert!(Path::new(&format!("/proc/{process}")).exists());
    network.cut(Direction::Down, false);
    cluster.until("the pod has ended", || cluster.kloop("get pod/a").code == 1);
    assert!(!Path::new(&format!("/proc/{process}")).exists());
}

#[test]
fn node_that_hangs_takes_up_its_work_again() {
    let (cluster, machine) = (Cluster::new(), Cluster::new());
    let plane = ControlPlane::start(&cluster);
    let node = join(&machine, &plane.join_command(), "worker");
    cluster.apply(&POD.replace("sleep 1000", "while ! [ -e /tmp/end-$$ ]; do sleep 0.1; done"));
    cluster.ok("wait --for=condition=Ready pod/a --timeout=60s");
    let signal = |name: &str| {
        let sent = Command::new("kill").args(["-s", name, &node.pid().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    };
    signal("STOP");
    cluster.ok("delete pod/a --wait=false");
    cluster.apply(&POD.replace("{name: a}", "{name: b}"));
    cluster.until("pod b is bound", || cluster.read("pod/b", "{.spec.nodeName}") == "worker");
    assert_eq!(cluster.read("pod/a", "{.status.phase}"), "Running", "nobody ends it meanwhile");
    signal("CONT");
    cluster.until("pod a has ended", || cluster.kloop("get pod/a").code == 1);
    cluster.ok("wait --for=condition=Ready pod/b --timeout=60s");
}

#[test]
fn jumps_of_the_clock_do_not_stop_a_node() {
    let Some(library) = CLOCK.into_iter().find(|path| Path::new(path).exists()) else {
        skip!("libfaketime is missing: no program's clock can be set");
        return;
    };
    let (cluster, machine) = (Cluster::new(), Cluster::new());
    let plane = ControlPlane::start(&cluster);
    let clock = machine.home().join("clock");
    let set = |offset: &str| fs::write(&clock, offset).expect("written");
    set("+0");
    let mut command = machine.command();
    command.args(plane.join_command()).args(["--node-name", "worker"]).env("LD_PRELOAD", library);
    // Waits are measured by the other clock, which does not jump.
    command
        .env("FAKETIME_TIMESTAMP_FILE", &clock)
        .env("FAKETIME_NO_CACHE", "1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    let node = machine.background_program(command);
    node.until_says("ready: ");
    for (jump, offset, pod) in [("+6h", 6.0, "a"), ("-6h", -6.0, "b"), ("+0", 0.0, "c")] {
        set(jump);
        cluster.apply(&POD.replace("{name: a}", &format!("{{name: {pod}}}")));
        cluster.ok(&format!("wait --for=condition=Ready pod/{pod} --timeout=60s"));
        // The next heartbeat shows the time of the node.
        cluster.until("the clock is set", || {
            let renewed = cluster.read("lease/worker -n kube-node-lease", "{.spec.renewTime}").parse::<Time>();
            let hours = renewed.expect("a time").duration_since(Time::now()).as_secs_f64() / 3600.0;
            (hours - offset).abs() < 1.0
        });
        assert_eq!(cluster.read("node/worker", "{.status.conditions[?(@.type==\"Ready\")].status}"), "True", "{jump}");
    }
    cluster.ok("delete pods --all");
    assert!(!machine.kloop("get pods").out.contains("Running"));
    // The library removes the shared memory that it has made when its program ends by itself.
    let shared_memory = || {
        let is_its = |name: &str| name.contains("faketime") && name.ends_with(&format!("_{}", node.pid()));
        let names = fs::read_dir("/dev/shm").expect("shared memory").flatten().map(|entry| entry.file_name());
        names.filter(|name| name.to_str().is_some_and(is_its)).count()
    };
    assert_eq!(shared_memory(), 2);
    assert_eq!(node.end("TERM"), 0);
    assert_eq!(shared_memory(), 0);
}
