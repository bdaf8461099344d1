//! Checks of a webhook's rules (`admissionregistration/validation`: `validateRuleWithOperations`).

use super::super::{FieldErrors, FieldPath};
use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;
use serde_json::json;
use std::collections::BTreeSet;

const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const SCOPES: &[&str] = &["*", "Cluster", "Namespaced"];

/// Checks one rule.
pub fn check(rule: &RuleWithOperations, path: &FieldPath, errors: &mut FieldErrors) {
    let operations = rule.operations.as_deref().unwrap_or_default();
    check_list(operations, "operations", &path.child("operations"), errors);
    for (index, other) in operations.iter().enumerate().filter(|(_, name)| !OPERATIONS.contains(&name.as_str())) {
        errors.unsupported(&path.child("operations").index(index), other.as_str(), OPERATIONS);
    }
    check_list(rule.api_groups.as_deref().unwrap_or_default(), "API groups", &path.child("apiGroups"), errors);
    let versions = rule.api_versions.as_deref().unwrap_or_default();
    check_list(versions, "API versions", &path.child("apiVersions"), errors);
    for (index, _) in versions.iter().enumerate().filter(|(_, version)| version.is_empty()) {
        errors.required(&path.child("apiVersions").index(index), "");
    }
    check_resources(rule.resources.as_deref().unwrap_or_default(), &path.child("resources"), errors);
    if let Some(scope) = rule.scope.as_deref().filter(|scope| !SCOPES.contains(scope)) {
        errors.unsupported(&path.child("scope"), scope, SCOPES);
    }
}

/// Checks that a list is not empty, and that `*` is its only item if present.
fn check_list(list: &[String], what: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if list.is_empty() {
        errors.required(path, "");
    }
    if list.len() > 1 && list.iter().any(|item| item == "*") {
        errors.invalid(path, json!(list), &format!("if '*' is present, must not specify other {what}"));
    }
}

/// Checks resources and subresources, and refuses those that a wildcard already includes.
fn check_resources(resources: &[String], path: &FieldPath, errors: &mut FieldErrors) {
    if resources.is_empty() {
        errors.required(path, "");
    }
    let (mut all_of, mut of_all) = (BTreeSet::new(), BTreeSet::new());
    for (index, name) in resources.iter().enumerate() {
        let at = path.index(index);
        if name.is_empty() {
            errors.required(&at, "");
        }
        let Some((resource, part)) = name.split_once('/') else { continue };
        if all_of.contains(resource) {
            let detail = format!("if '{resource}/*' is present, must not specify {name}");
            errors.invalid(&at, name.as_str(), &detail);
        }
        if of_all.contains(part) {
            errors.invalid(&at, name.as_str(), &format!("if '*/{part}' is present, must not specify {name}"));
        }
        if part == "*" {
            all_of.insert(resource);
        }
        if resource == "*" {
            of_all.insert(part);
        }
    }
    let has = |wanted: &str| resources.iter().any(|name| name == wanted);
    if resources.len() > 1 && has("*/*") {
        errors.invalid(path, json!(resources), "if '*/*' is present, must not specify other resources");
    }
    // Kubernetes checks only the last resource without a subresource.
    let plain = resources.iter().rev().find(|name| !name.is_empty() && !name.contains('/'));
    if has("*") && plain.is_some_and(|name| name != "*") {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.invalid(path, json!(resources), detail);
    }
}
