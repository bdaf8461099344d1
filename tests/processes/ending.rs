//! Termination of pods: a stop signal first, then SIGKILL, and always for all processes.

use super::{deployment, on_host_files, pod};
use crate::cluster::{Cluster, is_alive};
use std::path::Path;

#[test]
fn stop_signal_precedes_the_kill() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let script = r#"trap 'echo bye > "$HOME/bye"; exit 0' TERM; echo up; while :; do sleep 0.1; done"#;
    cluster.apply(&on_host_files(&pod("polite", "Always", 30, script)));
    cluster.until("the container is up", || cluster.log("polite", "main") == "up\n");
    cluster.until_reads("pod/polite", "{.status.phase}", "Running");
    let pid = cluster.pid("polite");
    let told = cluster.ok("describe pod polite");
    assert!(told.lines().any(|line| line.split_whitespace().eq(["Process", "ID:", &pid.to_string()])), "{told}");
    cluster.ok("delete pod polite");
    assert!(!is_alive(pid));
    assert_eq!(std::fs::read_to_string(cluster.home().join("bye")).unwrap(), "bye\n", "the handler has run");
    cluster.nothing_is_left();
}

#[test]
fn pod_that_ignores_the_stop_signal_is_killed_after_its_grace_period() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&pod("deaf", "Always", 1, "trap '' TERM; echo up; while :; do sleep 0.1; done"));
    cluster.until("the container is up", || cluster.log("deaf", "main") == "up\n");
    let pid = cluster.pid("deaf");
    cluster.ok("delete pod deaf --wait=false");
    assert!(!cluster.read("pod/deaf", "{.metadata.deletionTimestamp}").is_empty() || !is_alive(pid));
    cluster.nothing_is_left();
    assert_eq!(cluster.kloop("get pod deaf").code, 1);
}

#[test]
fn forced_deletion_does_not_wait() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&pod("stuck", "Always", 3600, "trap '' TERM; echo up; while :; do sleep 0.1; done"));
    cluster.until("the container is up", || cluster.log("stuck", "main") == "up\n");
    let said = cluster.kloop("delete pod stuck --force --grace-period=0");
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.err.starts_with("Warning: Immediate deletion does not wait for confirmation"), "{}", said.err);
    assert_eq!(said.out, "pod \"stuck\" force deleted from default namespace\n");
    cluster.nothing_is_left();
}

#[test]
fn daemonized_processes_end_with_the_pod() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    // `$$$$`: Kubernetes makes one dollar of two in commands.
    let script = r#"
        (setsid sh -c 'trap "" TERM HUP; echo $$$$ >> "$HOME/away"; while :; do sleep 0.1; done' &)
        setsid sh -c '(trap "" TERM HUP; sh -c "echo \$\$ >> $HOME/away; exec sleep 1000" &) &' &
        trap 'exit 0' TERM
        while :; do sleep 0.1; done"#;
    cluster.apply(&on_host_files(&pod("family", "Always", 5, script)));
    let away = cluster.wait_for("two daemons run", || {
        let text = std::fs::read_to_string(cluster.home().join("away")).ok()?;
        let pids: Vec<u32> = text.lines().map(|line| line.parse().unwrap()).collect();
        (pids.len() == 2).then_some(pids)
    });
    assert!(away.iter().all(|pid| is_alive(*pid)), "{away:?}");
    cluster.ok("delete pod family");
    assert!(!away.iter().any(|pid| is_alive(*pid)), "{away:?}");
    cluster.nothing_is_left();
}

#[test]
fn namespace_deletion_deletes_its_objects() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply("{apiVersion: v1, kind: Namespace, metadata: {name: shop}}");
    for name in ["web", "db"] {
        let said = cluster.run(&["apply", "-n", "shop", "-f", "-"], &deployment(name, 2, 1000));
        assert_eq!(said.code, 0, "{}", said.err);
    }
    let said = cluster
        .run(&["apply", "-n", "shop", "-f", "-"], "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}");
    assert_eq!(said.code, 0, "{}", said.err);
    cluster.until_reads("deploy/web -n shop", "{.status.availableReplicas}", "2");
    cluster.until_reads("deploy/db -n shop", "{.status.availableReplicas}", "2");
    assert_eq!(cluster.ok("delete namespace shop"), "namespace \"shop\" deleted\n");
    cluster.nothing_is_left();
    for resource in ["pods", "deployments", "configmaps", "namespaces"] {
        assert!(!cluster.ok(&format!("get {resource} -A -o name")).contains("shop"), "{resource}");
    }
    assert_eq!(cluster.ok("get pods -A -o name"), "");
    assert_eq!(cluster.kloop("get ns shop").code, 1);
}

