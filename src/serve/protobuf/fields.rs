//! The table of messages: numbers, JSON names and types of their fields.
//!
//! Knows: it comes from the sources of Kubernetes 1.36.2, packed by the test in `tests/protobuf_fields.rs`, and is unpacked when it is
//! first needed. Never: reads or writes a message. Start reading at [`MessageTable`].

use flate2::read::GzDecoder;
use serde::Deserialize;
use std::collections::HashMap;
use std::io::Read;
use std::sync::LazyLock;

const PACKED: &[u8] = include_bytes!("fields.json.gz");

/// Kinds of every group, whose message is that of the core group.
const SHARED: [&str; 2] = ["DeleteOptions", "Status"];

/// All messages.
#[derive(Default)]
pub struct MessageTable {
    messages: Vec<MessageFields>,
    /// Versions and their messages by kind.
    kinds: HashMap<String, Vec<(String, MessageIndex)>>,
}

/// Index of a message in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageIndex(usize);

/// One message.
pub struct MessageFields {
    /// `PodSpec`.
    pub name: String,
    /// Its JSON.
    pub form: MessageForm,
    /// Its fields by number.
    pub fields: Vec<MessageField>,
    /// Its fields by JSON name, with those of its inline messages.
    pub slots: Vec<FieldSlot>,
}

/// A field in the JSON object of a message.
pub struct FieldSlot {
    /// Its name in JSON.
    pub name: String,
    /// The message with the field: this message, or an inline one.
    pub message: MessageIndex,
    /// Its index there.
    pub field: usize,
    /// Its position on the wire among all slots.
    pub number: usize,
}

/// JSON form of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageForm {
    /// An object with the fields.
    Struct,
    /// A list: the items of its only field.
    List,
    /// Text such as `100m`.
    Quantity,
    /// A number or text.
    IntOrString,
    /// A time with seconds.
    Time,
    /// A time with microseconds.
    MicroTime,
    /// Any JSON, which is encoded as text.
    Raw,
    /// A schema or schemas.
    SchemaOrArray(MessageIndex),
    /// A schema or a boolean.
    SchemaOrBool(MessageIndex),
    /// A schema or texts.
    SchemaOrStrings(MessageIndex),
}

/// One field of a message.
pub struct MessageField {
    /// Its number.
    pub number: u32,
    /// Its name in JSON.
    pub name: String,
    /// Number of its values.
    pub cardinality: FieldCardinality,
    /// Type of its values.
    pub of: ValueType,
    /// Whether JSON leaves out its zero value.
    pub omits_zero: bool,
}

/// Number of values of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FieldCardinality {
    /// Always present: its zero value is written.
    Value,
    /// Optional.
    Pointer,
    /// Always present, and its fields belong to the surrounding object in JSON.
    Inline,
    /// Repeated.
    Repeated,
    /// A map: one value for each key.
    Map,
}

/// Type of a field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// Text.
    Text,
    /// Bytes; base64 in JSON.
    Bytes,
    /// A boolean.
    Bool,
    /// An integer of 32 bits.
    Int32,
    /// An integer of 64 bits.
    Int64,
    /// A number.
    Double,
    /// A message.
    Message(MessageIndex),
}

#[derive(Deserialize)]
struct PackedTable {
    kinds: HashMap<String, String>,
    messages: HashMap<String, PackedMessage>,
}

#[derive(Deserialize)]
struct PackedMessage {
    form: String,
    fields: Vec<(u32, String, FieldCardinality, String, bool)>,
}

