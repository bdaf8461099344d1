//! Nodes that belong to a cluster whose API server is elsewhere: two clusters' folders, of which one is a copy of the other.

use super::machines::{ControlPlane, NetworkNamespace, join};
use crate::cluster::Cluster;
use kloop::client::{ApiClient, ClientRequest, Credentials, HeaderCredentials, ServerConfig};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::Duration;

pub const POD: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: words}
data: {greeting: hello}
---
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: busybox
    command: [sh, -c, 'echo $GREETING $NAME; cat /var/run/secrets/kubernetes.io/serviceaccount/namespace; echo; sleep 1000']
    env:
    - {name: GREETING, valueFrom: {configMapKeyRef: {name: words, key: greeting}}}
    - {name: NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
"#;

const RESTARTS: &str = "{.status.containerStatuses[0].restartCount}";

/// Runs a join that has to fail; returns its error.
#[track_caller]
fn refused(machine: &Cluster, words: &[&str]) -> String {
    let said = machine.run(words, "");
    assert_eq!(said.code, 1, "{}{}", said.out, said.err);
    assert!(!machine.home().join("state.db").exists(), "something is left: {}", said.err);
    said.err
}

fn get(cluster: &Cluster, object: &str) -> Value {
    serde_json::from_str(&cluster.ok(&format!("get {object} -o json"))).expect("JSON")
}

#[test]
fn joined_node_runs_a_pod_and_reports_its_end() {
    let (cluster, machine) = (Cluster::new(), Cluster::new());
    let plane = ControlPlane::start(&cluster);
    let _node = join(&machine, &plane.join_command(), "worker");
    cluster.ok("wait --for=condition=Ready node/worker --timeout=60s");
    cluster.apply(POD);
    cluster.ok("wait --for=condition=Ready pod/a --timeout=60s");
    let pod = get(&cluster, "pod/a");
    let copy = get(&machine, "pod/a");
    assert_eq!((&pod["spec"]["nodeName"], &pod["metadata"]["uid"]), (&"worker".into(), &copy["metadata"]["uid"]));
    machine.until("the pod has printed", || machine.ok("logs a").trim() == "hello worker\ndefault");
    // Events of the kubelet are at the server.
    let events = "get events --field-selector reason=Started -o name";
    cluster.until("the event is there", || cluster.ok(events).contains("event/a."));
    cluster.ok("delete pod/a");
    assert!(!machine.kloop("get pod/a").out.contains("Running"));
    assert_eq!(cluster.ok("get pods").trim(), "");
}

#[test]
fn pods_with_claims_are_not_placed_on_a_joined_node() {
    let (cluster, machine) = (Cluster::new(), Cluster::new());
    let plane = ControlPlane::start(&cluster);
    let _node = join(&machine, &plane.join_command(), "worker");
    cluster.ok("wait --for=condition=Ready node/worker --timeout=60s");
    let claims = [("now", "standard"), ("late", "late")].map(|(name, class)| {
        format!(
            "{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: {name}}}, spec: {{storageClassName: {class}, \
             accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Mi}}}}}}}}\n---\n"
        )
    });
    let class = "{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: late}, provisioner: local.kloop.dev, \
                 volumeBindingMode: WaitForFirstConsumer}\n---\n";
    let pod = |name: &str, claim: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{volumes: [{{name: d, persistentVolumeClaim: \
             {{claimName: {claim}}}}}], containers: [{{name: main, image: busybox, command: [sleep, '1000']}}]}}}}\n---\n"
        )
    };
    cluster.apply(&format!("{class}{}{}{}", claims.concat(), pod("a", "now"), pod("b", "late")));
    for (pod, reason) in [
        ("a", "1 node(s) didn't match PersistentVolume's node affinity"),
        ("b", "1 node(s) didn't find available persistent volumes to bind"),
    ] {
        let message = "{.status.conditions[?(@.type==\"PodScheduled\")].message}";
        cluster.until(reason, || cluster.read(&format!("pod/{pod}"), message).contains(reason));
    }
}

