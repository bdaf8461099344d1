//! Streams into pods and proxies, as clients other than kubectl use them.

use super::{JSON, Server};
use crate::cluster::{Cluster, is_alive};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;

const PODS: &str = "/api/v1/namespaces/default/pods";
const V5: &str = "v5.channel.k8s.io";
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;

/// A pod that echoes lines, one with a terminal, and a web server behind a Service.
const MANIFESTS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: main}
spec: {containers: [{name: main, image: busybox, command: [sleep, "1000"]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - name: main
    image: python
    command: [sh, -c, 'mkdir -p www && echo served > www/page && exec python3 -u -m http.server -d www 8080']
    ports: [{name: http, containerPort: 8080}]
    readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: http}]}
"#;

/// A WebSocket connection.
struct Socket(TcpStream);

impl Socket {
    /// Requests an upgrade; returns the connection and the headers of the answer.
    fn ask(server: &Server, path: &str, protocol: &str) -> (TcpStream, String) {
        let protocol =
            if protocol.is_empty() { String::new() } else { format!("Sec-WebSocket-Protocol: {protocol}\r\n") };
        let handshake =
            "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        server.upgrade(path, &format!("{handshake}{protocol}"))
    }

    #[track_caller]
    fn open(server: &Server, path: &str, protocol: &str) -> Socket {
        let (stream, head) = Socket::ask(server, path, protocol);
        assert!(head.starts_with("HTTP/1.1 101 "), "{path}: {head}");
        // The example of RFC 6455.
        assert!(head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
        Socket(stream)
    }

    /// Sends a binary message, with a zero mask.
    fn send(&mut self, payload: &[u8]) {
        let mut frame = vec![0x80 | BINARY];
        match payload.len() {
            length @ ..126 => frame.push(0x80 | length as u8),
            length => {
                frame.push(0x80 | 126);
                frame.extend(u16::try_from(length).expect("a short message").to_be_bytes());
            }
        }
        frame.extend([0; 4]);
        frame.extend(payload);
        self.0.write_all(&frame).expect("sent");
    }

    /// Returns the next message that is not a ping; `None` when the server closes.
    fn receive(&mut self) -> Option<Vec<u8>> {
        loop {
            let mut head = [0; 2];
            self.0.read_exact(&mut head).expect("a frame");
            let length = match head[1] {
                126 => {
                    let mut length = [0; 2];
                    self.0.read_exact(&mut length).expect("a length");
                    u16::from_be_bytes(length).into()
                }
                length => u64::from(length),
            };
            assert!(length < 65536, "a short frame");
            let mut payload = vec![0; length as usize];
            self.0.read_exact(&mut payload).expect("a payload");
            match head[0] & 15 {
                TEXT | BINARY => return Some(payload),
                CLOSE => return None,
                _ => {}
            }
        }
    }

    /// Returns everything until the end, by channel: standard output, standard error, and the status.
    fn finish(&mut self) -> (String, String, Value) {
        let mut channels = [const { Vec::new() }; 4];
        while let Some(message) = self.receive() {
            channels[usize::from(message[0])].extend_from_slice(&message[1..]);
        }
        let [_, out, err, status] = channels.map(|bytes| String::from_utf8(bytes).expect("text"));
        (out, err, serde_json::from_str(&status).expect("a status"))
    }
}

/// Starts a server for a cluster with running pods.
fn running<'a>(cluster: &'a Cluster) -> Server<'a> {
    cluster.apply(MANIFESTS);
    for pod in ["pod/main", "pod/web"] {
        cluster.until_reads(pod, "{.status.containerStatuses[0].ready}", "true");
    }
    Server::start(cluster, &[])
}

