//! Conversations that never change: each `.trycmd` file, and the README's, with a state of its own.

use std::path::{Path, PathBuf};

fn play(file: &Path) {
    let home = tempfile::tempdir().expect("a folder");
    let cases = trycmd::TestCases::new();
    cases.register_bin("kloop", Path::new(env!("CARGO_BIN_EXE_kloop")));
    cases.env("KLOOP_STATE", home.path().join("state.db").display().to_string());
    cases.env("HOME", home.path().display().to_string()).env("NO_COLOR", "1");
    cases.case(file).run();
}

#[test]
fn conversations_go_as_written() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/conversations");
    let entries = std::fs::read_dir(folder).expect("conversations").map(|entry| entry.expect("entry").path());
    let files: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|end| end == "trycmd")).collect();
    assert!(!files.is_empty());
    files.iter().for_each(|file| play(file));
}

#[test]
fn the_readme_is_true() {
    play(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("README.md"));
}
