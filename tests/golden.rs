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
    /// The order of the lines of standard output means nothing.
    pub sorted: bool,
}

/// A part of a conversation.
#[derive(Debug)]
pub enum Part {
    /// A command.
    Run(Step),
    /// A plain HTTP request, which is not read further.
    Http,
    /// Wait until the controllers have nothing left to do.
    Settle,
    /// Wait so many seconds.
    Sleep(u64),
}

/// The folder of all recordings; says loudly that the caller's test is skipped when they are not there.
pub fn recordings() -> Option<PathBuf> {
    folder("")
}

/// Where the recordings of a scenario are; says loudly that the caller's test is skipped when they are not there.
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
    let command = |part| match part {
        Part::Run(step) => Some(step),
        _ => None,
    };
    conversation(scenario).into_iter().filter_map(command).collect()
}

/// A scenario whole.
pub fn conversation(scenario: &str) -> Vec<Part> {
    let Some(folder) = folder(scenario) else { return Vec::new() };
    let text = std::fs::read_to_string(folder.join("conversation.txt")).expect("conversation");
    let mut parts = Vec::new();
    let mut step: Option<Step> = None;
    for line in text.lines() {
        let Some(open) = &mut step else {
            step = line.strip_prefix("$ ").map(|command| Step { command: command.to_owned(), ..Step::default() });
            parts.extend(between(line));
            continue;
        };
        let (to, rest) = match line.get(..2).or(Some(line)) {
            Some("!") => (&mut open.stderr, ""),
            Some("<") => (&mut open.stdin, ""),
            Some("< ") => (&mut open.stdin, &line[2..]),
            Some("! ") => (&mut open.stderr, &line[2..]),
            Some("~ ") => {
                open.sorted = line == "~ lines sorted";
                continue;
            }
            Some("? ") => {
                open.code = line[2..].parse().expect("exit code");
                parts.extend(step.take().map(Part::Run));
                continue;
            }
            _ => (&mut open.stdout, line),
        };
        to.push_str(rest);
        to.push('\n');
    }
    parts
}

/// What a line outside a command's record is.
fn between(line: &str) -> Option<Part> {
    if line == "~ settle" {
        return Some(Part::Settle);
    }
    if let Some(seconds) = line.strip_prefix("~ sleep ") {
        return Some(Part::Sleep(seconds.parse().expect("seconds")));
    }
    let method = line.strip_prefix("> ")?.split(' ').next()?;
    ["GET", "POST", "PUT", "PATCH", "DELETE"].contains(&method).then_some(Part::Http)
}