#[test]
fn commands_run_over_websocket() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let server = running(&cluster);
    let exec = |query: &str| format!("{PODS}/main/exec?{query}");
    let shell = "command=sh&command=-c&command";
    for protocol in [V5, "v4.channel.k8s.io"] {
        let path = exec(&format!("{shell}=echo%20out;%20echo%20err%20%3E%262;%20exit%203&stdout=true&stderr=true"));
        let (out, err, status) = Socket::open(&server, &path, protocol).finish();
        assert_eq!((out.as_str(), err.as_str()), ("out\n", "err\n"));
        assert_eq!(status["reason"], "NonZeroExitCode");
        assert_eq!(status["details"]["causes"], json!([{"reason": "ExitCode", "message": "3"}]));
    }
    // Half-closed: the command reads the end of its input, and still answers.
    let mut socket = Socket::open(&server, &exec("command=cat&stdin=true&stdout=true"), V5);
    socket.send(b"\0typed");
    socket.send(&[255, 0]);
    let (out, _, status) = socket.finish();
    assert_eq!((out.as_str(), &status), ("typed", &json!({"metadata": {}, "status": "Success"})));
    // In a terminal with the client's size.
    let mut socket = Socket::open(&server, &exec("command=sh&stdin=true&stdout=true&tty=true"), V5);
    socket.send(b"\x04{\"Width\":90,\"Height\":30}");
    socket.send(b"\0stty size; exit 4\n");
    let (out, _, status) = socket.finish();
    assert!(out.contains("30 90"), "{out}");
    assert_eq!(status["details"]["causes"][0]["message"], "4");
    let (_, _, status) = Socket::open(&server, &exec("command=no-such-program&stdout=true"), V5).finish();
    let text = status["message"].as_str().unwrap_or_default();
    assert!(text.starts_with("Internal error occurred: error executing command in container: "), "{status}");
}

#[test]
fn commands_run_over_base64_channels() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let server = running(&cluster);
    let path = format!(
        "{PODS}/main/exec?command=sh&command=-c&command=read%20a;%20echo%20$a;%20exit%203&stdin=true&stdout=true"
    );
    let run = |protocol: &str, input: &[u8]| {
        let mut socket = Socket::open(&server, &path, protocol);
        socket.send(input);
        std::iter::from_fn(|| socket.receive())
            .map(|message| String::from_utf8(message).expect("text"))
            .collect::<Vec<_>>()
    };
    let failure = "command terminated with non-zero exit code: error executing command [sh -c read a; echo $a; exit 3], exit code 3";
    // "abc\n", with the channel as a digit.
    let messages = run("base64.channel.k8s.io", b"0YWJjCg==");
    let error = format!("3{}", BASE64_STANDARD.encode(failure));
    assert!(messages.contains(&"1YWJjCg==".to_owned()) && messages.contains(&error), "{messages:?}");
    let messages = run("v4.base64.channel.k8s.io", b"0YWJjCg==");
    let end = messages.iter().find_map(|message| message.strip_prefix('3')).expect("a status");
    let status: Value = serde_json::from_slice(&BASE64_STANDARD.decode(end).expect("base64")).expect("JSON");
    assert_eq!((&status["reason"], &status["message"]), (&json!("NonZeroExitCode"), &json!(failure)));
    // The oldest form, which clients may leave unnamed: bytes, and the failure as text.
    for protocol in ["", "channel.k8s.io"] {
        let messages = run(protocol, b"\0abc\n");
        assert!(
            messages.contains(&"\x01abc\n".to_owned()) && messages.contains(&format!("\x03{failure}")),
            "{messages:?}"
        );
    }
}

#[test]
fn watch_is_served_over_websocket() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    let maps = "/api/v1/namespaces/default/configmaps";
    let mut socket = Socket::open(&server, &format!("{maps}?watch=true&fieldSelector=metadata.name%3Da"), "");
    for value in ["one", "two"] {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": value}});
        let (method, path) = if value == "one" { ("POST", maps.to_owned()) } else { ("PUT", format!("{maps}/a")) };
        assert!(server.ask(method, &path, JSON, &body.to_string()).0 < 300);
        let event: Value = serde_json::from_slice(&socket.receive().expect("an event")).expect("JSON");
        assert_eq!(event["object"]["data"]["a"], value, "{event}");
    }
    let path = format!("{maps}?watch=true&timeoutSeconds=1&resourceVersion=1000000");
    assert!(
        Socket::ask(&server, &path, "").1.starts_with("HTTP/1.1 504 "),
        "errors come before the change of protocols"
    );
    assert_eq!(
        Socket::open(&server, &format!("{maps}?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3Db"), "x")
            .receive(),
        None
    );
}

