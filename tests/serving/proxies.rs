//! Proxies to servers that speak TLS or change the protocol of a connection.

use super::{JSON, Server};
use crate::cluster::Cluster;
use serde_json::json;
use std::io::{Read, Write};

/// A server at port 8000, and with TLS at 8443: it answers requests with `plain`, and repeats bytes after a change of protocol to `echo`.
const SERVER: &str = r#"
import socketserver, ssl, threading

class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.rfile.read(1)
        if b"upgrade: echo" not in head.lower():
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nplain")
            return
        self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
        while line := self.rfile.readline():
            self.wfile.write(line)

class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True

secure = Server(("", 8443), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/srv/pem")
secure.socket = context.wrap_socket(secure.socket, server_side=True)
threading.Thread(target=secure.serve_forever, daemon=True).start()
Server(("", 8000), Handler).serve_forever()
"#;

#[test]
fn proxy_reaches_servers_with_tls_and_changes_protocols() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let key = rcgen::KeyPair::generate().expect("a key");
    let parameters = rcgen::CertificateParams::new(vec!["of.nobody".to_owned()]).expect("a name");
    let certificate = parameters.self_signed(&key).expect("a certificate");
    let pem = format!("{}{}", key.serialize_pem(), certificate.pem());
    let files = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "files"}, "data": {"server.py": SERVER, "pem": pem},
    });
    let container = json!({
        "name": "main", "image": "python", "command": ["python3", "/srv/server.py"],
        "volumeMounts": [{"name": "srv", "mountPath": "/srv"}],
        "readinessProbe": {"tcpSocket": {"port": 8000}, "periodSeconds": 1},
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"containers": [container], "volumes": [{"name": "srv", "configMap": {"name": "files"}}]},
    });
    cluster.apply(&format!("{files}\n---\n{pod}\n"));
    let server = Server::start(&cluster, &[]);
    cluster.until_reads("pod/web", "{.status.containerStatuses[0].ready}", "true");
    let proxy = |target: &str| format!("/api/v1/namespaces/default/pods/{target}/proxy/");
    for target in ["web:8000", "https:web:8443"] {
        assert_eq!(server.ask("GET", &proxy(target), JSON, ""), (200, json!("plain")), "{target}");
        let (mut stream, head) = server.upgrade(&proxy(target), "Upgrade: echo\r\n");
        assert!(head.starts_with("HTTP/1.1 101 ") && head.to_lowercase().contains("upgrade: echo"), "{head}");
        stream.write_all(b"one line\n").expect("sent");
        let mut answer = [0; 9];
        stream.read_exact(&mut answer).expect("repeated");
        assert_eq!(&answer, b"one line\n", "{target}");
    }
    let (code, status) = server.ask("GET", &proxy("https:web:8000"), JSON, "");
    let text = json!("error trying to reach service: net/http: TLS handshake timeout");
    assert_eq!((code, &status["message"]), (503, &text), "no TLS there");
    let (code, _) = server.ask("GET", &proxy("http:web:8443"), JSON, "");
    assert_eq!(code, 503, "only TLS there");
}

/// A site whose page has a link, and says where it is; `/moved` redirects to the page, and `/large` is a page of 5 MB.
const SITE: &str = r#"
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(302 if self.path == "/moved" else 200)
        self.send_header("Location", "/page") if self.path == "/moved" else self.send_header("Content-Type", "text/html")
        self.end_headers()
        page = "<a href=\"/next\">" + self.headers["X-Forwarded-Uri"]
        self.wfile.write((page + " " * (5_000_000 if self.path == "/large" else 0)).encode())

    def do_PUT(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"PUT {self.path}".encode())

ThreadingHTTPServer(("", 8000), Handler).serve_forever()
"#;

#[test]
fn links_of_a_proxied_site_lead_through_the_proxy() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let container = json!({
        "name": "main", "image": "python", "command": ["python3", "-c", SITE],
        "ports": [{"containerPort": 8000}], "readinessProbe": {"tcpSocket": {"port": 8000}, "periodSeconds": 1},
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": [container]},
    });
    cluster.apply(&pod.to_string());
    let server = Server::start(&cluster, &[]);
    cluster.until_reads("pod/web", "{.status.containerStatuses[0].ready}", "true");
    let root = "/api/v1/namespaces/default/pods/web:8000/proxy";
    let read = |path: &str| {
        let (code, page) = server.ask("GET", &format!("{root}{path}"), JSON, "");
        assert_eq!(code, 200, "{path}: {page}");
        page.as_str().expect("a page").to_owned()
    };
    assert_eq!(read("/page"), format!("<a href=\"{root}/next\">{root}/page"));
    let (_, moved) = server.upgrade(&format!("{root}/moved"), "");
    assert!(moved.contains(&format!("location: {root}/page\r\n")), "{moved}");
    let (_, moved) = server.upgrade(&format!("{root}?a=b%20c"), "");
    assert!(moved.starts_with("HTTP/1.1 301 ") && moved.contains(&format!("location: {root}/?a=b%20c\r\n")), "{moved}");
    assert_eq!(server.ask("PUT", &format!("{root}?a=b"), JSON, "").1, "PUT /?a=b");
    let large = read("/large");
    assert_eq!((large.len() > 5_000_000, large.trim_end()), (true, &*format!("<a href=\"/next\">{root}/large")));
}
