//! Ingresses: HTTP comes in by hosts and paths, over TLS too, and goes to whoever is ready at that moment.

use crate::cluster::Cluster;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;

/// A server that says who it is and what it was told of the request; that talks back in capitals after `Upgrade: echo`, and to each
/// chunk of a POST as it comes; and that is not ready any more after `/sick`.
const SERVER: &str = r#"
import http.server, os
sick = []
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.headers["Upgrade"] == "echo":
            self.send_response(101)
            self.send_header("Connection", "Upgrade")
            self.send_header("Upgrade", "echo")
            self.end_headers()
            for line in self.rfile:
                self.wfile.write(line.upper())
            self.close_connection = True
            return
        if self.path == "/sick":
            sick.append(True)
        told = [self.headers[name] or "-" for name in ["Host", "X-Forwarded-Host", "X-Forwarded-For", "X-Forwarded-Proto"]]
        body = " ".join([os.environ["HOSTNAME"], self.path, *told]).encode()
        self.send_response(500 if sick and self.path == "/healthz" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while True:
            chunk = self.rfile.read(int(self.rfile.readline(), 16))
            self.rfile.readline()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk.upper()))
            if not chunk:
                return
    def log_message(self, *words):
        pass
http.server.ThreadingHTTPServer(("0.0.0.0", 8080), Handler).serve_forever()
"#;

/// A pod that runs the server, and a Service with a named port in front of it.
fn server(name: &str) -> String {
    let program = serde_json::Value::from(SERVER);
    format!(
        r#"
apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{app: {name}}}}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: python:3
    command: [python3, -c, {program}]
    readinessProbe: {{httpGet: {{path: /healthz, port: 8080}}, periodSeconds: 1, failureThreshold: 1}}
---
apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec: {{selector: {{app: {name}}}, ports: [{{name: http, port: 80, targetPort: 8080}}]}}
---
"#
    )
}

/// One path of a rule.
fn path(path: &str, kind: &str, service: &str, port: &str) -> String {
    format!("{{path: {path}, pathType: {kind}, backend: {{service: {{name: {service}, port: {{{port}}}}}}}}}")
}

fn ingress(name: &str, spec: &str) -> String {
    format!("apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{name: {name}}}\nspec: {spec}\n")
}

/// Where an Ingress says that it answers: over HTTP, and over HTTPS when it has certificates.
fn places(cluster: &Cluster, name: &str, count: usize) -> Vec<String> {
    cluster.wait_for("the Ingress tells where it answers", || {
        let status = "{.status.loadBalancer.ingress[0].ip} {.status.loadBalancer.ingress[0].ports[*].port}";
        let said = cluster.run(&["get", "ingress", name, "-o", &format!("jsonpath={status}")], "").out;
        let words: Vec<&str> = said.split_whitespace().collect();
        let places = words.iter().skip(1).map(|port| format!("{}:{port}", words[0]));
        (words.len() == count + 1).then(|| places.collect())
    })
}

/// The code and the body of an answer to a GET; none when nobody answers.
fn get(place: &str, host: &str, path: &str) -> Option<(u16, String)> {
    ask(TcpStream::connect(place).ok()?, host, path)
}

