//! Reads JSON without the fields that a reader does not need: skipping a field costs a scan, keeping it costs memory.
//!
//! Start reading at [`read_without`].

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt;

/// Reads a JSON text and leaves out all fields of these names, wherever they are.
pub fn read_without(text: &str, names: &[&str]) -> serde_json::Result<Value> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = SparseValue(names).deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

#[derive(Clone, Copy)]
struct SparseValue<'a>(&'a [&'a str]);

impl<'de> DeserializeSeed<'de> for SparseValue<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for SparseValue<'_> {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(FieldName(name)) = entries.next_key()? {
            if self.0.contains(&&*name) {
                entries.next_value::<IgnoredAny>()?;
            } else {
                fields.insert(name.into_owned(), entries.next_value_seed(self)?);
            }
        }
        Ok(fields.into())
    }
}

/// A field's name, borrowed from the text where it has no escapes.
#[derive(serde::Deserialize)]
struct FieldName<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn named_fields_are_left_out_at_every_depth() {
        let text = r#"{"a": [1, -2, 1.5, true, null, "x\n", {"skip": {"b": [1]}, "b": 2}], "skip": 3, "sk\u0069p": 4, "c": {}}"#;
        let expected = json!({"a": [1, -2, 1.5, true, null, "x\n", {"b": 2}], "c": {}});
        assert_eq!(read_without(text, &["skip"]).unwrap(), expected);
        assert_eq!(read_without(text, &[]).unwrap(), serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn broken_text_is_refused() {
        for text in ["", "{", r#"{"a": }"#, r#"{"skip": [}"#, "1 2", r#"{"a": 1}x"#] {
            assert!(read_without(text, &["skip"]).is_err(), "{text}");
        }
    }
}
