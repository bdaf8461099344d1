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
fn a_server_is_probed_over_tls_whoever_signed_its_certificate() {
    let cluster = Cluster::new();
    let home = cluster.home();
    let (key, certificate, server) = (home.join("key.pem"), home.join("cert.pem"), home.join("server.py"));
    let make = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=nobody", "-keyout"];
    let made = Command::new("openssl").args(make).arg(&key).arg("-out").arg(&certificate).output();
    let python = Command::new("python3").args(["-c", "import ssl"]).output();
    if !made.is_ok_and(|made| made.status.success()) || !python.is_ok_and(|python| python.status.success()) {
        return eprintln!("skipped: openssl and python3 are needed");
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
    args: ["{server}", "{certificate}", "{key}"]
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
    cluster.until("the other is refused", || {
        cluster.kloop("get events -o jsonpath={range.items[*]}{.message};{end}").out.contains(unhealthy)
    });
    assert_eq!(cluster.read("pod/closed", ready), "False");
}