fn ask(mut stream: impl Read + Write, host: &str, path: &str) -> Option<(u16, String)> {
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n").as_bytes()).ok()?;
    let mut said = String::new();
    stream.read_to_string(&mut said).ok()?;
    let (head, body) = said.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

#[test]
fn hosts_and_paths_lead_to_services() {
    lead(&Cluster::new());
}

#[test]
fn for_an_ordinary_user_as_well() {
    // Who is one already has tried it by the test before.
    if rustix::process::geteuid().is_root() {
        let cluster = Cluster::of_user(65_534);
        lead(&cluster);
        let lowest = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap();
        if lowest.trim().parse::<u16>().unwrap() > 80 {
            let place = places(&cluster, "shop", 1).remove(0);
            assert!(!place.ends_with(":80"), "{place}");
            let described = cluster.ok("describe ingress shop");
            let told = format!("answers at http://{place}/ (port 80: Permission denied");
            assert!(described.contains(&told), "{described}");
            let port = place.split_once(':').unwrap().1;
            assert!(cluster.ok("get ingress shop").contains(&format!(" {port} ")), "{port}");
        }
    }
}

fn lead(cluster: &Cluster) {
    let _plane = cluster.watch();
    let rules = format!(
        "{{defaultBackend: {{service: {{name: other, port: {{number: 80}}}}}}, rules: [{{host: shop.example, http: {{paths: [{}, {}]}}}}, \
         {{host: '*.shop.example', http: {{paths: [{}]}}}}]}}",
        path("/", "Prefix", "front", "number: 80"),
        path("/api", "Exact", "api", "name: http"),
        path("/wild", "ImplementationSpecific", "api", "number: 80")
    );
    cluster.apply(&["front", "api", "other"].map(server).concat());
    cluster.apply(&ingress("shop", &rules));
    for name in ["front", "api", "other"] {
        cluster.ready_pods(&format!("app={name}"), 1);
    }
    let place = places(cluster, "shop", 1).remove(0);
    let table = [
        ("shop.example", "/", "front"),
        ("shop.example", "/api/below?and=more", "front"),
        ("SHOP.example:8080", "/api", "api"),
        ("eu.shop.example", "/wild/cat", "api"),
        ("eu.shop.example", "/api", "other"),
        ("127.0.0.1", "/", "other"),
    ];
    for (host, path, server) in table {
        let wanted = (200, format!("{server} {path} {host} {host} 127.0.0.1 http"));
        cluster.until(&format!("{host}{path} is answered by {server}"), || {
            get(&place, host, path).as_ref() == Some(&wanted)
        });
    }
    // Pods come in at the usual port, wherever the door is.
    let ip = place.split_once(':').unwrap().0;
    let client = format!(
        "import urllib.request\nasked = urllib.request.Request('http://{ip}/api', headers={{'Host': 'shop.example'}})\n\
         print(urllib.request.urlopen(asked).read().decode().split()[0])"
    );
    let command = serde_json::json!(["python3", "-c", client]);
    cluster.apply(&format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: client}}, spec: {{restartPolicy: Never, containers: \
         [{{name: main, image: 'python:3', command: {command}}}]}}}}"
    ));
    cluster.until_reads("pod/client", "{.status.phase}", "Succeeded");
    assert_eq!(cluster.log("client", "main"), "api\n");
}

#[test]
fn only_who_is_ready_is_asked_and_nobody_after_the_end() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&server("web"));
    let rule = |host: &str, service: &str| {
        format!("{{rules: [{{host: {host}, http: {{paths: [{}]}}}}]}}", path("/", "Prefix", service, "name: http"))
    };
    cluster.apply(&ingress("web", &rule("web.example", "web")));
    cluster.apply(&ingress("gone", &rule("gone.example", "gone")));
    let place = places(&cluster, "web", 1).remove(0);
    let code = |host: &str, path: &str| get(&place, host, path).map(|(code, _)| code);
    cluster.until("it answers", || code("web.example", "/") == Some(200));
    assert_eq!(code("gone.example", "/"), Some(503), "there is no such Service");
    assert_eq!(code("nobody.example", "/"), Some(404));
    assert_eq!(code("web.example", "/sick"), Some(200));
    cluster.until("nobody is ready", || code("web.example", "/") == Some(503));
    cluster.ok("delete ingress web");
    cluster.until("its rule is gone", || code("web.example", "/") == Some(404));
    cluster.ok("delete ingress gone");
    cluster.until("nobody listens", || TcpStream::connect(&place).is_err());
}

