//! Bad input outside of manifests: command lines, files, paths, timeouts and outputs.

use super::*;

#[test]
fn invalid_command_lines_are_refused() {
    let rows: &[(&str, &str)] = &[
        ("frobnicate", "unknown command \"frobnicate\" for \"kloop\""),
        ("apply", "must specify one of -f and -k"),
        ("apply -f", "flag needs an argument"),
        ("apply -f nowhere.yaml", "the path \"nowhere.yaml\" does not exist"),
        ("apply -f - -f -", "standard input cannot be used for multiple arguments"),
        ("apply -f https://example.com/x.yaml", "download it first"),
        ("apply --frob", "unknown flag: --frob"),
        ("apply -f - --dry-run=maybe", "Invalid dry-run value (maybe)"),
        ("get", "You must specify the type of resource to get"),
        ("get nonsense", "the server doesn't have a resource type \"nonsense\""),
        ("get pods nobody", "pods \"nobody\" not found"),
        ("get pods/a/b", "may not have more than one slash"),
        ("get pods a/b", "error: "),
        ("get pods -o nonsense", "unable to match a printer suitable for the output format \"nonsense\""),
        ("get pods -o jsonpath={.items", "error parsing jsonpath"),
        ("get pods -o jsonpath={.items[99999999999]}", "error"),
        ("get pods -o custom-columns=", "custom-columns format specified but no custom columns given"),
        ("get pods -o custom-columns=NAME", "<header>:<json-path-expr>"),
        ("get pods -l a==b==c", "found '==', expected: ',' or 'end of string'"),
        ("get pods -l a>b", "the value must be an integer"),
        ("get pods --field-selector spec.nothing=1", "field label not supported: spec.nothing"),
        ("get pods --sort-by={.spec", "error"),
        ("get pods -n no_such_namespace nobody", "not found"),
        ("delete", "error"),
        ("delete pods", "resource(s) were provided, but no name was specified"),
        ("delete pod nobody", "pods \"nobody\" not found"),
        ("delete pods --all pod", "name cannot be provided when a selector is specified"),
        ("delete pod pod --grace-period=abc", "invalid argument \"abc\""),
        ("delete pod pod --cascade=sideways", "invalid cascade value"),
        ("describe pod nobody", "pods \"nobody\" not found"),
        ("logs", "error"),
        ("logs nobody", "pods \"nobody\" not found"),
        ("logs pod -c nobody", "container nobody is not valid for pod pod"),
        ("scale deploy/web", "required flag(s) \"replicas\" not set"),
        ("scale deploy/web --replicas=abc", "invalid argument \"abc\""),
        (
            "scale deploy/web --replicas=-1",
            "The --replicas=COUNT flag is required, and COUNT must be greater than or equal to 0",
        ),
        ("scale deploy/nobody --replicas=1", "deployments.apps \"nobody\" not found"),
        ("rollout status deploy/nobody", "deployments.apps \"nobody\" not found"),
        ("rollout undo deploy/web --to-revision=99", "unable to find specified revision 99 in history"),
        ("rollout frob deploy/web", "error"),
        ("set image deploy/web nobody=x", "unable to find container named \"nobody\""),
        ("set image deploy/web", "at least one image update is required"),
        ("label pod pod", "at least one label update is required"),
        ("label pod pod a=b=c", "error"),
        ("annotate pod pod", "at least one annotation update is required"),
        ("wait pod/pod --for=frob", "unrecognized condition"),
        ("wait pod/nobody --for=condition=Ready", "pods \"nobody\" not found"),
        ("reconcile --timeout abc", "invalid argument \"abc\""),
        ("reconcile --restart-backoff -- -1s", "error"),
        ("reconcile --restart-backoff=-1s", "must be whole seconds, at least 1s"),
        ("reconcile --restart-backoff-max=1500ms", "must be whole seconds, at least 1s"),
        ("reconcile --restart-backoff=0", "must be whole seconds, at least 1s"),
        ("create -f -", "error"),
    ];
    check_all(rows, |cluster, before, (line, expected)| {
        let said = cluster.kloop(line);
        (format!("kloop {line}"), wrong(cluster, before, &said, 1, expected))
    });
}

