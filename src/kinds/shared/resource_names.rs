//! Names of resources such as `cpu`, `requests.memory`, `count/pods`, `example.com/gpu`.

use super::super::{FieldErrors, FieldPath};
use super::names;

const MEASURED: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "requests.storage",
];
const COUNTED: &[&str] = &[
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

/// Whether a quota may limit this resource without a domain.
pub fn is_quota(name: &str) -> bool {
    let huge = name.starts_with("hugepages-") || name.starts_with("requests.hugepages-");
    huge || MEASURED.contains(&name) || COUNTED.contains(&name)
}

/// Whether it is one of Kubernetes' standard names.
pub fn is_standard(name: &str) -> bool {
    is_quota(name) || name == "storage"
}

/// Whether containers may request this resource without a domain.
pub fn is_container(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-")
}

/// Whether it is an extended resource, such as `example.com/gpu`.
pub fn is_extended(name: &str) -> bool {
    name.contains('/')
        && !name.contains("kubernetes.io/")
        && !name.starts_with("requests.")
        && names::qualified(&format!("requests.{name}")).is_empty()
}

/// Whether a node may overcommit it: true for Kubernetes' own resources except huge pages.
pub fn may_overcommit(name: &str) -> bool {
    (!name.contains('/') || name.contains("kubernetes.io/")) && !name.starts_with("hugepages-")
}

/// Whether its amounts are integers.
pub fn is_integer(name: &str) -> bool {
    COUNTED.contains(&name) || is_extended(name)
}

/// Checks that a name is standard or has a domain.
pub fn check(name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let problems = names::qualified(name);
    if problems.is_empty() && !name.contains('/') && !is_standard(name) {
        errors.invalid(path, name, "must be a standard resource type or fully qualified");
    }
    errors.each_invalid(path, name, problems);
}

/// Checks that containers may use a name.
pub fn check_container(name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    check(name, path, errors);
    if name.contains('/') {
        if !name.contains("kubernetes.io/") && !is_extended(name) {
            errors.invalid(path, name, "doesn't follow extended resource name standard");
        }
    } else if !is_container(name) {
        errors.invalid(path, name, "must be a standard resource for containers");
    }
}
