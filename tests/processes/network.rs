//! The pod network: one address per pod, the same ports in several pods, Services with ready endpoints.

use super::{fetch, pod, server, servers, service, web};
use crate::cluster::{Cluster, is_alive};
use std::collections::BTreeSet;
use std::io::Read;
use std::net::TcpListener;

fn indented(script: &str, by: usize) -> String {
    script.lines().map(|line| format!("{}{line}\n", " ".repeat(by))).collect()
}

fn script(name: &str, script: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  restartPolicy: Never\n  terminationGracePeriodSeconds: 1\n  \
         containers:\n  - name: main\n    image: python3\n    command:\n    - python3\n    - -c\n    - |\n{}",
        indented(script, 6)
    )
}

#[test]
fn replicas_share_a_port_and_their_service_reaches_each() {
    check_shared_port(Cluster::new());
}

#[test]
fn replicas_share_a_port_for_an_ordinary_user() {
    // An ordinary user has already run this in the test above.
    if rustix::process::geteuid().is_root() {
        check_shared_port(Cluster::of_user(65_534));
    }
}

fn check_shared_port(cluster: Cluster) {
    let _plane = cluster.watch();
    cluster.apply(&web(3));
    let servers: BTreeSet<String> = cluster.ready_pods("app=web", 3).into_iter().collect();
    cluster.apply(&script(
        "client",
        r#"
import os, urllib.request
said = set()
while len(said) < 3:
    server, client, _ = urllib.request.urlopen("http://" + os.environ["WEB_SERVICE_HOST"] + "/").read().decode().splitlines()
    said.add(server + " " + client)
print("\n".join(sorted(said)))
"#,
    ));
    cluster.until_reads("pod/client", "{.status.phase}", "Succeeded");
    let ip = cluster.read("pod/client", "{.status.podIP}");
    let expected: String = servers.iter().map(|server| format!("{server} {ip}\n")).collect();
    assert_eq!(cluster.log("client", "main"), expected, "each server was reached, from the client's own address");
}

#[test]
fn event_tells_where_a_port_is_that_is_kept_for_root() {
    let cluster = if rustix::process::geteuid().is_root() { Cluster::of_user(65_534) } else { Cluster::new() };
    let _plane = cluster.watch();
    let serve = "from http.server import *\nHTTPServer(('', 80), SimpleHTTPRequestHandler).serve_forever()";
    cluster.apply(&script("web", serve));
    let ip =
        cluster.wait_for("an address", || Some(cluster.read("pod/web", "{.status.podIP}")).filter(|ip| !ip.is_empty()));
    let lowest = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap();
    if lowest.trim().parse::<u16>().unwrap() <= 80 {
        return cluster.until("it answers at its port", || fetch(&format!("{ip}:80")).is_some());
    }
    let events = || cluster.ok("events --for pod/web");
    cluster.until("the event", || events().contains("A program uses port 80/TCP, and ports below"));
    assert!(events().contains(&format!("{ip}:61520")), "{}", events());
    cluster.until("it answers there", || fetch(&format!("{ip}:61520")).is_some());
}

