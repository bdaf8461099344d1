//! PodTopologyLabels (KEP-4742): a pod on a node carries the node's zone and region as labels.

use super::Request;
use crate::apiserver::Result;
use crate::apiserver::ledger::Ledger;
use crate::object::{Key, Object, Resource};

/// Labels that are taken over.
const LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

/// Admits a pod that is made with its node's name.
pub fn admit(ledger: &mut dyn Ledger, request: &mut Request<'_>) -> Result<()> {
    let node = request.object.text(&["spec", "nodeName"]).unwrap_or_default().to_owned();
    if request.creates("pods") && !node.is_empty() {
        copy(ledger, request.object, &node)?;
    }
    Ok(())
}

/// Takes the labels over from a node, where it has them.
pub fn copy(ledger: &dyn Ledger, pod: &mut Object, node: &str) -> Result<()> {
    let node = Key::new(Resource("nodes"), "", node);
    for label in LABELS {
        if let Some(value) = ledger.label(&node, label)? {
            pod.set(&["metadata", "labels", label], value);
        }
    }
    Ok(())
}
