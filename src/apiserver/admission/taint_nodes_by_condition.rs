//! TaintNodesByCondition: a new node gets no pods before it is ready. The node lifecycle loop removes the taint once the node is ready.

use super::AdmissionRequest;
use crate::apiserver::ApiResult;
use crate::apiserver::transaction::Transaction;
use serde_json::json;

/// Admits a new node.
pub fn admit(_: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    if !request.creates("nodes") {
        return Ok(());
    }
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    let mut taints = request.object.items(&["spec", "taints"]).to_vec();
    if !taints.iter().any(|known| known["key"] == taint["key"] && known["effect"] == taint["effect"]) {
        taints.push(taint);
        request.object.set(&["spec", "taints"], taints);
    }
    Ok(())
}
