//! Manifests of public pages whose programs a machine may lack: they run with Image objects that name substitutes, as a user would write
//! them here.

use super::folder;
use crate::cluster::Cluster;
use std::fs;
use std::io::ErrorKind;

/// A web server on the port of its first argument, as the substitute for every server.
const WEB: &str = "import http.server,sys;http.server.ThreadingHTTPServer((\"\",int(sys.argv[1])),http.server.SimpleHTTPRequestHandler).serve_forever()";

/// Returns an Image object that makes these images a web server on a port.
fn web(name: &str, pattern: &str, port: u16) -> String {
    let program = serde_json::Value::from(WEB);
    format!(
        "apiVersion: kloop.dev/v1alpha1\nkind: Image\nmetadata: {{name: {name}}}\n\
         spec: {{patterns: ['{pattern}'], entrypoint: [python3, -c, {program}, '{port}'], command: [], filesystem: private}}\n---\n"
    )
}

/// A manifest of `corpus/run`, its Image objects, and the workloads that have to become available.
struct Row {
    path: &'static str,
    images: String,
    workloads: &'static [(&'static str, usize)],
}

const SITE: &str = "k8s-website-1.29/content/en/examples";

#[test]
fn manifests_run_with_stand_ins() {
    let Some(run) = folder("run") else { return };
    let rows = [
        Row {
            path: "application/web/web.yaml",
            images: web("nginx", "*/nginx-slim", 80),
            workloads: &[("statefulset/web", 2)],
        },
        Row {
            path: "application/ssa/nginx-deployment.yaml",
            images: web("nginx", "nginx:1.*", 80),
            workloads: &[("deploy/nginx-deployment", 3)],
        },
        Row {
            path: "service/networking/run-my-nginx.yaml",
            images: web("nginx", "nginx", 80),
            workloads: &[("deploy/my-nginx", 2)],
        },
        Row {
            path: "guestbook-all-in-one.yaml",
            images: web("redis", "*redis*", 6379) + &web("frontend", "*/gb-frontend", 80),
            workloads: &[("deploy/redis-master", 1), ("deploy/redis-replica", 2), ("deploy/frontend", 3)],
        },
    ];
    let count = rows.len();
    for row in rows {
        let path = match row.path.contains('/') {
            true => run.join(SITE).join(row.path),
            false => run.join("k8s-examples/web/guestbook/all-in-one").join(row.path),
        };
        let text = fs::read_to_string(&path).expect(row.path);
        let cluster = Cluster::new();
        let _plane = cluster.watch();
        cluster.apply(&row.images);
        cluster.apply(&text);
        for (workload, replicas) in row.workloads {
            cluster.until_reads(workload, "{.status.readyReplicas}", &replicas.to_string());
        }
        let restarts = cluster.read("pods", "{.items[*].status.containerStatuses[*].restartCount}");
        assert!(restarts.split(' ').all(|count| count == "0"), "{}: {restarts}", row.path);
        // Every Service with its own address leads to a server that answers. Only root opens ports below 1024 on the machine.
        let lowest = if rustix::process::geteuid().is_root() { 0 } else { 1024 };
        let path = "jsonpath={range .items[*]}{.spec.clusterIP}:{.spec.ports[0].port} {end}";
        let services = cluster.run(&["get", "services", "-o", path], "").out;
        let addresses = services.split_whitespace().filter(|at| at.starts_with("127."));
        let is_open = |at: &&str| at.rsplit(':').next().and_then(|port| port.parse::<u16>().ok()) >= Some(lowest);
        for address in addresses.filter(|at| !at.ends_with(":443")).filter(is_open) {
            let answers = || ureq::get(&format!("http://{address}/")).call().is_ok();
            cluster.until(&format!("{}: {address} answers", row.path), answers);
        }
    }
    eprintln!("level S: {count} manifests run with web servers as stand-ins");
}

/// A server that answers every request with "yes".
const YES: &str = "import http.server as h,sys\nclass Y(h.BaseHTTPRequestHandler):\n def do_GET(self):\n  self.send_response(200)\n  self.end_headers()\n  self.wfile.write(b'yes')\n def log_message(self,*a):pass\nclass S(h.ThreadingHTTPServer):allow_reuse_port=True\nS(('',int(sys.argv[1])),Y).serve_forever()";

/// Python at a path where every user of the machine may run it.
const PYTHON: &str = "/usr/bin/python3";

/// Returns an Image object that makes these images such a server.
fn yes(name: &str, patterns: &str, port: u16) -> String {
    let program = |text: &str| serde_json::Value::from(text).to_string();
    web(name, patterns, port).replace(&program(WEB), &program(YES)).replace("[python3,", &format!("[{PYTHON},"))
}

/// Whether containers can run as other users, with Python.
fn can_run_as_other_users() -> bool {
    let can = rustix::process::geteuid().is_root() && std::path::Path::new(PYTHON).exists();
    if !can {
        skip!("only root runs containers as other users, and {PYTHON} is needed");
    }
    can
}

