//! Sandboxes and old kernels: a refused system call disables only the feature that needs it. Pods run, restart and are deleted, and each
//! missing feature is reported once.

use super::hostile::stat;
use super::{clusters, fetch, pod};
use crate::cluster::{Cluster, Plane, is_alive, signal};
use std::net::TcpListener;

#[test]
fn pods_use_the_machines_network_without_a_filter() {
    // A process can have one filter of this kind: those in a pod have the pod's, so a cluster within a pod has none.
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let state = cluster.home().join("inner.db").display().to_string();
    let command = serde_json::json!([env!("CARGO_BIN_EXE_kloop"), "--state", state, "reconcile", "--watch"]);
    cluster.apply(&format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: outer, annotations: {{kloop.dev/filesystem: host}}}}, spec: {{terminationGracePeriodSeconds: 1, containers: [{{name: main, image: \
         kloop, command: {command}}}]}}}}"
    ));
    let inner = |words: &[&str], input: &str| cluster.run(&[&["--state", &state], words].concat(), input);
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: inner}, spec: {containers: [{name: main, image: busybox, command: [sleep, '1000']}]}}";
    cluster.until("the pod is applied", || inner(&["apply", "-f", "-"], pod).code == 0);
    let reads = |object: &str, path: &str| inner(&["get", object, "-o", &format!("jsonpath={path}")], "").out;
    cluster.until("the pod runs", || reads("pod/inner", "{.status.phase}") == "Running");
    assert_eq!(reads("pod/inner", "{.status.podIP}"), "127.0.0.1");
    let condition = "{.items[0].status.conditions[?(@.type==\"PodNetwork\")].reason}";
    assert_eq!(reads("nodes", condition), "NoFilter");
    let said = cluster.log("outer", "main");
    assert_eq!(said.matches("pods are on the machine's network").count(), 1, "{said}");
    cluster.ok("delete pod outer");
    cluster.nothing_is_left();
}

/// Runs a program while these calls are refused: `NUMBER:ERROR,NUMBER:ERROR`.
const SANDBOX: &str = r#"
import ctypes, os, struct, sys
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
rule = lambda code, yes, no, value: struct.pack("HBBI", code, yes, no, value)
program = rule(0x20, 0, 0, 0)
for refused in sys.argv[1].split(","):
    call, error = map(int, refused.split(":"))
    program += rule(0x15, 0, 1, call) + rule(6, 0, 0, 0x50000 + error)
program += rule(6, 0, 0, 0x7fff0000)
code = ctypes.create_string_buffer(program, len(program))
assert libc.prctl(22, 2, struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(code)), 0, 0) == 0
os.execv(sys.argv[2], sys.argv[2:])
"#;

/// Runs a program as root without the capability to mount (CAP_SYS_ADMIN), as container runtimes do.
const WITHOUT_MOUNTS: &str = "import ctypes, os, sys
assert ctypes.CDLL(None).prctl(24, 21, 0, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])";

#[test]
fn root_that_cannot_mount_has_private_files_too() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let cluster = Cluster::new();
    let mut plane = cluster.program("python3");
    plane.args(["-c", WITHOUT_MOUNTS, env!("CARGO_BIN_EXE_kloop"), "reconcile", "--watch"]);
    let _plane = cluster.background_program(plane);
    let files = ["etc", "usr", "var/lib"].map(|folder| format!("/{folder}/kloop-test-{}", std::process::id()));
    cluster.apply(&format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: writer, labels: {{app: writer}}}}, spec: {{terminationGracePeriodSeconds: 0, \
         containers: [{{name: main, image: busybox, command: [sh, -c, 'touch {} && exec sleep 1000']}}]}}}}",
        files.join(" ")
    ));
    cluster.ready_pods("app=writer", 1);
    cluster.until("the files are written", || cluster.run(&["exec", "writer", "--", "ls", &files[2]], "").code == 0);
    for file in &files {
        assert_eq!(cluster.ok(&format!("exec writer -- ls {file}")).trim(), file);
        let is_on_machine = std::fs::remove_file(file).is_ok();
        assert!(!is_on_machine, "the container has changed the machine's {file}");
    }
}

/// Events of a machine whose pods use its own network, and of one without pidfds.
const NO_NETWORK: &str = "seccomp user notification is not available on this machine";
const NOT_HELD: &str = "pidfds are not available on this machine";

/// Calls that make namespaces and mounts.
const NO_SPACES: [(libc::c_long, i32); 2] = [(libc::SYS_mount, libc::EPERM), (libc::SYS_unshare, libc::EPERM)];

#[test]
fn pods_in_a_sandbox_use_their_ports_on_the_machines_network() {
    without(&[(libc::SYS_pidfd_getfd, libc::EPERM)], &[NO_NETWORK]);
}

