//! The official clients of other languages, where they are installed: `.ci/run` puts them into the folder `KLOOP_TEST_CLIENTS`.

use super::Server;
use crate::cluster::Cluster;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A pod with a web server, a Deployment, and the kind Boat.
pub const MANIFESTS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: main
    image: python
    command: [sh, -c, 'mkdir -p www && echo served > www/page && echo ready && exec python3 -u -m http.server -d www 8080 2>/dev/null']
    readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: still}
spec:
  selector: {matchLabels: {app: still}}
  template:
    metadata: {labels: {app: still}}
    spec: {containers: [{name: main, image: busybox, command: [sleep, "1000"]}]}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.example.com}
spec:
  group: example.com
  names: {kind: Boat, plural: boats}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}, status: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}
"#;

/// A pod that answers lines.
const READER: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: reader}
spec: {containers: [{name: main, image: busybox, command: [sh, -c, 'while read line; do echo "got $line"; done'], stdin: true}]}
"#;

/// Returns the folder with the clients.
fn folder() -> Option<PathBuf> {
    let named = std::env::var_os("KLOOP_TEST_CLIENTS").map(PathBuf::from);
    named.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/kloop-test-clients")))
}

/// Returns the path of a script in the folder of this file.
fn script(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/serving/clients").join(name)
}

/// Returns the path of an installed program or module; `None` where it is not installed.
pub fn installed(path: &str) -> Option<PathBuf> {
    folder().map(|folder| folder.join(path)).filter(|path| fs::exists(path).unwrap_or_default())
}

/// A program of a client, which finds the cluster by its kubeconfig.
fn client(cluster: &Cluster, program: &Path) -> Command {
    let mut command = cluster.program(&program.to_string_lossy());
    command.env("KUBECONFIG", cluster.home().join("kubeconfig")).current_dir(cluster.home());
    command
}

/// Runs the stories of a script, which prints a line after each.
fn run_stories(cluster: &Cluster, command: &mut Command, stories: usize) {
    let said = cluster.run_program(command, "");
    assert_eq!((said.code, said.out.lines().count()), (0, stories), "{}{}", said.out, said.err);
}

/// Applies the manifests, and waits for the web server.
pub fn start_pods(cluster: &Cluster) {
    cluster.apply(MANIFESTS);
    cluster.until_reads("pod/web", "{.status.containerStatuses[0].ready}", "true");
}

#[test]
fn python_client_works() {
    let Some(python) = installed("python/bin/python") else {
        return skip!("the Python client is not installed");
    };
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let _server = Server::start(&cluster, &[]);
    start_pods(&cluster);
    run_stories(&cluster, client(&cluster, &python).arg(script("client.py")), 10);
}

#[test]
fn operator_of_kopf_handles_custom_objects() {
    let Some(kopf) = installed("python/bin/kopf") else {
        return skip!("kopf is not installed");
    };
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let _server = Server::start(&cluster, &[]);
    cluster.apply(MANIFESTS);
    let mut command = client(&cluster, &kopf);
    command.args(["run", "--namespace=default", "--log-format=plain"]).arg(script("boats.py"));
    let operator = cluster.background_program(command);
    let boat = |size: u32| {
        let spec = format!("{{size: {size}}}");
        cluster.apply(&format!("{{apiVersion: example.com/v1, kind: Boat, metadata: {{name: b}}, spec: {spec}}}"));
    };
    boat(1);
    cluster.until_reads("boat/b", "{.status.create.launched}", "true");
    assert_eq!(cluster.read("configmap/b", "{.data.size}/{.metadata.ownerReferences[0].kind}"), "1/Boat");
    assert_eq!(cluster.read("boat/b", "{.metadata.finalizers}"), r#"["kopf.zalando.org/KopfFinalizerMarker"]"#);
    let launched = "get events --field-selector reason=Launched -o jsonpath={.items[0].message}";
    cluster.until("the event is there", || cluster.kloop(launched).out == "it floats");
    boat(2);
    cluster.until_reads("configmap/b", "{.data.size}", "2");
    cluster.ok("delete boat b");
    cluster.until("the ConfigMap is gone", || cluster.kloop("get configmap b").code == 1);
    operator.end("INT");
}

#[test]
fn node_client_works() {
    let Some(modules) = installed("node/node_modules/@kubernetes/client-node").and(installed("node/node_modules"))
    else {
        return skip!("the client of Node is not installed");
    };
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let _server = Server::start(&cluster, &[]);
    start_pods(&cluster);
    // Node.js searches modules in the script's folder.
    std::os::unix::fs::symlink(modules, cluster.home().join("node_modules")).expect("linked");
    fs::copy(script("client.mjs"), cluster.home().join("client.mjs")).expect("copied");
    run_stories(&cluster, client(&cluster, Path::new("node")).arg("client.mjs"), 4);
}

/// Stories of the Rust client, which `.ci/run` builds from the package in the folder of this file.
#[test]
fn kube_crate_works() {
    let Some(stories) = installed("kube/debug/kube-stories") else {
        return skip!("the client of Rust is not installed");
    };
    let cluster = Cluster::new();
    let plane = cluster.watch_with(&["--serve=0"]);
    let _server = Server::of(&cluster, plane);
    start_pods(&cluster);
    cluster.apply(READER);
    cluster.until_reads("pod/reader", "{.status.phase}", "Running");
    // With the certificate of `kloop kubeconfig`, not the token.
    let access = cluster.ok("kubeconfig");
    fs::write(cluster.home().join("own-kubeconfig"), access).expect("written");
    let mut command = client(&cluster, &stories);
    command.env("KUBECONFIG", cluster.home().join("own-kubeconfig"));
    let stories_told = include_str!("kube/main.rs").matches("run_story(\"").count();
    run_stories(&cluster, &mut command, stories_told);
}