#[test]
fn cascades_are_background_foreground_or_orphan() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    for name in ["background", "foreground", "orphan"] {
        cluster.apply(&deployment(name, 1, 1000));
    }
    for name in ["background", "foreground", "orphan"] {
        cluster.ready_pods(&format!("app={name}"), 1);
    }
    cluster.ok("delete deployment foreground --cascade=foreground");
    assert_eq!(cluster.ok("get rs,pods -l app=foreground -o name"), "", "the owner is deleted last");
    cluster.ok("delete deployment background");
    cluster.until("the dependents are deleted", || cluster.ok("get rs,pods -l app=background -o name").is_empty());
    cluster.ok("delete deployment orphan --cascade=orphan");
    cluster.until_reads("rs -l app=orphan", "{.items[*].metadata.ownerReferences}", "");
    assert_eq!(cluster.ready_pods("app=orphan", 1).len(), 1);
}

#[test]
fn deleted_cluster_role_ends_with_every_cascade() {
    let cluster = Cluster::new();
    let _plane = cluster.watch_with(&["--no-local-node"]);
    for cascade in ["foreground", "orphan", "background"] {
        cluster.ok("create clusterrole read --verb=get --resource=pods");
        cluster.ok(&format!("delete clusterrole read --cascade={cascade} --timeout=30s"));
        assert!(cluster.kloop("get clusterrole read").err.contains("NotFound"), "{cascade}");
    }
}

/// A pod with a Python program that has blocked SIGTERM when it prints "up", with a folder at `/home`. Its grace period is longer than any
/// test.
fn blocking_term(name: &str, home: &Path, then: &str) -> String {
    let program = format!(
        "import signal, sys, time\nsignal.pthread_sigmask(signal.SIG_BLOCK, {{15}})\nprint('up', flush=True)\n{then}"
    );
    let command = serde_json::json!(["python3", "-c", program]);
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{terminationGracePeriodSeconds: 3600, \
         volumes: [{{name: home, hostPath: {{path: '{}'}}}}], \
         containers: [{{name: main, image: 'python:3', command: {command}, volumeMounts: [{{name: home, mountPath: /home}}]}}]}}}}",
        home.display()
    )
}

#[test]
fn stop_signal_that_the_kernel_drops_when_it_is_unblocked_ends_the_container() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    // As in C libraries for a moment while they start a thread or a process.
    let then = "while not signal.sigpending(): time.sleep(0.01)\nsignal.pthread_sigmask(signal.SIG_UNBLOCK, {15})\ntime.sleep(100000)";
    cluster.apply(&blocking_term("starting", &cluster.home(), then));
    cluster.until("it is up", || cluster.log("starting", "main") == "up\n");
    cluster.ok("delete pod starting");
    cluster.nothing_is_left();
}

#[test]
fn stop_signal_is_sent_again_to_a_program_that_sets_its_handler_after_the_kernel_dropped_it() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    // A shell that starts a command has the signal blocked; the new program has a handler. The shim checks at most a second apart.
    let then = "while not signal.sigpending(): time.sleep(0.01)\ntime.sleep(1)\nsignal.pthread_sigmask(signal.SIG_UNBLOCK, {15})\n\
                signal.signal(15, lambda *_: sys.exit(0))\ntime.sleep(100000)";
    cluster.apply(&blocking_term("late", &cluster.home(), then));
    cluster.until("it is up", || cluster.log("late", "main") == "up\n");
    cluster.ok("delete pod late");
    cluster.nothing_is_left();
}

#[test]
fn stop_signal_is_sent_again_to_the_program_that_a_script_becomes() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let becomes = "import signal, sys, time\nsignal.signal(15, lambda *_: sys.exit(0))\ntime.sleep(100000)";
    let then = format!(
        "import os\nsignal.signal(15, lambda *_: os.execvp('sh', ['sh', '-c', 'exec env python3 -c \"$0\"', {becomes:?}]))\n\
         signal.pthread_sigmask(signal.SIG_UNBLOCK, {{15}})\nprint('ready', flush=True)\ntime.sleep(100000)"
    );
    cluster.apply(&blocking_term("becoming", &cluster.home(), &then));
    cluster.until("it is up", || cluster.log("becoming", "main") == "up\nready\n");
    cluster.ok("delete pod becoming");
    cluster.nothing_is_left();
}

#[test]
fn stop_signal_reaches_a_container_that_waits_for_it_by_name() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let then = "signal.sigwait({15})\ntime.sleep(1)\nopen('/home/bye', 'w').write('bye')";
    cluster.apply(&blocking_term("waiting", &cluster.home(), then));
    cluster.until("it is up", || cluster.log("waiting", "main") == "up\n");
    cluster.ok("delete pod waiting");
    let bye = std::fs::read_to_string(cluster.home().join("bye"));
    assert_eq!(bye.unwrap(), "bye", "the handler has run");
    cluster.nothing_is_left();
}
