//! The form of a field manager's name (`apimachinery/pkg/apis/meta/v1/validation`: `ValidateFieldManager`).

use crate::kinds::{FieldErrors, FieldPath, field};
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
    }
}
