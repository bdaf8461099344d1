//! `config`: the default namespace is stored beside the cluster; messages are kubectl's.

use std::path::Path;
use std::process::Command;

/// Standard output, standard error and whether the command succeeded.
fn kloop(state: &Path, words: &str) -> (String, String, bool) {
    let mut kloop = Command::new(env!("CARGO_BIN_EXE_kloop"));
    let output = kloop.args(words.split(' ')).env("KLOOP_STATE", state).env_remove("KLOOP_COMPLETE").output();
    let output = output.expect("kloop");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (text(output.stdout), text(output.stderr), output.status.success())
}

#[test]
fn commands_use_the_namespace_that_was_set() {
    let folder = tempfile::tempdir().expect("folder");
    let state = folder.path().join("harbour/state.db");
    let said = |words: &str| kloop(&state, words).0;
    let namespace = "config view --minify -o jsonpath={.contexts[0].context.namespace}";
    assert_eq!(said(namespace), "default");
    assert_eq!(said("config current-context"), "harbour\n");
    assert!(!state.exists(), "reading created a cluster");

    assert_eq!(said("config set-context --current --namespace=kube-system"), "Context \"harbour\" modified.\n");
    assert_eq!(said(namespace), "kube-system");
    let table =
        "CURRENT   NAME      CLUSTER   AUTHINFO   NAMESPACE\n*         harbour   harbour   admin      kube-system\n";
    assert_eq!(said("config get-contexts"), table);
    let first_line = |words| kloop(&state, words).1.lines().next().map(str::to_owned);
    assert_eq!(first_line("get pods").as_deref(), Some("No resources found in kube-system namespace."));
    assert_eq!(first_line("get pods -n default").as_deref(), Some("No resources found in default namespace."));

    assert_eq!(said("config set-context harbour --namespace="), "Context \"harbour\" modified.\n");
    assert_eq!(said(namespace), "default");
    assert_eq!(said("config use-context harbour"), "Switched to context \"harbour\".\n");
}

#[test]
fn context_can_be_renamed() {
    let folder = tempfile::tempdir().expect("folder");
    let state = folder.path().join("harbour/state.db");
    let refused = kloop(&state, "get namespaces --context kind-dev -o name");
    let remedy = "\"kloop config rename-context harbour kind-dev\" gives it that name";
    assert!(!refused.2 && refused.1.contains(remedy), "{refused:?}");
    let (said, ..) = kloop(&state, "config rename-context harbour kind-dev");
    assert_eq!(said, "Context \"harbour\" renamed to \"kind-dev\".\n");
    assert_eq!(kloop(&state, "config current-context").0, "kind-dev\n");
    for flags in ["--context kind-dev", "--cluster kind-dev", "--context harbour", "--context kloop"] {
        let said = kloop(&state, &format!("get namespace default -o name {flags}"));
        assert_eq!(said, ("namespace/default\n".into(), String::new(), true), "{flags}");
    }
    let missing = kloop(&state, "config rename-context harbour sea").1;
    let state = state.display();
    assert_eq!(missing, format!("error: cannot rename the context \"harbour\", it's not in {state}\n"));
}

#[test]
fn impossible_configuration_is_refused() {
    let folder = tempfile::tempdir().expect("folder");
    let state = folder.path().join("harbour/state.db");
    for (words, error) in [
        ("config use-context sea", "error: no context exists with the name: \"sea\" ("),
        ("config set-context sea", "error: no context exists with the name: \"sea\" ("),
        ("config set-context harbour --current", "error: you cannot specify both a context name and --current\n"),
        ("config set-context --current --namespace=../x", "error: invalid namespace \"../x\": "),
        ("config rename-context harbour", "error: Unexpected args: [harbour]\n"),
        (
            "config rename-context harbour harbour",
            "error: cannot rename the context \"harbour\", the context \"harbour\" al",
        ),
        ("config get-contexts sea", "error: context sea not found\n"),
        ("config get-contexts -o json", "error: output must be one of '' or 'name': json\n"),
    ] {
        let (stdout, stderr, well) = kloop(&state, words);
        assert!(stdout.is_empty() && stderr.starts_with(error) && !well, "{words}: {stdout}{stderr}");
    }
    assert!(!state.exists(), "a refused command created a cluster");
}

#[test]
fn entries_of_a_kubeconfig_are_those_of_the_state_file() {
    let folder = tempfile::tempdir().expect("folder");
    let state = folder.path().join("harbour/state.db");
    for (words, said) in [
        ("config get-clusters", "NAME\nharbour\n"),
        ("config get-users", "NAME\nadmin\n"),
        ("config set current-context harbour", "Property \"current-context\" set.\n"),
        ("config set contexts.harbour.namespace kube-system", "Property \"contexts.harbour.namespace\" set.\n"),
        ("config view -o jsonpath={.contexts[0].context.namespace}", "kube-system"),
        ("config unset contexts.harbour.namespace", "Property \"contexts.harbour.namespace\" unset.\n"),
        ("config view -o jsonpath={.contexts[0].context.namespace}", "default"),
    ] {
        assert_eq!(kloop(&state, words), (said.to_owned(), String::new(), true), "{words}");
    }
    for (words, error) in [
        ("config set-cluster sea --server=https://a", "error: cannot set cluster \"sea\": the cluster is the file "),
        ("config set-credentials sam --token=x", "error: cannot set user \"sam\": the only user is \"admin\": "),
        ("config delete-cluster sea", "error: cannot delete cluster sea, not in "),
        ("config delete-context harbour", "error: cannot delete context harbour: it is the file "),
        ("config delete-user sam", "error: cannot delete user sam, not in "),
        ("config set users.sam.token x", "error: cannot set \"users.sam.token\": only "),
        ("config unset current-context", "error: cannot unset \"current-context\": only "),
        ("config set a", "error: Unexpected args: [a]\n"),
    ] {
        let (stdout, stderr, well) = kloop(&state, words);
        assert!(stdout.is_empty() && stderr.starts_with(error) && !well, "{words}: {stdout}{stderr}");
    }
}

#[test]
fn identities_that_cannot_act_are_refused() {
    let folder = tempfile::tempdir().expect("folder");
    let state = folder.path().join("harbour/state.db");
    for (words, error) in [
        ("backup a.db --as=jane", "error: --as is not supported by \"kloop backup\": "),
        (
            "get pods --as-group=devs",
            "error: requesting uid, groups or user-extra for admin without impersonating a user\n",
        ),
        ("get pods --token=x", "error: --token is not supported: "),
    ] {
        let (stdout, stderr, well) = kloop(&state, words);
        assert!(stdout.is_empty() && stderr.starts_with(error) && !well, "{words}: {stdout}{stderr}");
    }
}
