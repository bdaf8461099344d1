//! postStart and preStop hooks: run after the start of a container, and before its stop signal.
//!
//! A container counts as running when its postStart hook has succeeded; a hook that fails ends the container. The preStop hook runs before
//! the stop signal, and its time counts against the grace period. Each runs at least once: a control plane that restarts in between orders
//! it again. Effects and reports treat a hook as a probe that runs once. A `sleep` needs no work of the machine.

use super::actions::{ContainerAction, PodActions};
use super::pod::{AttemptState, LocalPod, PodContainer, hook_of_kind};
use super::{probes, termination};
use crate::kinds::shared::probe_handler::ProbeHandler;
use crate::object::Time;
use crate::object::time::Shift;
use crate::world::{ContainerFacts, Plan, ProbeKind};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Container;

/// Maximum time of a postStart hook. Kubernetes has no maximum; this one can be added to a time without overflow.
const MAX_POST_START_SECONDS: i64 = 24 * 60 * 60;
/// Minimum number of seconds between a container's stop signal and SIGKILL (Kubernetes: minimumGracePeriodInSeconds).
const LEAST_GRACE: i64 = 2;

fn sleeps(container: &Container, kind: ProbeKind) -> Option<SignedDuration> {
    Some(SignedDuration::from_secs(hook_of_kind(container, kind)?.sleep.as_ref()?.seconds))
}

/// Hooks that sleep and whose time is over have succeeded.
pub fn wake_up(now: Time, container: &Container, facts: &mut ContainerFacts) {
    for kind in [ProbeKind::PostStart, ProbeKind::PreStop] {
        let (Some(pause), Some(hook)) = (sleeps(container, kind), facts.probes.get_mut(&kind)) else { continue };
        if let Some(end) = hook.in_flight.map(|since| since.later(pause)).filter(|end| *end <= now) {
            (hook.in_flight, hook.last, hook.successes) = (None, Some(end), 1);
        }
    }
}

/// The stop of a container whose postStart hook has failed.
pub fn failed(pod: &LocalPod, member: &PodContainer) -> Option<ContainerAction> {
    let stopping = member.facts.as_ref().is_some_and(|facts| facts.stopping.is_some());
    let failed = member.probe(ProbeKind::PostStart).is_some_and(|hook| hook.failures > 0);
    let event = || Some("FailedPostStartHook".to_owned());
    (failed && !stopping && member.is_starting())
        .then(|| ContainerAction::Stop { grace: pod.grace_seconds(), event: event() })
}

/// Orders the postStart hooks that are due. Not in the tick in which the pod was written: it would be ordered twice.
pub fn order_hooks(pod: &LocalPod, plan: &mut Plan) {
    for member in pod.members.iter().filter(|member| member.is_starting()) {
        let Some(hook) = member.hook(ProbeKind::PostStart) else { continue };
        match member.probe(ProbeKind::PostStart).and_then(|known| known.since) {
            Some(since) => sleeps(&member.spec, ProbeKind::PostStart)
                .into_iter()
                .for_each(|pause| plan.wake_at(since.later(pause))),
            None if pod.is_staged() => plan.wake_at(pod.world.now.later(SignedDuration::from_secs(1))),
            None => plan.effects.push(probes::start_probe(
                pod,
                member,
                ProbeKind::PostStart,
                ProbeHandler::from_hook(hook),
                MAX_POST_START_SECONDS,
            )),
        }
    }
}

/// Orders the preStop hook of a container that is to end.
pub fn order_pre_stop(pod: &LocalPod, member: &PodContainer, grace: i64, plan: &mut Plan) {
    if let Some(hook) = member.hook(ProbeKind::PreStop) {
        plan.effects.push(probes::start_probe(pod, member, ProbeKind::PreStop, ProbeHandler::from_hook(hook), grace));
    }
}

/// Puts the preStop hook before each stop that is to be ordered, and takes its time from the grace.
pub fn delay_stops(pod: &LocalPod, order: &mut PodActions) {
    for (place, member) in pod.members.iter().enumerate().filter(|_| !pod.is_simulated) {
        let stopping = member.facts.as_ref().is_some_and(|facts| facts.stopping.is_some());
        let runs = matches!(member.state, AttemptState::Running { .. });
        if member.hook(ProbeKind::PreStop).is_none() || stopping || !runs {
            continue;
        }
        if let ContainerAction::Stop { grace, event } = &mut order.steps[place] {
            let (step, wake) = run_pre_stop(pod, member, *grace, event.take());
            order.steps[place] = step;
            order.wakes.extend(wake);
        }
    }
}