/// The program is `./podinfo`, the probes are commands: scripts with these names replace them.
#[test]
fn podinfo_is_probed_by_its_own_command() {
    let Some(run) = folder("run") else { return };
    let cluster = Cluster::new();
    let home = cluster.home().join("podinfo");
    fs::create_dir_all(&home).expect("made");
    let program = |name: &str, text: String| {
        fs::write(home.join(name), text).expect("written");
        fs::set_permissions(home.join(name), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("set");
    };
    program(
        "podinfo",
        format!("#!/usr/bin/env python3\nimport sys\nsys.argv[1] = sys.argv[1].removeprefix('--port=')\n{YES}\n"),
    );
    let check = "import sys, urllib.request\nassert sys.argv[1:3] == ['check', 'http']\nurllib.request.urlopen('http://' + sys.argv[3])\n";
    program("podcli", format!("#!/usr/bin/env python3\n{check}"));
    let (folder, path) = (home.display(), std::env::var("PATH").unwrap_or_default());
    let _plane = cluster.watch();
    cluster.apply(&format!(
        "apiVersion: kloop.dev/v1alpha1\nkind: Image\nmetadata: {{name: podinfo}}\n\
         spec: {{patterns: ['*/stefanprodan/podinfo'], workingDir: '{folder}', env: [{{name: PATH, value: '{folder}:{path}'}}]}}\n"
    ));
    cluster.apply(&fs::read_to_string(run.join("podinfo/kustomize/deployment.yaml")).expect("there"));
    cluster.until_reads("deploy/podinfo", "{.status.availableReplicas}", "1");
    let ip = cluster.read("pods", "{.items[0].status.podIP}");
    let mut answer = ureq::get(&format!("http://{ip}:9898/")).call().expect("it answers");
    assert_eq!(answer.body_mut().read_to_string().expect("text"), "yes");
    // On a busy machine a probe can time out; no other failure is allowed.
    let events = cluster.ok("events");
    let wrong: Vec<&str> =
        events.lines().filter(|line| line.contains("Unhealthy") && !line.contains("timed out after 5s")).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// The controller becomes ready. The speakers wait for a secret of the controller, and mount one volume into another read-only one, where
/// kloop cannot create the mount point.
#[test]
fn metallb_comes_up_in_part_with_a_stand_in() {
    let Some(run) = folder("run").filter(|_| can_run_as_other_users()) else { return };
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&yes("metallb", "quay.io/metallb/*", 17472));
    cluster.apply(&fs::read_to_string(run.join("metallb/config/manifests/metallb-native.yaml")).expect("there"));
    cluster.until("speakers wait for their secret", || {
        let told = cluster.ok("events -n metallb-system");
        told.contains("MountVolume.SetUp failed for volume \"memberlist\" : secret \"memberlist\" not found")
    });
    cluster.until_reads("deploy/controller -n metallb-system", "{.status.readyReplicas}", "1");
}

/// Fourteen Deployments; one of them needs a program at a path of its image, and reports that.
#[test]
fn sock_shop_runs_with_stand_ins() {
    let Some(run) = folder("run").filter(|_| can_run_as_other_users()) else { return };
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let ports = [
        ("shop", "weaveworksdemos/*", 80),
        ("front-end", "weaveworksdemos/front-end", 8079),
        ("mongo", "mongo", 27017),
        ("user-db", "weaveworksdemos/user-db", 27017),
        ("catalogue-db", "weaveworksdemos/catalogue-db", 3306),
        ("rabbitmq", "rabbitmq", 15672),
        ("exporter", "kbudde/rabbitmq-exporter", 9090),
        ("redis", "redis", 6379),
    ];
    let images: String = ports.iter().map(|(name, pattern, port)| yes(name, pattern, *port)).collect();
    cluster.apply(&images);
    cluster.apply(&fs::read_to_string(run.join("sock-shop/deploy/kubernetes/complete-demo.yaml")).expect("there"));
    let states =
        "{range .items[*]}{.metadata.labels.name}={.status.phase}/{.status.containerStatuses[*].restartCount} {end}";
    let all_run = || {
        let path = format!("jsonpath={states}");
        let states = cluster.run(&["get", "pods", "-n", "sock-shop", "-o", &path], "").out;
        // A volume at /tmp hides a cluster's folder below it, as in this test, so containers with such a volume are not counted.
        states.split_whitespace().filter(|state| state.ends_with("=Running/0")).count() >= 7
    };
    cluster.until("they run", all_run);
    cluster.until("the catalogue says that its program is nowhere", || {
        cluster.ok("events -n sock-shop").contains("\"/app\"")
    });
}

/// The command has a fixed path, which no Image object replaces: the test runs where that program exists.
#[test]
fn etcd_is_probed_over_grpc_where_it_is() {
    let Some(run) = folder("run") else { return };
    eprintln!(
        "level S, not run anywhere: longhorn (its manager attaches block devices of the kernel through the mounts of the node, and \
         makes further pods of images of its own)"
    );
    if !std::path::Path::new("/usr/local/bin/etcd").exists() {
        return skip!("etcd (its command is /usr/local/bin/etcd; Debian's package has it in /usr/bin)");
    }
    // Debian's package makes it for its own user; in a pod of an ordinary user it stays closed.
    if fs::read_dir("/var/lib/etcd").is_err_and(|error| error.kind() == ErrorKind::PermissionDenied) {
        return skip!("etcd (this user may not read its data folder, /var/lib/etcd)");
    }
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&fs::read_to_string(run.join(SITE).join("pods/probe/grpc-liveness.yaml")).expect("there"));
    let ready = r#"{.status.conditions[?(@.type=="Ready")].status}"#;
    cluster.until_reads("pod/etcd-with-grpc", ready, "True");
}
