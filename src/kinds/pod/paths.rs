//! Checks of file paths in volumes and mounts.

use crate::kinds::{FieldErrors, FieldPath};

/// No way back up.
pub fn check_no_backsteps(target: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if target.split('/').any(|part| part == "..") {
        errors.invalid(path, target, "must not contain '..'");
    }
}

/// Below the folder that it will be joined to.
pub fn check_descending(target: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if target.starts_with('/') {
        errors.invalid(path, target, "must be a relative path");
    }
    check_no_backsteps(target, path, errors);
}

/// Below the folder, and none of the names that the kubelet keeps for itself there.
pub fn check_file(target: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if target.is_empty() {
        return errors.required(path, "");
    }
    check_descending(target, path, errors);
    if target.starts_with("..") && !target.starts_with("../") && target != ".." {
        errors.invalid(path, target, "must not start with '..'");
    }
}
