//! Fields of objects by paths such as `spec/template/metadata/labels`, which pass through the
//! elements of lists.

use super::file::FieldSpec;
use super::id::ResourceId;
use crate::object::{Object, group_of};
use serde_json::{Map, Value};

/// A field of the objects of some kinds.
pub struct BuiltinField {
    /// Group of the kinds; empty for any.
    pub group: &'static str,
    /// The kind; empty for any.
    pub kind: &'static str,
    /// Names separated by slashes. `[]` after a name marks a list, which is never created.
    pub path: &'static str,
    /// Whether missing maps and fields on the path are created.
    pub create: bool,
}

impl BuiltinField {
    /// A field that is created if it is missing.
    pub const fn created(kind: &'static str, path: &'static str) -> BuiltinField {
        BuiltinField { group: "", kind, path, create: true }
    }

    /// A field that is changed only if it exists.
    pub const fn existing(kind: &'static str, path: &'static str) -> BuiltinField {
        BuiltinField { group: "", kind, path, create: false }
    }

    /// Whether objects like this one have the field.
    pub fn applies_to(&self, object: &Object) -> bool {
        let group = group_of(object.api_version());
        (self.kind.is_empty() || self.kind == object.kind()) && (self.group.is_empty() || self.group == group)
    }

    /// Calls `change` on each of the field's values in an object.
    pub fn for_each_value(&self, object: &mut Object, change: &mut dyn FnMut(&mut Value)) {
        if self.applies_to(object) {
            visit_path(&mut object.0, &names(self.path), self.create, change);
        }
    }
}

impl FieldSpec {
    /// A field of all kinds.
    pub fn for_all_kinds(path: &str) -> FieldSpec {
        FieldSpec { path: path.to_owned(), create: true, ..FieldSpec::default() }
    }

    /// Whether objects with this identity have the field.
    pub fn applies_to(&self, id: &ResourceId) -> bool {
        let fits = |wanted: &str, own: &str| wanted.is_empty() || wanted == own;
        fits(&self.group, &id.group) && fits(&self.version, &id.version) && fits(&self.kind, &id.kind)
    }

    /// Calls `change` on each of the field's values in an object.
    pub fn for_each_value(&self, object: &mut Object, change: &mut dyn FnMut(&mut Value)) {
        if self.applies_to(&ResourceId::from_object(object)) {
            visit_path(&mut object.0, &names(&self.path), self.create, change);
        }
    }
}

/// Splits a path into names; a slash in a name is written `\/`.
pub fn names(path: &str) -> Vec<String> {
    path.replace("\\/", "\0").split('/').map(|name| name.replace('\0', "/")).collect()
}

/// Calls `change` on every value at a path.
pub fn visit_path(value: &mut Value, path: &[String], create: bool, change: &mut dyn FnMut(&mut Value)) {
    match (value, path) {
        (Value::Array(items), path) => items.iter_mut().for_each(|item| visit_path(item, path, create, change)),
        (value, []) => change(value),
        (value, [name, path @ ..]) => {
            let (name, is_list) = name.strip_suffix("[]").map_or((name.as_str(), false), |name| (name, true));
            if value.is_null() && create {
                *value = Value::Object(Map::new());
            }
            let Value::Object(map) = value else { return };
            let missing = map.get(name).is_none_or(Value::is_null);
            if missing && (is_list || !create) {
                return;
            }
            visit_path(map.entry(name).or_insert(Value::Null), path, create, change);
        }
    }
}

/// Sets entries of the map at a field. Creates the map if it is missing.
pub fn put<'a>(value: &mut Value, entries: impl IntoIterator<Item = (&'a String, &'a String)>) {
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    if let Value::Object(map) = value {
        map.extend(entries.into_iter().map(|(key, value)| (key.clone(), value.as_str().into())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_pass_through_lists_and_create_maps() {
        for (value, path, create, expected) in [
            (json!({"a": {"b": 1}}), "a/b", false, json!({"a": {"b": "x"}})),
            (json!({"a": [{"b": 1}, {"c": 1}]}), "a/b", false, json!({"a": [{"b": "x"}, {"c": 1}]})),
            (json!({"a": [{"b": 1}, {"c": 1}]}), "a[]/b", true, json!({"a": [{"b": "x"}, {"b": "x", "c": 1}]})),
            (json!({}), "a/b", true, json!({"a": {"b": "x"}})),
            (json!({"a": null}), "a/b", true, json!({"a": {"b": "x"}})),
            (json!({}), "a/b", false, json!({})),
            (json!({}), "a[]/b", true, json!({})),
            (json!({"a": 1}), "a/b", true, json!({"a": 1})),
            (json!({"a": ["p", "q"]}), "a", false, json!({"a": ["x", "x"]})),
            (json!({"a/b": 1}), "a\\/b", false, json!({"a/b": "x"})),
        ] {
            let mut changed = value.clone();
            visit_path(&mut changed, &names(path), create, &mut |value| *value = "x".into());
            assert_eq!(changed, expected, "{path} of {value}");
        }
    }
}
