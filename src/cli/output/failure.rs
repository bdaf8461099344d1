//! Failures of commands: message and exit code.

use crate::object::{Reason, Status, io_error_text};
use crate::store::{OpenError, StoreError};
use itertools::Itertools;
use std::fmt;

/// Result of a verb.
pub type CliResult<T = ()> = std::result::Result<T, Failure>;

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// The API server refused the request. Its message follows `doing`:
    /// `error when creating "a.yaml": `.
    Api {
        /// The API's answer.
        status: Status,
        /// The operation; may be empty.
        doing: String,
        /// kloop's own hints, printed below the message.
        hints: Vec<String>,
    },
    /// Another error, printed as `error: ...`.
    Plain(String),
    /// No kind has this name. The hint, which may be empty, is at a similar one.
    UnknownType {
        /// The name without its group.
        word: String,
        /// Lines below the message.
        hint: String,
    },
    /// An object that `logs` did not find, in kubectl's own form.
    NotFoundIn {
        /// The API's answer.
        status: Status,
        /// The namespace.
        namespace: String,
    },
    /// A pod has no process yet, or no measurement: a running control plane may help. Printed as `error: ...`.
    WithoutProcess(String),
    /// An error of the machine rather than of the request, with its exit code.
    Machine(u8, String),
    /// An error without the prefix `error: `, where kubectl prints none.
    Bare(String),
    /// A usage error, with the verb's path (such as `create namespace`) for a pointer to its help.
    Usage(String, String),
    /// The state cannot be opened.
    Open(OpenError),
    /// An exit code without a message, because the message was already printed.
    Code(u8),
    /// Several failures, each printed in its own form.
    Many(Vec<Failure>),
    /// The reader of standard output has closed it, which is not an error.
    BrokenPipe,
}

impl Failure {
    /// Whether objects were not found, and there was no other error.
    pub fn is_not_found(&self) -> bool {
        match self {
            Failure::Api { status, .. } => status.reason == Reason::NotFound,
            Failure::Many(failures) => failures.iter().all(Failure::is_not_found),
            Failure::NotFoundIn { .. } => true,
            _ => false,
        }
    }

    /// The resource and the name of a single object that was not found.
    pub fn missing_object(&self) -> Option<(String, String)> {
        let text = match self {
            Failure::Api { status, .. } if status.reason == Reason::NotFound => &status.message,
            Failure::NotFoundIn { status, .. } => &status.message,
            _ => return None,
        };
        let (resource, rest) = text.split_once(" \"")?;
        let (name, rest) = rest.split_once('"')?;
        rest.starts_with(" not found").then(|| (resource.to_owned(), name.to_owned()))
    }

    /// An error with the text after `error: `.
    pub fn plain(text: impl Into<String>) -> Failure {
        Failure::Plain(text.into())
    }

    /// An API server's refusal with the operation, such as `error when creating "a.yaml"`.
    pub fn doing(status: Status, doing: impl Into<String>) -> Failure {
        Failure::Api { status, doing: doing.into(), hints: Vec::new() }
    }

