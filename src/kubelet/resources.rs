//! Limits of a pod's containers, from the requests and limits of their specs.

use super::pod::{ContainerRole, LocalPod, PodContainer};
use crate::kinds::pod::facts::{PodRequests, requests};
use crate::kinds::pod::qos_class;
use crate::object::Quantity;
use crate::world::limits::{GroupLimits, Limits};
use crate::world::{EventType, Plan};
use k8s_openapi::api::core::v1::{Container, EmptyDirVolumeSource, ResourceRequirements, Volume};

/// Bounds of one container and of its pod, as the kubelet sets them: a limit holds for the pod only when every container has it,
/// requests add up, and the number of processes is bounded for the pod as a whole.
pub fn limits(pod: &LocalPod, member: &PodContainer) -> Limits {
    let settings = &pod.world.settings;
    let pids = settings.pids_per_pod.filter(|most| *most > 0);
    let container = caps(member.spec.resources.as_ref());
    let oom_score = Some(oom_score(pod, &member.spec));
    let asks = pod.members.iter().any(|member| !caps(member.spec.resources.as_ref()).is_empty());
    if !asks && pod.spec.resources.is_none() {
        return Limits { pod: GroupLimits { pids, ..GroupLimits::default() }, container, oom_score };
    }
    let own = caps(pod.spec.resources.as_ref());
    let together = requests(&pod.spec);
    let cpu_request_milli = own.cpu_request_milli.or(Some(together.cpu_milli));
    let of_pod = GroupLimits {
        cpu_milli: own.cpu_milli.or_else(|| sum(pod, |caps| caps.cpu_milli)),
        cpu_request_milli,
        memory: own.memory.or_else(|| sum(pod, |caps| caps.memory)),
        pids,
    };
    Limits { pod: of_pod, container, oom_score }
}

/// Adds an event at the pod's first start about limits that this machine cannot enforce.
pub fn report_unenforced_limits(pod: &LocalPod, plan: &mut Plan) {
    let Some(why) = &pod.world.settings.limits_unavailable else { return };
    let is_limited = |resources: Option<&ResourceRequirements>| {
        let caps = caps(resources);
        caps.cpu_milli.or(caps.memory).is_some()
    };
    if is_limited(pod.spec.resources.as_ref()) || pod.members.iter().any(|one| is_limited(one.spec.resources.as_ref()))
    {
        plan.event(
            pod.row,
            EventType::Warning,
            "LimitsNotEnforced",
            format!("Limits are not enforced by the kernel: {why}"),
        );
    }
}

/// Whether volumes in memory are unavailable: only root can mount one that all containers of a pod share.
pub fn is_memory_denied(pod: &LocalPod) -> bool {
    pod.world.settings.runs_as.0 != 0
}

/// Returns the size limit of a volume in memory: its own, and at most the pod's.
pub fn most_memory(pod: &LocalPod, volume: &EmptyDirVolumeSource) -> Option<i64> {
    let own = volume.size_limit.as_ref().and_then(|text| Quantity::parse(&text.0).ok()).map(|amount| amount.value());
    let of_pod = caps(pod.spec.resources.as_ref()).memory.or_else(|| sum(pod, |caps| caps.memory));
    [own.filter(|most| *most > 0), of_pod].into_iter().flatten().min()
}

/// Adds an event at the pod's first start about memory volumes that this machine can only keep on disk.
pub fn report_volumes_on_disk(pod: &LocalPod, plan: &mut Plan) {
    let in_memory =
        |volume: &&Volume| volume.empty_dir.as_ref().is_some_and(|one| one.medium.as_deref() == Some("Memory"));
    let names: Vec<&str> = pod.spec.volumes.iter().flatten().filter(in_memory).map(|volume| &*volume.name).collect();
    if !names.is_empty() && is_memory_denied(pod) {
        let has_limit = |volume: &Volume| volume.empty_dir.as_ref().is_some_and(|one| one.size_limit.is_some());
        // A tmpfs enforces the limit; on disk kloop only measures the volume from time to time.
        let bound = match pod.spec.volumes.iter().flatten().filter(in_memory).any(has_limit) {
            true => "; the pod is evicted when one grows beyond its sizeLimit",
            false => "",
        };
        let message = format!(
            "Volumes {} are on disk and not in memory: only root can mount a tmpfs here{bound}",
            names.join(", ")
        );
        plan.event(pod.row, EventType::Warning, "VolumesNotInMemory", message);
    }
}

