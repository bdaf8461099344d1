//! More pods than descriptors of the control plane.

use crate::cluster::{Cluster, Plane, is_alive, signal};
use std::fs;

/// The hard limit of the control plane.
const LIMIT: usize = 128;
/// Number of pods.
const PODS: usize = 100;

/// Starts a control plane under the limit.
fn watch_under_limit(cluster: &Cluster) -> Plane<'_> {
    let mut shell = cluster.program("sh");
    let line = format!("ulimit -n {LIMIT}; exec \"$0\" reconcile --watch --restart-backoff=1s");
    shell.args(["-c", &line, env!("CARGO_BIN_EXE_kloop")]);
    cluster.background_program(shell)
}

/// Asserts that a control plane has descriptors to spare.
#[track_caller]
fn assert_descriptors_are_left(plane: &Plane<'_>) {
    let used = fs::read_dir(format!("/proc/{}/fd", plane.pid())).expect("it runs").count();
    assert!(used < LIMIT / 4 * 3, "{used} of {LIMIT} descriptors are used");
}

/// The parent of a process.
fn parent(pid: u32) -> u32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let mut fields = stat.rsplit_once(')').expect("a name").1.split_whitespace();
    fields.nth(1).expect("a parent").parse().expect("a pid")
}

#[track_caller]
fn until_restarted(cluster: &Cluster, pod: &str, times: &str) {
    cluster.until_reads(&format!("pod {pod}"), "{.status.containerStatuses[0].restartCount}", times);
    cluster.until_reads(&format!("pod {pod}"), "{.status.containerStatuses[0].ready}", "true");
}

#[test]
fn pods_beyond_the_limit_of_descriptors_are_served() {
    let cluster = Cluster::new();
    let plane = watch_under_limit(&cluster);
    cluster.apply(&super::deployment("web", PODS as u32, 1000));
    let pods = cluster.ready_pods("app=web", PODS);
    assert_descriptors_are_left(&plane);

    // It is random whether a pod has a connection at the moment, so several lose their processes, and others their shims.
    let (ends, deaths) = (&pods[..20], &pods[20..30]);
    ends.iter().for_each(|pod| signal(cluster.pid(pod), "KILL"));
    deaths.iter().for_each(|pod| signal(parent(cluster.pid(pod)), "KILL"));
    ends.iter().chain(deaths).for_each(|pod| until_restarted(&cluster, pod, "1"));
    assert_descriptors_are_left(&plane);

    // The next control plane connects to all shims, and finds the containers that ended in the meantime.
    plane.end("KILL");
    let ended = cluster.pid(&pods[30]);
    signal(ended, "KILL");
    cluster.until("the process has ended", || !is_alive(ended));
    let plane = watch_under_limit(&cluster);
    until_restarted(&cluster, &pods[30], "1");
    signal(cluster.pid(&pods[31]), "KILL");
    until_restarted(&cluster, &pods[31], "1");
    assert_eq!(cluster.ready_pods("app=web", PODS).len(), PODS);
    assert_descriptors_are_left(&plane);

    // A command in a parked pod needs its connection again.
    let probe = r#"{"spec": {"template": {"spec": {"containers": [{"name": "main", "readinessProbe": {"exec": {"command": ["true"]}}}]}}}}"#;
    let said = cluster.run(&["patch", "deployment", "web", "-p", probe], "");
    assert_eq!(said.code, 0, "{}", said.err);
    cluster.until_reads(
        "deployment web",
        "{.status.updatedReplicas},{.status.readyReplicas},{.status.replicas}",
        &format!("{PODS},{PODS},{PODS}"),
    );
    assert_descriptors_are_left(&plane);

    cluster.ok("delete deployment web");
    cluster.nothing_is_left();
}
