//! Go's `omitempty`: a field that is not a pointer and has its zero value counts as absent. It is omitted, or gets its
//! default.

use crate::object::Object;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde_json::Value;

/// Stores lists and times without `omitempty` as `null` when they are absent.
pub fn null_when_missing(body: &mut Value, fields: &[&str]) {
    for field in fields {
        if body.get(field).is_none() {
            body[*field] = Value::Null;
        }
    }
}

/// Go's zero time, as kloop's typed forms contain it.
pub const ZERO_TIME: &str = "0001-01-01T00:00:00Z";

/// Stores a zero time as `null`, as Go writes it.
pub fn zero_time(body: &mut Value, field: &str) {
    if body[field] == ZERO_TIME {
        body[field] = Value::Null;
    }
}

/// Sets the first status of a new object, replacing a status in the request.
pub fn reset_status(new: &mut Object, old: Option<&Object>, first: Value) {
    if old.is_none() {
        new.set(&["status"], first);
    }
}

/// Omits a field with the zero value of its type.
pub fn empty<T: Default + PartialEq>(field: &mut Option<T>) {
    if field.as_ref().is_some_and(|value| *value == T::default()) {
        *field = None;
    }
}

/// Sets the default of an absent or empty text.
pub fn default_text(field: &mut Option<String>, default: &str) {
    if field.as_deref().unwrap_or_default().is_empty() {
        *field = Some(default.to_owned());
    }
}

/// Omits empty fields of metadata.
pub fn metadata(meta: &mut ObjectMeta) {
    empty(&mut meta.labels);
    empty(&mut meta.annotations);
    empty(&mut meta.finalizers);
    empty(&mut meta.owner_references);
    empty(&mut meta.generate_name);
    empty(&mut meta.name);
    empty(&mut meta.namespace);
    empty(&mut meta.resource_version);
    empty(&mut meta.self_link);
    empty(&mut meta.uid);
    empty(&mut meta.generation);
}

/// Omits empty parts of a label selector.
pub fn selector(selector: &mut LabelSelector) {
    empty(&mut selector.match_labels);
    empty(&mut selector.match_expressions);
    for expression in selector.match_expressions.iter_mut().flatten() {
        empty(&mut expression.values);
    }
}
