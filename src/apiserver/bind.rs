//! Bind: a pod gets its node (`pods/binding`).

use super::admission::{self, AdmissionTarget, Operation, RequestOptions, pod_topology_labels};
use super::transaction::{Binding, Transaction};
use super::{ApiResult, WriteOptions};
use crate::kinds;
use crate::object::edit::{self, TextEdit, ValueChange};
use crate::object::{Key, Object, Reason, Resource, Status, time};
use serde_json::json;
use std::sync::Arc;

/// Binds a pod to a node: sets `spec.nodeName` and the condition PodScheduled.
pub fn bind(txn: &mut dyn Transaction, pod: &Key, uid: &str, node: &str) -> ApiResult<()> {
    let bind_preconditions = txn.bind_preconditions(pod)?.ok_or_else(|| Status::not_found(pod.resource, &pod.name))?;
    let refuse = |detail: String| Status::conflict(Resource("pods/binding"), &pod.name, &detail);
    if !uid.is_empty() && &*bind_preconditions.uid != uid {
        return Err(refuse(format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            bind_preconditions.uid
        )));
    }
    if bind_preconditions.is_deleting {
        return Err(refuse(format!("pod {} is being deleted, cannot be assigned to a host", pod.name)));
    }
    if let Some(taken) = &bind_preconditions.node {
        return Err(refuse(format!("pod {} is already assigned to node {taken:?}", pod.name)));
    }
    if bind_preconditions.is_gated {
        return Err(refuse(format!("pod {} has non-empty .spec.schedulingGates", pod.name)));
    }
    if node.is_empty() {
        return Err(Status::new(Reason::Invalid, "target.name: Required value"));
    }
    admit(txn, pod, uid, node)?;
    let labels = pod_topology_labels::labels(txn, node)?;
    let binding =
        Binding { node: node.into(), edits: edits(txn, bind_preconditions.generation, node, &labels), labels };
    if txn.bind_in_text(pod, &binding) {
        return Ok(());
    }
    let seen = txn.get_shared(pod)?.ok_or_else(|| Status::not_found(pod.resource, &pod.name))?;
    let mut object = Arc::unwrap_or_clone(seen);
    edit::object(&mut object, &binding.edits);
    txn.put(pod, object).map(drop)
}

/// Asks admission for a binding, where something wants to see it.
fn admit(txn: &mut dyn Transaction, pod: &Key, uid: &str, node: &str) -> ApiResult<()> {
    let (operation, kind, subresource) = (Operation::Create, &kinds::pod::KIND, "binding");
    if !admission::may_concern(txn, kind, operation, subresource)? {
        return Ok(());
    }
    let mut binding = Object(json!({
        "apiVersion": "v1", "kind": "Binding", "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        "metadata": {"name": &*pod.name, "namespace": &*pod.namespace},
    }));
    if !uid.is_empty() {
        binding.set(&["metadata", "uid"], uid);
    }
    let (options, mut warnings) = (WriteOptions::default(), Vec::new());
    let options = RequestOptions::Write(&options);
    let target = AdmissionTarget { operation, kind, api_version: kind.version, subresource, key: pod, options };
    let mut request = target.request(txn, &mut binding, None, &mut warnings);
    admission::admit(txn, &mut request)
}

fn edits(txn: &dyn Transaction, generation: i64, node: &str, labels: &[(&'static str, String)]) -> Vec<TextEdit> {
    let scheduled = json!({
        "type": "PodScheduled", "status": "True", "observedGeneration": generation,
        "lastProbeTime": null, "lastTransitionTime": time::rfc3339(txn.now()),
    });
    let labels = labels.iter().map(|(label, value)| TextEdit::set(&["metadata", "labels", label], value.as_str()));
    labels
        .chain([
            TextEdit::set(&["spec", "nodeName"], node),
            TextEdit::new(&["status", "conditions"], ValueChange::Condition(scheduled)),
            // The nomination is fulfilled (Kubernetes: ClearingNominatedNodeNameAfterBinding).
            TextEdit::new(&["status", "nominatedNodeName"], ValueChange::Unset),
        ])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::{Api, create::create};

    #[test]
    fn pod_with_scheduling_gates_is_not_bound() {
        let mut api = Api::in_memory("test").unwrap();
        let pod = Object(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
            "spec": {"schedulingGates": [{"name": "wait"}], "containers": [{"name": "c", "image": "i"}]}}));
        api.write(false, |txn| create(txn, &kinds::pod::KIND, &pod, &WriteOptions::default())).unwrap();
        let key = Key::new(Resource("pods"), "default", "p");
        let refused = api.write(false, |txn| bind(txn, &key, "", "n")).unwrap_err();
        assert_eq!(refused.reason, Reason::Conflict);
        let message = "Operation cannot be fulfilled on pods/binding \"p\": pod p has non-empty .spec.schedulingGates";
        assert_eq!(refused.message, message);
    }
}
