//! The pod network: every pod its own address, the same ports side by side, Services that lead to whoever is ready.

use super::{server, servers, service};
use crate::cluster::{Cluster, signal};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

fn indented(script: &str, by: usize) -> String {
    script.lines().map(|line| format!("{}{line}\n", " ".repeat(by))).collect()
}

fn web(replicas: usize) -> String {
    servers("web", replicas, "") + &service("web", "ports: [{port: 80, targetPort: 8080}]")
}

fn script(name: &str, script: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  restartPolicy: Never\n  terminationGracePeriodSeconds: 1\n  \
         containers:\n  - name: main\n    image: python3\n    command:\n    - python3\n    - -c\n    - |\n{}",
        indented(script, 6)
    )
}

#[test]
fn replicas_share_a_port_and_their_service_leads_to_each() {
    replicas_share_a_port(Cluster::new());
}

#[test]
fn for_an_ordinary_user_as_well() {
    // Who is one already has tried it by the test before.
    if rustix::process::geteuid().is_root() {
        replicas_share_a_port(Cluster::of_user(65_534));
    }
}

fn replicas_share_a_port(cluster: Cluster) {
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
fn a_client_stays_with_its_endpoint() {
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
    // Each command is a process of its own: who is remembered is the pod.
    let ask = || cluster.run(&["exec", "client", "--", "python3", "-c", &script], "").out.trim().to_owned();
    let from_host = || {
        let found: BTreeSet<String> =
            (0..10).filter_map(|_| fetch(&format!("{place}:8000"))?.lines().next().map(str::to_owned)).collect();
        found.into_iter().collect::<Vec<_>>().join(" ")
    };
    cluster.until("it answers", || !ask().is_empty() && !from_host().is_empty());
    let first = (ask(), from_host());
    assert!(!first.0.contains(' ') && !first.1.contains(' '), "one server each: {first:?}");
    cluster.ok("scale deployment web --replicas=8");
    cluster.ready_pods("app=web", 8);
    cluster.until("all are led to", || {
        let routes = std::fs::read_to_string(cluster.home().join("routes").join(&place)).unwrap_or_default();
        routes.matches(":8080").count() == 8
    });
    assert_eq!((ask(), from_host()), first, "more servers move nobody");
    cluster.ok(&format!("delete pod {}", first.0));
    let second = ask();
    assert!(second != first.0 && !second.contains(' '), "another one, for good: {second}");
    assert_eq!(ask(), second);
}

#[test]
fn localhost_is_the_pods_own_and_else_the_hosts() {
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
fn whatever_a_socket_is_bound_to_the_service_answers_the_pod() {
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
fn names_lead_to_services_and_their_members() {
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

/// What an HTTP server answers at a place; none when nobody does.
fn fetch(place: &str) -> Option<String> {
    let mut stream = TcpStream::connect(place).ok()?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
    let mut said = String::new();
    stream.read_to_string(&mut said).ok()?;
    said.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).filter(|body| !body.is_empty())
}

#[test]
fn the_rest_of_the_machine_comes_in_at_services_and_forwarded_ports() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&web(2).replace("ports: [{port: 80,", "type: LoadBalancer, ports: [{port: 8000,"));
    let servers: BTreeSet<String> = cluster.ready_pods("app=web", 2).into_iter().collect();
    let address = cluster.read("service/web", "{.spec.clusterIP}:{.spec.ports[0].port}");
    let node_port = cluster.read("service/web", "127.0.0.1:{.spec.ports[0].nodePort}");
    let ip = "{.status.loadBalancer.ingress[0].ip}";
    cluster.until("it has an address outside", || !cluster.read("service/web", ip).is_empty());
    let balancer = format!("{}:8000", cluster.read("service/web", ip));
    for place in [address, node_port, balancer] {
        let seen = RefCell::new(BTreeSet::new());
        cluster.until("both have answered", || {
            seen.borrow_mut().extend(fetch(&place).and_then(|said| Some(said.split_once('\n')?.0.to_owned())));
            *seen.borrow() == servers
        });
    }
    let nobody = format!("{}:443", cluster.read("service/kubernetes", "{.spec.clusterIP}"));
    assert!(TcpStream::connect(nobody).is_err(), "nobody is behind it");
    let forward = cluster.background(&["port-forward", "deployment/web", ":8080"]);
    forward.until_says("Forwarding from 127.0.0.1:");
    let said = forward.said();
    let place = said.split_whitespace().nth(2).unwrap().to_owned();
    let first = fetch(&place).unwrap().split_once('\n').unwrap().0.to_owned();
    assert!(servers.contains(&first));
    cluster.ok(&format!("delete pod {first}"));
    cluster.until("another pod answers", || fetch(&place).is_some_and(|said| !said.starts_with(&first)));
    assert_eq!(forward.end("TERM"), 256, "ended by the signal itself");
    let pod = cluster.ready_pods("app=web", 2).remove(0);
    let forward = cluster.background(&["port-forward", &format!("pod/{pod}"), ":8080"]);
    forward.until_says("Forwarding from 127.0.0.1:");
    cluster.ok(&format!("delete pod {pod}"));
    assert_eq!(forward.ended(), 1, "{}", forward.said());
    assert!(forward.said().contains("error: lost connection to pod"), "{}", forward.said());
}

/// A server that answers once and ends.
const ONCE: &str = r#"
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.wfile.write(b"HTTP/1.0 200 OK\r\n\r\nanswer")
    def finish(self):
        super().finish()
        self.connection.close()
        os._exit(3)
http.server.HTTPServer(("", int(sys.argv[1])), Handler).serve_forever()
"#;

#[test]
fn a_forwarded_port_outlives_a_crash_loop() {
    let cluster = Cluster::new();
    let _plane = cluster.watch_with(&["--restart-backoff", "3s"]);
    let program = serde_json::Value::from(ONCE);
    cluster.apply(&format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: brief}}, spec: {{terminationGracePeriodSeconds: 1, containers: [{{name: main, image: python3, \
         command: [python3, -c, {program}, '8080']}}]}}}}"
    ));
    cluster.until_reads("pod/brief", "{.status.phase}", "Running");
    let forward = cluster.background(&["port-forward", "pod/brief", ":8080"]);
    forward.until_says("Forwarding from 127.0.0.1:");
    let place = forward.said().split_whitespace().nth(2).unwrap().to_owned();
    let port = place.rsplit_once(':').unwrap().1.to_owned();
    let waiting = "{.status.containerStatuses[0].state.waiting.reason}";
    cluster.until("it ends until it has to wait", || {
        fetch(&place);
        cluster.read("pod/brief", waiting) == "CrashLoopBackOff"
    });
    assert_eq!(fetch(&place), None);
    forward.until_says(&format!("an error occurred forwarding {port} -> 8080: "));
    forward.until_says("connect: connection refused");
    cluster.until("it answers again", || fetch(&place).as_deref() == Some("answer"));
    forward.end("TERM");
}