    /// The failure of a write to standard output.
    pub fn writing(error: std::io::Error) -> Failure {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Failure::BrokenPipe;
        }
        Failure::Machine(74, format!("cannot write to standard output: {error}", error = io_error_text(error)))
    }

    /// The failure of a command whose process a signal ended, as a shell reports it.
    pub fn signaled(signal: i32) -> Failure {
        Failure::Code(u8::try_from(128 + signal).unwrap_or(1))
    }

    /// Combines failures; `Ok` if there are none.
    pub fn from_failures(mut failures: Vec<Failure>) -> CliResult {
        match failures.len() {
            0 => Ok(()),
            1 => Err(failures.remove(0)),
            _ => Err(Failure::Many(failures)),
        }
    }

    /// The text of one of several failures. kubectl then leaves out `error: `, and words invalid
    /// objects like other refusals.
    fn text_among_several(&self) -> String {
        match self {
            Failure::Api { status, doing, hints } => {
                let doing = if doing.is_empty() { String::new() } else { format!("{doing}: ") };
                let hints: String = hints.iter().map(|hint| format!("\n{hint}")).collect();
                format!("{}: {doing}{}{hints}", from_server(status), status.message)
            }
            Failure::Plain(text) | Failure::Machine(_, text) | Failure::WithoutProcess(text) => text.clone(),
            Failure::UnknownType { word, hint } => unknown_type(word, hint),
            other => other.to_string(),
        }
    }

    /// Returns the command that helps, as a hint, for refusals that are worded as kubectl words them.
    pub fn remedy(&self) -> Option<String> {
        match self {
            Failure::UnknownType { hint, .. } if hint.is_empty() => {
                Some("hint: kloop api-resources lists all types".to_owned())
            }
            Failure::Api { status, hints, .. } if status.reason == Reason::NotFound && hints.is_empty() => {
                let name = status.message.strip_prefix("namespaces \"")?.strip_suffix("\" not found")?;
                Some(format!("hint: kloop create namespace {name} makes it"))
            }
            Failure::Many(failures) => failures.iter().find_map(Failure::remedy),
            _ => None,
        }
    }

    /// Returns the exit code.
    pub fn code(&self) -> u8 {
        match self {
            Failure::Open(error) => error.exit_code(),
            Failure::Code(code) | Failure::Machine(code, _) => *code,
            Failure::Api { status, .. } => status.exit_code.unwrap_or(1),
            // The highest code wins: a failure of the machine is the cause of the others.
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

/// The exit code of an error of the machine or the state file.
fn exit_code(error: &(dyn std::error::Error + 'static)) -> Option<u8> {
    let store_code = || error.downcast_ref::<StoreError>().map(StoreError::exit_code);
    let open_code = || error.downcast_ref::<OpenError>().map(OpenError::exit_code);
    let system_code = || {
        let error = error.downcast_ref::<std::io::Error>()?;
        let full = [std::io::ErrorKind::StorageFull, std::io::ErrorKind::QuotaExceeded];
        full.contains(&error.kind()).then_some(73)
    };
    store_code().or_else(open_code).or_else(system_code)
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
            Failure::Api { status, .. } if status.exit_code == Some(1) => write!(f, "{status}"),
            Failure::Api { status, .. } if status.exit_code.is_some() => write!(f, "error: {status}"),
            Failure::Api { status, doing, hints } => {
                f.write_str(&refusal(status, doing))?;
                hints.iter().try_for_each(|hint| write!(f, "\n{hint}"))
            }
            Failure::Plain(text) if text.starts_with("error: ") => f.write_str(text),
            Failure::Bare(text) => f.write_str(text),
            Failure::Plain(text) | Failure::Machine(_, text) | Failure::WithoutProcess(text) => {
                write!(f, "error: {text}")
            }
            Failure::UnknownType { word, hint } => write!(f, "error: {}", unknown_type(word, hint)),
            Failure::NotFoundIn { status, namespace } => {
                write!(f, "error: error from server (NotFound): {} in namespace {namespace:?}", status.message)
            }
            Failure::Usage(verb, text) => write!(f, "error: {text}\nSee 'kloop {verb} -h' for help and examples"),
            Failure::Open(error) => write!(f, "error: {error}"),
            Failure::Code(_) | Failure::BrokenPipe => Ok(()),
            Failure::Many(failures) => {
                let texts: Vec<String> =
                    failures.iter().map(Failure::text_among_several).filter(|text| !text.is_empty()).collect();
                f.write_str(&texts.join("\n"))
            }
        }
    }
}

fn from_server(status: &Status) -> String {
    match status.reason {
        Reason::Unknown if status.foreign.as_ref().is_some_and(|foreign| !foreign.reason.is_empty()) => {
            let reason = status.foreign.as_ref().map(|foreign| foreign.reason.as_str()).unwrap_or_default();
            format!("Error from server ({reason})")
        }
        Reason::Unknown => "Error from server".to_owned(),
        reason => format!("Error from server ({reason:?})"),
    }
}

/// The API server's refusal in kubectl's words.
fn refusal(status: &Status, doing: &str) -> String {
    let doing = if doing.is_empty() { String::new() } else { format!("{doing}: ") };
    if status.reason == Reason::Invalid && status.kind.is_empty() && status.causes.is_empty() {
        return format!("The request is invalid: {}", status.message);
    }
    if status.reason != Reason::Invalid {
        return format!("{}: {doing}{}", from_server(status), status.message);
    }
    // A refusal by a policy is about no field; kubectl then writes an empty one.
    let text = |cause: &crate::object::Cause| format!("{}: {}", cause.field, cause.message.trim_end_matches('\n'));
    let causes: Vec<String> = status.causes.iter().map(text).unique().collect();
    let head = match (status.kind.as_str(), status.name.as_str()) {
        ("", "") => "The request is invalid".to_owned(),
        (kind, name) => format!("The {kind} {name:?} is invalid"),
    };
    match &causes[..] {
        [] => format!("{head}: {}", status.message),
        [one] => format!("{head}: {one}"),
        several => {
            format!("{head}: \n{}", several.iter().map(|cause| format!("* {cause}")).collect::<Vec<_>>().join("\n"))
        }
    }
}

/// kubectl's words for a type that no kind has.
pub fn unknown_type(word: &str, hint: &str) -> String {
    format!("the server doesn't have a resource type {word:?}{hint}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Resource;

    #[test]
    fn refusals_in_kubectl_words_have_a_remedy() {
        let unknown = |hint: &str| Failure::UnknownType { word: "boats".into(), hint: hint.into() };
        assert_eq!(unknown("").remedy().as_deref(), Some("hint: kloop api-resources lists all types"));
        assert_eq!(unknown("\nhint: did you mean \"boat\"?").remedy(), None);
        let missing = |resource, name| Failure::from(Status::not_found(Resource(resource), name));
        let several = Failure::Many(vec![missing("pods", "a"), missing("namespaces", "shop")]);
        assert_eq!(several.remedy().as_deref(), Some("hint: kloop create namespace shop makes it"));
        assert_eq!(missing("pods", "a").remedy(), None);
        assert_eq!(missing("pods", "a").missing_object(), Some(("pods".to_owned(), "a".to_owned())));
    }
    use crate::apiserver::refused;
    use anyhow::Context;

    #[test]
    fn machine_failures_have_their_own_exit_codes() {
        let path = std::path::PathBuf::from("/full/state.db");
        let full = || StoreError::Full { path: path.clone() };
        let text = Failure::from(refused(&full()));
        let message =
            "error: no space left on the disk of /full/state.db; nothing was changed: free some space and try again";
        assert_eq!((text.code(), text.to_string()), (73, message.to_owned()));
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
