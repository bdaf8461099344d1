//! The recorded conversations with Kubernetes and kubectl in `../shared/golden` (its README explains the format).

use std::path::PathBuf;

/// One command of a conversation and everything that came back.
#[derive(Debug, Default)]
pub struct Step {
    /// The shell command.
    pub command: String,
    /// Its standard input.
    pub stdin: String,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// Exit code.
    pub code: i32,
}

/// Where the recordings are; says loudly that the caller's test is skipped when they are not there.
pub fn folder(scenario: &str) -> Option<PathBuf> {
    let shared = std::env::var_os("KLOOP_SHARED").map(PathBuf::from);
    let beside = shared.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared"));
    let folder = beside.join("golden").join(scenario);
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("SKIPPED: no recordings at {} (set KLOOP_SHARED to the folder that has golden/)", folder.display());
    None
}

/// The commands of a scenario in order.
pub fn steps(scenario: &str) -> Vec<Step> {
    let Some(folder) = folder(scenario) else { return Vec::new() };
    let text = std::fs::read_to_string(folder.join("conversation.txt")).expect("conversation");
    let mut steps = Vec::new();
    let mut step: Option<Step> = None;
    for line in text.lines() {
        let Some(open) = &mut step else {
            step = line.strip_prefix("$ ").map(|command| Step { command: command.to_owned(), ..Step::default() });
            continue;
        };
        let (to, rest) = match line.get(..2) {
            Some("< ") => (&mut open.stdin, &line[2..]),
            Some("! ") => (&mut open.stderr, &line[2..]),
            Some("? ") => {
                open.code = line[2..].parse().expect("exit code");
                steps.extend(step.take());
                continue;
            }
            _ => (&mut open.stdout, line),
        };
        to.push_str(rest);
        to.push('\n');
    }
    steps
}
