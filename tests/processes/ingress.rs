//! Ingresses: HTTP and TLS requests reach ready endpoints by host and path.

use super::{server, service};
use crate::cluster::Cluster;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;

/// A server and a Service with a named port.
fn web(name: &str) -> String {
    server(name, "") + &service(name, "ports: [{name: http, port: 80, targetPort: 8080}]")
}

/// One path of a rule.
fn path(path: &str, kind: &str, service: &str, port: &str) -> String {
    format!("{{path: {path}, pathType: {kind}, backend: {{service: {{name: {service}, port: {{{port}}}}}}}}}")
}

fn ingress(name: &str, spec: &str) -> String {
    format!("apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{name: {name}}}\nspec: {spec}\n")
}

/// Returns the addresses of an Ingress: for HTTP, and for HTTPS when it has certificates.
fn places(cluster: &Cluster, name: &str, count: usize) -> Vec<String> {
    cluster.wait_for("the Ingress has its addresses", || {
        let status = "{.status.loadBalancer.ingress[0].ip} {.status.loadBalancer.ingress[0].ports[*].port}";
        let said = cluster.run(&["get", "ingress", name, "-o", &format!("jsonpath={status}")], "").out;
        let words: Vec<&str> = said.split_whitespace().collect();
        let places = words.iter().skip(1).map(|port| format!("{}:{port}", words[0]));
        (words.len() == count + 1).then(|| places.collect())
    })
}

/// Returns the code and the body of a GET; `None` without an answer.
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
    check_routing(&Cluster::new());
}

#[test]
fn ingress_works_for_an_ordinary_user() {
    // An ordinary user has already run this in the test above.
    if rustix::process::geteuid().is_root() {
        let cluster = Cluster::of_user(65_534);
        check_routing(&cluster);
        let lowest = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap();
        if lowest.trim().parse::<u16>().unwrap() > 80 {
            let place = places(&cluster, "shop", 1).remove(0);
            assert!(!place.ends_with(":80"), "{place}");
            let described = cluster.ok("describe ingress shop");
            let told = format!("answers at http://{place}/ (port 80: permission denied");
            assert!(described.contains(&told), "{described}");
            assert!(described.contains("(on this machine; 80 on the pod network)"), "{described}");
            let port = place.split_once(':').unwrap().1;
            assert!(cluster.ok("get ingress shop").contains(&format!(" {port} ")), "{port}");
        }
    }
}

fn check_routing(cluster: &Cluster) {
    let _plane = cluster.watch();
    let rules = format!(
        "{{defaultBackend: {{service: {{name: other, port: {{number: 80}}}}}}, rules: [{{host: shop.example, http: {{paths: [{}, {}]}}}}, \
         {{host: '*.shop.example', http: {{paths: [{}]}}}}]}}",
        path("/", "Prefix", "front", "number: 80"),
        path("/api", "Exact", "api", "name: http"),
        path("/wild", "ImplementationSpecific", "api", "number: 80")
    );
    cluster.apply(&["front", "api", "other"].map(web).concat());
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
        let wanted = (200, format!("{server}\n127.0.0.1\n{path} {host} {host} 127.0.0.1 http -\n"));
        cluster.until(&format!("{host}{path} is answered by {server}"), || {
            get(&place, host, path).as_ref() == Some(&wanted)
        });
    }
    // Pods use the usual port, wherever the proxy listens.
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
fn ingress_uses_ready_endpoints_and_closes_after_deletion() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&web("web"));
    let rule = |host: &str, service: &str| {
        format!("{{rules: [{{host: {host}, http: {{paths: [{}]}}}}]}}", path("/", "Prefix", service, "name: http"))
    };
    cluster.apply(&ingress("web", &rule("web.example", "web")));
    cluster.apply(&ingress("gone", &rule("gone.example", "gone")));
    let place = places(&cluster, "web", 1).remove(0);
    let code = |host: &str, path: &str| get(&place, host, path).map(|(code, _)| code);
    cluster.until("the server answers", || code("web.example", "/") == Some(200));
    let body =
        |host: &str| get(&place, host, "/").map(|(code, body)| (code, body.lines().last().unwrap_or("").to_owned()));
    let refusal = |text: &str| Some((503, text.to_owned()));
    assert_eq!(body("gone.example"), refusal("gone.example/: there is no Service \"gone\""));
    cluster.apply(&service("gone", "ports: [{name: other, port: 80}]"));
    let unknown = refusal("gone.example/: Service \"gone\" has no port \"http\"");
    cluster.until("the Service exists without the port", || body("gone.example") == unknown);
    cluster.apply(&service("gone", "ports: [{name: http, port: 80}]"));
    let empty = refusal("gone.example/: Service \"gone\" has no ready endpoint");
    cluster.until("the port exists without an endpoint", || body("gone.example") == empty);
    assert_eq!(code("nobody.example", "/"), Some(404));
    assert_eq!(code("web.example", "/sick"), Some(200));
    cluster.until("no endpoint is ready", || code("web.example", "/") == Some(503));
    cluster.ok("delete ingress web");
    cluster.until("the rule is gone", || code("web.example", "/") == Some(404));
    cluster.ok("delete ingress gone");
    cluster.until("the proxy has closed its port", || TcpStream::connect(&place).is_err());
}

