//! Running probes: a handler goes in, a report comes out, worded as the kubelet words it.
//!
//! `exec` goes through the pod's shim, in the container's environment; `httpGet`, `tcpSocket` and `grpc` run on a few threads of their
//! own. Never: decides what a failure means; that is for the `kubelet` module.

pub(super) mod dial;
mod grpc;
mod http;
mod pool;

pub use pool::ProbePool;

use super::wire::ExecOutcome;
use crate::object::{Time, time};
use crate::world::plan::ProbeRun;
use crate::world::{ProbeKind, ProbeResult, Report};
use jiff::SignedDuration;
use serde_json::Value;
use std::time::Duration;

/// Maximum length of a message.
const MESSAGE: usize = 10 * 1024;
/// As which client probes come.
const USER_AGENT: &str = "kube-probe/1.36";

/// Result of one probe.
#[derive(Debug, PartialEq)]
pub struct ProbeFinding {
    /// The result.
    pub verdict: ProbeResult,
    /// The message.
    pub message: String,
}

impl ProbeFinding {
    /// All is well.
    fn success() -> ProbeFinding {
        ProbeFinding { verdict: ProbeResult::Success, message: String::new() }
    }

    /// It is not well.
    fn failure(message: impl Into<String>) -> ProbeFinding {
        ProbeFinding { verdict: ProbeResult::Failure, message: message.into() }
    }

    /// The probe itself could not be made.
    pub fn unknown(message: impl Into<String>) -> ProbeFinding {
        ProbeFinding { verdict: ProbeResult::Unknown, message: message.into() }
    }
}

/// Whether a probe runs in the container and so goes through its shim.
pub fn needs_shim(probe: &ProbeRun) -> bool {
    probe.handler.get("exec").is_some()
}

/// The command of an exec handler.
pub fn command(handler: &Value) -> Vec<String> {
    let words = handler["exec"]["command"].as_array().map(Vec::as_slice).unwrap_or_default();
    words.iter().filter_map(|word| word.as_str().map(str::to_owned)).collect()
}

/// Converts the result of an exec probe's command.
pub fn finding_of_exec(probe: &ProbeRun, outcome: ExecOutcome, output: String) -> ProbeFinding {
    match outcome {
        ExecOutcome::Exited(0) => ProbeFinding::success(),
        ExecOutcome::Exited(_) => ProbeFinding::failure(output),
        ExecOutcome::TimedOut => {
            let command = command(&probe.handler).join(" ");
            let after = time::format_duration(SignedDuration::from_secs(probe.timeout_seconds.max(1)));
            ProbeFinding::failure(format!("command timed out: {command:?} timed out after {after}"))
        }
        ExecOutcome::Failed(message) => ProbeFinding::unknown(message),
    }
}

/// The report of what a probe has found. A hook that could not be run has failed.
pub fn answer(probe: &ProbeRun, finding: ProbeFinding) -> Report {
    let ProbeFinding { verdict, mut message } = finding;
    message.truncate(message.floor_char_boundary(MESSAGE));
    Report::Probe {
        pod_uid: probe.pod_uid.clone(),
        container: probe.container.clone(),
        attempt: probe.attempt,
        kind: probe.kind,
        verdict: if is_hook(probe) && verdict == ProbeResult::Unknown { ProbeResult::Failure } else { verdict },
        message,
        at: Time::now(),
    }
}

fn is_hook(probe: &ProbeRun) -> bool {
    matches!(probe.kind, ProbeKind::PostStart | ProbeKind::PreStop)
}

/// Runs a probe over the network; waits for its answer.
fn over_network(probe: &ProbeRun) -> ProbeFinding {
    let handler = &probe.handler;
    let timeout = Duration::from_secs(probe.timeout_seconds.clamp(1, 24 * 60 * 60) as u64);
    match (handler.get("httpGet"), handler.get("tcpSocket"), handler.get("grpc")) {
        (Some(get), ..) if is_hook(probe) => http::hook(get, &probe.ip, timeout),
        (Some(get), ..) => http::probe(get, &probe.ip, timeout),
        (_, Some(_), _) if is_hook(probe) => {
            ProbeFinding::unknown("tcpSocket is no lifecycle hook: write exec, httpGet or sleep")
        }
        (_, Some(socket), _) => dial::probe(socket, &probe.ip, timeout),
        (.., Some(call)) => grpc::probe(call, &probe.ip, timeout),
        (None, None, None) => ProbeFinding::unknown("missing probe handler"),
    }
}
