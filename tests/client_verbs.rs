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

#[test]
fn verbs_act_with_the_rights_of_another_user() {
    let cluster = Cluster::new();
    cluster.ok("create configmap settings --from-literal=a=1");
    cluster.ok("create deployment web --image=acme/web");
    let refused = |line: &str, words: &str| {
        let said = cluster.kloop(&format!("--as=ann {line}"));
        assert!(said.code == 1 && said.err.contains(words), "{line}: {}", said.err);
    };
    let cannot = |what: &str| format!("User \"ann\" cannot {what} in the namespace \"default\"");
    let of_deployments = |verb: &str, path: &str| cannot(&format!("{verb} resource \"{path}\" in API group \"apps\""));
    refused("describe configmap settings", &cannot("get resource \"configmaps\" in API group \"\""));
    refused("wait --for=create configmap/settings", &cannot("get resource \"configmaps\" in API group \"\""));
    refused("set image deployment/web web=acme/web:2", &of_deployments("get", "deployments"));
    refused("rollout history deployment/web", &of_deployments("get", "deployments"));
    refused("get --raw /api/v1/namespaces/default/secrets", &cannot("list resource \"secrets\" in API group \"\""));
    refused("backup a.db", "--as is not supported by \"kloop backup\"");
    for line in ["why deployment/web", "history", "ps", "undo --dry-run"] {
        refused(line, "User \"ann\" cannot list resource \"*\" in API group \"*\" at the cluster scope");
    }
    cluster.ok("create role looks --verb=get,list --resource=configmaps,deployments,replicasets.apps,events");
    cluster.ok("create rolebinding ann-looks --role=looks --user=ann");
    assert!(cluster.ok("describe configmap settings --as=ann").contains("settings"));
    assert!(cluster.ok("get --raw /api/v1/namespaces/default/configmaps --as=ann").contains("settings"));
    refused("set image deployment/web web=acme/web:2", &of_deployments("patch", "deployments"));
    refused("scale deployment/web --replicas=3", &of_deployments("patch", "deployments/scale"));
    refused("autoscale deployment/web --max=3", "cannot create resource \"horizontalpodautoscalers\"");
    refused("run shell --image=busybox", &cannot("create resource \"pods\" in API group \"\""));
    cluster.apply(
        "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: sees}, rules: [{apiGroups: ['*'], resources: ['*'],
        verbs: [get, list]}]}",
    );
    cluster.ok("create clusterrolebinding ann-sees --clusterrole=sees --user=ann");
    assert!(cluster.ok("history --as=ann").contains("settings"));
    refused("undo", "cannot delete resource");
}

#[test]
fn sessions_and_logs_need_their_own_rights() {
    let cluster = Cluster::new();
    let pod = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "acme/web"}]}}"#;
    cluster.apply(pod);
    cluster.ok("create role looks --verb=get,list --resource=pods");
    cluster.ok("create rolebinding ann-looks --role=looks --group=devs");
    for (line, verb, subresource) in [
        ("logs web", "get", "log"),
        ("exec web -- true", "create", "exec"),
        ("attach web", "create", "attach"),
        ("cp web:/a b", "create", "exec"),
        ("debug web --image=busybox", "patch", "ephemeralcontainers"),
    ] {
        let said = cluster.kloop(&format!("--as=ann --as-group=devs {line}"));
        let wanted = format!(
            "Error from server (Forbidden): pods \"web\" is forbidden: User \"ann\" cannot {verb} resource \"pods/{subresource}\" in API \
             group \"\" in the namespace \"default\"\n"
        );
        assert!(said.code == 1 && said.err.ends_with(&wanted), "{line}: {}", said.err);
    }
    cluster.ok("create role enters --verb=create,get --resource=pods/exec,pods/log");
    cluster.ok("create rolebinding ann-enters --role=enters --user=ann");
    for line in ["logs web", "exec web -- true"] {
        let said = cluster.kloop(&format!("--as=ann --as-group=devs {line}"));
        assert!(!said.err.contains("forbidden"), "it is allowed, and the pod does not run: {}", said.err);
    }
}

const ROLE: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: made, namespace: fresh}
rules: [{apiGroups: [""], resources: [pods], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: made, namespace: fresh}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: made}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ann}]
"#;

