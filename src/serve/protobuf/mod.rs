//! Kubernetes' protobuf encoding of API objects: `application/vnd.kubernetes.protobuf`.
//!
//! Knows: the numbers and types of the fields of every message ([`fields`]), the wire format, and the envelope around a document.
//! Never: decides the form of an answer, or reads a request: `form.rs` and `body.rs` do.
//! Start reading at [`encode_document`] and [`decode_document`].

mod decode;
mod encode;
mod fields;
pub mod list;
mod special;
pub mod wire;

#[cfg(test)]
mod round_trips;
#[cfg(test)]
mod tests;

use crate::object::Object;
use decode::Decoder;
use encode::Encoder;
use fields::{MessageFields, MessageTable};
use serde_json::{Map, Value};
use wire::{WireReader, end_length, start_length, write_bytes};

/// The media type.
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// The media type of a watch.
pub const PROTOBUF_WATCH: &str = "application/vnd.kubernetes.protobuf;stream=watch";

/// The bytes that every document begins with.
const MAGIC: &[u8] = b"k8s\0";
/// The field of the envelope that contains the object, and the field of a list that contains an item.
const RAW: u32 = 2;

/// The reason why bytes cannot be decoded, in the words of Kubernetes' decoder.
#[derive(Debug, PartialEq, Eq)]
pub struct ProtobufError {
    /// `apiVersion` and `kind` of the document, if they were decoded.
    pub of: Option<(String, String)>,
    /// The reason.
    pub reason: String,
}

/// Whether objects of this kind have a protobuf encoding; custom resources have none.
pub fn is_known(api_version: &str, kind: &str) -> bool {
    MessageTable::built_in().find_kind(api_version, kind).is_some()
}

/// Encodes a document with its envelope; `None` where its kind has no protobuf encoding.
pub fn encode_document(document: &Value) -> Option<Vec<u8>> {
    let (api_version, kind) = (document["apiVersion"].as_str()?, document["kind"].as_str()?);
    is_known(api_version, kind).then(|| encode_text(api_version, kind, &document.to_string()))?
}

/// Like [`encode_document`], for the JSON text of a document of this version and kind. `None` also for a text that is not JSON.
pub fn encode_text(api_version: &str, kind: &str, text: &str) -> Option<Vec<u8>> {
    encode_content(api_version, kind, text).map(|content| add_envelope(api_version, kind, &content))
}

/// Like [`encode_text`], without the envelope: the field of the envelope that contains the object, which also is an item of a list.
pub fn encode_content(api_version: &str, kind: &str, text: &str) -> Option<Vec<u8>> {
    let table = MessageTable::built_in();
    let message = table.find_kind(api_version, kind)?;
    let mut encoder = Encoder::new(table, Vec::with_capacity(text.len()));
    encoder.write_text(RAW, message, text).ok()?;
    Some(encoder.bytes)
}

/// Makes a document of encoded content.
pub fn add_envelope(api_version: &str, kind: &str, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(content.len() + api_version.len() + kind.len() + 16);
    start_envelope(&mut bytes, api_version, kind);
    bytes.extend_from_slice(content);
    end_envelope(&mut bytes);
    bytes
}

/// Writes the start of a document: everything before its content.
fn start_envelope(bytes: &mut Vec<u8>, api_version: &str, kind: &str) {
    bytes.extend_from_slice(MAGIC);
    let start = start_length(bytes, 1);
    write_bytes(bytes, 1, api_version.as_bytes());
    write_bytes(bytes, 2, kind.as_bytes());
    end_length(bytes, start);
}

/// Writes the end of a document: an empty content encoding and content type.
fn end_envelope(bytes: &mut Vec<u8>) {
    write_bytes(bytes, 3, b"");
    write_bytes(bytes, 4, b"");
}

