//! Several machines share one cluster on a real etcd with three members, which fail. Each machine is a folder of its own.

pub mod members;

use super::{deployment, pod_with};
use crate::cluster::{Cluster, is_alive, signal};
use members::Members;
use std::sync::atomic::{AtomicBool, Ordering};

fn config_map(name: &str, value: &str) -> String {
    format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}, data: {{value: \"{value}\"}}}}")
}

/// A pod that runs on one machine.
fn pod_on(name: &str, node: &str) -> String {
    let spec = format!("terminationGracePeriodSeconds: 1, nodeSelector: {{kubernetes.io/hostname: {node}}}");
    pod_with(name, &spec, "", "sleep 1000")
}

#[test]
fn machines_see_each_others_changes_at_once() {
    let Some(etcd) = Members::start() else { return };
    let [one, two] = [etcd.machine("shop"), etcd.machine("shop")];
    one.apply(&config_map("a", "1"));
    assert_eq!(two.read("cm/a", "{.data.value}"), "1");
    assert_eq!(two.read("cm/a", "{.metadata.resourceVersion}"), one.read("cm/a", "{.metadata.resourceVersion}"));
    let watching = two.background(&["get", "cm", "-w", "-o", "name"]);
    watching.until_says("configmap/a");
    one.apply(&config_map("b", "2"));
    watching.until_says("configmap/b");
    two.ok("delete cm a");
    assert!(one.kloop("get cm a").err.contains("NotFound"));
    // Another prefix is another cluster.
    let other = etcd.machine("other");
    assert!(other.kloop("get ns").err.contains("there is no cluster at etcd://"), "{:?}", other.kloop("get ns"));
    other.apply(&config_map("c", "3"));
    assert!(!one.ok("get cm -o name").contains("configmap/c"));
}

#[test]
fn each_machine_runs_its_own_pods_whichever_leads() {
    let Some(etcd) = Members::start() else { return };
    let [one, two] = [etcd.machine("shop"), etcd.machine("shop")];
    let first = one.watch_with(&["--node-name", "one"]);
    first.until_says("ready: node one");
    let second = two.watch_with(&["--node-name", "two"]);
    second.until_says("leads; standing by");
    second.until_says("standing by; runs the pods of node two");
    one.apply(&pod_on("a", "one"));
    one.apply(&pod_on("b", "two"));
    one.until_reads("pod/a", "{.status.phase}", "Running");
    one.until_reads("pod/b", "{.status.phase}", "Running");
    let processes = [one.pid("a"), two.pid("b")];
    first.end("KILL");
    second.until_says("ready: node two");
    // Another machine cannot take the name of a node that lives.
    let refused = etcd.machine("shop").kloop("reconcile --watch --node-name two");
    assert!(refused.code == 1 && refused.err.contains("another machine runs the node two"), "{refused:?}");
    two.apply(&pod_on("c", "two"));
    two.until_reads("pod/c", "{.status.phase}", "Running");
    assert!(processes.iter().all(|pid| is_alive(*pid)), "no process was touched");
    assert_eq!(two.read("pod/a", "{.spec.nodeName}"), "one");
    assert_eq!(two.read("pod/a", "{.status.phase}"), "Running");
    // The first machine starts again as the standby, and runs its own pods.
    let third = one.watch_with(&["--node-name", "one"]);
    third.until_says("standing by; runs the pods of node one");
    third.until_says("1 pod keeps running");
    two.ok("delete pod a --wait=false");
    one.until("the process of the pod ends", || !is_alive(processes[0]));
    two.until("the pod is gone", || two.kloop("get pod a").err.contains("NotFound"));
    // The leader ends in order: its successor need not wait, and deletes a pod of the other machine when that is back.
    assert_eq!(second.end("TERM"), 0);
    third.until_says("ready: node one");
    one.ok("delete pod b --wait=false");
    one.apply(&pod_on("d", "one"));
    one.until_reads("pod/d", "{.status.phase}", "Running");
    assert!(is_alive(processes[1]), "only its own machine ends it");
    let fourth = two.watch_with(&["--node-name", "two"]);
    fourth.until_says("standing by; runs the pods of node two");
    two.until("the process of the pod ends", || !is_alive(processes[1]));
}

