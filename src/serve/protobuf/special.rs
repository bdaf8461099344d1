//! Messages whose JSON is not an object of their fields: quantities, times, `IntOrString`, raw JSON.
//!
//! Never: chooses the form of a message; [`super::encode`] and [`super::decode`] do. Start reading at [`JsonScalar`].

use super::wire::{WireReader, write_bytes, write_integer};
use crate::object::Time;
use crate::object::time::{EARLIEST, micro, rfc3339};
use serde_json::{Number, Value};

/// `IntOrString.type` of a text.
const TEXT: i64 = 1;

/// A JSON value that is neither a list nor an object.
pub enum JsonScalar<'a> {
    /// Null, or a value that does not fit.
    Null,
    /// A boolean.
    Bool(bool),
    /// A number.
    Number(Number),
    /// Text.
    Text(&'a str),
}

impl JsonScalar<'_> {
    /// Returns the text; `None` for other values.
    pub fn text(&self) -> Option<&str> {
        match self {
            JsonScalar::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Whether it is true.
    pub fn is_true(&self) -> bool {
        matches!(self, JsonScalar::Bool(true))
    }

    /// Returns the number without its fraction; zero for other values.
    pub fn integer(&self) -> i64 {
        match self {
            JsonScalar::Number(number) => number.as_i64().unwrap_or_else(|| self.float() as i64),
            _ => 0,
        }
    }

    /// Returns the number; zero for other values.
    pub fn float(&self) -> f64 {
        match self {
            JsonScalar::Number(number) => number.as_f64().unwrap_or_default(),
            _ => 0.0,
        }
    }
}

/// Writes `resource.Quantity`.
pub fn write_quantity(bytes: &mut Vec<u8>, value: &JsonScalar<'_>) {
    match value {
        JsonScalar::Text(text) => write_bytes(bytes, 1, text.as_bytes()),
        JsonScalar::Number(number) => write_bytes(bytes, 1, number.to_string().as_bytes()),
        _ => write_bytes(bytes, 1, b"0"),
    }
}

/// Reads `resource.Quantity`.
pub fn read_quantity(bytes: &[u8]) -> Result<Value, String> {
    let mut text = "";
    let mut reader = WireReader::new(bytes, "Quantity");
    while let Some((number, wire)) = reader.next_key()? {
        match number {
            1 => text = std::str::from_utf8(reader.expect_bytes(wire, "string")?).unwrap_or_default(),
            _ => reader.skip(wire)?,
        }
    }
    Ok(text.into())
}

/// Writes `intstr.IntOrString`.
pub fn write_int_or_string(bytes: &mut Vec<u8>, value: &JsonScalar<'_>) {
    let text = value.text();
    write_integer(bytes, 1, if text.is_some() { TEXT } else { 0 });
    write_integer(bytes, 2, value.integer());
    write_bytes(bytes, 3, text.unwrap_or_default().as_bytes());
}

/// Reads `intstr.IntOrString`.
pub fn read_int_or_string(bytes: &[u8]) -> Result<Value, String> {
    let (mut kind, mut int, mut text) = (0, 0, String::new());
    let mut reader = WireReader::new(bytes, "IntOrString");
    while let Some((number, wire)) = reader.next_key()? {
        match number {
            1 => kind = reader.expect_varint(wire, "type")? as i64,
            2 => int = reader.expect_varint(wire, "intVal")? as i32,
            3 => text = String::from_utf8_lossy(reader.expect_bytes(wire, "strVal")?).into_owned(),
            _ => reader.skip(wire)?,
        }
    }
    match kind {
        0 => Ok(int.into()),
        TEXT => Ok(text.into()),
        _ => Err("impossible IntOrString.Type".into()),
    }
}

/// Writes `metav1.Time` and `metav1.MicroTime`; Go's zero time has no fields.
pub fn write_time(bytes: &mut Vec<u8>, value: &JsonScalar<'_>, is_micro: bool) {
    let moment = value.text().and_then(|text| text.parse::<Time>().ok()).filter(|moment| *moment != EARLIEST);
    let Some(moment) = moment else { return };
    // A time before 1970 still has a positive fraction of a second.
    let seconds = moment.as_nanosecond().div_euclid(1_000_000_000);
    let part = moment.as_nanosecond().rem_euclid(1_000_000_000);
    write_integer(bytes, 1, i64::try_from(seconds).unwrap_or_default());
    let part = if is_micro { part - part % 1000 } else { 0 };
    write_integer(bytes, 2, i64::try_from(part).unwrap_or_default());
}

/// Reads `metav1.Time` and `metav1.MicroTime`; null for Go's zero time.
pub fn read_time(bytes: &[u8], is_micro: bool) -> Result<Value, String> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut part) = (0, 0);
    let mut reader = WireReader::new(bytes, "Timestamp");
    while let Some((number, wire)) = reader.next_key()? {
        match number {
            1 => seconds = reader.expect_varint(wire, "seconds")? as i64,
            2 => part = reader.expect_varint(wire, "nanos")? as i32,
            _ => reader.skip(wire)?,
        }
    }
    let whole = i128::from(seconds) * 1_000_000_000 + if is_micro { i128::from(part) } else { 0 };
    let moment = Time::from_nanosecond(whole).ok().filter(|moment| *moment >= EARLIEST);
    let moment = moment.ok_or("Time.MarshalJSON: year outside of range [0,9999]")?;
    Ok(if is_micro { micro(moment) } else { rfc3339(moment) }.into())
}

/// Reads JSON within a message: `runtime.RawExtension`, `metav1.FieldsV1`, `apiextensions.JSON`. Null when it is absent.
pub fn read_raw(bytes: &[u8]) -> Result<Value, String> {
    let mut value = Value::Null;
    let mut reader = WireReader::new(bytes, "RawExtension");
    while let Some((number, wire)) = reader.next_key()? {
        match number {
            1 => {
                let text = reader.expect_bytes(wire, "raw")?;
                value = if text.is_empty() { Value::Null } else { parse_json(text)? };
            }
            _ => reader.skip(wire)?,
        }
    }
    Ok(value)
}

fn parse_json(text: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(text).map_err(|error| error.to_string())
}
