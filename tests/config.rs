//! `config`: contexts in their file, and the context of a state file without an entry; messages are kubectl's.

use std::path::Path;
use std::process::Command;

/// Standard output, standard error and whether the command succeeded.
fn kloop(state: &Path, words: &str) -> (String, String, bool) {
    let mut kloop = Command::new(env!("CARGO_BIN_EXE_kloop"));
    kloop.env("KLOOP_STATE", state).env("KLOOP_CONFIG", state.with_file_name("no-contexts"));
    output_of(&mut kloop, words)
}

/// Runs kloop as a user does who has a home and sets no variables.
fn kloop_at(home: &Path, words: &str) -> (String, String, bool) {
    let mut kloop = Command::new(env!("CARGO_BIN_EXE_kloop"));
    kloop.env("HOME", home).current_dir(home);
    for name in ["KLOOP_STATE", "KLOOP_CONFIG", "XDG_STATE_HOME", "XDG_CONFIG_HOME"] {
        kloop.env_remove(name);
    }
    output_of(&mut kloop, words)
}

/// The words that a shell offers after a command line.
fn offered(home: &Path, line: &str) -> Vec<String> {
    let mut kloop = Command::new(env!("CARGO_BIN_EXE_kloop"));
    kloop.env("HOME", home).env("KLOOP_COMPLETE", "fish");
    for name in ["KLOOP_STATE", "KLOOP_CONFIG", "XDG_STATE_HOME", "XDG_CONFIG_HOME"] {
        kloop.env_remove(name);
    }
    let output = kloop.current_dir(home).args(["--", "kloop"]).args(line.split(' ')).output().expect("kloop");
    String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect()
}

fn output_of(kloop: &mut Command, words: &str) -> (String, String, bool) {
    let output = kloop.args(words.split(' ')).env_remove("KLOOP_COMPLETE").output().expect("kloop");
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
    let file = state.with_file_name("no-contexts");
    assert_eq!(missing, format!("error: cannot rename the context \"harbour\", it's not in {}\n", file.display()));
}