#[test]
fn a_port_that_cannot_be_forwarded_is_told_as_kubectl_does() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&web(1));
    cluster.ready_pods("app=web", 1);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let said = cluster.kloop(&format!("port-forward --address 127.0.0.1 service/web {port}:80"));
    let expected = format!(
        "Unable to listen on port {port}: Listeners failed to create with the following errors: [unable to create listener: Error \
         listen tcp4 127.0.0.1:{port}: bind: address already in use]\nerror: unable to listen on any of the requested ports: \
         [{{{port} 8080}}]\n"
    );
    assert_eq!((said.code, said.err), (1, expected));
    // One that can be had is enough.
    let forward =
        cluster.background(&["port-forward", "service/web", "--address", "127.0.0.1", &format!("{port}:80"), ":80"]);
    forward.until_says("Forwarding from 127.0.0.1:");
    let said = forward.said();
    let line = said.lines().find(|line| line.starts_with("Forwarding")).unwrap();
    assert!(line.ends_with(" -> 8080"), "{said}");
    assert!(fetch(line.split_whitespace().nth(2).unwrap()).is_some(), "{said}");
}

#[test]
fn the_service_of_the_api_server_comes_back() {
    let cluster = Cluster::new();
    // Before there is a cluster, whoever looks for one sees what a new one would have.
    cluster.ok("create configmap first");
    let _plane = cluster.watch();
    let (uid, ip) = ("{.metadata.uid}", "{.spec.clusterIP}");
    let before = [uid, ip].map(|path| cluster.read("service/kubernetes", path));
    cluster.ok("delete service kubernetes");
    cluster.until("there is another", || {
        let now = cluster.run(&["get", "service/kubernetes", "-o", &format!("jsonpath={uid}")], "");
        now.code == 0 && now.out != before[0]
    });
    assert_eq!(cluster.read("service/kubernetes", ip), before[1]);
}

