//! The recorded conversations with Kubernetes and kubectl in `../shared/golden` (its README explains the format).

mod replay;

use crate::shared_folder::find_shared_folder;
use std::path::PathBuf;

/// One command of a conversation and its result.
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
    /// Whether the order of the lines of standard output is irrelevant.
    pub sorted: bool,
}

/// A plain HTTP request and its answer.
#[derive(Debug, Default)]
pub struct Exchange {
    /// `GET`.
    pub method: String,
    /// The path with its parameters.
    pub path: String,
    /// The request's headers.
    pub headers: Vec<(String, String)>,
    /// The request's body.
    pub body: String,
    /// `200 OK`.
    pub status: String,
    /// The recorded headers of the answer.
    pub answer_headers: Vec<(String, String)>,
    /// The recorded part of the answer, `status.message`; empty for all.
    pub only: String,
    /// The answer's body.
    pub answer: String,
}

/// A part of a conversation.
#[derive(Debug)]
pub enum Part {
    /// A command.
    Run(Step),
    /// A plain HTTP request.
    Http(Exchange),
    /// Wait until the controllers are idle.
    Settle,
    /// Wait this many seconds.
    Sleep(u64),
}

/// Returns the folder of all recordings; prints that the caller's test is skipped when it does not exist.
pub fn recordings() -> Option<PathBuf> {
    folder("")
}

/// Returns the folder of a scenario's recordings; prints that the caller's test is skipped when it does not exist.
pub fn folder(scenario: &str) -> Option<PathBuf> {
    find_shared_folder("golden", scenario)
}

/// Returns the commands of a scenario in order.
pub fn steps(scenario: &str) -> Vec<Step> {
    let command = |part| match part {
        Part::Run(step) => Some(step),
        _ => None,
    };
    conversation(scenario).into_iter().filter_map(command).collect()
}

/// Returns all parts of a scenario.
pub fn conversation(scenario: &str) -> Vec<Part> {
    let Some(folder) = folder(scenario) else { return Vec::new() };
    let text = std::fs::read_to_string(folder.join("conversation.txt")).expect("conversation");
    let mut parts = Vec::new();
    let mut step: Option<Step> = None;
    for line in text.lines() {
        if step.is_none() && http(line, &mut parts) {
            continue;
        }
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

/// Parses a line outside of a command's record.
fn between(line: &str) -> Option<Part> {
    if line == "~ settle" {
        return Some(Part::Settle);
    }
    if let Some(seconds) = line.strip_prefix("~ sleep ") {
        return Some(Part::Sleep(seconds.parse().expect("seconds")));
    }
    None
}

/// Parses a line of a request or its answer; returns false for other lines.
fn http(line: &str, parts: &mut Vec<Part>) -> bool {
    let header = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned()));
    if let Some((method, path)) = line.strip_prefix("> ").and_then(|line| line.split_once(' '))
        && ["GET", "POST", "PUT", "PATCH", "DELETE"].contains(&method)
    {
        let exchange = Exchange { method: method.into(), path: path.into(), ..Exchange::default() };
        parts.push(Part::Http(exchange));
        return true;
    }
    let Some(Part::Http(open)) = parts.last_mut() else { return false };
    // The first line of a body has only its mark; headers precede it.
    let has_body = !open.body.is_empty();
    match (line.strip_prefix('>'), line.strip_prefix("= ")) {
        (Some(""), _) if !has_body => open.body.push('\n'),
        (Some(line), _) if has_body => open.body.push_str(&format!("{}\n", line.strip_prefix(' ').unwrap_or(line))),
        (Some(line), _) => open.headers.extend(header(line.trim_start())),
        (None, Some(line)) if open.status.is_empty() => open.status.push_str(line),
        (None, Some(line)) => match line.strip_prefix("(only ").and_then(|line| line.strip_suffix(" shown)")) {
            Some(only) => open.only.push_str(only),
            None => open.answer_headers.extend(header(line)),
        },
        _ if line.starts_with("$ ") || line.starts_with("~ ") || line.is_empty() => return false,
        _ => open.answer.push_str(&format!("{line}\n")),
    }
    true
}
