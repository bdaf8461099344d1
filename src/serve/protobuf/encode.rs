//! From JSON to protobuf: every field in the order of its number, zero values included, byte for byte as Kubernetes' generated code
//! writes it.
//!
//! Knows: one pass over the text, without a tree. Each value is encoded where it is read, and the fields of an object are put into the
//! order of their numbers at its end. Never: refuses a value; JSON that does not fit its field is written as the zero value.
//! Start reading at [`Encoder::write_text`].

use super::fields::{
    FieldCardinality, MessageField, MessageFields, MessageForm, MessageIndex, MessageTable, ValueType,
};
use super::special::{self, JsonScalar};
use super::wire::{WireType, end_length, start_length, write_bytes, write_integer, write_key};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;
use std::ops::Range;

/// Encodes messages.
pub struct Encoder<'t> {
    table: &'t MessageTable,
    /// The encoded bytes.
    pub bytes: Vec<u8>,
    /// Places in `bytes` of the fields of the objects that are open, by slot; empty for an absent field.
    places: Vec<Range<usize>>,
    /// Fields of an object while they are put into order.
    unordered: Vec<u8>,
}

impl<'t> Encoder<'t> {
    /// Makes an encoder for messages of this table, which adds to these bytes.
    pub fn new(table: &'t MessageTable, bytes: Vec<u8>) -> Encoder<'t> {
        Encoder { table, bytes, places: Vec::new(), unordered: Vec::new() }
    }

    /// Writes the text of a JSON object as a field. After an error the bytes are useless.
    pub fn write_text(&mut self, number: u32, message: MessageIndex, text: &str) -> serde_json::Result<()> {
        let start = start_length(&mut self.bytes, number);
        self.write_fields(message, text)?;
        end_length(&mut self.bytes, start);
        Ok(())
    }

    /// Writes the fields of a JSON object, without a key and a length before them.
    pub fn write_fields(&mut self, message: MessageIndex, text: &str) -> serde_json::Result<()> {
        let mut reader = serde_json::Deserializer::from_str(text);
        reader.deserialize_map(ObjectWriter { encoder: self, message })?;
        reader.end()
    }

    /// Writes the fields of an object in their JSON order, then sorts them by number.
    fn write_struct<'de, A: MapAccess<'de>>(&mut self, message: &'t MessageFields, mut map: A) -> Result<(), A::Error> {
        let (begin, first) = (self.bytes.len(), self.places.len());
        self.places.resize(first + message.slots.len(), 0..0);
        let mut after = 0;
        while let Some(slot) = map.next_key_seed(FieldFinder { message, after })? {
            let Some(position) = slot else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            after = position + 1;
            let slot = &message.slots[position];
            let field = &self.table.message(slot.message).fields[slot.field];
            let start = self.bytes.len();
            map.next_value_seed(FieldWriter {
                number: field.number,
                of: field.of,
                values: Values::from_field(field),
                encoder: self,
            })?;
            self.places[first + slot.number] = start..self.bytes.len();
        }
        let moved = self.unordered.len();
        self.unordered.extend_from_slice(&self.bytes[begin..]);
        self.bytes.truncate(begin);
        self.write_in_order(message, &mut first.clone(), begin.wrapping_sub(moved));
        self.unordered.truncate(moved);
        self.places.truncate(first);
        Ok(())
    }

    /// Copies the fields of an object in order, and writes the zero values of absent ones. `shift` is the distance of the places from the
    /// copied bytes.
    fn write_in_order(&mut self, message: &'t MessageFields, slot: &mut usize, shift: usize) {
        for field in &message.fields {
            if let Some(inline) = field.inline() {
                let start = start_length(&mut self.bytes, field.number);
                self.write_in_order(self.table.message(inline), slot, shift);
                end_length(&mut self.bytes, start);
                continue;
            }
            let place = self.places[*slot].clone();
            *slot += 1;
            if place.is_empty() {
                self.write_absent(field);
            } else {
                let place = place.start.wrapping_sub(shift)..place.end.wrapping_sub(shift);
                self.bytes.extend_from_slice(&self.unordered[place]);
            }
        }
    }

    /// Writes the zero value of a field that is always present. Lists that are types of their own are left out as other lists are.
    fn write_absent(&mut self, field: &MessageField) {
        let is_list =
            matches!(field.of, ValueType::Message(index) if self.table.message(index).form == MessageForm::List);
        match field.inline() {
            Some(inline) => {
                let start = start_length(&mut self.bytes, field.number);
                self.write_empty(inline);
                end_length(&mut self.bytes, start);
            }
            None if field.cardinality == FieldCardinality::Value && !is_list => {
                self.write_scalar(field.number, field.of, &JsonScalar::Null);
            }
            None => {}
        }
    }

    fn write_empty(&mut self, message: MessageIndex) {
        self.table.message(message).fields.iter().for_each(|field| self.write_absent(field));
    }

    /// Writes a value that is neither a list nor an object. Writes the zero value for null and for a value of another type.
    fn write_scalar(&mut self, number: u32, of: ValueType, value: &JsonScalar<'_>) {
        let bytes = &mut self.bytes;
        match of {
            ValueType::Text => write_bytes(bytes, number, value.text().unwrap_or_default().as_bytes()),
            ValueType::Bytes => {
                let decoded = value.text().and_then(|text| STANDARD.decode(text).ok());
                write_bytes(bytes, number, &decoded.unwrap_or_default());
            }
            ValueType::Bool => write_integer(bytes, number, value.is_true().into()),
            ValueType::Int32 | ValueType::Int64 => write_integer(bytes, number, value.integer()),
            ValueType::Double => {
                write_key(bytes, number, WireType::Fixed64);
                bytes.extend_from_slice(&value.float().to_le_bytes());
            }
            ValueType::Message(index) => {
                let start = start_length(bytes, number);
                self.write_scalar_message(index, value);
                end_length(&mut self.bytes, start);
            }
        }
    }

    fn write_scalar_message(&mut self, index: MessageIndex, value: &JsonScalar<'_>) {
        match self.table.message(index).form {
            MessageForm::Struct => self.write_empty(index),
            MessageForm::Quantity => special::write_quantity(&mut self.bytes, value),
            MessageForm::IntOrString => special::write_int_or_string(&mut self.bytes, value),
            MessageForm::Time => special::write_time(&mut self.bytes, value, false),
            MessageForm::MicroTime => special::write_time(&mut self.bytes, value, true),
            MessageForm::SchemaOrBool(_) => write_integer(&mut self.bytes, 1, value.is_true().into()),
            // The only raw JSON that is written here is null.
            MessageForm::Raw | MessageForm::List | MessageForm::SchemaOrArray(_) | MessageForm::SchemaOrStrings(_) => {}
        }
    }

    /// Writes a list where the schema has a message.
    fn write_list<'de, A: SeqAccess<'de>>(&mut self, index: MessageIndex, items: A) -> Result<(), A::Error> {
        let message = self.table.message(index);
        let schema = ValueType::Message;
        match (message.form, message.fields.first()) {
            (MessageForm::List, Some(field)) => self.write_items(field.number, field.of, items),
            (MessageForm::SchemaOrArray(index), _) => self.write_items(2, schema(index), items),
            (MessageForm::SchemaOrBool(index), _) => {
                write_integer(&mut self.bytes, 1, 0);
                self.write_items(3, schema(index), items)
            }
            (MessageForm::SchemaOrStrings(_), _) => self.write_items(2, ValueType::Text, items),
            _ => {
                skip_items(items)?;
                self.write_scalar_message(index, &JsonScalar::Null);
                Ok(())
            }
        }
    }

    fn write_items<'de, A: SeqAccess<'de>>(
        &mut self,
        number: u32,
        of: ValueType,
        mut items: A,
    ) -> Result<(), A::Error> {
        while items.next_element_seed(FieldWriter { encoder: self, number, of, values: Values::One })?.is_some() {}
        Ok(())
    }

    /// Writes an object where the schema has a message.
    fn write_object<'de, A: MapAccess<'de>>(&mut self, index: MessageIndex, map: A) -> Result<(), A::Error> {
        let message = self.table.message(index);
        let (number, schema) = match message.form {
            MessageForm::Struct => return self.write_struct(message, map),
            MessageForm::SchemaOrBool(schema) => {
                write_integer(&mut self.bytes, 1, 1);
                (2, schema)
            }
            MessageForm::SchemaOrArray(schema) | MessageForm::SchemaOrStrings(schema) => (1, schema),
            _ => {
                skip_entries(map)?;
                self.write_scalar_message(index, &JsonScalar::Null);
                return Ok(());
            }
        };
        let start = start_length(&mut self.bytes, number);
        self.write_struct(self.table.message(schema), map)?;
        end_length(&mut self.bytes, start);
        Ok(())
    }

    /// Writes JSON text unchanged.
    fn write_raw(&mut self, number: u32, text: &str) {
        let start = start_length(&mut self.bytes, number);
        if text != "null" {
            write_bytes(&mut self.bytes, 1, text.as_bytes());
        }
        end_length(&mut self.bytes, start);
    }
}

/// Reads an object, and writes it as a message.
struct ObjectWriter<'e, 't> {
    encoder: &'e mut Encoder<'t>,
    message: MessageIndex,
}

impl<'de> Visitor<'de> for ObjectWriter<'_, '_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        self.encoder.write_object(self.message, map)
    }
}

