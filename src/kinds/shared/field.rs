//! Field errors with Kubernetes' messages (`k8s.io/apimachinery/pkg/util/validation/field`).

use crate::object::{Cause, Reason, Resource, Status};
use itertools::Itertools;
use serde::Serialize;
use serde_json::Value;
use std::fmt;

/// Syntax of a kind's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// RFC 1123 subdomain, up to 253 characters: most kinds.
    Subdomain,
    /// RFC 1123 label, up to 63 characters: namespaces.
    Label,
    /// RFC 1035 label: Services.
    Label1035,
    /// Anything that can be a path segment: RBAC kinds.
    PathSegment,
}

/// The path of a field, `spec.containers[0].name`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct FieldPath(String);

impl FieldPath {
    /// The path of a top-level field.
    pub fn root(name: &str) -> FieldPath {
        FieldPath(name.to_owned())
    }

    /// A field below this one.
    pub fn child(&self, name: &str) -> FieldPath {
        if self.0.is_empty() { FieldPath(name.to_owned()) } else { FieldPath(format!("{}.{name}", self.0)) }
    }

    /// An item of this list.
    pub fn index(&self, index: usize) -> FieldPath {
        FieldPath(format!("{}[{index}]", self.0))
    }

    /// An entry of this map.
    pub fn key(&self, key: &str) -> FieldPath {
        FieldPath(format!("{}[{key}]", self.0))
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An error of one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Path of the field.
    pub field: String,
    /// `FieldValueInvalid` and so on.
    pub reason: &'static str,
    /// The text after the path.
    pub message: String,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// Maximum number of reported errors of one object, since a hostile object can have hundreds of thousands.
pub const MAX_ERRORS: usize = 1000;

/// Collects errors; each method adds one type of error.
#[derive(Default, Debug)]
pub struct FieldErrors(pub Vec<FieldError>);

impl FieldErrors {
    fn push(&mut self, path: &FieldPath, reason: &'static str, message: String) {
        if self.0.len() < MAX_ERRORS {
            self.0.push(FieldError { field: path.to_string(), reason, message });
        }
    }

    /// Adds errors that were collected elsewhere.
    pub fn extend(&mut self, more: impl IntoIterator<Item = FieldError>) {
        let left = MAX_ERRORS.saturating_sub(self.0.len());
        self.0.extend(more.into_iter().take(left));
    }

    fn with_detail(head: String, detail: &str) -> String {
        if detail.is_empty() { head } else { format!("{head}: {detail}") }
    }

    /// `Required value[: detail]`.
    pub fn required(&mut self, path: &FieldPath, detail: &str) {
        self.push(path, "FieldValueRequired", Self::with_detail("Required value".into(), detail));
    }

    /// `Invalid value: <json>: detail`.
    pub fn invalid(&mut self, path: &FieldPath, value: impl Into<Value>, detail: &str) {
        let head = format!("Invalid value: {}", value.into());
        self.push(path, "FieldValueInvalid", Self::with_detail(head, detail));
    }

    /// `Invalid value: "string": detail`, with the type of the value.
    pub fn type_invalid(&mut self, path: &FieldPath, found: &str, detail: &str) {
        let head = format!("Invalid value: {found:?}");
        self.push(path, "FieldValueTypeInvalid", Self::with_detail(head, detail));
    }

    /// Like [`FieldErrors::invalid`], but with the value as Go prints it, for values whose field order or Go names are
    /// visible.
    pub fn invalid_text(&mut self, path: &FieldPath, value: &str, detail: &str) {
        self.push(path, "FieldValueInvalid", Self::with_detail(format!("Invalid value: {value}"), detail));
    }

    /// `Invalid value: detail`, without the value.
    pub fn invalid_without_value(&mut self, path: &FieldPath, detail: &str) {
        self.push(path, "FieldValueInvalid", format!("Invalid value: {detail}"));
    }

    /// `field is immutable`, when it was changed.
    pub fn immutable<T: PartialEq + Serialize>(&mut self, path: &FieldPath, new: &T, old: &T) {
        if new != old {
            self.invalid(path, serde_json::to_value(new).unwrap_or_default(), "field is immutable");
        }
    }

    /// One `Invalid value` for each problem that [`super::names`] found with a text.
    pub fn each_invalid(&mut self, path: &FieldPath, value: impl Into<Value>, problems: Vec<String>) {
        let value = value.into();
        problems.iter().for_each(|problem| self.invalid(path, value.clone(), problem));
    }

    /// `Unsupported value: "x": supported values: "a", "b"`.
    pub fn unsupported(&mut self, path: &FieldPath, value: impl Into<Value>, supported: &[&str]) {
        let mut sorted = supported.to_vec();
        sorted.sort_unstable();
        self.unsupported_as_listed(path, value, &sorted);
    }

    /// Like [`FieldErrors::unsupported`], but with the value as Go prints it.
    pub fn unsupported_text(&mut self, path: &FieldPath, value: &str, supported: &[&str]) {
        let known: Vec<String> = supported.iter().map(|word| format!("{word:?}")).collect();
        let message = format!("Unsupported value: {value}: supported values: {}", known.join(", "));
        self.push(path, "FieldValueNotSupported", message);
    }

    /// Like [`FieldErrors::unsupported`], for the few fields (RBAC, policy types) whose supported values Kubernetes
    /// does not sort.
    pub fn unsupported_as_listed(&mut self, path: &FieldPath, value: impl Into<Value>, supported: &[&str]) {
        self.unsupported_text(path, &value.into().to_string(), supported);
    }

    /// `Duplicate value: <json>`.
    pub fn duplicate(&mut self, path: &FieldPath, value: impl Into<Value>) {
        self.push(path, "FieldValueDuplicate", format!("Duplicate value: {}", value.into()));
    }

    /// `Duplicate value`, for a value that is not shown.
    pub fn duplicate_without_value(&mut self, path: &FieldPath) {
        self.push(path, "FieldValueDuplicate", "Duplicate value".into());
    }

    /// `Internal error: detail`.
    pub fn internal(&mut self, path: &FieldPath, detail: &str) {
        self.push(path, "InternalError", format!("Internal error: {detail}"));
    }

    /// Like [`FieldErrors::duplicate`], but with the value as Go prints it.
    pub fn duplicate_text(&mut self, path: &FieldPath, value: &str, detail: &str) {
        self.push(path, "FieldValueDuplicate", Self::with_detail(format!("Duplicate value: {value}"), detail));
    }

    /// `Forbidden: detail`.
    pub fn forbidden(&mut self, path: &FieldPath, detail: &str) {
        self.push(path, "FieldValueForbidden", Self::with_detail("Forbidden".into(), detail));
    }

    /// `Not found: <json>`.
    pub fn not_found(&mut self, path: &FieldPath, value: impl Into<Value>) {
        self.push(path, "FieldValueNotFound", format!("Not found: {}", value.into()));
    }

    /// `Not found: <json>: detail`.
    pub fn not_found_because(&mut self, path: &FieldPath, value: &str, detail: &str) {
        self.push(path, "FieldValueNotFound", format!("Not found: {value:?}: {detail}"));
    }

    /// `Too long: may not be more than N bytes`.
    pub fn too_long(&mut self, path: &FieldPath, max: usize) {
        self.push(path, "FieldValueTooLong", format!("Too long: may not be more than {max} bytes"));
    }

    /// `Too many: N: must have at most M items`.
    pub fn too_many(&mut self, path: &FieldPath, actual: usize, max: usize) {
        self.push(path, "FieldValueTooMany", format!("Too many: {actual}: must have at most {max} items"));
    }
}

/// The status 422 for these errors: `Pod "x" is invalid: ...`.
pub fn invalid(kind: &str, resource: Resource, name: &str, errors: &[FieldError]) -> Status {
    let group = resource.group();
    let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
    let mut texts: Vec<String> = errors.iter().map(FieldError::to_string).unique().collect();
    let text = if texts.len() == 1 { texts.remove(0) } else { format!("[{}]", texts.join(", ")) };
    let mut status = Status::new(Reason::Invalid, format!("{qualified} {name:?} is invalid: {text}"));
    status.kind = kind.to_owned();
    status.group = group.to_owned();
    status.name = name.to_owned();
    let cause = |error: &FieldError| Cause {
        reason: error.reason.into(),
        field: error.field.clone(),
        message: error.message.clone(),
    };
    status.causes = errors.iter().map(cause).collect();
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_text_is_told_once() {
        let mut errors = FieldErrors::default();
        let path = FieldPath::root("spec");
        errors.required(&path, "");
        errors.required(&path, "");
        assert_eq!(
            invalid("Pod", Resource("pods"), "p", &errors.0).message,
            "Pod \"p\" is invalid: spec: Required value"
        );
        errors.required(&path.child("a"), "");
        let message = invalid("Pod", Resource("pods"), "p", &errors.0).message;
        assert_eq!(message, "Pod \"p\" is invalid: [spec: Required value, spec.a: Required value]");
    }

    #[test]
    fn errors_are_bounded_however_they_are_added() {
        let (mut errors, path) = (FieldErrors::default(), FieldPath::root("spec"));
        for index in 0..2 * MAX_ERRORS {
            let mut own = FieldErrors::default();
            own.required(&path.index(index), "");
            errors.extend(own.0);
        }
        assert_eq!(errors.0.len(), MAX_ERRORS);
    }
}