#[test]
fn unusual_files_are_refused() {
    let cluster = cluster();
    let home = cluster.home();
    let before = fs::read(home.join("state.db")).expect("state");
    fs::create_dir_all(home.join("empty")).unwrap();
    fs::create_dir_all(home.join("loop/below")).unwrap();
    symlink(home.join("loop"), home.join("loop/below/up")).unwrap();
    symlink(home.join("gone"), home.join("dangling.yaml")).unwrap();
    fs::write(home.join("one.yaml"), "{apiVersion: v1, kind: Nonsense, metadata: {name: x}}").unwrap();
    let rows = [
        ("empty", "recognized file extensions are [.json .yaml .yml]"),
        ("loop", "recognized file extensions are [.json .yaml .yml]"),
        ("loop -R", "recognized file extensions are [.json .yaml .yml]"),
        ("dangling.yaml", "does not exist"),
        ("one.yaml/below", "one.yaml/below"),
        ("state.db", "error parsing"),
    ];
    for (name, expected) in rows {
        let said = cluster.kloop(&format!("apply -f {}/{name}", home.display()));
        assert_eq!(wrong(&cluster, &before, &said, 1, expected), "", "{name}");
    }
    let said = cluster.kloop("apply -f /dev/null");
    assert_eq!((said.code, said.err.as_str()), (1, "error: no objects passed to apply\n"));
}

#[test]
fn bad_document_does_not_stop_the_others() {
    let cluster = Cluster::new();
    let text = "{apiVersion: v1, kind: ConfigMap, metadata: {name: one}}\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: B_D}}\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: two}}\n";
    let said = cluster.run(&["apply", "-f", "-"], text);
    assert_eq!((said.code, said.out.as_str()), (1, "configmap/one created\nconfigmap/two created\n"));
    assert!(said.err.starts_with("The ConfigMap \"B_D\" is invalid: metadata.name: "), "{}", said.err);
}

#[test]
fn invalid_state_paths_are_refused() {
    let cluster = cluster();
    let home = cluster.home();
    fs::write(home.join("text"), "not a database").unwrap();
    fs::set_permissions(home.join("text"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::create_dir_all(home.join("folder")).unwrap();
    symlink(home.join("state.db"), home.join("link.db")).unwrap();
    let rows = [
        ("text", 67, "text"),
        ("folder", 67, "it is a directory"),
        ("link.db", 77, "link.db"),
        ("text/state.db", 67, "it should be a folder"),
    ];
    for (name, code, expected) in rows {
        for verb in ["get pods", "delete cm x", "reconcile"] {
            let path = home.join(name);
            let said = cluster.kloop(&format!("--state {} {verb}", path.display()));
            assert_eq!(said.code, code, "{verb} {name}: {}", said.err);
            assert!(said.err.starts_with("error: ") && said.err.contains(expected), "{verb} {name}: {}", said.err);
        }
    }
    assert_eq!(fs::read_to_string(home.join("text")).unwrap(), "not a database");
}

#[test]
fn type_errors_name_their_line() {
    let cluster = cluster();
    let before = fs::read(cluster.home().join("state.db")).expect("state");
    let rows = [
        (
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata:\n  b: text\n  a: 1\n",
            "hint: STDIN:6: the value of \"data.a\"",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec:\n  containers:\n  - name: c\n    image: x\n    resources:\n      requests:\n        cpu: 1.5.2\n",
            "hint: STDIN:10: the value of \"spec.containers[0].resources.requests.cpu\"",
        ),
    ];
    for (text, expected) in rows {
        for verb in ["apply", "create"] {
            let said = cluster.run(&[verb, "-f", "-"], text);
            assert_eq!(wrong(&cluster, &before, &said, 1, expected), "", "{verb}");
        }
    }
}

#[test]
fn waiting_without_a_control_plane_is_reported() {
    let cluster = cluster();
    for verb in ["rollout status deploy/web --timeout 1s", "wait --for=condition=Available deploy/web --timeout 1s"] {
        let said = cluster.kloop(verb);
        assert_eq!(said.code, 1, "{}", said.err);
        assert_eq!(said.err.matches("hint: no control plane runs").count(), 1, "{}", said.err);
    }
    let said = cluster.kloop("delete pod pod");
    assert!(said.err.is_empty() || said.err.starts_with("hint: "), "{}", said.err);
}

#[test]
fn object_deleted_with_its_owner_is_no_error() {
    let cluster = cluster();
    for verb in ["delete deploy,rs,cm --all", "delete deploy,rs,cm --all --wait=false"] {
        let said = cluster.kloop(verb);
        assert_eq!(said.code, 0, "{}", said.err);
    }
}

#[test]
fn first_apply_creates_the_cluster_and_dry_run_does_not() {
    let cluster = Cluster::new();
    let state = cluster.home().join("new/folder/state.db").display().to_string();
    let file = cluster.home().join("two.yaml");
    let two = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: b}}\n";
    fs::write(&file, two).expect("written");
    let run = |line: &str, input: &str| {
        let words = ["--state", &state].into_iter().chain(line.split_whitespace());
        cluster.run(&words.collect::<Vec<_>>(), input)
    };
    let words = ["apply -f - --dry-run=client", "apply -f - --dry-run=server", "create -f - --dry-run=server"];
    for line in words.into_iter().chain(["create configmap c --dry-run=server"]) {
        let said = run(line, two);
        assert_eq!(said.code, 0, "{line}: {}", said.err);
        assert!(!cluster.home().join("new").exists(), "{line} creates nothing");
    }
    let said = run(&format!("apply -f {}", file.display()), "");
    assert_eq!((said.code, said.out.as_str()), (0, "configmap/a created\nconfigmap/b created\n"), "{}", said.err);
    let said = run("apply -f -", two);
    assert_eq!((said.code, said.out.as_str()), (0, "configmap/a unchanged\nconfigmap/b unchanged\n"), "{}", said.err);
}

