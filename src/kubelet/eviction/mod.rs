//! Eviction: the node ends and fails a pod that exceeds its storage limits, and pods that it cannot keep or admit under [`pressure`].
//!
//! The machine watches ([`Effect::WatchStorage`]) only storage that is limited; the messages are Kubernetes' (`pkg/kubelet/eviction`).

mod pressure;
mod rank;

pub use pressure::{LOOP, REASON};

use super::pod::LocalPod;
use super::{predicates, resources};
use crate::kinds::pod::facts::PodRequests;
use crate::object::Quantity;
use crate::world::limits::{StorageKind, StorageLimit};
use crate::world::{Effect, Plan};
use k8s_openapi::api::core::v1::{Container, PodStatus};

/// The reason why a pod was evicted or not admitted; `None` when its status does not say so.
pub fn reason_of(status: &PodStatus) -> Option<&str> {
    let is_rejected = status.message.as_deref().is_some_and(|message| message.starts_with(REJECTED));
    status.reason.as_deref().filter(|reason| is_rejected || *reason == REASON)
}

/// Prefix of the message of a pod that its node rejected.
pub const REJECTED: &str = "Pod was rejected: ";

/// Seconds that its containers have (Kubernetes: immediateEvictionGracePeriodSeconds).
pub const GRACE: i64 = 1;

/// Whether its node ends it.
pub fn is_evicted(pod: &LocalPod) -> bool {
    message(pod).is_some() || rejection(pod).is_some()
}

/// Why its node evicts it: from its status, or from the newest report of the machine.
pub fn message(pod: &LocalPod) -> Option<String> {
    if pod.status.reason.as_deref() == Some(REASON) {
        return pod.status.message.clone();
    }
    if let Some((reason, message)) = rejection(pod) {
        return (reason == REASON).then_some(message);
    }
    let over = pod.facts.as_ref()?.over.as_ref().filter(|_| !pod.has_ended())?;
    Some(match over {
        StorageKind::Volume(name) => {
            let volume = pod.spec.volumes.iter().flatten().find(|volume| volume.name == **name);
            let limit = volume.and_then(|volume| volume.empty_dir.as_ref()?.size_limit.clone()).unwrap_or_default();
            format!("Usage of EmptyDir volume {:?} exceeds the limit {:?}. ", &**name, limit.0)
        }
        StorageKind::Container(name) => {
            let member = pod.members.iter().find(|member| member.spec.name == **name);
            let most = member.map_or(0, |member| ephemeral(&member.spec));
            let limit = Quantity::from_bytes(most).to_string();
            format!("Container {name} exceeded its local ephemeral storage limit {limit:?}. ")
        }
        StorageKind::Pod => {
            let limit = Quantity::from_bytes(pod_limit(pod));
            format!("Pod ephemeral local storage usage exceeds the total limit of containers {limit}. ")
        }
    })
}

/// Why its node did not admit it: the reason, and the message; `None` when it did.
pub fn rejection(pod: &LocalPod) -> Option<(String, String)> {
    pod.rejection.get_or_init(|| find_rejection(pod)).clone()
}

fn find_rejection(pod: &LocalPod) -> Option<(String, String)> {
    if let Some(reason) = reason_of(&pod.status) {
        let message = pod.status.message.clone().filter(|message| message.starts_with(REJECTED));
        return message.map(|message| (reason.to_owned(), message));
    }
    let under_pressure = pressure::refused(pod).map(|why| (REASON.to_owned(), why));
    let refused = under_pressure.or_else(|| predicates::failed_predicate(pod));
    refused.map(|(reason, why)| (reason, format!("{REJECTED}{why}")))
}

/// Returns the text of an eviction's event; for a rejection the reason alone.
pub fn event(message: &str) -> &str {
    message.strip_prefix(REJECTED).unwrap_or(message)
}

