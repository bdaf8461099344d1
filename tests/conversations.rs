//! Transcripts of commands: each `.trycmd` file, the README and the help topics, each with its own state.

use std::path::{Path, PathBuf};

fn play(file: &Path) {
    let home = tempfile::tempdir().expect("a folder");
    let cases = trycmd::TestCases::new();
    cases.register_bin("kloop", Path::new(env!("CARGO_BIN_EXE_kloop")));
    cases.env("KLOOP_STATE", home.path().join("state.db").display().to_string());
    // Also temporary files that commands leave on purpose, such as an edit that was refused, end with the folder.
    cases.env("HOME", home.path().display().to_string()).env("TMPDIR", home.path().display().to_string());
    cases.env("NO_COLOR", "1");
    cases.case(file).run();
}

/// Returns the files of a folder with this extension.
fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("entry").path());
    let files: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|end| end == extension)).collect();
    assert!(!files.is_empty());
    files
}

#[test]
fn transcripts_match() {
    files("tests/conversations", "trycmd").iter().for_each(|file| play(file));
}

#[test]
fn transcripts_of_help_topics_match() {
    let has_transcript = |file: &&PathBuf| std::fs::read_to_string(file).expect("topic").contains("```console");
    files("src/help", "md").iter().filter(has_transcript).for_each(|file| play(file));
}

#[test]
fn transcripts_of_the_readme_match() {
    play(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("README.md"));
}
