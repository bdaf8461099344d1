//! One entry of `status.containerStatuses`.

use super::actions::{ContainerAction, PodActions};
use super::pod::{AttemptState, CLOSED, ContainerRole, LocalPod, PodContainer, api_time};
use super::{backoff, image, message, probes, resize, restart_all, simulated_pod};
use crate::kinds::node::RUNTIME_SCHEME;
use crate::object::Time;
use crate::world::AttemptEnd;
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
};

/// The statuses of members with the given roles, in the order of the spec.
pub fn container_statuses(
    pod: &LocalPod,
    order: &PodActions,
    wanted: fn(ContainerRole) -> bool,
) -> Vec<ContainerStatus> {
    let members = pod.members.iter().zip(&order.steps).filter(|(member, _)| wanted(member.role));
    members.map(|(member, step)| container_status(pod, member, step)).collect()
}

fn container_status(pod: &LocalPod, member: &PodContainer, step: &ContainerAction) -> ContainerStatus {
    let description = describe_state(pod, member, step);
    let has_run = matches!(description.state, ContainerState { waiting: None, .. });
    let of_last = |last: &AttemptEnd, attempt: u32| ContainerState {
        terminated: Some(terminated(pod, member, last, attempt)),
        ..ContainerState::default()
    };
    let last_attempt =
        if description.waits_after_end { description.attempt } else { description.attempt.saturating_sub(1) };
    let id = match (&description.last, has_run) {
        (_, true) => Some(id(pod, member, description.attempt)),
        (Some(_), false) => Some(id(pod, member, last_attempt)),
        (None, false) => None,
    };
    let is_here = !pod.is_simulated && matches!(description.state, ContainerState { running: Some(_), .. });
    let has_image = has_run || description.last.is_some();
    let status = ContainerStatus {
        name: member.spec.name.clone(),
        image: image(pod, member, description.attempt),
        image_id: sources_id(member, step, description.attempt)
            .unwrap_or_else(|| if has_image { image_id(pod, member) } else { String::new() }),
        container_id: id,
        restart_count: i32::try_from(description.attempt).unwrap_or(i32::MAX),
        ready: is_ready(pod, member, step),
        started: (member.role != ContainerRole::Ephemeral).then(|| probes::is_started(member)),
        last_state: Some(description.last.map(|last| of_last(&last, last_attempt)).unwrap_or_default()),
        resources: is_here.then(|| resize::resources_of(pod, member)).flatten(),
        allocated_resources: is_here.then(|| resize::allocated(pod, member)).flatten(),
        state: Some(description.state),
        ..ContainerStatus::default()
    };
    if pod.is_simulated { simulated_pod::shape(pod, member, status) } else { status }
}

/// Description of a container's state.
struct StateDescription {
    attempt: u32,
    state: ContainerState,
    last: Option<AttemptEnd>,
    /// It waits for its next attempt: `last` is how the attempt of this number ended.
    waits_after_end: bool,
}

fn describe_state(pod: &LocalPod, member: &PodContainer, step: &ContainerAction) -> StateDescription {
    let describe = |attempt, state, last| StateDescription { attempt, state, last, waits_after_end: false };
    let ended = member.ended().cloned();
    let waits_after_end = ended.is_some();
    let attempt = member.attempt;
    match (step, &member.state) {
        (ContainerAction::Start(start), _) if start.attempt > attempt => {
            describe(start.attempt, usual_wait(pod), ended)
        }
        (ContainerAction::Renew, AttemptState::Ended(ended)) => {
            describe(attempt.saturating_add(1), waiting(restart_all::REASON, None), Some(ended.clone()))
        }
        (ContainerAction::Misconfigured(missing), _) => StateDescription {
            attempt,
            state: waiting("CreateContainerConfigError", Some(missing.clone())),
            last: ended.or(member.last.clone()),
            waits_after_end,
        },
        (ContainerAction::BackOff { .. }, AttemptState::Ended(ended)) if end_fades(pod, ended).is_some() => {
            describe_recent_end(pod, member, ended)
        }
        (ContainerAction::BackOff { seconds, .. }, _) => {
            StateDescription { attempt, state: crash_loop(pod, member, *seconds), last: ended, waits_after_end }
        }
        (_, AttemptState::Running { .. }) if member.is_starting() => {
            describe(attempt, usual_wait(pod), member.last.clone())
        }
        (ContainerAction::Keep, AttemptState::New) if restart_all::waits(member) => {
            describe(attempt, waiting(restart_all::REASON, None), member.last.clone())
        }
        (_, AttemptState::New | AttemptState::Starting { .. }) => {
            describe(attempt, image_wait(member).unwrap_or_else(|| usual_wait(pod)), member.last.clone())
        }
        (_, AttemptState::Refused { reason, message, at }) => {
            describe(attempt, refused(pod, member, reason, message, *at), member.last.clone())
        }
        (_, AttemptState::Running { since }) => {
            let running = ContainerStateRunning { started_at: Some(api_time(*since)) };
            describe(attempt, ContainerState { running: Some(running), ..Default::default() }, member.last.clone())
        }
        (_, AttemptState::Ended(ended)) => {
            let stopped = member.facts.as_ref().is_some_and(|facts| facts.stopping.is_some());
            let closed = AttemptEnd { reason: Some(CLOSED.into()), ..ended.clone() };
            let ended = if pod.is_closing() && stopped { &closed } else { ended };
            let terminated = Some(terminated(pod, member, ended, attempt));
            describe(attempt, ContainerState { terminated, ..Default::default() }, member.last.clone())
        }
    }
}

