//! Probes of real servers.

use crate::cluster::Cluster;
use std::process::Command;

const SERVER: &str = r#"
import http.server, ssl, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        known = self.headers["Host"] == "web.example" and self.headers["X-Word"] == "open"
        self.send_response(204 if known else 403)
        self.end_headers()
    def log_message(self, *words):
        pass
server = http.server.HTTPServer(("0.0.0.0", 8443), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"#;

#[test]
fn tls_probe_accepts_any_certificate() {
    let cluster = Cluster::new();
    let home = cluster.home();
    let (key, certificate, server) = (home.join("key.pem"), home.join("cert.pem"), home.join("server.py"));
    let make = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=nobody", "-keyout"];
    let made = Command::new("openssl").args(make).arg(&key).arg("-out").arg(&certificate).output();
    let python = Command::new("python3").args(["-c", "import ssl"]).output();
    if !made.is_ok_and(|made| made.status.success()) || !python.is_ok_and(|python| python.status.success()) {
        return skip!("openssl or python3 is not installed");
    }
    std::fs::write(&server, SERVER).expect("written");
    let _plane = cluster.watch();
    let pod = |name: &str, headers: &str| {
        let (server, certificate, key) = (server.display(), certificate.display(), key.display());
        format!(
            r#"
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: python
    args: [python3, "{server}", "{certificate}", "{key}"]
    readinessProbe:
      periodSeconds: 1
      timeoutSeconds: 20
      httpGet: {{port: 8443, scheme: HTTPS, httpHeaders: {headers}}}
"#
        )
    };
    cluster.apply(&pod("open", "[{name: Host, value: web.example}, {name: X-Word, value: open}]"));
    cluster.apply(&pod("closed", "[]"));
    let ready = r#"{.status.conditions[?(@.type=="Ready")].status}"#;
    cluster.until_reads("pod/open", ready, "True");
    let unhealthy = "Readiness probe failed: HTTP probe failed with statuscode: 403";
    cluster.until("the other probe fails", || {
        cluster.kloop("get events -o jsonpath={range.items[*]}{.message};{end}").out.contains(unhealthy)
    });
    assert_eq!(cluster.read("pod/closed", ready), "False");
}

/// A minimal HTTP/2 and gRPC server with the health service (grpc.health.v1); its status is in a file.
const HEALTH: &str = r#"
import socket, sys, threading

def frame(kind, flags, stream, body):
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body

def headers(*pairs):
    text = lambda word: bytes([len(word)]) + word.encode()
    return b"".join(b"\0" + text(name) + text(value) for name, value in pairs)

def exactly(connection, count):
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise EOFError
        data += part
    return data

def serve(connection):
    exactly(connection, 24)
    connection.sendall(frame(4, 0, 0, b""))
    while True:
        head = exactly(connection, 9)
        kind, flags, stream = head[3], head[4], int.from_bytes(head[5:9], "big")
        body = exactly(connection, int.from_bytes(head[:3], "big"))
        if kind == 4 and not flags & 1:
            connection.sendall(frame(4, 1, 0, b""))
        if kind == 0 and flags & 1:
            service = body[7:].decode()
            print("asked for", repr(service), flush=True)
            known, state = open(sys.argv[1]).read().split()
            connection.sendall(frame(1, 4, stream, headers((":status", "200"), ("content-type", "application/grpc"))))
            status = "0" if service == known else "5"
            if status == "0":
                connection.sendall(frame(0, 0, stream, b"\0\0\0\0\2\x08" + bytes([int(state)])))
            connection.sendall(frame(1, 5, stream, headers(("grpc-status", status), ("grpc-message", "unknown service"))))

def quietly(connection):
    try:
        serve(connection)
    except (EOFError, OSError):
        pass

server = socket.create_server(("", 9999))
while True:
    threading.Thread(target=quietly, args=[server.accept()[0]], daemon=True).start()
"#;

#[test]
fn grpc_probe_queries_the_health_of_a_service() {
    if !Command::new("python3").args(["-c", "import socket"]).output().is_ok_and(|python| python.status.success()) {
        return skip!("python3 is not installed");
    }
    let cluster = Cluster::new();
    let home = cluster.home();
    let (server, state) = (home.join("health.py"), home.join("state"));
    std::fs::write(&server, HEALTH).expect("written");
    // 1 is SERVING, 2 is NOT_SERVING.
    let say = |text: &str| {
        std::fs::write(home.join("fresh"), text).expect("written");
        std::fs::rename(home.join("fresh"), &state).expect("renamed");
    };
    say("shop 1");
    let _plane = cluster.watch();
    let pod = |name: &str, service: &str| {
        format!(
            r#"
apiVersion: v1
kind: Pod
metadata: {{name: {name}, annotations: {{kloop.dev/filesystem: host}}}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: python
    args: [python3, "{}", "{}"]
    readinessProbe: {{periodSeconds: 1, failureThreshold: 1, timeoutSeconds: 20, grpc: {{port: 9999, service: {service}}}}}
"#,
            server.display(),
            state.display()
        )
    };
    cluster.apply(&pod("shop", "shop"));
    cluster.apply(&pod("none", "nobody"));
    let ready = r#"{.status.conditions[?(@.type=="Ready")].status}"#;
    cluster.until_reads("pod/shop", ready, "True");
    cluster.until("the server has told so", || cluster.log("shop", "main").contains("asked for 'shop'"));
    let told = |pod: &str, text: &str| {
        cluster.until(text, || cluster.ok(&format!("events --for pod/{pod}")).contains(text));
    };
    told(
        "none",
        "Readiness probe failed: error: health rpc probe failed: rpc error: code = NotFound desc = unknown service",
    );
    cluster.until_reads("pod/none", ready, "False");
    say("shop 2");
    cluster.until_reads("pod/shop", ready, "False");
    told("shop", "Readiness probe failed: service unhealthy (responded with \"NOT_SERVING\")");
    say("shop 1");
    cluster.until_reads("pod/shop", ready, "True");
    cluster.ok("delete pod shop none");
    cluster.nothing_is_left();
}