#[test]
fn bodies_are_streamed_and_protocols_upgraded() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&web("web"));
    cluster.apply(&ingress("web", "{defaultBackend: {service: {name: web, port: {number: 80}}}}"));
    let place = places(&cluster, "web", 1).remove(0);
    cluster.until("the server answers", || get(&place, "any", "/").is_some_and(|(code, _)| code == 200));
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
fn connection_outlives_its_pods_removal_from_the_service() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&web("web"));
    cluster.apply(&ingress("web", "{defaultBackend: {service: {name: web, port: {number: 80}}}}"));
    let door = places(&cluster, "web", 1).remove(0);
    let code = || get(&door, "any", "/").map(|(code, _)| code);
    cluster.until("the server answers", || code() == Some(200));
    // Only root opens port 80 of a Service's address on the machine.
    let service = rustix::process::geteuid().is_root().then(|| cluster.read("service/web", "{.spec.clusterIP}:80"));
    let mut talks: Vec<BufReader<TcpStream>> = std::iter::once(&door)
        .chain(&service)
        .map(|place| {
            let mut stream = TcpStream::connect(place).unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nHost: any\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n").unwrap();
            let mut reader = BufReader::new(stream);
            let lines = reader.by_ref().lines().map(Result::unwrap);
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            assert!(head[0].contains(" 101 "), "{place}: {head:?}");
            reader
        })
        .collect();
    cluster.ok("label pod web app=other --overwrite");
    cluster.until("new requests are refused", || code() == Some(503));
    for talk in &mut talks {
        talk.get_mut().write_all(b"still here\n").unwrap();
        let mut line = String::new();
        talk.read_line(&mut line).unwrap();
        assert_eq!(line, "STILL HERE\n");
    }
}

