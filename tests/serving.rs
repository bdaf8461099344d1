//! `kloop serve` as API clients see it: over sockets, with plain HTTP.

mod access;
mod aggregation;
mod audit;
mod browser;
mod certificates;
mod client;
mod clients;
mod computed;
mod endpoints;
mod helm;
mod hostile;
mod kubectl;
mod lists;
mod managers;
mod openapi;
mod protobuf;
mod proxies;
mod remote;
mod statuses;
mod streams;
mod tokens;
mod ui;
mod writes;

use crate::cluster::{Cluster, Plane};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const JSON: &str = "application/json";

/// A server, and its address and token.
struct Server<'a> {
    plane: Plane<'a>,
    address: String,
    token: String,
    agent: ureq::Agent,
}

impl<'a> Server<'a> {
    fn start(cluster: &'a Cluster, flags: &[&str]) -> Server<'a> {
        let plane = cluster.background(&[&["serve", "--port=0"], flags].concat());
        Server::of(cluster, plane)
    }

    /// Starts a server on this port.
    fn start_at(cluster: &'a Cluster, port: &str) -> Server<'a> {
        let plane = cluster.background(&["serve", "--port", port]);
        Server::of(cluster, plane)
    }

    fn of(cluster: &Cluster, plane: Plane<'a>) -> Server<'a> {
        // The files are complete when the second line is printed.
        plane.until_says("KUBECONFIG=");
        let said = plane.said();
        let address = said.lines().find_map(|line| line.strip_prefix("Starting to serve on ")).expect("an address");
        let access = fs::read_to_string(cluster.home().join("kubeconfig")).expect("kubeconfig");
        let token = access.lines().find_map(|line| line.trim().strip_prefix("token: ")).unwrap_or_default();
        Server { plane, address: address.into(), token: token.into(), agent: agent(None) }
    }

    /// Sends a request; returns the code and the answer as JSON, or as text.
    fn ask(&self, method: &str, path: &str, content_type: &str, body: &str) -> (u16, Value) {
        self.ask_with(method, path, content_type, body, &[])
    }

    /// Requests a change of protocol. Returns the connection after the answer's head, and that head.
    fn upgrade(&self, path: &str, headers: &str) -> (TcpStream, String) {
        let mut stream = TcpStream::connect(&self.address).expect("connected");
        // Only a failing test waits so long.
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
        let token = &self.token;
        let access = format!("Host: localhost\r\nAuthorization: Bearer {token}\r\nConnection: Upgrade\r\n{headers}");
        write!(stream, "GET {path} HTTP/1.1\r\n{access}\r\n").expect("asked");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a head");
            head.push(byte[0]);
        }
        (stream, String::from_utf8(head).expect("text"))
    }

    /// Like [`Server::ask`], with more headers.
    fn ask_with(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &str,
        headers: &[(&str, &str)],
    ) -> (u16, Value) {
        let mut request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address))
            .header("Authorization", format!("Bearer {}", self.token))
            .header("Content-Type", content_type);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = self.agent.run(request.body(body.to_owned()).expect("a request"));
        let mut answer = answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        let text = answer.body_mut().read_to_string().expect("a body");
        (answer.status().as_u16(), serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    #[track_caller]
    fn get(&self, path: &str) -> Value {
        let (code, body) = self.ask("GET", path, JSON, "");
        assert_eq!(code, 200, "{path}: {body}");
        body
    }

    /// Returns a streamed body, line by line.
    fn lines(&self, path: &str) -> impl Iterator<Item = String> + use<> {
        let mut stream = TcpStream::connect(&self.address).expect("connected");
        // Only a failing test waits so long.
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
        let head = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n", self.token);
        stream.write_all(head.as_bytes()).expect("asked");
        let mut lines = BufReader::new(stream).lines().map(|line| line.expect("a line"));
        let status = lines.next().expect("a status");
        assert!(status.contains(" 200 "), "{path}: {status}");
        lines.by_ref().take_while(|line| !line.is_empty()).for_each(drop);
        lines
    }

    /// Returns the events of a watch.
    fn watch(&self, path: &str) -> impl Iterator<Item = Value> + use<> {
        self.lines(path).map(|line| serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}")))
    }
}

fn agent(authority: Option<&str>) -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .allow_non_standard_methods(true);
    let config = config.timeout_global(Some(Duration::from_secs(60)));
    let config = match authority {
        Some(pem) => {
            let root = Certificate::from_pem(pem.as_bytes()).expect("a certificate").to_owned();
            let roots = RootCerts::new_with_certs(&[root]);
            config.tls_config(TlsConfig::builder().root_certs(roots).build())
        }
        None => config,
    };
    ureq::Agent::new_with_config(config.build())
}

fn map(name: &str, value: &str) -> String {
    json!({"metadata": {"name": name}, "data": {"a": value}}).to_string()
}

fn told(event: &Value) -> String {
    format!(
        "{} {}",
        event["type"].as_str().unwrap_or_default(),
        event["object"]["metadata"]["name"].as_str().unwrap_or_default()
    )
}

#[test]
fn token_grants_access_and_the_server_ends_on_a_signal() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    let path = cluster.home().join("kubeconfig");
    assert_eq!(fs::metadata(&path).expect("kubeconfig").permissions().mode() & 0o777, 0o600);
    assert_eq!(server.get("/version")["minor"], "36");
    for token in ["", "wrong"] {
        let other = Server {
            token: token.into(),
            plane: cluster.background(&["version"]),
            address: server.address.clone(),
            agent: agent(None),
        };
        let (code, body) = other.ask("GET", MAPS, JSON, "");
        assert_eq!((code, &body["reason"]), (401, &json!("Unauthorized")));
    }
    // As clients with the kubeconfig do: over TLS, with its authority.
    let text = fs::read_to_string(&path).expect("kubeconfig");
    let data =
        text.lines().find_map(|line| line.trim().strip_prefix("certificate-authority-data: ")).expect("an authority");
    let pem = cluster.run_program(cluster.program("base64").arg("-d"), data).out;
    let answer = agent(Some(&pem)).get(format!("https://{}/healthz", server.address));
    let answer = answer.header("Authorization", format!("Bearer {}", server.token)).call().expect("an answer");
    assert_eq!(answer.status().as_u16(), 200);
    assert_eq!(server.plane.end("TERM"), 0);
}

