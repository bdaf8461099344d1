//! Failures of commands: message and exit code.

use crate::object::{Reason, Status, io_error_text};
use crate::store::{OpenError, StoreError};
use std::fmt;

/// Result of a verb.
pub type CliResult<T = ()> = std::result::Result<T, Failure>;

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// The API server refused. `doing` stands before its words: `error when creating "a.yaml": `.
    Api {
        /// The API's answer.
        status: Status,
        /// The operation, or empty.
        doing: String,
        /// Lines of help below: kloop's own, where kubectl has none.
        hints: Vec<String>,
    },
    /// The user erred, or the machine did: `error: ...`.
    Plain(String),
    /// The machine failed and not the request: with the exit code that says how.
    Machine(u8, String),
    /// The same without `error: `, where kubectl leaves it out.
    Bare(String),
    /// The same, where usage is to be pointed at: the verb's path, `create namespace`.
    Usage(String, String),
    /// The state cannot be opened.
    Open(OpenError),
    /// Everything was said already.
    Code(u8),
    /// Several, each told in its own form.
    Many(Vec<Failure>),
    /// Nobody reads standard output any more: not a failure.
    BrokenPipe,
}

impl Failure {
    /// Whether an object was not found, and nothing else was wrong.
    pub fn is_not_found(&self) -> bool {
        match self {
            Failure::Api { status, .. } => status.reason == Reason::NotFound,
            Failure::Many(failures) => failures.iter().all(Failure::is_not_found),
            // `logs` words it as kubectl's `logs` does.
            Failure::Plain(text) => text.starts_with("error from server (NotFound)"),
            _ => false,
        }
    }

    /// `error: text`.
    pub fn plain(text: impl Into<String>) -> Failure {
        Failure::Plain(text.into())
    }

    /// A refusal while something was being done, such as `error when creating "a.yaml"`.
    pub fn doing(status: Status, doing: impl Into<String>) -> Failure {
        Failure::Api { status, doing: doing.into(), hints: Vec::new() }
    }

    /// One failure for several; none for none.
    pub fn from_failures(mut failures: Vec<Failure>) -> CliResult {
        match failures.len() {
            0 => Ok(()),
            1 => Err(failures.remove(0)),
            _ => Err(Failure::Many(failures)),
        }
    }

    /// As one of several: kubectl then leaves out `error: `, and tells what is invalid as any other refusal.
    fn among_others(&self) -> String {
        match self {
            Failure::Api { status, doing, hints } => {
                let doing = if doing.is_empty() { String::new() } else { format!("{doing}: ") };
                let hints: String = hints.iter().map(|hint| format!("\n{hint}")).collect();
                format!("{}: {doing}{}{hints}", from_server(status), status.message)
            }
            Failure::Plain(text) | Failure::Machine(_, text) => text.clone(),
            other => other.to_string(),
        }
    }

    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Failure::Open(error) => error.exit_code(),
            Failure::Code(code) | Failure::Machine(code, _) => *code,
            Failure::Api { status, .. } => status.exit_code.unwrap_or(1),
            // One that cannot go on is the reason of the others.
            Failure::Many(failures) => failures.iter().map(Failure::code).max().unwrap_or(1),
            Failure::BrokenPipe => 0,
            _ => 1,
        }
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Failure {
        Failure::Api { status, doing: String::new(), hints: Vec::new() }
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Failure {
        Failure::Open(error)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        let text = io_error_text(format!("{error:#}"));
        match error.chain().find_map(exit_code) {
            Some(code) => Failure::Machine(code, text),
            None => Failure::Plain(text),
        }
    }
}

