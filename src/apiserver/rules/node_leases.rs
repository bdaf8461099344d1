//! Leases of nodes, and when their statuses were last reported, computed when they are read: the heartbeats of all nodes that this cluster
//! runs are one entry outside the log, so that thousands of nodes cost one write in ten seconds.

use crate::kinds::node::RUNTIME_SCHEME;
use crate::object::time::Shift;
use crate::object::{Object, Resource, Time, time};
use crate::world::resources::{RUNTIME, SIMULATED, STOPPED};
use serde_json::{Value, json};

/// The resource of leases.
pub const LEASES: Resource = Resource("leases.coordination.k8s.io");

/// The namespace of nodes' leases.
pub const NAMESPACE: &str = "kube-node-lease";

/// Interval at which a kubelet reports an unchanged node (kubelet: `nodeStatusReportFrequency`).
const REPORT_SECONDS: i64 = 300;

/// The conditions that kubelets report.
const REPORTED: [&str; 4] = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"];

/// The last heartbeat of a node; `None` for a node that kloop does not run.
fn last_heard(node: &Object, heard: Time) -> Option<Time> {
    let simulated = node.annotation(RUNTIME) == Some(SIMULATED);
    let runtime = node.text(&["status", "nodeInfo", "containerRuntimeVersion"]).unwrap_or_default();
    if !simulated && !runtime.starts_with(RUNTIME_SCHEME) {
        return None;
    }
    // A stopped node has sent no heartbeat since it was stopped.
    Some(stopped(node).map_or(heard, |stopped| heard.min(stopped)))
}

fn stopped(node: &Object) -> Option<Time> {
    node.annotation(STOPPED)?.parse().ok()
}

/// Sets the heartbeat times of a node's conditions to the last time that its kubelet would have repeated them.
pub fn refresh(node: &mut Object, heard: Time) {
    let Some(heard) = last_heard(node, heard) else { return };
    let is_stopped = stopped(node).is_some();
    let conditions = node.0.pointer_mut("/status/conditions").and_then(Value::as_array_mut).into_iter().flatten();
    for condition in conditions {
        // Unknown is set by the node lifecycle controller, not by the kubelet; its time is known only for a stopped node.
        let is_known = condition["status"] != "Unknown" || is_stopped;
        let is_reported = REPORTED.iter().any(|kind| condition["type"] == *kind) && is_known;
        let known = time::from_json(&condition["lastHeartbeatTime"]);
        let Some(known) = known.filter(|_| is_reported) else { continue };
        let again = heard.duration_since(known).as_secs() / REPORT_SECONDS;
        if again > 0 {
            let last = known.later(jiff::SignedDuration::from_secs(again.saturating_mul(REPORT_SECONDS)));
            condition["lastHeartbeatTime"] = time::rfc3339(last).into();
        }
    }
}

/// The lease of a node; `None` for a node that kloop does not run.
pub fn lease_for_node(node: &Object, heard: Time) -> Option<Object> {
    let heard = last_heard(node, heard)?;
    let metadata = &node.0["metadata"];
    Some(Object(json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {
            "name": node.name(), "namespace": NAMESPACE, "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"], "creationTimestamp": metadata["creationTimestamp"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node.name(), "uid": metadata["uid"]}],
        },
        "spec": {
            "holderIdentity": node.name(), "leaseDurationSeconds": 40,
            "renewTime": heard.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string(),
        },
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_ours_have_leases() {
        let node = |annotation: &str, runtime: &str| {
            Object(json!({"metadata": {"name": "n", "uid": "u", "annotations": {"kloop.dev/runtime": annotation}},
                "status": {"nodeInfo": {"containerRuntimeVersion": runtime}}}))
        };
        let heard = Time::from_second(1_700_000_000).unwrap();
        let lease = lease_for_node(&node("", "kloop://0.1.0"), heard).unwrap();
        assert_eq!(lease.0["spec"]["renewTime"], "2023-11-14T22:13:20.000000Z");
        assert_eq!((lease.namespace(), lease.name()), ("kube-node-lease", "n"));
        assert!(lease_for_node(&node(SIMULATED, ""), heard).is_some());
        assert!(lease_for_node(&node("", "containerd://2"), heard).is_none());
        let mut stopped = node(SIMULATED, "");
        stopped.set(&["metadata", "annotations", STOPPED], "2023-11-14T22:00:00Z");
        assert_eq!(lease_for_node(&stopped, heard).unwrap().0["spec"]["renewTime"], "2023-11-14T22:00:00.000000Z");
    }

    #[test]
    fn node_conditions_are_renewed_every_five_minutes() {
        let heard: Time = "2026-01-01T01:07:30Z".parse().unwrap();
        let told = |kind: &str, status: &str, runtime: &str, stopped: &str| {
            let mut node = Object(json!({
                "metadata": {"name": "n", "annotations": {RUNTIME: runtime}},
                "status": {"conditions": [
                    {"type": kind, "status": status, "lastHeartbeatTime": "2026-01-01T00:01:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
            }));
            if !stopped.is_empty() {
                node.set(&["metadata", "annotations", STOPPED], stopped);
            }
            refresh(&mut node, heard);
            let condition = &node.0["status"]["conditions"][0];
            assert_eq!(condition["lastTransitionTime"], "2026-01-01T00:00:00Z");
            condition["lastHeartbeatTime"].as_str().unwrap().to_owned()
        };
        let before = "2026-01-01T00:01:00Z";
        assert_eq!(told("Ready", "True", SIMULATED, ""), "2026-01-01T01:06:00Z");
        assert_eq!(told("DiskPressure", "False", SIMULATED, ""), "2026-01-01T01:06:00Z");
        assert_eq!(told("Ready", "True", SIMULATED, "2026-01-01T00:12:00Z"), "2026-01-01T00:11:00Z");
        assert_eq!(told("Ready", "Unknown", SIMULATED, "2026-01-01T00:12:00Z"), "2026-01-01T00:11:00Z");
        assert_eq!(told("Ready", "Unknown", SIMULATED, ""), before, "that is the node controller's word");
        assert_eq!(told("NetworkUnavailable", "False", SIMULATED, ""), before, "that is another's word");
        assert_eq!(told("Ready", "True", "", ""), before, "that is not a node of ours");
    }
}
