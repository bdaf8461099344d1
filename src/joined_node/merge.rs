//! The two sides of an object that a node and its server share: the server owns the spec, the node owns the status of its pods.
//!
//! Pure: values in, values out. Never: sends or stores anything. Start reading at [`merge_pod`], then [`status_patch`].

use crate::object::Object;
use crate::world::resources::{LINK, MACHINE, RUNTIME, SIMULATED};
use serde_json::{Map, Value, json};

/// Conditions of a pod that its kubelet writes. Others are the server's.
const OWN_CONDITIONS: [&str; 7] = [
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "DisruptionTarget",
    "PodResizePending",
    "PodResizeInProgress",
];
/// Fields of a pod's status that its kubelet writes, without the conditions.
const OWN_FIELDS: [&str; 13] = [
    "phase",
    "reason",
    "message",
    "hostIP",
    "hostIPs",
    "podIP",
    "podIPs",
    "startTime",
    "containerStatuses",
    "initContainerStatuses",
    "ephemeralContainerStatuses",
    "qosClass",
    "resize",
];

fn is_own(condition: &Value) -> bool {
    condition["type"].as_str().is_some_and(|condition| OWN_CONDITIONS.contains(&condition))
}

fn is_over(status: &Value) -> bool {
    matches!(status["phase"].as_str(), Some("Succeeded" | "Failed"))
}