/// Encodes one event of a watch: its length in four bytes, and the event with a complete document.
pub fn encode_event(word: &str, document: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(document.len() + 32);
    bytes.extend_from_slice(&[0; 4]);
    write_bytes(&mut bytes, 1, word.as_bytes());
    let start = start_length(&mut bytes, 2);
    write_bytes(&mut bytes, 1, document);
    end_length(&mut bytes, start);
    let length = u32::try_from(bytes.len() - 4).ok()?;
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    Some(bytes)
}

/// Whether bytes begin as a document does.
pub fn is_document(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// Decodes a document; without its own `apiVersion` and `kind` it gets these.
pub fn decode_document(bytes: &[u8], api_version: &str, kind: &str) -> Result<Value, ProtobufError> {
    let envelope = Envelope::read(bytes).map_err(|reason| ProtobufError { of: None, reason })?;
    let or = |own: String, default: &str| if own.is_empty() { default.to_owned() } else { own };
    let (api_version, kind) = (or(envelope.api_version, api_version), or(envelope.kind, kind));
    let table = MessageTable::built_in();
    let decoded = match table.find_kind(&api_version, &kind) {
        Some(message) => decode_message(table, table.message(message), envelope.raw),
        None => Err(format!("no kind {kind:?} is registered for version {api_version:?}")),
    };
    match decoded {
        Ok(mut map) => {
            map.insert("apiVersion".into(), api_version.into());
            map.insert("kind".into(), kind.into());
            Ok(Value::Object(map))
        }
        Err(reason) => Err(ProtobufError { of: Some((api_version, kind)), reason }),
    }
}

/// Returns the object as a Go program writes it: fields that are not pointers are written even when they are empty, such as `status: {}`.
/// An object that would lose data is returned unchanged: one without a Go form, or with a value of another type.
pub fn go_form(object: &Object) -> Object {
    let bytes = encode_document(&object.0);
    let read = bytes.and_then(|bytes| decode_document(&bytes, object.api_version(), object.kind()).ok());
    read.filter(|read| contains_all(read, &object.0)).map_or_else(|| object.clone(), Object)
}

/// Whether `whole` contains all of `part`.
fn contains_all(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            part.iter().all(|(name, part)| whole.get(name).is_some_and(|whole| contains_all(whole, part)))
        }
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(whole, part)| contains_all(whole, part))
        }
        _ => whole == part,
    }
}

fn decode_message(table: &MessageTable, message: &MessageFields, bytes: &[u8]) -> Result<Map<String, Value>, String> {
    let mut map = Map::new();
    Decoder::new(table).read_struct(message, bytes, &mut map)?;
    Ok(map)
}

/// `runtime.Unknown`, the envelope of a document.
#[derive(Default)]
struct Envelope<'a> {
    api_version: String,
    kind: String,
    raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    fn read(bytes: &'a [u8]) -> Result<Envelope<'a>, String> {
        let body = match bytes.strip_prefix(MAGIC) {
            _ if bytes.is_empty() => return Err("empty data".into()),
            None => {
                return Err(format!(
                    "provided data does not appear to be a protobuf message, expected prefix {}",
                    "[107 56 115 0]"
                ));
            }
            Some([]) => return Err("empty body".into()),
            Some(body) => body,
        };
        let mut envelope = Envelope::default();
        let mut reader = WireReader::new(body, "Unknown");
        while let Some((number, wire)) = reader.next_key()? {
            match number {
                1 => envelope.read_type(reader.expect_bytes(wire, "typeMeta")?)?,
                2 => envelope.raw = reader.expect_bytes(wire, "raw")?,
                _ => reader.skip(wire)?,
            }
        }
        Ok(envelope)
    }

    fn read_type(&mut self, bytes: &[u8]) -> Result<(), String> {
        let mut reader = WireReader::new(bytes, "TypeMeta");
        while let Some((number, wire)) = reader.next_key()? {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            match number {
                1 => self.api_version = text(reader.expect_bytes(wire, "apiVersion")?),
                2 => self.kind = text(reader.expect_bytes(wire, "kind")?),
                _ => reader.skip(wire)?,
            }
        }
        Ok(())
    }
}
