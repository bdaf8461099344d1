//! kloop's own verbs with a server in place of a state file, against `kloop serve`.

use super::Server;
use crate::cluster::{Cluster, Plane, Said};
use crate::screen::Screen;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// A Deployment and a definition of a kind with an object of it.
const WEB: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: busybox, command: [sleep, "1000"]}]}
"#;

const BOATS: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.example.com}
spec:
  group: example.com
  names: {kind: Boat, plural: boats, shortNames: [bt]}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns: [{name: Size, type: integer, jsonPath: .spec.size}]
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}
"#;

/// A pod that says when it runs.
const READER: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: reader}
spec: {containers: [{name: main, image: busybox, command: [sh, -c, 'echo ready; while sleep 1; do :; done']}]}
"#;

/// A pod that reads no input, and ends once a file exists.
const DEAF: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: deaf}
spec:
  restartPolicy: Never
  containers: [{name: main, image: busybox, command: [sh, -c, 'until [ -e /tmp/go ]; do sleep 0.05; done; echo heard']}]
"#;

/// A user of a server who has no state file of the cluster.
struct RemoteUser<'a> {
    /// The cluster behind the server.
    cluster: &'a Cluster,
    /// The user's folder.
    folder: tempfile::TempDir,
}

impl<'a> RemoteUser<'a> {
    /// Makes a folder with a kubeconfig of another name than those of kloop serve.
    fn new(cluster: &'a Cluster) -> RemoteUser<'a> {
        let text = fs::read_to_string(cluster.home().join("kubeconfig")).expect("kubeconfig");
        let (_, text) = text.split_once('\n').expect("a comment");
        let text = ["name", "cluster", "user", "current-context"]
            .iter()
            .fold(text.to_owned(), |text, field| text.replace(&format!("{field}: kloop"), &format!("{field}: far")));
        let folder = tempfile::tempdir().expect("folder");
        fs::write(folder.path().join("far.yaml"), text).expect("written");
        RemoteUser { cluster, folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a command with the server's context.
    fn run(&self, line: &str, stdin: &str) -> Said {
        self.run_as(&format!("--kubeconfig far.yaml {line}"), stdin)
    }

    /// Runs a command that names its cluster itself.
    fn run_as(&self, line: &str, stdin: &str) -> Said {
        let mut command = self.cluster.program(env!("CARGO_BIN_EXE_kloop"));
        command.current_dir(self.folder.path()).env_remove("KLOOP_STATE");
        command.env("XDG_STATE_HOME", self.path("state")).env("KLOOP_CONFIG", self.path("config"));
        self.cluster.run_program(command.args(line.split(' ')), stdin)
    }

    /// Starts a command with the server's context.
    fn background(&self, words: &[&str]) -> Plane<'a> {
        let mut command = self.cluster.program(env!("CARGO_BIN_EXE_kloop"));
        command.current_dir(self.folder.path()).env_remove("KLOOP_STATE").env("KLOOP_CONFIG", self.path("config"));
        command.args(["--kubeconfig", "far.yaml"]).args(words);
        self.cluster.background_program(command)
    }

    fn ok(&self, line: &str, stdin: &str) -> String {
        let said = self.run(line, stdin);
        assert_eq!(said.code, 0, "{line}: {}{}", said.out, said.err);
        said.out
    }

    fn fails(&self, line: &str, problem: &str) {
        let said = self.run(line, "");
        assert!(said.code != 0 && said.err.starts_with(problem), "{line}: {}{}", said.out, said.err);
    }
}

#[test]
fn kubeconfig_of_kloop_serve_in_a_flag_chooses_its_server() {
    let cluster = Cluster::new();
    let _server = Server::start(&cluster, &[]);
    let user = RemoteUser::new(&cluster);
    let file = cluster.home().join("kubeconfig");
    let flag = format!("--kubeconfig {}", file.display());
    // A file of contexts without a current one.
    let text = fs::read_to_string(&file).expect("kubeconfig").replace("current-context: kloop\n", "");
    fs::write(user.path("config"), text).expect("written");
    for (at, flags) in [&flag, &format!("{flag} --context kloop --cluster kloop --user kloop"), "--context kloop"]
        .into_iter()
        .enumerate()
    {
        let said = user.run_as(&format!("{flags} create configmap a{at}"), "");
        assert_eq!((said.code, said.out), (0, format!("configmap/a{at} created\n")), "{flags}: {}", said.err);
        assert_eq!(cluster.read(&format!("configmap/a{at}"), "{.metadata.name}"), format!("a{at}"));
        for verb in ["reconcile", "history"] {
            let said = user.run_as(&format!("{flags} {verb}"), "");
            let refusal =
                format!("error: \"kloop {verb}\" needs a state file, and the cluster is the server https://127");
            assert!(said.code == 1 && said.err.starts_with(&refusal), "{flags}: {}{}", said.out, said.err);
        }
    }
    assert!(!user.path("state").exists(), "no other cluster was created");
}

#[test]
fn verbs_read_and_change_a_cluster_behind_a_server() {
    let cluster = Cluster::new();
    let _server = Server::start(&cluster, &[]);
    let user = RemoteUser::new(&cluster);
    assert_eq!(user.ok("create -f -", WEB), "deployment.apps/web created\n");
    assert_eq!(cluster.read("deployment/web", "{.spec.replicas}"), "2");
    assert_eq!(user.ok("get deploy -o name", ""), "deployment.apps/web\n");
    assert!(user.ok("get deploy", "").contains("web    0/2     0            0"), "{}", user.ok("get deploy", ""));
    assert!(user.ok("describe deploy web", "").contains("Replicas:               2 desired"));
    user.ok("create configmap a --from-literal=k=v", "");
    user.fails("create configmap a", "error: failed to create configmap: configmaps \"a\" already exists");
    assert_eq!(user.ok("get cm a -o jsonpath={.data.k}", ""), "v");
    assert_eq!(user.ok("get cm -l absent -o name", ""), "");
    assert_eq!(user.ok("get cm --field-selector=metadata.name=a -o name", ""), "configmap/a\n");
    assert_eq!(user.ok("delete cm a", ""), "configmap \"a\" deleted from default namespace\n");
    user.fails("get cm a", "Error from server (NotFound): configmaps \"a\" not found\n");
    user.fails("get cm a -n nowhere", "Error from server (NotFound): namespaces \"nowhere\" not found\n");
    user.ok("create deployment dry --image=a --dry-run=server", "");
    user.fails("get deploy dry", "Error from server (NotFound): ");
    assert!(!user.path("state").exists(), "no state file is made");
}

#[test]
fn kinds_of_the_server_are_known() {
    let cluster = Cluster::new();
    let _server = Server::start(&cluster, &[]);
    let user = RemoteUser::new(&cluster);
    user.fails("get boats", "error: the server doesn't have a resource type \"boats\"");
    user.ok("create -f -", BOATS);
    let boat = "apiVersion: example.com/v1\nkind: Boat\nmetadata: {name: ann}\nspec: {size: 7}\n";
    assert_eq!(user.ok("create -f -", boat), "boat.example.com/ann created\n");
    assert!(user.ok("get bt", "").starts_with("NAME   SIZE\nann    7\n"), "{}", user.ok("get bt", ""));
    let listed = user.ok("api-resources --api-group=example.com --no-headers", "");
    assert_eq!(listed.split_whitespace().collect::<Vec<_>>(), ["boats", "bt", "example.com/v1", "true", "Boat"]);
    assert!(user.ok("api-versions", "").contains("example.com/v1\n"));
    assert!(user.ok("version", "").contains("Server Version: v1."));
}

#[test]
fn verbs_that_change_objects_send_patches() {
    let cluster = Cluster::new();
    let _server = Server::start(&cluster, &[]);
    let user = RemoteUser::new(&cluster);
    assert_eq!(user.ok("apply -f -", WEB), "deployment.apps/web created\n");
    assert_eq!(user.ok("apply -f -", WEB), "deployment.apps/web unchanged\n");
    let more = WEB.replace("replicas: 2", "replicas: 3");
    let said = user.run("diff -f -", &more);
    assert!(said.code == 1 && said.out.contains("-  replicas: 2\n+  replicas: 3\n"), "{}{}", said.out, said.err);
    assert_eq!(user.ok("apply -f -", &more), "deployment.apps/web configured\n");
    assert_eq!(user.ok("scale deploy web --replicas=1", ""), "deployment.apps/web scaled\n");
    assert_eq!(user.ok("label deploy web tier=front", ""), "deployment.apps/web labeled\n");
    assert_eq!(user.ok("set image deploy/web main=python", ""), "deployment.apps/web image updated\n");
    assert_eq!(user.ok("patch deploy web -p {\"spec\":{\"paused\":true}}", ""), "deployment.apps/web patched\n");
    assert_eq!(
        user.ok("patch deploy web -p {\"spec\":{\"paused\":true}}", ""),
        "deployment.apps/web patched (no change)\n"
    );
    let read = |path: &str| cluster.read("deployment/web", path);
    assert_eq!(read("{.spec.replicas}/{.metadata.labels.tier}"), "1/front");
    assert_eq!(read("{.spec.template.spec.containers[0].image}/{.spec.paused}"), "python/true");
    let managers = read("{.metadata.managedFields[*].manager}");
    assert!(managers.contains("kubectl-client-side-apply") && managers.contains("kubectl-label"), "{managers}");
    let said = user.run("apply --server-side -f -", WEB);
    assert!(said.err.starts_with("error: Apply failed with "), "{}{}", said.out, said.err);
    assert_eq!(user.ok("apply --server-side --force-conflicts -f -", WEB), "deployment.apps/web serverside-applied\n");
    assert_eq!(read("{.spec.replicas}"), "2");
    assert_eq!(user.ok("auth can-i create pods", ""), "yes\n");
    user.ok("wait --for=jsonpath={.spec.replicas}=2 deploy/web --timeout=20s", "");
    user.fails("apply -f far.yaml", "error: ");
}

#[test]
fn forced_apply_makes_the_object_again_or_restores_it() {
    let cluster = Cluster::new();
    let _server = Server::start(&cluster, &[]);
    let user = RemoteUser::new(&cluster);
    user.ok("apply -f -", WEB);
    let old = cluster.read("deployment/web", "{.metadata.uid}");
    let renamed = WEB.replace("app: web", "app: shop").replace("{name: web}", "{name: web, resourceVersion: '1'}");
    let said = user.run("apply -f -", &renamed);
    assert!(said.err.starts_with("Error from server (Conflict): "), "{}", said.err);
    assert_eq!(user.ok("apply --force -f -", &renamed), "deployment.apps/web configured\n");
    let new = cluster.read("deployment/web", "{.metadata.uid}");
    assert_ne!(new, old);
    let wrong = renamed.replace("matchLabels: {app: shop}", "matchLabels: {app: other}");
    let said = user.run("apply --force -f -", &wrong);
    assert!(said.err.contains("`selector` does not match template `labels`"), "{}", said.err);
    assert_eq!(cluster.read("deployment/web", "{.spec.selector.matchLabels.app}"), "shop");
    assert_ne!(cluster.read("deployment/web", "{.metadata.uid}"), new);
}

#[test]
fn scale_of_a_custom_resource_is_patched_behind_a_server() {
    let cluster = Cluster::new();
    let _server = Server::start(&cluster, &[]);
    let user = RemoteUser::new(&cluster);
    let scale = "subresources: {scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.size}}";
    let boats = BOATS.replace("    storage: true\n", &format!("    storage: true\n    {scale}\n"));
    user.ok("apply -f -", &boats);
    let boat = "apiVersion: example.com/v1\nkind: Boat\nmetadata: {name: ann}\nspec: {size: 3}\n";
    cluster.until("the kind is served", || user.run("apply -f -", boat).code == 0);
    let patch = r#"patch boat ann --subresource=scale --type=merge -p {"spec":{"replicas":5}}"#;
    assert_eq!(user.ok(patch, ""), "scale.autoscaling/ann patched\n");
    assert_eq!(cluster.read("boat/ann", "{.spec.size}"), "5");
}

#[test]
fn wait_watches_the_object_behind_a_server() {
    let cluster = Cluster::new();
    let (log, policy) = (cluster.home().join("audit.log"), cluster.home().join("policy.yaml"));
    let rules = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n";
    fs::write(&policy, rules).expect("written");
    let flags = [format!("--audit-log={}", log.display()), format!("--audit-policy-file={}", policy.display())];
    let _server = Server::start(&cluster, &flags.each_ref().map(String::as_str));
    let user = RemoteUser::new(&cluster);
    cluster.ok("create configmap slow --from-literal=a=1");
    let waiting = user.background(&["wait", "configmap/slow", "--for=jsonpath={.data.a}=2", "--timeout=300s"]);
    let watches = || fs::read_to_string(&log).unwrap_or_default().matches("watch=").count();
    cluster.until("the command watches", || watches() > 0);
    cluster.ok(r#"patch configmap slow -p {"data":{"a":"2"}}"#);
    waiting.until_says("configmap/slow condition met");
    let problem = "error: timed out waiting for the condition on configmaps/slow";
    user.fails("wait configmap/slow --for=condition=Ready --timeout=1ms", problem);
    user.fails("wait configmap/slow --for=delete --timeout=1ms", problem);
}

#[test]
fn streams_reach_containers_behind_a_server() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let _server = Server::start(&cluster, &[]);
    let user = RemoteUser::new(&cluster);
    user.ok("apply -f -", READER);
    cluster.until_reads("pod/reader", "{.status.phase}", "Running");
    assert_eq!(user.ok("exec -i reader -- cat", "typed\n"), "typed\n");
    let said = user.run("exec reader -- false", "");
    assert_eq!((said.code, said.err.as_str()), (1, "command terminated with exit code 1\n"));
    cluster.until("the log has a line", || user.ok("logs reader --tail=1", "") == "ready\n");
    user.fails("logs nobody", "error: error from server (NotFound): pods \"nobody\" not found");
    user.fails("exec reader -c other -- true", "error: container other is not valid for pod reader out of: ");
}

#[test]
fn attach_sends_input_that_only_admission_sees_for_a_container_that_reads_none() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let _server = Server::start(&cluster, &[]);
    let user = RemoteUser::new(&cluster);
    cluster.apply(DEAF);
    cluster.until_reads("pod/deaf", "{.status.phase}", "Running");
    let attached = user.background(&["attach", "-i", "deaf"]);
    attached.until_says("try pressing enter");
    user.ok("exec deaf -- touch /tmp/go", "");
    attached.until_says("heard\n");
    assert_eq!(attached.ended(), 0);
    cluster.apply(READER);
    cluster.apply(NO_INPUT_POLICY);
    cluster.until_reads("pod/reader", "{.status.phase}", "Running");
    cluster.until("attaching with input is denied", || {
        user.run("attach -i reader", "").err.contains("no input for pods of this namespace")
    });
    let said = cluster.kloop("attach -i reader");
    assert!(said.err.contains("no input for pods of this namespace"), "{}", said.err);
}

#[test]
fn proxy_forwards_requests_and_streams_to_a_server() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let _server = Server::start(&cluster, &[]);
    let user = RemoteUser::new(&cluster);
    user.ok("apply -f -", READER);
    cluster.until_reads("pod/reader", "{.status.phase}", "Running");
    let proxy = user.background(&["proxy", "--port=0", "--api-prefix=/k8s/", "--reject-paths=^/apis/batch"]);
    proxy.until_says("Starting to serve on ");
    let said = proxy.said();
    let place = said.trim_end().rsplit(' ').next().expect("an address").to_owned();
    let get = |path: &str| exchange(TcpStream::connect(&place).expect("connected"), path);
    assert!(get("/k8s/api/v1/namespaces/default").starts_with("HTTP/1.1 200 OK"));
    assert!(get("/k8s/api/v1/namespaces/nobody").starts_with("HTTP/1.1 404 Not Found"));
    assert!(get("/k8s/apis/batch/v1/jobs").ends_with("\r\n\r\nForbidden\n"));
    assert!(get("/api").ends_with("\r\n\r\n404 page not found\n"));
    fs::write(user.path("near.yaml"), near_kubeconfig(&format!("http://{place}/k8s"))).expect("written");
    let said = user.run_as("--kubeconfig near.yaml exec -i reader -- cat", "through");
    assert_eq!((said.out.as_str(), said.code), ("through", 0), "{}", said.err);
    assert_eq!(proxy.end("INT"), 0);
    let path = user.path("proxy.sock").display().to_string();
    let proxy = user.background(&["proxy", &format!("--unix-socket={path}")]);
    proxy.until_says(&format!("Starting to serve on {path}\n"));
    let answer = exchange(UnixStream::connect(&path).expect("connected"), "/api/v1/namespaces/default");
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert_eq!(proxy.end("INT"), 0);
    assert!(!fs::exists(&path).expect("known"), "the socket is gone");
    let said = cluster.kloop(&format!("proxy --unix-socket={path}"));
    assert_eq!(said.err, "error: --unix-socket is not supported with a state file: use --port\n");
}

