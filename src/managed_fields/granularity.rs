//! Ownership granularity of fields: which lists are maps or sets, and which maps and structs are atomic.
//!
//! Built-in kinds carry tables by type (`Kind::shape`), custom resources their schemas. Strategic merge patches have
//! different keys (`Kind::merge_rules`).

use super::expected_form::ExpectedForm;
use crate::kinds::Kind;
use crate::kinds::catalogue::shapes;
use crate::object::Object;
use crate::object::struct_shape::{FieldForm, FieldShape, in_place, map};
use serde_json::Value;

/// Type information of a value.
#[derive(Clone, Copy, Debug)]
pub enum ValueShape {
    /// A built-in kind.
    BuiltIn(FieldShape),
    /// A custom resource: its schema, and whether the value is a complete object, with its version, kind and metadata.
    Custom(&'static Value, bool),
    /// The metadata of a custom resource, whose fields are all known.
    Metadata,
    /// Unknown: lists are atomic, maps have an owner for each field.
    Unknown,
}

/// Identity of a list's items.
pub enum ListShape {
    /// Items are not identified.
    Atomic,
    /// By their value.
    Set,
    /// By these fields, in order; a key may have a default.
    Keyed(Vec<(&'static str, Option<Value>)>),
}

/// The fields of `ObjectMeta`.
const METADATA_FIELDS: [&str; 15] = [
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

impl ValueShape {
    /// The type of a complete object. That of a custom kind belongs to the version in which the object is written.
    pub fn for_object(kind: &Kind, object: &Object) -> ValueShape {
        match kind.custom {
            Some(custom) => custom
                .schema(object.api_version())
                .map_or(ValueShape::Unknown, |schema| ValueShape::Custom(schema, true)),
            None => ValueShape::BuiltIn(in_place(map(kind.shape))),
        }
    }

    /// The type of a part of a custom resource.
    fn from_schema(schema: &'static Value) -> ValueShape {
        ValueShape::Custom(schema, schema["x-kubernetes-embedded-resource"] == true)
    }

    /// Whether it is atomic, although it may be a map.
    pub fn is_atomic(self) -> bool {
        match self {
            ValueShape::BuiltIn(field) => matches!(field.form, FieldForm::Atomic),
            ValueShape::Custom(schema, _) => schema["x-kubernetes-map-type"] == "atomic",
            ValueShape::Metadata | ValueShape::Unknown => false,
        }
    }

    /// Returns the error for a value of another form than a custom resource's schema declares. Built-in kinds are decoded, which checks
    /// them.
    pub fn mismatch(self, value: &Value) -> Option<String> {
        let ValueShape::Custom(schema, _) = self else { return None };
        let expected = match schema["type"].as_str() {
            _ if schema["x-kubernetes-int-or-string"] == true => ExpectedForm::Scalar,
            Some("integer" | "number") => ExpectedForm::Numeric,
            Some("string") => ExpectedForm::Text,
            Some("boolean") => ExpectedForm::Boolean,
            Some("array") => ExpectedForm::List,
            Some("object") => ExpectedForm::Map,
            _ => return None,
        };
        expected.mismatch(value)
    }

    /// Whether it exists even in an empty object.
    pub fn is_in_place(self) -> bool {
        matches!(self, ValueShape::BuiltIn(field) if field.in_place)
    }

    /// The type of a field, and whether the type declares the field (entries of a map are not declared). `None` for an
    /// unknown field of a custom resource; the tables of built-in types are incomplete.
    pub fn field(self, name: &str) -> Option<(ValueShape, bool)> {
        match self {
            ValueShape::BuiltIn(field) => Some((ValueShape::BuiltIn(field.of.field(name)), true)),
            ValueShape::Unknown => Some((ValueShape::Unknown, false)),
            ValueShape::Metadata => {
                METADATA_FIELDS.contains(&name).then(|| (ValueShape::BuiltIn(shapes::METADATA.field(name)), true))
            }
            ValueShape::Custom(_, true) if name == "metadata" => Some((ValueShape::Metadata, true)),
            ValueShape::Custom(_, true) if ["apiVersion", "kind"].contains(&name) => Some((ValueShape::Unknown, true)),
            ValueShape::Custom(schema, _) => {
                let is = |word: &str| schema[word] == true;
                if let Some(known) = schema["properties"].get(name) {
                    return Some((ValueShape::from_schema(known), true));
                }
                if schema["additionalProperties"].is_object() {
                    return Some((ValueShape::from_schema(&schema["additionalProperties"]), false));
                }
                let keeps_all = is("x-kubernetes-preserve-unknown-fields") || schema["additionalProperties"] == true;
                let is_free = keeps_all || !schema.is_object() || schema.as_object().is_some_and(|map| map.is_empty());
                is_free.then_some((ValueShape::Unknown, false))
            }
        }
    }

    /// Returns how items of a list of this type are identified.
    pub fn list(self) -> ListShape {
        match self {
            ValueShape::BuiltIn(FieldShape { form: FieldForm::Set, .. }) => ListShape::Set,
            ValueShape::BuiltIn(FieldShape { form: FieldForm::Keyed(keys) | FieldForm::KeyedAtomic(keys), .. }) => {
                ListShape::Keyed(keys.iter().map(|(key, default)| (*key, default.map(Value::from))).collect())
            }
            ValueShape::Custom(schema, _) if schema["x-kubernetes-list-type"] == "set" => ListShape::Set,
            ValueShape::Custom(schema, _) if schema["x-kubernetes-list-type"] == "map" => {
                let keys = schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
                let default = |key: &str| schema["items"]["properties"][key].get("default").cloned();
                let mut keys: Vec<_> = keys.filter_map(Value::as_str).map(|key| (key, default(key))).collect();
                keys.sort_by_key(|(key, _)| *key);
                ListShape::Keyed(keys)
            }
            _ => ListShape::Atomic,
        }
    }

    /// The type of a list's items.
    pub fn item(self) -> ValueShape {
        match self {
            ValueShape::BuiltIn(FieldShape { form: FieldForm::KeyedAtomic(_), .. }) => {
                ValueShape::BuiltIn(shapes::ATOMIC)
            }
            ValueShape::BuiltIn(field) => ValueShape::BuiltIn(map(field.of)),
            ValueShape::Custom(schema, _) => ValueShape::from_schema(&schema["items"]),
            ValueShape::Metadata | ValueShape::Unknown => ValueShape::Unknown,
        }
    }

    /// The type of the value after a step of a path.
    pub fn step(self, step: &str) -> ValueShape {
        match step.strip_prefix("f:") {
            Some(name) => self.field(name).map_or(ValueShape::Unknown, |(of, _)| of),
            None => self.item(),
        }
    }
}