#[test]
fn unauthenticated_connection_is_closed() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    // Idle, incomplete, and repeated requests without the token.
    let mut streams =
        ["", "GET / HTTP/1.1\r\nHost: localhost\r\n", "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"].map(|words| {
            let mut stream = TcpStream::connect(&server.address).expect("connected");
            stream.write_all(words.as_bytes()).expect("sent");
            stream
        });
    let mut known = TcpStream::connect(&server.address).expect("connected");
    let request = format!("GET {MAPS} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n", server.token);
    known.write_all(request.as_bytes()).expect("sent");
    let mut begin = [0; 15];
    known.read_exact(&mut begin).expect("an answer");
    for stream in &mut streams {
        let mut all = Vec::new();
        drop(stream.read_to_end(&mut all));
    }
    // The other connections were closed before this one, which is idle too.
    known.write_all(request.as_bytes()).expect("sent");
    let mut rest = String::new();
    let mut answers = BufReader::new(known);
    while !rest.contains("HTTP/1.1 200") {
        assert_ne!(answers.read_line(&mut rest).expect("more"), 0, "a second answer: {rest}");
    }
}

#[test]
fn server_without_a_token_answers_local_names_only() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &["--no-token"]);
    let code = |host: &str, more: &str| {
        let mut stream = TcpStream::connect(&server.address).expect("connected");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
        write!(stream, "GET /api HTTP/1.0\r\nHost: {host}\r\n{more}\r\n").expect("asked");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        text.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(code("localhost:1", ""), "200");
    assert_eq!(code("evil.example", ""), "403");
    assert_eq!(code("localhost:1", "Origin: http://evil.example\r\n"), "403");
    let refused = cluster.kloop("serve --no-token --address=0.0.0.0");
    assert_eq!(refused.code, 1, "{}", refused.err);
}

