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