#[test]
fn missing_state_paths_are_reported() {
    let cluster = cluster();
    let nowhere = cluster.home().join("no/folder/a.db");
    let unusable = ["/proc/x/state.db".into(), nowhere.clone()];
    for path in &unusable {
        let said = cluster.kloop(&format!("--state {} get pods", path.display()));
        assert_eq!(said.code, 66, "{}", said.err);
        assert!(said.err.starts_with("error: there is no cluster at "), "{}", said.err);
    }
    assert!(!cluster.home().join("no").exists(), "reading creates nothing");
    let said = cluster.kloop("--state /proc/x/state.db create configmap a");
    assert_eq!(said.code, 74, "{}", said.err);
    assert!(said.err.starts_with("error: cannot use /proc/x"), "{}", said.err);
    let empty = cluster.kloop(&format!("--state {} get pods", cluster.home().join("new.db").display()));
    assert_eq!(empty.code, 0);
    let told = "No resources found in default namespace.\nhint: there is no cluster at ";
    assert!(empty.err.starts_with(told), "{}", empty.err);
    assert!(!cluster.home().join("new.db").exists(), "reading creates nothing");
}

#[test]
fn invalid_utf8_arguments_are_refused() {
    let cluster = cluster();
    for words in [vec!["get", "pods", "?"], vec!["?"], vec!["get", "?"], vec!["?", "get"]] {
        let odd = std::ffi::OsStr::from_bytes(b"\xff\xfe");
        let words = words.iter().map(|word| if *word == "?" { odd } else { word.as_ref() });
        let said = cluster.command().args(words).output().expect("kloop runs");
        let err = String::from_utf8_lossy(&said.stderr);
        assert_eq!(said.status.code(), Some(1), "{err}");
        assert!(err.starts_with("error: "), "{err}");
    }
}

#[test]
fn full_output_device_is_reported() {
    let cluster = cluster();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let said = cluster.command().args(["get", "cm"]).stdout(full).output().expect("kloop runs");
    let err = String::from_utf8_lossy(&said.stderr);
    assert_eq!(said.status.code(), Some(74), "{err}");
    assert!(err.starts_with("error: cannot write to standard output: "), "{err}");
}

#[test]
fn hostile_text_does_not_reach_the_terminal() {
    let cluster = Cluster::new();
    let hostile = "red \\e[31m back \\r bell \\a osc \\e]52;c;aGk=\\a csi \\x9b2J rtl \\u202e";
    cluster.apply(&format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: x, annotations: {{note: \"{hostile}\"}}}}, data: {{a: \"{hostile}\"}}}}"));
    let columns = "-o custom-columns=NOTE:.metadata.annotations.note";
    for line in [
        "describe configmap x".to_owned(),
        format!("get configmap x {columns}"),
        "get configmap x".into(),
        "get cm x -o wide".into(),
    ] {
        let said = cluster.ok(&line);
        let bad = said.chars().find(|letter| letter.is_control() && *letter != '\n' && *letter != '\t');
        assert_eq!(bad, None, "kloop {line}: {said:?}");
    }
}

#[test]
fn object_without_last_applied_annotation_does_not_differ() {
    let cluster = Cluster::new();
    let manifest =
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {selector: {matchLabels: {a: b}},
        template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}";
    assert_eq!(cluster.run(&["create", "-f", "-"], manifest).code, 0);
    let said = cluster.run(&["diff", "-f", "-"], manifest);
    assert_eq!((said.code, &*said.out), (0, ""), "{}", said.err);
    let said = cluster.run(&["apply", "-l", "no=such", "-f", "-"], manifest);
    assert_eq!((said.code, &*said.err), (1, "error: no objects passed to apply\n"));
}
