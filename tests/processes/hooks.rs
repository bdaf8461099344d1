//! postStart and preStop hooks of real containers.

use super::{on_host_files, pod_with};
use crate::cluster::Cluster;

fn pod(name: &str, script: &str, post_start: &str, pre_stop: &str) -> String {
    let exec = |script: &str| format!("{{exec: {{command: [sh, -c, {}]}}}}", serde_json::Value::from(script));
    let lifecycle = format!("lifecycle: {{postStart: {}, preStop: {}}}", exec(post_start), exec(pre_stop));
    on_host_files(&pod_with(name, "restartPolicy: Never, terminationGracePeriodSeconds: 20", &lifecycle, script))
}

#[test]
fn hooks_run_in_the_container_after_its_start_and_before_its_end() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let note = |what: &str| format!("echo {what} >> $HOME/notes");
    let script = format!("trap '{}; exit 0' TERM; while :; do sleep 0.05; done", note("term"));
    let post_start = format!("until test -e $HOME/go; do sleep 0.02; done; {}", note("started"));
    cluster.apply(&pod("hooked", &script, &post_start, &note("stopping")));
    cluster.until("the pod has a process", || !cluster.pids("hooked").is_empty());
    cluster.until_reads("pod/hooked", "{.status.containerStatuses[0].state.waiting.reason}", "ContainerCreating");
    std::fs::write(cluster.home().join("go"), "").expect("written");
    cluster.until_reads("pod/hooked", "{.status.phase}", "Running");
    cluster.ok("delete pod hooked");
    cluster.nothing_is_left();
    let notes = std::fs::read_to_string(cluster.home().join("notes")).expect("notes");
    assert_eq!(notes, "started\nstopping\nterm\n");
}

#[test]
fn failed_hook_is_reported() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&pod("hooked", "exec sleep 1000", "echo no luck; exit 3", "true"));
    cluster.until_reads("pod/hooked", "{.status.phase}", "Failed");
    let events = cluster.ok("get events -o jsonpath={range.items[*]}{.reason}:{.message};{end}");
    assert!(events.contains("FailedPostStartHook:PostStartHook failed: no luck"), "{events}");
    assert!(events.contains("Killing:FailedPostStartHook"), "{events}");
}
