//! `spec.activeDeadlineSeconds`: how long a pod may be active on its node.

use super::pod::LocalPod;
use crate::object::Time;
use jiff::SignedDuration;

/// `status.reason` of a pod that was active for too long.
pub const REASON: &str = "DeadlineExceeded";

/// `status.message` of such a pod.
pub const MESSAGE: &str = "Pod was active on the node longer than the specified deadline";

/// When the pod has to end.
pub fn end(pod: &LocalPod) -> Option<Time> {
    let seconds = pod.spec.active_deadline_seconds?;
    let start = pod.status.start_time.as_ref().map_or(pod.world.now, |time| time.0);
    start.checked_add(SignedDuration::from_secs(seconds)).ok()
}

/// Whether its time is over.
pub fn is_over(pod: &LocalPod) -> bool {
    end(pod).is_some_and(|end| pod.world.now >= end)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{ContainerBehaviour, TestMachine, pod};
    use serde_json::json;

    #[test]
    fn pod_fails_at_its_deadline() {
        let containers = json!([{"name": "c", "image": "a"}]);
        let mut machine = TestMachine::new(pod(
            json!({"activeDeadlineSeconds": 20, "terminationGracePeriodSeconds": 5, "containers": containers}),
        ));
        machine.set_behaviour("c", ContainerBehaviour::Stubborn).run_to(22);
        assert_eq!(machine.status()["phase"], "Running", "no phase is final while anything runs");
        machine.run_to(60);
        assert_eq!(machine.take_messages(), ["0 start c#0", "20 stop c in 5", "25 c ends 137"]);
        assert_eq!(machine.summary(), "Failed c=Error/0");
        assert_eq!(machine.status()["reason"], "DeadlineExceeded");
        assert_eq!(machine.reasons().last(), Some(&"DeadlineExceeded"));
    }
}
