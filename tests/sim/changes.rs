//! Fields of an object that may change from one write to the next, and fields that never do.

use kloop::object::{Key, Object};
use serde_json::Value;

/// Checks fields that may not change in an object, or only in one direction.
pub fn compare(key: &Key, before: &Object, now: &Object) {
    assert_eq!(before.uid(), now.uid(), "{key}: the uid changed");
    assert_eq!(before.created(), now.created(), "{key}: the creation time changed");
    assert!(before.deletion().is_none() || now.deletion().is_some(), "{key}: a deletion was undone");
    let same_spec = before.value_at(&["spec"]) == now.value_at(&["spec"]);
    assert!(now.generation() >= before.generation(), "{key}: the generation fell");
    if before.generation() > 0 && !same_spec && key.resource != "pods" && key.resource != "namespaces" {
        assert!(now.generation() > before.generation(), "{key}: the spec changed under the same generation");
    }
    let mut bare = [before.clone(), now.clone()];
    bare.iter_mut().for_each(|object| object.set(&["metadata", "resourceVersion"], ""));
    assert_ne!(bare[0], bare[1], "{key}: a write that changed nothing");
    match key.resource.0 {
        "pods" => compare_pods(key, before, now),
        "jobs.batch" => {
            for field in ["succeeded", "failed"] {
                let count = |object: &Object| object.int(&["status", field]).unwrap_or(0);
                assert!(count(now) >= count(before), "C8: {key}: status.{field} fell");
            }
            for kind in ["Complete", "Failed"] {
                let holds = |object: &Object| {
                    let mut all = object.items(&["status", "conditions"]).iter();
                    all.any(|one| one["type"] == kind && one["status"] == "True")
                };
                assert!(holds(now) || !holds(before), "C8: {key} was {kind} and is not any more");
            }
        }
        _ => {}
    }
}

fn compare_pods(key: &Key, before: &Object, now: &Object) {
    let phase = |pod: &Object| pod.text(&["status", "phase"]).unwrap_or("Pending").to_owned();
    if matches!(&*phase(before), "Succeeded" | "Failed") {
        assert_eq!(phase(before), phase(now), "{key}: a final phase changed");
    }
    let node = |pod: &Object| pod.text(&["spec", "nodeName"]).unwrap_or_default().to_owned();
    assert!(node(before).is_empty() || node(before) == node(now), "C14: {key} was bound twice");
    for list in ["initContainerStatuses", "containerStatuses"] {
        for status in before.items(&["status", list]) {
            let same = now.items(&["status", list]).iter().find(|one| one["name"] == status["name"]);
            let same = same.unwrap_or_else(|| panic!("{key}: the status of {} vanished", status["name"]));
            let count = |one: &Value| one["restartCount"].as_i64().unwrap();
            assert!(count(same) >= count(status), "{key}: restartCount of {} fell", status["name"]);
        }
    }
}
