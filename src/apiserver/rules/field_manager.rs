//! The form of a field manager's name (`apimachinery/pkg/apis/meta/v1/validation`: `ValidateFieldManager`).

use crate::kinds::shared::field;
use crate::kinds::{FieldErrors, FieldPath};
use crate::object::{Resource, Status};

/// The longest name, in bytes.
const MAX_BYTES: usize = 128;

/// Refuses a name that is too long or cannot be printed. `of`: `CreateOptions`, the options that it is part of.
pub fn check(name: &str, of: &str) -> Result<(), Status> {
    let (path, mut errors) = (FieldPath::root("fieldManager"), FieldErrors::default());
    if name.len() > MAX_BYTES {
        errors.too_long(&path, MAX_BYTES);
    }
    if name.chars().any(char::is_control) {
        errors.invalid(&path, name, "should only contain printable characters");
    }
    refuse(&errors, of)
}

/// Refuses a name as [`check`] does, and an empty one: an apply patch needs a manager.
pub fn check_applier(name: &str) -> Result<(), Status> {
    let mut errors = FieldErrors::default();
    if name.is_empty() {
        errors.required(&FieldPath::root("fieldManager"), "is required for apply patch");
    }
    refuse(&errors, "PatchOptions")?;
    check(name, "PatchOptions")
}

fn refuse(errors: &FieldErrors, of: &str) -> Result<(), Status> {
    match errors.0.is_empty() {
        true => Ok(()),
        false => Err(field::invalid(of, Resource("options.meta.k8s.io"), "", &errors.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_and_unprintable_names_are_refused() {
        assert!(check(&"x".repeat(128), "CreateOptions").is_ok());
        let told = check(&"x".repeat(129), "CreateOptions").unwrap_err().message;
        let rest = "\"\" is invalid: fieldManager: Too long: may not be more than 128 bytes";
        assert_eq!(told, format!("CreateOptions.meta.k8s.io {rest}"));
        assert!(check("a\nb", "PatchOptions").is_err());
        let told = check_applier("").unwrap_err().message;
        let rest = "\"\" is invalid: fieldManager: Required value: is required for apply patch";
        assert_eq!(told, format!("PatchOptions.meta.k8s.io {rest}"));
        assert!(check_applier("me").is_ok() && check_applier(&"x".repeat(129)).is_err());
    }
}
