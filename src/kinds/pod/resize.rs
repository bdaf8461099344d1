//! The `resize` subresource: changes requests and limits of running containers (KEP-1287).

use super::facts::{is_sidecar, qos_class};
use crate::kinds::catalogue::typed;
use crate::kinds::{FieldError, FieldErrors, FieldPath};
use crate::object::Object;
use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::Value;
use std::collections::BTreeMap;

/// The old pod with the new one's container resources and resize policies. Other changes are dropped, but containers may not change
/// their number, order or names.
pub fn resized(new: &Object, old: &Object) -> (Object, Vec<FieldError>) {
    let mut object = old.clone();
    for list in ["containers", "initContainers"] {
        let wanted = new.items(&["spec", list]).to_vec();
        let mut own = old.items(&["spec", list]).to_vec();
        for (container, wanted) in own.iter_mut().zip(&wanted) {
            for field in ["resources", "resizePolicy"] {
                if let Some(value) = wanted.get(field) {
                    container[field] = value.clone();
                }
            }
        }
        if !own.is_empty() {
            object.set(&["spec", list], Value::Array(own));
        }
    }
    let mut errors = FieldErrors::default();
    let path = FieldPath::root("spec");
    let names = |pod: &Object| {
        ["containers", "initContainers"].map(|list| {
            pod.items(&["spec", list]).iter().map(|container| container["name"].clone()).collect::<Vec<_>>()
        })
    };
    if names(new) != names(old) {
        errors.forbidden(&path, "only cpu and memory resources are mutable");
    }
    if let (Ok(before), Ok(after)) = (typed::view::<Pod>(old), typed::view::<Pod>(&object)) {
        check(&before, &after, &path, &mut errors);
    }
    (object, errors.0)
}

fn check(before: &Pod, after: &Pod, path: &FieldPath, errors: &mut FieldErrors) {
    let (Some(old), Some(new)) = (&before.spec, &after.spec) else { return };
    if qos_class(old) != qos_class(new) {
        let class = before.status.as_ref().and_then(|status| status.qos_class.as_deref());
        errors.invalid(path, class.unwrap_or(qos_class(old)), "Pod QOS Class may not change as a result of resizing");
    }
    let init = |spec: &k8s_openapi::api::core::v1::PodSpec| spec.init_containers.clone().unwrap_or_default();
    let lists =
        [("containers", old.containers.clone(), new.containers.clone()), ("initContainers", init(old), init(new))];
    for (list, old, new) in &lists {
        for (index, (old, new)) in old.iter().zip(new).enumerate() {
            let at = path.child(list).index(index).child("resources");
            if *list == "initContainers" && !is_sidecar(old) && old.resources != new.resources {
                errors.forbidden(&at, "resources for non-sidecar init containers are immutable");
            }
            check_container(old, new, &at, errors);
        }
    }
}

fn check_container(old: &Container, new: &Container, path: &FieldPath, errors: &mut FieldErrors) {
    let none = ResourceRequirements::default();
    let (old, new) = (old.resources.as_ref().unwrap_or(&none), new.resources.as_ref().unwrap_or(&none));
    for (list, word, old, new) in
        [("limits", "limits", &old.limits, &new.limits), ("requests", "requests", &old.requests, &new.requests)]
    {
        let amount =
            |all: &Option<BTreeMap<String, Quantity>>, name: &str| all.as_ref().and_then(|all| all.get(name).cloned());
        let names = old.iter().chain(new).flat_map(BTreeMap::keys);
        for name in names.collect::<std::collections::BTreeSet<_>>() {
            let (before, after) = (amount(old, name), amount(new, name));
            if before == after {
                continue;
            }
            if !matches!(name.as_str(), "cpu" | "memory") {
                errors.forbidden(&path.child(list), "only cpu and memory resources are mutable");
            } else if after.is_none() {
                errors.forbidden(&path.child(list), &format!("resource {word} cannot be removed"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(limits: Value, image: &str) -> Object {
        Object(
            json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": image, "resources": {"limits": limits}}]}}),
        )
    }

    #[test]
    fn resize_changes_only_resources_and_keeps_the_qos_class() {
        let old = pod(json!({"cpu": "1"}), "a");
        let table = [
            (pod(json!({"cpu": "2"}), "a"), ""),
            (pod(json!({"cpu": "2"}), "b"), ""),
            (
                {
                    let mut renamed = pod(json!({"cpu": "1"}), "a");
                    renamed.0["spec"]["containers"][0]["name"] = json!("d");
                    renamed
                },
                "spec: Forbidden: only cpu and memory resources are mutable",
            ),
            (
                pod(json!({}), "a"),
                "spec: Invalid value: \"Burstable\": Pod QOS Class may not change as a result of resizing; spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed",
            ),
            (
                pod(json!({"cpu": "1", "ephemeral-storage": "1Gi"}), "a"),
                "spec.containers[0].resources.limits: Forbidden: only cpu and memory resources are mutable",
            ),
        ];
        for (new, expected) in table {
            let (object, errors) = resized(&new, &old);
            let messages: Vec<String> =
                errors.iter().map(|error| format!("{}: {}", error.field, error.message)).collect();
            assert_eq!(messages.join("; "), expected);
            assert_eq!(object.text(&["spec", "containers"]), None);
            assert_eq!(object.items(&["spec", "containers"])[0]["image"], "a");
        }
    }
}
