//! From protobuf to JSON, as Kubernetes' own types are written: zero values are left out where their JSON tags say so.
//!
//! Knows: unknown fields are skipped. Never: uses unbounded memory for any input; values and nesting have limits.
//! Start reading at [`Decoder::read_struct`].

use super::fields::{
    FieldCardinality, MessageField, MessageFields, MessageForm, MessageIndex, MessageTable, ValueType,
};
use super::special;
use super::wire::{WireReader, WireType, expect_wire_type};
use crate::object::whole_number;
use crate::object::yaml::MAX_DEPTH;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value};

/// Maximum number of values in a body: objects made of them need no more memory than those of the largest JSON body.
const MAX_VALUES: usize = 500_000;

/// Reads the messages of one document.
pub struct Decoder<'t> {
    table: &'t MessageTable,
    /// Number of values that may still follow.
    left: usize,
    depth: usize,
}

impl<'t> Decoder<'t> {
    /// Makes a decoder for messages of this table.
    pub fn new(table: &'t MessageTable) -> Decoder<'t> {
        Decoder { table, left: MAX_VALUES, depth: 0 }
    }

    /// Reads the fields of an object into it.
    pub fn read_struct(
        &mut self,
        message: &'t MessageFields,
        bytes: &[u8],
        map: &mut Map<String, Value>,
    ) -> Result<(), String> {
        if self.depth >= MAX_DEPTH {
            return Err(format!("exceeded max depth of {MAX_DEPTH}"));
        }
        self.depth += 1;
        let mut reader = WireReader::new(bytes, &message.name);
        while let Some((number, wire)) = reader.next_key()? {
            match message.field(number) {
                Some(field) => self.read_field(field, &mut reader, wire, map)?,
                None => reader.skip(wire)?,
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn read_field(
        &mut self,
        field: &'t MessageField,
        reader: &mut WireReader<'_>,
        wire: WireType,
        map: &mut Map<String, Value>,
    ) -> Result<(), String> {
        match (field.cardinality, field.of) {
            (FieldCardinality::Inline, ValueType::Message(index)) => {
                let inner = reader.expect_bytes(wire, &field.name)?;
                self.read_struct(self.table.message(index), inner, map)
            }
            (FieldCardinality::Map, of) => {
                let entry = reader.expect_bytes(wire, &field.name)?;
                let entries = find_or_add(map, &field.name, || Value::Object(Map::new()));
                match entries {
                    Value::Object(entries) => self.read_entry(field, of, entry, entries),
                    _ => Ok(()),
                }
            }
            (FieldCardinality::Repeated, of) => {
                let items = find_or_add(map, &field.name, || Value::Array(Vec::new()));
                match items {
                    Value::Array(items) => self.read_items(field, of, reader, wire, items),
                    _ => Ok(()),
                }
            }
            (_, of) => {
                // A repeated message field is merged with the first one.
                let before = map.remove(&field.name);
                let value = self.read_value(of, reader, wire, &field.name, before)?;
                if !self.is_left_out(field, &value) {
                    map.insert(field.name.clone(), value);
                }
                Ok(())
            }
        }
    }

    /// Whether JSON omits this value of a field.
    fn is_left_out(&self, field: &MessageField, value: &Value) -> bool {
        match value {
            Value::Null => true,
            Value::Bool(false) => field.omits_zero && field.cardinality == FieldCardinality::Value,
            Value::Number(number) => {
                field.omits_zero
                    && field.cardinality == FieldCardinality::Value
                    && !matches!(field.of, ValueType::Message(_))
                    && number.as_f64() == Some(0.0)
            }
            Value::String(text) => {
                let is_plain = field.cardinality == FieldCardinality::Value && field.of == ValueType::Text;
                text.is_empty() && field.omits_zero && (is_plain || field.of == ValueType::Bytes)
            }
            _ => false,
        }
    }

    fn read_entry(
        &mut self,
        field: &MessageField,
        of: ValueType,
        bytes: &[u8],
        entries: &mut Map<String, Value>,
    ) -> Result<(), String> {
        let (mut key, mut value) = (String::new(), None);
        let mut reader = WireReader::new(bytes, &field.name);
        while let Some((number, wire)) = reader.next_key()? {
            match number {
                1 => key = decode_text(reader.expect_bytes(wire, &field.name)?),
                2 => value = Some(self.read_value(of, &mut reader, wire, &field.name, None)?),
                _ => reader.skip(wire)?,
            }
        }
        let value = match value {
            Some(value) => value,
            None => self.make_zero(of)?,
        };
        entries.insert(key, value);
        Ok(())
    }

    fn make_zero(&mut self, of: ValueType) -> Result<Value, String> {
        self.count_value()?;
        match of {
            ValueType::Text | ValueType::Bytes => Ok("".into()),
            ValueType::Bool => Ok(false.into()),
            ValueType::Int32 | ValueType::Int64 | ValueType::Double => Ok(0.into()),
            ValueType::Message(index) => self.read_message(index, &[], None),
        }
    }

    fn read_items(
        &mut self,
        field: &'t MessageField,
        of: ValueType,
        reader: &mut WireReader<'_>,
        wire: WireType,
        items: &mut Vec<Value>,
    ) -> Result<(), String> {
        // Numbers may be packed into one field.
        let packed = match of {
            ValueType::Bool | ValueType::Int32 | ValueType::Int64 => WireType::Varint,
            ValueType::Double => WireType::Fixed64,
            _ => WireType::Length,
        };
        if wire != WireType::Length || packed == WireType::Length {
            items.push(self.read_value(of, reader, wire, &field.name, None)?);
            return Ok(());
        }
        let mut inner = WireReader::new(reader.read_bytes()?, &field.name);
        while !inner.is_at_end() {
            items.push(self.read_value(of, &mut inner, packed, &field.name, None)?);
        }
        Ok(())
    }

    fn read_value(
        &mut self,
        of: ValueType,
        reader: &mut WireReader<'_>,
        wire: WireType,
        name: &str,
        before: Option<Value>,
    ) -> Result<Value, String> {
        self.count_value()?;
        Ok(match of {
            ValueType::Text => decode_text(reader.expect_bytes(wire, name)?).into(),
            ValueType::Bytes => STANDARD.encode(reader.expect_bytes(wire, name)?).into(),
            ValueType::Bool => (reader.expect_varint(wire, name)? != 0).into(),
            ValueType::Int32 => (reader.expect_varint(wire, name)? as i32).into(),
            ValueType::Int64 => (reader.expect_varint(wire, name)? as i64).into(),
            ValueType::Double => {
                expect_wire_type(wire, WireType::Fixed64, name)?;
                decode_double(reader.read_exact(8)?)?
            }
            ValueType::Message(index) => {
                let inner = reader.expect_bytes(wire, name)?;
                self.read_message(index, inner, before)?
            }
        })
    }

    fn read_message(&mut self, index: MessageIndex, bytes: &[u8], before: Option<Value>) -> Result<Value, String> {
        let message = self.table.message(index);
        match message.form {
            MessageForm::Struct => {
                let mut map = match before {
                    Some(Value::Object(map)) => map,
                    _ => Map::new(),
                };
                self.read_struct(message, bytes, &mut map)?;
                Ok(Value::Object(map))
            }
            MessageForm::List => {
                let mut map = Map::new();
                self.read_struct(message, bytes, &mut map)?;
                Ok(map.remove("items").unwrap_or_else(|| Value::Array(Vec::new())))
            }
            MessageForm::Quantity => special::read_quantity(bytes),
            MessageForm::IntOrString => special::read_int_or_string(bytes),
            MessageForm::Time => special::read_time(bytes, false),
            MessageForm::MicroTime => special::read_time(bytes, true),
            MessageForm::Raw => special::read_raw(bytes),
            MessageForm::SchemaOrArray(schema)
            | MessageForm::SchemaOrBool(schema)
            | MessageForm::SchemaOrStrings(schema) => self.read_choice(message, schema, bytes),
        }
    }

    /// Reads a schema, or the value that may stand for it: a list of schemas or texts, or a boolean.
    fn read_choice(&mut self, message: &'t MessageFields, schema: MessageIndex, bytes: &[u8]) -> Result<Value, String> {
        let (mut single, mut allows, mut several) = (None, false, Vec::new());
        let of = ValueType::Message(schema);
        let mut reader = WireReader::new(bytes, &message.name);
        while let Some((number, wire)) = reader.next_key()? {
            match (message.form, number) {
                (MessageForm::SchemaOrBool(_), 1) => allows = reader.expect_varint(wire, "allows")? != 0,
                (MessageForm::SchemaOrBool(_), 2) | (MessageForm::SchemaOrArray(_), 1) | (_, 1) => {
                    single = Some(self.read_value(of, &mut reader, wire, "schema", single.take())?);
                }
                (MessageForm::SchemaOrArray(_), 2) => {
                    several.push(self.read_value(of, &mut reader, wire, "jSONSchemas", None)?);
                }
                (_, 2) => several.push(self.read_value(ValueType::Text, &mut reader, wire, "property", None)?),
                _ => reader.skip(wire)?,
            }
        }
        Ok(match (single, message.form) {
            (Some(schema), _) => schema,
            (None, MessageForm::SchemaOrBool(_)) => allows.into(),
            (None, _) if several.is_empty() => Value::Null,
            (None, _) => Value::Array(several),
        })
    }

    fn count_value(&mut self) -> Result<(), String> {
        self.left = self.left.checked_sub(1).ok_or_else(|| format!("exceeded {MAX_VALUES} values"))?;
        Ok(())
    }
}

/// Returns the member of an object, which is created when it is missing.
fn find_or_add<'m>(map: &'m mut Map<String, Value>, name: &str, make: impl FnOnce() -> Value) -> &'m mut Value {
    if !map.contains_key(name) {
        map.insert(name.to_owned(), make());
    }
    &mut map[name]
}

/// Decodes text; invalid UTF-8 is replaced, as in Go's JSON.
fn decode_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Decodes a number; whole numbers have no fraction, as in Go.
fn decode_double(bytes: &[u8]) -> Result<Value, String> {
    let number = f64::from_le_bytes(bytes.try_into().map_err(|_| "unexpected EOF")?);
    if let Some(whole) = whole_number::from_float(number) {
        return Ok(whole.into());
    }
    let unsupported = || format!("json: unsupported value: {number}");
    Number::from_f64(number).map(Value::Number).ok_or_else(unsupported)
}