#[test]
fn paused_leader_is_replaced_and_can_change_nothing_when_it_continues() {
    let Some(etcd) = Members::start() else { return };
    let [one, two] = [etcd.machine("shop"), etcd.machine("shop")];
    let first = one.watch_with(&["--node-name", "one"]);
    first.until_says("ready: node one");
    let second = two.watch_with(&["--no-local-node"]);
    second.until_says("leads; standing by");
    signal(first.pid(), "STOP");
    second.until_says("ready: without a node");
    two.apply(&deployment("web", 1, 1000));
    two.until_reads("deploy/web", "{.status.observedGeneration}", "1");
    signal(first.pid(), "CONT");
    first.until_says("another control plane took over; waiting");
    second.end("TERM");
    first.until_says("web");
    one.ready_pods("app=web", 1);
}

#[test]
fn no_acknowledged_write_is_lost_when_members_are_killed_and_paused() {
    let Some(etcd) = Members::start() else { return };
    let machines = [etcd.machine("shop"), etcd.machine("shop")];
    machines[0].ok("create ns other");
    let is_over = AtomicBool::new(false);
    let write = |number: usize| {
        let (machine, mut stored) = (etcd.machine("shop"), Vec::new());
        while !is_over.load(Ordering::SeqCst) {
            let name = format!("w{number}-{}", stored.len());
            let said = machine.kloop(&format!("create cm {name} --from-literal=a=b"));
            // A write without an answer may have been made.
            if said.code == 0 || said.err.contains("already exists") {
                stored.push(name);
            }
        }
        stored
    };
    let stored = std::thread::scope(|scope| {
        let writers = [0, 1].map(|number| scope.spawn(move || write(number)));
        let wait_for_writes = || {
            let before = machines[0].read("ns/default", "{.metadata.uid}");
            assert!(!before.is_empty());
            machines[0].apply(&config_map("marker", &format!("{:?}", std::time::Instant::now())));
        };
        for member in 0..3 {
            etcd.kill(member);
            wait_for_writes();
            etcd.restart(member);
            etcd.pause((member + 1) % 3);
            wait_for_writes();
            etcd.resume((member + 1) % 3);
            wait_for_writes();
        }
        is_over.store(true, Ordering::SeqCst);
        writers.map(|writer| writer.join().expect("the writer ends")).concat()
    });
    assert!(stored.len() > 5, "{stored:?}");
    for machine in &machines {
        let found = machine.ok("get cm -o name");
        let missing: Vec<_> = stored.iter().filter(|name| !found.contains(&format!("configmap/{name}\n"))).collect();
        assert!(missing.is_empty(), "{missing:?}");
        assert_eq!(machine.kloop("state verify").code, 0);
    }
    assert_eq!(machines[0].ok("get cm -o name"), machines[1].ok("get cm -o name"));
}

#[test]
fn without_a_quorum_commands_say_so_and_pods_go_on() {
    let Some(etcd) = Members::start() else { return };
    let one = etcd.machine("shop");
    let plane = one.watch();
    one.apply(&pod_with("a", "terminationGracePeriodSeconds: 1", "", "sleep 1000"));
    one.until_reads("pod/a", "{.status.phase}", "Running");
    let pid = one.pid("a");
    etcd.kill(0);
    etcd.kill(1);
    let said = one.run(&["apply", "-f", "-"], &config_map("a", "1"));
    assert!(said.code == 75 && said.err.contains("cannot reach the state at etcd://"), "{said:?}");
    plane.until_says("cannot reach the state at etcd://");
    assert!(is_alive(pid));
    etcd.restart(0);
    plane.until_says("the state can be written again");
    one.until("etcd answers again", || one.kloop("get cm").code == 0);
    assert!(one.kloop("get cm a").err.contains("NotFound"));
    assert!(is_alive(pid));
    assert_eq!(one.read("pod/a", "{.status.containerStatuses[0].restartCount}"), "0");
}

