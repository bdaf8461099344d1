//! Services that change while clients use them: session affinity, names of ports, aliases; and names of pods for clients that ask by UDP.

use super::{server, servers, service};
use crate::cluster::Cluster;
use serde_json::{Value, json};

/// Sends requests to the Service in a row, and prints the number of different pods that have answered.
const COUNT: &str = "
import sys, urllib.request
ask = lambda: urllib.request.urlopen('http://%s:%s/' % (sys.argv[1], sys.argv[2])).read().decode().split()[0]
print(len({ask() for _ in range(20)}))
";

#[test]
fn session_affinity_is_switched_while_clients_are_there() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let ports = "ports: [{name: http, port: 8000, targetPort: 8080}]";
    cluster.apply(&(servers("web", 3, "") + &service("web", ports) + &server("client", "")));
    cluster.ready_pods("app=web", 3);
    cluster.ready_pods("app=client", 1);
    let place = cluster.read("service/web", "{.spec.clusterIP}");
    let count = || {
        let words = ["exec", "client", "--", "python3", "-c", COUNT, &place, "8000"];
        cluster.run(&words, "").out.trim().parse().unwrap_or(0)
    };
    cluster.until("every pod answers", || count() == 3);
    for affinity in ["ClientIP", "None", "ClientIP"] {
        cluster.ok(&format!("patch service web -p {{\"spec\":{{\"sessionAffinity\":\"{affinity}\"}}}}"));
        let expected = if affinity == "None" { 3 } else { 1 };
        cluster.until(affinity, || count() == expected);
    }
}

/// A pod with an HTTP server at two named ports, which answers with the port's name.
fn named_ports(name: &str, http: u16, admin: u16) -> Value {
    let program = "
import http.server, sys, threading
def serve(name, port):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write((sys.argv[1] + '-' + name).encode())
        def log_message(self, *words):
            pass
    http.server.ThreadingHTTPServer(('', port), Handler).serve_forever()
threading.Thread(target=serve, args=('admin', int(sys.argv[3]))).start()
serve('http', int(sys.argv[2]))
";
    let ports = json!([{"name": "http", "containerPort": http}, {"name": "admin", "containerPort": admin}]);
    let command = json!(["python3", "-c", program, name, http.to_string(), admin.to_string()]);
    let probe = json!({"tcpSocket": {"port": "admin"}, "periodSeconds": 1});
    let container =
        json!({"name": "main", "image": "python:3", "command": command, "ports": ports, "readinessProbe": probe});
    let spec = json!({"terminationGracePeriodSeconds": 0, "containers": [container]});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}}, "spec": spec})
}

#[test]
fn ports_by_name_lead_to_each_pods_own_number() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let ports = "ports: [{name: main, port: 80, targetPort: http}, {name: other, port: 81, targetPort: admin}]";
    cluster.apply(&(service("web", ports) + &server("client", "")));
    cluster.apply(&named_ports("a", 8081, 9091).to_string());
    cluster.apply(&named_ports("b", 8082, 9092).to_string());
    cluster.ready_pods("app=web", 2);
    cluster.ready_pods("app=client", 1);
    let numbers = || {
        let path = "jsonpath={range .items[*]}{range .ports[*]}{.name}={.port} {end}{end}";
        let said = cluster.run(&["get", "endpointslices", "-l", "kubernetes.io/service-name=web", "-o", path], "").out;
        let mut numbers: Vec<String> = said.split_whitespace().map(str::to_owned).collect();
        numbers.sort();
        numbers.join(" ")
    };
    // The pods' numbers differ, so that each has a slice of its own.
    cluster.until("both slices", || numbers() == "main=8081 main=8082 other=9091 other=9092");
    let place = cluster.read("service/web", "{.spec.clusterIP}");
    let script = "