fn crash_loop(pod: &LocalPod, member: &PodContainer, seconds: i64) -> ContainerState {
    let container = format!("failed container={} pod={}", member.spec.name, pod.full_name());
    waiting("CrashLoopBackOff", Some(format!("back-off {} restarting {container}", in_minutes(seconds))))
}

/// Describes an attempt that has just ended and will be followed by another one: the status shows its end before the back-off.
fn describe_recent_end(pod: &LocalPod, member: &PodContainer, ended: &AttemptEnd) -> StateDescription {
    let attempt = member.attempt;
    if ended.is_start_error() {
        let state = waiting("RunContainerError", Some(ended.message.clone()));
        return StateDescription { attempt, state, last: Some(ended.clone()), waits_after_end: true };
    }
    let terminated = Some(terminated(pod, member, ended, attempt));
    let state = ContainerState { terminated, ..ContainerState::default() };
    StateDescription { attempt, state, last: member.last.clone(), waits_after_end: false }
}

/// Time until which the status shows the end of an attempt instead of the back-off; `None` when that has passed. Simulated pods show the
/// back-off at once.
pub fn end_fades(pod: &LocalPod, ended: &AttemptEnd) -> Option<Time> {
    backoff::error_fades(ended.finished).filter(|fades| !pod.is_simulated && pod.world.now < *fades)
}

fn is_ready(pod: &LocalPod, member: &PodContainer, step: &ContainerAction) -> bool {
    match member.role {
        ContainerRole::Init => *step == ContainerAction::Keep && member.ended().is_some_and(|ended| ended.code == 0),
        ContainerRole::Sidecar | ContainerRole::Main => probes::is_ready(pod, member),
        ContainerRole::Ephemeral => false,
    }
}

fn waiting(reason: &str, message: Option<String>) -> ContainerState {
    let waiting = ContainerStateWaiting { reason: Some(reason.into()), message };
    ContainerState { waiting: Some(waiting), ..ContainerState::default() }
}

fn usual_wait(pod: &LocalPod) -> ContainerState {
    let has_init = pod.members.iter().any(|member| member.role.is_init());
    waiting(if has_init { "PodInitializing" } else { "ContainerCreating" }, None)
}

/// While a refused image is tried again, the status keeps its error.
fn image_wait(member: &PodContainer) -> Option<ContainerState> {
    let tried = member.facts.as_ref().is_some_and(|facts| facts.refusals > 0);
    let old = member.old.as_ref()?.state.as_ref()?;
    (tried && old.waiting.is_some()).then(|| old.clone())
}

fn refused(pod: &LocalPod, member: &PodContainer, reason: &str, message: &str, at: Time) -> ContainerState {
    if reason == "FailedMount" {
        // Kubernetes shows no message here and reports it in events; they are made from this message.
        return waiting("ContainerCreating", Some(message.to_owned()));
    }
    let fades = backoff::error_fades(at);
    if reason != "ErrImagePull" || fades.is_none_or(|fades| pod.world.now < fades) {
        return waiting(reason, Some(message.to_owned()));
    }
    let image = member.spec.image.as_deref().unwrap_or_default();
    let message = message.strip_prefix(&format!("failed to pull image {image:?}: ")).unwrap_or(message);
    waiting("ImagePullBackOff", Some(format!("Back-off pulling image {image:?}: ErrImagePull: {message}")))
}