#[test]
fn certificates_are_shown_by_name() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&web("web"));
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
    let file = |name: &str, text: String| {
        let path = cluster.home().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (cert, key) = (file("a.pem", made[0].cert.pem()), file("b.pem", made[1].signing_key.serialize_pem()));
    let said = cluster.kloop(&format!("create secret tls both --cert={cert} --key={key}"));
    assert_eq!(said.err.trim(), "error: tls: private key does not match public key");
    cluster.apply(&ingress(
        "web",
        "{tls: [{hosts: [one.example], secretName: cert-0}, {hosts: ['*.two.example'], secretName: cert-1}], \
         defaultBackend: {service: {name: web, port: {number: 80}}}}",
    ));
    let place = places(&cluster, "web", 2).remove(1);
    cluster.until_reads("pod/web", "{.status.containerStatuses[0].ready}", "true");
    for (name, trusted) in [("one.example", 0), ("eu.two.example", 1)] {
        // The pod is ready, but the proxy learns that a moment later.
        let answer = || secure(&place, name, made[trusted].cert.der()).filter(|(code, _)| *code != 503);
        let said = cluster.wait_for("the server answers over TLS", answer);
        assert_eq!(said, (200, format!("web\n127.0.0.1\n/ {name} {name} 127.0.0.1 https -\n")));
        assert_eq!(
            secure(&place, name, made[1 - trusted].cert.der()),
            None,
            "the other certificate is for another host"
        );
        let said = get_http2(&place, name, made[trusted].cert.der());
        assert_eq!(said, Some((200, format!("web\n127.0.0.1\n/ {name} {name} 127.0.0.1 https a=1; b=2\n"))), "HTTP/2");
    }
    assert_eq!(secure(&place, "three.example", made[0].cert.der()), None, "there is no certificate for it");
}

fn trusting(trusted: &CertificateDer<'static>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    config.with_root_certificates(roots).with_no_client_auth()
}

/// Sends a GET over TLS that trusts only this certificate.
fn secure(place: &str, name: &str, trusted: &CertificateDer<'static>) -> Option<(u16, String)> {
    let config = trusting(trusted);
    let name_to_ask = ServerName::try_from(name.to_owned()).unwrap();
    let connection = ClientConnection::new(Arc::new(config), name_to_ask).unwrap();
    ask(StreamOwned::new(connection, TcpStream::connect(place).ok()?), name, "/")
}

#[test]
fn shop_is_served() {
    check_shop(&Cluster::new());
}

#[test]
fn shop_is_served_for_an_ordinary_user() {
    // An ordinary user has already run this in the test above.
    if rustix::process::geteuid().is_root() {
        check_shop(&Cluster::of_user(65_534));
    }
}

fn check_shop(cluster: &Cluster) {
    let _plane = cluster.watch();
    let fixture = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/shop").display().to_string();
    cluster.ok(&format!("apply -f {fixture}"));
    let place = places(cluster, "shop", 1).remove(0);
    let page = || get(&place, "shop.example", "/").filter(|(code, _)| *code == 200).map(|(_, body)| body);
    let empty = "The corner shop\nseen at http://shop.example\n";
    cluster.until("the page is served", || page().as_deref() == Some(empty));
    let direct = "import urllib.request; print(urllib.request.urlopen('http://front/').read().decode(), end='')";
    let said = cluster.run(&["exec", "deployment/front", "--", "python3", "-c", direct], "");
    assert_eq!(said.out, "The corner shop\nseen at http://front\n", "{}", said.err);
    let order = ureq::post(&format!("http://{place}/api/orders")).header("Host", "shop.example").send("tea");
    assert_eq!(order.expect("an answer").status(), 201);
    let full = "The corner shop\ntea: shipped\nseen at http://shop.example\n";
    cluster.until("the worker has shipped the order", || page().as_deref() == Some(full));
    assert_eq!(get(&place, "shop.example", "/api/orders").unwrap().1, r#"[{"what": "tea", "state": "shipped"}]"#);
    assert!(
        get(&place, "shop.example", "/queue").unwrap().1.starts_with("The corner shop"),
        "the queue is not exposed"
    );
    cluster.ok(&format!("delete -f {fixture}"));
    cluster.nothing_is_left();
}

/// Sends an HTTP/2 request that trusts only this certificate, with two cookies; `None` when the proxy does not support HTTP/2.
fn get_http2(place: &str, name: &str, trusted: &CertificateDer<'static>) -> Option<(u16, String)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut config = trusting(trusted);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let stream = tokio::net::TcpStream::connect(place).await.ok()?;
        let server = ServerName::try_from(name.to_owned()).unwrap();
        let stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(server, stream).await.ok()?;
        stream.get_ref().1.alpn_protocol().filter(|protocol| *protocol == b"h2")?;
        let (mut sender, connection) = h2::client::handshake(stream).await.ok()?;
        tokio::spawn(connection);
        let mut said = Vec::new();
        // Two concurrent requests over one connection.
        let ask = |sender: &mut h2::client::SendRequest<hyper::body::Bytes>| {
            let request =
                hyper::Request::get(format!("https://{name}/")).header("cookie", "a=1").header("cookie", "b=2");
            Some(sender.send_request(request.body(()).ok()?, true).ok()?.0)
        };
        let both = [ask(&mut sender)?, ask(&mut sender)?];
        for answer in both {
            let (head, mut body) = answer.await.ok()?.into_parts();
            let mut text = Vec::new();
            while let Some(piece) = body.data().await {
                text.extend_from_slice(&piece.ok()?);
            }
            said.push((head.status.as_u16(), String::from_utf8_lossy(&text).into_owned()));
        }
        assert_eq!(said[0], said[1]);
        said.pop()
    })
}

