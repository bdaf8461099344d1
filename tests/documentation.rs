//! The documentation: topics are listed, lines fit a screen, links and paths exist, and README stays short.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Maximum width of a line outside of transcripts.
const WIDTH: usize = 100;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files of `src/help`, by name.
fn topics() -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("src/help")).expect("src/help");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("entry").path()).collect();
    files.sort();
    files
}

/// Returns every page for readers of the repository, README first.
fn pages() -> Vec<PathBuf> {
    let others = [".github/CONTRIBUTING.md", ".github/CHANGELOG.md", "src/ARCHITECTURE.md"];
    let others = others.iter().map(|page| root().join(page)).filter(|page| page.exists());
    std::iter::once(root().join("README.md")).chain(others).chain(topics()).collect()
}

/// Returns the lines of a page outside of its transcripts, with their numbers.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut fenced = false;
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    let outside = |line: &(usize, &str)| {
        let is_fence = line.1.starts_with("```");
        fenced ^= is_fence;
        !fenced && !is_fence
    };
    lines.filter(outside).collect()
}

fn kloop(words: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_kloop")).args(words).output().expect("kloop");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

#[test]
fn every_topic_is_listed_and_shown() {
    let (_, list, _) = kloop(&["help"]);
    let topics = topics();
    assert!(!topics.is_empty());
    for file in topics {
        let name = file.file_stem().and_then(|name| name.to_str()).expect("a name");
        assert!(list.contains(&format!("\n  {name} ")), "{name} is missing in src/cli/help/topics.rs");
        let text = fs::read_to_string(&file).expect("topic");
        let (code, page, error) = kloop(&["help", name]);
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!((code, words(&page), error), (0, words(&text), String::new()));
    }
}

#[test]
fn help_for_a_command_is_its_own_page() {
    let (code, page, _) = kloop(&["help", "rollout", "undo"]);
    assert_eq!((code, page), (0, kloop(&["rollout", "undo", "--help"]).1));
    assert_eq!(kloop(&["help"]).1, kloop(&["--help"]).1);
}

#[test]
fn unknown_topic_is_refused_with_near_names() {
    let (code, _, error) = kloop(&["help", "netwrok"]);
    assert_eq!(code, 1);
    assert!(error.starts_with("error: unknown help topic \"netwrok\"\n\nDid you mean this?\n\tnetwork\n"), "{error}");
    assert!(error.ends_with("See 'kloop help' for all commands and topics.\n"), "{error}");
}

#[test]
fn lines_fit_a_screen() {
    for page in topics() {
        let text = fs::read_to_string(&page).expect("page");
        for (number, line) in prose(&text) {
            assert!(line.chars().count() <= WIDTH, "{}:{number} is wider than {WIDTH}", page.display());
        }
    }
}

#[test]
fn readme_is_short() {
    let text = fs::read_to_string(root().join("README.md")).expect("README");
    assert!(text.lines().count() <= 150, "README has {} lines: move something to a topic", text.lines().count());
}

#[test]
fn links_and_paths_exist() {
    let mut wrong = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).expect("page");
        let folder = page.parent().expect("folder");
        for (number, line) in prose(&text) {
            let links = line.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
            let links = links.filter(|link| !link.is_empty() && !link.contains("://"));
            let links = links.map(|link| folder.join(link));
            let quoted = line.split('`').skip(1).step_by(2).filter(|path| {
                let known = ["src/", "tests/", "fixtures/", ".github/", "completions/"];
                known.iter().any(|start| path.starts_with(start)) && !path.contains(['*', ' ', '<'])
            });
            let quoted = quoted.map(|path| root().join(path.split("::").next().unwrap_or(path)));
            let missing = links.chain(quoted).filter(|path| !path.exists());
            wrong.extend(missing.map(|path| format!("{}:{number}: {}", page.display(), path.display())));
        }
    }
    assert!(wrong.is_empty(), "these paths do not exist:\n{}", wrong.join("\n"));
}
