//! In-place resize: the limits of a running container follow its spec, without a restart unless its `resizePolicy` asks for one.
//!
//! The limits of a container are those that the machine last confirmed ([`ContainerFacts::limits`](crate::world::ContainerFacts)), or those
//! of its status when it started before this control plane.

use super::pod::{AttemptState, LocalPod, PodContainer};
use super::{deadlines, resources};
use crate::kinds::pod::requests;
use crate::object::time::Shift;
use crate::world::limits::Limits;
use crate::world::{Effect, Plan};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

/// A resize that is not answered within this time is ordered again.
const RESIZE_TIMEOUT: SignedDuration = SignedDuration::from_secs(30);

/// Whether the limits of a running container differ from its spec.
pub fn is_due(pod: &LocalPod, member: &PodContainer) -> bool {
    let AttemptState::Running { .. } = member.state else { return false };
    let Some(facts) = member.facts.as_ref().filter(|facts| facts.stopping.is_none() && !pod.is_simulated) else {
        return false;
    };
    match &facts.limits {
        Some(known) => amounts(known) != amounts(&resources::limits(pod, member)),
        None => reported_resources(member).is_some_and(|told| Some(told) != member.spec.resources.as_ref()),
    }
}

/// Drops the limits that a resize does not change: the OOM score and the number of processes.
fn amounts(limits: &Limits) -> Limits {
    let mut amounts = Limits { oom_score: None, ..limits.clone() };
    amounts.pod.pids = None;
    amounts
}

/// Returns the resources in the container's status.
fn reported_resources(member: &PodContainer) -> Option<&ResourceRequirements> {
    member.old_while_running()?.resources.as_ref()
}

/// Whether a changed resource requires a restart of the container.
pub fn wants_restart(pod: &LocalPod, member: &PodContainer) -> bool {
    let restarts = |name: &str| {
        let policies = member.spec.resize_policy.iter().flatten();
        policies.filter(|policy| policy.resource_name == name).any(|policy| policy.restart_policy == "RestartContainer")
    };
    let differs = |name: &str| {
        let amount = |all: Option<&ResourceRequirements>| {
            let of = |list: &Option<std::collections::BTreeMap<String, _>>| {
                list.as_ref().and_then(|list| list.get(name).cloned())
            };
            all.map(|all| (of(&all.limits), of(&all.requests))).unwrap_or_default()
        };
        amount(reported_resources(member)) != amount(member.spec.resources.as_ref())
    };
    let ran = member.old_while_running().is_some_and(|old| old.resources.is_some());
    ran && pending(pod).is_none() && ["cpu", "memory"].into_iter().any(|name| restarts(name) && differs(name))
}

/// Orders the resizes that are due.
pub fn order_resizes(pod: &LocalPod, plan: &mut Plan) {
    if deadlines::is_over(pod) {
        return;
    }
    match pending(pod) {
        Some((DEFERRED, _)) => return plan.wake_at(pod.world.now + DEFERRED_RESIZE_INTERVAL),
        Some(_) => return,
        None => {}
    }
    for member in pod.members.iter().filter(|member| is_due(pod, member) && !wants_restart(pod, member)) {
        let ordered_at = member.facts.as_ref().and_then(|facts| facts.resizing);
        match ordered_at.map(|ordered_at| ordered_at.later(RESIZE_TIMEOUT)).filter(|again| *again > pod.world.now) {
            Some(again) => plan.wake_at(again),
            None => plan.effects.push(Effect::Resize {
                pod_uid: pod.row.uid.clone(),
                container: member.spec.name.as_str().into(),
                attempt: member.attempt,
                limits: Box::new(resources::limits(pod, member)),
            }),
        }
    }
}

/// The requests exceed the capacity of the node,
const INFEASIBLE: &str = "Infeasible";
/// or not as long as other pods have it.
const DEFERRED: &str = "Deferred";
/// Pause before a deferred resize is checked again.
const DEFERRED_RESIZE_INTERVAL: SignedDuration = SignedDuration::from_secs(5);

