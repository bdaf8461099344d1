//! Restart rules by which the exit of one container restarts all containers of its pod, init containers included (KEP-5532).
//!
//! First all running containers are killed, without preStop hooks. After the backoff of the container with the rule, every container gets a
//! new attempt, so that the pod starts like a new one, with the same address and volumes. The pod's condition shows which of the two
//! steps it is at. Ephemeral containers keep running.

use super::actions::{ContainerAction, PodActions};
use super::backoff;
use super::pod::{AttemptState, ContainerRole, LocalPod, PodContainer};
use super::restart_policy::{matched_rule, restarts_alone};
use crate::object::Time;
use crate::object::time::Shift;
use jiff::SignedDuration;

/// The condition that is true while all containers restart.
pub const CONDITION: &str = "AllContainersRestarting";
/// Waiting reason of a container in that case.
pub const REASON: &str = "RestartingAllContainers";
/// The action of such a rule.
const ACTION: &str = "RestartAllContainers";

/// Whether any container of the pod has such a rule.
pub fn has_restart_all_rule(pod: &LocalPod) -> bool {
    let rules = pod.members.iter().flat_map(|member| member.spec.restart_policy_rules.iter().flatten());
    !pod.is_simulated && rules.into_iter().any(|rule| rule.action == ACTION)
}

/// Whether all containers have to restart, or are restarting.
pub fn is_under_way(pod: &LocalPod) -> bool {
    let is_marked = || pod.condition(CONDITION).is_some_and(|condition| condition.status == "True");
    // An exit in a finished pod does not restart it.
    let is_over =
        || pod.with_role(ContainerRole::Main).all(|main| main.ended().is_some() && !restarts_alone(pod, main));
    has_restart_all_rule(pod) && (is_marked() || (pod.members.iter().any(is_cause) && !is_over()))
}

/// Whether a container that has ended is started again.
pub fn restarts(pod: &LocalPod, member: &PodContainer) -> bool {
    let is_over = member.ended().is_some() && member.role != ContainerRole::Ephemeral;
    is_over && (restarts_alone(pod, member) || is_under_way(pod))
}

/// Whether the container's exit restarts all containers.
fn is_cause(member: &PodContainer) -> bool {
    let rule = member.ended().and_then(|ended| matched_rule(member, ended.code));
    member.role != ContainerRole::Ephemeral && rule.is_some_and(|rule| rule.action == ACTION)
}

/// Decides the actions; false when none are needed.
pub fn decide(pod: &LocalPod, order: &mut PodActions) -> bool {
    if !is_under_way(pod) {
        return false;
    }
    let of_pod = || pod.members.iter().enumerate().filter(|(_, member)| member.role != ContainerRole::Ephemeral);
    for (place, _) in of_pod().filter(|(_, member)| member.is_alive()) {
        order.stop(pod, place, 0);
    }
    let pauses: Vec<(usize, i64, Time)> = of_pod().filter_map(|(place, member)| pause(pod, place, member)).collect();
    let now = pod.world.now;
    for (place, seconds, due) in pauses.iter().copied().filter(|(_, _, due)| *due > now) {
        order.steps[place] = ContainerAction::BackOff { seconds, due };
        order.wakes.push(due);
    }
    if of_pod().all(|(_, member)| !member.is_alive()) && pauses.iter().all(|(_, _, due)| *due <= now) {
        of_pod().for_each(|(place, _)| order.steps[place] = ContainerAction::Renew);
    }
    true
}

/// The pause that a container which caused it has to make, and when it is over.
fn pause(pod: &LocalPod, place: usize, member: &PodContainer) -> Option<(usize, i64, Time)> {
    let ended = member.ended().filter(|_| is_cause(member))?;
    let seconds = backoff::restart(&pod.world.settings, member.attempt, ended, member.last.as_ref());
    Some((place, seconds, ended.finished.later(SignedDuration::from_secs(seconds))))
}