fn run_pre_stop(
    pod: &LocalPod,
    member: &PodContainer,
    grace: i64,
    event: Option<String>,
) -> (ContainerAction, Option<Time>) {
    let now = pod.world.now;
    let known = member.probe(ProbeKind::PreStop);
    let Some(since) = known.and_then(|hook| hook.since) else {
        return match (grace > 0, pod.is_staged()) {
            (false, _) => (ContainerAction::Stop { grace, event }, None),
            (true, true) => (ContainerAction::Keep, Some(now.later(SignedDuration::from_secs(1)))),
            (true, false) => (ContainerAction::PreStop { grace, event }, None),
        };
    };
    // A deletion has a deadline of its own; other stops have the whole grace from the hook on.
    let deadline = termination::deadline(pod).unwrap_or(since.later(SignedDuration::from_secs(grace)));
    if known.is_some_and(|hook| hook.last.is_some()) || now >= deadline {
        let left = termination::seconds_until(now, deadline).max(LEAST_GRACE);
        return (ContainerAction::Stop { grace: left, event: None }, None);
    }
    let awake = sleeps(&member.spec, ProbeKind::PreStop).map(|pause| since.later(pause));
    (ContainerAction::Keep, Some(awake.map_or(deadline, |awake| awake.min(deadline))))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{ContainerBehaviour, TestMachine, pod};
    use serde_json::{Value, json};

    fn machine_with(lifecycle: Value) -> TestMachine {
        let container = json!({"name": "c", "image": "a", "lifecycle": lifecycle});
        TestMachine::new(pod(json!({"terminationGracePeriodSeconds": 30, "containers": [container]})))
    }

    fn exec() -> Value {
        json!({"exec": {"command": ["true"]}})
    }

    #[test]
    fn container_runs_when_its_post_start_hook_has_succeeded() {
        let mut machine = machine_with(json!({"postStart": exec()}));
        machine.settle();
        assert_eq!(machine.take_messages(), ["0 start c#0", "0 poststart ok"]);
        assert_eq!(machine.summary(), "Running c+=running/0");
        machine.restart();
        machine.run_to(60);
        assert_eq!(machine.take_messages(), [""; 0], "not again while it runs");
        let mut machine = machine_with(json!({"postStart": {"sleep": {"seconds": 7}}}));
        machine.run_to(6);
        assert_eq!(
            (&*machine.summary(), &*machine.condition("Ready")),
            ("Pending c=ContainerCreating/0", "ContainersNotReady")
        );
        machine.run_to(7);
        assert_eq!(machine.summary(), "Running c+=running/0");
    }

    #[test]
    fn failed_post_start_hook_stops_the_container() {
        let mut machine = machine_with(json!({"postStart": exec(), "preStop": {"sleep": {"seconds": 3}}}));
        machine.probe("poststart", false).run_to(5);
        let expected = [
            "0 start c#0",
            "0 poststart fails",
            "0 prestop ok",
            "3 stop c in 27",
            "3 c ends 143",
            "3 start c#1",
            "3 poststart fails",
            "3 prestop ok",
        ];
        assert_eq!(machine.take_messages(), expected);
        let event = |reason: &str| {
            machine.events.iter().find(|event| event.reason == reason).map(|event| event.message.clone())
        };
        assert_eq!(event("FailedPostStartHook").as_deref(), Some("PostStartHook failed: no"));
        assert_eq!(event("Killing").as_deref(), Some("FailedPostStartHook"));
    }

    #[test]
    fn pre_stop_hook_comes_first_and_takes_from_the_grace() {
        // One that takes too long leaves the least there is.
        let table: [(i64, [&str; 5]); 2] = [
            (5, ["10 prestop ok", "15 stop c in 25", "40 c ends 137", "40 remove uid-p", "40 deleted"]),
            (500, ["10 prestop ok", "40 stop c in 2", "42 c ends 137", "42 remove uid-p", "42 deleted"]),
        ];
        for (seconds, expected) in table {
            let mut machine = machine_with(json!({"preStop": {"sleep": {"seconds": seconds}}}));
            machine.set_behaviour("c", ContainerBehaviour::Stubborn).run_to(10);
            machine.take_messages();
            machine.delete(30);
            machine.run_to(100);
            assert_eq!(machine.take_messages(), expected);
            assert_eq!(machine.reasons().iter().filter(|reason| **reason == "Killing").count(), 1);
        }
    }

    #[test]
    fn failed_pre_stop_hook_is_reported_and_the_stop_goes_on() {
        let mut machine = machine_with(json!({"preStop": exec()}));
        machine.probe("prestop", false).run_to(10);
        machine.take_messages();
        machine.delete(30);
        machine.settle();
        assert_eq!(
            machine.take_messages(),
            ["10 prestop fails", "10 stop c in 30", "10 c ends 143", "10 remove uid-p", "10 deleted"]
        );
        assert!(
            machine
                .events
                .iter()
                .any(|event| event.reason == "FailedPreStopHook" && event.message == "PreStopHook failed: no")
        );
    }
}
