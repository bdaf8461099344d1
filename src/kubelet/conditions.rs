//! The conditions that the node writes into `status.conditions`.

use super::actions::{ContainerAction, PodActions};
use super::pod::{ContainerRole, LocalPod, api_time};
use super::{eviction, resize, restart_all};
use k8s_openapi::api::core::v1::{ContainerStatus, PodCondition, PodStatus};

/// The state of one condition: whether it is true, and the reason.
struct ConditionState {
    kind: &'static str,
    holds: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

/// The conditions that the kubelet sets, then those of others, unchanged.
pub fn pod_conditions(pod: &LocalPod, order: &PodActions, status: &PodStatus) -> Vec<PodCondition> {
    let containers = containers_ready(pod, status);
    let ready = ready(pod, &containers);
    let verdicts = [
        ready_to_start(pod, order, status),
        initialized(pod, status),
        ready,
        containers,
        true_condition("PodScheduled"),
    ];
    let more = restarting(pod, order, status).into_iter().chain(disrupted(pod)).chain(resized(pod));
    let verdicts: Vec<ConditionState> = verdicts.into_iter().chain(more).collect();
    let others = pod.status.conditions.iter().flatten();
    let others = others.filter(|condition| !condition.type_.starts_with("PodResize"));
    let others = others.filter(|condition| verdicts.iter().all(|verdict| verdict.kind != condition.type_)).cloned();
    let mut conditions: Vec<PodCondition> = verdicts.iter().map(|verdict| to_pod_condition(pod, verdict)).collect();
    conditions.extend(others);
    conditions
}

fn true_condition(kind: &'static str) -> ConditionState {
    ConditionState { kind, holds: true, reason: None, message: None }
}

fn false_condition(kind: &'static str, reason: &'static str, message: Option<String>) -> ConditionState {
    ConditionState { kind, holds: false, reason: Some(reason), message }
}

/// The time of the last transition moves only when the condition turns.
fn to_pod_condition(pod: &LocalPod, verdict: &ConditionState) -> PodCondition {
    let status = if verdict.holds { "True" } else { "False" };
    let before = pod.condition(verdict.kind).filter(|before| before.status == status);
    PodCondition {
        type_: verdict.kind.into(),
        status: status.into(),
        reason: verdict.reason.map(str::to_owned),
        message: verdict.message.clone(),
        observed_generation: Some(pod.row.generation).filter(|generation| *generation > 0),
        last_transition_time: before
            .and_then(|before| before.last_transition_time.clone())
            .or_else(|| Some(api_time(pod.world.now))),
        last_probe_time: None,
    }
}

/// The condition of a pod with a container that can restart all containers.
fn restarting(pod: &LocalPod, order: &PodActions, status: &PodStatus) -> Option<ConditionState> {
    let kind = restart_all::CONDITION;
    let is_begun = || restart_all::is_under_way(pod) && !order.steps.contains(&ContainerAction::Renew);
    restart_all::has_restart_all_rule(pod).then(|| match status.phase.as_deref() {
        Some("Succeeded") => false_condition(kind, "PodCompleted", None),
        Some("Failed") => false_condition(kind, "PodFailed", None),
        _ if is_begun() => ConditionState {
            reason: Some("RestartAllContainersStarted"),
            message: Some("container exited with restart policy rule".into()),
            ..true_condition(kind)
        },
        _ => ConditionState { holds: false, ..true_condition(kind) },
    })
}

/// The condition DisruptionTarget, only for a pod that its node evicts.
fn disrupted(pod: &LocalPod) -> Option<ConditionState> {
    let message = eviction::message(pod)?;
    Some(ConditionState {
        reason: Some("TerminationByKubelet"),
        message: Some(message),
        ..true_condition("DisruptionTarget")
    })
}

/// The condition of a pod while a resize is due.
fn resized(pod: &LocalPod) -> Option<ConditionState> {
    let (kind, reason, message) = resize::condition(pod)?;
    Some(ConditionState { reason, message, ..true_condition(kind) })
}

/// The status that is written may be the last one, so the phase in it decides.
fn ready_to_start(pod: &LocalPod, order: &PodActions, status: &PodStatus) -> ConditionState {
    let kind = "PodReadyToStartContainers";
    let over = !pod.is_simulated && matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    ConditionState { holds: order.ip.is_some() && order.blocked.is_none() && !over, ..true_condition(kind) }
}

fn initialized(pod: &LocalPod, status: &PodStatus) -> ConditionState {
    let kind = "Initialized";
    if status.phase.as_deref() == Some("Succeeded") {
        return ConditionState { reason: Some("PodCompleted"), ..true_condition(kind) };
    }
    let statuses = status.init_container_statuses.iter().flatten();
    let members = pod.members.iter().filter(|member| member.role.is_init());
    let incomplete = statuses.zip(members).filter(|(status, member)| match member.role {
        ContainerRole::Sidecar => status.started != Some(true),
        _ => !status.ready,
    });
    let names: Vec<&str> = incomplete.map(|(status, _)| status.name.as_str()).collect();
    match names.is_empty() {
        true => true_condition(kind),
        false => false_condition(
            kind,
            "ContainersNotInitialized",
            Some(format!("containers with incomplete status: [{}]", names.join(" "))),
        ),
    }
}

fn containers_ready(pod: &LocalPod, status: &PodStatus) -> ConditionState {
    let kind = "ContainersReady";
    match status.phase.as_deref() {
        Some("Succeeded") => return false_condition(kind, "PodCompleted", None),
        Some("Failed") => return false_condition(kind, "PodFailed", None),
        _ => {}
    }
    let all: Vec<&ContainerStatus> =
        status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten()).collect();
    let counted =
        pod.members.iter().filter(|member| matches!(member.role, ContainerRole::Sidecar | ContainerRole::Main));
    let is_ready = |name: &str| all.iter().any(|status| status.name == name && status.ready);
    let unready: Vec<&str> = counted.map(|member| member.spec.name.as_str()).filter(|name| !is_ready(name)).collect();
    match unready.is_empty() {
        true => true_condition(kind),
        false => false_condition(
            kind,
            "ContainersNotReady",
            Some(format!("containers with unready status: [{}]", unready.join(" "))),
        ),
    }
}

