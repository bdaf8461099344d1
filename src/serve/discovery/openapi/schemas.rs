//! The schemas of a version of a group in OpenAPI 3.
//!
//! Knows: the schemas besides those of the kinds, and the form of references, unions and merge rules.

use super::operations::{list_schema, reference};
use crate::kinds::catalogue::merge_rules::schema_for;
use crate::kinds::catalogue::schemas::KindSchemas;
use crate::object::merge::schema::MergeSchemaRef;
use crate::object::struct_shape::{FieldForm, StructShape};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const RAW: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";

/// Types whose values have one owner as a whole after server-side apply (`+structType=atomic`).
const ATOMIC_TYPES: [&str; 14] = [
    ".api.core.v1.ConfigMapKeySelector",
    ".api.core.v1.LocalObjectReference",
    ".api.core.v1.NodeSelector",
    ".api.core.v1.NodeSelectorTerm",
    ".api.core.v1.ObjectFieldSelector",
    ".api.core.v1.ObjectReference",
    ".api.core.v1.ResourceFieldSelector",
    ".api.core.v1.ScopeSelector",
    ".api.core.v1.SecretKeySelector",
    ".api.core.v1.SecretReference",
    ".api.core.v1.TopologySelectorTerm",
    ".api.core.v1.TypedLocalObjectReference",
    ".api.rbac.v1.RoleRef",
    ".meta.v1.LabelSelector",
];

/// Types whose values may have any JSON type, although `k8s-openapi` declares one.
const ANY_TYPE: [&str; 4] =
    [".JSON", ".JSONSchemaPropsOrArray", ".JSONSchemaPropsOrBool", ".JSONSchemaPropsOrStringArray"];

/// A set of schemas being built.
pub struct SchemaSet<'a> {
    all: &'a KindSchemas,
    found: Map<String, Value>,
}