#[test]
fn requests_for_streams_are_refused_as_kubernetes_does() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let server = running(&cluster);
    let refusals = [
        ("main/exec?stdout=true", 400, "you must specify at least one command for the container"),
        ("main/exec?command=ls", 400, "you must specify at least 1 of stdin, stdout, stderr"),
        ("main/exec?command=ls&stdout=true&container=x", 400, "container x is not valid for pod main"),
        ("main/exec?command=ls&stdout=true", 400, "Upgrade request required"),
        ("main/portforward", 400, "Upgrade request required"),
        ("none/attach?stdout=true", 404, "pods \"none\" not found"),
    ];
    for (path, code, message) in refusals {
        let (answered, body) = server.ask("GET", &format!("{PODS}/{path}"), JSON, "");
        assert_eq!((answered, &body["message"]), (code, &json!(message)), "{path}");
    }
    let (_, head) = Socket::ask(&server, &format!("{PODS}/main/exec?command=ls&stdout=true"), "v9.channel.k8s.io");
    assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
    let served = server.get("/api/v1");
    let names: Vec<&str> =
        served["resources"].as_array().expect("a list").iter().filter_map(|one| one["name"].as_str()).collect();
    for name in ["pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "services/proxy", "nodes/proxy"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
}

#[test]
fn session_ends_when_its_client_goes() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let server = running(&cluster);
    // Without files: the server opens and keeps a few connections to its state.
    let is_file = |descriptor: &Path| fs::read_link(descriptor).is_ok_and(|target| target.is_absolute());
    let descriptors = || {
        let all = fs::read_dir(format!("/proc/{}/fd", server.plane.pid())).expect("descriptors");
        all.filter(|entry| !is_file(&entry.as_ref().expect("a descriptor").path())).count()
    };
    let path = format!("{PODS}/main/exec?command=sh&command=-c&command=echo%20$$;%20exec%20sleep%201000&stdout=true");
    let start = || {
        let mut socket = Socket::open(&server, &path, V5);
        let message = socket.receive().expect("a number");
        let pid = String::from_utf8_lossy(&message[1..]).trim().to_owned();
        (socket, pid)
    };
    drop(start());
    let processes = cluster.processes().len();
    cluster.until("the first session ended", || cluster.processes().len() <= processes);
    let before = descriptors();
    let sessions: Vec<_> = (0..4).map(|_| start()).collect();
    // A message above the maximum length ends a session, too.
    let (mut large, _) = start();
    let pids: Vec<u32> = cluster.processes();
    large.0.write_all(&[0x80 | BINARY, 0x80 | 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]).expect("sent");
    let mut rest = Vec::new();
    if let Err(error) = large.0.read_to_end(&mut rest) {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    }
    drop(sessions);
    cluster.until("their commands ended", || pids.iter().filter(|pid| is_alive(**pid)).count() + 5 <= pids.len());
    cluster.until("their descriptors are closed", || descriptors() <= before);
}

#[test]
fn client_that_never_reads_does_not_block_others() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let server = running(&cluster);
    let flood = format!("{PODS}/main/exec?command=cat&command=/dev/zero&stdout=true");
    let silent: Vec<Socket> = (0..20).map(|_| Socket::open(&server, &flood, V5)).collect();
    let path = format!("{PODS}/main/exec?command=echo&command=hello&stdout=true");
    for _ in 0..5 {
        assert_eq!(Socket::open(&server, &path, V5).finish().0, "hello\n");
        server.get(PODS);
    }
    drop(silent);
}

#[test]
fn logs_and_ports_are_served_over_websocket() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let server = running(&cluster);
    cluster.until_reads("pod/web", "{.status.containerStatuses[0].ready}", "true");
    let mut socket = Socket::open(&server, &format!("{PODS}/web/portforward?ports=8080&ports=9"), "v4.channel.k8s.io");
    let greeting: Vec<Vec<u8>> = (0..4).filter_map(|_| socket.receive()).collect();
    assert_eq!(greeting, [[0, 0x90, 0x1f], [1, 0x90, 0x1f], [2, 9, 0], [3, 9, 0]]);
    socket.send(b"\0GET /page HTTP/1.0\r\n\r\n");
    let mut channels = [const { Vec::new() }; 4];
    while let Some(message) = socket.receive() {
        channels[usize::from(message[0])].extend_from_slice(&message[1..]);
    }
    let [page, none, _, refused] = channels.map(|bytes| String::from_utf8(bytes).expect("text"));
    assert!(page.ends_with("\r\n\r\nserved\n") && none.is_empty(), "{page}{none}");
    assert!(refused.starts_with("error forwarding port 9 to pod default/web, uid "), "{refused}");
    assert!(refused.ends_with("connect: connection refused"), "{refused}");
    // The web server has logged the request; the first message is empty.
    let mut socket = Socket::open(&server, &format!("{PODS}/web/log?follow=true"), "");
    assert_eq!(socket.receive().as_deref(), Some(&b""[..]));
    let mut log = String::new();
    while !log.contains("GET /page") {
        log.push_str(&String::from_utf8_lossy(&socket.receive().expect("more")));
    }
}