impl MessageTable {
    /// Returns the table of all messages.
    pub fn built_in() -> &'static MessageTable {
        static TABLE: LazyLock<MessageTable> = LazyLock::new(|| {
            let mut text = String::new();
            let unpacked = GzDecoder::new(PACKED).read_to_string(&mut text).ok();
            unpacked.and_then(|_| MessageTable::unpack(&text)).unwrap_or_default()
        });
        &TABLE
    }

    fn unpack(text: &str) -> Option<MessageTable> {
        let packed: PackedTable = serde_json::from_str(text).ok()?;
        let names: Vec<&String> = packed.messages.keys().collect();
        let index: HashMap<&str, usize> =
            names.iter().enumerate().map(|(index, name)| (name.as_str(), index)).collect();
        let find = |name: &str| index.get(name).copied().map(MessageIndex);
        let messages = names.iter().map(|name| unpack_message(name, &packed.messages[*name], find));
        let mut messages = messages.collect::<Option<Vec<_>>>()?;
        for index in 0..messages.len() {
            let mut slots = Vec::new();
            add_slots(&messages, MessageIndex(index), &mut slots);
            slots.sort_by(|one, other| one.name.cmp(&other.name));
            messages[index].slots = slots;
        }
        let mut kinds: HashMap<String, Vec<(String, MessageIndex)>> = HashMap::new();
        for (kind, message) in &packed.kinds {
            let (api_version, kind) = kind.rsplit_once('/')?;
            kinds.entry(kind.to_owned()).or_default().push((api_version.to_owned(), find(message)?));
        }
        Some(MessageTable { messages, kinds })
    }

    /// Returns the message of a kind.
    pub fn find_kind(&self, api_version: &str, kind: &str) -> Option<MessageIndex> {
        let api_version = match (api_version, kind) {
            // Both versions of metadata are the same, and both of evictions, which the API server accepts.
            ("meta.k8s.io/v1beta1", _) => "meta.k8s.io/v1",
            ("policy/v1beta1", "Eviction") => "policy/v1",
            _ => api_version,
        };
        let versions = self.kinds.get(kind)?;
        let find = |wanted: &str| versions.iter().find(|(version, _)| version == wanted).map(|(_, index)| *index);
        find(api_version).or_else(|| find("v1").filter(|_| SHARED.contains(&kind)))
    }

    /// Returns the message of an index.
    pub fn message(&self, index: MessageIndex) -> &MessageFields {
        &self.messages[index.0]
    }

    #[cfg(test)]
    pub fn messages(&self) -> &[MessageFields] {
        &self.messages
    }

    #[cfg(test)]
    pub fn kinds(&self) -> impl Iterator<Item = (&str, &str)> {
        let kinds = self.kinds.iter();
        kinds.flat_map(|(kind, versions)| versions.iter().map(move |(version, _)| (version.as_str(), kind.as_str())))
    }
}

impl MessageField {
    /// Returns the message whose fields belong to the surrounding object in JSON.
    pub fn inline(&self) -> Option<MessageIndex> {
        match (self.cardinality, self.of) {
            (FieldCardinality::Inline, ValueType::Message(index)) => Some(index),
            _ => None,
        }
    }
}

impl MessageFields {
    /// Returns the field of a number.
    pub fn field(&self, number: u32) -> Option<&MessageField> {
        // Most messages number their fields without gaps.
        let near = self.fields.get((number as usize).wrapping_sub(1)).filter(|field| field.number == number);
        near.or_else(|| self.fields.iter().find(|field| field.number == number))
    }
}

fn unpack_message(
    name: &str,
    packed: &PackedMessage,
    find: impl Fn(&str) -> Option<MessageIndex>,
) -> Option<MessageFields> {
    let fields = packed.fields.iter().map(|(number, name, cardinality, of, omits_zero)| {
        let of = match of.as_str() {
            "string" => ValueType::Text,
            "bytes" => ValueType::Bytes,
            "bool" => ValueType::Bool,
            "int32" => ValueType::Int32,
            "int64" => ValueType::Int64,
            "double" => ValueType::Double,
            message => ValueType::Message(find(message)?),
        };
        Some(MessageField {
            number: *number,
            name: name.clone(),
            cardinality: *cardinality,
            of,
            omits_zero: *omits_zero,
        })
    });
    let fields = fields.collect::<Option<Vec<_>>>()?;
    let (package, short) = name.rsplit_once('.')?;
    let schema = || find(&format!("{package}.JSONSchemaProps"));
    let form = match short {
        "Quantity" => MessageForm::Quantity,
        "IntOrString" => MessageForm::IntOrString,
        "Time" => MessageForm::Time,
        "MicroTime" => MessageForm::MicroTime,
        "RawExtension" | "FieldsV1" | "JSON" => MessageForm::Raw,
        "JSONSchemaPropsOrArray" => MessageForm::SchemaOrArray(schema()?),
        "JSONSchemaPropsOrBool" => MessageForm::SchemaOrBool(schema()?),
        "JSONSchemaPropsOrStringArray" => MessageForm::SchemaOrStrings(schema()?),
        _ if packed.form == "list" => MessageForm::List,
        _ => MessageForm::Struct,
    };
    Some(MessageFields { name: short.to_owned(), form, fields, slots: Vec::new() })
}

/// Adds the fields of a message as they follow each other on the wire, those of inline messages in their places.
fn add_slots(messages: &[MessageFields], message: MessageIndex, slots: &mut Vec<FieldSlot>) {
    for (index, field) in messages[message.0].fields.iter().enumerate() {
        match field.inline() {
            Some(inline) => add_slots(messages, inline, slots),
            None => slots.push(FieldSlot { name: field.name.clone(), message, field: index, number: slots.len() }),
        }
    }
}
