//! Verbs of kubectl that are about the client or the whole cluster: plugins, `proxy`, `cluster-info`, `get componentstatuses`.

use crate::cluster::Cluster;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn write_program(folder: &Path, name: &str, script: &str, mode: u32) {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
}

#[test]
fn unknown_command_is_answered_by_a_plugin() {
    let cluster = Cluster::new();
    let folder = tempfile::tempdir().expect("folder");
    write_program(folder.path(), "kubectl-foo", "echo foo \"$@\"; exit 7", 0o755);
    write_program(folder.path(), "kloop-foo-bar_baz", "echo foobar \"$@\"", 0o755);
    let run = |words: &str| {
        let mut command = cluster.command();
        command.env("PATH", format!("{}:/bin:/usr/bin", folder.path().display())).args(words.split(' '));
        let said = cluster.run_program(&mut command, "");
        (said.code, said.out, said.err)
    };
    assert_eq!(run("foo bar-baz x --y"), (0, "foobar x --y\n".into(), String::new()));
    assert_eq!(run("foo bar --y"), (7, "foo bar --y\n".into(), String::new()));
    let misplaced = "error: flags cannot be placed before plugin name: -n\n";
    assert_eq!(run("-n x foo"), (1, String::new(), misplaced.into()));
    assert_eq!(run("fool"), (1, String::new(), "error: unknown command \"fool\" for \"kloop\"\n".into()));
    let listed = "The following compatible plugins are available:\n\nkloop-foo-bar_baz\nkubectl-foo\n";
    assert_eq!(run("plugin list --name-only"), (0, listed.into(), String::new()));
    write_program(folder.path(), "kubectl-get", "", 0o755);
    write_program(folder.path(), "kubectl-not", "", 0o644);
    let (code, out, err) = run("plugin list");
    assert!(code == 1 && out.contains(&format!("\n{}/kubectl-get\n", folder.path().display())), "{out}");
    let place = folder.path().display();
    let warnings = format!(
        "  - warning: kubectl-get overwrites existing command: \"kloop get\"\n  - warning: {place}/kubectl-not identified as a \
         kloop plugin, but it is not executable\nerror: 2 plugin warnings were found\n"
    );
    assert_eq!(err, warnings);
    assert!(run("get namespaces -o name").1.contains("namespace/default"), "a plugin replaces no verb");
}

#[test]
fn proxy_serves_the_api_within_its_rules() {
    let cluster = Cluster::new();
    let plane = cluster.background(&["proxy", "--port=0", "--api-prefix=/k8s", "--reject-methods=DELETE"]);
    plane.until_says("Starting to serve on ");
    let said = plane.said();
    let address = said.lines().find_map(|line| line.strip_prefix("Starting to serve on ")).expect("an address");
    let config = ureq::Agent::config_builder().http_status_as_error(false);
    let agent = ureq::Agent::new_with_config(config.build());
    let ask = |method: &str, path: &str, host: &str| {
        let request = ureq::http::Request::builder().method(method).uri(format!("http://{address}{path}"));
        let request = request.header("Host", host).body(()).expect("a request");
        agent.run(request).expect("an answer").status().as_u16()
    };
    for (method, path, host, code) in [
        ("GET", "/k8s/api/v1/namespaces/default", "localhost", 200),
        ("GET", "/k8s/api/v1/namespaces/default", "evil.example", 403),
        ("GET", "/api/v1/namespaces/default", "localhost", 404),
        ("DELETE", "/k8s/api/v1/namespaces/default", "localhost", 403),
        ("GET", "/k8s/api/v1/namespaces/default/pods/p/exec", "localhost", 403),
    ] {
        assert_eq!(ask(method, path, host), code, "{method} {path} {host}");
    }
    assert_eq!(plane.end("INT"), 0);
    assert!(cluster.kloop("proxy --www=.").err.starts_with("error: --www is not supported: "));
    assert!(cluster.kloop("proxy --accept-paths=(").err.starts_with("error: error parsing regexp: "));
}

#[test]
fn cluster_info_tells_addresses_and_dumps_the_cluster() {
    let cluster = Cluster::new();
    let more = "\nTo further debug and diagnose cluster problems, use 'kloop cluster-info dump'.\n";
    let state = cluster.home().join("state.db");
    cluster.apply("{apiVersion: v1, kind: Service, metadata: {name: dns, namespace: kube-system,
        labels: {kubernetes.io/cluster-service: 'true', kubernetes.io/name: DNS}}, spec: {ports: [{name: udp, port: 53}]}}");
    let at = format!("file://{}", state.display());
    let service = "/api/v1/namespaces/kube-system/services/dns:udp/proxy";
    let expected = format!("Kubernetes control plane is running at {at}\nDNS is running at {at}{service}\n{more}");
    assert_eq!(cluster.ok("cluster-info"), expected);
    let plane = cluster.watch_with(&["--serve=0"]);
    cluster.until("the server is advertised", || cluster.ok("cluster-info").contains("running at https://127.0.0.1:"));
    cluster.apply(
        "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {terminationGracePeriodSeconds: 0,
        containers: [{name: main, image: busybox, command: [sh, -c, 'echo hello; exec sleep 1000']}]}}",
    );
    cluster.until("it writes", || cluster.log("p", "main").contains("hello"));
    let dumped = cluster.ok("cluster-info dump -o yaml");
    let log = "==== START logs for container main of pod default/p ====\nhello\n==== END logs for container main of pod default/p ====\n";
    assert!(dumped.contains("kind: NodeList") && dumped.ends_with(log), "{dumped}");
    let folder = cluster.home().join("dump");
    let said = cluster.ok(&format!("cluster-info dump --namespaces=default --output-directory={}", folder.display()));
    assert_eq!(said, format!("Cluster info dumped to {}\n", folder.display()));
    assert_eq!(fs::read_to_string(folder.join("default/p/logs.txt")).expect("logs"), log);
    assert!(folder.join("default/replication-controllers.json").exists() && folder.join("nodes.json").exists());
    let statuses = cluster.ok("get cs");
    assert!(statuses.starts_with("NAME                 STATUS    MESSAGE   ERROR\n"), "{statuses}");
    assert_eq!(cluster.ok("get componentstatuses/etcd-0 -o jsonpath={.conditions[0].type}"), "Healthy");
    assert_eq!(plane.end("INT"), 0);
}
