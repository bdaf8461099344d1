//! Termination of a pod. First the preStop hooks run. Then the containers stop, and after them the sidecars in reverse order, each with the
//! remaining grace period. At last the pod's folder and the pod object are removed.

use super::actions::{PodActions, STOP_UNANSWERED};
use super::pod::{AttemptState, ContainerRole, LocalPod, PodContainer};
use super::restart_all::restarts;
use super::{deadlines, eviction};
use crate::object::Time;
use crate::object::time::Shift;
use crate::world::{Effect, EventType, Plan, PodFacts, ProbeKind, Propagation, World};
use jiff::SignedDuration;

/// Minimum grace period of a container in seconds (Kubernetes: minimumGracePeriodInSeconds).
const MINIMUM_GRACE: i64 = 2;

/// Time after its grace period until a deleted pod is removed by force, even without an answer of its shim.
const OVERDUE: SignedDuration = SignedDuration::from_secs(MINIMUM_GRACE + 1);

/// Whether no further container of the pod may start.
pub fn is_ending(pod: &LocalPod) -> bool {
    pod.row.is_deleting()
        || pod.has_ended()
        || deadlines::is_over(pod)
        || eviction::is_evicted(pod)
        || init_failed(pod)
        || is_finished(pod)
}

/// Whether all containers have ended and will not restart; only sidecars still run.
pub fn is_finished(pod: &LocalPod) -> bool {
    pod.with_role(ContainerRole::Main).all(|member| member.ended().is_some() && !restarts(pod, member))
}

/// Whether an init container has failed and will not restart, so that the pod has failed.
pub fn init_failed(pod: &LocalPod) -> bool {
    pod.with_role(ContainerRole::Init)
        .any(|member| member.ended().is_some_and(|ended| ended.code != 0) && !restarts(pod, member))
}

/// Stops the containers that still run.
pub fn decide(pod: &LocalPod, order: &mut PodActions) {
    let grace = match deadline(pod) {
        Some(end) => seconds_until(pod.world.now, end).min(deletion_grace(pod)).max(MINIMUM_GRACE),
        None if eviction::is_evicted(pod) => eviction::GRACE,
        None => pod.grace_seconds(),
    };
    for (place, member) in pod.members.iter().enumerate() {
        if member.is_alive() && (may_stop_now(pod, place) || must_run_hook_now(pod, member, grace)) {
            order.stop(pod, place, grace);
        }
    }
}

/// Whether the preStop hook of a container has to run now. A sidecar's runs when its pod begins to terminate, although the sidecar itself
/// ends after the containers (Kubernetes' killContainer runs the hook before it waits for the container's turn).
fn must_run_hook_now(pod: &LocalPod, member: &PodContainer, grace: i64) -> bool {
    let runs = matches!(member.state, AttemptState::Running { .. });
    let is_new = member.probe(ProbeKind::PreStop).is_none_or(|hook| hook.since.is_none());
    !pod.is_simulated && grace > 0 && runs && is_new && member.hook(ProbeKind::PreStop).is_some()
}

/// Returns the end of the grace period of a deleted pod. As in the kubelet it begins when the node begins to terminate the pod: the
/// deletion timestamp has only whole seconds, and the kubelet may see it late. A new control plane does not know of preStop hooks that
/// ran; it runs them again, because Kubernetes promises to run a hook at least once ("Container Lifecycle Hooks").
pub fn deadline(pod: &LocalPod) -> Option<Time> {
    let end = pod.row.deletion?;
    let grace = SignedDuration::from_secs(deletion_grace(pod));
    let deleted_at = end.earlier(grace);
    let stops = pod.members.iter().filter_map(|member| Some(member.facts.as_ref()?.stopping?.since));
    let hooks = pod.members.iter().filter_map(|member| member.probe(ProbeKind::PreStop)?.since);
    // A container may have been stopped before the pod was deleted.
    let start = stops.chain(hooks).map(|since| since.max(deleted_at)).min().unwrap_or(pod.world.now);
    Some(start.later(grace).max(end))
}

/// Returns the grace period of the deletion in seconds.
fn deletion_grace(pod: &LocalPod) -> i64 {
    pod.object.int(&["metadata", "deletionGracePeriodSeconds"]).unwrap_or(0)
}

/// Whether a container may stop now. Until the deadline, a sidecar waits for the containers and for the sidecars that were started after
/// it.
fn may_stop_now(pod: &LocalPod, place: usize) -> bool {
    let late = deadline(pod).is_some_and(|end| pod.world.now >= end);
    let later_lives = pod.members[place + 1..].iter().any(PodContainer::is_alive);
    pod.members[place].role != ContainerRole::Sidecar || late || !later_lives
}

