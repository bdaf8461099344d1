//! Texts of commands for the page: `describe` and `why` of an object, and the steps of a `plan`.
//!
//! Each is the output of the command itself, run as a process with a limited time and output, as the user who asks.
//! Start reading at [`run`].

use crate::apiserver::Api;
use crate::object::{Reason, Status};
use crate::runtime::own_command::{self, CommandLimits};
use crate::serve::{ApiRequest, HttpAnswer, ServeResult};
use serde_json::Value;
use std::io::ErrorKind;
use std::time::Duration;

/// Longest run of a command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// Most bytes of its output.
const MAX_OUTPUT_BYTES: u64 = 8 << 20;

/// Whether a text can be part of an object's name.
fn is_name(text: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-._:".contains(letter);
    !text.is_empty() && !text.starts_with('-') && text.chars().all(is_plain)
}

/// Answers with the text of `describe` or `why` about an object.
pub fn text(api: &Api, request: &ApiRequest) -> ServeResult {
    let verb = request.parameter("verb").filter(|verb| ["describe", "why"].contains(verb));
    let verb = verb.ok_or_else(|| Status::bad_request("verb must be describe or why"))?;
    let object = request.parameter("object").unwrap_or_default();
    let is_object = object.split_once('/').is_some_and(|(resource, name)| is_name(resource) && is_name(name));
    let namespace = request.parameter("namespace").unwrap_or_default();
    if !is_object || !(namespace.is_empty() || is_name(namespace)) {
        return Err(Status::bad_request("object must be TYPE/NAME, and namespace a name"));
    }
    let mut arguments = vec![verb.to_owned(), object.to_owned()];
    if !namespace.is_empty() {
        arguments.push(format!("--namespace={namespace}"));
    }
    let (output, errors) = run(api, request, &arguments, &[])?;
    let text = if output.is_empty() { errors } else { output };
    Ok(HttpAnswer::text(text))
}

/// Answers with the steps of a plan of the manifests in the body.
pub fn plan(api: &Api, request: &ApiRequest) -> ServeResult {
    let arguments = ["plan", "--filename=-", "--output=json"].map(str::to_owned);
    let (output, errors) = run(api, request, &arguments, &request.body)?;
    match serde_json::from_slice::<Value>(&output) {
        Ok(_) => Ok(HttpAnswer { content_type: "application/json".into(), ..HttpAnswer::text(output) }),
        Err(_) => Err(Status::bad_request(String::from_utf8_lossy(&errors).trim().to_owned())),
    }
}

/// Returns the flags that make a command act as the user of the request.
fn flags_of_user(request: &ApiRequest) -> Vec<String> {
    let Some(user) = request.user.as_ref().filter(|user| !user.is_administrator()) else { return Vec::new() };
    let mut flags = vec![format!("--as={}", user.name), format!("--as-uid={}", user.uid)];
    flags.extend(user.groups.iter().map(|group| format!("--as-group={group}")));
    flags
}

/// Runs a command of kloop; returns its output and its errors.
fn run(api: &Api, request: &ApiRequest, arguments: &[String], input: &[u8]) -> ServeResult<(Vec<u8>, Vec<u8>)> {
    let arguments = [arguments, &flags_of_user(request)].concat();
    let limits = CommandLimits { time: COMMAND_TIMEOUT, bytes: MAX_OUTPUT_BYTES };
    own_command::run(api.store().path(), &arguments, input, &limits).map_err(|error| match error.kind() {
        ErrorKind::TimedOut => {
            let text = format!("the command took longer than {} s, and was ended", COMMAND_TIMEOUT.as_secs());
            Status::new(Reason::Timeout, text)
        }
        _ => Status::new(Reason::InternalError, format!("cannot run the command: {error}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_no_names() {
        for name in ["web", "deployments.apps", "system:node", "web-1.2"] {
            assert!(is_name(name), "{name}");
        }
        for other in ["", "--state=/x", "-f", "a/b", "a b", "a;b", "a\nb"] {
            assert!(!is_name(other), "{other}");
        }
    }
}