/// Number of values of a field, and the meaning of null.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Values {
    /// One value; null is the zero value.
    One,
    /// One value; null means no value.
    OneOrNone,
    /// A list.
    Several,
    /// A map.
    Entries,
}

impl Values {
    fn from_field(field: &MessageField) -> Values {
        match field.cardinality {
            FieldCardinality::Repeated => Values::Several,
            FieldCardinality::Map => Values::Entries,
            FieldCardinality::Value | FieldCardinality::Pointer | FieldCardinality::Inline => Values::OneOrNone,
        }
    }

    fn is_one(self) -> bool {
        matches!(self, Values::One | Values::OneOrNone)
    }
}

/// Reads the value of a field, and writes it.
struct FieldWriter<'e, 't> {
    encoder: &'e mut Encoder<'t>,
    number: u32,
    of: ValueType,
    values: Values,
}

impl FieldWriter<'_, '_> {
    fn is_raw(&self) -> bool {
        matches!(self.of, ValueType::Message(index) if self.encoder.table.message(index).form == MessageForm::Raw)
    }

    fn write(self, value: &JsonScalar<'_>) {
        if self.values.is_one() {
            self.encoder.write_scalar(self.number, self.of, value);
        }
    }
}

impl<'de> DeserializeSeed<'de> for FieldWriter<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        if !self.is_raw() || !self.values.is_one() {
            return reader.deserialize_any(self);
        }
        let text = <&RawValue>::deserialize(reader)?.get();
        if self.values == Values::One || text != "null" {
            self.encoder.write_raw(self.number, text);
        }
        Ok(())
    }
}

