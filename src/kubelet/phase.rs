//! `status.phase`, by the rules of Kubernetes' getPhase.

use super::pod::{ContainerRole, LocalPod};
use super::{deadlines, eviction, simulated_pod, termination};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus};

/// Computes the phase from container statuses. A final phase stays, and no phase becomes final while a container runs.
pub fn pod_phase(pod: &LocalPod, init: &[ContainerStatus], main: &[ContainerStatus]) -> &'static str {
    let old = known_phase(pod.status.phase.as_deref().unwrap_or_default());
    if is_final(old) {
        return old;
    }
    let new = match () {
        // A container that is stopped because the control plane ends has not failed; the next control plane decides.
        () if pod.is_closing() && !pod.row.is_deleting() => return old,
        () if deadlines::is_over(pod) || eviction::is_evicted(pod) => "Failed",
        () if simulated_pod::crashes(pod) => "Running",
        () => from_statuses(pod, init, main),
    };
    match is_final(new) && pod.is_alive() {
        true => old,
        false => new,
    }
}

fn is_final(phase: &str) -> bool {
    matches!(phase, "Succeeded" | "Failed")
}

fn known_phase(phase: &str) -> &'static str {
    ["Running", "Succeeded", "Failed", "Unknown"].into_iter().find(|known| *known == phase).unwrap_or("Pending")
}

fn from_statuses(pod: &LocalPod, init: &[ContainerStatus], main: &[ContainerStatus]) -> &'static str {
    if termination::init_failed(pod) {
        return "Failed";
    }
    let of_pod = init.iter().zip(pod.members.iter().filter(|member| member.role.is_init()));
    let mut initializing = false;
    for (status, member) in of_pod {
        initializing |= match member.role {
            ContainerRole::Init => exit_code(status.state.as_ref()) != Some(0),
            _ => !has_been_started(status),
        };
    }
    let count = |wanted: &dyn Fn(&ContainerStatus) -> bool| main.iter().filter(|status| wanted(status)).count();
    let running = count(&|status| status.state.as_ref().is_some_and(|state| state.running.is_some()));
    let stopped = count(&|status| exit_of(status).is_some());
    let succeeded = count(&|status| exit_code(status.state.as_ref()) == Some(0));
    let waiting = main.len() - running - stopped;
    match () {
        () if pod.row.is_deleting() && running == 0 && waiting == 0 => {
            if stopped == succeeded {
                "Succeeded"
            } else {
                "Failed"
            }
        }
        () if (initializing && running == 0 && stopped == 0) || waiting > 0 => "Pending",
        () if running > 0 || !termination::is_finished(pod) => "Running",
        () if stopped == succeeded => "Succeeded",
        () => "Failed",
    }
}

/// Returns the exit code of a container; while the container waits for its next attempt, the code of the previous one.
fn exit_of(status: &ContainerStatus) -> Option<i32> {
    let waits = status.state.as_ref().is_some_and(|state| state.waiting.is_some());
    let last = status.last_state.as_ref().filter(|_| waits);
    exit_code(status.state.as_ref()).or_else(|| exit_code(last))
}

fn exit_code(state: Option<&ContainerState>) -> Option<i32> {
    Some(state?.terminated.as_ref()?.exit_code)
}

/// A sidecar that has started once holds nothing back, even while it restarts.
fn has_been_started(status: &ContainerStatus) -> bool {
    status.started == Some(true) || exit_of(status).is_some()
}
