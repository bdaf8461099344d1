//! Shell completion: names come from the cluster's file, without characters that a shell would interpret.

use std::path::Path;
use std::process::{Command, Output};

const BINARY: &str = env!("CARGO_BIN_EXE_kloop");

/// Role names may contain any character except `/` and `%`.
const OBJECTS: &str = r#"
{"apiVersion":"v1","kind":"Node","metadata":{"name":"node-a"}}
{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"prod"}}
{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-0","namespace":"prod"},
 "spec":{"containers":[{"name":"app","image":"sh"},{"name":"side","image":"sh"}]}}
{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"odd:one"},"rules":[]}
{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"s$(touch harm)"},"rules":[]}
"#;

fn kloop(state: &Path) -> Command {
    let mut kloop = Command::new(BINARY);
    kloop.env("KLOOP_STATE", state).env_remove("KLOOP_COMPLETE");
    kloop
}

fn ask(state: &Path, shell: &str, words: &[&str]) -> Output {
    kloop(state).env("KLOOP_COMPLETE", shell).arg("--").args(words).output().expect("kloop")
}

fn cluster(folder: &Path) -> std::path::PathBuf {
    let (state, manifest) = (folder.join("cluster/state.db"), folder.join("objects.json"));
    std::fs::write(&manifest, OBJECTS).expect("manifest");
    let applied = kloop(&state).args(["create", "-f"]).arg(manifest).output().expect("kloop");
    assert!(applied.status.success(), "{applied:?}");
    state
}

#[test]
fn names_come_from_the_cluster() {
    let folder = tempfile::tempdir().expect("folder");
    let state = cluster(folder.path());
    for (line, expected) in [
        ("kloop get pods ", ""),
        ("kloop get pods -n prod ", "web-0"),
        ("kloop --namespace=prod describe pod/", "pod/web-0"),
        ("kloop delete pod web-0 -n prod ", ""),
        ("kloop get -n p", "prod"),
        ("kloop logs -n prod ", "web-0"),
        ("kloop logs -n prod web-0 -c s", "side"),
        ("kloop get clusterroles o", "odd\\:one"),
        ("kloop get unicorns ", ""),
        ("kloop drain ", "node-a"),
    ] {
        let mut words: Vec<&str> = line.split(' ').collect();
        words.retain(|word| !word.is_empty());
        words.extend(line.ends_with(' ').then_some(""));
        let output = ask(&state, "zsh", &words);
        let said = String::from_utf8(output.stdout).expect("text");
        assert_eq!((said.trim_end(), output.stderr.len()), (expected, 0), "{line}");
    }
}

#[test]
fn completion_creates_nothing_and_prints_no_errors() {
    let folder = tempfile::tempdir().expect("folder");
    let absent = folder.path().join("none/state.db");
    let broken = folder.path().join("broken.db");
    std::fs::write(&broken, "not a database").expect("file");
    for state in [&absent, &broken] {
        for shell in ["bash", "zsh", "fish", "nonsense"] {
            for words in [&["kloop", "get", "pods", ""][..], &["kloop get pods ", ""], &["\u{1b}", "'", "$("], &[]] {
                let output = ask(state, shell, words);
                assert!(output.status.success() && output.stderr.is_empty(), "{shell} {words:?}: {output:?}");
            }
        }
    }
    assert!(!absent.parent().expect("folder").exists(), "completion created a cluster");
}

#[test]
fn completion_command_prints_the_scripts() {
    for (shell, file) in [("bash", "kloop.bash"), ("zsh", "_kloop"), ("fish", "kloop.fish")] {
        let output = kloop(Path::new("/nowhere")).args(["completion", shell]).output().expect("kloop");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("completions").join(file);
        assert_eq!(String::from_utf8(output.stdout).expect("text"), std::fs::read_to_string(script).expect("script"));
    }
    for (words, error) in [
        (&["completion"][..], "error: Shell not specified."),
        (&["completion", "bash", "zsh"], "error: Too many arguments. Expected only the shell type."),
        (&["completion", "tcsh"], "error: Unsupported shell type \"tcsh\"."),
    ] {
        let output = kloop(Path::new("/nowhere")).args(words).output().expect("kloop");
        let said = String::from_utf8(output.stderr).expect("text");
        assert_eq!(said, format!("{error}\nSee 'kloop completion -h' for help and examples\n"));
        assert_eq!(output.status.code(), Some(1));
    }
}

#[test]
fn bash_completes_with_the_script() {
    let folder = tempfile::tempdir().expect("folder");
    let state = cluster(folder.path());
    let path = format!("{}:/usr/bin:/bin", Path::new(BINARY).parent().expect("folder").display());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/completions/kloop.bash");
    for (line, part, expected) in [
        ("kloop get pods -n prod we", "we", "[web-0]"),
        ("kloop get pods --namespace=pr", "pr", "[prod]"),
        ("kloop get clusterroles o", "o", "[odd:one]"),
        ("kloop get clusterroles odd:", "", "[one]"),
    ] {
        let program = r#"source "$0"; complete -p kloop >/dev/null || exit 1
            COMP_LINE=$1 COMP_POINT=${#1}; _kloop kloop "$2" ""; printf '[%s]' "${COMPREPLY[@]}""#;
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-c", program, script, line, part]).env("PATH", &path).env("KLOOP_STATE", &state);
        let output = bash.current_dir(folder.path()).output().expect("bash");
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{line}: {output:?}");
    }
    assert!(!folder.path().join("harm").exists());
}

#[test]
fn manual_pages_are_printed_or_written() {
    let folder = tempfile::tempdir().expect("folder");
    let man = folder.path().join("man1");
    let printed = kloop(Path::new("/nowhere")).args(["completion", "man"]).output().expect("kloop");
    assert!(String::from_utf8_lossy(&printed.stdout).contains(".TH kloop 1"), "{printed:?}");
    let written = kloop(Path::new("/nowhere")).args(["completion", "man"]).arg(&man).output().expect("kloop");
    assert!(written.status.success() && written.stderr.is_empty(), "{written:?}");
    for page in ["kloop.1", "kloop-get.1", "kloop-rollout-undo.1"] {
        let text = std::fs::read_to_string(man.join(page)).expect("a page");
        assert!(text.contains(".SH SYNOPSIS"), "{page}");
    }
}