#[test]
fn state_is_copied_both_ways() {
    let Some(etcd) = Members::start() else { return };
    let file = Cluster::new();
    file.apply(&config_map("a", "1"));
    file.apply(&config_map("b", "1"));
    file.ok("delete cm b");
    let (from, address) = (file.home().join("state.db"), etcd.address("shop"));
    let said = file.ok(&format!("state copy {} {address}", from.display()));
    assert!(said.contains("copied to etcd://"), "{said}");
    let shared = etcd.machine("shop");
    for path in ["{.data.value}", "{.metadata.uid}", "{.metadata.resourceVersion}"] {
        assert_eq!(shared.read("cm/a", path), file.read("cm/a", path));
    }
    assert!(shared.kloop("get cm b").err.contains("NotFound"));
    shared.apply(&config_map("a", "2"));
    shared.apply(&config_map("b", "3"));
    // Nothing is overwritten.
    let again = file.kloop(&format!("state copy {} {address}", from.display()));
    assert!(again.code != 0 && again.err.contains("there is a cluster already"), "{again:?}");
    let back = file.home().join("back.db");
    file.ok(&format!("state copy {address} {}", back.display()));
    let read = |path: &str| file.ok(&format!("--state {} get cm b -o jsonpath={path}", back.display()));
    assert_eq!(read("{.data.value}"), "3");
    assert_eq!(read("{.metadata.uid}"), shared.read("cm/b", "{.metadata.uid}"));
    let again = file.kloop(&format!("state copy {address} {}", back.display()));
    assert!(again.code != 0 && again.err.contains("exists already"), "{again:?}");
    let plane = shared.watch_with(&["--no-local-node"]);
    plane.until_says("ready");
    let running = file.kloop(&format!("state copy {address} {}", file.home().join("third.db").display()));
    assert!(running.code != 0 && running.err.contains("a control plane runs on the machine"), "{running:?}");
}

#[test]
fn bad_states_on_etcd_are_refused_with_a_remedy() {
    let Some(etcd) = Members::start() else { return };
    let machine = etcd.machine("shop");
    etcd.put("/newer/kloop", "format=99\ncluster=x\n");
    etcd.put("/foreign/kloop", "text of another program");
    let closed = "etcd://127.0.0.1:1/shop";
    for (state, code, expected) in [
        (etcd.address("newer"), 65, "was written by a newer kloop"),
        (etcd.address("foreign"), 77, "are not those of a kloop cluster"),
        (closed.to_owned(), 75, "connection refused"),
        ("etcd://127.0.0.1:1".to_owned(), 1, "the prefix is missing"),
        ("etcd://127.0.0.1:1/a?ca=b".to_owned(), 1, "not one of cacert, cert, key"),
        (format!("{}?cacert=/dev/null", etcd.address("shop")), 77, "has no certificate in PEM"),
        (etcd.address("shop").replace("etcd://", "etcd://joe@"), 77, "has no password"),
    ] {
        let said = machine.run(&["--state", &state, "apply", "-f", "-"], &config_map("a", "1"));
        assert!(said.code == code && said.err.contains(expected), "{state}: {said:?}");
        assert_eq!(said.out, "");
    }
    assert_eq!(etcd.keys("/newer"), 1);
    assert_eq!(etcd.keys("/foreign"), 1);
    assert_eq!(etcd.keys("/shop"), 0);
}

#[test]
fn members_with_tls_and_users_are_used_with_certificates_and_passwords() {
    let Some(etcd) = Members::start_with_tls() else { return };
    let machine = etcd.machine("shop");
    machine.apply(&config_map("a", "1"));
    assert_eq!(machine.read("cm/a", "{.data.value}"), "1");
    let refused = |state: &str, expected: &str| {
        let said = machine.run(&["--state", state, "get", "cm"], "");
        assert!(said.code == 77 && said.err.contains(expected), "{state}: {said:?}");
    };
    refused(&etcd.address_with("shop", "another-ca.pem", "client"), "invalid peer certificate");
    etcd.enable_users("joe", "secret");
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, password: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, password).expect("written");
        path
    };
    let [right, wrong] = [file("right", "secret\n"), file("wrong", "other")];
    let with = |path: &std::path::Path| {
        let address = etcd.address("shop").replace("etcd://", "etcd://joe@");
        format!("{address}&password-file={}", path.display())
    };
    let said = machine.run(&["--state", &with(&right), "get", "cm", "-o", "name"], "");
    assert!(said.code == 0 && said.out.contains("configmap/a"), "{said:?}");
    refused(&with(&wrong), "invalid user ID or password");
    let other_prefix = with(&right).replace("/shop", "/other");
    let said = machine.run(&["--state", &other_prefix, "apply", "-f", "-"], &config_map("a", "1"));
    assert!(said.code == 77 && said.err.contains("permission denied"), "{said:?}");
}
