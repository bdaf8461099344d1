//! kloop's own client of API servers, against `kloop serve`.

use super::{MAPS, Server, map};
use crate::cluster::Cluster;
use kloop::client::{ApiClient, ClientError, ClientRequest, PatchFormat, ReflectedContent, ServerConfig};
use serde_json::{Map, Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

/// An entry of a kubeconfig.
type Entry = Map<String, Value>;

/// Only a failing test waits so long.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// The entries of the server's kubeconfig, changed for a test.
fn entries(cluster: &Cluster) -> (Entry, Entry) {
    let text = fs::read_to_string(cluster.home().join("kubeconfig")).expect("kubeconfig");
    let config: Value = serde_yaml::from_str(&text).expect("YAML");
    let entry = |list: &str, key: &str| config[list][0][key].as_object().expect("an entry").clone();
    (entry("clusters", "cluster"), entry("users", "user"))
}

fn client_of((cluster, user): (Entry, Entry)) -> ApiClient {
    let config = ServerConfig::from_entries(&cluster, &user, Path::new("/")).expect("a configuration");
    ApiClient::new(config).expect("a client")
}

#[test]
fn client_reads_and_writes_objects() {
    let cluster = Cluster::new();
    let _server = Server::start(&cluster, &[]);
    let client = client_of(entries(&cluster));
    let body: Value = serde_json::from_str(&map("a", "1")).expect("JSON");
    let made = client.send(ClientRequest::post(MAPS, &body)).expect("made");
    assert_eq!(made.code, 201);
    let taken = client.send(ClientRequest::post(MAPS, &body)).expect_err("taken");
    assert_eq!((taken.code(), taken.to_string().as_str()), (409, "configmaps \"a\" already exists"));
    let path = format!("{MAPS}/a");
    let patch = json!({"data": {"a": "2"}});
    let patched = client.send(ClientRequest::patch(&path, PatchFormat::Merge, &patch)).expect("patched");
    assert_eq!(patched.json().expect("JSON")["data"]["a"], "2");
    // More than one page.
    let names: Vec<String> = (0..501).map(|number| format!("m{number:03}")).collect();
    for name in &names {
        let body = serde_json::from_str(&map(name, "1")).expect("JSON");
        client.send(ClientRequest::post(MAPS, &body)).expect("made");
    }
    let listed = client.list(MAPS).expect("listed");
    let found: Vec<&str> = listed.items.iter().filter_map(|item| item["metadata"]["name"].as_str()).collect();
    assert_eq!(found[0], "a");
    assert_eq!(found[1..], names);
    client.send(ClientRequest::delete(&path, &json!({}))).expect("deleted");
    let gone = client.send(ClientRequest::get(&path)).expect_err("gone");
    assert_eq!(gone.to_string(), "configmaps \"a\" not found");
}

/// Serves the same answer to each request, on a thread that ends with the test's process.
fn serve_always(answer: &'static str) -> ApiClient {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut requests = BufReader::new(stream.try_clone().expect("a socket")).lines();
            // Each request ends with an empty line.
            while requests.any(|line| line.is_ok_and(|line| line.is_empty())) {
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", answer.len());
                if stream.write_all(format!("{head}{answer}").as_bytes()).is_err() {
                    break;
                }
            }
        }
    });
    ApiClient::new(ServerConfig::new(&format!("http://{address}")).expect("a configuration")).expect("a client")
}

#[test]
fn list_without_an_end_is_refused() {
    let page = r#"{"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"continue": "x"}, "items": []}"#;
    let error = serve_always(page).list(MAPS).expect_err("no end");
    assert!(error.to_string().contains("pages without an object"), "{error}");
}

