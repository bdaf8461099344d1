//! `kloop up` and `kloop down`: in a terminal, in a script, and with a control plane of another process.

use crate::cluster::Cluster;
use crate::screen::Screen;
use std::fs;

/// A Deployment whose pods print a greeting.
fn greeter(greeting: &str, image: &str) -> String {
    let command = format!("[sh, -c, 'trap exit TERM; echo {greeting} from $HOSTNAME; while :; do sleep 0.1; done']");
    format!(
        "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: web}}, spec: {{replicas: 2, selector: {{matchLabels: {{app: web}}}}, \
         template: {{metadata: {{labels: {{app: web}}}}, spec: {{terminationGracePeriodSeconds: 1, containers: \
         [{{name: web, image: {image}{}}}]}}}}}}}}",
        if image == "busybox" { format!(", command: {command}") } else { String::new() }
    )
}

#[test]
fn up_in_a_terminal_follows_logs_and_applies_changes_until_ctrl_c() {
    let cluster = Cluster::new();
    let manifest = cluster.home().join("web.yaml");
    fs::write(&manifest, greeter("first", "busybox")).unwrap();
    let screen = Screen::run(&cluster, &["up", manifest.to_str().unwrap()]);
    screen.until_shows("deployment.apps/web created");
    screen.until_shows("deployment/web");
    screen.until_shows("1 of 1 ready");
    screen.until_shows("ready in ");
    screen.until_shows("first from web-");
    fs::write(&manifest, greeter("second", "busybox")).unwrap();
    screen.until_shows("deployment.apps/web configured");
    screen.until_shows("second from web-");
    // A failure is explained in place.
    fs::write(&manifest, greeter("third", "no-such-program:1")).unwrap();
    screen.until_shows("deployment/web is failing");
    screen.until_shows("there is no \"no-such-program\"");
    screen.until_shows("next: ");
    screen.types("\u{3}");
    screen.until_shows("ended the processes of ");
    let (said, code) = screen.ended();
    assert!(said.contains("the objects stay") && code == 0, "{code} {said}");
    let nothing = "No processes run here.\nhint: no control plane runs: nothing changes until one does (kloop reconcile --watch)\n";
    assert_eq!(cluster.kloop("ps").err, nothing);
    assert_eq!(cluster.read("deploy/web", "{.spec.replicas}"), "2");
}

#[test]
fn up_for_scripts_waits_reports_and_leaves_the_control_plane_to_down() {
    let cluster = Cluster::new();
    let (manifest, report) = (cluster.home().join("web.yaml"), cluster.home().join("report.xml"));
    fs::write(&manifest, greeter("first", "busybox")).unwrap();
    let (file, junit) = (manifest.display(), report.display());
    let said = cluster.kloop(&format!("up --wait {file} -o json --junit {junit}"));
    let result: serde_json::Value = serde_json::from_str(&said.out).expect(&said.out);
    assert_eq!((said.code, &result["ready"], &result["objects"][0]["pods"]["ready"]), (0, &true.into(), &2.into()));
    assert!(fs::read_to_string(&report).unwrap().contains("failures=\"0\""));
    let processes: serde_json::Value = serde_json::from_str(&cluster.ok("ps -o json")).unwrap();
    assert_eq!(processes.as_array().map(Vec::len), Some(2), "{processes}");
    fs::write(&manifest, greeter("second", "no-such-program:1")).unwrap();
    let said = cluster.kloop(&format!("up --wait --timeout 1s {file} --annotations github"));
    assert!(said.out.contains(&format!("::error file={file},line=1,title=deployment/web::")), "{said:?}");
    assert!(said.code == 1 && said.err.contains("not ready after 1s:\n  deployment/web: "), "{said:?}");
    let said = cluster.kloop("down");
    assert!(
        said.out.ends_with("deployment.apps \"web\" deleted from default namespace\ncontrol plane stopped\n"),
        "{said:?}"
    );
    let nothing = "No processes run here.\nhint: no control plane runs: nothing changes until one does (kloop reconcile --watch)\n";
    assert_eq!(cluster.kloop("ps").err, nothing);
    assert_eq!(cluster.ok("get pods -o name"), "");
}

#[test]
fn up_beside_another_control_plane_leaves_it_running() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.until("a control plane runs", || cluster.kloop("get nodes -o name").out.starts_with("node/"));
    let manifest = cluster.home().join("web.yaml");
    fs::write(&manifest, greeter("first", "busybox")).unwrap();
    let screen = Screen::run(&cluster, &["up", manifest.to_str().unwrap()]);
    screen.until_shows("first from web-");
    screen.types("\u{3}");
    let (said, code) = screen.ended();
    assert!(said.contains("the control plane of another process continues") && code == 0, "{code} {said}");
    let said = cluster.kloop("down");
    assert!(said.code == 0 && said.err.contains("it was not started by kloop up"), "{said:?}");
}