#[test]
fn pods_run_where_memory_cannot_be_read() {
    without(&[(libc::SYS_process_vm_readv, libc::EPERM)], &[NO_NETWORK]);
}

#[test]
fn pods_run_where_filters_are_unknown() {
    without(&[(libc::SYS_seccomp, libc::ENOSYS)], &[NO_NETWORK]);
}

#[test]
fn pods_run_where_no_namespace_can_be_made() {
    without(&NO_SPACES, &[]);
}

#[test]
fn pods_run_where_namespaces_cannot_be_entered() {
    without(&[(libc::SYS_setns, libc::EPERM)], &[]);
}

#[test]
fn pods_run_where_no_process_can_be_opened() {
    without(&[(libc::SYS_pidfd_open, libc::ENOSYS)], &[NO_NETWORK, NOT_HELD]);
}

#[test]
fn pods_run_where_only_parents_signal_and_no_namespace_ends_processes() {
    without(&[&NO_SPACES[..], &[(libc::SYS_pidfd_send_signal, libc::EPERM)]].concat(), &[NOT_HELD]);
}

#[test]
fn containers_end_with_their_shim_where_only_parents_can_signal() {
    for cluster in clusters() {
        let _plane = watch(&cluster, &[&NO_SPACES[..], &[(libc::SYS_pidfd_open, libc::ENOSYS)]].concat());
        cluster.apply(&pod("sleeper", "Always", 1, "exec sleep 1000"));
        cluster.ready_pods("app=sleeper", 1);
        let main = cluster.pid("sleeper");
        signal(stat(main)[1], "KILL");
        cluster.until_reads("pod/sleeper", "{.status.containerStatuses[0].restartCount}", "1");
        assert!(!is_alive(main), "the old process has ended");
        cluster.ok("delete pod sleeper");
        cluster.nothing_is_left();
    }
}

fn without(refused: &[(libc::c_long, i32)], told: &[&str]) {
    for cluster in clusters() {
        runs_without(&cluster, refused, told);
    }
}

/// Starts a control plane for which these calls are refused.
fn watch<'a>(cluster: &'a Cluster, refused: &[(libc::c_long, i32)]) -> Plane<'a> {
    let refused: Vec<String> = refused.iter().map(|(call, error)| format!("{call}:{error}")).collect();
    let mut plane = cluster.program("python3");
    plane.args(["-c", SANDBOX, &refused.join(","), env!("CARGO_BIN_EXE_kloop"), "reconcile", "--watch"]);
    cluster.background_program(plane)
}

fn runs_without(cluster: &Cluster, refused: &[(libc::c_long, i32)], told: &[&str]) {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    // The process that it leaves behind when it is killed has hidden itself.
    let script = serde_json::json!(format!(
        "import http.server, subprocess\nsubprocess.Popen([\"sh\", \"-c\", \"sleep 1000 & sleep 1000\"], start_new_session=True)\n\
         http.server.ThreadingHTTPServer((\"\", {port}), http.server.SimpleHTTPRequestHandler).serve_forever()"
    ));
    cluster.apply(&format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: web, labels: {{app: web}}}}, spec: {{terminationGracePeriodSeconds: 1, \
         shareProcessNamespace: true, containers: [{{name: main, \
         image: python3, command: [python3, -c, {script}], readinessProbe: {{tcpSocket: {{port: {port}}}, periodSeconds: 1}}}}]}}}}\n---\n\
         {{apiVersion: v1, kind: Service, metadata: {{name: web}}, spec: {{selector: {{app: web}}, ports: [{{port: {port}}}]}}}}"
    ));
    let plane = watch(cluster, refused);
    cluster.ready_pods("app=web", 1);
    for one in [NO_NETWORK, NOT_HELD] {
        let times = usize::from(told.contains(&one));
        assert_eq!(plane.said().matches(one).count(), times, "{one}: {}", plane.said());
        let node = cluster.ok("get nodes -o name");
        assert_eq!(cluster.run(&["why", node.trim()], "").out.matches(one).count(), times);
        cluster.until("an event reports it", || cluster.ok("get events -A").matches(one).count() == times);
    }
    let address = cluster.read("service/web", "{.spec.clusterIP}");
    let answers = || fetch(&format!("{address}:{port}")).is_some();
    cluster.until("the Service answers", answers);
    assert_eq!(cluster.ok("exec web -- echo in"), "in\n");
    // Its port is still free.
    signal(cluster.pid("web"), "KILL");
    cluster.until_reads("pod/web", "{.status.containerStatuses[0].restartCount}", "1");
    cluster.ready_pods("app=web", 1);
    // The endpoint follows the pod's readiness a moment later.
    cluster.until("the Service answers again", answers);
    cluster.ok("delete pod web");
    cluster.nothing_is_left();
}