#[test]
fn joined_node_knows_the_images_of_its_cluster() {
    let (cluster, machine) = (Cluster::new(), Cluster::new());
    let plane = ControlPlane::start(&cluster);
    let _node = join(&machine, &plane.join_command(), "worker");
    cluster.apply(
        "
apiVersion: kloop.dev/v1alpha1
kind: Image
metadata: {name: greeter}
spec: {patterns: [example.com/greeter], entrypoint: [echo, hello]}
---
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  restartPolicy: Never
  containers: [{name: main, image: example.com/greeter, args: [world]}]
",
    );
    cluster.until_reads("pod/a", "{.status.phase}", "Succeeded");
    assert_eq!(machine.ok("logs a"), "hello world\n");
}

/// A client of the control plane's API server.
fn client(cluster: &Cluster) -> ApiClient {
    let text = fs::read_to_string(cluster.home().join("kubeconfig")).expect("kubeconfig");
    let config: Value = serde_yaml::from_str(&text).expect("YAML");
    let entry = |list: &str, key: &str| config[list][0][key].as_object().expect("an entry").clone();
    let (server, user) = (entry("clusters", "cluster"), entry("users", "user"));
    let config = ServerConfig::from_entries(&server, &user, Path::new("/")).expect("a configuration");
    ApiClient::new(config).expect("a client")
}

#[test]
fn api_server_forwards_to_the_kubelet_of_a_joined_node() {
    let (cluster, machine) = (Cluster::new(), Cluster::new());
    let plane = ControlPlane::start(&cluster);
    let _node = join(&machine, &plane.join_command(), "worker");
    cluster.apply(POD);
    cluster.ok("wait --for=condition=Ready pod/a --timeout=60s");
    let client = client(&cluster);
    const POD_PATH: &str = "/api/v1/namespaces/default/pods/a";
    let text = |path: &str| {
        client.send(ClientRequest::get(path)).map(|reply| String::from_utf8_lossy(&reply.body).into_owned())
    };
    // The node serves once its certificate is signed.
    let log = format!("{POD_PATH}/log?tailLines=2");
    cluster.until("the log is there", || text(&log).is_ok_and(|log| log == "hello worker\ndefault\n"));
    let path =
        format!("{POD_PATH}/exec?command=sh&command=-c&command=cat%3B%20exit%203&stdin=true&stdout=true&stderr=true");
    let socket = client.open_socket(&path, &["v5.channel.k8s.io"]).expect("a socket");
    let sender = socket.sender();
    assert!(sender.send(0, b"echoed\n") && sender.send(255, &[0]));
    let (mut output, mut end) = (Vec::new(), Value::Null);
    while let Ok(Some(message)) = socket.receive(Duration::from_secs(60)) {
        match message.channel {
            1 => output.extend_from_slice(&message.bytes),
            3 => end = serde_json::from_slice(&message.bytes).expect("JSON"),
            _ => {}
        }
    }
    assert_eq!((&output[..], &end["details"]["causes"][0]["message"]), (&b"echoed\n"[..], &"3".into()));
    let summary: Value =
        serde_json::from_str(&text("/api/v1/nodes/worker/proxy/stats/summary").expect("answered")).expect("JSON");
    assert_eq!((&summary["node"]["nodeName"], &summary["pods"][0]["podRef"]["name"]), (&"worker".into(), &"a".into()));
    // Measurements of the pod and of the node are those of its kubelet, from the server and for commands at the state.
    let metrics = text("/apis/metrics.k8s.io/v1beta1/namespaces/default/pods/a").expect("answered");
    let metrics: Value = serde_json::from_str(&metrics).expect("JSON");
    assert_eq!(metrics["containers"][0]["name"], "main", "{metrics}");
    let row = cluster.ok("top pod a --containers --no-headers");
    assert_eq!(row.split_whitespace().take(2).collect::<Vec<_>>(), ["a", "main"], "{row}");
    let row = cluster.ok("top node worker --no-headers");
    assert!(row.starts_with("worker") && !row.contains("unknown"), "{row}");
    // Commands at the control plane go through the server, too.
    assert_eq!(cluster.ok("logs a --tail=2"), "hello worker\ndefault\n");
    let echoed = cluster.run(&["exec", "-i", "a", "--", "sh", "-c", "cat; exit 4"], "typed\n");
    assert_eq!((echoed.code, echoed.out.as_str()), (4, "typed\n"), "{}", echoed.err);
    let copied = cluster.home().join("copied");
    cluster.ok(&format!("cp a:/etc/hostname {}", copied.display()));
    assert_eq!(fs::read_to_string(&copied).expect("copied").trim(), "a");
    // A user has the same rights there.
    let refused = cluster.kloop("logs a --as=nobody");
    assert!(refused.code == 1 && refused.err.contains("Forbidden"), "{refused:?}");
    // The kubelet answers only the API server.
    let node = get(&cluster, "node/worker");
    let port = &node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"];
    let direct = ServerConfig::new(&format!("https://127.0.0.1:{port}")).expect("a configuration");
    let ask = |token: Option<&str>, path: &str| {
        let header = token.map(|token| HeaderCredentials::Token(token.trim().to_owned())).unwrap_or_default();
        let credentials = Credentials { header, ..Credentials::default() };
        let config = ServerConfig { is_verified: false, credentials, ..direct.clone() };
        let answer = ApiClient::new(config).expect("a client").send(ClientRequest::get(path));
        answer.map_or_else(|error| error.code(), |reply| reply.code)
    };
    assert_eq!(ask(None, "/containerLogs/default/a/main"), 401);
    // An account has the rights there that the API server says.
    cluster.ok("create serviceaccount watcher");
    cluster.ok("create serviceaccount stranger");
    cluster.ok("create clusterrole stats --verb=get --resource=nodes/stats");
    cluster.ok("create clusterrolebinding stats --clusterrole=stats --serviceaccount=default:watcher");
    let [watcher, stranger] = ["watcher", "stranger"].map(|account| cluster.ok(&format!("create token {account}")));
    assert_eq!(ask(Some(&watcher), "/stats/summary"), 200);
    assert_eq!((ask(Some(&watcher), "/pods"), ask(Some(&stranger), "/stats/summary")), (403, 403));
    assert_eq!(ask(Some("a.b.c"), "/stats/summary"), 401);
    assert_eq!(plane.server.end("TERM"), 0);
    let said = cluster.kloop("exec a -- true");
    assert!(said.code == 1 && said.err.contains("pod a runs on another machine, node worker"), "{said:?}");
}

