//! Converts JSON to the typed form of a kind and back, with one decoder and encoder per kind, to limit compile time.

use super::super::shared::omit;
use super::super::{FieldError, FieldErrors};
pub use super::read::DecodeError;
use super::read::{LAST_TRANSITION_TIME, TypedReader, UnknownField, UnknownFieldSink};
use crate::object::Object;
use serde::Serialize;
use serde::de::{DeserializeOwned, Error};
use serde_json::Value;

/// A kind's typed form and its rules. Implemented for the types of `k8s-openapi`, one file of `kinds/` each.
pub trait Typed: DeserializeOwned + Serialize {
    /// Reads fields from the body that the typed form cannot represent, before defaults are set.
    fn read(&mut self, _body: &Value) {}

    /// Sets Kubernetes' defaults of absent fields.
    fn default(&mut self) {}

    /// Resets fields that clients may not set on create, and carries over fields that an update may not change. The
    /// caller handles the status of an update.
    fn prepare(_new: &mut Object, _old: Option<&Object>) {}

    /// Checks the kind's own fields; [`super::super::shared::metadata`] checks the metadata of all kinds.
    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors);
}

/// Decodes a body; unknown fields are reported by path.
pub fn decode<T: Typed>(body: &Value, unknown: &mut dyn FnMut(UnknownField)) -> Result<T, DecodeError> {
    read(body, unknown)
}

/// Decodes a part of a kind's typed form.
pub fn read<T: DeserializeOwned>(body: &Value, unknown: &mut dyn FnMut(UnknownField)) -> Result<T, DecodeError> {
    let unknown = UnknownFieldSink::new(unknown);
    T::deserialize(TypedReader::new(body, &unknown))
}

/// Decodes a stored body, which was validated when it was written.
pub fn view<T: Typed>(object: &Object) -> Result<T, DecodeError> {
    decode(&object.0, &mut |_| {})
}

/// Decodes a body, sets defaults, and encodes it, as the API server does.
pub fn normalize<T: Typed>(body: &Value, unknown: &mut dyn FnMut(UnknownField)) -> Result<Value, DecodeError> {
    let mut typed: T = decode(body, unknown)?;
    typed.read(body);
    typed.default();
    encode(&typed)
}

/// Encodes a typed form as JSON.
pub fn encode<T: Typed>(typed: &T) -> Result<Value, DecodeError> {
    let mut value = serde_json::to_value(typed).map_err(DecodeError::custom)?;
    let conditions = value.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    conditions.into_iter().flatten().for_each(|condition| omit::zero_time(condition, LAST_TRANSITION_TIME));
    Ok(value)
}

/// Checks an object against its kind's rules.
pub fn validate<T: Typed>(new: &Object, old: Option<&Object>) -> Vec<FieldError> {
    check(new, old, |new: &T, old, errors| new.validate(old, errors))
}

/// The rules for the status of a kind: they compare an object with its old form.
pub type StatusRules<T> = fn(&T, &T, &mut FieldErrors);

/// Checks an object with another status against these rules.
pub fn validate_status<T: Typed>(new: &Object, old: &Object, rules: StatusRules<T>) -> Vec<FieldError> {
    check(new, Some(old), |new, old: Option<&T>, errors| old.iter().for_each(|old| rules(new, old, errors)))
}

fn check<T: Typed>(
    new: &Object,
    old: Option<&Object>,
    rules: impl FnOnce(&T, Option<&T>, &mut FieldErrors),
) -> Vec<FieldError> {
    let mut errors = FieldErrors::default();
    let decoded = view::<T>(new).and_then(|new| Ok((new, old.map(view::<T>).transpose()?)));
    match decoded {
        Ok((new, old)) => rules(&new, old.as_ref(), &mut errors),
        Err(error) => errors.invalid(&super::super::FieldPath::root(&error.path), Value::Null, &error.message),
    }
    errors.0
}