#[test]
fn a_pod_on_the_machines_network_meets_a_node_port() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&web(1).replace("ports: [{port: 80,", "type: NodePort, ports: [{port: 8000,"));
    let port = cluster.read("service/web", "{.spec.ports[0].nodePort}");
    cluster.until("it answers", || fetch(&format!("127.0.0.1:{port}")).is_some());
    let script = serde_json::Value::from(format!("import socket; socket.create_server((\"\", {port}))"));
    cluster.apply(&format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: late}}, spec: {{hostNetwork: true, containers: [{{name: main, image: python3, \
         command: [python3, -c, {script}], ports: [{{containerPort: {port}}}]}}]}}}}"
    ));
    let told = format!("port {port}: it is the node port of service/web");
    let next = format!("let it listen at another port than {port}, or give service/web another node port");
    cluster.until("it is explained", || {
        let why = cluster.run(&["why", "pod/late"], "").out;
        why.contains(&told) && why.contains(&next)
    });
}

#[test]
fn a_pod_on_the_machines_network_has_its_services_port_to_itself() {
    let cluster = Cluster::new();
    let _plane = cluster.watch_with(&["--restart-backoff", "1s"]);
    let port = TcpListener::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port();
    let program = serde_json::Value::from(ONCE);
    cluster.apply(&format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: near, labels: {{app: near}}}}, spec: {{hostNetwork: true, terminationGracePeriodSeconds: 1, \
         containers: [{{name: main, image: python3, command: [python3, -c, {program}, '{port}']}}]}}}}\n---\n{}",
        service("near", &format!("ports: [{{port: {port}}}]"))
    ));
    let place = cluster.read("service/near", &format!("{{.spec.clusterIP}}:{port}"));
    for restarts in 0..3 {
        cluster.until("it answers", || fetch(&place).as_deref() == Some("answer"));
        cluster.until("it is there again", || {
            let count = cluster.read("pod/near", "{.status.containerStatuses[0].restartCount}");
            count.parse::<u32>().is_ok_and(|count| count > restarts)
        });
    }
    assert!(!cluster.log("near", "main").contains("in use"), "{}", cluster.log("near", "main"));
    let told = cluster.ok("get events");
    assert!(!told.contains("PortUnavailable"), "{told}");
}

#[test]
fn a_port_that_the_machine_has_is_explained() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let everywhere = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = everywhere.local_addr().unwrap().port();
    let script = serde_json::Value::from(format!("import socket; socket.create_server((\"\", {port}))"));
    cluster.apply(&format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: late}}, spec: {{containers: [{{name: main, image: python3, command: [python3, -c, {script}], \
         ports: [{{containerPort: {port}}}]}}]}}}}"
    ));
    let told = format!("(pid {}) listens there on every address of this machine", std::process::id());
    cluster.until("it is explained", || {
        let why = cluster.run(&["why", "pod/late"], "").out;
        why.contains(&format!("port {port}: ")) && why.contains(&told)
    });
    // Of a pod's containers it is told which has it; who is alone has no others.
    let twice = serde_json::Value::from("import socket; [socket.create_server(('', 9191)) for _ in range(2)]");
    // What it says names no port.
    let silent = serde_json::Value::from("import socket, time; time.sleep(1); socket.socket().bind(('', 9191))");
    let once =
        serde_json::Value::from("import socket, time; server = socket.create_server(('', 9191)); time.sleep(1000)");
    let container = |name: &str, script: &serde_json::Value| {
        format!("{{name: {name}, image: python3, command: [python3, -c, {script}]}}")
    };
    for (name, containers) in [
        ("alone", container("main", &twice)),
        ("both", [container("first", &once), container("main", &silent)].join(", ")),
    ] {
        cluster.apply(&format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{containers: [{containers}]}}}}"
        ));
    }
    for (name, told) in [
        ("alone", "the program itself may listen there twice"),
        ("both", " of container first of pod default/both listens there at 127."),
    ] {
        cluster.until("it is explained", || cluster.run(&["why", &format!("pod/{name}")], "").out.contains(told));
    }
    // One that does not say what it will bind learns it from an event.
    cluster.apply(&format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: silent}}, spec: {{containers: [{{name: main, image: python3, command: [python3, -c, {script}]}}]}}}}"
    ));
    let told = format!("A program could not bind port {port}/TCP: ");
    cluster.until("an event tells", || {
        let said = cluster.ok("describe pod silent");
        said.contains(&told) && said.contains(&format!("(pid {}) listens there", std::process::id()))
    });
}