#[test]
fn client_keeps_its_endpoint() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let keeps = "sessionAffinity: ClientIP, ports: [{name: http, port: 8000, targetPort: 8080}]";
    cluster.apply(&(servers("web", 2, "") + &service("web", keeps) + &server("client", "")));
    cluster.ready_pods("app=web", 2);
    cluster.ready_pods("app=client", 1);
    let place = cluster.read("service/web", "{.spec.clusterIP}");
    let script = format!(
        "import urllib.request\nprint(*sorted({{urllib.request.urlopen('http://{place}:8000/').read().decode().split()[0] for _ in range(10)}}))"
    );
    // Each command is a separate process: session affinity is per pod.
    let ask = || cluster.run(&["exec", "client", "--", "python3", "-c", &script], "").out.trim().to_owned();
    let from_host = || {
        let found: BTreeSet<String> =
            (0..10).filter_map(|_| fetch(&format!("{place}:8000"))?.lines().next().map(str::to_owned)).collect();
        found.into_iter().collect::<Vec<_>>().join(" ")
    };
    cluster.until("the Service answers", || !ask().is_empty() && !from_host().is_empty());
    let first = (ask(), from_host());
    assert!(!first.0.contains(' ') && !first.1.contains(' '), "one server each: {first:?}");
    cluster.ok("scale deployment web --replicas=8");
    cluster.ready_pods("app=web", 8);
    cluster.until("all endpoints get clients", || {
        let routes = std::fs::read_to_string(cluster.home().join("routes").join(&place)).unwrap_or_default();
        routes.matches(":8080").count() == 8
    });
    assert_eq!((ask(), from_host()), first, "new endpoints move no client");
    cluster.ok(&format!("delete pod {}", first.0));
    let second =
        cluster.wait_for("another endpoint answers", || Some(ask()).filter(|one| !one.is_empty() && *one != first.0));
    assert!(!second.contains(' '), "one server, permanently: {second}");
    assert_eq!(ask(), second);
}

#[test]
fn localhost_is_the_pod_then_the_host() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let host = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = host.local_addr().unwrap().port();
    let talk = format!(
        r#"
import os, signal, socket
server = socket.create_server(("127.0.0.1", 9090))
client = socket.create_connection(("localhost", 9090))
client.sendall(os.environ["HOSTNAME"].encode())
print(server.accept()[0].recv(100).decode())
socket.create_connection(("127.0.0.1", {port})).sendall(b"hello")
socket.create_connection(("127.0.0.1", {port}), timeout=60).sendall(b"hello again")
own = socket.create_server(("", 9092))
client = socket.create_connection(("127.0.0.1", 9092), timeout=60)
met, peer = own.accept()
assert peer[0] == "127.0.0.1" and peer == client.getsockname(), peer
assert met.getsockname() == client.getpeername() == own.getsockname(), client.getpeername()
any = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(any.getsockname(), timeout=60)
client = socket.create_connection(("127.0.0.1", any.getsockname()[1]), timeout=60)
full = socket.create_server(("127.0.0.1", 9091), backlog=0)
waiting = [socket.socket() for _ in range(4)]
for each in waiting:
    each.setblocking(False)
    each.connect_ex(("127.0.0.1", 9091))
signal.signal(signal.SIGALRM, lambda *_: 1 / 0)
signal.setitimer(signal.ITIMER_REAL, 0.1)
try:
    socket.socket().connect(("127.0.0.1", 9091))
except ZeroDivisionError:
    print("interrupted")
try:
    socket.create_connection((os.environ["KUBERNETES_SERVICE_HOST"], 81))
except ConnectionRefusedError:
    print("refused")
"#
    );
    for name in ["one", "other"] {
        cluster.apply(&script(name, &talk));
    }
    for name in ["one", "other"] {
        cluster.until_reads(&format!("pod/{name}"), "{.status.phase}", "Succeeded");
        assert_eq!(cluster.log(name, "main"), format!("{name}\ninterrupted\nrefused\n"));
        for expected in ["hello", "hello again"] {
            let mut said = String::new();
            host.accept().unwrap().0.read_to_string(&mut said).unwrap();
            assert_eq!(said, expected);
        }
    }
}

#[test]
fn datagrams_find_their_pod() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&script(
        "talker",
        r#"
import os, socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("0.0.0.0", 5353))
for connected in [False, True]:
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    if connected:
        client.connect(("127.0.0.1", 5353))
        client.send(b"connected")
    else:
        client.sendto(b"addressed", ("127.0.0.1", 5353))
    message, sender = server.recvfrom(100)
    print(message.decode(), sender[0] == server.getsockname()[0] == client.getsockname()[0] != "127.0.0.1")
"#,
    ));
    cluster.until_reads("pod/talker", "{.status.phase}", "Succeeded");
    assert_eq!(cluster.log("talker", "main"), "addressed True\nconnected True\n");
}

