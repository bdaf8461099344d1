//! Checks of requests and limits.

use super::{facts, os};
use crate::kinds::shared::amount::quantity;
use crate::kinds::shared::{names, resource_names};
use crate::kinds::{FieldErrors, FieldPath};
use crate::object::Quantity;
use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use std::collections::BTreeMap;

/// Checks the name of a resource.
type CheckResourceName = fn(&str, &FieldPath, &mut FieldErrors);

/// Checks the resources of one container.
pub fn check(resources: &ResourceRequirements, path: &FieldPath, errors: &mut FieldErrors) {
    check_requirements(resources, resource_names::check_container, path, errors);
}

/// Checks the overhead of a pod, whose amounts Kubernetes checks as limits.
pub fn check_overhead(overhead: &BTreeMap<String, Text>, path: &FieldPath, errors: &mut FieldErrors) {
    check(&ResourceRequirements { limits: Some(overhead.clone()), ..Default::default() }, path, errors);
}

/// Checks pod-level resources, which must suffice for the containers (KEP-2837).
pub fn check_pod(spec: &PodSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(resources) = &spec.resources else { return };
    if os::is_windows(spec) {
        return errors.forbidden(path, "may not be set for a windows pod");
    }
    if resources.claims.is_some() {
        errors.forbidden(&path.child("claims"), "claims may not be set for Resources at pod-level");
    }
    check_requirements(resources, check_pod_level_name, path, errors);
    let sums = facts::container_requests(spec);
    for (name, request) in amounts(resources.requests.as_ref()) {
        let sum = sums.quantity(name).map(|sum| quantity(&sum)).unwrap_or_default();
        if sum > request {
            let detail = format!("must be greater than or equal to aggregate container requests of {sum}");
            errors.invalid(&path.child("requests").key(name), request.to_string(), &detail);
        }
    }
    let of_pod = amounts(resources.limits.as_ref());
    for (index, container) in spec.containers.iter().enumerate() {
        for (name, limit) in amounts(container.resources.as_ref().and_then(|all| all.limits.as_ref())) {
            if let Some(most) = of_pod.get(name).filter(|most| limit > **most) {
                let path = path.child("containers").index(index).key(name).child("limits");
                errors.invalid(
                    &path,
                    limit.to_string(),
                    &format!("must be less than or equal to pod limits of {most}"),
                );
            }
        }
    }
}

fn check_requirements(
    resources: &ResourceRequirements,
    check_name: CheckResourceName,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let limits = amounts(resources.limits.as_ref());
    let requests = amounts(resources.requests.as_ref());
    for (name, limit) in &limits {
        let path = path.child("limits").key(name);
        check_name(name, &path, errors);
        check_amount(name, *limit, &path, errors);
    }
    for (name, request) in &requests {
        let at = path.child("requests").key(name);
        check_name(name, &at, errors);
        check_amount(name, *request, &at, errors);
        check_against_limit(name, *request, limits.get(name), path, errors);
    }
    let huge = |name: &&&str| name.starts_with("hugepages-");
    let basic = |name: &&str| matches!(*name, "cpu" | "memory");
    let mut all = limits.keys().chain(requests.keys());
    if all.clone().any(|name| huge(&name)) && !all.any(basic) {
        errors.forbidden(path, "HugePages require cpu or memory");
    }
}

fn amounts(list: Option<&BTreeMap<String, Text>>) -> BTreeMap<&str, Quantity> {
    list.into_iter().flatten().map(|(name, text)| (name.as_str(), quantity(text))).collect()
}

fn check_against_limit(
    name: &str,
    request: Quantity,
    limit: Option<&Quantity>,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let shared = resource_names::may_overcommit(name);
    match limit {
        Some(limit) if request != *limit && !shared => {
            let detail = format!("must be equal to {name} limit of {limit}");
            errors.invalid(&path.child("requests"), request.to_string(), &detail);
        }
        Some(limit) if request > *limit => {
            let detail = format!("must be less than or equal to {name} limit of {limit}");
            errors.invalid(&path.child("requests"), request.to_string(), &detail);
        }
        None if !shared => errors.required(&path.child("limits"), "Limit must be set for non overcommitable resources"),
        _ => {}
    }
}

fn check_amount(name: &str, amount: Quantity, path: &FieldPath, errors: &mut FieldErrors) {
    if amount.is_negative() {
        errors.invalid(path, amount.to_string(), "must be greater than or equal to 0");
    }
    if resource_names::is_integer(name) && amount.milli() % 1000 != 0 {
        errors.invalid(path, amount.to_string(), "must be an integer");
    }
    if let Some(size) = name.strip_prefix("hugepages-")
        && !is_multiple_of_page(amount, size)
    {
        let detail = format!("{amount} is not positive integer multiple of {name}");
        errors.invalid(path, amount.to_string(), &detail);
    }
}

/// Whether an amount of huge pages consists of whole pages of this size.
fn is_multiple_of_page(amount: Quantity, size: &str) -> bool {
    let size = Quantity::parse(size).ok().filter(|size| size.milli() > 0 && size.milli() % 1000 == 0);
    size.is_some_and(|size| amount.value() % size.value() == 0)
}