#[test]
fn requests_are_proxied_to_pods_and_services() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let server = running(&cluster);
    cluster.until_reads("pod/web", "{.status.containerStatuses[0].ready}", "true");
    cluster.until("the Service has an endpoint", || {
        let ready = "{.items[*].endpoints[*].conditions.ready}";
        cluster.read("endpointslices -l kubernetes.io/service-name=web", ready) == "true"
    });
    let services = "/api/v1/namespaces/default/services";
    for path in [
        format!("{PODS}/web/proxy/page"),
        format!("{PODS}/http:web:8080/proxy/page?a=b"),
        format!("{services}/web/proxy/page"),
        format!("{services}/web:80/proxy/page"),
    ] {
        assert_eq!(server.ask("GET", &path, JSON, ""), (200, json!("served\n")), "{path}");
    }
    let (code, body) = server.ask("GET", &format!("{PODS}/web/proxy/none"), JSON, "");
    assert!(code == 404 && body.as_str().is_some_and(|page| page.contains("<html")), "{body}");
    let (code, body) = server.ask("GET", &format!("{PODS}/web:9/proxy/"), JSON, "");
    assert_eq!((code, &body["reason"]), (503, &json!("ServiceUnavailable")));
    let text = body["message"].as_str().unwrap_or_default();
    assert!(text.starts_with("error trying to reach service: dial tcp 127."), "{text}");
    let (code, body) = server.ask("GET", &format!("{services}/web:81/proxy/"), JSON, "");
    assert_eq!((code, &body["message"]), (503, &json!("no service port 81 found for service \"web\"")));
    let node = cluster.read("nodes", "{.items[0].metadata.name}");
    let on_node = |path: &str| server.ask("GET", &format!("/api/v1/nodes/{node}/proxy/{path}"), JSON, "");
    assert_eq!(on_node("healthz"), (200, json!("ok")));
    let at_port = server.ask("GET", &format!("/api/v1/nodes/{node}:10250/proxy/healthz"), JSON, "");
    assert_eq!(at_port, (200, json!("ok")), "the usual port of kubelets");
    let (code, summary) = on_node("stats/summary");
    assert_eq!((code, &summary["node"]["nodeName"]), (200, &json!(node)), "{summary}");
    let mut pods = summary["pods"].as_array().expect("pods").iter();
    let web = pods.find(|pod| pod["podRef"]["name"] == "web").expect("the pod");
    for measured in [&summary["node"], web, &web["containers"][0]] {
        assert!(measured["memory"]["workingSetBytes"].as_u64() > Some(0), "{summary}");
        assert!(measured["cpu"]["usageCoreNanoSeconds"].is_u64() && measured["startTime"].is_string(), "{summary}");
    }
    for (path, line) in [
        (
            "metrics/resource",
            "\ncontainer_memory_working_set_bytes{container=\"main\",namespace=\"default\",pod=\"web\"} ",
        ),
        ("metrics/resource", "\nnode_cpu_usage_seconds_total "),
        ("metrics/resource", "\ncontainer_start_time_seconds{container=\"main\",namespace=\"default\",pod=\"web\"} "),
        ("metrics", "\nkubelet_running_pods "),
    ] {
        let (code, text) = on_node(path);
        assert!(code == 200 && text.as_str().is_some_and(|text| text.contains(line)), "{path}: {text}");
    }
    assert!(on_node("runningpods/").1.to_string().contains("\"name\":\"web\""));
    let (code, status) = on_node("logs/");
    assert!(code == 404 && status["message"].as_str().is_some_and(|text| text.contains("it has healthz")), "{status}");
}
