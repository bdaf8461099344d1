//! Ports of the node that a new pod needs and another pod has taken: the node does not admit the pod (Kubernetes: pkg/kubelet/lifecycle,
//! predicateAdmitHandler). The scheduler keeps such pods away, so that only a pod that names its node itself comes so far.

use super::pod::LocalPod;
use crate::world::Row;

/// `status.reason` of a pod that was not admitted.
pub const REASON: &str = "NodePorts";

/// Why the node does not admit a new pod; `None` when it does.
pub fn refused(pod: &LocalPod) -> Option<String> {
    if pod.status.start_time.is_some() || pod.facts.is_some() || pod.simulated || pod.has_ended() {
        return None;
    }
    let own = pod.row.pod().filter(|own| !own.host_ports.is_empty())?;
    let others = pod.world.pods_on(own.node.as_deref()?).filter(|other| is_admitted_before(other, pod.row));
    let is_taken = others.filter_map(|other| other.pod()).any(|other| own.shares_host_port(other));
    is_taken
        .then(|| "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports".to_owned())
}

/// Whether the node has admitted a pod, or will do so before the new one.
fn is_admitted_before(other: &Row, new: &Row) -> bool {
    let order = |row: &Row| (row.created, row.uid.clone());
    other.uid != new.uid
        && other
            .pod()
            .is_some_and(|pod| !pod.phase.is_terminal() && (pod.started.is_some() || order(other) < order(new)))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{TestMachine, pod};
    use serde_json::{Value, json};

    fn with_port(ip: &str) -> Value {
        json!({"containers": [{"name": "c", "image": "a", "ports": [{"containerPort": 80, "hostPort": 8080, "hostIP": ip}]}]})
    }

    #[test]
    fn pod_whose_host_port_is_taken_is_rejected() {
        const STARTED: Option<&str> = Some("2026-01-01T00:00:00Z");
        for (own, of_other, phase, started, created, rejected) in [
            ("", "127.0.0.2", "Running", STARTED, "2027-01-01T00:00:00Z", true),
            ("127.0.0.2", "127.0.0.2", "Running", STARTED, "2027-01-01T00:00:00Z", true),
            ("127.0.0.1", "127.0.0.2", "Running", STARTED, "2027-01-01T00:00:00Z", false),
            ("", "", "Failed", STARTED, "2025-01-01T00:00:00Z", false),
            // The older of two new pods is admitted.
            ("", "", "Pending", None, "2025-01-01T00:00:00Z", true),
            ("", "", "Pending", None, "2027-01-01T00:00:00Z", false),
        ] {
            let mut new = pod(with_port(own));
            new["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
            let mut machine = TestMachine::new(new);
            let mut spec = with_port(of_other);
            spec["nodeName"] = "n".into();
            let status = json!({"phase": phase, "startTime": started});
            let meta = json!({"name": "other", "namespace": "default", "uid": "other", "creationTimestamp": created});
            machine.put("pods", json!({"kind": "Pod", "metadata": meta, "spec": spec, "status": status}));
            machine.settle();
            assert_eq!(machine.starts.is_empty(), rejected, "{own} {of_other} {phase} {created}");
            if rejected {
                let status = machine.status();
                let why = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
                assert_eq!((&status["phase"], &status["reason"]), (&json!("Failed"), &json!("NodePorts")));
                assert_eq!(status["message"], format!("Pod was rejected: {why}"));
                assert_eq!(
                    status["conditions"]
                        .as_array()
                        .map_or(0, |all| { all.iter().filter(|one| one["type"] == "DisruptionTarget").count() }),
                    0
                );
                assert!(machine.events.iter().any(|event| event.reason == "NodePorts" && event.message == why));
            }
        }
    }
}