/// A server like those of gRPC: HTTP/2 with prior knowledge, and a status in the trailers. It answers with the request's line.
async fn serve_http2(listener: tokio::net::TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((request, mut answer))) = connection.accept().await {
                let te = request.headers().get("te").map_or("-", |te| te.to_str().unwrap()).to_owned();
                let said = format!("{} {} {te}", request.method(), request.uri());
                tokio::spawn(async move {
                    let mut body = request.into_body();
                    while let Some(Ok(bytes)) = body.data().await {
                        let _ = body.flow_control().release_capacity(bytes.len());
                    }
                    let mut stream = answer.send_response(hyper::Response::new(()), false).unwrap();
                    stream.send_data(said.into(), false).unwrap();
                    let status = hyper::HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]);
                    stream.send_trailers(status).unwrap();
                });
            }
        });
    }
}

/// Returns the answer to a gRPC client at an address, and its status.
async fn call(place: &str, host: &str) -> Option<(String, String)> {
    let stream = tokio::net::TcpStream::connect(place).await.ok()?;
    let (mut sender, connection) = h2::client::handshake(stream).await.ok()?;
    let _connection = tokio::spawn(connection);
    let request = hyper::Request::post(format!("http://{host}/shop.Cart/Add")).header("te", "trailers");
    let (answer, mut body) = sender.send_request(request.body(()).ok()?, false).ok()?;
    body.send_data("one".into(), true).ok()?;
    let mut body = answer.await.ok()?.into_body();
    let mut said = Vec::new();
    while let Some(bytes) = body.data().await {
        said.extend_from_slice(&bytes.ok()?);
    }
    let status = body.trailers().await.ok()??.get("grpc-status")?.to_str().ok()?.to_owned();
    Some((String::from_utf8(said).ok()?, status))
}

#[test]
fn grpc_servers_get_http2() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let port = listener.local_addr().unwrap().port();
    runtime.spawn(serve_http2(listener));
    let ports = "ports: [{name: grpc, port: 50051, appProtocol: kubernetes.io/h2c}]";
    let labels = "labels: {kubernetes.io/service-name: cart}";
    cluster.apply(&format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: cart}}, spec: {{{ports}}}}}\n---\n{{apiVersion: discovery.k8s.io/v1, kind: \
         EndpointSlice, metadata: {{name: cart-1, {labels}}}, addressType: IPv4, ports: [{{name: grpc, port: {port}}}], endpoints: \
         [{{addresses: [127.0.0.1]}}]}}"
    ));
    let rule = path("/", "Prefix", "cart", "name: grpc");
    cluster.apply(&ingress("cart", &format!("{{rules: [{{host: cart.example, http: {{paths: [{rule}]}}}}]}}")));
    let place = places(&cluster, "cart", 1).remove(0);
    let wanted = ("POST http://cart.example/shop.Cart/Add trailers".to_owned(), "0".to_owned());
    cluster.until("the call has an answer and a status", || {
        runtime.block_on(call(&place, "cart.example")).as_ref() == Some(&wanted)
    });
    // HTTP/1 clients are answered as well.
    let (code, said) = runtime.block_on(async {
        let place = place.clone();
        tokio::task::spawn_blocking(move || get(&place, "cart.example", "/plain")).await.unwrap().unwrap()
    });
    assert_eq!((code, &*said), (200, "GET http://cart.example/plain -"));
}