/// Sends a GET request; returns the whole answer.
fn exchange(mut stream: impl Read + Write, path: &str) -> String {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    answer
}

/// Returns a kubeconfig without credentials.
fn near_kubeconfig(server: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: near\nclusters: [{{name: near, cluster: {{server: '{server}'}}}}]\n\
         contexts: [{{name: near, context: {{cluster: near}}}}]\n"
    )
}

/// Denies attachments with standard input.
const NO_INPUT_POLICY: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-input}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CONNECT], resources: [pods/attach]}]
  validations: [{expression: '!has(object.stdin) || !object.stdin', message: no input for pods of this namespace}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-input}
spec: {policyName: no-input, validationActions: [Deny]}
";

#[test]
fn up_waits_and_follows_a_cluster_behind_a_server() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let _server = Server::start(&cluster, &[]);
    let user = RemoteUser::new(&cluster);
    let said = user.run("up --wait --timeout 60s -f -", WEB);
    assert!(said.code == 0 && said.out.contains("deployment.apps/web created\n"), "{}{}", said.out, said.err);
    assert!(said.out.contains("ready in ") && said.err.contains("kloop delete with the same files"), "{said:?}");
    let missing = WEB.replace("name: web", "name: lost").replace("[sleep, \"1000\"]", "[no-such-program]");
    let said = user.run("up --wait --timeout 5s -f -", &missing);
    assert!(said.code == 1 && said.err.contains("not ready"), "{}{}", said.out, said.err);
    // It follows manifests and logs until it is interrupted, and leaves the objects.
    fs::write(user.path("reader.yaml"), READER).expect("written");
    let up = user.background(&["up", "reader.yaml"]);
    up.until_says("reader | ready");
    fs::write(user.path("reader.yaml"), READER.replace("{name: reader}", "{name: reader, labels: {a: b}}"))
        .expect("written");
    cluster.until_reads("pod/reader", "{.metadata.labels.a}", "b");
    assert_eq!(up.end("INT"), 0);
    assert!(up.said().contains("the objects stay at the server"), "{}", up.said());
    assert_eq!(cluster.read("pod/reader", "{.status.phase}"), "Running");
}