impl<'a> SchemaSet<'a> {
    /// Makes a set with the schemas of every version: options, errors, patches and events of watches.
    pub fn new(all: &'a KindSchemas) -> SchemaSet<'a> {
        let mut set = SchemaSet { all, found: Map::new() };
        for kind in ["DeleteOptions", "Status", "ListMeta"] {
            let own = json!({"group": "", "version": "v1", "kind": kind});
            set.add_named(&format!("{META}.{kind}"), (kind != "ListMeta").then_some(own));
        }
        set.add_named(RAW, None);
        let patch = json!({"type": "object", "description": "The body of a patch."});
        set.found.insert(format!("{META}.Patch"), patch);
        let event = json!({
            "type": "object", "description": "An event of a watch.", "required": ["type", "object"],
            "properties": {"type": {"type": "string"}, "object": {"$ref": format!("#/$defs/{RAW}")}},
            "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "WatchEvent"}],
        });
        set.found.insert(format!("{META}.WatchEvent"), event);
        let resources = json!({
            "type": "object", "description": "The resources of a version.", "required": ["groupVersion", "resources"],
            "properties": {
                "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "groupVersion": {"type": "string"},
                "resources": {"type": "array", "items": {"type": "object"}},
            },
            "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "APIResourceList"}],
        });
        set.found.insert(format!("{META}.APIResourceList"), resources);
        set
    }

    /// Adds a built-in schema by its name, with all schemas that it refers to.
    pub fn add_named(&mut self, name: &str, own: Option<Value>) {
        let Some(schema) = self.all.definition(name) else { return };
        self.add(name, schema.clone(), own);
    }

    /// Adds a schema, with all schemas that it refers to. `own`: group, version and kind.
    pub fn add(&mut self, name: &str, mut schema: Value, own: Option<Value>) {
        self.all.reach(&schema, &mut self.found);
        if let Some(own) = own {
            schema["x-kubernetes-group-version-kind"] = json!([own]);
        }
        self.found.insert(name.to_owned(), schema);
    }

    /// Adds the schema of lists of a kind.
    pub fn add_list(&mut self, name: &str, own: &Value) {
        let kind = format!("{}List", own["kind"].as_str().unwrap_or_default());
        let status = self.found.get(&format!("{META}.Status"));
        let head = |field: &str| status.map(|status| status["properties"][field].clone()).unwrap_or_default();
        let metadata = json!({"$ref": format!("#/$defs/{META}.ListMeta"), "description": "Standard list metadata."});
        let items =
            json!({"type": "array", "items": {"$ref": format!("#/$defs/{name}")}, "description": "The objects."});
        let list = json!({
            "type": "object", "description": format!("{kind} is a list of {}.", own["kind"].as_str().unwrap_or_default()),
            "required": ["items"],
            "properties": {"apiVersion": head("apiVersion"), "kind": head("kind"), "metadata": metadata, "items": items},
            "x-kubernetes-group-version-kind": [{"group": own["group"], "version": own["version"], "kind": kind}],
        });
        self.found.insert(list_schema(name), list);
    }

    /// Adds the merge rules of a kind to the schemas of its types: clients need them for strategic merge patches.
    pub fn add_merge_rules(&mut self, name: &str, api_version: &str, kind: &str) {
        if let Some(rules) = schema_for(api_version, kind) {
            self.write_rules(name, rules);
        }
    }

    fn write_rules(&mut self, name: &str, rules: MergeSchemaRef) {
        for (field, rule) in rules.fields() {
            let Some(property) = self.found.get_mut(name).and_then(|schema| schema["properties"].get_mut(field)) else {
                continue;
            };
            if let Some(strategy) = rule.patch_strategy() {
                property["x-kubernetes-patch-strategy"] = strategy.into();
            }
            if let Some(key) = rule.merge_key() {
                property["x-kubernetes-patch-merge-key"] = key.into();
            }
            let of = property.get("$ref").or_else(|| property["items"].get("$ref")).and_then(Value::as_str);
            if let Some(inner) = of.and_then(|of| of.rsplit('/').next()).map(str::to_owned) {
                self.write_rules(&inner, rule.inner());
            }
        }
    }

    /// Adds to the schemas of a kind's types which of their parts have an owner each after server-side apply.
    pub fn add_shape(&mut self, name: &str, shape: &StructShape) {
        self.write_shape(name, shape, &mut BTreeSet::new());
    }

    fn write_shape(&mut self, name: &str, shape: &StructShape, written: &mut BTreeSet<String>) {
        if !written.insert(name.to_owned()) {
            return;
        }
        for (field, shape) in shape.fields() {
            let Some(property) = self.found.get_mut(name).and_then(|schema| schema["properties"].get_mut(field)) else {
                continue;
            };
            let of = property.get("$ref").or_else(|| property["items"].get("$ref")).and_then(Value::as_str);
            let inner = of.and_then(|of| of.rsplit('/').next()).map(str::to_owned);
            let is_list = property["type"] == "array";
            match shape.form {
                FieldForm::Set => property["x-kubernetes-list-type"] = "set".into(),
                FieldForm::Keyed(keys) | FieldForm::KeyedAtomic(keys) => {
                    write_keys(property, keys.iter().map(|(key, _)| *key).collect());
                }
                // The schema of an atomic struct says so itself (ATOMIC_TYPES).
                FieldForm::Atomic if !is_list && inner.is_none() => {
                    property["x-kubernetes-map-type"] = "atomic".into();
                }
                FieldForm::Atomic | FieldForm::Plain => {}
            }
            if let Some(inner) = inner {
                self.write_shape(&inner, shape.of, written);
            }
        }
    }

    /// Takes out the schemas of a kind and of its lists, which no other kind refers to.
    pub fn take_kind(&mut self, name: &str) -> impl Iterator<Item = (String, Value)> {
        let names = [name.to_owned(), list_schema(name)];
        let taken = names.map(|name| self.found.remove_entry(&name));
        taken.into_iter().flatten().map(|(name, schema)| complete(name, schema))
    }

    /// Returns the schemas by name.
    pub fn finish(self) -> impl Iterator<Item = (String, Value)> {
        self.found.into_iter().map(|(name, schema)| complete(name, schema))
    }
}

/// Gives a schema the form of Kubernetes' API server.
fn complete(name: String, mut schema: Value) -> (String, Value) {
    if name.starts_with("io.k8s.") {
        write_atomic_lists(&mut schema);
    }
    if ATOMIC_TYPES.iter().any(|end| name.ends_with(end)) {
        schema["x-kubernetes-map-type"] = "atomic".into();
    }
    if ANY_TYPE.iter().any(|end| name.ends_with(end)) {
        schema = json!({"description": schema["description"]});
    }
    normalize(&mut schema);
    (name, schema)
}

fn write_keys(property: &mut Value, keys: Vec<&str>) {
    property["x-kubernetes-list-type"] = "map".into();
    property["x-kubernetes-list-map-keys"] = keys.into();
}

/// Marks the lists of a built-in type that are nothing else as atomic.
fn write_atomic_lists(schema: &mut Value) {
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    let lists = properties.into_iter().flat_map(Map::values_mut).filter(|property| property["type"] == "array");
    for list in lists.filter_map(Value::as_object_mut) {
        list.entry("x-kubernetes-list-type").or_insert_with(|| "atomic".into());
    }
}

/// Converts a schema to the form of Kubernetes' API server.
fn normalize(schema: &mut Value) {
    let Some(map) = schema.as_object_mut() else { return };
    if map.get("required").and_then(Value::as_array).is_some_and(Vec::is_empty) {
        map.remove("required");
    }
    // A Go type that is an integer or a string; custom kinds have their own form.
    if map.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true))
        && map.len() == 2
        && map.contains_key("description")
    {
        map.remove("x-kubernetes-int-or-string");
        map.insert("format".into(), "int-or-string".into());
        map.insert("oneOf".into(), json!([{"type": "integer"}, {"type": "string"}]));
    }
    let name = map.get("$ref").and_then(Value::as_str).and_then(|of| of.strip_prefix("#/$defs/")).map(reference);
    if let Some(reference) = name {
        // A schema with a reference ignores its other fields.
        map.remove("$ref");
        match map.is_empty() {
            true => *schema = reference,
            false => drop(map.insert("allOf".into(), json!([reference]))),
        }
        return;
    }
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        properties.values_mut().for_each(normalize);
    }
    for inner in ["items", "additionalProperties", "not"] {
        if let Some(inner) = map.get_mut(inner) {
            normalize(inner);
        }
    }
    for list in ["allOf", "anyOf", "oneOf"] {
        map.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten().for_each(normalize);
    }
}