impl<'de> Visitor<'de> for FieldWriter<'_, '_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        if self.values == Values::One {
            self.write(&JsonScalar::Null);
        }
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.write(&JsonScalar::Bool(value));
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.write(&JsonScalar::Number(value.into()));
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.write(&JsonScalar::Number(value.into()));
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.write(&serde_json::Number::from_f64(value).map_or(JsonScalar::Null, JsonScalar::Number));
        Ok(())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.write(&JsonScalar::Text(value));
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<(), A::Error> {
        match (self.values, self.of) {
            (Values::Several, _) => self.encoder.write_items(self.number, self.of, items),
            (Values::Entries, _) => skip_items(items),
            (_, ValueType::Message(message)) => {
                let start = start_length(&mut self.encoder.bytes, self.number);
                self.encoder.write_list(message, items)?;
                end_length(&mut self.encoder.bytes, start);
                Ok(())
            }
            (_, _) => {
                skip_items(items)?;
                self.write(&JsonScalar::Null);
                Ok(())
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        match (self.values, self.of) {
            (Values::Entries, _) => {
                while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
                    let start = start_length(&mut self.encoder.bytes, self.number);
                    write_bytes(&mut self.encoder.bytes, 1, key.as_bytes());
                    let encoder = &mut *self.encoder;
                    map.next_value_seed(FieldWriter { encoder, number: 2, of: self.of, values: Values::One })?;
                    end_length(&mut self.encoder.bytes, start);
                }
                Ok(())
            }
            (Values::Several, _) => skip_entries(map),
            (_, ValueType::Message(message)) => {
                let start = start_length(&mut self.encoder.bytes, self.number);
                self.encoder.write_object(message, map)?;
                end_length(&mut self.encoder.bytes, start);
                Ok(())
            }
            (_, _) => {
                skip_entries(map)?;
                self.write(&JsonScalar::Null);
                Ok(())
            }
        }
    }
}

fn skip_items<'de, A: SeqAccess<'de>>(mut items: A) -> Result<(), A::Error> {
    while items.next_element::<IgnoredAny>()?.is_some() {}
    Ok(())
}

fn skip_entries<'de, A: MapAccess<'de>>(mut map: A) -> Result<(), A::Error> {
    while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
    Ok(())
}

/// Finds the field of a name: its position in [`MessageFields::slots`].
struct FieldFinder<'t> {
    message: &'t MessageFields,
    /// The position after the field before: stored objects are sorted by name.
    after: usize,
}

impl<'de> DeserializeSeed<'de> for FieldFinder<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Option<usize>, D::Error> {
        reader.deserialize_str(self)
    }
}

impl Visitor<'_> for FieldFinder<'_> {
    type Value = Option<usize>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the name of a field")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Option<usize>, E> {
        let slots = &self.message.slots;
        let near = slots.iter().enumerate().skip(self.after).take(4).find(|(_, slot)| slot.name == name);
        let search = || slots.binary_search_by(|slot| slot.name.as_str().cmp(name)).ok();
        Ok(near.map(|(position, _)| position).or_else(search))
    }
}