fn terminated(pod: &LocalPod, member: &PodContainer, ended: &AttemptEnd, attempt: u32) -> ContainerStateTerminated {
    let usual = if ended.code == 0 { "Completed" } else { "Error" };
    ContainerStateTerminated {
        container_id: Some(id(pod, member, attempt)),
        exit_code: ended.code,
        signal: None,
        reason: Some(ended.reason.clone().unwrap_or_else(|| usual.into())),
        message: message::truncate_message(pod.members.len(), &ended.message),
        // Go writes a missing time this way.
        started_at: ended.started.or_else(|| ended.is_start_error().then_some(Time::UNIX_EPOCH)).map(api_time),
        finished_at: Some(api_time(ended.finished)),
    }
}

fn id(pod: &LocalPod, member: &PodContainer, attempt: u32) -> String {
    let name = &member.spec.name;
    if pod.is_simulated {
        format!("fake://{name}")
    } else {
        format!("{RUNTIME_SCHEME}{}/{name}/{attempt}", pod.row.uid)
    }
}

/// The image that the attempt runs; the spec may name another one by now.
fn image(pod: &LocalPod, member: &PodContainer, attempt: u32) -> String {
    let ran = member.image_that_ran().filter(|_| attempt == member.attempt && !pod.is_simulated);
    ran.or(member.spec.image.as_deref()).unwrap_or_default().to_owned()
}

/// The `imageID` with the digest of watched files at the start of the attempt: set with the order to start, kept as long as the attempt is
/// the current one.
fn sources_id(member: &PodContainer, step: &ContainerAction, attempt: u32) -> Option<String> {
    if let ContainerAction::Start(start) = step {
        return image::id(start);
    }
    let old = member.old.as_ref().filter(|old| u32::try_from(old.restart_count) == Ok(attempt))?;
    Some(old.image_id.clone()).filter(|id| image::has_source_digest(id))
}

fn image_id(pod: &LocalPod, member: &PodContainer) -> String {
    let image = member.spec.image.as_deref().unwrap_or_default();
    if pod.is_simulated { format!("fake://{image}") } else { image.to_owned() }
}

