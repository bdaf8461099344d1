//! `status` of a pod, as its node writes it.

use super::actions::PodActions;
use super::pod::{ContainerRole, LocalPod, api_time};
use super::{address, conditions, container_status, deadlines, eviction, phase};
use crate::kinds::pod::qos_class;
use crate::kinds::shared::process_ids;
use crate::world::{ContainerState, Plan, WriteVerb};
use k8s_openapi::api::core::v1::{HostIP, PodIP, PodStatus};
use serde_json::Value;

/// Builds the new status: the node's fields over those of other writers.
pub fn build(pod: &LocalPod, order: &PodActions) -> PodStatus {
    let mut status = pod.status.clone();
    if pod.is_simulated && pod.row.is_deleting() {
        return status;
    }
    if let Some((reason, message)) = eviction::rejection(pod) {
        return rejected(pod, &reason, message);
    }
    let host_ip = status.host_ip.take().unwrap_or_else(|| address::node_address(pod));
    let init = container_status::container_statuses(pod, order, ContainerRole::is_init);
    let mut main = container_status::container_statuses(pod, order, |role| role == ContainerRole::Main);
    status.phase = Some(phase::pod_phase(pod, &init, &main).into());
    // Kubernetes sorts these by name, and leaves those of init containers in the order of the spec.
    main.sort_by(|one, other| one.name.cmp(&other.name));
    status.container_statuses = Some(main);
    let ephemeral = container_status::container_statuses(pod, order, |role| role == ContainerRole::Ephemeral);
    status.ephemeral_container_statuses = Some(ephemeral).filter(|ephemeral| !ephemeral.is_empty());
    status.init_container_statuses = Some(init).filter(|init| !init.is_empty());
    if deadlines::is_over(pod) && !pod.has_ended() && status.phase.as_deref() == Some("Failed") {
        status.reason = Some(deadlines::REASON.into());
        status.message = Some(deadlines::MESSAGE.into());
    }
    if let Some(message) = eviction::message(pod) {
        status.reason = Some(eviction::REASON.into());
        status.message = Some(message);
    }
    status.observed_generation = Some(pod.row.generation).filter(|generation| *generation > 0);
    status.host_ips = Some(vec![HostIP { ip: host_ip.clone() }]);
    status.host_ip = Some(host_ip);
    if let Some(ip) = order.ip.as_deref().filter(|_| order.blocked.is_none()) {
        status.pod_ip = Some(ip.to_owned());
        status.pod_ips = Some(vec![PodIP { ip: ip.to_owned() }]);
    }
    status.start_time = status.start_time.or_else(|| Some(api_time(pod.world.now)));
    status.qos_class = status.qos_class.or_else(|| Some(qos_class(&pod.spec).into()));
    status.conditions = Some(conditions::pod_conditions(pod, order, &status));
    status
}

/// Status of a rejected pod, which never had a container (kubelet: rejectPod).
fn rejected(pod: &LocalPod, reason: &str, message: String) -> PodStatus {
    let mut status = pod.status.clone();
    status.phase = Some("Failed".into());
    status.reason = Some(reason.into());
    status.message = Some(message);
    status.observed_generation = Some(pod.row.generation).filter(|generation| *generation > 0);
    status.start_time = status.start_time.or_else(|| Some(api_time(pod.world.now)));
    status.qos_class = status.qos_class.or_else(|| Some(qos_class(&pod.spec).into()));
    status
}

/// Writes the status, and the annotation of process ids, if they differ from the stored ones; asks for another plan when time alone will
/// change them.
pub fn write(pod: &LocalPod, status: PodStatus, order: &PodActions, plan: &mut Plan) {
    order.wakes.iter().for_each(|at| plan.wake_at(*at));
    if let Some(blocked) = &order.blocked {
        plan.wait(&*blocked.message);
    }
    let ids = process_ids(pod);
    let ids_changed = ids.as_deref() != pod.object.annotation(process_ids::ANNOTATION) && !pod.is_simulated;
    if status == pod.status && !ids_changed {
        return;
    }
    let why = change_reason(&pod.status, &status);
    let mut written = pod.object.other_status(encoded(&status));
    if ids_changed {
        written.set(&["metadata", "annotations", process_ids::ANNOTATION], ids);
    }
    plan.write(WriteVerb::Status(written), why);
}