#[test]
fn service_answers_pods_with_any_bound_socket() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(
        &(super::server("echo", "") + &service("echo", "ports: [{port: 5000, targetPort: 5300, protocol: UDP}]")),
    );
    cluster.ready_pods("app=echo", 1);
    cluster.apply(&script(
        "asker",
        r#"
import os, socket
place = (os.environ["ECHO_SERVICE_HOST"], 5000)
for family, to in [(socket.AF_INET, place), (socket.AF_INET6, ("::ffff:" + place[0], place[1]))]:
    for bound in [None, ("", 0), ("", 7777), ("localhost", 0)]:
        for connects in [False, True]:
            client = socket.socket(family, socket.SOCK_DGRAM)
            if bound:
                client.bind(bound)
            while True:
                client.settimeout(1)
                try:
                    if connects:
                        client.connect(to)
                        client.send(b"hi")
                    else:
                        client.sendto(b"hi", to)
                    said, sender = client.recvfrom(100)
                    break
                except (TimeoutError, ConnectionRefusedError):
                    pass
            assert sender[:2] == to and (not connects or client.getpeername()[:2] == to), (bound, connects, sender)
            print(said.decode())
"#,
    ));
    cluster.until_reads("pod/asker", "{.status.phase}", "Succeeded");
    let ip = cluster.read("pod/asker", "{.status.podIP}");
    assert_eq!(cluster.log("asker", "main"), format!("HI {ip}\n").repeat(16));
}

#[test]
fn low_ports_answer_unconnected_datagrams() {
    low_ports_answer(&Cluster::new());
}

#[test]
fn low_ports_answer_for_an_ordinary_user() {
    // An ordinary user has already run this in the test above.
    if rustix::process::geteuid().is_root() {
        low_ports_answer(&Cluster::of_user(65_534));
    }
}

fn low_ports_answer(cluster: &Cluster) {
    let _plane = cluster.watch();
    cluster
        .apply(&(super::server("echo", "") + &service("echo", "ports: [{port: 53, targetPort: 5300, protocol: UDP}]")));
    cluster.ready_pods("app=echo", 1);
    cluster.apply(&script(
        "asker",
        r#"
import os, socket
labels = "echo.default.svc.cluster.local.".split(".")
question = b"\0\7\1\0\0\1\0\0\0\0\0\0" + b"".join(bytes([len(label)]) + label.encode() for label in labels) + b"\0\1\0\1"
resolver = next(line.split()[1] for line in open("/etc/resolv.conf") if line.startswith("nameserver"))
service = os.environ["ECHO_SERVICE_HOST"]
def ask(client, said, to):
    while True:
        try:
            client.sendto(said, (to, 53))
            return client.recv(512)
        except ConnectionRefusedError:
            pass
for bound in [None, ("", 0), ("", 7777)]:
    client = socket.socket(type=socket.SOCK_DGRAM)
    client.settimeout(60)
    if bound:
        client.bind(bound)
    found = {socket.inet_ntoa(ask(client, question, resolver)[-4:]) == service for _ in range(10)}
    print(found, *{ask(client, b"hi", service).decode() for _ in range(10)})
"#,
    ));
    cluster.until_reads("pod/asker", "{.status.phase}", "Succeeded");
    let ip = cluster.read("pod/asker", "{.status.podIP}");
    assert_eq!(cluster.log("asker", "main"), format!("{{True}} HI {ip}\n").repeat(3));
}

#[test]
fn datagram_socket_connects_to_a_service_without_such_a_port() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&service("web", "ports: [{port: 80}]"));
    cluster.apply(&script(
        "asker",
        r#"
import os, socket
service = (os.environ["WEB_SERVICE_HOST"], 80)
client = socket.socket(type=socket.SOCK_DGRAM)
client.settimeout(60)
client.connect(service)
print(client.getsockname()[0], client.getpeername() == service)
client.send(b"to nobody")
try:
    client.recv(1)
except ConnectionRefusedError:
    print("refused")
socket.socket(type=socket.SOCK_DGRAM).sendto(b"to nobody", service)
"#,
    ));
    cluster.until_reads("pod/asker", "{.status.phase}", "Succeeded");
    let ip = cluster.read("pod/asker", "{.status.podIP}");
    assert_eq!(cluster.log("asker", "main"), format!("{ip} True\nrefused\n"));
}