#[test]
fn bodies_stream_and_protocols_are_gone_over_to() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&server("web"));
    cluster.apply(&ingress("web", "{defaultBackend: {service: {name: web, port: {number: 80}}}}"));
    let place = places(&cluster, "web", 1).remove(0);
    cluster.until("it answers", || get(&place, "any", "/").is_some_and(|(code, _)| code == 200));
    let start = |head: &str| {
        let mut stream = TcpStream::connect(&place).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        (stream, reader)
    };
    let head = |reader: &mut BufReader<TcpStream>| {
        let lines = reader.by_ref().lines().map(Result::unwrap).take_while(|line| !line.is_empty());
        lines.map(|line| line.to_lowercase()).collect::<Vec<_>>()
    };
    let line = |reader: &mut BufReader<TcpStream>| {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        line
    };

    let (mut stream, mut reader) = start("GET / HTTP/1.1\r\nHost: any\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
    let answered = head(&mut reader);
    assert!(answered[0].starts_with("http/1.1 101"), "{answered:?}");
    assert!(answered.contains(&"upgrade: echo".to_owned()), "{answered:?}");
    for said in ["hello\n", "again\n"] {
        stream.write_all(said.as_bytes()).unwrap();
        assert_eq!(line(&mut reader), said.to_uppercase());
    }

    let (mut stream, mut reader) = start("POST / HTTP/1.1\r\nHost: any\r\nTransfer-Encoding: chunked\r\n\r\n");
    stream.write_all(b"3\r\none\r\n").unwrap();
    assert!(head(&mut reader)[0].starts_with("http/1.1 200"));
    for (answer, next) in [("ONE", "3\r\ntwo\r\n"), ("TWO", "0\r\n\r\n"), ("", "")] {
        let chunk = [line(&mut reader), line(&mut reader)].concat();
        assert_eq!(
            chunk,
            format!("{:X}\r\n{answer}\r\n", answer.len()),
            "each chunk is answered before the next one is sent"
        );
        stream.write_all(next.as_bytes()).unwrap();
    }
}

#[test]
fn certificates_are_shown_by_name() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&server("web"));
    let names = ["one.example", "*.two.example"];
    let made = names.map(|name| rcgen::generate_simple_self_signed([name.to_owned()]).unwrap());
    for (number, made) in made.iter().enumerate() {
        let pem = [("tls.crt", made.cert.pem()), ("tls.key", made.signing_key.serialize_pem())];
        let data: serde_json::Map<String, serde_json::Value> =
            pem.map(|(key, text)| (key.to_owned(), text.into())).into_iter().collect();
        let secret = serde_json::json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": format!("cert-{number}")}, "stringData": data});
        cluster.apply(&secret.to_string());
    }
    cluster.apply(&ingress(
        "web",
        "{tls: [{hosts: [one.example], secretName: cert-0}, {hosts: ['*.two.example'], secretName: cert-1}], \
         defaultBackend: {service: {name: web, port: {number: 80}}}}",
    ));
    let place = places(&cluster, "web", 2).remove(1);
    cluster.until_reads("pod/web", "{.status.containerStatuses[0].ready}", "true");
    for (name, trusted) in [("one.example", 0), ("eu.two.example", 1)] {
        let said = cluster.wait_for("it answers over TLS", || secure(&place, name, made[trusted].cert.der()));
        assert_eq!(said, (200, format!("web / {name} {name} 127.0.0.1 https")));
        assert_eq!(secure(&place, name, made[1 - trusted].cert.der()), None, "the other certificate is another's");
    }
    assert_eq!(secure(&place, "three.example", made[0].cert.der()), None, "nobody has a certificate for it");
}

/// A GET over TLS of a client that trusts this certificate only.
fn secure(place: &str, name: &str, trusted: &CertificateDer<'static>) -> Option<(u16, String)> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let name_to_ask = ServerName::try_from(name.to_owned()).unwrap();
    let connection = ClientConnection::new(Arc::new(config), name_to_ask).unwrap();
    ask(StreamOwned::new(connection, TcpStream::connect(place).ok()?), name, "/")
}

#[test]
fn the_shop_answers() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let fixture = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/shop").display().to_string();
    cluster.ok(&format!("apply -f {fixture}"));
    let place = places(&cluster, "shop", 1).remove(0);
    let page = || get(&place, "shop.example", "/").filter(|(code, _)| *code == 200).map(|(_, body)| body);
    let empty = "The corner shop\nseen at http://shop.example\n";
    cluster.until("the page is there", || page().as_deref() == Some(empty));
    let order = ureq::post(&format!("http://{place}/api/orders")).header("Host", "shop.example").send("tea");
    assert_eq!(order.expect("an answer").status(), 201);
    let full = "The corner shop\ntea: shipped\nseen at http://shop.example\n";
    cluster.until("the worker has shipped the order", || page().as_deref() == Some(full));
    assert_eq!(get(&place, "shop.example", "/api/orders").unwrap().1, r#"[{"what": "tea", "state": "shipped"}]"#);
    assert!(get(&place, "shop.example", "/queue").unwrap().1.starts_with("The corner shop"), "the queue is inside");
    cluster.ok(&format!("delete -f {fixture}"));
    cluster.nothing_is_left();
}