/// Removes a deleted pod from the machine, and then from the store.
pub fn finish(pod: &LocalPod, plan: &mut Plan) {
    let Some(end) = deadline(pod) else { return };
    let facts = pod.facts.as_deref().filter(|_| !pod.is_simulated);
    match facts {
        Some(facts) if !pod.is_alive() || pod.world.now >= end.later(OVERDUE) => {
            let is_asked = remove(pod.world, &pod.row.uid, facts, plan);
            if let Some(why) = &facts.not_removed {
                plan.wait(format!("its folder cannot be removed: {why}"));
                if is_asked {
                    plan.event(pod.row, EventType::Warning, "FailedKillPod", format!("error killing pod: {why}"));
                }
            }
        }
        Some(_) => {
            plan.wait("its containers are ending");
            plan.wake_at(end.later(OVERDUE));
        }
        None if is_held(pod) => {
            plan.wait(format!(
                "its processes have ended; it waits for its finalizers: {}",
                pod.row.finalizers.join(", ")
            ));
        }
        None => {
            plan.delete_with(pod.row, Some(0), Propagation::Background, "nothing of the pod is left on its node");
        }
    }
}

/// Whether the pod has ended and only finalizers keep the object.
fn is_held(pod: &LocalPod) -> bool {
    deletion_grace(pod) == 0 && !pod.row.finalizers.is_empty()
}

/// Orders the removal of a pod from the machine, and repeats the order after a timeout. Returns whether it was ordered now.
pub fn remove(world: &World, uid: &str, facts: &PodFacts, plan: &mut Plan) -> bool {
    match facts.removing.map(|asked| asked.later(STOP_UNANSWERED)).filter(|again| *again > world.now) {
        Some(again) => plan.wake_at(again),
        None => {
            plan.effects.push(Effect::Remove { pod_uid: uid.into() });
            plan.wake_at(world.now.later(STOP_UNANSWERED));
            return true;
        }
    }
    false
}