#[test]
fn names_resolve_to_services_and_their_members() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&web(1));
    cluster.ready_pods("app=web", 1);
    cluster.apply(
        r#"
apiVersion: v1
kind: Service
metadata: {name: db}
spec: {clusterIP: None, selector: {app: db}, ports: [{name: sql, port: 5432}]}
---
apiVersion: v1
kind: Service
metadata: {name: alias}
spec: {type: ExternalName, externalName: web.default.svc.cluster.local}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 2
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {terminationGracePeriodSeconds: 1, containers: [{name: main, image: busybox, command: [sleep, "1000"]}]}
"#,
    );
    cluster.ready_pods("app=db", 2);
    cluster.apply(&script(
        "asker",
        r#"
import socket, time, urllib.request
def ask(name):
    try:
        return sorted({found[4][0] for found in socket.getaddrinfo(name, 80, socket.AF_INET)})
    except socket.gaierror as error:
        return "no such name" if error.errno == socket.EAI_NONAME else str(error)
while len(ask("db")) < 2:
    time.sleep(0.01)
for name in ["web", "web.default", "web.default.svc.cluster.local", "alias", "db", "db-1.db.default.svc.cluster.local", "no.default.svc.cluster.local."]:
    print(name, ask(name))
print(urllib.request.urlopen("http://web/").read().decode().split()[0])
"#,
    ));
    cluster.until_reads("pod/asker", "{.status.phase}", "Succeeded");
    let web = cluster.read("service/web", "{.spec.clusterIP}");
    let members = ["db-0", "db-1"].map(|name| cluster.read(&format!("pod/{name}"), "{.status.podIP}"));
    let mut all = members.clone();
    all.sort();
    let expected = format!(
        "web ['{web}']\nweb.default ['{web}']\nweb.default.svc.cluster.local ['{web}']\nalias ['{web}']\ndb ['{}', '{}']\n\
         db-1.db.default.svc.cluster.local ['{}']\nno.default.svc.cluster.local. no such name\n{}\n",
        all[0],
        all[1],
        members[1],
        cluster.pods("app=web")[0]
    );
    assert_eq!(cluster.log("asker", "main"), expected);
}

#[test]
fn ipv6_only_listener_leaves_the_port_to_its_ipv4_twin() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let script = r#"
import asyncio, itertools, socket
async def serve():
    server = await asyncio.start_server(lambda reader, writer: writer.close(), None, 8080)
    server.close()
asyncio.run(serve())
port = 9000
for first, reuse, late in itertools.product((socket.AF_INET, socket.AF_INET6), (0, 1), (False, True)):
    port += 1
    sockets = []
    for family in (first, socket.AF_INET if first == socket.AF_INET6 else socket.AF_INET6):
        one = socket.socket(family)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind(("", port))
        if not late:
            one.listen()
        sockets.append(one)
    if late:
        [one.listen() for one in sockets]
    socket.create_connection(("localhost", port)).close()
print("all of them", flush=True)
"#;
    let command = serde_json::json!(["python3", "-c", script]);
    cluster.apply(&format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: twins}}, spec: {{restartPolicy: Never, containers: [{{name: main, image: python3, command: {command}}}]}}}}"
    ));
    cluster.until("the program has ended", || {
        !["", "Pending", "Running"].contains(&&*cluster.read("pod/twins", "{.status.phase}"))
    });
    assert_eq!(cluster.ok("logs twins"), "all of them\n");
}

#[test]
fn low_ports_of_pods_are_reachable() {
    low_ports(&Cluster::new());
    if rustix::process::geteuid().is_root() {
        low_ports(&Cluster::of_user(65_534));
    }
}