/// Why the node does not grant the pod's requests: the reason, and the kubelet's message (allocation_manager.go).
fn pending(pod: &LocalPod) -> Option<(&'static str, String)> {
    if !pod.members.iter().any(|member| is_due(pod, member)) {
        return None;
    }
    let name = pod.spec.node_name.as_deref()?;
    let node = pod.world.find("nodes", "", name)?;
    let offers = &node.node()?.allocatable;
    let requested = requests(&pod.spec);
    let (own, load) = (&pod.row.pod()?.requests, pod.world.load_of(name).map(|load| &load.requests));
    let lacks = |name: &str, requested: i64, offered: i64, own: i64, all: Option<i64>| {
        let used = all.map_or(0, |all| all - own);
        if offered <= 0 || requested + used <= offered {
            return None;
        }
        Some(match requested > offered {
            true => {
                let message =
                    format!("Node didn't have enough capacity: {name}, requested: {requested}, capacity: {offered}");
                (INFEASIBLE, message)
            }
            false => {
                let message = format!(
                    "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {offered}"
                );
                (DEFERRED, message)
            }
        })
    };
    let cpu = lacks("cpu", requested.cpu_milli, offers.cpu_milli, own.cpu_milli, load.map(|all| all.cpu_milli));
    let memory = || lacks("memory", requested.memory, offers.memory, own.memory, load.map(|all| all.memory));
    cpu.or_else(memory)
}

/// The condition of a pending resize: its type, reason and message.
pub fn condition(pod: &LocalPod) -> Option<(&'static str, Option<&'static str>, Option<String>)> {
    if let Some((reason, why)) = pending(pod) {
        return Some(("PodResizePending", Some(reason), Some(why)));
    }
    let mut due = pod.members.iter().filter(|member| is_due(pod, member));
    let failed = |member: &PodContainer| member.facts.as_ref().and_then(|facts| facts.resize_error.clone());
    let first = due.next()?;
    Some(match std::iter::once(first).chain(due).find_map(failed) {
        Some(why) => ("PodResizeInProgress", Some("Error"), Some(why)),
        None => ("PodResizeInProgress", None, None),
    })
}

/// Returns the resources for a container's status: those of its spec, unless a resize is pending.
pub fn resources_of(pod: &LocalPod, member: &PodContainer) -> Option<ResourceRequirements> {
    let wanted = member.spec.resources.clone().filter(|all| all.limits.is_some() || all.requests.is_some());
    if pod.is_simulated {
        None
    } else if is_due(pod, member) {
        reported_resources(member).cloned()
    } else {
        wanted
    }
}

/// Returns the allocated resources: the previous ones while the node cannot fulfil a resize (KEP-1287).
pub fn allocated(pod: &LocalPod, member: &PodContainer) -> Option<BTreeMap<String, Quantity>> {
    let is_refused = is_due(pod, member) && pending(pod).is_some();
    let resources = if is_refused { reported_resources(member) } else { member.spec.resources.as_ref() };
    resources?.requests.clone()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{TestMachine, pod};
    use crate::world::Report;
    use serde_json::{Value, json};

    fn resize(machine: &mut TestMachine, limits: Value) {
        let mut changed = machine.pod();
        changed.0["spec"]["containers"][0]["resources"]["limits"] = limits;
        machine.put("pods", changed.0);
    }

    fn limited(policy: Value) -> TestMachine {
        let container = json!({"name": "c", "image": "a", "resizePolicy": policy, "resources": {"limits": {"cpu": "1", "memory": "64Mi"}}});
        let mut machine = TestMachine::new(pod(json!({"containers": [container]})));
        machine.run_to(5);
        machine.take_messages();
        machine
    }

    #[test]
    fn bounds_follow_the_spec_without_a_restart() {
        let mut machine = limited(json!([]));
        assert_eq!(machine.container("c")["resources"]["limits"]["cpu"], "1");
        resize(&mut machine, json!({"cpu": "2", "memory": "64Mi"}));
        machine.settle();
        assert_eq!(machine.take_messages(), ["5 resize c#0 Some(2000)"]);
        assert_eq!(machine.condition("PodResizeInProgress"), "True");
        assert_eq!(machine.container("c")["resources"]["limits"]["cpu"], "1", "not yet");
        let limits = Box::new(machine.resizes.pop().unwrap());
        let (pod_uid, container) = ("uid-p".into(), "c".into());
        machine.report(Report::Resized { pod_uid, container, attempt: 0, limits, error: None });
        machine.settle();
        assert_eq!(machine.container("c")["resources"]["limits"]["cpu"], "2");
        assert_eq!(machine.summary(), "Running c+=running/0");
        assert_eq!(machine.condition("PodResizeInProgress"), "False", "the condition is gone");
        machine.restart();
        machine.settle();
        assert_eq!(machine.take_messages(), [""; 0], "status tells the next control plane what holds");
    }

    #[test]
    fn resize_policy_may_require_a_restart() {
        let mut machine = limited(json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]));
        resize(&mut machine, json!({"cpu": "1", "memory": "32Mi"}));
        machine.run_to(6);
        assert_eq!(machine.take_messages(), ["5 stop c in 30", "5 c ends 143", "5 start c#1"]);
        assert_eq!(machine.container("c")["resources"]["limits"]["memory"], "32Mi");
    }
}