fn conditions(status: &Value) -> &[Value] {
    status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Returns a pod as the node stores it: the server's, with the status that the node has found out. `local`: the pod in the node's state.
/// Finalizers stay at the server, which waits for them; the node is done when the processes have ended.
pub fn merge_pod(mut server: Object, local: Option<&Object>) -> Object {
    server.unset(&["metadata", "finalizers"]);
    server.unset(&["metadata", "managedFields"]);
    let Some(local) = local.filter(|local| local.uid() == server.uid()) else { return server };
    let (theirs, ours) = (&server.0["status"], &local.0["status"]);
    // Someone has ended the pod over the head of its node.
    if !ours.is_object() || (is_over(theirs) && !is_over(ours)) {
        return server;
    }
    let mut status = theirs.as_object().cloned().unwrap_or_default();
    for field in OWN_FIELDS {
        match ours.get(field) {
            Some(value) => status.insert(field.to_owned(), value.clone()),
            None => status.remove(field),
        };
    }
    let foreign = conditions(theirs).iter().filter(|condition| !is_own(condition));
    let own = conditions(ours).iter().filter(|condition| is_own(condition));
    status.insert("conditions".to_owned(), foreign.chain(own).cloned().collect());
    server.set(&["status"], Value::Object(status));
    server
}

/// Returns the strategic merge patch from the server's status `known` to the node's status `ours`; `None` if they agree.
pub fn status_patch(ours: &Value, known: &Value) -> Option<Value> {
    let mut patch = Map::new();
    for field in OWN_FIELDS {
        let (own, theirs) = (ours.get(field).unwrap_or(&Value::Null), known.get(field).unwrap_or(&Value::Null));
        if own != theirs {
            patch.insert(field.to_owned(), own.clone());
        }
    }
    let is_news = |condition: &&Value| is_own(condition) && !conditions(known).contains(condition);
    let changed: Vec<Value> = conditions(ours).iter().filter(is_news).cloned().collect();
    if !changed.is_empty() {
        patch.insert("conditions".to_owned(), changed.into());
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// Returns a Node as the node stores it: the server's labels, taints and spec, with the node's own status. The annotation for a simulated
/// node is set only in the node's copy, so that the server's loops leave its pods alone.
pub fn merge_node(mut server: Object, local: Option<&Object>, is_simulated: bool) -> Object {
    server.unset(&["metadata", "managedFields"]);
    if is_simulated {
        server.set(&["metadata", "annotations", RUNTIME], SIMULATED);
    }
    let own = local.filter(|local| local.uid() == server.uid()).and_then(|local| local.value_at(&["status"]));
    if let Some(status) = own {
        server.set(&["status"], status.clone());
    }
    server
}

/// Returns the parts of another machine's Node that its link needs, which the node stores; `None` for a Node without a link.
pub fn copy_linked_node(server: &Object) -> Option<Object> {
    let (link, block) = (server.annotation(LINK)?, server.text(&["spec", "podCIDR"])?);
    let mut annotations = json!({LINK: link});
    if let Some(machine) = server.annotation(MACHINE) {
        annotations[MACHINE] = machine.into();
    }
    Some(Object(json!({
        "metadata": {"name": server.name(), "uid": server.uid(), "annotations": annotations},
        "spec": {"podCIDR": block, "podCIDRs": [block]},
        "status": {"addresses": server.0["status"]["addresses"]},
    })))
}

/// Returns the parts of another machine's pod that NetworkPolicies need, which the node stores.
pub fn copy_linked_pod(server: &Object) -> Object {
    let ports = |container: &Value| json!({"name": container["name"], "image": "", "ports": container["ports"]});
    let containers: Vec<Value> = server.items(&["spec", "containers"]).iter().map(ports).collect();
    let metadata = &server.0["metadata"];
    let (spec, status) = (&server.0["spec"], &server.0["status"]);
    Object(json!({
        "metadata": {
            "name": server.name(), "namespace": server.namespace(), "uid": server.uid(), "labels": metadata["labels"],
            "deletionTimestamp": metadata["deletionTimestamp"],
        },
        "spec": {"nodeName": spec["nodeName"], "hostNetwork": spec["hostNetwork"], "containers": containers},
        "status": {"phase": status["phase"], "podIP": status["podIP"], "podIPs": status["podIPs"]},
    }))
}

/// Returns any other object as the node stores it.
pub fn copy(mut server: Object) -> Object {
    server.unset(&["metadata", "finalizers"]);
    server.unset(&["metadata", "managedFields"]);
    server
}

/// The parts of a Node's status that say nothing new when only they change: the times of heartbeats.
pub fn without_heartbeats(status: &Value) -> Value {
    let mut status = status.clone();
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        condition["lastHeartbeatTime"] = json!(null);
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::stored_copy::differs;

    fn pod(status: Value) -> Object {
        Object(json!({
            "metadata": {"name": "a", "uid": "1", "finalizers": ["x"]}, "spec": {"nodeName": "n"}, "status": status,
        }))
    }

    #[test]
    fn pod_has_the_spec_of_the_server_and_the_status_of_the_node() {
        let gate = json!({"type": "example.com/gate", "status": "True"});
        let scheduled = json!({"type": "PodScheduled", "status": "True"});
        let ready = json!({"type": "Ready", "status": "True"});
        let old = json!({"type": "Ready", "status": "False"});
        let server = pod(json!({"phase": "Pending", "message": "old", "conditions": [scheduled, old, gate]}));
        let local = pod(json!({"phase": "Running", "podIP": "127.2.1.1", "conditions": [scheduled, ready]}));
        let merged = merge_pod(server.clone(), Some(&local));
        assert!(merged.finalizers().is_empty());
        let expected = json!({"phase": "Running", "podIP": "127.2.1.1", "conditions": [scheduled, gate, ready]});
        assert_eq!(merged.0["status"], expected);
        // Another pod of the same name has nothing to do with it.
        let mut other = local.clone();
        other.set(&["metadata", "uid"], "2");
        assert_eq!(merge_pod(server.clone(), Some(&other)).0["status"], server.0["status"]);
        let ended = pod(json!({"phase": "Failed", "reason": "NodeLost"}));
        assert_eq!(merge_pod(ended.clone(), Some(&local)).0["status"], ended.0["status"]);
    }

    #[test]
    fn node_of_another_machine_is_kept_for_its_link() {
        let node = |annotations: Value, spec: Value| {
            let status = json!({"addresses": [{"type": "InternalIP", "address": "10.0.0.2"}], "conditions": [{"type": "Ready"}]});
            copy_linked_node(&Object(
                json!({"metadata": {"name": "n", "uid": "1", "labels": {"a": "b"}, "annotations": annotations}, "spec": spec, "status": status}),
            ))
        };
        let (link, block) =
            (json!({LINK: "10.0.0.2:1", "other": "x"}), json!({"podCIDR": "127.9.64.0/25", "taints": []}));
        let kept = node(link.clone(), block.clone()).unwrap();
        assert_eq!(kept.0["metadata"], json!({"name": "n", "uid": "1", "annotations": {LINK: "10.0.0.2:1"}}));
        assert_eq!(kept.0["status"].as_object().unwrap().len(), 1);
        assert!(node(json!({}), block).is_none() && node(link, json!({})).is_none());
    }

    #[test]
    fn status_patch_has_only_what_the_server_does_not_know() {
        let ready = json!({"type": "Ready", "status": "True"});
        let ours = json!({"phase": "Running", "conditions": [ready, {"type": "PodScheduled", "status": "Odd"}]});
        let known =
            json!({"phase": "Pending", "message": "waits", "conditions": [{"type": "Ready", "status": "False"}]});
        let patch = status_patch(&ours, &known).unwrap();
        assert_eq!(patch, json!({"phase": "Running", "message": null, "conditions": [ready]}));
        assert_eq!(status_patch(&ours, &ours), None);
    }

    #[test]
    fn node_keeps_its_status_under_new_labels() {
        let node = |label: &str, ready: &str| {
            Object(
                json!({"metadata": {"name": "n", "uid": "1", "labels": {"a": label}, "resourceVersion": ready}, "status": {"r": ready}}),
            )
        };
        let merged = merge_node(node("new", "old"), Some(&node("old", "new")), false);
        assert_eq!((merged.label("a"), &merged.0["status"]["r"]), (Some("new"), &json!("new")));
        let mut later = merged.clone();
        later.set(&["metadata", "resourceVersion"], "9");
        assert!(!differs(&merged, &later) && differs(&merged, &node("new", "old")));
        let beat = |at: &str| json!({"conditions": [{"type": "Ready", "lastHeartbeatTime": at}]});
        assert_eq!(without_heartbeats(&beat("1")), without_heartbeats(&beat("2")));
    }
}