#[test]
fn impossible_configuration_is_refused() {
    let folder = tempfile::tempdir().expect("folder");
    let state = folder.path().join("harbour/state.db");
    for (words, error) in [
        (
            "config use-context sea",
            "error: no context exists with the name: \"sea\"\nhint: kloop config set-context sea --state",
        ),
        ("config set-context", "error: you must specify a non-empty context name or --current\n"),
        (
            "config set-context harbour --cluster=sea",
            "error: cannot set the cluster or the user of context \"harbour\": it is the s",
        ),
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
        ("config set-cluster harbour --server=/a", "error: cannot set cluster \"harbour\": it is the state file "),
        ("config delete-cluster sea", "error: cannot delete cluster sea, not in "),
        ("config delete-context harbour", "error: cannot delete context harbour: it is the state file "),
        ("config delete-user sam", "error: cannot delete user sam, not in "),
        ("config delete-user admin", "error: cannot delete user admin: everyone who can open "),
        ("config set users.sam x", "error: can't set a map to a value: "),
        ("config set colour x", "error: unable to parse colour after [] at api.Config\n"),
        ("config set contexts.harbour.user x", "error: cannot change contexts.harbour.user: it is the state file "),
        ("config unset contexts.sea.user", "error: current map key `sea` is invalid\n"),
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

/// Makes a home with the state files `a.db` and `b.db`, which have the namespaces `at-a` and `at-b`, and a context for each.
fn home_with_contexts() -> tempfile::TempDir {
    let home = tempfile::tempdir().expect("folder");
    for name in ["a", "b"] {
        let state = format!("--state {name}.db");
        let (said, error, _) = kloop_at(home.path(), &format!("{state} create namespace at-{name}"));
        assert_eq!(said, format!("namespace/at-{name} created\n"), "{error}");
        let said = kloop_at(home.path(), &format!("config set-context {name} {state}"));
        assert_eq!(said, (format!("Context \"{name}\" created.\n"), String::new(), true));
    }
    home
}

/// The namespaces of the cluster that a command finds, without those of every cluster.
fn namespaces(home: &Path, flags: &str) -> String {
    let (said, error, _) = kloop_at(home, format!("get ns -o name {flags}").trim());
    assert_eq!(error, "");
    let own = said.lines().filter_map(|line| line.strip_prefix("namespace/")).filter(|name| name.starts_with("at-"));
    own.collect::<Vec<_>>().join(" ")
}

#[test]
fn context_chooses_the_state_file_of_every_verb() {
    let home = home_with_contexts();
    let home = home.path();
    let said = |words: &str| kloop_at(home, words).0;
    assert_eq!(said("config current-context"), "default\n", "the state file without a context");
    assert_eq!(namespaces(home, "--context a"), "at-a");
    assert_eq!(said("config use-context b"), "Switched to context \"b\".\n");
    assert_eq!((namespaces(home, ""), namespaces(home, "--context a")), ("at-b".into(), "at-a".into()));
    assert_eq!((namespaces(home, "--cluster a"), namespaces(home, "--state a.db")), ("at-a".into(), "at-a".into()));
    assert_eq!(namespaces(home, &format!("-s {}/a.db", home.display())), "at-a");

    assert_eq!(said("config set-context --current --namespace=at-b"), "Context \"b\" modified.\n");
    assert_eq!(said("create configmap one"), "configmap/one created\n");
    assert_eq!(said("get configmaps -n at-b -o name --context b"), "configmap/one\n");
    assert_eq!(said("config set-context b2 --cluster=b --namespace=default"), "Context \"b2\" created.\n");
    assert!(!said("get configmaps -o name --context b2").contains("one"), "another namespace of the same cluster");
    let table = "\
CURRENT   NAME      CLUSTER   AUTHINFO   NAMESPACE
          a         a                    
*         b         b                    at-b
          b2        b                    default
          default   default   admin      default
";
    assert_eq!(said("config get-contexts"), table);
    assert_eq!(said("config get-contexts -o name"), "a\nb\nb2\ndefault\n");
    assert_eq!(said("config get-clusters"), "NAME\na\nb\ndefault\n");

    assert_eq!(offered(home, "config use-context "), ["a", "b", "b2", "default"]);
    assert_eq!(offered(home, "get --cluster "), ["a", "b", "default"]);
    assert!(offered(home, "get --context a -n ").contains(&"at-a".to_owned()), "the namespaces of that cluster");

    assert_eq!(said("config use-context default"), "Switched to context \"default\".\n");
    assert_eq!((namespaces(home, ""), said("config current-context")), (String::new(), "default\n".into()));
    assert_eq!(said("config rename-context default mine"), "Context \"default\" renamed to \"mine\".\n");
    assert_eq!((namespaces(home, ""), said("config current-context")), (String::new(), "mine\n".into()));
}

#[test]
fn variable_wins_over_the_current_context() {
    let home = home_with_contexts();
    let run = |words: &str| {
        let mut kloop = Command::new(env!("CARGO_BIN_EXE_kloop"));
        kloop.env("HOME", home.path()).env("KLOOP_STATE", home.path().join("a.db"));
        kloop.env_remove("KLOOP_CONFIG").env_remove("XDG_CONFIG_HOME");
        output_of(&mut kloop, words)
    };
    let (said, hint, _) = run("config use-context b");
    assert_eq!(said, "Switched to context \"b\".\n");
    assert!(hint.starts_with("hint: KLOOP_STATE wins over the current context"), "{hint}");
    assert!(run("get ns -o name").0.contains("at-a") && run("get ns -o name --context b").0.contains("at-b"));
    assert_eq!(namespaces(home.path(), ""), "at-b");
}

#[test]
fn entries_are_changed_as_kubectl_changes_them() {
    let home = home_with_contexts();
    let home = home.path();
    let file = home.join(".config/kloop/config");
    let path = file.display();
    for (words, expected) in [
        ("config set-cluster c --server=c.db", "Cluster \"c\" set.\n".to_owned()),
        ("config set-context c --cluster=a --user=ann", "Context \"c\" created.\n".into()),
        ("config set users.ann.as ann", "Property \"users.ann.as\" set.\n".into()),
        ("config rename-context c sea", "Context \"c\" renamed to \"sea\".\n".into()),
        ("config set current-context sea", "Property \"current-context\" set.\n".into()),
        ("config set contexts.sea.namespace blue", "Property \"contexts.sea.namespace\" set.\n".into()),
        ("config view --minify -o jsonpath={..namespace}", "blue".into()),
        ("config unset contexts.sea.namespace", "Property \"contexts.sea.namespace\" unset.\n".into()),
        ("config set-credentials bob --token=secret", "User \"bob\" set.\n".into()),
        ("config view -o jsonpath={.users[?(@.name==\"bob\")].user.token}", "REDACTED".into()),
        ("config view --raw -o jsonpath={.users[?(@.name==\"bob\")].user.token}", "secret".into()),
        ("config set-credentials bob --username=bob --password=x", "User \"bob\" set.\n".into()),
        (
            "config view --raw -o jsonpath={.users[?(@.name==\"bob\")].user}",
            r#"{"password":"x","username":"bob"}"#.into(),
        ),
        ("config get-users", "NAME\nadmin\nann\nbob\n".into()),
        ("config delete-user bob", format!("deleted user bob from {path}\n")),
        ("config delete-context b", format!("deleted context b from {path}\n")),
        ("config delete-cluster b", format!("deleted cluster b from {path}\n")),
        ("config unset current-context", "Property \"current-context\" unset.\n".into()),
        ("config current-context", "default\n".into()),
        ("config use-context sea", "Switched to context \"sea\".\n".into()),
    ] {
        assert_eq!(kloop_at(home, words), (expected, String::new(), true), "{words}");
    }
    let (_, refused, _) = kloop_at(home, "get pods");
    assert!(refused.contains("User \"ann\" cannot list resource \"pods\""), "the context's user: {refused}");
    let (_, warned, _) = kloop_at(home, "config delete-context sea");
    assert_eq!(
        warned,
        "warning: this removed your active context, use \"kloop config use-context\" to select a different one\n"
    );
    let (_, refused, _) = kloop_at(home, "get pods");
    assert!(
        refused.starts_with("Error in configuration: context was not found for specified context: sea\n"),
        "{refused}"
    );
    let text = std::fs::read_to_string(&file).expect("written");
    assert!(text.starts_with("apiVersion: v1\nclusters:\n- cluster:\n    server: file:///"), "{text}");
}

#[test]
fn servers_are_never_confused_with_this_cluster() {
    let home = home_with_contexts();
    let home = home.path();
    let (said, hint, _) = kloop_at(home, "config set-cluster prod --server=https://10.0.0.1:6443");
    assert_eq!(said, "Cluster \"prod\" set.\n");
    assert!(hint.starts_with("hint: https://10.0.0.1:6443 is not a state file"), "{hint}");
    kloop_at(home, "config set-context prod --cluster=prod");
    std::fs::write(home.join("admin.conf"), std::fs::read(home.join(".config/kloop/config")).expect("written"))
        .expect("written");
    for (words, error) in [
        (
            "ps --context prod",
            "error: \"kloop ps\" needs a state file, and the cluster is the server https://10.0.0.1:6443",
        ),
        ("ps --kubeconfig admin.conf --context prod", "error: \"kloop ps\" needs a state file"),
        ("get pods --kubeconfig admin.conf", "error: admin.conf has no current context\n"),
        ("get pods --kubeconfig none.conf", "error: stat none.conf: no such file or directory\n"),
        (
            "ps -s https://10.0.0.1:6443",
            "error: \"kloop ps\" needs a state file, and the cluster is the server https://10",
        ),
        ("get pods -s https://127.0.0.1:9", "The connection to the server 127.0.0.1:9 was refused"),
        ("get pods --context a --state b.db", "error: --state names the file b.db, but the context names "),
        (
            "get pods --context sea",
            "Error in configuration: context was not found for specified context: sea\nhint: kloop config get-contexts lists",
        ),
    ] {
        let (said, refused, well) = kloop_at(home, words);
        assert!(said.is_empty() && refused.starts_with(error) && !well, "{words}: {said}{refused}");
    }
    assert!(kloop_at(home, "get ns --kubeconfig admin.conf --context a -o name").0.contains("at-a"));
    std::fs::write(home.join(".config/kloop/config"), "contexts: {").expect("written");
    let (_, refused, _) = kloop_at(home, "get pods");
    assert!(
        refused.starts_with(&format!("error: error loading config file \"{}/.config", home.display())),
        "{refused}"
    );
}
