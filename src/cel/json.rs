//! Converts values to JSON, for the patches that expressions create.
//!
//! Never: makes more JSON than a limit, because a value can contain another one many times. Start reading at [`to_json`].

use super::foreign::formats::encode_base64;
use super::show::format_value;
use super::value::{EvalError, Map, MapKey, Value, fail};
use serde_json::{Map as JsonMap, Value as Json};

/// Maximum number of bytes of the JSON of one value. The largest request has three million.
const MAX_BYTES: usize = 16 << 20;
/// Bytes that each value counts besides its text.
const VALUE_BYTES: usize = 16;

/// Converts a value to JSON; fails for values that JSON does not have, and for those that are too large.
pub fn to_json(value: &Value) -> Result<Json, EvalError> {
    let mut left = MAX_BYTES;
    convert(value, &mut left)
}

/// Takes bytes from those that are left.
fn take_bytes(left: &mut usize, bytes: usize) -> Result<(), EvalError> {
    *left = left.checked_sub(bytes + VALUE_BYTES).ok_or(EvalError::Costly)?;
    Ok(())
}

fn convert(value: &Value, left: &mut usize) -> Result<Json, EvalError> {
    let bytes = match value {
        Value::String(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        _ => 0,
    };
    take_bytes(left, bytes)?;
    Ok(match value {
        Value::Null | Value::Optional(None) => Json::Null,
        Value::Bool(value) => (*value).into(),
        Value::Int(value) => (*value).into(),
        Value::Uint(value) => (*value).into(),
        Value::Double(value) if value.is_finite() => (*value).into(),
        Value::String(text) => (&**text).into(),
        Value::Bytes(bytes) => encode_base64(bytes).into(),
        Value::Duration(_) | Value::Timestamp(_) | Value::Ip(_) | Value::Cidr(..) => format_value(value).into(),
        Value::Quantity(quantity) => quantity.to_string().into(),
        Value::Optional(Some(inner)) => convert(inner, left)?,
        Value::List(list) => {
            list.iter().map(|item| convert(&item?, left)).collect::<Result<Vec<Json>, EvalError>>()?.into()
        }
        Value::Map(map) => convert_map(map, left)?.into(),
        other => return fail(format!("{} could not be converted to JSON", other.type_name())),
    })
}

fn convert_map(map: &Map, left: &mut usize) -> Result<JsonMap<String, Json>, EvalError> {
    let mut object = JsonMap::new();
    for key in map.keys() {
        let Some(MapKey::String(name)) = MapKey::from_value(&key) else {
            return fail("the keys of a map must be strings to be converted to JSON");
        };
        if let Some(value) = map.get(&key)? {
            take_bytes(left, name.len())?;
            object.insert(name.to_string(), convert(&value, left)?);
        }
    }
    Ok(object)
}
