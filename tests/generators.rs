//! The output of verbs for kubectl's flags and arguments, in clusters that nothing runs.

use crate::cluster::Cluster;
use std::fs;

/// Runs command lines with this standard input, and compares their output.
fn print(cluster: &Cluster, stdin: &str, lines: &[(&[&str], &str)]) {
    for (words, expected) in lines {
        let said = cluster.run(words, stdin);
        assert_eq!((said.code, said.out.as_str()), (0, *expected), "{words:?}: {}", said.err);
    }
}

#[test]
fn lists_in_one_value_are_divided_at_commas() {
    let cluster = Cluster::new();
    cluster.apply(WEB);
    let files = [("one", "1"), ("two", "2"), ("one.env", "A=1\n"), ("two.env", "B=2\n")];
    files.iter().for_each(|(name, text)| fs::write(cluster.home().join(name), text).expect("written"));
    let at = cluster.home().display().to_string();
    let (files, envs) =
        (format!("--from-file={at}/one,x={at}/two"), format!("--from-env-file={at}/one.env,{at}/two.env"));
    let dry = "--dry-run=client";
    let names = "jsonpath={.spec.template.spec.containers[*].name}";
    let ports = "jsonpath={range .spec.ports[*]}{.name} {.port} {.targetPort},{end}";
    print(
        &cluster,
        "",
        &[
            (&["create", "deployment", "d", "--image=a,b", "--image=c", dry, "-o", names], "a b c"),
            (&["create", "cm", "m", &files, dry, "-o", "jsonpath={.data}"], "{\"one\":\"1\",\"x\":\"2\"}"),
            (&["create", "cm", "m", &envs, dry, "-o", "jsonpath={.data}"], "{\"A\":\"1\",\"B\":\"2\"}"),
            (&["create", "cm", "m", "--from-literal=a=b,c=d", dry, "-o", "jsonpath={.data}"], "{\"a\":\"b,c=d\"}"),
            (&["expose", "deploy/web", "--port=80,81", dry, "-o", ports], "port-1 80 80,port-2 81 81,"),
            (
                &["expose", "deploy/web", "--port=80,81", "--target-port=9", dry, "-o", ports],
                "port-1 80 9,port-2 81 9,",
            ),
            (&["expose", "deploy/web", "--port=", dry, "-o", "jsonpath={.spec.ports[*].port}"], "8080"),
        ],
    );
    for port in ["80,", "a"] {
        let said = cluster.run(&["expose", "deploy/web", "--port", port], "");
        assert!(said.code == 1 && said.err.starts_with("error: strconv.Atoi: parsing "), "{}", said.err);
    }
}

const WEB: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec: {containers: [{name: web, image: a, ports: [{containerPort: 8080}]}]}
";

#[test]
fn budget_has_the_expressions_of_its_selector() {
    let cluster = Cluster::new();
    let budget = |selector: &str| {
        let words =
            ["create", "pdb", "p", "--max-unavailable=1", "--dry-run=client", "-o", "jsonpath={.spec.selector}"];
        let said = cluster.run(&[&words[..], &["--selector", selector]].concat(), "");
        if said.code == 0 { said.out } else { said.err }
    };
    for (selector, expected) in [
        ("a=b,c==d", r#"{"matchLabels":{"a":"b","c":"d"}}"#),
        ("a in (b,c)", r#"{"matchExpressions":[{"key":"a","operator":"In","values":["b","c"]}]}"#),
        (
            "a=b,e,!f",
            r#"{"matchExpressions":[{"key":"e","operator":"Exists"},{"key":"f","operator":"DoesNotExist"}],"matchLabels":{"a":"b"}}"#,
        ),
        ("a!=b", "error: \"!=\" is not a valid label selector operator\n"),
        ("a>1", "error: \"gt\" isn't supported in label selectors\n"),
        (
            "a in (b",
            "error: couldn't parse the selector string \"a in (b\": unable to parse requirement: found '', expected: ',' or ')'\n",
        ),
    ] {
        assert_eq!(budget(selector), expected, "{selector}");
    }
}

#[test]
fn set_env_reads_standard_input_and_warns_of_missing_containers() {
    let cluster = Cluster::new();
    cluster.apply(WEB);
    let env = "jsonpath={range .spec.template.spec.containers[0].env[*]}{.name}={.value},{end}";
    print(
        &cluster,
        "Q=r\n# a comment\n\nW=1=2\nno pair\n",
        &[
            (&["set", "env", "deploy/web", "-", "-o", env], "Q=r,W=1=2,"),
            (&["set", "env", "deploy/web", "-e", "-", "A=b", "-o", env], "Q=r,W=1=2,A=b,"),
            (&["set", "env", "deploy/web"], ""),
        ],
    );
    let said = cluster.kloop("set env deploy/web -c nope A=c");
    let warning = "Warning: Deployment/web does not have any containers matching \"nope\"\n";
    assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (0, "", warning));
}

#[test]
fn set_prints_unchanged_objects_where_kubectl_does() {
    let cluster = Cluster::new();
    cluster.apply(WEB);
    cluster.ok("create service clusterip web --tcp=80");
    let again = |line: &str| [cluster.ok(line), cluster.ok(line)].map(|out| !out.is_empty());
    assert_eq!(again("set serviceaccount deploy/web robot"), [true, true]);
    assert_eq!(again("set selector service/web a=b"), [true, true]);
    assert_eq!(again("set image deploy/web web=c"), [true, false]);
}

#[test]
fn quoted_patterns_name_files() {
    let cluster = Cluster::new();
    let folder = cluster.home().join("manifests");
    fs::create_dir(&folder).expect("a folder");
    for name in ["a", "b", "c.d"] {
        let text = format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}}}");
        fs::write(folder.join(format!("{name}.yaml")), text).expect("written");
    }
    let at = folder.display().to_string();
    let created =
        |names: &[&str]| names.iter().map(|name| format!("configmap/{name} created (dry run)\n")).collect::<String>();
    for (pattern, names) in [
        ("*.yaml", &["a", "b", "c.d"][..]),
        ("[ab]*", &["a", "b"]),
        ("?.yaml", &["a", "b"]),
        ("../manifest?/b.yaml", &["b"]),
        ("../manifest*", &["a", "b", "c.d"]),
    ] {
        let said = cluster.run(&["create", "--dry-run=client", "-f", &format!("{at}/{pattern}")], "");
        assert_eq!((said.code, said.out), (0, created(names)), "{pattern}: {}", said.err);
    }
    for (pattern, error) in [("*.json", "does not exist"), ("[", "is not valid: syntax error in pattern")] {
        let said = cluster.run(&["apply", "-f", &format!("{at}/{pattern}")], "");
        assert!(said.code == 1 && said.err.contains(error), "{pattern}: {}", said.err);
    }
}

