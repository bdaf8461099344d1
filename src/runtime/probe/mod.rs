//! Running probes: a handler goes in, a report comes out, worded as the kubelet words it.
//!
//! `exec` goes through the pod's shim, in the container's environment; `httpGet` and `tcpSocket` run on a few threads of their own.
//! Never: decides what a failure means; that is for the `kubelet` room.

mod network;
mod pool;

pub use pool::Pool;

use super::wire::ExecOutcome;
use crate::object::Time;
use crate::world::plan::Probe;
use crate::world::{ProbeKind, Report};
use serde_json::Value;

/// What a failing probe may say at most.
const MESSAGE: usize = 10 * 1024;

/// Whether a probe runs in the container and so goes through its shim.
pub fn needs_shim(probe: &Probe) -> bool {
    probe.handler.get("exec").is_some()
}

/// The command of an exec handler.
pub fn command(handler: &Value) -> Vec<String> {
    let words = handler["exec"]["command"].as_array().map(Vec::as_slice).unwrap_or_default();
    words.iter().filter_map(|word| word.as_str().map(str::to_owned)).collect()
}

/// What the end of an exec probe's command means.
pub fn judge(probe: &Probe, outcome: ExecOutcome, output: String) -> Result<(), String> {
    match outcome {
        ExecOutcome::Exited(0) => Ok(()),
        ExecOutcome::Exited(_) => Err(output),
        ExecOutcome::TimedOut => {
            let command = command(&probe.handler).join(" ");
            Err(format!("command timed out: {command:?} timed out after {}s", probe.timeout_seconds.max(1)))
        }
        ExecOutcome::Failed(message) => Err(message),
    }
}

/// The report of a probe's result.
pub fn answer(probe: &Probe, result: Result<(), String>) -> Report {
    let ok = result.is_ok();
    let mut message = result.err().unwrap_or_default();
    message.truncate(message.floor_char_boundary(MESSAGE));
    Report::Probe {
        pod_uid: probe.pod_uid.clone(),
        container: probe.container.clone(),
        attempt: probe.attempt,
        kind: probe.kind,
        ok,
        message,
        at: Time::now(),
    }
}

/// Runs a probe over the network; waits for its answer.
fn over_network(probe: &Probe) -> Result<(), String> {
    let handler = &probe.handler;
    let timeout = std::time::Duration::from_secs(probe.timeout_seconds.clamp(1, 3600) as u64);
    let is_hook = matches!(probe.kind, ProbeKind::PostStart | ProbeKind::PreStop);
    if let Some(get) = handler.get("httpGet") {
        match is_hook {
            // A hook is content with any answer (Kubernetes: lifecycle/handlers.go).
            true => network::answer(get, &probe.ip, timeout).map(drop),
            false => network::http(get, &probe.ip, timeout),
        }
    } else if is_hook && handler.get("tcpSocket").is_some() {
        Err("tcpSocket is no lifecycle hook: write exec, httpGet or sleep".into())
    } else if let Some(socket) = handler.get("tcpSocket") {
        network::tcp(socket, &probe.ip, timeout)
    } else if handler.get("grpc").is_some() {
        Err("grpc probes are not supported; write an exec, httpGet or tcpSocket probe instead".into())
    } else {
        Err("missing probe handler".into())
    }
}
