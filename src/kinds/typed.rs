//! From JSON to the typed view of a kind and back: one decode and one encode per kind, so that they are compiled once.

use super::read::{ReadError, TypedReader, UnknownField, UnknownFieldSink};
use super::{FieldError, FieldErrors};
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

    /// Clears what a writer may not set on create, and carries over what an update may not change. The status of an
    /// update is none of its business: whoever updates keeps it, or writes it alone.
    fn prepare(_new: &mut Object, _old: Option<&Object>) {}

    /// Says what is wrong with the kind's own fields; metadata is checked for all kinds alike elsewhere.
    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors);
}

/// Why a body is not an object of its kind at all (400).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// Path of the field, `spec.replicas`; empty when unknown.
    pub path: String,
    /// The error in the words of Go's decoder, which name the field.
    pub message: String,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for DecodeError {}

/// Decodes a body; unknown fields are reported by path.
pub fn decode<T: Typed>(body: &Value, unknown: &mut dyn FnMut(UnknownField)) -> Result<T, DecodeError> {
    read(body, unknown)
}

/// The same for what is a part of a kind's typed form.
pub fn read<T: DeserializeOwned>(body: &Value, unknown: &mut dyn FnMut(UnknownField)) -> Result<T, DecodeError> {
    let unknown = UnknownFieldSink::new(unknown);
    let error = |error: ReadError| DecodeError { path: error.path, message: error.message };
    T::deserialize(TypedReader::new(body, &unknown)).map_err(error)
}

/// Decodes a stored body, which was checked when it was written.
pub fn view<T: Typed>(object: &Object) -> Result<T, DecodeError> {
    decode(&object.0, &mut |_| {})
}

/// Decode, default, encode: what the server makes of a body.
pub fn normalize<T: Typed>(body: &Value, unknown: &mut dyn FnMut(UnknownField)) -> Result<Value, DecodeError> {
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
    let mut errors = FieldErrors::default();
    let decoded = view::<T>(new).and_then(|new| Ok((new, old.map(view::<T>).transpose()?)));
    match decoded {
        Ok((new, old)) => new.validate(old.as_ref(), &mut errors),
        Err(error) => errors.invalid(&super::FieldPath::root(&error.path), Value::Null, &error.message),
    }
    errors.0
}
