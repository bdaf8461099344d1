//! PodResizeValidator: a resize of a pod may not exceed the capacity of its node.

use super::AdmissionRequest;
use crate::apiserver::ApiResult;
use crate::apiserver::transaction::Transaction;
use crate::object::{Cause, Key, Object, Resource, Status};
use crate::world::ResourceRequests;
use serde_json::Value;

/// Admits a write of `pods/resize`.
pub fn admit(txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    if request.kind.resource != "pods" || request.subresource != "resize" {
        return Ok(());
    }
    let name = request.object.text(&["spec", "nodeName"]).unwrap_or_default();
    let is_same = request.old.is_some_and(|old| old.value_at(&["spec"]) == request.object.value_at(&["spec"]));
    if name.is_empty() || is_same {
        return Ok(());
    }
    let Some(node) = txn.get_shared(&Key::new(Resource("nodes"), "", name))? else {
        return Err(request.forbidden(&format!("node {name:?} not found")));
    };
    if let Some(why) = find_excess(&node, request.object) {
        return Err(with_cause(request.forbidden(&why), "NodeCapacity"));
    }
    let system = node.label("kubernetes.io/os").unwrap_or_default();
    if system == "linux" {
        return Ok(());
    }
    let why = format!("pod resize is only supported on linux nodes, node {name:?} is {system:?}");
    Err(with_cause(request.forbidden(&why), "UnsupportedPlatform"))
}

/// Returns the reason why an empty node could not run the pod.
fn find_excess(node: &Object, pod: &Object) -> Option<String> {
    let offered = ResourceRequests::from_list(node.value_at(&["status", "allocatable"]).unwrap_or(&Value::Null));
    let wanted = ResourceRequests::for_pod(pod);
    let amounts = [("cpu", wanted.cpu_milli, offered.cpu_milli), ("memory", wanted.memory, offered.memory)].into_iter();
    let excess: Vec<String> = amounts
        .filter(|(_, wanted, offered)| wanted > offered)
        .map(|(name, wanted, offered)| format!("{name}, requested: {wanted}, allocatable: {offered}"))
        .collect();
    (!excess.is_empty()).then(|| format!("Node didn't have enough allocatable resources: {}", excess.join("; ")))
}

fn with_cause(mut status: Status, reason: &str) -> Status {
    status.causes.push(Cause { reason: reason.to_owned(), field: String::new(), message: String::new() });
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pod_beyond_its_node_is_told_in_kubernetes_words() {
        let node = Object(json!({"status": {"allocatable": {"cpu": "2", "memory": "1Ki"}}}));
        let pod = |cpu: &str, memory: &str| {
            Object(json!({"spec": {"containers": [{"resources": {"requests": {"cpu": cpu, "memory": memory}}}]}}))
        };
        assert_eq!(find_excess(&node, &pod("2", "1Ki")), None);
        assert_eq!(
            find_excess(&node, &pod("2500m", "2Ki")).unwrap(),
            "Node didn't have enough allocatable resources: cpu, requested: 2500, allocatable: 2000; memory, requested: 2048, \
             allocatable: 1024"
        );
    }
}