#[test]
fn client_watches_and_reflects() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    let client = client_of(entries(&cluster));
    let revision = client.list(MAPS).expect("listed").resource_version;
    let watch = client.watch(&format!("{MAPS}?resourceVersion={revision}")).expect("a watch");
    let mut reflectors = client.reflectors();
    reflectors.start("maps", &format!("{MAPS}?fieldSelector=metadata.name%3Da"));
    let replaced = reflectors.next(WAIT_TIMEOUT, 10);
    assert!(matches!(&replaced[0].content, ReflectedContent::Replaced(items) if items.is_empty()), "{replaced:?}");
    cluster.ok("create configmap a --from-literal=x=1");
    let line = watch.next(WAIT_TIMEOUT).expect("open").expect("an event");
    assert_eq!((line.event.as_str(), &line.object["data"]["x"]), ("ADDED", &json!("1")));
    let changes = reflectors.next(WAIT_TIMEOUT, 10);
    assert!(matches!(&changes[0].content, ReflectedContent::Line(line) if line.event == "ADDED"), "{changes:?}");
    // The server ends, and another one starts at the same port: the reflector continues.
    let port = server.address.rsplit_once(':').expect("a port").1.to_owned();
    assert_eq!(server.plane.end("TERM"), 0);
    cluster.ok("delete configmap a");
    let again = Server::start_at(&cluster, &port);
    let mut seen = Vec::new();
    while !seen.iter().any(|text: &String| text.contains("DELETED")) {
        let changes = reflectors.next(WAIT_TIMEOUT, 10);
        assert!(!changes.is_empty(), "{seen:?}");
        seen.extend(changes.iter().map(|change| format!("{:?}", change.content)));
    }
    drop(again);
}

#[test]
fn client_names_the_problem_of_its_server() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    let ask = |change: &dyn Fn(&mut Entry, &mut Entry)| {
        let (mut own, mut user) = entries(&cluster);
        change(&mut own, &mut user);
        client_of((own, user)).send(ClientRequest::get("/version")).expect_err("refused")
    };
    let wrong_token = ask(&|_, user| drop(user.insert("token".into(), "wrong".into())));
    assert_eq!((wrong_token.code(), wrong_token.to_string().as_str()), (401, "Unauthorized"));
    let system = ask(&|own, _| drop(own.remove("certificate-authority-data")));
    assert!(system.to_string().contains("x509: certificate signed by unknown authority"), "{system}");
    let other_name = ask(&|own, _| drop(own.insert("tls-server-name".into(), "other.example".into())));
    assert!(other_name.to_string().contains("not other.example"), "{other_name}");
    let plain = ask(&|own, _| drop(own.insert("server".into(), "https://127.0.0.1:1".into())));
    assert!(plain.to_string().starts_with("The connection to the server 127.0.0.1:1 was refused"), "{plain}");
    assert!(matches!(plain, ClientError::Unreachable { .. }) && plain.is_temporary());
    let missing = ask(&|own, _| drop(own.insert("server".into(), "https://a.invalid:1".into())));
    assert!(missing.to_string().contains("lookup a.invalid: no such host"), "{missing}");
    assert_eq!(server.plane.end("TERM"), 0);
    let away = ask(&|_, _| {});
    assert!(away.to_string().contains("was refused"), "{away}");
}

#[test]
fn client_runs_a_command_over_a_socket() {
    let cluster = Cluster::new();
    let _server = Server::start(&cluster, &[]);
    cluster.apply(
        "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: main, image: busybox, command: [sleep, '1000']}]}}",
    );
    let _plane = cluster.watch();
    cluster.ok("wait --for=condition=Ready pod/a --timeout=60s");
    let client = client_of(entries(&cluster));
    let path = "/api/v1/namespaces/default/pods/a/exec?command=cat&stdin=true&stdout=true&stderr=true";
    let socket = client.open_socket(path, &["v5.channel.k8s.io"]).expect("a socket");
    let sender = socket.sender();
    assert!(sender.send(0, b"hello\n"));
    let message = socket.receive(WAIT_TIMEOUT).expect("open").expect("a message");
    assert_eq!((message.channel, &message.bytes[..]), (1, &b"hello\n"[..]));
    // Closes standard input.
    assert!(sender.send(255, &[0]));
    let mut end = Value::Null;
    while let Ok(Some(message)) = socket.receive(WAIT_TIMEOUT) {
        if message.channel == 3 {
            end = serde_json::from_slice(&message.bytes).expect("JSON");
        }
    }
    assert_eq!(end["status"], "Success");
    let missing = client.open_socket(&path.replace("/a/", "/b/"), &["v5.channel.k8s.io"]).err().expect("no pod");
    assert_eq!(missing.to_string(), "pods \"b\" not found");
}
