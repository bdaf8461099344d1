//! A document that is put together from its parts: each is encoded as soon as it is described, so that the whole is never a tree of values.
//!
//! Knows: where the paths and the schemas are in a document of either version, as JSON and as protobuf. Never: describes anything.
//! Start reading at [`DocumentParts`].

use super::gnostic::{self, GnosticForm, GnosticMessage};
use super::{gnostic_v3, v2};
use crate::apiserver::aggregation::open_api::OpenApiPart;
use crate::apiserver::packed_documents::{DocumentPacker, PackedDocument};
use crate::object::{Reason, Status};
use crate::serve::protobuf::wire::{WireType, write_key, write_varint};
use crate::serve::{KUBERNETES, ServeResult};
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// Minimum size of a part that waits compressed.
const MIN_PACKED_BYTES: usize = 16 << 10;

/// The version of a document.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum OpenApiVersion {
    /// OpenAPI 2.
    V2,
    /// OpenAPI 3.
    V3,
}

/// The paths and schemas of a document. Of two with the same name, the first counts.
pub struct DocumentParts<'a> {
    version: OpenApiVersion,
    is_protobuf: bool,
    paths: Entries,
    schemas: Entries,
    /// The parts of extension servers, which are added last.
    extended: Vec<&'a OpenApiPart>,
    /// The names of schemas that extension servers have, too.
    shared_names: BTreeSet<&'a str>,
    /// The schemas with such names.
    shared: Map<String, Value>,
}

