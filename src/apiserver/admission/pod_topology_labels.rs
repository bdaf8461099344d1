//! PodTopologyLabels (KEP-4742): a pod on a node carries the node's zone and region as labels.

use super::AdmissionRequest;
use crate::apiserver::ApiResult;
use crate::apiserver::transaction::Transaction;
use crate::object::{Key, Object, Resource};

/// Labels that are taken over.
const LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

/// Admits a pod that is made with its node's name.
pub fn admit(txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    let node = request.object.text(&["spec", "nodeName"]).unwrap_or_default().to_owned();
    if request.creates("pods") && !node.is_empty() {
        copy(&labels(txn, &node)?, request.object);
    }
    Ok(())
}

/// The labels that a node gives its pods, as far as it has them.
pub fn labels(txn: &dyn Transaction, node: &str) -> ApiResult<Vec<(&'static str, String)>> {
    let node = Key::new(Resource("nodes"), "", node);
    let each = LABELS.iter().map(|label| Ok(txn.label(&node, label)?.map(|value| (*label, value))));
    each.filter_map(ApiResult::transpose).collect()
}

/// Gives a pod the labels of its node.
pub fn copy(labels: &[(&'static str, String)], pod: &mut Object) {
    for (label, value) in labels {
        pod.set(&["metadata", "labels", label], value.as_str());
    }
}