/// Orders the machine to watch the pod's limited storage, once a container of it runs.
pub fn watch_storage(pod: &LocalPod, plan: &mut Plan) {
    let unwatched = pod.facts.as_ref().is_some_and(|facts| !facts.watched);
    if !unwatched || !pod.is_alive() || is_evicted(pod) {
        return;
    }
    let bounds = bounds(pod);
    if !bounds.is_empty() {
        plan.effects.push(Effect::WatchStorage { pod_uid: pod.row.uid.clone(), bounds });
    }
}

/// Returns the storage limits. A volume in memory is limited by its file system.
fn bounds(pod: &LocalPod) -> Vec<StorageLimit> {
    let on_disk = pod.spec.volumes.iter().flatten().filter_map(|volume| {
        let empty = volume.empty_dir.as_ref()?;
        let in_memory = empty.medium.as_deref() == Some("Memory") && !resources::is_memory_denied(pod);
        let most = Quantity::parse(&empty.size_limit.as_ref()?.0).ok()?.value();
        (!in_memory && most > 0).then(|| StorageLimit { of: StorageKind::Volume(volume.name.as_str().into()), most })
    });
    let of_containers = pod.members.iter().filter_map(|member| {
        let most = ephemeral(&member.spec);
        (most > 0).then(|| StorageLimit { of: StorageKind::Container(member.spec.name.as_str().into()), most })
    });
    let all = Some(pod_limit(pod)).filter(|most| *most > 0).map(|most| StorageLimit { of: StorageKind::Pod, most });
    on_disk.chain(of_containers).chain(all).collect()
}

fn ephemeral(container: &Container) -> i64 {
    PodRequests::from_list(container.resources.as_ref().and_then(|all| all.limits.as_ref())).ephemeral
}

fn pod_limit(pod: &LocalPod) -> i64 {
    pod.spec.containers.iter().map(ephemeral).sum()
}

#[cfg(test)]
mod tests {
    use crate::kubelet::testing::{TestMachine, pod};
    use crate::world::Report;
    use crate::world::limits::StorageKind;
    use serde_json::json;

    #[test]
    fn pod_that_exceeds_its_storage_limit_is_evicted() {
        let limits = json!({"limits": {"ephemeral-storage": "2Mi"}});
        let cases = [
            (StorageKind::Volume("data".into()), "Usage of EmptyDir volume \"data\" exceeds the limit \"1Mi\". "),
            (StorageKind::Container("c".into()), "Container c exceeded its local ephemeral storage limit \"2Mi\". "),
            (StorageKind::Pod, "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. "),
        ];
        for (of, message) in cases {
            let spec = json!({"volumes": [{"name": "data", "emptyDir": {"sizeLimit": "1Mi"}}, {"name": "free", "emptyDir": {}}],
                "containers": [{"name": "c", "image": "a", "resources": limits.clone()}]});
            let mut machine = TestMachine::new(pod(spec));
            machine.run_to(5);
            let watched = machine.take_messages().into_iter().filter(|line| line.contains("watch")).count();
            assert_eq!(watched, 1, "once");
            machine.report(Report::Over { pod_uid: "uid-p".into(), of });
            machine.run_to(10);
            assert_eq!(machine.take_messages(), ["5 stop c in 1", "5 c ends 143"]);
            assert_eq!(machine.summary(), "Failed c=Error/0");
            let status = machine.status();
            assert_eq!((&status["reason"], &status["message"]), (&json!("Evicted"), &json!(message)));
            assert_eq!(machine.condition("DisruptionTarget"), "True");
            assert_eq!(machine.reasons().iter().filter(|reason| **reason == "Evicted").count(), 1);
        }
    }

    #[test]
    fn nothing_is_watched_that_has_no_bound() {
        let spec = json!({"volumes": [{"name": "m", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}],
            "containers": [{"name": "c", "image": "a"}]});
        let mut machine = TestMachine::new(pod(spec));
        machine.run_to(5);
        assert_eq!(machine.take_messages(), ["0 start c#0"]);
    }
}