#[test]
fn external_names_are_routed() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let host = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = host.local_addr().unwrap().port();
    let outside = |name: &str, to: &str| {
        format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: {name}}}, spec: {{type: ExternalName, externalName: {to}}}}}\n---\n"
        )
    };
    cluster
        .apply(&(outside("outside", "localhost") + &outside("inside", "web.default.svc.cluster.local") + &web("web")));
    cluster.apply(&ingress(
        "web",
        &format!(
            "{{rules: [{{http: {{paths: [{}, {}]}}}}]}}",
            path("/outside", "Prefix", "outside", &format!("number: {port}")),
            path("/inside", "Prefix", "inside", "number: 80")
        ),
    ));
    cluster.ready_pods("app=web", 1);
    let place = places(&cluster, "web", 1).remove(0);
    let wanted = (200, "web\n127.0.0.1\n/inside any any 127.0.0.1 http -\n".to_owned());
    cluster.until("a cluster-internal name is resolved", || get(&place, "any", "/inside").as_ref() == Some(&wanted));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = host.accept().unwrap().0;
            let read = client.read(&mut [0; 4096]).unwrap();
            assert!(read > 0);
            client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nthere").unwrap();
        });
        assert_eq!(get(&place, "any", "/outside"), Some((200, "there".into())));
    });
}

#[test]
fn why_reports_unserved_routes() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&ingress(
        "web",
        &format!(
            "{{tls: [{{secretName: none}}], rules: [{{host: web.example, http: {{paths: [{}, {}]}}}}]}}",
            path("/", "Prefix", "web", "number: 80"),
            path("/api", "Prefix", "api", "number: 80")
        ),
    ));
    cluster.apply(&service("web", "ports: [{port: 80}]"));
    let why = || cluster.run(&["why", "ingress/web"], "");
    let said = why();
    assert_eq!(said.code, 1, "{}", said.out);
    for told in [
        "web.example/api: there is no Service \"api\"",
        "no TLS: secret \"none\" not found",
        "web.example/: Service \"web\" has no ready endpoint",
    ] {
        assert!(said.out.contains(told), "{told}: {}", said.out);
    }
    cluster.apply(&(web("web") + &web("api")));
    cluster.ok("patch ingress web --type=merge -p {\"spec\":{\"tls\":null}}");
    cluster.ready_pods("app=web", 1);
    cluster.ready_pods("app=api", 1);
    cluster.until("the cluster has converged", || why().code == 0);
    let place = places(&cluster, "web", 1).remove(0);
    assert!(why().out.contains(&format!("at {place}")), "{}", why().out);
}

#[test]
fn ingress_without_a_class_gets_the_default_class() {
    let cluster = Cluster::new();
    let annotation = "ingressclass.kubernetes.io/is-default-class: \"true\"";
    cluster.apply(&format!(
        "{{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {{name: other}}, spec: {{controller: example.com/other}}}}\n---\n\
         {{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {{name: usual, annotations: {{{annotation}}}}}, spec: {{controller: example.com/usual}}}}"
    ));
    let ingress = |name: &str, class: &str| {
        let backend = "defaultBackend: {service: {name: web, port: {number: 80}}}";
        format!(
            "{{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {{name: {name}}}, spec: {{{class}{backend}}}}}\n---\n"
        )
    };
    cluster.apply(&[ingress("silent", ""), ingress("choosy", "ingressClassName: other, ")].concat());
    for (name, class) in [("silent", "usual"), ("choosy", "other")] {
        assert_eq!(cluster.read(&format!("ingress/{name}"), "{.spec.ingressClassName}"), class);
    }
}
