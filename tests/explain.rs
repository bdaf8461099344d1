//! `explain` compared with kubectl's output, byte for byte.

use crate::golden::{self, Step};
use std::path::Path;
use std::process::{Command, Output};

fn kloop(state: &Path, words: &str) -> Output {
    let mut kloop = Command::new(env!("CARGO_BIN_EXE_kloop"));
    kloop.args(words.split_whitespace()).env("KLOOP_STATE", state).env_remove("COMPLETE").output().expect("kloop")
}

/// Returns the differences in the answers of a scenario, and the number of commands.
fn differences(scenario: &str, state: &Path) -> (usize, String) {
    let (mut asked, mut wrong) = (0, String::new());
    for Step { command, stdout, stderr, code, .. } in golden::steps(scenario) {
        let Some(words) = command.strip_prefix("kubectl ").filter(|words| words.starts_with("explain")) else {
            continue;
        };
        let output = kloop(state, words);
        asked += 1;
        // The recordings leave out blank lines at the end.
        let said = String::from_utf8(output.stdout).expect("text");
        let said = (said.trim_end_matches('\n'), String::from_utf8(output.stderr).expect("text"), output.status.code());
        let expected = (stdout.trim_end_matches('\n'), stderr.replace("\"kubectl ", "\"kloop "), Some(code));
        if said != expected {
            wrong.push_str(&format!("$ {command}\n{}\n{}\nnot\n{}\n{}\n", said.0, said.1, expected.0, expected.1));
        }
    }
    (asked, wrong)
}

#[test]
fn explanations_are_those_of_kubectl() {
    let folder = tempfile::tempdir().expect("folder");
    let state = folder.path().join("none/state.db");
    let (asked, wrong) = differences("explain-api", &state);
    assert!(wrong.is_empty(), "{wrong}");
    assert!(asked > 10 || golden::folder("explain-api").is_none(), "only {asked} questions");
    assert!(!state.exists(), "explain created a cluster");
}

#[test]
fn kinds_of_definitions_are_explained_too() {
    let Some(scenario) = golden::folder("crd-structural") else { return };
    let folder = tempfile::tempdir().expect("folder");
    let state = folder.path().join("cluster/state.db");
    let created = kloop(&state, &format!("create -f {}", scenario.join("crd.yaml").display()));
    assert!(created.status.success(), "{created:?}");
    let (asked, wrong) = differences("crd-structural", &state);
    assert!(wrong.is_empty(), "{wrong}");
    assert!(asked > 2, "only {asked} questions");
}
