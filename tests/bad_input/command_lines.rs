//! Command lines that a script may write by mistake, such as with an empty variable. They change nothing.

use super::{check_all, wrong};

/// Objects with and without a label.
const FILE: &str = r#"
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, labels: {set: x}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: stone}}
"#;

/// Runs command lines with [`FILE`] as standard input, and checks that they are refused with these errors.
fn refused(lines: &[(&[&str], &str)]) {
    check_all(lines, |cluster, before, (words, expected)| {
        (words.join(" "), wrong(cluster, before, &cluster.run(words, FILE), 1, expected))
    });
}

#[test]
fn blank_selector_does_not_select_everything() {
    let no_name = "error: resource(s) were provided, but no name was specified\n";
    refused(&[
        (&["delete", "cm", "-l", ""], no_name),
        (&["delete", "cm", "-l", " "], no_name),
        (&["delete", "cm", "--field-selector="], no_name),
        (&["delete", "cm,deploy", "-l", "", "-A"], no_name),
        (&["label", "cm", "-l", "", "q=1"], no_name),
        (&["annotate", "cm", "-l", "", "q=1"], no_name),
        (&["scale", "deploy", "-l", "", "--replicas=3"], no_name),
        (&["set", "image", "deploy", "-l", "", "main=x"], no_name),
        (&["set", "env", "deploy", "-l", "", "A=b"], no_name),
        (&["taint", "node", "-l", "", "a=b:NoSchedule"], no_name),
        (&["cordon", "-l", ""], "You must provide one or more resources"),
        (&["drain", "-l", ""], "You must provide one or more resources"),
        (&["logs", "-l", ""], "expected 'logs [-f] [-p] (POD | TYPE/NAME) [-c CONTAINER]'"),
        (
            &["apply", "-f", "-", "--prune", "-l", ""],
            "all resources selected for prune without explicitly passing --all",
        ),
        (&["delete", "cm", "-l", "a in (b"], "that match label selector \"a in (b\""),
        (&["drain", "-l", "a in (b"], "Unable to find \"/v1, Resource=nodes\" that match label selector \"a in (b\""),
        (&["drain", "x", "--pod-selector=a in (b"], "--pod-selector=<pod_selector> must be a valid label selector"),
        (&["delete", "-f", "-", "-l", "a in (b"], "error: the provided selector \"a in (b\" is not valid: "),
        (&["label", "-f", "-", "-l", "a in (b", "q=1"], "error: the provided selector \"a in (b\" is not valid: "),
    ]);
}

#[test]
fn empty_type_or_name_is_refused() {
    let (no_type, no_name) =
        ("the server doesn't have a resource type \"\"", "error: resource name may not be empty\n");
    let no_pair = "arguments in resource/name form must have a single resource and name";
    refused(&[
        (&["get", ""], no_type),
        (&["get", ","], no_type),
        (&["get", "", "-o", "json"], no_type),
        (&["get", "pods,"], no_type),
        (&["patch", "", "x", "-p", "{}"], no_type),
        (&["delete", "", "--all"], no_type),
        (&["rollout", "status", "", "x"], no_type),
        (&["get", "cm,", "settings"], no_pair),
        (&["get", "cm,/settings"], no_pair),
        (&["delete", "cm", "", "--ignore-not-found"], no_name),
        (&["get", "cm", "", "--ignore-not-found"], no_name),
        (&["wait", "cm", "", "--for=delete"], no_name),
    ]);
}

#[test]
fn local_change_needs_files() {
    let no_files = "error: you must specify resources by --filename when --local is set.\n";
    refused(&[
        (&["label", "cm", "settings", "u=2", "--local"], "error: can only use local files by -f pod.yaml or "),
        (&["annotate", "cm", "--all", "u=2", "--local"], "error: can only use local files by -f rsrc.yaml or "),
        (&["set", "image", "deploy/web", "main=x", "--local"], no_files),
        (&["set", "env", "deploy/web", "A=b", "--local"], no_files),
        (&["set", "env", "deploy/web", "--list", "--local"], no_files),
        (&["set", "resources", "deploy", "--all", "--limits=cpu=1", "--local"], no_files),
        (&["set", "sa", "deploy/web", "x", "--local"], no_files),
        (&["patch", "cm", "settings", "-p", "{}", "--local"], no_files),
    ]);
}

#[test]
fn flags_that_kubectl_refuses_are_refused() {
    let verbs = "error: at least one verb must be specified\n";
    let timeout = "--pod-running-timeout must be higher than zero";
    refused(&[
        (&["set", "env", "deploy/web", "BAD KEY=x"], "error: \"BAD KEY\" is not a valid key name: "),
        (&["set", "env", "deploy/web", "-e", "1A=x"], "error: \"1A\" is not a valid key name: "),
        (&["autoscale", "deploy/web", "--max=3", "--cpu=50%", "--cpu-percent=20"], "are mutually exclusive"),
        (&["create", "role", "x", "--verb=", "--resource=pods"], verbs),
        (&["create", "clusterrole", "x", "--verb=", "--resource=pods"], verbs),
        (&["create", "role", "x", "--verb=get", "--resource="], "error: at least one resource must be specified\n"),
        (&["delete", "cm", "--all", "--field-selector=metadata.name=stone"], "found a non empty selector"),
        (&["delete", "cm", "settings", "--now", "--force"], "--force and --grace-period greater than 0"),
        (&["replace", "-f", "-", "--force", "--dry-run=client"], "--dry-run can not be used when --force is set"),
        (&["run", "x", "--image=busybox", "--pod-running-timeout=0"], timeout),
        (&["run", "x", "--image=busybox", "-i", "--pod-running-timeout=-1s"], timeout),
    ]);
}

#[test]
fn unusable_output_format_is_refused_before_the_write() {
    let (printer, path) = ("unable to match a printer suitable for the output format", "error parsing jsonpath {.a");
    refused(&[
        (&["create", "cm", "x", "-o", "custom-columns=A"], printer),
        (&["create", "cm", "x", "-o", "jsonpath={.a"], path),
        (&["create", "-f", "-", "-o", "wide"], printer),
        (&["run", "x", "--image=busybox", "-o", "wide"], printer),
        (&["apply", "-f", "-", "-o", "wide"], printer),
        (&["label", "cm", "settings", "a=b", "-o", "jsonpath={.a"], path),
        (&["scale", "deploy/web", "--replicas=5", "-o", "wide"], printer),
        (&["expose", "deploy/web", "--port=80", "-o", "wide"], printer),
        (&["patch", "cm", "settings", "-p", "{data: {a: b}}", "-o", "wide"], printer),
    ]);
}
