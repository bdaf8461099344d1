//! Nodes that are added, stopped and started again.

use super::{on_host_files, pod};
use crate::cluster::{Cluster, is_alive};
use kloop::client::{ApiClient, ClientRequest, Credentials, HeaderCredentials, ServerConfig};

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

#[test]
fn kubelet_of_this_machine_serves_those_who_may() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&pod("a", "Always", 1, "echo up; sleep 1000"));
    cluster.until("the pod has printed", || cluster.kloop("logs a").out == "up\n");
    let node = cluster.ok("get nodes -o jsonpath={.items[0].metadata.name}");
    let at = |path: &str| cluster.ok(&format!("get node {node} -o jsonpath={path}"));
    let address = at("{.status.addresses[?(@.type==\"InternalIP\")].address}");
    let port = at("{.status.daemonEndpoints.kubeletEndpoint.Port}");
    let authority = cluster.ok("get configmap kube-root-ca.crt -o jsonpath={.data.ca\\.crt}");
    let ask = |token: &str, path: &str| {
        let server = ServerConfig::new(&format!("https://{address}:{port}")).expect("a configuration");
        let header =
            if token.is_empty() { HeaderCredentials::default() } else { HeaderCredentials::Token(token.trim().into()) };
        let credentials = Credentials { header, ..Credentials::default() };
        let config = ServerConfig { credentials, authorities: Some(authority.as_bytes().into()), ..server };
        ApiClient::new(config).expect("a client").send(ClientRequest::get(path))
    };
    let code = |token: &str, path: &str| ask(token, path).map_or_else(|error| error.code(), |reply| reply.code);
    cluster.ok("create serviceaccount watcher");
    cluster.ok("create serviceaccount stranger");
    cluster.ok("create clusterrole metrics --verb=get --resource=nodes/metrics,nodes/stats");
    cluster.ok("create clusterrolebinding metrics --clusterrole=metrics --serviceaccount=default:watcher");
    let [watcher, stranger] = ["watcher", "stranger"].map(|account| cluster.ok(&format!("create token {account}")));
    let reply = ask(&watcher, "/metrics/resource").expect("answered");
    let text = String::from_utf8_lossy(&reply.body);
    assert!(
        text.contains("container_cpu_usage_seconds_total{container=\"main\",namespace=\"default\",pod=\"a\"}"),
        "{text}"
    );
    for (token, path, expected) in [
        (watcher.as_str(), "/stats/summary", 200),
        (&watcher, "/pods", 403),
        (&watcher, "/containerLogs/default/a/main", 403),
        (&watcher, "/api/v1/namespaces/default/pods/a", 403),
        (&stranger, "/metrics/resource", 403),
        ("a.b.c", "/metrics/resource", 401),
        ("", "/healthz", 401),
    ] {
        assert_eq!(code(token, path), expected, "{path}");
    }
    cluster.ok("create clusterrole all --verb=get --resource=nodes/proxy");
    cluster.ok("create clusterrolebinding all --clusterrole=all --serviceaccount=default:stranger");
    let logs = ask(&stranger, "/containerLogs/default/a/main").expect("answered");
    assert_eq!(&logs.body[..], b"up\n");
    assert_eq!(code(&stranger, "/api/v1/namespaces/default/pods/a"), 404, "it serves no API");
    // The API server answers for it without asking it.
    assert!(cluster.ok("top node --no-headers").starts_with(&node));
}
