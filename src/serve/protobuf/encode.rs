//! From JSON to protobuf: every field in the order of its number, zero values included, byte for byte as Kubernetes' generated code writes it.
//!
//! Never: fails. JSON that does not fit its field was not validated, and is written as the zero value.

use super::fields::{
    FieldCardinality, MOST_FIELDS, MessageField, MessageFields, MessageForm, MessageIndex, MessageTable, ValueType,
};
use super::special;
use super::wire::{WireType, end_length, start_length, write_bytes, write_integer, write_key};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use std::cmp::Ordering;

/// Encodes messages.
pub struct Encoder<'a> {
    table: &'a MessageTable,
}

impl<'a> Encoder<'a> {
    /// Makes an encoder for messages of this table.
    pub fn new(table: &'a MessageTable) -> Encoder<'a> {
        Encoder { table }
    }

    /// Writes the fields of an object.
    pub fn write_struct(&self, bytes: &mut Vec<u8>, message: &MessageFields, map: &Map<String, Value>) {
        let values = values_by_field(message, map);
        for (field, value) in message.fields.iter().zip(values) {
            self.write_field(bytes, field, value, map);
        }
    }

    fn write_field(&self, bytes: &mut Vec<u8>, field: &MessageField, value: Option<&Value>, map: &Map<String, Value>) {
        let value = value.filter(|value| !value.is_null());
        match (field.cardinality, value, field.of) {
            (FieldCardinality::Value, None, of) if self.is_list(of) => {}
            (FieldCardinality::Value, value, of) => {
                self.write_value(bytes, field.number, of, value.unwrap_or(&Value::Null))
            }
            (FieldCardinality::Pointer, Some(value), of) => self.write_value(bytes, field.number, of, value),
            (FieldCardinality::Repeated, Some(Value::Array(items)), of) => {
                items.iter().for_each(|item| self.write_value(bytes, field.number, of, item));
            }
            (FieldCardinality::Map, Some(Value::Object(entries)), of) => {
                for (key, value) in entries {
                    let start = start_length(bytes, field.number);
                    write_bytes(bytes, 1, key.as_bytes());
                    self.write_value(bytes, 2, of, value);
                    end_length(bytes, start);
                }
            }
            (FieldCardinality::Inline, _, ValueType::Message(index)) => {
                let start = start_length(bytes, field.number);
                self.write_struct(bytes, self.table.message(index), map);
                end_length(bytes, start);
            }
            _ => {}
        }
    }

    /// Writes one item of a field with several.
    pub fn write_item(&self, bytes: &mut Vec<u8>, field: &MessageField, item: &Value) {
        self.write_value(bytes, field.number, field.of, item);
    }

    /// Whether a value is a list type of its own, which is omitted like other lists when empty.
    fn is_list(&self, of: ValueType) -> bool {
        matches!(of, ValueType::Message(index) if self.table.message(index).form == MessageForm::List)
    }

    fn write_value(&self, bytes: &mut Vec<u8>, number: u32, of: ValueType, value: &Value) {
        match of {
            ValueType::Text => write_bytes(bytes, number, value.as_str().unwrap_or_default().as_bytes()),
            ValueType::Bytes => {
                let decoded = value.as_str().and_then(|text| STANDARD.decode(text).ok());
                write_bytes(bytes, number, &decoded.unwrap_or_default());
            }
            ValueType::Bool => write_integer(bytes, number, value.as_bool().unwrap_or_default().into()),
            ValueType::Int32 | ValueType::Int64 => write_integer(bytes, number, integer(value)),
            ValueType::Double => {
                write_key(bytes, number, WireType::Fixed64);
                bytes.extend_from_slice(&value.as_f64().unwrap_or_default().to_le_bytes());
            }
            ValueType::Message(index) => {
                let start = start_length(bytes, number);
                self.write_message(bytes, self.table.message(index), value);
                end_length(bytes, start);
            }
        }
    }

    /// Writes a message; null is its zero value.
    pub fn write_message(&self, bytes: &mut Vec<u8>, message: &MessageFields, value: &Value) {
        match (message.form, value) {
            (MessageForm::Struct, Value::Object(map)) => self.write_struct(bytes, message, map),
            (MessageForm::Struct, _) => self.write_struct(bytes, message, &Map::new()),
            (MessageForm::List, Value::Array(items)) => {
                for field in &message.fields {
                    items.iter().for_each(|item| self.write_value(bytes, field.number, field.of, item));
                }
            }
            (MessageForm::List, _) => {}
            (MessageForm::Quantity, value) => special::write_quantity(bytes, value),
            (MessageForm::IntOrString, value) => special::write_int_or_string(bytes, value),
            (MessageForm::Time, value) => special::write_time(bytes, value, false),
            (MessageForm::MicroTime, value) => special::write_time(bytes, value, true),
            (MessageForm::Raw, Value::Null) => {}
            (MessageForm::Raw, value) => special::write_raw(bytes, value),
            (MessageForm::SchemaOrBool(schema), value) => {
                write_integer(bytes, 1, value.as_bool().unwrap_or(value.is_object()).into());
                self.write_schemas(bytes, (2, schema), value);
            }
            (MessageForm::SchemaOrArray(schema), value) => self.write_schemas(bytes, (1, schema), value),
            (MessageForm::SchemaOrStrings(_), Value::Array(texts)) => {
                texts.iter().for_each(|text| write_bytes(bytes, 2, text.as_str().unwrap_or_default().as_bytes()));
            }
            (MessageForm::SchemaOrStrings(schema), value) => self.write_schemas(bytes, (1, schema), value),
        }
    }

    /// Writes a schema as the field of this number, or several as the next field.
    fn write_schemas(&self, bytes: &mut Vec<u8>, (number, schema): (u32, MessageIndex), value: &Value) {
        let (number, schemas) = match value {
            Value::Object(_) => (number, std::slice::from_ref(value)),
            Value::Array(schemas) => (number + 1, schemas.as_slice()),
            _ => return,
        };
        schemas.iter().for_each(|value| self.write_value(bytes, number, ValueType::Message(schema), value));
    }
}

/// Returns the value of each field of an object. Both are sorted by name, so that one pass is enough.
fn values_by_field<'v>(message: &MessageFields, map: &'v Map<String, Value>) -> [Option<&'v Value>; MOST_FIELDS] {
    let mut values = [None; MOST_FIELDS];
    let mut names = message.by_name.iter().peekable();
    for (key, value) in map {
        while let Some(index) = names.peek() {
            match message.fields[**index].name.as_str().cmp(key) {
                Ordering::Less => drop(names.next()),
                Ordering::Equal => {
                    values[**index] = Some(value);
                    names.next();
                    break;
                }
                Ordering::Greater => break,
            }
        }
    }
    values
}

fn integer(value: &Value) -> i64 {
    value.as_i64().or_else(|| value.as_f64().map(|number| number as i64)).unwrap_or_default()
}