/// Whether a container waits because all containers restart.
pub fn waits(member: &PodContainer) -> bool {
    let waiting = member.old.as_ref().and_then(|old| old.state.as_ref()?.waiting.as_ref());
    member.state == AttemptState::New && waiting.is_some_and(|waiting| waiting.reason.as_deref() == Some(REASON))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{ContainerBehaviour, TestMachine, pod};
    use serde_json::{Value, json};

    fn rule(action: &str, code: i32) -> Value {
        json!({"action": action, "exitCodes": {"operator": "In", "values": [code]}})
    }

    fn machine(policy: &str) -> TestMachine {
        let hook = json!({"preStop": {"exec": {"command": ["true"]}}});
        let rules = json!([rule("Restart", 7), rule("RestartAllContainers", 7), rule("RestartAllContainers", 8)]);
        TestMachine::new(pod(json!({
            "restartPolicy": policy,
            "initContainers": [{"name": "i", "image": "a"}],
            "containers": [{"name": "main", "image": "a", "lifecycle": hook},
                {"name": "side", "image": "a", "restartPolicy": "Never", "restartPolicyRules": rules}],
        })))
    }

    #[test]
    fn one_end_starts_all_of_them_anew() {
        for policy in ["Never", "Always"] {
            let mut machine = machine(policy);
            machine
                .set_behaviour("i", ContainerBehaviour::Exit(1, 0))
                .set_behaviour("side", ContainerBehaviour::Exit(5, 8))
                .run_to(3);
            assert_eq!(machine.condition("AllContainersRestarting"), "False");
            machine.take_messages();
            machine.run_to(6);
            let waits = "main=RestartingAllContainers/1 side=RestartingAllContainers/1";
            assert_eq!(machine.summary(), format!("Running i=running/1 {waits}"));
            machine.set_behaviour("side", ContainerBehaviour::Stay).run_to(20);
            let story = [
                "6 side ends 8",
                "6 stop main in 0",
                "6 main ends 137",
                "6 start i#1",
                "7 i ends 0",
                "7 start main#1",
                "7 start side#1",
            ];
            assert_eq!(machine.take_messages(), story, "{policy}");
            assert_eq!(machine.summary(), "Running i+=Completed/1 main+=running/1 side+=running/1");
            assert_eq!(machine.container("side")["lastState"]["terminated"]["exitCode"], 8);
            assert_eq!(machine.condition("AllContainersRestarting"), "False");
        }
    }

    #[test]
    fn first_matching_rule_counts_and_backoff_grows() {
        let mut machine = machine("Always");
        machine
            .set_behaviour("side", ContainerBehaviour::Exit(2, 7))
            .set_behaviour("i", ContainerBehaviour::Exit(0, 0))
            .run_to(3);
        assert_eq!(machine.summary(), "Running i+=Completed/0 main+=running/0 side+=running/1");
        machine.set_behaviour("side", ContainerBehaviour::Exit(2, 8)).run_to(5);
        machine.take_messages();
        machine.run_to(70);
        let starts: Vec<String> =
            machine.take_messages().into_iter().filter(|line| line.contains("start side")).collect();
        assert_eq!(starts, ["14 start side#2", "36 start side#3"]);
    }

    #[test]
    fn container_that_ends_with_its_pod_does_not_restart_it() {
        let mut spec = json!({"restartPolicy": "Never", "containers": [{"name": "main", "image": "a"}]});
        spec["initContainers"] = json!([{"name": "side", "image": "a", "restartPolicy": "Always",
            "restartPolicyRules": [rule("RestartAllContainers", 143)]}]);
        let mut machine = TestMachine::new(pod(spec));
        machine.set_behaviour("main", ContainerBehaviour::Exit(2, 0)).run_to(30);
        assert_eq!(machine.summary(), "Succeeded side=Error/0 main=Completed/0");
        assert_eq!(machine.condition("AllContainersRestarting"), "PodCompleted");
    }
}
