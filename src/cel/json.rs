//! Values as JSON, for what expressions create.

use super::foreign::formats::encode_base64;
use super::show::shown;
use super::value::{EvalError, Map, MapKey, Value, fail};
use serde_json::{Map as JsonMap, Value as Json};

/// Converts a value to JSON; fails for values that JSON does not have.
pub fn to_json(value: &Value) -> Result<Json, EvalError> {
    Ok(match value {
        Value::Null | Value::Optional(None) => Json::Null,
        Value::Bool(value) => (*value).into(),
        Value::Int(value) => (*value).into(),
        Value::Uint(value) => (*value).into(),
        Value::Double(value) if value.is_finite() => (*value).into(),
        Value::String(text) => (&**text).into(),
        Value::Bytes(bytes) => encode_base64(bytes).into(),
        Value::Duration(_) | Value::Timestamp(_) | Value::Ip(_) | Value::Cidr(..) => shown(value).into(),
        Value::Quantity(quantity) => quantity.to_string().into(),
        Value::Optional(Some(inner)) => to_json(inner)?,
        Value::List(list) => list.iter().map(|item| to_json(&item?)).collect::<Result<Vec<Json>, EvalError>>()?.into(),
        Value::Map(map) => map_to_json(map)?.into(),
        other => return fail(format!("{} could not be converted to JSON", other.type_name())),
    })
}

fn map_to_json(map: &Map) -> Result<JsonMap<String, Json>, EvalError> {
    let mut found = JsonMap::new();
    for key in map.keys() {
        let Some(MapKey::String(name)) = MapKey::from_value(&key) else {
            return fail("the keys of a map must be strings to be converted to JSON");
        };
        if let Some(value) = map.get(&key)? {
            found.insert(name.to_string(), to_json(&value)?);
        }
    }
    Ok(found)
}
