//! Nodes that are added, stopped and started again.

use super::{on_host_files, pod};
use crate::cluster::{Cluster, is_alive};

const ON: &str = "{.spec.nodeName}/{.status.phase}";

#[test]
fn added_nodes_run_or_simulate_pods() {
    let cluster = Cluster::new();
    cluster.ok("node add more --label pool=more");
    cluster.ok("node add sim --simulated --label pool=sim");
    let _plane = cluster.watch();
    for pool in ["more", "sim"] {
        let selects = format!("spec:\n  nodeSelector: {{pool: {pool}}}\n");
        cluster.apply(&pod(pool, "Always", 5, "sleep 1000").replacen("spec:\n", &selects, 1));
        cluster.until_reads(&format!("pod/{pool}"), ON, &format!("{pool}/Running"));
    }
    let pid = cluster.pid("more");
    assert!(is_alive(pid), "a real node runs a process");
    assert!(cluster.pids("sim").is_empty(), "a simulated node runs no process");
    let said = cluster.ok("node stop more --kill");
    assert_eq!(said, "node/more stopped; killed the processes of 1 pods\n");
    cluster.until("its process is gone", || !is_alive(pid));
    let said = cluster.kloop("why pod/more");
    assert!(said.code == 1 && said.out.ends_with("next: kloop node start more\n"), "{said:?}");
    cluster.ok("node start more");
    cluster
        .until("another process runs", || cluster.pids("more").values().any(|other| *other != pid && is_alive(*other)));
    cluster.ok("node remove sim");
    cluster.until("the pod is deleted", || cluster.kloop("get pod sim").code == 1);
}

#[test]
fn pods_of_this_machine_end_gracefully_without_its_node() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let script = r#"trap 'echo bye > "$HOME/bye"; exit 0' TERM; echo up; while :; do sleep 0.1; done"#;
    cluster.apply(&on_host_files(&pod("a", "Always", 30, script)));
    cluster.until("the container is up", || cluster.log("a", "main") == "up\n");
    let node = cluster.read("pod/a", "{.spec.nodeName}");
    cluster.ok(&format!("delete node {node}"));
    let told = cluster.kloop("why pod/a").out;
    assert!(told.contains("register the node again (kloop reconcile does so for its machine when it starts"), "{told}");
    cluster.ok("delete pod a");
    assert_eq!(std::fs::read_to_string(cluster.home().join("bye")).unwrap(), "bye\n", "the handler has run");
    cluster.nothing_is_left();
}
