//! OpenAPI in protobuf, as messages of gnostic: `OpenAPIv2.proto`, the only form of version 2 that kubectl reads.
//!
//! Knows: the encoding of those messages; their fields in version 3 are in [`super::gnostic_v3`]. Start reading at
//! [`GnosticMessage::write`].

use crate::serve::protobuf::wire::{WireType, end_length, start_length, write_bytes, write_integer, write_key};
use GnosticForm::{
    Any, Anys, Bool, Double, Integer, Many, Named, One, OrReference, OrReferences, Parameters, Scalar, SchemaOrBool,
    SchemaOrBool3, Text, TextOrTexts, Texts, Within,
};
use serde_json::{Map, Value};

/// Encoding of the value of a field.
#[derive(Clone, Copy)]
pub enum GnosticForm {
    /// A string.
    Text,
    /// A boolean.
    Bool,
    /// An integer.
    Integer,
    /// A number.
    Double,
    /// A string for each item.
    Texts,
    /// Any value, as YAML.
    Any,
    /// Any value for each item.
    Anys,
    /// A message.
    One(&'static GnosticMessage),
    /// A message for each item.
    Many(&'static GnosticMessage),
    /// A message within nested messages, each of which has it as this field.
    Within(&'static [u32], &'static GnosticForm),
    /// A message with a named message for each entry, in this field.
    Named(u32, &'static GnosticForm),
    /// A message with a string, or with each of a list of strings.
    TextOrTexts,
    /// A schema, or a boolean.
    SchemaOrBool,
    /// A parameter.
    Parameters,
    /// A message as its first field, or a reference as its second one.
    OrReference(&'static GnosticMessage),
    /// A list whose items are each a message or a reference.
    OrReferences(&'static GnosticMessage),
    /// A schema of version 3, or a boolean.
    SchemaOrBool3(&'static GnosticMessage),
    /// A number, boolean or text.
    Scalar,
}

/// A message: its fields by name, and the field of extensions.
pub struct GnosticMessage {
    /// Name, number and encoding of each field.
    pub fields: &'static [(&'static str, u32, GnosticForm)],
    /// The number of the field of extensions.
    pub extensions: u32,
}

/// The number of the field of paths.
pub const PATHS: u32 = 8;
/// The number of the field of definitions.
pub const DEFINITIONS: u32 = 9;
/// The number and the encoding of a path.
pub const PATH_ENTRY: (u32, GnosticForm) = (2, One(&PATH_ITEM));
/// The number and the encoding of a definition.
pub const SCHEMA_ENTRY: (u32, GnosticForm) = (1, One(&SCHEMA));

/// A document without paths and definitions, which are encoded one by one.
pub static DOCUMENT: GnosticMessage = GnosticMessage {
    fields: &[
        ("swagger", 1, Text),
        ("info", 2, One(&INFO)),
        ("securityDefinitions", 13, Named(1, &Within(&[2], &One(&API_KEY)))),
    ],
    extensions: 16,
};
static API_KEY: GnosticMessage = GnosticMessage {
    fields: &[("type", 1, Text), ("name", 2, Text), ("in", 3, Text), ("description", 4, Text)],
    extensions: 5,
};
static INFO: GnosticMessage = GnosticMessage { fields: &[("title", 1, Text), ("version", 2, Text)], extensions: 7 };
static PATH_ITEM: GnosticMessage = GnosticMessage {
    fields: &[
        ("get", 2, One(&OPERATION)),
        ("put", 3, One(&OPERATION)),
        ("post", 4, One(&OPERATION)),
        ("delete", 5, One(&OPERATION)),
        ("options", 6, One(&OPERATION)),
        ("head", 7, One(&OPERATION)),
        ("patch", 8, One(&OPERATION)),
        ("parameters", 9, Parameters),
    ],
    extensions: 10,
};
static OPERATION: GnosticMessage = GnosticMessage {
    fields: &[
        ("tags", 1, Texts),
        ("description", 3, Text),
        ("operationId", 5, Text),
        ("produces", 6, Texts),
        ("consumes", 7, Texts),
        ("parameters", 8, Parameters),
        ("responses", 9, Named(1, &Within(&[1], &One(&RESPONSE)))),
        ("schemes", 10, Texts),
        ("deprecated", 11, Bool),
    ],
    extensions: 13,
};
static RESPONSE: GnosticMessage =
    GnosticMessage { fields: &[("description", 1, Text), ("schema", 2, Within(&[1], &One(&SCHEMA)))], extensions: 5 };
static BODY: GnosticMessage = GnosticMessage {
    fields: &[
        ("description", 1, Text),
        ("name", 2, Text),
        ("in", 3, Text),
        ("required", 4, Bool),
        ("schema", 5, One(&SCHEMA)),
    ],
    extensions: 6,
};
static PATH_PARAMETER: GnosticMessage = GnosticMessage {
    fields: &[
        ("required", 1, Bool),
        ("in", 2, Text),
        ("description", 3, Text),
        ("name", 4, Text),
        ("type", 5, Text),
        ("uniqueItems", 19, Bool),
    ],
    extensions: 22,
};
static QUERY_PARAMETER: GnosticMessage = GnosticMessage {
    fields: &[
        ("required", 1, Bool),
        ("in", 2, Text),
        ("description", 3, Text),
        ("name", 4, Text),
        ("type", 6, Text),
        ("uniqueItems", 20, Bool),
    ],
    extensions: 23,
};
static IN_BODY: GnosticForm = Within(&[1, 1], &One(&BODY));
static IN_PATH: GnosticForm = Within(&[1, 2, 4], &One(&PATH_PARAMETER));
static IN_QUERY: GnosticForm = Within(&[1, 2, 3], &One(&QUERY_PARAMETER));
static SCHEMA: GnosticMessage = GnosticMessage {
    fields: &[
        ("$ref", 1, Text),
        ("format", 2, Text),
        ("title", 3, Text),
        ("description", 4, Text),
        ("default", 5, Any),
        ("multipleOf", 6, Double),
        ("maximum", 7, Double),
        ("exclusiveMaximum", 8, Bool),
        ("minimum", 9, Double),
        ("exclusiveMinimum", 10, Bool),
        ("maxLength", 11, Integer),
        ("minLength", 12, Integer),
        ("pattern", 13, Text),
        ("maxItems", 14, Integer),
        ("minItems", 15, Integer),
        ("uniqueItems", 16, Bool),
        ("maxProperties", 17, Integer),
        ("minProperties", 18, Integer),
        ("required", 19, Texts),
        ("enum", 20, Anys),
        ("additionalProperties", 21, SchemaOrBool),
        ("type", 22, TextOrTexts),
        ("items", 23, Within(&[1], &One(&SCHEMA))),
        ("allOf", 24, Many(&SCHEMA)),
        ("properties", 25, Named(1, &One(&SCHEMA))),
    ],
    extensions: 31,
};

impl GnosticMessage {
    /// Writes the fields of a value.
    pub fn write(&self, bytes: &mut Vec<u8>, value: &Value) {
        let empty = Map::new();
        let map = value.as_object().unwrap_or(&empty);
        for (name, number, form) in self.fields {
            if let Some(value) = map.get(*name) {
                form.write(bytes, *number, value);
            }
        }
        for (name, value) in map.iter().filter(|(name, _)| name.starts_with("x-")) {
            write_named(bytes, self.extensions, name, Any, value);
        }
    }
}

impl GnosticForm {
    fn write(self, bytes: &mut Vec<u8>, number: u32, value: &Value) {
        let items = || value.as_array().into_iter().flatten();
        match self {
            Text => write_bytes(bytes, number, value.as_str().unwrap_or_default().as_bytes()),
            Bool => write_integer(bytes, number, i64::from(value == true)),
            Integer => write_integer(bytes, number, value.as_i64().unwrap_or_default()),
            Double => {
                write_key(bytes, number, WireType::Fixed64);
                bytes.extend_from_slice(&value.as_f64().unwrap_or_default().to_le_bytes());
            }
            Texts => items().for_each(|item| Text.write(bytes, number, item)),
            Any => within(bytes, number, |bytes| write_bytes(bytes, 2, format!("{value}\n").as_bytes())),
            Anys => items().for_each(|item| Any.write(bytes, number, item)),
            One(message) => within(bytes, number, |bytes| message.write(bytes, value)),
            Many(message) => items().for_each(|item| One(message).write(bytes, number, item)),
            Within([inner, rest @ ..], form) => {
                within(bytes, number, |bytes| Within(rest, form).write(bytes, *inner, value));
            }
            Within([], form) => form.write(bytes, number, value),
            Named(inner, form) => within(bytes, number, |bytes| {
                for (name, value) in value.as_object().into_iter().flatten() {
                    write_named(bytes, inner, name, *form, value);
                }
            }),
            TextOrTexts => within(bytes, number, |bytes| match value {
                Value::Array(_) => Texts.write(bytes, 1, value),
                _ => Text.write(bytes, 1, value),
            }),
            SchemaOrBool => within(bytes, number, |bytes| match value {
                Value::Bool(_) => Bool.write(bytes, 2, value),
                _ => One(&SCHEMA).write(bytes, 1, value),
            }),
            OrReference(message) => within(bytes, number, |bytes| match value.get("$ref") {
                Some(reference) => within(bytes, 2, |bytes| Text.write(bytes, 1, reference)),
                None => One(message).write(bytes, 1, value),
            }),
            OrReferences(message) => items().for_each(|item| OrReference(message).write(bytes, number, item)),
            SchemaOrBool3(schema) => within(bytes, number, |bytes| match value {
                Value::Bool(_) => Bool.write(bytes, 2, value),
                _ => OrReference(schema).write(bytes, 1, value),
            }),
            Scalar => within(bytes, number, |bytes| match value {
                Value::Number(_) => Double.write(bytes, 1, value),
                Value::Bool(_) => Bool.write(bytes, 2, value),
                Value::String(_) => Text.write(bytes, 3, value),
                // Gnostic has no other defaults.
                _ => {}
            }),
            Parameters => items().for_each(|item| {
                let form = match item["in"].as_str() {
                    Some("body") => IN_BODY,
                    Some("path") => IN_PATH,
                    _ => IN_QUERY,
                };
                form.write(bytes, number, item);
            }),
        }
    }
}

fn within(bytes: &mut Vec<u8>, number: u32, write: impl FnOnce(&mut Vec<u8>)) {
    let start = start_length(bytes, number);
    write(bytes);
    end_length(bytes, start);
}

/// Writes an entry of a map: its name and its value.
pub fn write_named(bytes: &mut Vec<u8>, number: u32, name: &str, form: GnosticForm, value: &Value) {
    within(bytes, number, |bytes| {
        write_bytes(bytes, 1, name.as_bytes());
        form.write(bytes, 2, value);
    });
}
