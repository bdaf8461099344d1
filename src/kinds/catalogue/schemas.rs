//! OpenAPI schemas of the built-in kinds, for the API, `explain` and the type checks of policies.
//!
//! They come from `k8s-openapi`, packed by the test in `tests/schema.rs`, and are unpacked only when needed.

use super::super::image;
use flate2::{Decompress, FlushDecompress};
use serde_json::{Map, Value, json};

/// The compressed schemas, half a megabyte. They are decompressed only when needed.
const PACKED: &[u8] = include_bytes!("schema.json.gz");

/// Maximum number of schemas inside each other.
const MAX_DEPTH: usize = 32;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

const IMAGE: &str = "dev.kloop.v1alpha1.Image";

/// Decompresses the file, which has the shortest header of gzip, and its length at its end.
fn unpack() -> Vec<u8> {
    const HEADER: usize = 10;
    let length = PACKED.last_chunk().map_or(0, |length| u32::from_le_bytes(*length) as usize);
    let mut text = Vec::with_capacity(length + 1);
    let packed = PACKED.get(HEADER..).unwrap_or_default();
    // The tests read the file: it is whole.
    let _ = Decompress::new(false).decompress_vec(packed, &mut text, FlushDecompress::Finish);
    text
}

/// The schemas of all built-in kinds, which refer to each other by name.
pub struct KindSchemas(Value);

impl KindSchemas {
    /// Decompresses the schemas.
    pub fn built_in() -> KindSchemas {
        let mut all: Value = serde_json::from_slice(&unpack()).unwrap_or_default();
        // kloop's own kind is written as a schema.
        let mut schema: Value = serde_json::from_str(image::SCHEMA).unwrap_or_default();
        schema["properties"]["metadata"]["$ref"] = json!(format!("#/$defs/{OBJECT_META}"));
        all["definitions"][IMAGE] = schema;
        all["kinds"][format!("{}/{}", image::KIND.api_version(), image::KIND.kind)] = json!(IMAGE);
        KindSchemas(all)
    }

    /// Returns the schema of a built-in kind in one version.
    pub fn kind(&self, api_version: &str, kind: &str) -> Option<&Value> {
        self.definition(self.0["kinds"][format!("{api_version}/{kind}")].as_str()?)
    }

    /// Returns the name of the schema of a built-in kind in one version.
    pub fn name(&self, api_version: &str, kind: &str) -> Option<&str> {
        self.0["kinds"][format!("{api_version}/{kind}")].as_str()
    }

    /// Collects every schema that this one refers to, directly or indirectly.
    pub fn reach(&self, schema: &Value, found: &mut Map<String, Value>) {
        if let Some(name) =
            schema.get("$ref").and_then(Value::as_str).and_then(|reference| reference.rsplit('/').next())
            && !found.contains_key(name)
            && let Some(definition) = self.definition(name)
        {
            found.insert(name.to_owned(), definition.clone());
            self.reach(definition, found);
        }
        match schema {
            Value::Object(map) => map.values().for_each(|value| self.reach(value, found)),
            Value::Array(list) => list.iter().for_each(|value| self.reach(value, found)),
            _ => {}
        }
    }

    /// Returns the schema that a reference names.
    pub fn follow(&self, schema: &Value) -> Option<&Value> {
        let reference = schema.get("$ref")?.as_str()?;
        self.definition(reference.rsplit('/').next()?)
    }

    /// Returns a schema by name.
    pub fn definition(&self, name: &str) -> Option<&Value> {
        self.0["definitions"].get(name)
    }

    /// Returns a schema with the schemas that it refers to in their places, but for those that contain themselves.
    pub fn expand(&self, schema: &Value) -> Value {
        self.expand_inside(schema, &mut Vec::new())
    }

    fn expand_inside<'s>(&'s self, schema: &'s Value, inside: &mut Vec<&'s str>) -> Value {
        match schema {
            Value::Object(map) => {
                match map.get("$ref").and_then(Value::as_str).and_then(|name| name.rsplit('/').next()) {
                    Some(name) if inside.contains(&name) || inside.len() == MAX_DEPTH => Value::Null,
                    Some(name) => {
                        inside.push(name);
                        let expanded = self.definition(name).map(|found| self.expand_inside(found, inside));
                        inside.pop();
                        expanded.unwrap_or_default()
                    }
                    None => {
                        let entry =
                            |(name, value): (&String, &'s Value)| (name.clone(), self.expand_inside(value, inside));
                        Value::Object(map.iter().map(entry).collect())
                    }
                }
            }
            Value::Array(list) => list.iter().map(|item| self.expand_inside(item, inside)).collect(),
            other => other.clone(),
        }
    }

    /// Returns the schema of a custom kind in one version, or in the stored version: the
    /// definition's schema, and the fields that every object has.
    pub fn custom(&self, definition: &Value, version: Option<&str>) -> Option<(String, Value)> {
        let versions = definition["spec"]["versions"].as_array()?;
        let wanted = |known: &&Value| match version {
            Some(version) => known["name"] == version && known["served"] == true,
            None => known["storage"] == true,
        };
        let found = versions.iter().find(wanted)?;
        let mut schema = found["schema"]["openAPIV3Schema"].clone();
        if !schema.is_object() {
            schema = json!({ "type": "object" });
        }
        // Takes the schemas of these fields from ConfigMap; they are the same for all kinds.
        let usual = self.kind("v1", "ConfigMap")?;
        for field in ["apiVersion", "kind"] {
            schema["properties"][field] = usual["properties"][field].clone();
        }
        let mut metadata = usual["properties"]["metadata"].clone();
        metadata["$ref"] = json!(format!("#/$defs/{OBJECT_META}"));
        schema["properties"]["metadata"] = metadata;
        Some((found["name"].as_str()?.to_owned(), schema))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;

    #[test]
    fn every_version_of_every_kind_has_a_schema() {
        let schemas = KindSchemas::built_in();
        let mut missing = Vec::new();
        for kind in kinds::ALL {
            let also = kind.also.iter().map(|version| (*version).to_owned());
            for version in std::iter::once(kind.api_version()).chain(also) {
                if schemas.kind(&version, kind.kind).is_none() {
                    missing.push(format!("{version}/{}", kind.kind));
                }
            }
        }
        assert_eq!(missing, Vec::<String>::new(), "see tests/schema.rs");
    }

    #[test]
    fn every_reference_has_a_schema() {
        fn check(schemas: &KindSchemas, schema: &Value, lost: &mut Vec<String>) {
            if schema.get("$ref").is_some_and(Value::is_string) && schemas.follow(schema).is_none() {
                lost.push(schema["$ref"].to_string());
            }
            match schema {
                Value::Object(map) => map.values().for_each(|value| check(schemas, value, lost)),
                Value::Array(list) => list.iter().for_each(|value| check(schemas, value, lost)),
                _ => {}
            }
        }
        let (schemas, mut lost) = (KindSchemas::built_in(), Vec::new());
        check(&schemas, &schemas.0["definitions"], &mut lost);
        assert_eq!(lost, Vec::<String>::new());
    }
}
