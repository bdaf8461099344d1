//! Reads JSON without the fields that a reader does not need: skipping a field costs a scan, keeping it costs memory.
//!
//! Start reading at [`ReadPart`]. [`read_fields`] keeps the fields of a mask. [`read_field`] copies nothing.

use super::json_scan::{ScannedPart, find_member, find_path, next_item, next_member, skip_blanks, value_end};
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt;

/// Levels of objects and lists that are looked into: masks lead into few, but lists may contain lists.
const MAX_DEPTH: usize = 64;

/// The part of a JSON object that a reader needs.
#[derive(Debug, Default, PartialEq, Eq)]
pub enum ReadPart {
    /// The whole object.
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

    fn is_whole(&self) -> bool {
        self.fields.is_empty()
    }

    /// Returns the mask within a field; `None` for a field that is left out.
    fn enter(&self, name: &str) -> Option<&FieldMask> {
        if self.is_whole() {
            return Some(self);
        }
        self.fields.iter().find(|(known, _)| *known == name).map(|(_, mask)| mask)
    }
}

/// Reads only the wanted fields of a JSON object. Skips the others without parsing their values.
pub fn read_fields(text: &str, mask: &FieldMask) -> serde_json::Result<Value> {
    let start = skip_blanks(text.as_bytes(), 0);
    if let Some((value, end)) = scan_value(text, start, mask, MAX_DEPTH)
        && skip_blanks(text.as_bytes(), end) == text.len()
    {
        return Ok(value);
    }
    // In another form than the usual one, or broken: then the parser says where.
    let mut value = serde_json::from_str(text)?;
    prune(&mut value, mask);
    Ok(value)
}

/// Reads the wanted fields of the value that begins here. Returns its end, too; `None` for a text in another form.
fn scan_value(text: &str, start: usize, mask: &FieldMask, depth: usize) -> Option<(Value, usize)> {
    let bytes = text.as_bytes();
    let mut at = start;
    match bytes.get(start)? {
        b'{' if !mask.is_whole() && depth > 0 => {
            let mut fields = Map::new();
            loop {
                let (name, value) = match next_member(bytes, at)? {
                    ScannedPart::Begins(member) => member,
                    ScannedPart::Ends(end) => return Some((fields.into(), end)),
                };
                let name = text.get(name).filter(|name| !name.contains('\\'))?;
                at = match mask.enter(name) {
                    None => value_end(bytes, value)?,
                    Some(within) => {
                        let (value, end) = scan_value(text, value, within, depth - 1)?;
                        fields.insert(name.to_owned(), value);
                        end
                    }
                };
            }
        }
        b'[' if !mask.is_whole() && depth > 0 => {
            let mut items = Vec::new();
            loop {
                let item = match next_item(bytes, at)? {
                    ScannedPart::Begins(item) => item,
                    ScannedPart::Ends(end) => return Some((items.into(), end)),
                };
                let (item, end) = scan_value(text, item, mask, depth - 1)?;
                items.push(item);
                at = end;
            }
        }
        b'{' | b'[' if !mask.is_whole() => None,
        _ => {
            let end = value_end(bytes, start)?;
            Some((serde_json::from_str(text.get(start..end)?).ok()?, end))
        }
    }
}

/// Removes the fields that a mask does not contain.
fn prune(value: &mut Value, mask: &FieldMask) {
    match value {
        Value::Object(fields) if !mask.is_whole() => fields.retain(|name, value| {
            let within = mask.enter(name);
            within.into_iter().for_each(|within| prune(value, within));
            within.is_some()
        }),
        Value::Array(items) => items.iter_mut().for_each(|item| prune(item, mask)),
        _ => {}
    }
}

/// Replaces the managed fields by a number.
fn cut_managed_fields(text: &str) -> Cow<'_, str> {
    match find_path(text, &["metadata", "managedFields"]) {
        Some(managed) => Cow::Owned([&text[..managed.start], "0", &text[managed.end..]].concat()),
        None => Cow::Borrowed(text),
    }
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

/// Returns the text of a field of a JSON object, between what precedes and what follows it; `None` without the field, and for a text in
/// another form than kloop writes.
pub fn split_at_field<'a>(text: &'a str, name: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let place = find_member(text, name)?;
    Some((&text[..place.start], &text[place.clone()], &text[place.end..]))
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
        let (written, mut deep) = (r#"{"\u0061": {"\u0062": 1, "c": 2}, "list": [{"d": 1}]}"#, "[".repeat(100));
        assert_eq!(read_fields(written, &mask).unwrap(), json!({"a": {"b": 1}, "list": [{}]}));
        deep.push_str(&"]".repeat(100));
        assert!(read_fields(&format!(r#"{{"list": {deep}}}"#), &mask).is_ok());
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