/// The sum of a limit over containers that may run together, or the largest of a single init container; `None` when one has no limit.
fn sum(pod: &LocalPod, limit: fn(&GroupLimits) -> Option<i64>) -> Option<i64> {
    let of = |member: &PodContainer| limit(&caps(member.spec.resources.as_ref()));
    let stays = |member: &&PodContainer| matches!(member.role, ContainerRole::Sidecar | ContainerRole::Main);
    let together =
        pod.members.iter().filter(stays).map(of).try_fold(0i64, |sum, limit| Some(sum.saturating_add(limit?)))?;
    let initially = pod.with_role(ContainerRole::Init).map(of).collect::<Option<Vec<i64>>>()?;
    Some(initially.into_iter().fold(together, i64::max))
}

/// Converts requests and limits. A limit of zero means unlimited.
pub fn caps(resources: Option<&ResourceRequirements>) -> GroupLimits {
    let limits = PodRequests::from_list(resources.and_then(|all| all.limits.as_ref()));
    let requested = resources.and_then(|all| all.requests.as_ref()).and_then(|all| all.get("cpu"));
    let request = requested.and_then(|text| Quantity::parse(&text.0).ok()).map(|amount| amount.milli());
    let some = |amount: i64| Some(amount).filter(|amount| *amount > 0);
    let cpu_milli = some(limits.cpu_milli);
    GroupLimits {
        cpu_milli,
        cpu_request_milli: request.and_then(some).or(cpu_milli),
        memory: some(limits.memory),
        pids: None,
    }
}

/// Kubernetes' score, but that nothing is put before the machine's own processes: a guaranteed pod counts as they do.
fn oom_score(pod: &LocalPod, container: &Container) -> i32 {
    match qos_class(&pod.spec) {
        "Guaranteed" => 0,
        "BestEffort" => 1000,
        _ => {
            let requested =
                PodRequests::from_list(container.resources.as_ref().and_then(|all| all.requests.as_ref())).memory;
            let capacity = pod.world.settings.memory_bytes.max(1);
            let part = i128::from(requested) * 1000 / i128::from(capacity);
            i32::try_from(1000 - part).unwrap_or(2).clamp(2, 999)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{TestMachine, pod};
    use crate::world::limits::GroupLimits;
    use serde_json::{Value, json};

    fn started(spec: Value) -> Vec<(GroupLimits, GroupLimits, i32)> {
        let mut machine = TestMachine::new(pod(spec));
        machine.world.settings.memory_bytes = 1 << 30;
        machine.settle();
        let limits = machine.starts.iter().map(|start| start.limits.clone());
        limits.map(|limits| (limits.pod, limits.container, limits.oom_score.unwrap_or(-1))).collect()
    }

    fn container(name: &str, requests: Value, limits: Value) -> Value {
        json!({"name": name, "image": "a", "resources": {"requests": requests, "limits": limits}})
    }

    #[test]
    fn pod_without_requests_is_bounded_in_processes_alone() {
        let found = started(json!({"containers": [{"name": "c", "image": "a"}]}));
        assert_eq!(found, [(GroupLimits { pids: Some(4096), ..GroupLimits::default() }, GroupLimits::default(), 1000)]);
    }

    #[test]
    fn limits_hold_for_the_pod_when_every_container_has_them() {
        let limited = || container("c", json!({}), json!({"cpu": "500m", "memory": "64Mi"}));
        let other = container("d", json!({"cpu": "250m", "memory": "512Mi"}), json!({"memory": "1Gi"}));
        let found = started(json!({"containers": [limited(), other]}));
        let (of_pod, of_first, _) = &found[0];
        assert_eq!((of_pod.cpu_milli, of_pod.memory), (None, Some((64 << 20) + (1 << 30))));
        assert_eq!(
            (of_first.cpu_milli, of_first.cpu_request_milli, of_first.memory),
            (Some(500), Some(500), Some(64 << 20))
        );
        let (_, of_second, score) = &found[1];
        assert_eq!((of_second.cpu_milli, of_second.cpu_request_milli, *score), (None, Some(250), 500));
        let both = json!({"cpu": "1", "memory": "64Mi"});
        let sure = started(json!({"containers": [container("c", both.clone(), both)]}));
        assert_eq!((sure[0].0.cpu_milli, sure[0].0.cpu_request_milli, sure[0].2), (Some(1000), Some(1000), 0));
    }

    #[test]
    fn limits_that_are_not_enforced_are_told() {
        for (limits, told) in [(json!({"cpu": "1"}), true), (json!({}), false)] {
            let mut machine = TestMachine::new(pod(json!({"containers": [container("c", json!({}), limits)]})));
            machine.world.settings.limits_unavailable = Some("no cgroup".into());
            machine.run_to(100);
            let count = machine
                .events
                .iter()
                .filter(|event| event.message == "Limits are not enforced by the kernel: no cgroup");
            assert_eq!(count.count(), usize::from(told));
        }
    }
}