/// The exit code that an error of the machine has of its own.
fn exit_code(error: &(dyn std::error::Error + 'static)) -> Option<u8> {
    let of_store = || error.downcast_ref::<StoreError>().map(StoreError::exit_code);
    let of_opening = || error.downcast_ref::<OpenError>().map(OpenError::exit_code);
    let of_system = || {
        let error = error.downcast_ref::<std::io::Error>()?;
        let full = [std::io::ErrorKind::StorageFull, std::io::ErrorKind::QuotaExceeded];
        full.contains(&error.kind()).then_some(73)
    };
    of_store().or_else(of_opening).or_else(of_system)
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            Failure::BrokenPipe
        } else {
            Failure::from(anyhow::Error::from(error))
        }
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Failure {
        Failure::Plain(text)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Api { status, .. } if status.exit_code.is_some() => write!(f, "error: {status}"),
            Failure::Api { status, doing, hints } => {
                f.write_str(&refusal(status, doing))?;
                hints.iter().try_for_each(|hint| write!(f, "\n{hint}"))
            }
            Failure::Plain(text) if text.starts_with("error: ") => f.write_str(text),
            Failure::Bare(text) => f.write_str(text),
            Failure::Plain(text) | Failure::Machine(_, text) => write!(f, "error: {text}"),
            Failure::Usage(verb, text) => write!(f, "error: {text}\nSee 'kloop {verb} -h' for help and examples"),
            Failure::Open(error) => write!(f, "error: {error}"),
            Failure::Code(_) | Failure::BrokenPipe => Ok(()),
            Failure::Many(failures) => {
                let texts: Vec<String> =
                    failures.iter().map(Failure::among_others).filter(|text| !text.is_empty()).collect();
                f.write_str(&texts.join("\n"))
            }
        }
    }
}

fn from_server(status: &Status) -> String {
    match status.reason {
        Reason::Unknown => "Error from server".to_owned(),
        reason => format!("Error from server ({reason:?})"),
    }
}

/// The API server's refusal in kubectl's words.
fn refusal(status: &Status, doing: &str) -> String {
    let doing = if doing.is_empty() { String::new() } else { format!("{doing}: ") };
    if status.reason == Reason::Invalid && status.kind.is_empty() {
        return format!("The request is invalid: {}", status.message);
    }
    if status.reason != Reason::Invalid {
        return format!("{}: {doing}{}", from_server(status), status.message);
    }
    let text = |cause: &crate::object::Cause| match cause.field.as_str() {
        "" => cause.message.clone(),
        field => format!("{field}: {}", cause.message),
    };
    let mut causes: Vec<String> = Vec::new();
    for cause in status.causes.iter().map(text) {
        if !causes.contains(&cause) {
            causes.push(cause);
        }
    }
    let head = format!("The {} {:?} is invalid", status.kind, status.name);
    match &causes[..] {
        [] => format!("{head}: {}", status.message),
        [one] => format!("{head}: {one}"),
        several => {
            format!("{head}: \n{}", several.iter().map(|cause| format!("* {cause}")).collect::<Vec<_>>().join("\n"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::refused;
    use anyhow::Context;

    #[test]
    fn a_machine_that_fails_has_exit_codes_of_its_own() {
        let path = std::path::PathBuf::from("/full/state.db");
        let full = || StoreError::Full { path: path.clone() };
        let told = Failure::from(refused(&full()));
        let message =
            "error: no space left on the disk of /full/state.db; nothing was changed: free some space and try again";
        assert_eq!((told.code(), told.to_string()), (73, message.to_owned()));
        let system = || std::io::Error::from(std::io::ErrorKind::StorageFull);
        let in_words = Err::<(), _>(system()).context("cannot write /full/leader.lock").unwrap_err();
        let table = [
            (Failure::from(anyhow::Error::from(full())), 73),
            (Failure::from(in_words), 73),
            (Failure::from(system()), 73),
            (Failure::from(anyhow::anyhow!("no such thing")), 1),
            (Failure::Many(vec![Failure::plain("a"), Failure::from(refused(&full()))]), 73),
        ];
        for (failure, code) in table {
            assert_eq!(failure.code(), code, "{failure}");
        }
    }
}
