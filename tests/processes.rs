//! The built binary with real processes, as users run it: from `apply` to a page over HTTP, with failures of processes and control planes.

mod applications;
mod autoscaling;
mod changing_services;
mod churn;
mod configuration;
mod control_plane;
mod custom;
mod dash;
mod descriptors;
mod devices;
mod disk;
mod ending;
mod etcd;
mod exec;
mod files;
mod gateway;
mod guestbook;
mod healing;
mod hooks;
mod hostile;
mod images;
mod ingress;
mod ingress_routes;
mod jobs;
mod joined_nodes;
mod limits;
mod logs;
mod machines;
mod names;
mod network;
mod node_faults;
mod node_links;
mod nodes;
mod overlays;
mod policies;
mod probes;
mod profiles;
mod ready_images;
mod rollouts;
mod sandboxes;
mod security;
mod slow_forwarder;
mod spaces;
mod static_pods;
mod terminals;
mod up;
mod users;
mod volumes;
mod watching;

use crate::cluster::Cluster;
use std::io::{Read, Write};
use std::net::TcpStream;

/// Returns a cluster for the user of the tests and, if that is root, one for an ordinary user.
fn clusters() -> Vec<Cluster> {
    let root = rustix::process::geteuid().is_root();
    let mut clusters = vec![Cluster::new()];
    clusters.extend(root.then(|| Cluster::of_user(65534)));
    clusters
}

/// A Deployment of `sleep`s with the label `app: NAME`. Its grace period is short, because `sleep` ends on SIGTERM anyway.
fn deployment(name: &str, replicas: u32, seconds: u32) -> String {
    format!(
        r#"
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - {{name: main, image: busybox, command: [sleep, "{seconds}"]}}
"#
    )
}

/// A Pod with the label `app: NAME` and one container that runs a shell script.
fn pod(name: &str, restart: &str, grace: u32, script: &str) -> String {
    pod_with(name, &format!("restartPolicy: {restart}, terminationGracePeriodSeconds: {grace}"), "", script)
}

/// Fields of pods that run once and end soon.
const ONCE: &str = "restartPolicy: Never, terminationGracePeriodSeconds: 1";

/// A Pod like [`pod`]; `spec` and `container` are additional fields as YAML in a line: `field: value, field: value`.
fn pod_with(name: &str, spec: &str, container: &str, script: &str) -> String {
    let script = serde_json::Value::from(script);
    format!(
        r#"
apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{app: {name}}}}}
spec:
  {}
  containers:
  - {{name: main, image: debian, {}command: [sh, -c, {script}]}}
"#,
        lines(spec),
        if container.is_empty() { String::new() } else { format!("{container}, ") },
    )
}

/// Converts fields in a line to lines of a block.
fn lines(fields: &str) -> String {
    let mut depth = 0;
    let mut text = String::new();
    for letter in fields.chars() {
        depth += i32::from("[{".contains(letter)) - i32::from("]}".contains(letter));
        match letter {
            ',' if depth == 0 => text += "\n ",
            other => text.push(other),
        }
    }
    text
}

/// Changes the pods to see the machine's own files.
fn on_host_files(manifest: &str) -> String {
    manifest.replace("metadata: {", "metadata: {annotations: {kloop.dev/filesystem: host}, ")
}

/// A container that runs `processes/server.py`, with additional fields: HTTP at port 8080, datagrams at 5300.
fn serving(more: &str) -> String {
    let program = serde_json::Value::from(include_str!("processes/server.py"));
    let ready = "httpGet: {path: /healthz, port: 8080}, periodSeconds: 1, failureThreshold: 1, timeoutSeconds: 20";
    format!("{{name: main, image: 'python:3', command: [python3, -c, {program}], {more}readinessProbe: {{{ready}}}}}")
}

/// A Deployment of such servers with the label `app: NAME`.
fn servers(name: &str, replicas: usize, more: &str) -> String {
    let labels = format!("{{app: {name}}}");
    format!(
        "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: {name}, labels: {labels}}}, spec: {{replicas: {replicas}, selector: {{matchLabels: {labels}}}, \
         template: {{metadata: {{labels: {labels}}}, spec: {{terminationGracePeriodSeconds: 5, containers: [{}]}}}}}}}}\n---\n",
        serving(more)
    )
}

/// One such server with the label `app: NAME`.
fn server(name: &str, more: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{app: {name}}}}}, spec: {{terminationGracePeriodSeconds: 1, containers: [{}]}}}}\n---\n",
        serving(more)
    )
}

/// A Service for the pods with the label `app: NAME`, with these fields.
fn service(name: &str, fields: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: {name}}}, spec: {{selector: {{app: {name}}}, {fields}}}}}\n---\n"
    )
}

/// Such servers behind port 80 of a Service.
fn web(replicas: usize) -> String {
    servers("web", replicas, "") + &service("web", "ports: [{port: 80, targetPort: 8080}]")
}

/// Returns the response of an HTTP server at an address; `None` without one.
fn fetch(place: &str) -> Option<String> {
    let mut stream = TcpStream::connect(place).ok()?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
    let mut said = String::new();
    stream.read_to_string(&mut said).ok()?;
    said.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).filter(|body| !body.is_empty())
}