#[test]
fn auth_reconcile_adds_what_is_missing_and_removes_what_it_is_told_to() {
    let cluster = Cluster::new();
    let reconcile = |flags: &[&str], manifest: &str| {
        let said = cluster.run(&[&["auth", "reconcile", "-f", "-"], flags].concat(), manifest);
        assert_eq!(said.code, 0, "{}", said.err);
        (said.out, said.err)
    };
    let done =
        "role.rbac.authorization.k8s.io/made reconciled\nrolebinding.rbac.authorization.k8s.io/made reconciled\n";
    let (out, err) = reconcile(&[], ROLE);
    assert_eq!(out, done);
    assert!(
        err.starts_with("\treconciliation required create\n\tmissing rules added:\n\t\t{Verbs:[get] APIGroups:[]"),
        "{err}"
    );
    assert_eq!(reconcile(&[], ROLE), (done.to_owned(), String::new()), "nothing is left to do");
    let other = ROLE.replace("[get, list]", "[get, watch]").replace("name: ann", "name: bob");
    let (_, err) = reconcile(&[], &other);
    assert!(
        err.contains("\textra rules not removed:\n\t\t{Verbs:[list]") && err.contains("extra subjects not removed"),
        "{err}"
    );
    let rules = |path: &str| cluster.ok(&format!("get role made -n fresh -o jsonpath={path}"));
    assert_eq!(rules("{.rules[*].verbs}"), "[\"get\",\"list\"] [\"watch\"]");
    reconcile(&["--remove-extra-permissions", "--remove-extra-subjects"], &other);
    assert_eq!(rules("{.rules[*].verbs}"), "[\"get\",\"watch\"]");
    let subjects = cluster.ok("get rolebinding made -n fresh -o jsonpath={.subjects[*].name}");
    assert_eq!(subjects, "bob");
}

#[test]
fn last_applied_is_edited_and_pruned_objects_are_in_the_diff() {
    let cluster = Cluster::new();
    let folder = tempfile::tempdir().expect("folder");
    let map = |name: &str| {
        format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, labels: {{app: a}}}}, data: {{key: old}}}}\n"
        )
    };
    let (all, one) = (folder.path().join("all.yaml"), folder.path().join("one.yaml"));
    fs::write(&all, format!("{}---\n{}", map("one"), map("two"))).expect("written");
    fs::write(&one, map("one")).expect("written");
    cluster.ok(&format!("apply -f {}", all.display()));
    write_program(folder.path(), "editor", "sed -i s/old/new/ \"$1\"", 0o755);
    let mut command = cluster.command();
    command.env("EDITOR", folder.path().join("editor")).args(["apply", "edit-last-applied", "configmap/one"]);
    let said = cluster.run_program(&mut command, "");
    assert_eq!((said.code, said.out.as_str()), (0, "configmap/one edited\n"), "{said:?}");
    assert!(cluster.ok("apply view-last-applied configmap/one").contains("key: new"));
    assert_eq!(cluster.read("configmap/one", "{.data.key}"), "old", "only the annotation is changed");
    let said = cluster.kloop(&format!("diff --prune -l app=a -f {}", one.display()));
    let has_gone = |name: &str| said.out.contains(&format!("\n-  name: {name}\n"));
    assert!(said.code == 1 && has_gone("two") && !has_gone("one"), "{said:?}");
    let mut command = cluster.command();
    command.env("EDITOR", folder.path().join("editor")).args(["create", "--edit", "-f", "-"]);
    let said = cluster.run_program(&mut command, &map("three"));
    assert_eq!((said.code, cluster.read("configmap/three", "{.data.key}").as_str()), (0, "new"), "{said:?}");
}

#[test]
fn flags_that_exclude_each_other_or_need_files_are_refused() {
    let cluster = Cluster::new();
    cluster.ok("create deployment web --image=acme/web --replicas=3");
    for (words, error) in [
        ("get deployments --show-labels -o yaml", "error: --show-labels option cannot be used with yaml printer\n"),
        (
            "run a --image=busybox -f a.yaml",
            "error: run makes a pod from its flags, and reads no files\nhint: kloop create -f ",
        ),
    ] {
        let said = cluster.kloop(words);
        assert!(said.code == 1 && said.err.starts_with(error), "{words}: {}", said.err);
    }
    let scale = cluster.ok("get deployment web --subresource=scale");
    assert!(scale.starts_with("NAME   DESIRED   AVAILABLE   AGE\nweb    3         0           "), "{scale}");
    let template = cluster.ok("cluster-info dump -o go-template --template={{.kind}},");
    assert!(template.starts_with("NodeList,EventList,"), "{template}");
    let version = cluster.ok("version --client");
    let names: Vec<&str> = version.lines().filter_map(|line| line.split(": ").next()).collect();
    assert_eq!(names, ["Client Version", "Kustomize Version", "kloop Version"], "{version}");
    assert!(!cluster.ok("version --client -o json").contains("serverVersion"));
}

#[test]
fn manifest_without_the_uid_that_it_had_is_applied() {
    let cluster = Cluster::new();
    let map = |more: &str| format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: one{more}}}}}");
    cluster.apply(&map(""));
    let uid = cluster.read("configmap/one", "{.metadata.uid}");
    cluster.apply(&map(&format!(", uid: {uid}")));
    cluster.apply(&map(""));
    assert_eq!(cluster.read("configmap/one", "{.metadata.uid}"), uid);
    let said = cluster.run(&["apply", "-f", "-"], &map(", uid: other"));
    assert!(said.code == 1, "the uid cannot be changed: {}", said.err);
}