/// A pod that listens at the ports 80 and 53, and the Service and forwards for them.
fn low_ports(cluster: &Cluster) {
    let _plane = cluster.watch();
    let server = r#"
import http.server, os, socket, threading
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"answer at {self.connection.getsockname()[1]}".encode())
names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
names.bind(("0.0.0.0", 53))
own = socket.socket()
own.bind((os.environ["POD_IP"], 81))
def answer():
    while True:
        message, client = names.recvfrom(100)
        names.sendto(message.upper() + b" " + str(names.getsockname()[1]).encode(), client)
threading.Thread(target=answer).start()
server = http.server.ThreadingHTTPServer(("", 80), Handler)
print(server.socket.getsockname()[1], own.getsockname(), flush=True)
server.serve_forever()
"#;
    let fields = serde_json::json!({
        "name": "main", "image": "python:3", "command": ["python3", "-c", server],
        "ports": [{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP"}],
        "env": [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        "readinessProbe": {"httpGet": {"path": "/", "port": 80}, "periodSeconds": 1},
        "livenessProbe": {"tcpSocket": {"port": 80}},
    });
    cluster.apply(&format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: web, labels: {{app: web}}}}, spec: {{terminationGracePeriodSeconds: 1, containers: [{fields}]}}}}\n---\n{}{}",
        service("web", "ports: [{name: http, port: 80}, {name: names, port: 53, protocol: UDP}]"),
        pod("client", "Always", 1, "exec sleep 10000"),
    ));
    cluster.ready_pods("app=web", 1);
    cluster.ready_pods("app=client", 1);
    let pod = cluster.read("pod/web", "{.status.podIP}");
    cluster.until("the server has told its port", || {
        cluster.log("web", "main").lines().next() == Some(&*format!("80 ('{pod}', 81)"))
    });
    let ask = |from: &str, place: &str| {
        let script = format!("import urllib.request as r; print(r.urlopen('http://{place}/').read().decode())");
        cluster.run(&["exec", from, "--", "python3", "-c", &script], "").out.trim().to_owned()
    };
    let resolve = |place: &str| {
        let script = format!(
            "import socket; s = socket.socket(type=socket.SOCK_DGRAM); s.settimeout(1); s.sendto(b'hello', ('{place}', 53)); print(s.recv(100).decode())"
        );
        cluster.run(&["exec", "client", "--", "python3", "-c", &script], "").out.trim().to_owned()
    };
    let address = cluster.read("service/web", "{.spec.clusterIP}");
    cluster.until("the Service answers", || ask("client", &address) == "answer at 80");
    cluster.until("the Service answers datagrams", || resolve(&address) == "HELLO 53");
    cluster.until("the pod answers datagrams", || resolve(&pod) == "HELLO 53");
    for (from, place) in [("client", &*pod), ("web", "localhost")] {
        assert_eq!(ask(from, place), "answer at 80", "{from}");
    }
    let forward = cluster.background(&["port-forward", "pod/web", ":80"]);
    cluster.until("the forward listens", || forward.said().contains("Forwarding from"));
    let said = forward.said();
    let place = said.lines().find_map(|line| line.strip_prefix("Forwarding from ")?.split(' ').next()).unwrap();
    assert_eq!(fetch(place).as_deref(), Some("answer at 80"));
    drop(forward);
    cluster.ok("delete pod web client --now");
}

/// Programs may call without a pause: their shim answers, and still does everything else in time.
#[test]
fn calls_without_a_pause_delay_neither_output_nor_the_end() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&script(
        "busy",
        r#"
import signal, socket, threading
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def bind():
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.bind(("127.0.0.1", 0))
for _ in range(4):
    threading.Thread(target=bind).start()
print("busy", flush=True)
"#,
    ));
    cluster.until("its output arrives", || cluster.log("busy", "main") == "busy\n");
    assert_eq!(cluster.run(&["exec", "busy", "--", "echo", "here"], "").out, "here\n");
    let pid = cluster.pid("busy");
    cluster.ok("delete pod busy");
    assert!(!is_alive(pid));
    cluster.nothing_is_left();
}