/// Seconds as Go prints a duration: `10s`, `2m40s`, `5m0s`.
fn in_minutes(seconds: i64) -> String {
    if seconds < 60 { format!("{seconds}s") } else { format!("{}m{}s", seconds / 60, seconds % 60) }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{ContainerBehaviour, TestMachine, pod};
    use super::in_minutes;
    use serde_json::json;

    #[test]
    fn durations_are_gos() {
        for (seconds, text) in [(10, "10s"), (80, "1m20s"), (160, "2m40s"), (300, "5m0s")] {
            assert_eq!(in_minutes(seconds), text);
        }
    }

    #[test]
    fn refused_image_backs_off_and_keeps_its_message() {
        let mut machine = TestMachine::new(pod(json!({"containers": [{"name": "c", "image": "nope:1"}]})));
        machine.set_behaviour("c", ContainerBehaviour::Refuse("ErrImagePull")).run_to(1);
        assert_eq!(machine.summary(), "Pending c=ErrImagePull/0");
        machine.run_to(3);
        assert_eq!(machine.summary(), "Pending c=ImagePullBackOff/0");
        let message = "Back-off pulling image \"nope:1\": ErrImagePull: write it otherwise";
        assert_eq!(machine.container("c")["state"]["waiting"]["message"], message);
        machine.run_to(200);
        let starts = ["0", "10", "30", "70", "150"].map(|second| format!("{second} start c#0"));
        assert_eq!(machine.take_messages(), starts);
        machine.set_behaviour("c", ContainerBehaviour::Stay).run_to(320);
        assert_eq!(machine.summary(), "Running c+=running/0");
        assert_eq!(machine.reasons()[..5], ["Pulling", "Failed", "Failed", "BackOff", "Failed"]);
    }

    #[test]
    fn program_that_cannot_be_run_has_ended() {
        let mut machine = TestMachine::new(pod(json!({"containers": [{"name": "c", "image": "a"}]})));
        machine.set_behaviour("c", ContainerBehaviour::Refuse("StartError")).run_to(1);
        assert_eq!(machine.summary(), "Running c=RunContainerError/1");
        assert_eq!(machine.container("c")["state"]["waiting"]["message"], "write it otherwise");
        machine.run_to(5);
        assert_eq!(machine.summary(), "Running c=CrashLoopBackOff/1");
        let last = machine.container("c")["lastState"]["terminated"].clone();
        assert_eq!((&last["exitCode"], &last["reason"]), (&json!(128), &json!("StartError")));
        assert_eq!(last["startedAt"], "1970-01-01T00:00:00Z");
        assert_eq!(machine.container("c")["imageID"], "a");
        assert_eq!(machine.reasons()[..3], ["Pulled", "Created", "Failed"]);
        assert_eq!(machine.events[2].message, "Error: write it otherwise");
    }

    #[test]
    fn lost_machine_is_never_success() {
        for (policy, expected) in [
            ("Always", "Running c+=running/1"),
            ("OnFailure", "Running c+=running/1"),
            ("Never", "Failed c=ContainerStatusUnknown/0"),
        ] {
            let spec = json!({"restartPolicy": policy, "containers": [{"name": "c", "image": "a"}]});
            let mut machine = TestMachine::new(pod(spec));
            machine.run_to(5);
            machine.reboot();
            machine.run_to(6);
            assert_eq!(machine.summary(), expected, "{policy}");
            let state = if policy == "Never" { "state" } else { "lastState" };
            let ended = machine.container("c")[state]["terminated"].clone();
            assert_eq!((&ended["exitCode"], &ended["reason"]), (&json!(137), &json!("ContainerStatusUnknown")));
        }
    }

    #[test]
    fn container_stopped_with_the_control_plane_starts_again() {
        for policy in ["Always", "OnFailure", "Never"] {
            let spec = json!({"restartPolicy": policy, "containers": [{"name": "c", "image": "a"}]});
            let mut machine = TestMachine::new(pod(spec));
            machine.run_to(5);
            machine.world.settings.closing = true;
            machine.run_to(6);
            assert_eq!(machine.summary(), "Running c=Stopped/0", "{policy}");
            assert_eq!(machine.container("c")["state"]["terminated"]["exitCode"], 143);
            assert_eq!(machine.condition("Ready"), "ContainersNotReady");
            machine.reboot();
            machine.world.settings.closing = false;
            machine.run_to(7);
            assert_eq!(machine.summary(), "Running c+=running/0", "{policy}: it does not count as a failure");
            assert_eq!(machine.take_messages(), ["0 start c#0", "5 stop c in 30", "5 c ends 143", "6 start c#0"]);
        }
    }

    #[test]
    fn stopped_container_that_was_not_removed_starts_again_at_once() {
        let spec = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "a"}]});
        let mut machine = TestMachine::new(pod(spec));
        machine.run_to(5);
        machine.world.settings.closing = true;
        machine.run_to(6);
        machine.restart();
        machine.world.settings.closing = false;
        machine.run_to(6);
        assert_eq!(machine.summary(), "Running c+=running/1");
    }

    #[test]
    fn new_machine_runs_init_containers_again() {
        let init = json!([{"name": "i", "image": "a"}]);
        let spec = json!({"initContainers": init, "containers": [{"name": "c", "image": "a"}]});
        let mut machine = TestMachine::new(pod(spec));
        machine.set_behaviour("i", ContainerBehaviour::Exit(1, 0)).run_to(5);
        machine.take_messages();
        machine.reboot();
        machine.run_to(10);
        assert_eq!(machine.take_messages(), ["5 start i#1", "6 i ends 0", "6 start c#1"]);
        assert_eq!(machine.summary(), "Running i+=Completed/1 c+=running/1");
    }

    #[test]
    fn final_phases_stay() {
        let spec = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "a"}]});
        let mut machine = TestMachine::new(pod(spec));
        machine.set_behaviour("c", ContainerBehaviour::Exit(1, 0)).run_to(5);
        let status = machine.status();
        machine.reboot();
        machine.run_to(1000);
        assert_eq!(machine.status(), status);
        assert_eq!(machine.starts.len(), 1);
    }

    #[test]
    fn statuses_are_sorted_by_name() {
        let containers = json!([{"name": "z", "image": "a"}, {"name": "b", "image": "a"}]);
        let mut machine = TestMachine::new(pod(json!({"containers": containers})));
        machine.settle();
        assert_eq!(machine.summary(), "Running b+=running/0 z+=running/0");
    }
}
