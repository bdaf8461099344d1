//! Endpoints and features around objects: health, metrics, audit ids, compression, warnings, HTTP/2.

use super::{JSON, MAPS, Server, map};
use crate::cluster::Cluster;
use flate2::read::GzDecoder;
use serde_json::{Value, json};
use std::fs;
use std::io::Read;
use std::sync::Arc;
use tokio::net::TcpStream;

/// Headers and body of an answer.
pub struct Reply {
    /// The status.
    pub code: u16,
    headers: ureq::http::HeaderMap,
    /// The raw body.
    pub body: Vec<u8>,
}

impl Reply {
    /// Returns a header, or an empty text.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Returns the body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Sends a request with only these headers.
pub fn ask(server: &Server<'_>, path: &str, headers: &[(&str, &str)]) -> Reply {
    let mut request = ureq::http::Request::builder().method("GET").uri(format!("http://{}{path}", server.address));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = server.agent.run(request.body(()).expect("a request"));
    let mut answer = answer.unwrap_or_else(|error| panic!("{path}: {error}"));
    let body = answer.body_mut().with_config().limit(64 << 20).read_to_vec().expect("a body");
    Reply { code: answer.status().as_u16(), headers: answer.headers().clone(), body }
}

/// Returns the header value with the token.
pub fn bearer(server: &Server<'_>) -> String {
    format!("Bearer {}", server.token)
}

#[test]
fn health_and_version_need_no_token() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    for path in ["/healthz", "/livez", "/readyz", "/version", "/readyz?verbose&exclude=store"] {
        assert_eq!(ask(&server, path, &[]).code, 200, "{path}");
        assert_eq!(ask(&server, path, &[("Authorization", "Bearer wrong")]).code, 401, "{path} with a wrong token");
    }
    for path in ["/readyz/store", "/metrics", "/api", "/version/x", MAPS] {
        assert_eq!(ask(&server, path, &[]).code, 401, "{path}");
    }
    let token = bearer(&server);
    let verbose = ask(&server, "/readyz?verbose", &[("Authorization", &token)]);
    assert!(verbose.text().starts_with("[+]ping ok\n[+]store ok\n"), "{}", verbose.text());
    assert!(verbose.text().ends_with("readyz check passed\n"), "{}", verbose.text());
    assert_eq!(ask(&server, "/readyz/store", &[("Authorization", &token)]).text(), "ok");
}

#[test]
fn every_answer_has_an_audit_id() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    let token = bearer(&server);
    for (path, headers) in [("/version", &[][..]), (MAPS, &[]), ("/nothing", &[("Authorization", &*token)])] {
        assert_eq!(ask(&server, path, headers).header("audit-id").len(), 36, "{path}");
    }
    let own = ask(&server, "/version", &[("Audit-Id", "my-own-id")]);
    assert_eq!(own.header("audit-id"), "my-own-id");
    let long = ask(&server, "/version", &[("Audit-Id", &"x".repeat(100))]);
    assert_eq!(long.header("audit-id").len(), 64);
}

#[test]
fn metrics_count_requests_and_the_control_plane() {
    let cluster = Cluster::new();
    let server = Server::of(&cluster, cluster.watch_with(&["--serve=0"]));
    server.get(MAPS);
    server.ask("GET", "/api/v1/namespaces/default/configmaps/none", JSON, "");
    let _watch = server.watch(&format!("{MAPS}?watch=1"));
    let token = bearer(&server);
    let metrics = ask(&server, "/metrics", &[("Authorization", &token)]);
    assert!(metrics.header("content-type").starts_with("text/plain; version=0.0.4"), "{:?}", metrics.headers);
    let counted = |verb: &str, scope: &str, code: u16| {
        let labels = format!("verb=\"{verb}\",group=\"\",version=\"v1\",resource=\"configmaps\",subresource=\"\"");
        format!("apiserver_request_total{{{labels},scope=\"{scope}\",code=\"{code}\"}} 1\n")
    };
    for line in [
        &*counted("LIST", "namespace", 200),
        &counted("GET", "resource", 404),
        "apiserver_longrunning_requests{verb=\"WATCH\"} 1\n",
        "# TYPE apiserver_request_duration_seconds histogram\n",
        "kloop_store_revision ",
    ] {
        assert!(metrics.text().contains(line), "{line}: {}", metrics.text());
    }
    for line in [
        "\nkloop_ticks_total ",
        "\nworkqueue_depth{name=\"deployment-controller\"} ",
        "\nworkqueue_depth{name=\"kubelet\"} ",
        "apiserver_resource_objects{group=\"\",resource=\"nodes\"} 1\n",
    ] {
        cluster.until(line, || ask(&server, "/metrics", &[("Authorization", &token)]).text().contains(line));
    }
}