/// Ready is ContainersReady, and every readiness gate's condition.
fn ready(pod: &LocalPod, containers: &ConditionState) -> ConditionState {
    let kind = "Ready";
    if !containers.holds {
        return ConditionState { kind, holds: false, reason: containers.reason, message: containers.message.clone() };
    }
    let gates = pod.spec.readiness_gates.iter().flatten().map(|gate| gate.condition_type.as_str());
    let closed: Vec<String> = gates
        .filter_map(|gate| match pod.condition(gate) {
            None => Some(format!("corresponding condition of pod readiness gate {gate:?} does not exist.")),
            Some(condition) if condition.status == "True" => None,
            Some(condition) => {
                let status = &condition.status;
                Some(format!("the status of pod readiness gate {gate:?} is not \"True\", but {status}"))
            }
        })
        .collect();
    match closed.is_empty() {
        true => true_condition(kind),
        false => false_condition(kind, "ReadinessGatesNotReady", Some(closed.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{ContainerBehaviour, TestMachine, pod};
    use serde_json::json;

    #[test]
    fn conditions_as_kubernetes_orders_and_words_them() {
        let containers = json!([{"name": "z", "image": "a"}, {"name": "b", "image": "a"}]);
        let mut machine = TestMachine::new(pod(json!({"restartPolicy": "Never", "containers": containers})));
        machine
            .set_behaviour("z", ContainerBehaviour::Exit(5, 0))
            .set_behaviour("b", ContainerBehaviour::Exit(9, 0))
            .run_to(1);
        let status = machine.status();
        let conditions = status["conditions"].as_array().unwrap();
        let kinds: Vec<_> = conditions.iter().map(|one| one["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]);
        for condition in conditions {
            assert_eq!(condition["observedGeneration"], 1);
            assert!(condition.as_object().unwrap()["lastProbeTime"].is_null());
            assert_eq!(condition["lastTransitionTime"], "2023-11-14T22:13:20Z");
        }
        machine.run_to(6);
        assert_eq!(machine.condition("ContainersReady"), "ContainersNotReady");
        let status = machine.status();
        assert_eq!(status["conditions"][2]["message"], "containers with unready status: [z]");
        assert_eq!(status["conditions"][2]["lastTransitionTime"], "2023-11-14T22:13:25Z");
        assert_eq!(status["conditions"][1]["lastTransitionTime"], "2023-11-14T22:13:20Z", "it did not turn");
        machine.run_to(10);
        assert_eq!(machine.condition("Ready"), "PodCompleted");
        assert_eq!(machine.condition("PodReadyToStartContainers"), "False", "the pod has no sandbox any more");
    }

    #[test]
    fn readiness_gates_are_honoured() {
        let gates = json!([{"conditionType": "x.dev/lb"}]);
        let spec = json!({"readinessGates": gates, "containers": [{"name": "c", "image": "a"}]});
        let mut machine = TestMachine::new(pod(spec));
        machine.settle();
        assert_eq!(machine.condition("Ready"), "ReadinessGatesNotReady");
        assert_eq!(machine.condition("ContainersReady"), "True");
        let mut stored = machine.pod();
        let gate = json!({"type": "x.dev/lb", "status": "True"});
        stored.0["status"]["conditions"].as_array_mut().unwrap().push(gate);
        machine.put("pods", stored.0);
        machine.settle();
        assert_eq!(machine.condition("Ready"), "True");
        assert_eq!(machine.condition("x.dev/lb"), "True", "conditions of others stay");
    }
}
