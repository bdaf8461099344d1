//! Checks of objects, for the tests of kinds.

use super::FieldError;
use super::typed::{self, Typed};
use crate::object::Object;
use serde_json::Value;

/// Returns the errors of an object, once it has its defaults.
pub fn field_errors<T: Typed>(body: &Value, old: Option<&Object>) -> Vec<FieldError> {
    let body = typed::normalize::<T>(body, &mut |_| {}).unwrap();
    typed::validate::<T>(&Object(body), old)
}
