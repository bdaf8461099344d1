//! Checks of objects, for the tests of kinds.

use super::catalogue::typed::{self, Typed};
use super::{FieldError, by_kind, validate_metadata};
use crate::object::Object;
use serde_json::{Value, json};

/// Returns the errors of an object, once it has its defaults.
pub fn field_errors<T: Typed>(body: &Value, old: Option<&Object>) -> Vec<FieldError> {
    let body = typed::normalize::<T>(body, &mut |_| {}).unwrap();
    typed::validate::<T>(&Object(body), old)
}

/// Returns the errors of a body that is created, one line each: its field and the message.
pub fn refusals(mut body: Value) -> Vec<String> {
    let kind = by_kind(body["apiVersion"].as_str().unwrap(), body["kind"].as_str().unwrap()).unwrap();
    for (field, value) in [("name", "a"), ("namespace", "default")] {
        if body["metadata"][field].is_null() && (kind.namespaced || field == "name") {
            body["metadata"][field] = json!(value);
        }
    }
    let mut object = Object((kind.normalize)(&body, &mut |field| panic!("{}", field.complaint())).unwrap());
    object.set(&["metadata", "uid"], "0a1b2c3d-0000-4000-8000-000000000000");
    (kind.prepare)(&mut object, None);
    let mut errors = validate_metadata(&object, None, kind);
    errors.extend((kind.validate)(&object, None));
    errors.iter().map(ToString::to_string).collect()
}

/// Returns the errors of a new status of an object, one line each. The patches are merged into a minimal object; the second one makes the new
/// form of the first.
pub fn status_refusals(mut body: Value, before: &Value, after: &Value) -> Vec<String> {
    let kind = by_kind(body["apiVersion"].as_str().unwrap(), body["kind"].as_str().unwrap()).unwrap();
    let normalized =
        |body: &Value| Object((kind.normalize)(body, &mut |field| panic!("{}", field.complaint())).unwrap());
    json_patch::merge(&mut body, before);
    let old = normalized(&body);
    json_patch::merge(&mut body, after);
    (kind.validate_status)(&normalized(&body), &old).iter().map(ToString::to_string).collect()
}