#[test]
fn dash_shows_a_cluster_behind_a_server() {
    let (cluster, other) = (Cluster::new(), Cluster::new());
    let _plane = cluster.watch();
    let _server = Server::start(&cluster, &[]);
    let user = RemoteUser::new(&cluster);
    cluster.apply(READER);
    cluster.until_reads("pod/reader", "{.status.phase}", "Running");
    let kubeconfig = user.path("far.yaml").display().to_string();
    let screen = Screen::run(&other, &["--kubeconfig", &kubeconfig, "dash"]);
    screen.until_shows("https://127.0.0.1");
    screen.until_shows("pod/reader");
    // Verbs have the same server, and changes arrive.
    screen.types("l");
    screen.until_shows("ready");
    screen.types("q");
    // Only cells that differ are written: these letters stand nowhere else.
    cluster.ok("create deployment zz9zz9 --image=busybox");
    screen.until_shows("zz9zz9");
    screen.types("q");
    assert_eq!(screen.ended().1, 0);
    user.fails("dash --web", "error: kloop dash --web shows the cluster of a state file only");
}

#[test]
fn pods_behind_a_server_are_measured_debugged_and_copied() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let _server = Server::start(&cluster, &[]);
    let user = RemoteUser::new(&cluster);
    user.ok("apply -f -", READER);
    cluster.until_reads("pod/reader", "{.status.phase}", "Running");
    let measured = user.ok("top pod", "");
    assert!(
        measured.starts_with("NAME     CPU(cores)   MEMORY(bytes)") && measured.contains("\nreader "),
        "{measured}"
    );
    assert!(user.ok("top node", "").starts_with("NAME "), "nodes are measured");
    let said = user.run("debug reader --image=busybox -c look -- echo seen", "");
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    cluster.until("the container has printed", || user.run("logs reader -c look", "").out == "seen\n");
    fs::create_dir(user.path("folder")).expect("a folder");
    fs::write(user.path("folder/file"), "x".repeat(100_000)).expect("written");
    std::os::unix::fs::symlink("file", user.path("folder/link")).expect("a link");
    user.ok("cp folder reader:/tmp", "");
    assert_eq!(user.ok("exec reader -- wc -c /tmp/folder/file", "").split(' ').next(), Some("100000"));
    let said = user.run("cp reader:/tmp/folder back", "");
    assert!(said.code == 0 && said.err.contains("warning: skipping symlink: \"back/link\" -> \"file\""), "{said:?}");
    assert_eq!(fs::read(user.path("back/file")).expect("copied").len(), 100_000);
    assert!(!user.path("back/link").exists());
    let said = user.run("cp reader:/nowhere back", "");
    assert!(said.code == 2 && said.err.contains("/nowhere: Cannot stat"), "{said:?}");
}

