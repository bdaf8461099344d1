//! Leases of nodes, computed when they are read: the heartbeats of all nodes that this cluster runs are one entry outside the log, so
//! that thousands of nodes cost one write in ten seconds.

use crate::object::{Object, Resource, Time};
use crate::world::resources::{RUNTIME, SIMULATED, STOPPED};
use serde_json::json;

/// The resource of leases.
pub const LEASES: Resource = Resource("leases.coordination.k8s.io");

/// The namespace of nodes' leases.
pub const NAMESPACE: &str = "kube-node-lease";

/// The lease of a node; none for one that no control plane of ours runs.
pub fn of(node: &Object, heard: Time) -> Option<Object> {
    let simulated = node.annotation(RUNTIME) == Some(SIMULATED);
    let runtime = node.text(&["status", "nodeInfo", "containerRuntimeVersion"]).unwrap_or_default();
    if !simulated && !runtime.starts_with("kloop://") {
        return None;
    }
    // Of a node that is stopped nobody has heard since.
    let stopped = node.annotation(STOPPED).and_then(|since| since.parse::<Time>().ok());
    let heard = stopped.map_or(heard, |stopped| heard.min(stopped));
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
        let lease = of(&node("", "kloop://0.1.0"), heard).unwrap();
        assert_eq!(lease.0["spec"]["renewTime"], "2023-11-14T22:13:20.000000Z");
        assert_eq!((lease.namespace(), lease.name()), ("kube-node-lease", "n"));
        assert!(of(&node(SIMULATED, ""), heard).is_some());
        assert!(of(&node("", "containerd://2"), heard).is_none());
        let mut stopped = node(SIMULATED, "");
        stopped.set(&["metadata", "annotations", STOPPED], "2023-11-14T22:00:00Z");
        assert_eq!(of(&stopped, heard).unwrap().0["spec"]["renewTime"], "2023-11-14T22:00:00.000000Z");
    }
}
