//! From JSON to the typed view of a kind and back: one decode and one encode per kind, so that they are compiled once.

use super::{Errors, FieldError};
use crate::object::Object;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt;

/// A kind's typed form and its rules. Implemented for the types of `k8s-openapi`, one file of `kinds/` each.
pub trait Typed: DeserializeOwned + Serialize {
    /// Takes from the body what the typed form cannot hold, before defaults are filled in.
    fn read(&mut self, _body: &Value) {}

    /// Fills in what Kubernetes fills in for fields left out.
    fn default(&mut self) {}

    /// Clears and carries over what a writer may not set: status on create, spec-independent fields on update.
    fn prepare(_new: &mut Object, _old: Option<&Object>) {}

    /// Says what is wrong with the kind's own fields; metadata is checked for all kinds alike elsewhere.
    fn validate(&self, old: Option<&Self>, errors: &mut Errors);
}

/// Why a body is not an object of its kind at all (400).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// Path of the field, `spec.replicas`; empty when unknown.
    pub path: String,
    /// What serde says about it.
    pub message: String,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() { f.write_str(&self.message) } else { write!(f, "{}: {}", self.path, self.message) }
    }
}

impl std::error::Error for DecodeError {}

/// Decodes a body; unknown fields are reported by path.
pub fn decode<T: Typed>(body: &Value, unknown: &mut dyn FnMut(String)) -> Result<T, DecodeError> {
    let mut report = |path: serde_ignored::Path<'_>| unknown(tidy(&path.to_string()));
    let mut track = serde_path_to_error::Track::new();
    let inner = serde_path_to_error::Deserializer::new(body, &mut track);
    let result = T::deserialize(serde_ignored::Deserializer::new(inner, &mut report));
    result.map_err(|error| DecodeError { path: tidy(&track.path().to_string()), message: error.to_string() })
}

/// Decodes a stored body, which was checked when it was written.
pub fn view<T: Typed>(object: &Object) -> Result<T, DecodeError> {
    decode(&object.0, &mut |_| {})
}

/// Decode, default, encode: what the server makes of a body.
pub fn normalize<T: Typed>(body: &Value, unknown: &mut dyn FnMut(String)) -> Result<Value, DecodeError> {
    let mut typed: T = decode(body, unknown)?;
    typed.read(body);
    typed.default();
    encode(&typed)
}

/// The JSON of a typed view.
pub fn encode<T: Typed>(typed: &T) -> Result<Value, DecodeError> {
    serde_json::to_value(typed).map_err(|error| DecodeError { path: String::new(), message: error.to_string() })
}

/// Checks an object against its kind's rules.
pub fn validate<T: Typed>(new: &Object, old: Option<&Object>) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let decoded = view::<T>(new).and_then(|new| Ok((new, old.map(view::<T>).transpose()?)));
    match decoded {
        Ok((new, old)) => new.validate(old.as_ref(), &mut errors),
        Err(error) => errors.invalid(&super::Path::root(&error.path), Value::Null, &error.message),
    }
    errors.0
}

/// `spec.?.containers.?.0.evn` is how serde names it; `spec.containers[0].evn` is how Kubernetes does.
fn tidy(path: &str) -> String {
    let mut text = String::new();
    for part in path.split('.').filter(|part| *part != "?" && !part.is_empty()) {
        if part.bytes().all(|byte| byte.is_ascii_digit()) {
            text.push_str(&format!("[{part}]"));
        } else {
            if !text.is_empty() {
                text.push('.');
            }
            text.push_str(part);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn paths_are_kubernetes() {
        assert_eq!(super::tidy("spec.?.template.?.spec.?.containers.?.0.evn"), "spec.template.spec.containers[0].evn");
    }
}
