//! Annotations of the audit log about webhooks: annotations in their answers, their changes, and failures that were ignored.

use super::hook::Hook;
use crate::apiserver::outside::AuditAnnotation;
use crate::apiserver::transaction::Transaction;
use serde_json::{Value, json};

/// Notes the annotations of a webhook's answer.
pub fn note_own(txn: &mut dyn Transaction, hook: &Hook, annotations: Vec<(String, String)>) {
    for (key, value) in annotations {
        txn.annotate(AuditAnnotation::new(format!("{}/{key}", hook.name), value));
    }
}

/// Notes whether a mutating webhook has changed the object, and its patch for events that show the body of the request.
pub fn note_mutation(txn: &mut dyn Transaction, hook: &Hook, place: &str, is_changed: bool, patch: Option<Value>) {
    let mut value = json!({"configuration": hook.configuration, "webhook": hook.name});
    if let Some(patch) = patch {
        value["patch"] = patch;
        value["patchType"] = "JSONPatch".into();
        let key = format!("patch.webhook.admission.k8s.io/{place}");
        txn.annotate(AuditAnnotation { is_detail: true, ..AuditAnnotation::new(key, value.to_string()) });
    }
    let value = json!({"configuration": hook.configuration, "webhook": hook.name, "mutated": is_changed});
    txn.annotate(AuditAnnotation::new(format!("mutation.webhook.admission.k8s.io/{place}"), value.to_string()));
}

/// Notes that a webhook failed and its failurePolicy let the request pass. `what` is `mutation` or `validating`.
pub fn note_failed_open(txn: &mut dyn Transaction, hook: &Hook, what: &str, place: &str) {
    let key = format!("failed-open.{what}.webhook.admission.k8s.io/{place}");
    txn.annotate(AuditAnnotation::new(key, hook.name.as_str()));
}