#[test]
fn formats_are_printed_as_kubectl_does() {
    let cluster = Cluster::new();
    cluster.ok("create cm a --from-literal=k=v");
    cluster.ok("create cm b");
    for format in ["NAME", "Name"] {
        assert_eq!(cluster.ok(&format!("get cm a -o {format}")), "configmap/a\n");
    }
    assert!(cluster.ok("get cm a -o JSON").starts_with("{\n"));
    assert!(cluster.ok("get cm a -o Yaml").starts_with("apiVersion: v1\n"));
    assert_eq!(cluster.kloop("get cm a -o WIDE").code, 1);
    let said = cluster.kloop("get cm a -w --output-watch-events -o json --sort-by=.x --request-timeout=1ms");
    let event: serde_json::Value = serde_json::from_str(said.out.trim_end()).expect("one line of JSON");
    assert!(said.out.starts_with("{\"type\":\"ADDED\",\"object\":{") && said.out.lines().count() == 1, "{}", said.out);
    assert_eq!((said.code, &event["object"]["metadata"]["name"]), (0, &"a".into()));
    assert!(said.err.starts_with("warning: --watch requested, --sort-by will be ignored"), "{}", said.err);
}

#[test]
fn watch_of_events_ends_after_the_time_for_a_request() {
    let cluster = Cluster::new();
    cluster.ok("create cm a");
    assert_eq!(cluster.kloop("events -w --request-timeout=1ms").code, 0);
}

#[test]
fn empty_global_flags_and_deprecated_values_are_accepted() {
    let cluster = Cluster::new();
    cluster.ok("create cm a");
    let said = cluster.kloop("delete cm nope --cascade=false --ignore-not-found");
    assert!(said.err.starts_with("warning: --cascade=false is deprecated (boolean value) and can be"), "{}", said.err);
    let said = cluster.run(&["--kubeconfig", "", "--request-timeout", "", "get", "cm", "a", "-o", "name"], "");
    assert_eq!((said.code, said.out.as_str()), (0, "configmap/a\n"), "{}", said.err);
}

#[test]
fn editor_gets_the_format_and_the_objects_that_are_named() {
    let cluster = Cluster::new();
    cluster.ok("create cm a --from-literal=k=old");
    cluster.ok("create cm b --from-literal=k=old");
    let edit = |editor: &str, words: &[&str]| {
        let said = cluster.run_program(cluster.command().env("EDITOR", editor).arg("edit").args(words), "");
        (said.code, said.out, said.err)
    };
    let (code, text, _) = edit("cat", &["cm", "a", "-o", "json"]);
    let edited: serde_json::Value = serde_json::from_str(&text).expect("JSON without comments");
    assert_eq!((code, &edited["data"]["k"]), (0, &"old".into()));
    assert!(edit("cat", &["cm", "a", "-o", "kyaml"]).1.contains("\n{\n  apiVersion: \"v1\",\n"));
    let both = edit("sed -i s/old/new/", &["cm"]);
    assert_eq!((both.0, both.1.as_str()), (0, "configmap/a edited\nconfigmap/b edited\n"), "{}", both.2);
    let refused = [
        (edit("true", &["cm", "a", "-o", "name"]), "allowed formats are: json,kyaml,yaml\n"),
        (edit("truncate -s 0", &["cm", "a"]), "error: Edit cancelled, saved file was empty.\n"),
        (edit("true", &["pods"]), "error: edit cancelled, no objects found\n"),
    ];
    for ((code, _, err), expected) in refused {
        assert!(code == 1 && err.ends_with(expected), "{err}");
    }
    // A file in PATH that may not be executed is not an editor.
    fs::write(cluster.home().join("plain-file"), "").expect("written");
    let mut command = cluster.command();
    command.env("EDITOR", "plain-file").env("PATH", cluster.home()).args(["edit", "cm", "a"]);
    let said = cluster.run_program(&mut command, "");
    assert_eq!((said.code, said.err.as_str()), (1, "error: unable to launch the editor \"plain-file\"\n"));
}

#[test]
fn exit_code_of_a_failure_is_that_of_its_cause() {
    let cluster = Cluster::new();
    let file = cluster.home().join("a.yaml");
    fs::write(&file, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}").expect("written");
    let file = file.display().to_string();
    for (words, code) in [(["--state", &file, "get", "cm"], 67), (["--state", &file, "diff", "-f"], 67)] {
        let words = if words[2] == "diff" { [&words[..], &[&*file]].concat() } else { words.to_vec() };
        assert_eq!(cluster.run(&words, "").code, code, "{words:?}");
    }
    assert_eq!(cluster.run(&["diff", "-f", "nowhere.yaml"], "").code, 2);
}