/// The process ids of the running containers, in the form of the pod's annotation.
fn process_ids(pod: &LocalPod) -> Option<String> {
    process_ids::format(pod.members.iter().filter_map(|member| match member.facts.as_ref()?.state {
        ContainerState::Running { pid, .. } => Some((&*member.spec.name, pid)),
        _ => None,
    }))
}

/// As Go writes it: times of a condition that are not known, as in conditions of other writers, are null and not left out.
fn encoded(status: &PodStatus) -> Value {
    let mut value = serde_json::to_value(status).unwrap_or_default();
    for condition in value.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        for field in ["lastProbeTime", "lastTransitionTime"] {
            if condition.get(field).is_none() {
                condition[field] = Value::Null;
            }
        }
    }
    value
}

/// The reason of a status write, for people.
fn change_reason(old: &PodStatus, new: &PodStatus) -> String {
    let phase = |status: &PodStatus| status.phase.clone().unwrap_or_else(|| "Pending".into());
    let ready = |status: &PodStatus| {
        let ready = status.conditions.iter().flatten().find(|condition| condition.type_ == "Ready");
        ready.is_some_and(|condition| condition.status == "True")
    };
    match () {
        () if old.start_time.is_none() => "the pod is accepted by its node".into(),
        () if phase(old) != phase(new) => format!("the pod is {} now", phase(new)),
        () if ready(old) != ready(new) => format!("the pod is {} now", if ready(new) { "ready" } else { "not ready" }),
        () => "its containers have changed".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{ContainerBehaviour, TestMachine, pod};
    use super::encoded;
    use super::process_ids::ANNOTATION;
    use k8s_openapi::api::core::v1::PodStatus;
    use serde_json::json;

    #[test]
    fn conditions_of_others_keep_their_stored_form() {
        let condition = json!({"type": "X", "status": "True", "lastProbeTime": null, "lastTransitionTime": null});
        let stored = json!({"conditions": [condition]});
        let read: PodStatus = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!(encoded(&read), stored);
    }

    #[test]
    fn pod_that_a_client_has_ended_shows_what_its_containers_did() {
        for control_plane_restarts in [false, true] {
            let mut machine = TestMachine::new(pod(json!({"containers": [{"name": "c", "image": "a"}]})));
            machine.run_to(5);
            let mut failed = machine.pod();
            failed.set(&["status", "phase"], "Failed");
            machine.put("pods", failed.0);
            machine.run_to(5);
            if control_plane_restarts {
                machine.reboot();
            }
            machine.run_to(60);
            assert!(machine.container("c")["state"]["terminated"].is_object(), "{}", machine.container("c"));
            assert_eq!(
                (&machine.container("c")["ready"], machine.status()["phase"].as_str()),
                (&json!(false), Some("Failed"))
            );
        }
    }

    #[test]
    fn pod_status_shows_the_process_ids_of_what_runs() {
        let spec =
            json!({"containers": [{"name": "a", "image": "a"}, {"name": "b", "image": "b"}], "restartPolicy": "Never"});
        let mut machine = TestMachine::new(pod(spec.clone()));
        machine.set_behaviour("a", ContainerBehaviour::Exit(5, 0)).set_behaviour("b", ContainerBehaviour::Exit(9, 0));
        for (second, ids) in [(1, Some("a=1,b=2")), (6, Some("b=2")), (10, None)] {
            machine.run_to(second);
            assert_eq!(machine.pod().annotation(ANNOTATION), ids, "after {second} s");
        }
        let mut machine = TestMachine::simulated(pod(spec));
        machine.run_to(1);
        assert_eq!(machine.pod().annotation(ANNOTATION), None, "a simulated pod has no process");
    }
}