#[test]
fn large_answers_are_compressed_for_clients_that_accept_it() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    assert_eq!(server.ask("POST", MAPS, JSON, &map("large", &"abc".repeat(100_000))).0, 201);
    let token = bearer(&server);
    let plain = ask(&server, MAPS, &[("Authorization", &token), ("Accept-Encoding", "identity")]);
    let packed = ask(&server, MAPS, &[("Authorization", &token), ("Accept-Encoding", "gzip")]);
    assert_eq!((plain.header("content-encoding"), packed.header("content-encoding")), ("", "gzip"));
    assert!(packed.body.len() < plain.body.len() / 10);
    let mut text = String::new();
    GzDecoder::new(&packed.body[..]).read_to_string(&mut text).expect("gzip");
    let items = |text: &str| serde_json::from_str::<Value>(text).expect("JSON")["items"].clone();
    assert_eq!(items(&text), items(&plain.text()));
    let small = ask(&server, "/api/v1/namespaces/default", &[("Authorization", &token), ("Accept-Encoding", "gzip")]);
    assert_eq!(small.header("content-encoding"), "");
}

#[test]
fn readers_are_warned_of_deprecated_versions() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    let token = bearer(&server);
    let warned = ask(&server, "/api/v1/namespaces/default/endpoints", &[("Authorization", &token)]);
    let warning = "299 - \"v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice\"";
    assert_eq!(warned.header("warning"), warning);
    assert_eq!(ask(&server, MAPS, &[("Authorization", &token)]).header("warning"), "");
}

#[test]
fn tls_clients_can_speak_http_2() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    assert_eq!(server.ask("POST", MAPS, JSON, &map("one", "1")).0, 201);
    let text = fs::read_to_string(cluster.home().join("kubeconfig")).expect("kubeconfig");
    let data =
        text.lines().find_map(|line| line.trim().strip_prefix("certificate-authority-data: ")).expect("an authority");
    let pem = cluster.run_program(cluster.program("base64").arg("-d"), data).out;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (first, second) = runtime.block_on(async {
        let mut client = connect(&server, &pem).await;
        // Load balancers ask so. A body would end the stream with an error.
        for (path, code) in [("/healthz", 200), ("/metrics", 200), ("/openapi/v3", 200), (MAPS, 405), ("/nowhere", 404)]
        {
            let (answered, mut body) = send(&mut client, &server, "HEAD", path).await;
            assert_eq!(answered, code, "{path}");
            assert!(body.data().await.is_none(), "{path}");
        }
        // Both requests are active at once on one connection.
        let watch = get(&mut client, &server, &format!("{MAPS}?watch=1&timeoutSeconds=60")).await;
        let (code, mut body) = watch;
        assert_eq!(code, 200);
        let event = body.data().await.expect("an event").expect("data");
        let (code, mut body) = get(&mut client, &server, MAPS).await;
        assert_eq!(code, 200);
        let mut list = Vec::new();
        while let Some(piece) = body.data().await {
            list.extend_from_slice(&piece.expect("data"));
        }
        (event, list)
    });
    let event: Value = serde_json::from_slice(&first).expect("an event");
    assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("one")));
    let list: Value = serde_json::from_slice(&second).expect("a list");
    assert_eq!(list["items"][0]["data"], json!({"a": "1"}));
}

type Http2 = h2::client::SendRequest<bytes::Bytes>;

async fn connect(server: &Server<'_>, pem: &str) -> Http2 {
    use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate")).expect("added");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = config.expect("versions").with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let stream = TcpStream::connect(&server.address).await.expect("connected");
    let name = ServerName::try_from("localhost").expect("a name");
    let stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("TLS");
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
    tokio::spawn(connection);
    client
}

async fn get(client: &mut Http2, server: &Server<'_>, path: &str) -> (u16, h2::RecvStream) {
    send(client, server, "GET", path).await
}

async fn send(client: &mut Http2, server: &Server<'_>, method: &str, path: &str) -> (u16, h2::RecvStream) {
    let request = ureq::http::Request::builder()
        .method(method)
        .uri(format!("https://localhost{path}"))
        .header("Authorization", bearer(server))
        .body(())
        .expect("a request");
    let (answer, _) = client.send_request(request, true).expect("sent");
    let answer = answer.await.expect("an answer");
    (answer.status().as_u16(), answer.into_body())
}