import sys, urllib.request
ask = lambda port: urllib.request.urlopen('http://%s:%d/' % (sys.argv[1], port)).read().decode()
print(*sorted({ask(port) for port in (80, 81) for _ in range(20)}))
";
    let said = || cluster.run(&["exec", "client", "--", "python3", "-c", script, &place], "").out;
    cluster.until("every port of every pod answers", || said() == "a-admin a-http b-admin b-http\n");
    cluster.ok("delete pod a");
    cluster.until("its slice is gone", || numbers() == "main=8082 other=9092");
    cluster.until("only the other pod answers", || said() == "b-admin b-http\n");
}

/// Prints the addresses or the alias of a name, asked for by UDP; and the addresses that the C library finds.
const LOOK_UP: &str = r#"
import socket, struct, sys
server = next(line.split()[1] for line in open("/etc/resolv.conf") if line.startswith("nameserver"))
def skip(said, at):
    while said[at] and said[at] < 192:
        at += said[at] + 1
    return at + (2 if said[at] else 1)
def text(said, at):
    words = []
    while said[at]:
        if said[at] >= 192:
            at = struct.unpack(">H", said[at:at + 2])[0] & 0x3fff
            continue
        words.append(said[at + 1:at + 1 + said[at]].decode())
        at += said[at] + 1
    return ".".join(words)
def udp(name, kind):
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.settimeout(60)
    client.sendto(struct.pack(">6H", 7, 0x100, 1, 0, 0, 0) + labels + struct.pack(">BHH", 0, kind, 1), (server, 53))
    said = client.recv(65535)
    at, found = skip(said, 12) + 4, []
    for _ in range(struct.unpack(">H", said[6:8])[0]):
        at = skip(said, at)
        of, _, _, size = struct.unpack(">HHIH", said[at:at + 10])
        at += 10
        if of == kind:
            found.append(text(said, at) if kind == 5 else socket.inet_ntoa(said[at:at + 4]))
        at += size
    return found
name, partial = sys.argv[1], sys.argv[2]
full = name + ".default.svc.cluster.local"
if partial == "alias":
    print(*udp(full, 5))
else:
    library = {found[4][0] for found in socket.getaddrinfo(partial, 80, socket.AF_INET)}
    print(*sorted({*udp(full, 1)} | library))
"#;

#[test]
fn names_of_pods_and_aliases_are_answered_by_udp() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let named = server("db-0", "")
        .replace("spec: {", "spec: {hostname: first, subdomain: db, ")
        .replace("app: db-0", "app: db");
    let alias = |target: &str| {
        format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: out}}, spec: {{type: ExternalName, externalName: {target}}}}}\n---\n"
        )
    };
    let headless = service("db", "clusterIP: None, ports: [{port: 8080}]");
    cluster.apply(&(headless + &named + &server("client", "") + &alias("one.example.com")));
    cluster.ready_pods("app=db", 1);
    cluster.ready_pods("app=client", 1);
    let look_up = |name: &str, partial: &str| {
        cluster.run(&["exec", "client", "--", "python3", "-c", LOOK_UP, name, partial], "").out
    };
    let ip = cluster.read("pod/db-0", "{.status.podIP}") + "\n";
    for partial in ["first.db", "first.db.default", "first.db.default.svc", "first.db.default.svc.cluster.local"] {
        cluster.until(partial, || look_up("first.db", partial) == ip);
    }
    assert_eq!(look_up("db", "db"), ip);
    cluster.until("the alias", || look_up("out", "alias") == "one.example.com\n");
    cluster.apply(&alias("two.example.com"));
    cluster.until("the changed alias", || look_up("out", "alias") == "two.example.com\n");
    cluster
        .ok("patch service out -p {\"spec\":{\"type\":\"ClusterIP\",\"externalName\":null,\"ports\":[{\"port\":80}]}}");
    let place = cluster.read("service/out", "{.spec.clusterIP}") + "\n";
    cluster.until("an address in place of the alias", || look_up("out", "out") == place);
}