#[test]
fn joined_node_goes_on_while_its_server_is_away() {
    let (cluster, machine) = (Cluster::new(), Cluster::new());
    let plane = ControlPlane::start(&cluster);
    let command = plane.join_command();
    let node = join(&machine, &command, "worker");
    cluster.apply(&POD.replace("sleep 1000", "sleep 2; exit 3"));
    cluster.ok("wait --for=condition=PodReadyToStartContainers pod/a --timeout=60s");
    let port = command[2].rsplit_once(':').expect("a port").1.to_owned();
    assert_eq!(plane.server.end("TERM"), 0);
    // It restarts the container by itself.
    let has_restarted = |cluster: &Cluster| cluster.read("pod/a", RESTARTS).parse::<u32>().is_ok_and(|count| count > 0);
    machine.until("the container has restarted", || has_restarted(&machine));
    // Nor does it need the server for its own restart.
    assert_eq!(node.end("TERM"), 0);
    let node = machine.background(&["node", "join"]);
    node.until_says("ready: ");
    node.until_says("(pods keep running)");
    let server = cluster.background(&["serve", "--port", &port]);
    server.until_says("KUBECONFIG=");
    node.until_says("the server answers again");
    cluster.until("the server knows about it", || has_restarted(&cluster));
}

#[test]
fn machine_that_leaves_ends_its_processes() {
    let (cluster, machine) = (Cluster::new(), Cluster::new());
    let plane = ControlPlane::start(&cluster);
    let node = join(&machine, &plane.join_command(), "worker");
    cluster.apply(POD);
    cluster.ok("wait --for=condition=Ready pod/a --timeout=60s");
    let process = machine.pid("a");
    assert_eq!(node.end("TERM"), 0);
    assert!(Path::new(&format!("/proc/{process}")).exists(), "pods go on without the node");
    let said = machine.kloop("down");
    assert!(said.code == 0 && said.err.contains("ended the processes of 1 pod"), "{said:?}");
    assert!(!Path::new(&format!("/proc/{process}")).exists());
    assert_eq!(cluster.kloop("get pod/a").code, 0, "the object is the server's");
}

