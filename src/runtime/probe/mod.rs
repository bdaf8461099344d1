//! Runs probes and hooks, and reports their results with the kubelet's messages.
//!
//! `exec` goes through the pod's shim, in the container's environment; `httpGet`, `tcpSocket` and `grpc` run on a few threads of their
//! own. Never: decides what a failure means; that is for the `kubelet` module.

pub(super) mod dial;
mod grpc;
mod http;
mod pool;

pub use pool::ProbePool;

use super::wire::ExecOutcome;
use crate::kinds::shared::probe_handler::ProbeHandler;
use crate::object::{Time, time};
use crate::world::plan::ProbeRun;
use crate::world::{ProbeKind, ProbeResult, Report};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ExecAction;
use std::time::Duration;

/// Maximum length of a message.
const MESSAGE: usize = 10 * 1024;
/// The `User-Agent` of HTTP probes.
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
    /// The result of a successful probe.
    fn success() -> ProbeFinding {
        ProbeFinding { verdict: ProbeResult::Success, message: String::new() }
    }

    /// The result of a failed probe.
    fn failure(message: impl Into<String>) -> ProbeFinding {
        ProbeFinding { verdict: ProbeResult::Failure, message: message.into() }
    }

    /// The result of a probe that could not be run.
    pub fn unknown(message: impl Into<String>) -> ProbeFinding {
        ProbeFinding { verdict: ProbeResult::Unknown, message: message.into() }
    }
}

/// The way to run a probe.
pub enum ProbeRoute<'p> {
    /// Through the pod's shim, which runs this command in the container.
    Shim(&'p ExecAction),
    /// On a thread of the pool, which waits for the answer.
    Pool(Box<dyn FnOnce() -> ProbeFinding + 'p>),
    /// Nothing runs: the kubelet's clock ends it.
    Clock,
}

/// Returns the way to run a probe.
pub fn route(probe: &ProbeRun) -> ProbeRoute<'_> {
    let timeout = Duration::from_secs(probe.timeout_seconds.clamp(1, 24 * 60 * 60) as u64);
    let (ip, is_hook) = (&*probe.ip, is_hook(probe));
    let Some(handler) = &probe.handler else {
        return ProbeRoute::Pool(Box::new(|| ProbeFinding::unknown("missing probe handler")));
    };
    match handler {
        ProbeHandler::Exec(exec) => ProbeRoute::Shim(exec),
        ProbeHandler::HttpGet(get) if is_hook => ProbeRoute::Pool(Box::new(move || http::hook(get, ip, timeout))),
        ProbeHandler::HttpGet(get) => ProbeRoute::Pool(Box::new(move || http::probe(get, ip, timeout))),
        ProbeHandler::TcpSocket(_) if is_hook => ProbeRoute::Pool(Box::new(|| {
            ProbeFinding::unknown("tcpSocket is not a lifecycle hook: write exec, httpGet or sleep")
        })),
        ProbeHandler::TcpSocket(socket) => ProbeRoute::Pool(Box::new(move || dial::probe(socket, ip, timeout))),
        ProbeHandler::Grpc(call) => ProbeRoute::Pool(Box::new(move || grpc::probe(call, ip, timeout))),
        ProbeHandler::Sleep(_) => ProbeRoute::Clock,
    }
}

/// The command of an exec handler.
pub fn command(probe: &ProbeRun) -> &[String] {
    match route(probe) {
        ProbeRoute::Shim(exec) => exec.command.as_deref().unwrap_or_default(),
        ProbeRoute::Pool(_) | ProbeRoute::Clock => &[],
    }
}

/// Converts the result of an exec probe's command.
pub fn finding_of_exec(probe: &ProbeRun, outcome: ExecOutcome, output: String) -> ProbeFinding {
    match outcome {
        ExecOutcome::Exited(0) => ProbeFinding::success(),
        ExecOutcome::Exited(_) => ProbeFinding::failure(output),
        ExecOutcome::TimedOut => {
            let command = command(probe).join(" ");
            let after = time::format_duration(SignedDuration::from_secs(probe.timeout_seconds.max(1)));
            ProbeFinding::failure(format!("command timed out: {command:?} timed out after {after}"))
        }
        ExecOutcome::Failed(message) => ProbeFinding::unknown(message),
    }
}

/// The report of a probe's or hook's result. A hook that could not be run has failed.
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