fn check_pod_level_name(name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let problems = names::qualified(name);
    if !problems.is_empty() {
        errors.each_invalid(path, name, problems);
    } else if !name.contains('/') && !resource_names::is_standard(name) {
        errors.invalid(path, name, "must be a standard resource type or fully qualified");
    } else if !matches!(name, "cpu" | "memory") && !name.starts_with("hugepages-") {
        errors.unsupported(path, name, &["cpu", "hugepages-", "memory"]);
    }
}

/// Checks which resources of a container may change without a restart.
pub fn check_resize(container: &Container, pod_policy: Option<&str>, path: &FieldPath, errors: &mut FieldErrors) {
    let mut seen = Vec::new();
    for (index, policy) in container.resize_policy.iter().flatten().enumerate() {
        let name = policy.resource_name.as_str();
        if seen.contains(&name) {
            errors.duplicate(&path.index(index), name);
        }
        seen.push(name);
        match name {
            "" => errors.required(path, ""),
            "cpu" | "memory" => {}
            other => errors.unsupported(path, other, &["cpu", "memory"]),
        }
        match policy.restart_policy.as_str() {
            "" => errors.required(path, ""),
            "NotRequired" | "RestartContainer" => {}
            other => errors.unsupported(path, other, &["NotRequired", "RestartContainer"]),
        }
        if pod_policy == Some("Never") && policy.restart_policy != "NotRequired" {
            let detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            errors.invalid(path, policy.restart_policy.as_str(), detail);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::testing::refusals;
    use serde_json::json;

    fn problems(container: serde_json::Value, spec: serde_json::Value) -> String {
        let mut all = json!({"containers": [{"name": "c", "image": "i"}]});
        json_patch::merge(&mut all["containers"][0], &container);
        json_patch::merge(&mut all, &spec);
        refusals(json!({"apiVersion": "v1", "kind": "Pod", "spec": all})).join("; ")
    }

    #[test]
    fn huge_pages_are_whole() {
        let limits = |amount: &str| json!({"resources": {"limits": {"cpu": "1", "hugepages-2Mi": amount}}});
        assert_eq!(problems(limits("4Mi"), json!({})), "");
        let detail = "Invalid value: \"3Mi\": 3Mi is not positive integer multiple of hugepages-2Mi";
        let field = |list: &str| format!("spec.containers[0].resources.{list}[hugepages-2Mi]: {detail}");
        assert_eq!(problems(limits("3Mi"), json!({})), format!("{}; {}", field("limits"), field("requests")));
    }

    #[test]
    fn names_of_resources_are_those_of_containers() {
        let limits = |name: &str| problems(json!({"resources": {"limits": {name: "1"}}}), json!({}));
        assert_eq!(limits("example.com/gpu"), "");
        assert!(limits("requests.example.com/gpu").contains("doesn't follow extended resource name standard"));
        let overhead = problems(json!({}), json!({"overhead": {"pods": "1"}}));
        assert_eq!(
            overhead,
            "spec.overhead.limits[pods]: Invalid value: \"pods\": must be a standard resource for containers"
        );
    }

    #[test]
    fn resizes_of_pods_that_never_restart_do_not_restart() {
        let policy = json!({"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]});
        assert_eq!(problems(policy.clone(), json!({})), "");
        let detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
        let expected = format!("spec.containers[0].resizePolicy: Invalid value: \"RestartContainer\": {detail}");
        assert_eq!(problems(policy, json!({"restartPolicy": "Never"})), expected);
    }

    #[test]
    fn pod_level_resources_have_no_claims() {
        let claims = json!({"resources": {"claims": [{"name": "a"}]}, "resourceClaims": [{"name": "a", "resourceClaimName": "b"}]});
        assert_eq!(
            problems(json!({}), claims),
            "spec.resources.claims: Forbidden: claims may not be set for Resources at pod-level"
        );
    }

    #[test]
    fn pod_level_resources_must_suffice_for_the_containers() {
        let container = |name: &str| json!({"name": name, "image": "i", "resources": {"requests": {"cpu": "750m"}, "limits": {"cpu": "2"}}});
        for (resources, problems) in [
            (json!({"requests": {"cpu": "1500m"}, "limits": {"cpu": "2"}}), ""),
            (json!({"requests": {"memory": "1Mi"}}), ""),
            (
                json!({"requests": {"cpu": "1"}}),
                "spec.resources.requests[cpu]: Invalid value: \"1\": must be greater than or equal to aggregate container requests of 1500m",
            ),
            (
                json!({"requests": {"cpu": "1500m"}, "limits": {"cpu": "1500m"}}),
                "spec.resources.containers[0][cpu].limits: Invalid value: \"2\": must be less than or equal to pod limits of 1500m; \
                 spec.resources.containers[1][cpu].limits: Invalid value: \"2\": must be less than or equal to pod limits of 1500m",
            ),
            (
                json!({"requests": {"cpu": "3"}, "limits": {"cpu": "2"}}),
                "spec.resources.requests: Invalid value: \"3\": must be less than or equal to cpu limit of 2",
            ),
            (
                json!({"requests": {"ephemeral-storage": "1Gi"}}),
                "spec.resources.requests[ephemeral-storage]: Unsupported value: \"ephemeral-storage\": supported values: \"cpu\", \
                 \"hugepages-\", \"memory\"",
            ),
        ] {
            let spec = json!({"containers": [container("a"), container("b")], "resources": resources});
            assert_eq!(refusals(json!({"apiVersion": "v1", "kind": "Pod", "spec": spec})).join("; "), problems);
        }
    }
}