#[test]
fn where_no_filter_can_be_had_pods_are_on_the_machines_network() {
    // A process can have one filter of this kind: those of a pod have the pod's, so that a cluster within a pod gets none.
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
    cluster.until("it is applied", || inner(&["apply", "-f", "-"], pod).code == 0);
    let reads = |object: &str, path: &str| inner(&["get", object, "-o", &format!("jsonpath={path}")], "").out;
    cluster.until("it runs", || reads("pod/inner", "{.status.phase}") == "Running");
    assert_eq!(reads("pod/inner", "{.status.podIP}"), "127.0.0.1");
    let condition = "{.items[0].status.conditions[?(@.type==\"PodNetwork\")].reason}";
    assert_eq!(reads("nodes", condition), "NoFilter");
    let said = cluster.log("outer", "main");
    assert_eq!(said.matches("pods are on the machine's network").count(), 1, "{said}");
    cluster.ok("delete pod outer");
    cluster.nothing_is_left();
}

/// Runs what follows it as a sandbox without ptrace's rights would: another process's descriptors are closed to it.
const SANDBOX: &str = r#"
import ctypes, os, struct, sys
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
rule = lambda code, yes, no, value: struct.pack("HBBI", code, yes, no, value)
program = rule(0x20, 0, 0, 0) + rule(0x15, 0, 1, 438) + rule(6, 0, 0, 0x50001) + rule(6, 0, 0, 0x7fff0000)
code = ctypes.create_string_buffer(program, len(program))
assert libc.prctl(22, 2, struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(code)), 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"#;

#[test]
fn in_a_sandbox_pods_have_the_ports_that_they_ask_for_on_the_machines_network() {
    let cluster = Cluster::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    let mut plane = cluster.program("python3");
    plane.args(["-c", SANDBOX, env!("CARGO_BIN_EXE_kloop"), "reconcile", "--watch"]);
    let script = serde_json::json!(format!(
        "import http.server; http.server.ThreadingHTTPServer((\"\", {port}), http.server.SimpleHTTPRequestHandler).serve_forever()"
    ));
    cluster.apply(&format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: web, labels: {{app: web}}}}, spec: {{terminationGracePeriodSeconds: 1, containers: [{{name: main, \
         image: python3, command: [python3, -c, {script}], readinessProbe: {{tcpSocket: {{port: {port}}}, periodSeconds: 1}}}}]}}}}\n---\n\
         {{apiVersion: v1, kind: Service, metadata: {{name: web}}, spec: {{selector: {{app: web}}, ports: [{{port: {port}}}]}}}}"
    ));
    let plane = cluster.background_program(plane);
    cluster.ready_pods("app=web", 1);
    assert_eq!(plane.said().matches("pods are on the machine's network").count(), 1, "{}", plane.said());
    let address = cluster.read("service/web", "{.spec.clusterIP}");
    let answers = || fetch(&format!("{address}:{port}")).is_some();
    cluster.until("the Service answers", answers);
    // Nobody has taken its port meanwhile.
    signal(cluster.pid("web"), "KILL");
    cluster.until_reads("pod/web", "{.status.containerStatuses[0].restartCount}", "1");
    cluster.ready_pods("app=web", 1);
    assert!(answers());
    cluster.ok("delete pod web");
    cluster.nothing_is_left();
}

#[test]
fn who_asks_for_ipv6_alone_leaves_the_port_to_its_twin() {
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
    cluster.until("it has ended", || {
        !["", "Pending", "Running"].contains(&&*cluster.read("pod/twins", "{.status.phase}"))
    });
    assert_eq!(cluster.ok("logs twins"), "all of them\n");
}
