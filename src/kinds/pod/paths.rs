//! Checks of file paths in volumes and mounts.

use crate::kinds::{FieldErrors, FieldPath};

/// Refuses `..`.
pub fn check_no_backsteps(target: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if target.split('/').any(|part| part == "..") {
        errors.invalid(path, target, "must not contain '..'");
    }
}

/// Checks that a path is relative and stays below its folder.
pub fn check_descending(target: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if target.starts_with('/') {
        errors.invalid(path, target, "must be a relative path");
    }
    check_no_backsteps(target, path, errors);
}

/// Checks that a path stays below its folder, and is none of the kubelet's reserved names.
pub fn check_file(target: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if target.is_empty() {
        return errors.required(path, "");
    }
    check_descending(target, path, errors);
    if target.starts_with("..") && !target.starts_with("../") {
        errors.invalid(path, target, "must not start with '..'");
    }
}
