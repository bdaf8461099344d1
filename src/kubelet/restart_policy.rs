//! Restart decision for a container that has ended, by its policy, its rules and changes of its image or resources.

use super::pod::{ContainerRole, LocalPod, PodContainer};
use super::{image, resize};
use crate::object::Object;
use crate::world::RestartDecision;
use k8s_openapi::api::core::v1::ContainerRestartRule;
use serde_json::Value;

/// Whether an ended container restarts for reasons of its own, apart from a restart of all containers.
pub fn restarts_alone(pod: &LocalPod, member: &PodContainer) -> bool {
    let Some(ended) = member.ended().filter(|_| member.role != ContainerRole::Ephemeral) else { return false };
    let stopped = member.facts.as_ref().is_some_and(|facts| facts.stopping.is_some());
    let is_new =
        || has_changed(member) || image::with_new_sources(pod, member).is_some() || resize::wants_restart(pod, member);
    if matched_rule(member, ended.code).is_some() || (stopped && is_new()) || member.was_closed() {
        return true;
    }
    restart_decision(pod, member).follows(ended.code)
}

/// Whether its policy starts a container again that has ended.
pub fn restart_decision(pod: &LocalPod, member: &PodContainer) -> RestartDecision {
    policy(member.role, pod.spec.restart_policy.as_deref(), member.spec.restart_policy.as_deref())
}

/// As [`restart_decision`], from the object of a pod and a container's name.
pub fn restart_decision_from_object(pod: &Object, container: &str) -> RestartDecision {
    let of_pod = pod.text(&["spec", "restartPolicy"]);
    let find = |list: &str| pod.items(&["spec", list]).iter().find(|one| one["name"] == container);
    let own = |found: &Value| found["restartPolicy"].as_str().map(str::to_owned);
    let (role, own) = match (find("initContainers"), find("containers")) {
        (Some(found), _) if found["restartPolicy"] == "Always" => (ContainerRole::Sidecar, None),
        (Some(found), _) => (ContainerRole::Init, own(found)),
        (None, Some(found)) => (ContainerRole::Main, own(found)),
        (None, None) => (ContainerRole::Ephemeral, None),
    };
    policy(role, of_pod, own.as_deref())
}

fn policy(role: ContainerRole, of_pod: Option<&str>, own: Option<&str>) -> RestartDecision {
    match (role, own.or(of_pod).unwrap_or("Always")) {
        (ContainerRole::Sidecar, _) => RestartDecision::Always,
        (ContainerRole::Ephemeral, _) | (_, "Never") => RestartDecision::Never,
        // An init container that has succeeded is not restarted under any policy of the pod.
        (ContainerRole::Init, _) | (ContainerRole::Main, "OnFailure") => RestartDecision::OnFailure,
        (ContainerRole::Main, _) => RestartDecision::Always,
    }
}

/// Whether the attempt runs, or ran, an image that the spec no longer names.
pub fn has_changed(member: &PodContainer) -> bool {
    member.image_that_ran().is_some_and(|image| Some(image) != member.spec.image.as_deref())
}

/// The rule of a container for an exit code, which overrides the restart policy: it restarts the container, or all of them (KEP-5307).
pub fn matched_rule(member: &PodContainer, code: i32) -> Option<&ContainerRestartRule> {
    let mut rules = member.spec.restart_policy_rules.iter().flatten();
    rules.find(|rule| {
        rule.exit_codes.as_ref().is_some_and(|codes| {
            let listed = codes.values.iter().flatten().any(|value| *value == code);
            (codes.operator == "In") == listed
        })
    })
}