#[test]
fn down_keeps_claims_unless_volumes_are_asked_for() {
    let cluster = Cluster::new();
    let claim = "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], \
                 resources: {requests: {storage: 1Mi}}}}";
    cluster.apply(&format!("{claim}\n---\n{}", greeter("first", "busybox")));
    let said = cluster.kloop("down");
    assert!(said.code == 0 && said.err.contains("1 persistent volume claim stays with the data"), "{said:?}");
    assert_eq!(cluster.ok("get pvc,deployments,pods -o name"), "persistentvolumeclaim/data\n");
    assert_eq!(cluster.kloop("down --volumes").code, 0);
    assert_eq!(cluster.ok("get pvc -o name"), "");
}

#[test]
fn logs_follow_pods_that_come_later() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&greeter("first", "busybox"));
    cluster.ready_pods("app=web", 2);
    let screen = Screen::run(&cluster, &["logs", "-f", "-l", "app=web", "--grep", "from web-", "--since-start"]);
    screen.until_shows("first from web-");
    cluster.apply(&greeter("second", "busybox"));
    screen.until_shows("second from web-");
    // It ends by itself when no pod is left that could log.
    cluster.ok("delete deployment web");
    assert_eq!(screen.ended().1, 0);
}

#[test]
fn history_names_the_loop_that_made_a_change_and_restore_brings_a_backup_back() {
    let cluster = Cluster::new();
    let plane = cluster.watch();
    cluster.apply(&greeter("first", "busybox"));
    cluster.ready_pods("app=web", 2);
    let copy = cluster.home().join("copy.db");
    let pods = cluster.pods("app=web");
    let history = cluster.ok(&format!("history pod/{} --all", pods[0]));
    for part in ["replicaset-controller", "created", "kubelet", "status.phase: Pending -> Running"] {
        assert!(history.contains(part), "{part}: {history}");
    }
    cluster.ok(&format!("state backup {}", copy.display()));
    let said = cluster.kloop(&format!("state restore {}", copy.display()));
    assert!(said.code == 1 && said.err.contains("a control plane runs (pid "), "{said:?}");
    plane.end("INT");
    cluster.ok("delete deployment web");
    let restored = cluster.ok(&format!("state restore {}", copy.display()));
    assert!(restored.contains("restored to "), "{restored}");
    for suffix in ["queue", "write"] {
        assert!(!cluster.home().join(format!("copy.db.{suffix}")).exists(), "the backup is only read");
    }
    let _plane = cluster.watch();
    // The processes of the pods go on, because the copy knows them.
    assert_eq!(cluster.ready_pods("app=web", 2), pods);
}

#[test]
fn tour_runs_the_typed_commands_in_a_cluster_of_its_own() {
    let cluster = Cluster::new();
    let said = cluster.run(&["tour"], "rm -rf /\n\nkloop get deployments -o name\nskip\nquit\n");
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.err.contains("the tour runs commands of kloop"), "{said:?}");
    for part in ["1/", "deployment.apps/web created", "2/", "deployment.apps/web\n", "3/", "its cluster is removed"] {
        assert!(said.out.contains(part), "{part}: {said:?}");
    }
    assert!(!cluster.home().join("state.db").exists(), "the tour left this cluster alone");
}

#[test]
fn earlier_state_is_read_and_brought_back_by_its_revision() {
    let cluster = Cluster::new();
    let revision = |object: &str| -> String {
        let history: serde_json::Value =
            serde_json::from_str(&cluster.ok(&format!("history {object} -o json"))).unwrap();
        history[0]["revision"].to_string()
    };
    cluster.ok("create configmap a --from-literal=x=1");
    let first = revision("cm/a");
    cluster.ok("create secret generic s --from-literal=password=one");
    cluster.ok("patch configmap a -p {\"data\":{\"x\":\"2\"}}");
    cluster.ok("delete configmap a");
    assert_eq!(cluster.ok(&format!("get cm a --at {first} -o jsonpath={{.data.x}}")), "1");
    assert!(cluster.ok(&format!("describe cm a --at {first}")).contains("\nx:\n----\n1\n"));
    assert_eq!(cluster.ok(&format!("get cm,secrets --at {first} -o name")), "configmap/a\n");
    let diff = cluster.kloop(&format!("diff --at {first}"));
    assert!(diff.code == 1 && diff.out.contains("-  x: \"1\"") && diff.out.contains("+  password: '***'"), "{diff:?}");
    assert_eq!(cluster.ok(&format!("undo {first}")), "configmap/a created again\nsecret/s deleted\n");
    assert_eq!(cluster.read("cm/a", "{.data.x}"), "1");
    assert_eq!(cluster.ok("get secrets -o name"), "");
}
