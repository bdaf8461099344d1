//! Checks of requests and limits.

use crate::kinds::amount::quantity;
use crate::kinds::{FieldErrors, FieldPath, names, resource_names};
use crate::object::Quantity;
use k8s_openapi::api::core::v1::{Container, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use std::collections::BTreeMap;

/// Checks the resources of one container.
pub fn check(resources: &ResourceRequirements, path: &FieldPath, errors: &mut FieldErrors) {
    let limits = amounts(resources.limits.as_ref());
    let requests = amounts(resources.requests.as_ref());
    for (name, limit) in &limits {
        check_amount(name, *limit, &path.child("limits").key(name), errors);
    }
    for (name, request) in &requests {
        check_amount(name, *request, &path.child("requests").key(name), errors);
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
    check_name(name, path, errors);
    if amount.is_negative() {
        errors.invalid(path, amount.to_string(), "must be greater than or equal to 0");
    }
    if resource_names::is_integer(name) && amount.milli() % 1000 != 0 {
        errors.invalid(path, amount.to_string(), "must be an integer");
    }
}

fn check_name(name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let problems = names::qualified(name);
    if problems.is_empty() && !name.contains('/') {
        if !resource_names::is_standard(name) {
            errors.invalid(path, name, "must be a standard resource type or fully qualified");
        }
        if !resource_names::is_container(name) {
            errors.invalid(path, name, "must be a standard resource for containers");
        }
    }
    errors.each_invalid(path, name, problems);
}

/// Checks which resources of a container may change without a restart.
pub fn check_resize(container: &Container, path: &FieldPath, errors: &mut FieldErrors) {
    let mut seen = Vec::new();
    for policy in container.resize_policy.iter().flatten() {
        let name = policy.resource_name.as_str();
        if seen.contains(&name) {
            errors.duplicate(path, name);
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
    }
}