#[test]
fn problems_with_a_server_are_named() {
    let cluster = Cluster::new();
    let _server = Server::start(&cluster, &[]);
    let user = RemoteUser::new(&cluster);
    let server = user.ok("config view -o jsonpath={.clusters[0].cluster.server}", "");
    user.fails(
        "get pods --token wrong",
        "error: You must be logged in to the server (Unauthorized)\nhint: the server https",
    );
    user.fails("get pods --tls-server-name other", "Unable to connect to the server 127.0.0.1");
    user.fails("get pods --as ann", "Error from server (Forbidden): pods is forbidden: User \"ann\" cannot list");
    user.fails("get pods --at -1m", "error: --at reads the history of a state file");
    user.fails(
        "backup a.db",
        &format!("error: \"kloop backup\" needs a state file, and the cluster is the server {server}\n"),
    );
    let unknown = user.run_as(&format!("get pods --server {server}"), "");
    assert!(unknown.err.contains("x509: certificate signed by unknown authority"), "{}", unknown.err);
    let both = user.run_as(&format!("get pods --server {server} --state a.db"), "");
    assert!(both.err.starts_with("error: --state names a file, and --server a server\n"), "{}", both.err);
    let own = user.run_as("get ns", "");
    assert!(
        !own.err.contains(&server) && own.code == 0,
        "a command without a flag asks no server: {}{}",
        own.out,
        own.err
    );
}
