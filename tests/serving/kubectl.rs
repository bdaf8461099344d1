//! The real kubectl, where it is installed.

use super::Server;
use crate::cluster::{Cluster, Said};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const KUBECTL: &str = "/usr/bin/kubectl";

/// A pod with a web server, and a pod that reads lines.
const MANIFESTS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: main
    image: python
    command: [sh, -c, 'mkdir -p www && echo served > www/page && exec python3 -u -m http.server -d www 8080']
    readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: reader}
spec: {containers: [{name: main, image: busybox, command: [sh, -c, 'while read line; do echo "got $line"; done'], stdin: true}]}
"#;

/// Switches of kubectl that choose between WebSocket (`true`) and SPDY/3.1 for its streams.
const SWITCHES: [&str; 2] = ["KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "KUBECTL_PORT_FORWARD_WEBSOCKETS"];

fn program(cluster: &Cluster, is_web_socket: bool) -> Command {
    let mut command = cluster.program(KUBECTL);
    command.env("KUBECONFIG", cluster.home().join("kubeconfig")).stdin(Stdio::piped());
    command.envs(SWITCHES.map(|switch| (switch, is_web_socket.to_string())));
    command
}

fn kubectl(cluster: &Cluster, is_web_socket: bool, line: &str, stdin: &str) -> Said {
    cluster.run_program(program(cluster, is_web_socket).args(line.split(' ')), stdin)
}

#[test]
fn kubectl_streams_into_pods() {
    if !fs::exists(KUBECTL).unwrap_or_default() {
        return skip!("kubectl is not installed");
    }
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let _server = Server::start(&cluster, &[]);
    cluster.apply(MANIFESTS);
    cluster.until_reads("pod/web", "{.status.containerStatuses[0].ready}", "true");
    cluster.until_reads("pod/reader", "{.status.phase}", "Running");
    for is_web_socket in [true, false] {
        let kubectl = |line: &str, stdin: &str| kubectl(&cluster, is_web_socket, line, stdin);
        let word = if is_web_socket { "one" } else { "two" };
        check_streams(&cluster, &kubectl, word);
    }
}

fn check_streams(cluster: &Cluster, kubectl: &dyn Fn(&str, &str) -> Said, word: &str) {
    let said = kubectl("exec web -- false", "");
    assert_eq!((said.code, said.err.trim_end()), (1, "command terminated with exit code 1"));
    let said = kubectl("exec -i web -- cat", "through");
    assert_eq!((said.code, said.out.as_str()), (0, "through"), "{}", said.err);
    // Copies a file into the pod and back.
    let (from, back) = (cluster.home().join("from"), cluster.home().join("back"));
    let content = "0123456789abcdef\n".repeat(100_000);
    fs::write(&from, &content).expect("written");
    for line in [format!("cp {} web:/tmp/copied", from.display()), format!("cp web:/tmp/copied {}", back.display())] {
        let said = kubectl(&line, "");
        assert_eq!(said.code, 0, "{line}: {}", said.err);
    }
    assert!(fs::read_to_string(&back).expect("copied") == content);
    let said = kubectl("attach -i reader", &format!("{word}\n"));
    assert_eq!(said.code, 0, "{}", said.err);
    cluster.until("the container has read", || cluster.log("reader", "main").contains(&format!("got {word}")));
}

#[test]
fn kubectl_forwards_ports() {
    if !fs::exists(KUBECTL).unwrap_or_default() {
        return skip!("kubectl is not installed");
    }
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let server = Server::start(&cluster, &[]);
    cluster.apply(MANIFESTS);
    cluster.until_reads("pod/web", "{.status.containerStatuses[0].ready}", "true");
    for is_web_socket in [true, false] {
        check_forwarding(&cluster, is_web_socket);
    }
    drop(server);
}

/// Returns the oldest kubectl in the folder of the installed one, named as in packages with several versions, and its minor version.
fn oldest() -> Option<(u32, PathBuf)> {
    let folder = fs::canonicalize(KUBECTL).ok()?.parent()?.to_owned();
    let minor = |path: &Path| path.file_name()?.to_str()?.strip_prefix("kubectl.1.")?.parse().ok();
    let paths = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    paths.filter_map(|path| Some((minor(&path)?, path))).min()
}

/// Until 1.28 kubectl checks manifests itself by the document `/openapi/v2`, unless the server does, and reads discovery of every group.
#[test]
fn old_kubectl_validates_and_applies_lists() {
    let Some((_, old)) = oldest().filter(|(minor, _)| *minor <= 28) else {
        return skip!("kubectl is not installed in version 1.28 or older");
    };
    let cluster = Cluster::new();
    let _server = Server::start(&cluster, &[]);
    let kubectl = |line: &str, stdin: &str| {
        let mut command = cluster.program(&old.to_string_lossy());
        command.env("KUBECONFIG", cluster.home().join("kubeconfig")).env("HOME", cluster.home());
        cluster.run_program(command.args(line.split(' ')), stdin)
    };
    let list = |fields: &str| {
        let map = format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: listed}}, {fields}}}");
        let quota = "{apiVersion: v1, kind: ResourceQuota, metadata: {name: listed}, spec: {hard: {pods: '1'}}}";
        format!("apiVersion: v1\nkind: List\nitems:\n- {map}\n- {quota}\n")
    };
    let said = kubectl("apply -f -", &list("dta: {a: b}"));
    let unknown = r#"ValidationError(ConfigMap): unknown field "dta" in io.k8s.api.core.v1.ConfigMap"#;
    assert!(said.code == 1 && said.err.contains(unknown), "{}", said.err);
    let both = |verb: &str| format!("configmap/listed {verb}\nresourcequota/listed {verb}\n");
    for (line, fields, verb) in [
        ("create -f -", "data: {a: b}", "created"),
        ("apply -f - --dry-run=server", "data: {a: b}", "configured (server dry run)"),
        ("apply -f -", "data: {a: b}", "configured"),
        ("apply -f -", "data: {a: b}", "unchanged"),
        ("replace -f -", "data: {a: c}", "replaced"),
    ] {
        let said = kubectl(line, &list(fields));
        assert_eq!((said.code, said.out), (0, both(verb)), "{line}: {}", said.err);
    }
    assert!(kubectl("explain configmap.data", "").out.contains("map[string]string"));
    assert_eq!(kubectl("api-resources --api-group=apps -o name", "").out.lines().count(), 5);
    let said = kubectl("delete -f -", &list("data: {}"));
    assert_eq!((said.code, said.out.lines().count()), (0, 2), "{}", said.err);
}

fn check_forwarding(cluster: &Cluster, is_web_socket: bool) {
    let mut command = program(cluster, is_web_socket);
    let mut forward = command.args(["port-forward", "web", ":8080"]).stdout(Stdio::piped()).spawn().expect("kubectl");
    let mut lines = BufReader::new(forward.stdout.take().expect("its output")).lines();
    let line = lines.next().expect("a line").expect("text");
    let place = line.strip_prefix("Forwarding from ").and_then(|rest| rest.split(' ').next()).expect("an address");
    for _ in 0..3 {
        let mut stream = TcpStream::connect(place).expect("connected");
        stream.write_all(b"GET /page HTTP/1.0\r\n\r\n").expect("asked");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("a page");
        assert!(page.ends_with("served\n"), "{page}");
    }
    forward.kill().expect("ended");
    forward.wait().expect("ended");
}