#[test]
fn objects_are_made_changed_and_deleted() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    let one = format!("{MAPS}/one");
    let (code, made) = server.ask("POST", MAPS, JSON, &map("one", "1"));
    assert_eq!((code, &made["kind"], &made["data"]["a"]), (201, &json!("ConfigMap"), &json!("1")));
    assert_eq!(cluster.read("cm/one", "{.data.a}"), "1", "the command line reads it");
    let patches = [
        ("application/merge-patch+json", r#"{"data":{"b":"2"}}"#, json!({"a": "1", "b": "2"})),
        ("application/json-patch+json", r#"[{"op":"remove","path":"/data/a"}]"#, json!({"b": "2"})),
        ("application/strategic-merge-patch+json", r#"{"data":{"c":"3"}}"#, json!({"b": "2", "c": "3"})),
    ];
    for (language, patch, data) in patches {
        let (code, patched) = server.ask("PATCH", &one, language, patch);
        assert_eq!((code, &patched["data"]), (200, &data), "{language}");
    }
    // A client that read the object before the patches gets a conflict.
    let (code, refused) = server.ask("PUT", &one, JSON, &made.to_string());
    assert_eq!((code, &refused["reason"]), (409, &json!("Conflict")), "{refused}");
    let (code, replaced) = server.ask("PUT", &one, "application/yaml", "metadata: {name: one}\ndata: {a: 'yes'}\n");
    assert_eq!((code, &replaced["data"]), (200, &json!({"a": "yes"})));
    let (code, gone) = server.ask(
        "DELETE",
        &one,
        JSON,
        r#"{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}"#,
    );
    assert_eq!((code, &gone["status"], &gone["details"]["uid"]), (200, &json!("Success"), &made["metadata"]["uid"]));
    assert_eq!(server.ask("GET", &one, JSON, "").0, 404);

    let (code, scaled) = {
        cluster.ok("create deployment web --image=sleep --replicas=0");
        let path = "/apis/apps/v1/namespaces/default/deployments/web/scale";
        server.ask("PATCH", path, "application/merge-patch+json", r#"{"spec":{"replicas":2}}"#)
    };
    assert_eq!((code, &scaled["kind"], &scaled["spec"]["replicas"]), (200, &json!("Scale"), &json!(2)));
    assert_eq!(cluster.read("deploy/web", "{.spec.replicas}"), "2");
}

#[test]
fn errors_read_like_kubernetes() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    let deep = format!("{{\"data\":{}{}}}", "[".repeat(200), "]".repeat(200));
    let strict = format!("{MAPS}?fieldValidation=Strict");
    let table = [
        ("GET", "/api/v1/namespaces/default/configmap", JSON, "", 404, "NotFound"),
        ("GET", "/nothing", JSON, "", 404, "NotFound"),
        ("PUT", MAPS, JSON, "{}", 405, "MethodNotAllowed"),
        ("POST", MAPS, JSON, "{\"metadata\":", 400, "BadRequest"),
        ("POST", MAPS, JSON, "[]", 400, "BadRequest"),
        ("POST", MAPS, JSON, &deep, 400, "BadRequest"),
        (
            "POST",
            &strict,
            JSON,
            r#"{"metadata":{"name":"twice"},"data":{"x":"1"},"data":{"y":"2"}}"#,
            400,
            "BadRequest",
        ),
        (
            "POST",
            "/api/v1/namespaces/default/pods/p/eviction",
            JSON,
            r#"{"metadata":{"name":"other"}}"#,
            400,
            "BadRequest",
        ),
        ("POST", MAPS, JSON, "{\"metadata\":{\"name\":\"Bad_\"}}", 422, "Invalid"),
        ("POST", MAPS, JSON, r#"{"metadata":{"name":"a","resourceVersion":"5"}}"#, 400, "BadRequest"),
        ("POST", MAPS, JSON, r#"{"metadata":{"name":"Bad_","resourceVersion":"5"}}"#, 422, "Invalid"),
        ("POST", MAPS, JSON, "{\"metadata\":7}", 400, "BadRequest"),
        ("POST", MAPS, JSON, "{\"kind\":\"Secret\",\"apiVersion\":\"v1\"}", 400, "BadRequest"),
        ("POST", MAPS, "application/vnd.kubernetes.protobuf", "k8s", 400, "BadRequest"),
        ("PATCH", "/api/v1/namespaces/default", JSON, "{}", 415, "UnsupportedMediaType"),
        (
            "PATCH",
            "/api/v1/namespaces/default",
            "application/json-patch+json",
            r#"[{"op":"replace","path":"","value":[]}]"#,
            422,
            "Invalid",
        ),
        ("GET", "/api/v1/configmaps?resourceVersion=99999999", JSON, "", 504, "Timeout"),
        ("GET", "/api/v1/pods?fieldSelector=spec.nope=1", JSON, "", 400, "BadRequest"),
        ("DELETE", "/api/v1/namespaces", JSON, "", 405, "MethodNotAllowed"),
    ];
    for (method, path, content_type, body, code, reason) in table {
        let (found, status) = server.ask(method, path, content_type, body);
        let short: String = body.chars().take(60).collect();
        assert_eq!(found, code, "{method} {path} {short}: {status}");
        assert!(reason.is_empty() || status["reason"] == reason, "{method} {path} {short}: {status}");
    }
    let huge = format!("{{\"data\":{{\"a\":\"{}\"}}}}", "x".repeat(4 << 20));
    let head = format!(
        "POST {MAPS} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nContent-Length: {}\r\n\r\n",
        server.token,
        huge.len()
    );
    // The answer does not wait for a large body, and a client that sends all of it gets the answer, too.
    for body in ["", &huge] {
        let mut stream = TcpStream::connect(&server.address).expect("connected");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
        stream.write_all(head.as_bytes()).expect("asked");
        stream.write_all(body.as_bytes()).expect("sent");
        let mut status = String::new();
        BufReader::new(stream).read_line(&mut status).expect("an answer");
        assert!(status.contains(" 413 "), "{status}");
    }
    assert_eq!(server.get(MAPS)["items"], json!([]), "nothing of all this was kept");
}

#[test]
fn watch_sends_changes_and_resumes_from_a_revision() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    cluster.ok("create configmap before");
    let start = server.get(MAPS)["metadata"]["resourceVersion"].as_str().expect("a revision").to_owned();
    let mut first = server.watch(&format!("{MAPS}?watch=1&resourceVersion={start}"));
    cluster.ok("create configmap here");
    server.ask("POST", MAPS, JSON, &map("there", "1"));
    cluster.ok("label configmap here color=red");
    let events: Vec<Value> = first.by_ref().take(3).collect();
    assert_eq!(events.iter().map(told).collect::<Vec<_>>(), ["ADDED here", "ADDED there", "MODIFIED here"]);
    let between = events[1]["object"]["metadata"]["resourceVersion"].as_str().expect("a revision");
    let mut second = server.watch(&format!("{MAPS}?watch=1&resourceVersion={between}&labelSelector=color=red"));
    assert_eq!(told(&second.next().expect("an event")), "ADDED here", "it now matches the selector");
    cluster.ok("label configmap here color=blue --overwrite");
    let left = second.next().expect("an event");
    assert_eq!((told(&left).as_str(), &left["object"]["metadata"]["labels"]["color"]), ("DELETED here", &json!("red")));
    cluster.ok("delete configmap there");
    assert_eq!(
        first.by_ref().take(2).map(|event| told(&event)).collect::<Vec<_>>(),
        ["MODIFIED here", "DELETED there"]
    );
    let mut endless = server.watch(&format!("{MAPS}?watch=1&timeoutSeconds={}", i64::MAX));
    assert_eq!(endless.next().map(|event| told(&event)).as_deref(), Some("ADDED before"));
    // Without a revision the watch begins with existing objects, and ends at its timeout.
    let whole = server.watch(&format!("{MAPS}?watch=1&timeoutSeconds=1&allowWatchBookmarks=true"));
    assert_eq!(whole.map(|event| told(&event)).collect::<Vec<_>>(), ["ADDED before", "ADDED here", "BOOKMARK "]);
}

#[test]
fn tables_and_custom_kinds_are_served() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    cluster.ok("create configmap one --from-literal=a=1");
    let request = ureq::http::Request::get(format!("http://{}{MAPS}", server.address))
        .header("Authorization", format!("Bearer {}", server.token))
        .header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json");
    let mut answer = server.agent.run(request.body(()).expect("a request")).expect("an answer");
    let table: Value = serde_json::from_str(&answer.body_mut().read_to_string().expect("a body")).expect("JSON");
    assert_eq!(
        (&table["kind"], &table["rows"][0]["cells"][0], &table["rows"][0]["cells"][1]),
        (&json!("Table"), &json!("one"), &json!(1))
    );

    let boats = "/apis/sea.dev/v1/namespaces/default/boats";
    assert_eq!(server.ask("GET", boats, JSON, "").0, 404);
    cluster.apply(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: boats.sea.dev}\nspec:\n  group: sea.dev\n  \
         scope: Namespaced\n  names: {plural: boats, kind: Boat, singular: boat, listKind: BoatList}\n  versions:\n  - name: v1\n    served: true\n    \
         storage: true\n    subresources: {status: {}}\n    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}\n",
    );
    let body = r#"{"apiVersion":"sea.dev/v1","kind":"Boat","metadata":{"generateName":"b-"},"spec":{"size":3}}"#;
    let (code, boat) = server.ask("POST", boats, JSON, body);
    assert_eq!((code, &boat["kind"], &boat["apiVersion"]), (201, &json!("Boat"), &json!("sea.dev/v1")), "{boat}");
    let list = server.get(boats);
    assert_eq!((&list["kind"], &list["items"][0]["spec"]["size"]), (&json!("BoatList"), &json!(3)));
    let names: Vec<&str> = ["boats", "boats/status"].to_vec();
    let resources = server.get("/apis/sea.dev/v1");
    let served: Vec<&str> =
        resources["resources"].as_array().expect("a list").iter().filter_map(|one| one["name"].as_str()).collect();
    assert_eq!(served, names);
    cluster.ok("delete boats --all");
    cluster.ok("delete crd boats.sea.dev --wait=false");
    let plane = cluster.watch();
    cluster.until("the kind is not served any more", || server.ask("GET", boats, JSON, "").0 == 404);
    assert_eq!(plane.end("TERM"), 0);
}