#[test]
fn wrong_joins_are_refused_and_leave_nothing() {
    let (cluster, machine) = (Cluster::new(), Cluster::new());
    let plane = ControlPlane::start(&cluster);
    let command = plane.join_command();
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let [_, _, server, _, token, _, hash] = words[..] else { panic!("{words:?}") };
    let join = |change: &[&str]| refused(&machine, &[&["node", "join"], change].concat());
    let error = join(&[server, "--token", "abcdef.0123456789abcdef", "--discovery-token-ca-cert-hash", hash]);
    assert!(error.contains("the server does not know this token"), "{error}");
    let other = format!("sha256:{}", "0".repeat(64));
    let error = join(&[server, "--token", token, "--discovery-token-ca-cert-hash", &other]);
    assert!(error.contains("this is another cluster, or the connection is intercepted"), "{error}");
    let error = join(&[server, "--token", token]);
    assert!(error.contains("cannot be trusted without the hash"), "{error}");
    let error = join(&[server, "--discovery-token-ca-cert-hash", hash]);
    assert!(error.contains("--token is missing"), "{error}");
    let error = join(&["https://127.0.0.1:1", "--token", token, "--discovery-token-ca-cert-hash", hash]);
    assert!(error.contains("was refused"), "{error}");
    assert!(join(&[]).contains("has joined no cluster yet"));
    // A second machine of the same name.
    let first = Cluster::new();
    let node = self::join(&first, &command, "worker");
    cluster.ok("wait --for=condition=Ready node/worker --timeout=60s");
    let error = join(&[&words[2..], &["--node-name", "worker"]].concat());
    assert!(error.contains("there is a node worker already"), "{error}");
    // The copy is not a cluster.
    let said = first.kloop("create configmap a");
    assert!(said.code == 1 && said.err.contains("is the copy of the node worker"), "{}", said.err);
    let said = first.kloop("down");
    assert!(said.code == 1 && said.err.contains("end kloop node join first"), "{}", said.err);
    assert_eq!(node.end("TERM"), 0);
    let said = first.kloop("reconcile");
    assert!(said.code == 1 && said.err.contains("is the copy of a node"), "{}", said.err);
    cluster.ok(&format!("node token delete {}", &token[..6]));
    let error = join(&[&words[2..], &["--node-name", "other"]].concat());
    assert!(error.contains("the server does not know this token"), "{error}");
    assert!(!Path::new(&machine.home().join("state.db.node")).exists());
    assert!(fs::read_dir(machine.home()).expect("a folder").count() < 2, "only files of no cluster");
}

#[test]
fn machine_with_an_address_of_its_own_joins() {
    let Some(network) = NetworkNamespace::make() else { return };
    let [own, other] = &network.addresses;
    let (cluster, machine) = (Cluster::new(), Cluster::new());
    let plane = ControlPlane::start_at(&cluster, own);
    let command = plane.join_command();
    let words: Vec<&str> = command.iter().map(String::as_str).chain(["--node-name", "far"]).collect();
    let node = machine.background_program(network.command(&machine, &words));
    node.until_says("ready: ");
    cluster.apply(POD);
    cluster.ok("wait --for=condition=Ready pod/a --timeout=60s");
    let addresses = cluster.read("node/far", "{.status.addresses[?(@.type==\"InternalIP\")].address}");
    assert_eq!(&addresses, other);
    let client = client(&cluster);
    let log = || client.send(ClientRequest::get("/api/v1/namespaces/default/pods/a/log"));
    cluster.until("the log comes from there", || log().is_ok_and(|log| log.body.starts_with(b"hello far")));
    // The connection breaks, and is restored.
    network.set_link("down");
    cluster.ok("delete pod/a --wait=false");
    network.set_link("up");
    cluster.until("the pod has ended", || cluster.kloop("get pod/a").code == 1);
    assert_eq!(node.end("TERM"), 0);
}
