//! NetworkPolicies: allowed connections, and reports of denied ones.

use crate::cluster::Cluster;

/// A server at the ports 8080 and 9090, TCP and UDP, that answers "hello" to every client.
const SERVER: &str = r#"
import socket, threading
def answer(server):
    while True:
        client, _ = server.accept()
        client.sendall(b"hello")
        client.close()
def echo(server):
    while True:
        said, client = server.recvfrom(100)
        server.sendto(said, client)
for port in [8080, 9090]:
    threading.Thread(target=answer, args=[socket.create_server(("", port))]).start()
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("", port))
    threading.Thread(target=echo, args=[udp]).start()
"#;

/// Prints for each address that it reads whether it can be reached.
const CLIENT: &str = r#"
import socket, sys
for line in sys.stdin:
    protocol, host, port = line.split()
    try:
        if protocol == "tcp":
            said = socket.create_connection((host, int(port))).recv(9).decode()
        else:
            client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            client.settimeout(60)
            client.sendto(b"hello", (host, int(port)))
            said = client.recv(9).decode()
        print(said, flush=True)
    except OSError as error:
        print(type(error).__name__, flush=True)
"#;

fn pod(name: &str, script: &str) -> String {
    let script = serde_json::Value::from(script);
    let ports = "[{name: web, containerPort: 8080}, {name: web-udp, containerPort: 8080, protocol: UDP}]";
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{app: {name}}}}}, spec: {{terminationGracePeriodSeconds: 1, \
         containers: [{{name: main, image: python3, stdin: true, command: [python3, -u, -c, {script}], ports: {ports}}}]}}}}\n---\n"
    )
}

fn policy(name: &str, spec: &str) -> String {
    format!("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: {name}}}\nspec: {spec}\n")
}

/// Returns the results of a client for several addresses.
fn tries(cluster: &Cluster, client: &str, places: &[String]) -> String {
    let asked = places.iter().map(|place| format!("{place}\n")).collect::<String>();
    let said = cluster.run(&["exec", "-i", client, "--", "python3", "-u", "-c", CLIENT], &asked);
    said.out.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn policies_decide_connections_between_pods() {
    check_policies(&Cluster::new());
}

#[test]
fn policies_work_for_an_ordinary_user() {
    // An ordinary user has already run this in the test above.
    if rustix::process::geteuid().is_root() {
        check_policies(&Cluster::of_user(65_534));
    }
}

fn check_policies(cluster: &Cluster) {
    let _plane = cluster.watch();
    cluster.apply(
        &[
            ("server", SERVER),
            ("friend", "import time; time.sleep(1000)"),
            ("stranger", "import time; time.sleep(1000)"),
        ]
        .map(|(name, script)| pod(name, script))
        .concat(),
    );
    cluster.apply("{apiVersion: v1, kind: Service, metadata: {name: server}, spec: {selector: {app: server}, ports: [{port: 80, targetPort: web}]}}");
    for name in ["server", "friend", "stranger"] {
        cluster.ready_pods(&format!("app={name}"), 1);
    }
    let ip = cluster.read("pod/server", "{.status.podIP}");
    let service = cluster.read("service/server", "{.spec.clusterIP}");
    let places: Vec<String> = ["tcp {ip} 8080", "tcp {ip} 9090", "udp {ip} 8080", "udp {ip} 9090"]
        .map(|place| place.replace("{ip}", &ip))
        .into();
    let until = |client: &str, places: &[String], expected: &str| {
        cluster.until(&format!("{client} comes to {expected} of {places:?}"), || {
            tries(cluster, client, places) == expected
        });
    };
    until("friend", &places, "hello hello hello hello");
    let said = cluster.apply(&policy("closed", "{podSelector: {}, policyTypes: [Ingress]}"));
    assert!(!said.contains("Warning"), "{said}");
    let no = "PermissionError";
    until("friend", &places, &format!("{no} {no} {no} {no}"));
    until("server", &places[..1], "hello");
    // By a port's name, for clients with a label; a range for UDP.
    let from = "from: [{podSelector: {matchLabels: {app: friend}}}]";
    let named = format!("{{{from}, ports: [{{port: web}}, {{protocol: UDP, port: 9000, endPort: 9100}}]}}");
    cluster.apply(&policy("open", &format!("{{podSelector: {{matchLabels: {{app: server}}}}, ingress: [{named}]}}")));
    until("friend", &places, &format!("hello {no} {no} hello"));
    until("friend", &[format!("tcp {service} 80")], "hello");
    // Resolvers find their own address like this, which is not a connection.
    let look = format!("import socket; socket.socket(type=socket.SOCK_DGRAM).connect_ex(('{ip}', 65535))");
    assert_eq!(cluster.run(&["exec", "stranger", "--", "python3", "-c", &look], "").code, 0);
    until("stranger", &places[..1], no);
    until("stranger", &[format!("tcp {service} 80")], no);
    // The label makes the stranger an allowed client.
    cluster.ok("label pod stranger app=friend --overwrite");
    until("stranger", &places[..1], "hello");
    let told =
        format!("TCP to {ip}:8080 (pod default/server) was denied: no ingress rule of NetworkPolicy default/closed");
    cluster.until("an event reports it", || cluster.ok("describe pod stranger").contains(&told));
    assert!(!cluster.ok("describe pod stranger").contains(":65535"));
    let why = cluster.run(&["why", "pod/stranger"], "").out;
    assert!(why.contains("was denied: no ingress rule"), "{why}");
    // An egress policy; the server still replies to datagrams.
    cluster.apply(&policy(
        "inside",
        "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: server}}}]}]}",
    ));
    let world = ["tcp 192.0.2.1 80".to_owned(), "tcp 127.0.0.1 1".to_owned()];
    until("friend", &world, &format!("{no} {no}"));
    // A program of the machine that listens on every address is reachable at the pod's address, but is not part of the pod.
    let machine = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let port = machine.local_addr().unwrap().port();
    let own = cluster.read("pod/friend", "{.status.podIP}");
    let around = ["127.0.0.1", "0.0.0.0", &own].map(|place| format!("tcp {place} {port}"));
    until("friend", &around, &format!("{no} {no} {no}"));
    let machine = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    let port = machine.local_addr().unwrap().port();
    let around = ["127.0.0.1", "0.0.0.0", &own].map(|place| format!("udp {place} {port}"));
    until("friend", &around, &format!("{no} {no} {no}"));
    until("server", &["tcp", "udp"].map(|protocol| format!("{protocol} 127.0.0.1 8080")), "hello hello");
    // A client bound to any address gets its reply.
    let bound = "import socket; client = socket.socket(type=socket.SOCK_DGRAM); client.bind(('', 0)); client.settimeout(60); client.sendto(b'hello', \
                 ('127.0.0.1', 8080)); print(client.recv(9).decode())";
    let said = cluster.run(&["exec", "server", "--", "python3", "-c", bound], "");
    assert_eq!(said.out, "hello\n", "{}", said.err);
    until("friend", &places[3..], "hello");
    cluster.ok("delete networkpolicy --all");
    until("friend", &places, "hello hello hello hello");
}