impl<'a> DocumentParts<'a> {
    /// Makes a document without parts.
    pub fn new(version: OpenApiVersion, is_protobuf: bool) -> DocumentParts<'a> {
        DocumentParts {
            version,
            is_protobuf,
            paths: Entries::default(),
            schemas: Entries::default(),
            extended: Vec::new(),
            shared_names: BTreeSet::new(),
            shared: Map::new(),
        }
    }

    /// The same document with the parts of extension servers.
    pub fn with_extensions(mut self, extended: Vec<&'a OpenApiPart>) -> DocumentParts<'a> {
        self.shared_names = extended.iter().flat_map(|part| part.definition_names()).collect();
        self.extended = extended;
        self
    }

    /// Adds paths in the form of version 3.
    pub fn add_paths(&mut self, paths: Map<String, Value>) -> ServeResult<()> {
        for (path, item) in paths {
            if self.paths.has(&path) {
                continue;
            }
            match self.version {
                OpenApiVersion::V2 => self.put_path(&path, &v2::convert_path(&item))?,
                OpenApiVersion::V3 => self.put_path(&path, &item)?,
            }
        }
        Ok(())
    }

    /// Adds a schema in the form of version 3.
    pub fn add_schema(&mut self, name: &str, schema: &Value) -> ServeResult<()> {
        if self.schemas.has(name) {
            return Ok(());
        }
        if self.version == OpenApiVersion::V3 {
            return self.put_schema(name, schema);
        }
        let schema = v2::convert(schema);
        self.put_schema(name, &schema)?;
        if self.shared_names.contains(name) {
            self.shared.insert(name.to_owned(), schema);
        }
        Ok(())
    }

    fn put_path(&mut self, path: &str, item: &Value) -> ServeResult<()> {
        let entry = match self.version {
            OpenApiVersion::V2 => gnostic::PATH_ENTRY,
            OpenApiVersion::V3 => gnostic_v3::PATH_ENTRY,
        };
        let encoded = self.encode_entry(entry, path, item);
        self.paths.put(path, encoded).map_err(|error| internal(&error))
    }

    fn put_schema(&mut self, name: &str, schema: &Value) -> ServeResult<()> {
        let entry = match self.version {
            OpenApiVersion::V2 => gnostic::SCHEMA_ENTRY,
            OpenApiVersion::V3 => gnostic_v3::SCHEMA_ENTRY,
        };
        let encoded = self.encode_entry(entry, name, schema);
        self.schemas.put(name, encoded).map_err(|error| internal(&error))
    }

    fn encode_entry(&self, (number, form): (u32, GnosticForm), name: &str, value: &Value) -> Vec<u8> {
        if !self.is_protobuf {
            return format!("{}:{value}", Value::from(name)).into_bytes();
        }
        let mut bytes = Vec::new();
        gnostic::write_named(&mut bytes, number, name, form, value);
        bytes
    }

    /// Adds the parts of extension servers.
    fn merge_extensions(&mut self) -> ServeResult<()> {
        let (mut paths, mut definitions) = (Map::new(), std::mem::take(&mut self.shared));
        for part in &self.extended {
            part.merge_into(&mut paths, &mut definitions, |name| self.schemas.has(name));
        }
        for (name, definition) in definitions {
            self.put_schema(&name, &definition)?;
        }
        for (path, item) in paths {
            if !self.paths.has(&path) {
                self.put_path(&path, &item)?;
            }
        }
        Ok(())
    }

    /// Returns the document.
    pub fn finish(mut self) -> ServeResult<PackedDocument> {
        self.merge_extensions()?;
        let mut packer = DocumentPacker::default();
        let is_protobuf = self.is_protobuf;
        let written = if is_protobuf { self.write_protobuf(&mut packer) } else { self.write_json(&mut packer) };
        written.and_then(|()| packer.finish()).map_err(|error| internal(&error))
    }

    /// Returns the document without paths and schemas, and the name of the map of schemas.
    fn frame(&self) -> (Value, &'static str) {
        let info = json!({"title": "Kubernetes", "version": KUBERNETES});
        match self.version {
            OpenApiVersion::V2 => {
                let document = json!({
                    "swagger": "2.0", "info": info, "paths": {}, "definitions": {},
                    "security": [{"BearerToken": []}], "securityDefinitions": v2::security_definitions(),
                });
                (document, "definitions")
            }
            OpenApiVersion::V3 => {
                let security = json!({"BearerToken": {"type": "http", "scheme": "bearer"}});
                let components = json!({"schemas": {}, "securitySchemes": security});
                let document = json!({"openapi": "3.0.0", "info": info, "paths": {}, "components": components});
                (document, "schemas")
            }
        }
    }

    /// Writes JSON. The schemas come before the paths, because members are in the order of their names.
    fn write_json(self, document: &mut impl Write) -> io::Result<()> {
        let (frame, schemas) = self.frame();
        let text = frame.to_string();
        let mut rest = text.as_str();
        for (map, entries) in [(schemas, self.schemas), ("paths", self.paths)] {
            let start = format!("{map:?}:{{");
            let end = rest.find(&start).map_or(rest.len(), |at| at + start.len());
            let (before, after) = rest.split_at(end);
            document.write_all(before.as_bytes())?;
            entries.write(document, b",")?;
            rest = after;
        }
        document.write_all(rest.as_bytes())?;
        document.write_all(b"\n")
    }

    /// Writes protobuf, whose fields are in the order of their numbers: the paths come before the schemas.
    fn write_protobuf(self, document: &mut impl Write) -> io::Result<()> {
        let (frame, _) = self.frame();
        let fields = |message: &GnosticMessage, names: &[&str], value: &Value| {
            let chosen = value.as_object().into_iter().flatten().filter(|(name, _)| names.contains(&name.as_str()));
            let chosen: Map<String, Value> = chosen.map(|(name, value)| (name.clone(), value.clone())).collect();
            let mut bytes = Vec::new();
            message.write(&mut bytes, &chosen.into());
            bytes
        };
        match self.version {
            OpenApiVersion::V2 => {
                document.write_all(&fields(&gnostic::DOCUMENT, &["swagger", "info"], &frame))?;
                self.paths.write_field(document, gnostic::PATHS)?;
                self.schemas.write_field(document, gnostic::DEFINITIONS)?;
                document.write_all(&fields(&gnostic::DOCUMENT, &["securityDefinitions"], &frame))
            }
            OpenApiVersion::V3 => {
                document.write_all(&fields(&gnostic_v3::DOCUMENT, &["openapi", "info"], &frame))?;
                self.paths.write_field(document, gnostic_v3::PATHS)?;
                let schemas = field_head(gnostic_v3::SCHEMAS, self.schemas.length);
                let security = fields(&gnostic_v3::COMPONENTS, &["securitySchemes"], &frame["components"]);
                let length = schemas.len() + self.schemas.length + security.len();
                document.write_all(&field_head(gnostic_v3::COMPONENTS_NUMBER, length))?;
                self.schemas.write_field(document, gnostic_v3::SCHEMAS)?;
                document.write_all(&security)
            }
        }
    }
}

/// The key and the length of a field.
fn field_head(number: u32, length: usize) -> Vec<u8> {
    let mut head = Vec::new();
    write_key(&mut head, number, WireType::Length);
    write_varint(&mut head, length as u64);
    head
}

fn internal(error: &dyn std::fmt::Display) -> Status {
    Status::new(Reason::InternalError, error.to_string())
}

/// Encoded entries of a map by name.
#[derive(Default)]
struct Entries {
    by_name: BTreeMap<String, Entry>,
    /// The length of all of them.
    length: usize,
}

