//! The ready Image objects of `fixtures/images/`: all are accepted, and those whose program this machine has run what they promise.

use crate::cluster::Cluster;
use std::fs;
use std::path::Path;

fn folder() -> String {
    format!("{}/fixtures/images", env!("CARGO_MANIFEST_DIR"))
}

fn has(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':').any(|folder| Path::new(folder).join(program).is_file())
}

/// A cluster with the Image object, when one of these programs is there; said loudly when none is.
fn cluster_with(image: &str, programs: &[&str]) -> Option<Cluster> {
    if !programs.iter().any(|program| has(program)) {
        eprintln!("SKIPPED: {image}: this machine has none of {}", programs.join(", "));
        return None;
    }
    let cluster = Cluster::new();
    cluster.ok(&format!("apply -f {}/{image}.yaml", folder()));
    Some(cluster)
}

/// Runs a pod of this image to its end; what it said.
fn run(cluster: &Cluster, image: &str, args: &str) -> String {
    let _plane = cluster.watch();
    cluster.apply(&format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: run}}, \
         spec: {{restartPolicy: Never, containers: [{{name: main, image: {image}, args: {args}}}]}}}}"
    ));
    cluster.until_reads("pod/run", "{.status.phase}", "Succeeded");
    cluster.log("run", "main")
}

/// Starts a server of this image, and waits until it listens.
fn serve(cluster: &Cluster, image: &str, port: u16, env: &str) {
    cluster.apply(&format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: serve, labels: {{app: serve}}}}, \
         spec: {{terminationGracePeriodSeconds: 5, containers: [{{name: main, image: {image}, env: {env}, \
         readinessProbe: {{tcpSocket: {{port: {port}}}, periodSeconds: 1, failureThreshold: 60}}}}]}}}}"
    ));
    cluster.ready_pods("app=serve", 1);
}

#[test]
fn all_are_accepted_and_say_what_to_type() {
    let cluster = Cluster::new();
    let applied = cluster.ok(&format!("apply -f {}", folder()));
    let files: Vec<_> = fs::read_dir(folder()).expect("the fixtures").flatten().map(|entry| entry.path()).collect();
    assert_eq!(applied.lines().filter(|line| line.ends_with(" created")).count(), files.len(), "{applied}");
    for file in files {
        let text = fs::read_to_string(&file).expect("readable");
        assert!(text.starts_with("# "), "{} begins with what it is", file.display());
    }
}

#[test]
fn interpreters_run() {
    if let Some(cluster) = cluster_with("node", &["node"]) {
        assert_eq!(run(&cluster, "node:20", "[-p, 6*7]"), "42\n");
    }
    if let Some(cluster) = cluster_with("python", &["python3"]) {
        assert_eq!(
            run(&cluster, "python:3.12", "[-c, 'import os; print(6*7, os.environ[\"PYTHONUNBUFFERED\"])']"),
            "42 1\n"
        );
    }
    if let Some(cluster) = cluster_with("busybox", &["sh"]) {
        assert_eq!(run(&cluster, "busybox:1.36", "[echo, hello]"), "hello\n");
    }
}

#[test]
fn postgres_answers() {
    let Some(cluster) = cluster_with("postgres", &["postgres"]) else { return };
    let _plane = cluster.watch();
    // Some machines let nobody but root see who their users are, and postgres asks.
    let users = serde_json::Value::from(fs::read_to_string("/etc/passwd").unwrap_or_default());
    cluster
        .apply(&format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: users}}, data: {{passwd: {users}}}}}"));
    cluster.apply(
        "{apiVersion: v1, kind: Pod, metadata: {name: serve, labels: {app: serve}}, spec: {terminationGracePeriodSeconds: 5, \
         volumes: [{name: users, configMap: {name: users}}], containers: [{name: main, image: 'postgres:16', \
         volumeMounts: [{name: users, mountPath: /etc/passwd, subPath: passwd}], \
         env: [{name: POSTGRES_PASSWORD, value: s3cret}, {name: POSTGRES_DB, value: shop}], \
         readinessProbe: {tcpSocket: {port: 5432}, periodSeconds: 1}}]}}",
    );
    cluster.ready_pods("app=serve", 1);
    let address = cluster.read("pod/serve", "{.status.podIP}");
    let asked = [
        "exec",
        "serve",
        "--",
        "env",
        "PGPASSWORD=s3cret",
        "psql",
        "-h",
        &address,
        "-U",
        "postgres",
        "shop",
        "-Atc",
        "select 6*7",
    ];
    cluster.until("it answers", || cluster.run(&asked, "").out == "42\n");
    let wrong = asked.map(|word| if word.starts_with("PGPASSWORD") { "PGPASSWORD=wrong" } else { word });
    assert!(cluster.run(&wrong, "").err.contains("password authentication failed"));
    cluster.ok("delete pod serve");
    cluster.nothing_is_left();
}

#[test]
fn servers_listen() {
    let table: [(&str, &[&str], u16, &str); 5] = [
        ("nginx", &["nginx"], 80, "[]"),
        ("httpd", &["httpd", "apache2ctl"], 80, "[]"),
        ("redis", &["redis-server"], 6379, "[]"),
        ("memcached", &["memcached"], 11211, "[]"),
        ("mysql", &["mysqld", "mariadbd"], 3306, "[{name: MYSQL_ROOT_PASSWORD, value: s3cret}]"),
    ];
    for (image, programs, port, env) in table {
        let Some(cluster) = cluster_with(image, programs) else { continue };
        if port < 1024 && !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: {image}: port {port} is for root");
            continue;
        }
        let _plane = cluster.watch();
        serve(&cluster, image, port, env);
        cluster.ok("delete pod serve");
        cluster.nothing_is_left();
    }
}
