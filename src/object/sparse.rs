//! Reads JSON without the fields that a reader does not need: skipping a field costs a scan, keeping it costs memory.
//!
//! Start reading at [`ReadPart`]. [`read_fields`] is told what to keep. [`read_field`] copies nothing.

use super::json_scan::find_member;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

/// The part of a JSON object that a reader needs.
#[derive(Debug, Default, PartialEq, Eq)]
pub enum ReadPart {
    /// All of it.
    #[default]
    Whole,
    /// Only these fields.
    Fields(FieldMask),
    /// All but `metadata.managedFields`.
    Unmanaged,
}

impl ReadPart {
    /// Reads the part from the text of an object.
    pub fn read(&self, text: &str) -> serde_json::Result<Value> {
        match self {
            ReadPart::Whole => serde_json::from_str(text),
            ReadPart::Fields(mask) => read_fields(text, mask),
            ReadPart::Unmanaged => {
                let mut value: Value = serde_json::from_str(&cut_managed_fields(text))?;
                if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
                    metadata.remove("managedFields");
                }
                Ok(value)
            }
        }
    }
}

/// Fields that are wanted, as a tree. Without any, the value is wanted as a whole.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FieldMask {
    fields: Vec<(&'static str, FieldMask)>,
}

impl FieldMask {
    /// Makes the mask of some paths such as `spec.containers.name`, which leads into the items of a list.
    pub fn from_paths(paths: &[&'static str]) -> FieldMask {
        let mut mask = FieldMask::default();
        for path in paths {
            let mut place = &mut mask;
            for name in path.split('.') {
                let index = place.fields.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
                    place.fields.push((name, FieldMask::default()));
                    place.fields.len() - 1
                });
                place = &mut place.fields[index].1;
            }
        }
        mask
    }

    /// Returns the mask within a field; `None` for a field that is left out.
    fn enter(&self, name: &str) -> Option<&FieldMask> {
        if self.fields.is_empty() {
            return Some(self);
        }
        self.fields.iter().find(|(known, _)| *known == name).map(|(_, mask)| mask)
    }
}

/// Reads only the wanted fields of a JSON object. Managed fields, half of a usual object, are cut out first where they are not wanted.
pub fn read_fields(text: &str, mask: &FieldMask) -> serde_json::Result<Value> {
    let is_unwanted = mask.enter("metadata").and_then(|metadata| metadata.enter("managedFields")).is_none();
    let text = if is_unwanted { cut_managed_fields(text) } else { text.into() };
    let mut reader = serde_json::Deserializer::from_str(&text);
    let value = SparseValue(mask).deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// Replaces the managed fields by a number.
fn cut_managed_fields(text: &str) -> Cow<'_, str> {
    match find_managed_fields(text) {
        Some(managed) => Cow::Owned([&text[..managed.start], "0", &text[managed.end..]].concat()),
        None => Cow::Borrowed(text),
    }
}

fn find_managed_fields(text: &str) -> Option<Range<usize>> {
    let metadata = find_member(text, "metadata")?;
    let managed = find_member(&text[metadata.clone()], "managedFields")?;
    Some(metadata.start + managed.start..metadata.start + managed.end)
}

/// Returns the text of a field of a JSON object. Reading ends behind that field, so errors that follow it are not found.
pub fn read_field<'a>(text: &'a str, name: &str) -> serde_json::Result<Option<&'a str>> {
    if let Some(place) = find_member(text, name) {
        return Ok(Some(&text[place]));
    }
    let mut found = None;
    let read = serde_json::Deserializer::from_str(text).deserialize_map(FieldSearch { name, found: &mut found });
    match found {
        Some(field) => Ok(Some(RawValue::get(field))),
        None => read.map(|()| None),
    }
}

/// Finds a field, and ends the reading there with an error.
struct FieldSearch<'s, 'a> {
    name: &'s str,
    found: &'s mut Option<&'a RawValue>,
}

impl<'a> Visitor<'a> for FieldSearch<'_, 'a> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(FieldName(name)) = entries.next_key()? {
            if name == self.name {
                *self.found = Some(entries.next_value()?);
                return Err(A::Error::custom("the field is found"));
            }
            entries.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

/// Reads the fields of a mask.
#[derive(Clone, Copy)]
struct SparseValue<'m>(&'m FieldMask);

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
            match self.0.enter(&name) {
                None => drop(entries.next_value::<IgnoredAny>()?),
                Some(within) => drop(fields.insert(name.into_owned(), entries.next_value_seed(SparseValue(within))?)),
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
    fn only_the_managed_fields_of_metadata_are_left_out() {
        let read = |value: &Value| ReadPart::Unmanaged.read(&value.to_string()).unwrap();
        let data = json!({"managedFields": "mine"});
        let managed = json!({"data": data, "metadata": {"managedFields": [{"manager": "a"}], "name": "n"}});
        assert_eq!(read(&managed), json!({"data": data, "metadata": {"name": "n"}}));
        for other in [json!({"data": data}), json!({"metadata": 1, "data": data}), json!([1])] {
            assert_eq!(read(&other), other);
        }
    }

    #[test]
    fn one_field_is_found_without_reading_on() {
        let text = r#"{"a": {"metadata": 1}, "met\u0061data": {"n": [1, "}"]} , "spec": not JSON"#;
        assert_eq!(read_field(text, "metadata").unwrap(), Some(r#"{"n": [1, "}"]}"#));
        assert_eq!(read_field(r#"{"a": 1}"#, "metadata").unwrap(), None);
        assert!(read_field(text, "status").is_err() && read_field("[]", "a").is_err());
    }

    #[test]
    fn only_wanted_fields_are_read() {
        let text = r#"{"a": {"b": 1, "c": [2]}, "list": [{"b": 1, "c": {"d": []}}, 7, []], "other": 3}"#;
        let mask = FieldMask::from_paths(&["a.b", "list.c", "missing.b"]);
        assert_eq!(read_fields(text, &mask).unwrap(), json!({"a": {"b": 1}, "list": [{"c": {"d": []}}, 7, []]}));
        assert_eq!(read_fields(text, &FieldMask::default()).unwrap(), serde_json::from_str::<Value>(text).unwrap());
        assert!(read_fields(r#"{"a": 1"#, &mask).is_err());
        let text = r#"{"kind": "A", "metadata": {"managedFields": [{unread}], "name": "x"}, "spec": 1}"#;
        let named = FieldMask::from_paths(&["metadata.name"]);
        assert_eq!(read_fields(text, &named).unwrap(), json!({"metadata": {"name": "x"}}));
        assert!(read_fields(text, &FieldMask::from_paths(&["metadata"])).is_err());
    }

    #[test]
    fn broken_text_is_refused() {
        let mask = FieldMask::from_paths(&["a"]);
        for text in ["", "{", r#"{"a": }"#, r#"{"skip": [}"#, "1 2", r#"{"a": 1}x"#] {
            assert!(read_fields(text, &mask).is_err(), "{text}");
        }
    }
}