#[test]
fn control_plane_can_serve_as_well() {
    let cluster = Cluster::new();
    let plane = cluster.watch_with(&["--serve=0"]);
    let server = Server::of(&cluster, plane);
    let pod = json!({"metadata": {"name": "one"}, "spec": {"containers": [{"name": "c", "image": "sleep", "args": ["1000"]}]}});
    assert_eq!(server.ask("POST", "/api/v1/namespaces/default/pods", JSON, &pod.to_string()).0, 201);
    cluster.until_reads("pod/one", "{.status.phase}", "Running");
    assert_eq!(server.plane.end("TERM"), 0);
}

#[test]
fn removed_state_file_is_not_served() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    let mut watch = server.watch(&format!("{MAPS}?watch=1&resourceVersion=1"));
    server.get(MAPS);
    let state = cluster.home().join("state.db");
    fs::rename(&state, cluster.home().join("away.db")).expect("taken away");
    let (code, status) = server.ask("POST", MAPS, JSON, &map("lost", "1"));
    assert_eq!(code, 500, "{status}");
    assert!(status["message"].as_str().is_some_and(|text| text.contains("removed or replaced")), "{status}");
    assert_eq!(watch.next().map(|event| event["type"].clone()), Some(json!("ERROR")));
    assert_eq!(watch.next(), None);
}

#[test]
fn logs_are_served_and_followed() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let server = Server::start(&cluster, &[]);
    let script = "echo one; while ! test -e /proc/1/cwd/never; do sleep 0.05; echo more; done";
    let pod = json!({"metadata": {"name": "talker"}, "spec": {"terminationGracePeriodSeconds": 1,
        "containers": [{"name": "c", "image": "sh", "command": ["sh", "-c", script]}]}});
    let (code, made) = server.ask("POST", "/api/v1/namespaces/default/pods", JSON, &pod.to_string());
    assert_eq!(code, 201, "{made}");
    let log = "/api/v1/namespaces/default/pods/talker/log";
    cluster.until("the pod has printed", || {
        server.ask("GET", log, JSON, "").1.as_str().is_some_and(|text| text.starts_with("one\n"))
    });
    let lines = server.lines(&format!("{log}?follow=true&container=c"));
    assert_eq!(lines.take(3).collect::<Vec<_>>(), ["one", "more", "more"]);
    assert_eq!(server.ask("GET", &format!("{log}?container=x"), JSON, "").0, 400);
    assert_eq!(server.ask("GET", &log.replace("talker", "none"), JSON, "").0, 404);
}
