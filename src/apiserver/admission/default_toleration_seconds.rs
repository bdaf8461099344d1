//! DefaultTolerationSeconds: a pod stays five minutes on a node that stops answering, unless it says otherwise.

use super::AdmissionRequest;
use crate::apiserver::ApiResult;
use crate::apiserver::transaction::Transaction;
use serde_json::{Value, json};

const SECONDS: i64 = 300;

/// Admits a write. An update that leaves the tolerations out gets them again.
pub fn admit(_txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    if request.kind.resource != "pods" {
        return Ok(());
    }
    let mut tolerations = request.object.items(&["spec", "tolerations"]).to_vec();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        if !tolerations.iter().any(|known| is_about(known, key)) {
            let default =
                json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS});
            tolerations.push(default);
        }
    }
    request.object.set(&["spec", "tolerations"], tolerations);
    Ok(())
}

/// Whether a toleration is about the taint with this key. As in Kubernetes' plugin, its operator and value do not count.
fn is_about(toleration: &Value, key: &str) -> bool {
    let text = |field: &str| toleration[field].as_str().unwrap_or_default();
    (text("key") == key || text("key").is_empty()) && (text("effect") == "NoExecute" || text("effect").is_empty())
}
