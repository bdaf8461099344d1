//! The first commands of a new user: hints when something is missing, and compatibility with scripts for kubectl.

use crate::cluster::Cluster;
use crate::screen::Screen;
use std::io::Write;
use std::process::Stdio;

const POD: &str = "{apiVersion: v1, kind: Pod, metadata: {name: one}, spec: {restartPolicy: Never, containers: \
                   [{name: main, image: busybox, command: [echo, hello]}]}}";
const CONFIG: &str = "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}";
const HINT: &str = "hint: no control plane has run here yet, so that nothing starts; run: kloop reconcile --watch\n";

#[test]
fn cluster_that_never_ran_prints_a_hint() {
    let cluster = Cluster::new();
    let settings = cluster.run(&["apply", "-f", "-"], CONFIG);
    assert_eq!((settings.code, &*settings.err), (0, ""), "a ConfigMap needs no control plane");
    let applied = cluster.run(&["apply", "-f", "-"], POD);
    assert_eq!((&*applied.out, &*applied.err), ("pod/one created\n", HINT));
    assert_eq!(cluster.run(&["apply", "--dry-run=server", "-f", "-"], POD).err, "", "a dry run starts nothing");
    assert_eq!(cluster.kloop("get pods").err, HINT);
    assert_eq!(cluster.kloop("get configmaps").err, "");
    assert_eq!(cluster.kloop("logs one").err, HINT);
    for line in
        ["create deployment web --image=busybox", "scale deployment web --replicas=0", "run two --image=busybox"]
    {
        assert_eq!(cluster.kloop(line).err, HINT, "{line}");
        let tried = cluster.kloop(
            &format!("{line} --dry-run=server")
                .replace(" two", " three")
                .replace("create deployment web", "create deployment api"),
        );
        assert_eq!((tried.code, &*tried.err), (0, ""), "{line}");
    }
    assert_eq!(cluster.kloop("delete pod two").code, 0);
    let why = cluster.kloop("why");
    assert_eq!(
        (&*why.out, why.code),
        ("stuck      control plane: has never run; next: run: kloop reconcile --watch\n", 1)
    );
    let named = cluster.home().join("state.db");
    let told = cluster.kloop(&format!("--state {} get pods", named.display())).err;
    assert!(told.ends_with(&format!("run: kloop --state {} reconcile --watch\n", named.display())), "{told}");
    let plane = cluster.watch();
    plane.until_says("ready: node ");
    plane.until_says("kloop apply -f FILE; kloop get pods; kloop why\n");
    assert!(plane.said().contains(&format!("state file {}\n", named.display())), "{}", plane.said());
    cluster.until_reads("pod/one", "{.status.phase}", "Succeeded");
    assert_eq!(cluster.kloop("get pods").err, "");
}

#[test]
fn missing_cluster_error_says_how_to_create_one() {
    let cluster = Cluster::new();
    let state = cluster.home().join("state.db");
    let hint = format!(
        "hint: there is no cluster at {} yet: kloop apply makes one, and kloop reconcile --watch runs it\n",
        state.display()
    );
    for (line, code) in [("get pods", 0), ("get pod one", 1), ("logs one", 1), ("describe pod one", 1)] {
        let said = cluster.kloop(line);
        assert!(said.code == code && said.err.ends_with(&hint), "{line}: {said:?}");
    }
    assert_eq!(cluster.kloop("wait --for=condition=Ready pod/one --timeout=1s").code, 1);
    assert!(!state.exists(), "no cluster was created");
}

#[test]
fn changes_without_a_control_plane_print_a_hint() {
    let cluster = Cluster::new();
    cluster.apply(POD);
    cluster.ok("reconcile");
    let hint = "hint: no control plane runs: nothing changes until one does (kloop reconcile --watch)\n";
    assert_eq!(cluster.kloop("create deployment web --image=busybox").err, hint);
    assert_eq!(cluster.kloop("scale deployment web --replicas=2").err, hint);
    assert!(cluster.kloop("get deployments").err.starts_with("hint: no control plane runs: this state is "));
    assert_eq!(cluster.kloop("create configmap settings").err, "");
}

#[test]
fn serve_works_on_a_new_state_file_of_any_name() {
    let cluster = Cluster::new();
    let state = cluster.home().join("shop.db").display().to_string();
    let plane = cluster.background(&["serve", "--port=0", "--state", &state]);
    plane.until_says("KUBECONFIG=");
    assert!(cluster.home().join("shop.db.d/kubeconfig").is_file());
    assert_eq!(plane.end("TERM"), 0);
}

#[test]
fn plan_has_colours_on_a_terminal_only() {
    let cluster = Cluster::new();
    let file = cluster.home().join("pod.yaml");
    std::fs::write(&file, POD.replace("name: one", "name: one, labels: {a: b}")).expect("written");
    let file = file.display().to_string();
    let (shown, code) = Screen::run(&cluster, &["plan", "-f", &file]).ended();
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains("\u{1b}[36mapply\u{1b}[0m pod/one: created") && !shown.contains("^["), "{shown}");
    let piped = cluster.run(&["plan", "-f", &file], "");
    assert!(piped.out.contains("apply pod/one: created\n") && !piped.out.contains('\u{1b}'), "{piped:?}");
}

#[test]
fn flags_of_kubectl_scripts_are_accepted() {
    let cluster = Cluster::new();
    cluster.apply(CONFIG);
    let folder = cluster.home();
    let context = folder.file_name().expect("a name").to_string_lossy().into_owned();
    for flags in [
        "-v=6",
        "-v 6",
        "--v=4",
        &format!("--context {context}"),
        "--context kloop",
        "--request-timeout=5s",
        "--user admin",
    ] {
        let said = cluster.kloop(&format!("get configmap settings -o name {flags}"));
        assert_eq!((said.code, &*said.out, &*said.err), (0, "configmap/settings\n", ""), "{flags}");
    }
    let said = cluster.kloop("get configmap settings -o name -s https://127.0.0.1:1");
    let refused = "The connection to the server 127.0.0.1:1 was refused - did you specify the right host or port?\n";
    assert_eq!((said.code, &*said.out, &*said.err), (1, "", refused), "this cluster does not answer for a server");
    let said = cluster.kloop("--context production delete configmap settings");
    assert!(
        said.code == 1
            && said
                .err
                .starts_with("Error in configuration: context was not found for specified context: production\nhint: "),
        "{said:?}"
    );
    let said = cluster.kloop("alpha create pods");
    assert!(said.code == 1 && said.err.starts_with("error: unknown command \"alpha\" for \"kloop\"\n"), "{said:?}");
}

#[test]
fn command_continues_when_nobody_reads_its_warnings() {
    let cluster = Cluster::new();
    let named = |index: usize| format!("---\n{{apiVersion: v1, kind: Endpoints, metadata: {{name: e{index}}}}}\n");
    let (read, write) = nix::unistd::pipe().unwrap();
    drop(read);
    let mut command = cluster.command();
    command.args(["apply", "-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(write);
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all((0..3).map(named).collect::<String>().as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "each object has a warning, which is lost");
    assert_eq!(cluster.ok("get endpoints e0 e1 e2 -o name").lines().count(), 3);
}