/// Returns the seconds until `end`, rounded up.
pub fn seconds_until(now: Time, end: Time) -> i64 {
    let left = end.duration_since(now);
    left.as_secs().saturating_add(i64::from(left.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{ContainerBehaviour, TestMachine, key, pod};
    use jiff::SignedDuration;
    use serde_json::{Value, json};

    fn with_sidecars() -> Value {
        pod(json!({
            "terminationGracePeriodSeconds": 30,
            "initContainers": [{"name": "s1", "image": "a", "restartPolicy": "Always"},
                {"name": "s2", "image": "a", "restartPolicy": "Always"}],
            "containers": [{"name": "c", "image": "a"}],
        }))
    }

    fn is_gone(machine: &TestMachine) -> bool {
        machine.world.get(&key("p")).is_none() && machine.world.facts.pods.get("uid-p").is_none()
    }

    #[test]
    fn deleted_pod_ends_and_is_removed() {
        let mut machine =
            TestMachine::new(pod(json!({"containers": [{"name": "c", "image": "a"}, {"name": "d", "image": "a"}]})));
        machine.run_to(10);
        machine.take_messages();
        machine.delete(30);
        machine.settle();
        let expected =
            ["10 stop c in 30", "10 stop d in 30", "10 c ends 143", "10 d ends 143", "10 remove uid-p", "10 deleted"];
        assert_eq!(machine.take_messages(), expected);
        assert!(is_gone(&machine));
        assert_eq!(machine.reasons().iter().filter(|reason| **reason == "Killing").count(), 2);
    }

    #[test]
    fn sidecars_end_after_containers_in_reverse_with_the_remaining_grace() {
        let mut machine = TestMachine::new(with_sidecars());
        machine
            .set_behaviour("c", ContainerBehaviour::Stubborn)
            .set_behaviour("s2", ContainerBehaviour::Stubborn)
            .run_to(10);
        machine.take_messages();
        machine.delete(8);
        machine.run_to(100);
        let expected = [
            "10 stop c in 8",
            "18 c ends 137",
            // The grace period is over, so all sidecars get the minimum at the same time.
            "18 stop s1 in 2",
            "18 stop s2 in 2",
            "18 s1 ends 143",
            "20 s2 ends 137",
            "20 remove uid-p",
            "20 deleted",
        ];
        assert_eq!(machine.take_messages(), expected);
        let mut machine = TestMachine::new(with_sidecars());
        machine.run_to(10);
        machine.take_messages();
        machine.delete(30);
        machine.run_to(100);
        let stops: Vec<_> = machine.take_messages().into_iter().filter(|line| line.contains("stop")).collect();
        assert_eq!(stops, ["10 stop c in 30", "10 stop s2 in 30", "10 stop s1 in 30"]);
    }

    #[test]
    fn sidecar_hooks_run_at_once_and_their_stops_in_turn() {
        let mut pod = with_sidecars();
        pod["spec"]["initContainers"][0]["lifecycle"] = json!({"preStop": {"exec": {"command": ["true"]}}});
        let mut machine = TestMachine::new(pod);
        machine.set_behaviour("c", ContainerBehaviour::Stubborn).run_to(10);
        machine.take_messages();
        machine.delete(8);
        machine.run_to(100);
        let expected = ["10 prestop ok", "10 stop c in 8", "18 c ends 137", "18 stop s1 in 2", "18 stop s2 in 2"];
        assert_eq!(machine.take_messages()[..5], expected);
        let killing = machine.events.iter().filter(|event| event.reason == "Killing");
        assert_eq!(killing.count(), 3, "each is told once");
    }

    #[test]
    fn second_delete_may_only_shorten_the_grace_period() {
        let mut machine = TestMachine::new(pod(json!({"containers": [{"name": "c", "image": "a"}]})));
        machine.set_behaviour("c", ContainerBehaviour::Stubborn).run_to(10);
        machine.take_messages();
        machine.delete(30);
        machine.run_to(12);
        machine.delete(40);
        machine.run_to(14);
        machine.delete(3);
        machine.run_to(100);
        let story = machine.take_messages();
        assert_eq!(story[..3], ["10 stop c in 30", "14 stop c in 3", "17 c ends 137"]);
        assert!(is_gone(&machine));
    }

    #[test]
    fn grace_period_counts_from_the_start_of_termination_on_the_node() {
        // The deletion timestamp has whole seconds, and the kubelet sees it late.
        for late in [300, 900, 60_000] {
            let mut machine = TestMachine::new(with_sidecars());
            machine.set_behaviour("c", ContainerBehaviour::Stubborn).run_to(10);
            machine.take_messages();
            machine.world.now += SignedDuration::from_millis(700);
            machine.delete(5);
            machine.world.now += SignedDuration::from_millis(late);
            machine.settle();
            assert!(machine.take_messages()[0].ends_with("stop c in 5"), "late by {late} ms");
            machine.settle();
            assert_eq!(machine.take_messages(), [""; 0], "not anew");
        }
    }

    fn with_hook(seconds: u32) -> TestMachine {
        let hook = json!({"preStop": {"sleep": {"seconds": seconds}}});
        let mut machine =
            TestMachine::new(pod(json!({"containers": [{"name": "c", "image": "a", "lifecycle": hook}]})));
        machine.set_behaviour("c", ContainerBehaviour::Stubborn).run_to(10);
        machine.take_messages();
        machine
    }

    #[test]
    fn hooks_run_although_the_kubelet_is_late() {
        let mut machine = with_hook(5);
        machine.delete(30);
        machine.world.now += SignedDuration::from_secs(60);
        machine.settle();
        machine.run_to(200);
        let story = machine.take_messages();
        assert_eq!(story[..3], ["70 prestop ok", "75 stop c in 25", "100 c ends 137"]);
    }

    #[test]
    fn control_plane_that_takes_over_runs_the_hook_again() {
        let mut machine = with_hook(500);
        machine.delete(30);
        machine.run_to(20);
        machine.restart();
        machine.run_to(100);
        let stops: Vec<_> = machine.take_messages().into_iter().filter(|line| line.contains("stop c")).collect();
        assert_eq!(stops, ["50 stop c in 2"]);
    }

    #[test]
    fn pod_that_never_started_or_was_lost_is_removed_at_once() {
        let mut machine = TestMachine::new(pod(json!({"containers": [{"name": "c", "image": "a"}]})));
        machine.delete(30);
        machine.settle();
        assert_eq!(machine.take_messages(), ["0 deleted"]);
        let mut machine = TestMachine::new(pod(json!({"containers": [{"name": "c", "image": "a"}]})));
        machine.run_to(5);
        machine.reboot();
        machine.delete(30);
        machine.take_messages();
        machine.settle();
        assert_eq!(machine.take_messages(), ["5 deleted"]);
    }

    #[test]
    fn finalizers_keep_the_object_but_not_the_processes() {
        let mut held = pod(json!({"containers": [{"name": "c", "image": "a"}]}));
        held["metadata"]["finalizers"] = json!(["x.dev/hold"]);
        let mut machine = TestMachine::new(held);
        machine.run_to(5);
        machine.delete(30);
        machine.settle();
        assert_eq!(machine.summary(), "Failed c=Error/0");
        let plan = machine.settle();
        assert_eq!(plan.waits, ["its processes have ended; it waits for its finalizers: x.dev/hold"]);
    }

    #[test]
    fn pod_that_does_not_terminate_is_removed_by_force() {
        let mut machine = TestMachine::new(pod(json!({"containers": [{"name": "c", "image": "a"}]})));
        machine.run_to(5);
        machine.take_messages();
        machine.delete(5);
        // The machine gets the stop and never answers.
        machine.set_behaviour("c", ContainerBehaviour::Unresponsive);
        machine.run_to(100);
        assert_eq!(machine.take_messages(), ["5 stop c in 5", "13 remove uid-p", "13 deleted"]);
    }

    #[test]
    fn sidecars_of_a_finished_pod_end_too() {
        let mut spec = with_sidecars();
        spec["spec"]["restartPolicy"] = "Never".into();
        let mut machine = TestMachine::new(spec);
        machine.set_behaviour("c", ContainerBehaviour::Exit(3, 0)).run_to(60);
        let stops: Vec<_> = machine.take_messages().into_iter().filter(|line| line.contains("stop")).collect();
        assert_eq!(stops, ["3 stop s2 in 30", "3 stop s1 in 30"]);
        assert_eq!(machine.status()["phase"], "Succeeded");
    }
}
