//! Restarts of dead processes.

use super::{deployment, pod};
use crate::cluster::{Cluster, is_alive, signal};

const RESTARTS: &str = "{.status.containerStatuses[0].restartCount}";
const WAITING: &str = "{.status.containerStatuses[0].state.waiting.reason}";

#[test]
fn killed_process_is_restarted_in_its_pod() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&deployment("web", 1, 1000));
    let pod = cluster.ready_pods("app=web", 1).remove(0);
    let first = cluster.pid(&pod);
    signal(first, "KILL");
    cluster.until_reads(&format!("pod/{pod}"), RESTARTS, "1");
    cluster.until("another process runs", || cluster.pids(&pod).values().any(|pid| *pid != first && is_alive(*pid)));
    assert_eq!(cluster.ready_pods("app=web", 1), [pod.as_str()], "the pod is the same");
    let last = cluster.read(
        &format!("pod/{pod}"),
        "{.status.containerStatuses[0].lastState.terminated.exitCode}/{.status.containerStatuses[0].lastState.terminated.reason}",
    );
    assert_eq!(last, "137/Error");
    let table = cluster.ok("get pods --no-headers");
    let cells: Vec<&str> = table.split_whitespace().collect();
    assert_eq!(cells[1..4], ["1/1", "Running", "1"], "{table}");
}

#[test]
fn crash_loop_backs_off_longer_each_time() {
    let cluster = Cluster::new();
    let _plane = cluster.watch_with(&["--restart-backoff", "1s"]);
    cluster.apply(&pod("crash", "Always", 5, "echo oops; exit 3"));
    cluster.until("the container was restarted", || {
        cluster.read("pod/crash", RESTARTS).parse().is_ok_and(|count: u32| count >= 3)
    });
    cluster.until_reads("pod/crash", WAITING, "CrashLoopBackOff");
    let message = cluster.wait_for("the status has a message", || {
        Some(cluster.read("pod/crash", "{.status.containerStatuses[0].state.waiting.message}"))
            .filter(|text| !text.is_empty())
    });
    // It may have crashed again meanwhile.
    let rest = "s restarting failed container=main pod=crash_default(";
    let delay = message.strip_prefix("back-off ").and_then(|text| text.split_once(rest)?.0.parse().ok());
    assert!(delay.is_some_and(|seconds: u32| seconds >= 4 && seconds.is_power_of_two()), "{message}");
    let last = "{.status.containerStatuses[0].lastState.terminated.exitCode}";
    assert_eq!(cluster.read("pod/crash", last), "3");
    cluster.until("the last two attempts have printed", || cluster.log("crash", "main").starts_with("oops\noops\n"));
    cluster.until("an event reports it", || {
        cluster.ok("get events").contains("Back-off restarting failed container main in pod crash_default(")
    });
    let table = cluster.ok("get pods");
    assert!(table.contains("CrashLoopBackOff") || table.contains("Error"), "{table}");
}

#[test]
fn deleted_pod_is_replaced() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&deployment("web", 2, 1000));
    let before = cluster.ready_pods("app=web", 2);
    let pid = cluster.pid(&before[0]);
    let said = cluster.ok(&format!("delete pod {}", before[0]));
    assert_eq!(said, format!("pod \"{}\" deleted from default namespace\n", before[0]));
    assert!(!is_alive(pid), "delete waits until the pod is gone, and the pod goes after its processes");
    let after = cluster.ready_pods("app=web", 2);
    assert!(!after.contains(&before[0]) && after.contains(&before[1]), "{before:?} {after:?}");
}

#[test]
fn pod_without_restarts_keeps_its_exit_code() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&pod("once", "Never", 5, "exit 7"));
    cluster.until_reads("pod/once", "{.status.phase}", "Failed");
    assert_eq!(cluster.read("pod/once", "{.status.containerStatuses[0].state.terminated.exitCode}"), "7");
    cluster.apply(&pod("fine", "OnFailure", 5, "echo done"));
    cluster.until_reads("pod/fine", "{.status.phase}", "Succeeded");
    let table = cluster.ok("get pods --no-headers");
    let cells = |line: &str| line.split_whitespace().take(4).map(str::to_owned).collect::<Vec<_>>().join(" ");
    let rows: Vec<String> = table.lines().map(cells).collect();
    assert_eq!(rows, ["fine 0/1 Completed 0", "once 0/1 Error 0"]);
}

#[test]
fn failing_liveness_probe_restarts_and_failing_readiness_probe_only_stops_traffic() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(
        r#"
apiVersion: v1
kind: Pod
metadata: {name: lively, annotations: {kloop.dev/filesystem: host}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: busybox
    workingDir: /
    command: [sh, -c, 'rm -f "$HOME/lively"; touch "$HOME/ready"; exec sleep 1000']
    livenessProbe: {exec: {command: [sh, -c, 'test ! -e "$HOME/lively"']}, periodSeconds: 1, failureThreshold: 1}
    readinessProbe: {exec: {command: [sh, -c, 'test -e "$HOME/ready"']}, periodSeconds: 1, failureThreshold: 1}
"#,
    );
    let ready = "{.status.containerStatuses[0].ready}";
    cluster.until_reads("pod/lively", ready, "true");
    std::fs::remove_file(cluster.home().join("ready")).unwrap();
    cluster.until_reads("pod/lively", ready, "false");
    assert_eq!(cluster.read("pod/lively", RESTARTS), "0");
    std::fs::write(cluster.home().join("lively"), "").unwrap();
    cluster.until_reads("pod/lively", RESTARTS, "1");
    cluster.until_reads("pod/lively", ready, "true");
    let events = cluster.ok("get events");
    for expected in
        ["Readiness probe failed", "Liveness probe failed", "Container main failed liveness probe, will be restarted"]
    {
        assert!(events.contains(expected), "{expected:?} is missing in\n{events}");
    }
}

#[test]
fn crash_loop_delay_survives_a_new_control_plane() {
    let cluster = Cluster::new();
    let plane = cluster.watch_with(&["--restart-backoff", "15s"]);
    let starts = cluster.home().join("starts");
    let script = format!("date +%s.%N >> {}; exit 1", starts.display());
    let host = "annotations: {kloop.dev/filesystem: host}, labels: {";
    cluster.apply(&pod("crash", "Always", 5, &script).replace("labels: {", host));
    // The first restart is immediate, the next one has to wait; meanwhile another control plane takes over.
    cluster.until_reads("pod/crash", RESTARTS, "1");
    cluster.until_reads("pod/crash", WAITING, "CrashLoopBackOff");
    assert_ne!(plane.end("KILL"), 0);
    let _plane = cluster.watch_with(&["--restart-backoff", "15s"]);
    cluster.until("the container has started three times", || {
        let count: u32 = cluster.read("pod/crash", RESTARTS).parse().expect("a number");
        assert!((1..=2).contains(&count), "restartCount {count}");
        std::fs::read_to_string(&starts).expect("written").lines().count() == 3
    });
    let text = std::fs::read_to_string(&starts).expect("written");
    let moments: Vec<f64> = text.lines().map(|line| line.parse().expect("a moment")).collect();
    assert!(moments[2] - moments[1] >= 14.9, "{moments:?}");
}