impl Entries {
    fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    fn put(&mut self, name: &str, encoded: Vec<u8>) -> io::Result<()> {
        self.length += encoded.len();
        if let Some(replaced) = self.by_name.insert(name.to_owned(), Entry::new(encoded)?) {
            self.length -= replaced.length();
        }
        Ok(())
    }

    /// Writes them, with a separator between each two.
    fn write(self, document: &mut impl Write, separator: &[u8]) -> io::Result<()> {
        for (place, entry) in self.by_name.into_values().enumerate() {
            if place > 0 {
                document.write_all(separator)?;
            }
            entry.write(document)?;
        }
        Ok(())
    }

    /// Writes them as a field of a message.
    fn write_field(self, document: &mut impl Write, number: u32) -> io::Result<()> {
        document.write_all(&field_head(number, self.length))?;
        self.write(document, b"")
    }
}

/// An encoded entry.
enum Entry {
    Plain(Box<[u8]>),
    /// A long one, compressed, and its length.
    Packed(Box<[u8]>, usize),
}

impl Entry {
    fn new(encoded: Vec<u8>) -> io::Result<Entry> {
        if encoded.len() < MIN_PACKED_BYTES {
            return Ok(Entry::Plain(encoded.into()));
        }
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&encoded)?;
        Ok(Entry::Packed(encoder.finish()?.into(), encoded.len()))
    }

    fn length(&self) -> usize {
        match self {
            Entry::Plain(bytes) => bytes.len(),
            Entry::Packed(_, length) => *length,
        }
    }

    fn write(self, document: &mut impl Write) -> io::Result<()> {
        match self {
            Entry::Plain(bytes) => document.write_all(&bytes),
            Entry::Packed(packed, _) => io::copy(&mut DeflateDecoder::new(&*packed), document).map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::protobuf::wire::WireReader;

    fn parts(version: OpenApiVersion, is_protobuf: bool) -> Vec<u8> {
        let mut parts = DocumentParts::new(version, is_protobuf);
        let get = json!({"operationId": "o", "responses": {"200": {"description": "OK"}}});
        let paths = json!({"/b": {"get": get}, "/a": {"get": get}});
        parts.add_paths(paths.as_object().unwrap().clone()).unwrap();
        let list = json!({"type": "array", "items": {"$ref": "#/components/schemas/x"}, "default": "d", "x-y": [1]});
        let long = json!({"type": "string", "description": "long ".repeat(MIN_PACKED_BYTES)});
        for (name, schema) in [("S", &list), ("Long", &long), ("S", &long)] {
            parts.add_schema(name, schema).unwrap();
        }
        parts.finish().unwrap().unpack().unwrap()
    }

    #[test]
    fn json_has_its_members_in_order() {
        for (version, place, start) in [
            (OpenApiVersion::V2, "/definitions", r#"{"definitions":{"Long":{"description":"long "#),
            (OpenApiVersion::V3, "/components/schemas", r#"{"components":{"schemas":{"Long":{"description":"long "#),
        ] {
            let text = String::from_utf8(parts(version, false)).unwrap();
            assert!(text.starts_with(start), "{}", &text[..80]);
            let document: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(text, format!("{document}\n"));
            assert_eq!(document.pointer(place).unwrap()["S"]["default"], "d", "the first one counts");
            assert_eq!(document["paths"].as_object().unwrap().len(), 2);
        }
    }

    #[test]
    fn protobuf_is_encoded_as_gnostic_reads_it() {
        let bytes = parts(OpenApiVersion::V3, true);
        let has = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
        assert!(bytes.starts_with(b"\x0a\x053.0.0\x12"));
        assert!(has(b"\x0a\x03200\x12\x06\x0a\x04\x0a\x02OK"));
        assert!(has(b"\xca\x01\x05array"));
        assert!(has(b"\x8a\x02\x03\x1a\x01d"));
        assert!(has(b"\xa2\x02\x0d\x0a\x03x-y\x12\x06\x12\x04[1]\n"));
        for version in [OpenApiVersion::V2, OpenApiVersion::V3] {
            let bytes = parts(version, true);
            let mut reader = WireReader::new(&bytes, "Document");
            let mut numbers = Vec::new();
            while let Some((number, wire)) = reader.next_key().unwrap() {
                reader.expect_bytes(wire, "field").unwrap();
                numbers.push(number);
            }
            let expected: &[u32] = if version == OpenApiVersion::V2 { &[1, 2, 8, 9, 13] } else { &[1, 2, 4, 5] };
            assert_eq!(numbers, expected);
        }
    }
}
