//! Bind: a pod gets its node (`pods/binding`).

use super::Result;
use super::admission::pod_topology;
use super::ledger::Ledger;
use crate::object::edit::{self, Change, Edit};
use crate::object::{Key, Object, Reason, Resource, Status, Str, time};
use serde_json::json;

/// The fields of a pod that decide whether it may be bound.
pub struct Prospect {
    /// Its uid.
    pub uid: Str,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// The node that it has already.
    pub node: Option<Str>,
    /// Its generation.
    pub generation: i64,
}

impl Prospect {
    /// The same, read from the pod.
    pub fn of(pod: &Object) -> Prospect {
        Prospect {
            uid: pod.uid().into(),
            is_deleting: pod.deletion().is_some(),
            node: pod.text(&["spec", "nodeName"]).filter(|node| !node.is_empty()).map(Str::from),
            generation: pod.generation(),
        }
    }
}

/// The changes that a binding makes to a pod.
pub struct Binding {
    /// The node.
    pub node: Str,
    /// The labels that the node gives its pods.
    pub labels: Vec<(&'static str, String)>,
    /// All of the changes, the labels among them.
    pub edits: Vec<Edit>,
}

/// Binds a pod to a node: sets `spec.nodeName` and the condition PodScheduled.
pub fn bind(ledger: &mut dyn Ledger, pod: &Key, uid: &str, node: &str) -> Result<()> {
    let prospect = ledger.prospect(pod)?.ok_or_else(|| Status::not_found(pod.resource, &pod.name))?;
    let refuse = |detail: String| Status::conflict(Resource("pods/binding"), &pod.name, &detail);
    if !uid.is_empty() && &*prospect.uid != uid {
        return Err(refuse(format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            prospect.uid
        )));
    }
    if prospect.is_deleting {
        return Err(refuse(format!("pod {} is being deleted, cannot be assigned to a host", pod.name)));
    }
    if let Some(taken) = &prospect.node {
        return Err(refuse(format!("pod {} is already assigned to node {taken:?}", pod.name)));
    }
    if node.is_empty() {
        return Err(Status::new(Reason::Invalid, "target.name: Required value"));
    }
    let labels = pod_topology::labels(ledger, node)?;
    let binding = Binding { node: node.into(), edits: edits(ledger, prospect.generation, node, &labels), labels };
    if ledger.bind_in_text(pod, &binding) {
        return Ok(());
    }
    let seen = ledger.see(pod)?.ok_or_else(|| Status::not_found(pod.resource, &pod.name))?;
    let mut object = ledger.take(pod, seen);
    edit::object(&mut object, &binding.edits);
    ledger.put(pod, object).map(drop)
}

fn edits(ledger: &dyn Ledger, generation: i64, node: &str, labels: &[(&'static str, String)]) -> Vec<Edit> {
    let scheduled = json!({
        "type": "PodScheduled", "status": "True", "observedGeneration": generation,
        "lastProbeTime": null, "lastTransitionTime": time::rfc3339(ledger.now()),
    });
    let labels = labels.iter().map(|(label, value)| Edit::set(&["metadata", "labels", label], value.as_str()));
    labels
        .chain([
            Edit::set(&["spec", "nodeName"], node),
            Edit::new(&["status", "conditions"], Change::Condition(scheduled)),
            // The nomination is fulfilled (Kubernetes: ClearingNominatedNodeNameAfterBinding).
            Edit::new(&["status", "nominatedNodeName"], Change::Unset),
        ])
        .collect()
}
