//! Tells which writes lead to free space on the disk, so that the store's reserve serves them when the disk is full.
//!
//! Start reading at [`frees_space`].

use crate::object::Object;

/// Whether a change of an object ends processes: a deletion, fewer replicas, a suspension, or the end of a pod, which an eviction writes.
pub fn frees_space(before: Option<&Object>, after: &Object) -> bool {
    if after.deletion().is_some() {
        return true;
    }
    let Some(before) = before else { return false };
    let replicas = |object: &Object| object.int(&["spec", "replicas"]).unwrap_or(1);
    let suspends = |object: &Object| object.value_at(&["spec", "suspend"]).is_some_and(|value| *value == true);
    let has_ended = |object: &Object| matches!(object.text(&["status", "phase"]), Some("Failed" | "Succeeded"));
    replicas(after) < replicas(before)
        || suspends(after) && !suspends(before)
        || has_ended(after) && !has_ended(before) && after.kind() == "Pod"
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn deletions_and_ends_of_processes_free_space() {
        let object = |spec: serde_json::Value, phase: &str| {
            Object(json!({"kind": "Pod", "metadata": {}, "spec": spec, "status": {"phase": phase}}))
        };
        let deleted = Object(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
        assert!(frees_space(None, &deleted));
        let runs = object(json!({"replicas": 2}), "Running");
        for (after, expected) in [
            (object(json!({"replicas": 1}), "Running"), true),
            (object(json!({"replicas": 3}), "Running"), false),
            (object(json!({"replicas": 2, "suspend": true}), "Running"), true),
            (object(json!({"replicas": 2}), "Failed"), true),
            (runs.clone(), false),
        ] {
            assert_eq!(frees_space(Some(&runs), &after), expected, "{}", after.0);
        }
        assert!(!frees_space(None, &runs));
    }
}
