//! Pruning and defaulting by a structural schema. (k8s.io/apiextensions-apiserver/pkg/apiserver/schema)

use crate::kinds::catalogue::read::nearest;
use crate::kinds::{FieldErrors, FieldPath, UnknownField};
use serde_json::{Map, Value};

/// Fields of every object, even if the schema does not list them.
const HEAD: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Whether a schema sets a keyword to true.
pub fn has_flag(schema: &Value, word: &str) -> bool {
    schema[word] == true
}

/// Whether a schema, or a schema in it, sets a keyword to true.
pub fn contains_flag(schema: &Value, word: &str) -> bool {
    match schema {
        Value::Object(fields) => has_flag(schema, word) || fields.values().any(|inner| contains_flag(inner, word)),
        Value::Array(items) => items.iter().any(|inner| contains_flag(inner, word)),
        _ => false,
    }
}

/// Calls a function for the parts of a value that have a schema.
pub fn visit_parts(
    schema: &Value,
    value: &Value,
    path: &FieldPath,
    visitor: &mut dyn FnMut(&Value, &Value, &FieldPath),
) {
    match value {
        Value::Array(items) if schema["items"].is_object() => {
            items.iter().enumerate().for_each(|(index, item)| visitor(&schema["items"], item, &path.index(index)));
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                let others = &schema["additionalProperties"];
                match schema["properties"].get(name) {
                    Some(schema) => visitor(schema, field, &path.child(name)),
                    None if others.is_object() => visitor(others, field, &path.key(name)),
                    None => {}
                }
            }
        }
        _ => {}
    }
}

/// Drops the fields that are not in a schema, and reports each by its path.
pub fn prune(schema: &'static Value, value: &mut Value, unknown: &mut dyn FnMut(UnknownField)) {
    prune_at(schema, value, "", false, &mut |path, nearest| unknown(UnknownField { path, nearest }));
}

/// Whether every field of a value is in a schema.
pub fn is_pruned(schema: &Value, value: &Value) -> bool {
    let mut is_pruned = true;
    prune_at(schema, &mut value.clone(), "", false, &mut |_, _| is_pruned = false);
    is_pruned
}

/// Callback for a dropped field: its path, and the most similar known field.
type Dropped<'s, 'c> = dyn FnMut(String, Option<&'s str>) + 'c;

/// Prunes a value by a schema; without one, drops every field of an object. `preserves`: whether the list around the
/// value preserves unknown fields.
fn prune_at<'s>(schema: &'s Value, value: &mut Value, path: &str, preserves: bool, unknown: &mut Dropped<'s, '_>) {
    let preserves = preserves || has_flag(schema, "x-kubernetes-preserve-unknown-fields");
    if preserves && schema.is_null() {
        return;
    }
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                prune_at(&schema["items"], item, &format!("{path}[{index}]"), preserves, unknown);
            }
        }
        Value::Object(fields) => prune_fields(schema, fields, path, preserves, unknown),
        _ => {}
    }
}

fn prune_fields<'s>(
    schema: &'s Value,
    fields: &mut Map<String, Value>,
    path: &str,
    preserves: bool,
    unknown: &mut Dropped<'s, '_>,
) {
    let is_resource = has_flag(schema, "x-kubernetes-embedded-resource");
    let others = &schema["additionalProperties"];
    let known = schema["properties"].as_object();
    fields.retain(|name, value| {
        let inside = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match known.and_then(|known| known.get(name)) {
            _ if is_resource && HEAD.contains(&name.as_str()) => {}
            Some(schema) => prune_at(schema, value, &inside, false, unknown),
            // `additionalProperties: true` keeps the field, but no fields below it.
            None if !others.is_null() => prune_at(others, value, &inside, false, unknown),
            None if preserves => {}
            None => {
                let names: Vec<&'s str> = known.into_iter().flat_map(Map::keys).map(String::as_str).collect();
                unknown(inside, nearest(name, &names));
                return false;
            }
        }
        true
    });
}

/// The schema of a field.
fn field_schema<'s>(schema: &'s Value, name: &str) -> &'s Value {
    schema["properties"].get(name).unwrap_or(&schema["additionalProperties"])
}

/// Whether a value is `null` although its schema is not nullable.
fn is_stray_null(schema: &Value, value: &Value) -> bool {
    value.is_null() && schema.is_object() && !has_flag(schema, "nullable")
}

/// Drops `null` fields that are neither nullable nor have a default (defaulting/prunenulls.go).
pub fn drop_nulls(schema: &Value, value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| drop_nulls(&schema["items"], item)),
        Value::Object(fields) => fields.retain(|name, value| {
            let schema = field_schema(schema, name);
            let goes = is_stray_null(schema, value) && schema["default"].is_null();
            if !goes {
                drop_nulls(schema, value);
            }
            !goes
        }),
        _ => {}
    }
}

/// Adds an error for each `null` field that [`drop_nulls`] would drop.
pub fn refuse_nulls(schema: &Value, value: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                refuse_nulls(&schema["items"], item, &path.index(index), errors);
            }
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                let (schema, path) = (field_schema(schema, name), path.child(name));
                let wanted = if has_flag(schema, "x-kubernetes-int-or-string") {
                    Some("integer,string")
                } else {
                    schema["type"].as_str()
                };
                match wanted.filter(|_| is_stray_null(schema, value) && schema["default"].is_null()) {
                    Some(wanted) => {
                        let detail = format!("{path} in body must be of type {wanted}: \"null\"");
                        errors.type_invalid(&path, "null", &detail);
                    }
                    None => refuse_nulls(schema, value, &path, errors),
                }
            }
        }
        _ => {}
    }
}

/// Fills in defaults, also for `null` fields that are not nullable (defaulting/algorithm.go).
pub fn fill_in(schema: &Value, value: &mut Value) {
    let fill_null = |schema: &Value, value: &mut Value| {
        if is_stray_null(schema, value) {
            *value = schema["default"].clone();
        }
        fill_in(schema, value);
    };
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| fill_null(&schema["items"], item)),
        Value::Object(fields) => {
            for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
                if !schema["default"].is_null() && !fields.contains_key(name) {
                    fields.insert(name.clone(), schema["default"].clone());
                }
            }
            fields.iter_mut().for_each(|(name, value)| fill_null(field_schema(schema, name), value));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> &'static Value {
        Box::leak(Box::new(json!({"type": "object", "properties": {
            "spec": {"type": "object", "default": {}, "properties": {
                "sail": {"type": "string", "default": "red"},
                "nothing": {"type": "string", "nullable": true, "default": "x"},
                "cargo": {"type": "array", "items": {"type": "object", "properties": {"kg": {"type": "integer", "default": 1}}}},
                "ports": {"type": "object", "additionalProperties": {"type": "object", "properties": {"n": {"default": 2}}}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"known": {"type": "object"}}},
                "pod": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}},
            }},
        }})))
    }

    #[test]
    fn unknown_fields_are_dropped_and_reported() {
        let mut body = json!({"spec": {"sial": 1, "cargo": [{"kg": 1}, {"weight": 2}], "ports": {"a": {"n": 1, "m": 2}},
            "free": {"any": {"thing": 1}, "known": {"x": 1}}, "pod": {"kind": "Pod", "spec": {}, "status": {}}}, "extra": 1});
        let mut reported = Vec::new();
        prune(schema(), &mut body, &mut |field| reported.push((field.path, field.nearest)));
        let expected = json!({"spec": {"cargo": [{"kg": 1}, {}], "ports": {"a": {"n": 1}},
            "free": {"any": {"thing": 1}, "known": {}}, "pod": {"kind": "Pod", "spec": {}}}});
        assert_eq!(body, expected);
        reported.sort();
        let reported: Vec<(&str, Option<&str>)> =
            reported.iter().map(|(path, nearest)| (path.as_str(), *nearest)).collect();
        assert_eq!(
            reported,
            [
                ("extra", None),
                ("spec.cargo[1].weight", None),
                ("spec.free.known.x", None),
                ("spec.pod.status", None),
                ("spec.ports.a.m", Some("n")),
                ("spec.sial", Some("sail")),
            ]
        );
    }

    #[test]
    fn pruning_respects_preserve_unknown_fields() {
        const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
        // The schema of a field, its value, and the pruned value.
        let cases = [
            (
                json!({PRESERVE: true}),
                json!([{"name": "n", "deep": [{"a": 1}]}]),
                json!([{"name": "n", "deep": [{"a": 1}]}]),
            ),
            (json!({PRESERVE: true}), json!([[{"a": 1}], 2, "x"]), json!([[{"a": 1}], 2, "x"])),
            (
                json!({"type": "array", PRESERVE: true, "items": {"type": "object", "properties": {"k": {"type": "object"}}}}),
                json!([{"k": {"gone": 1}, "kept": {"a": 1}}]),
                json!([{"k": {}, "kept": {"a": 1}}]),
            ),
            (
                json!({"type": "array", "items": {PRESERVE: true}}),
                json!([{"a": {"b": 1}}, [{"c": 1}]]),
                json!([{"a": {"b": 1}}, [{"c": 1}]]),
            ),
            (
                json!({"type": "object", PRESERVE: true, "properties": {"known": {"type": "object", "properties": {"x": {}}}}}),
                json!({"known": {"x": 1, "gone": 1}, "other": {"known": {"gone": 1}}}),
                json!({"known": {"x": 1}, "other": {"known": {"gone": 1}}}),
            ),
            (
                json!({"type": "object", PRESERVE: true, "properties": {"list": {"type": "array", "items": {"type": "object"}}}}),
                json!({"list": [{"gone": 1}]}),
                json!({"list": [{}]}),
            ),
            (
                json!({"type": "object", "additionalProperties": {PRESERVE: true}}),
                json!({"a": [{"b": 1}], "c": {"d": 1}}),
                json!({"a": [{"b": 1}], "c": {"d": 1}}),
            ),
            (
                json!({"type": "object", "additionalProperties": true}),
                json!({"a": 1, "b": {"c": 1}}),
                json!({"a": 1, "b": {}}),
            ),
            (json!({"x-kubernetes-int-or-string": true}), json!("80%"), json!("80%")),
            (json!({"x-kubernetes-int-or-string": true}), json!({"a": 1}), json!({})),
            (
                json!({"type": "object", "x-kubernetes-embedded-resource": true, PRESERVE: true, "properties": {"spec": {"type": "object"}}}),
                json!({"kind": "Pod", "metadata": {"name": "x"}, "spec": {"gone": 1}, "data": {"a": 1}}),
                json!({"kind": "Pod", "metadata": {"name": "x"}, "spec": {}, "data": {"a": 1}}),
            ),
            (
                json!({"type": "array", "items": {"type": "object"}}),
                json!([{"gone": 1}, [{"gone": 1}]]),
                json!([{}, [{}]]),
            ),
        ];
        for (schema, value, left) in cases {
            let schema: &'static Value = Box::leak(Box::new(json!({"properties": {"v": schema}})));
            let mut body = json!({"v": value});
            let mut reported = 0;
            prune(schema, &mut body, &mut |_| reported += 1);
            assert_eq!(body["v"], left, "{schema}");
            assert_eq!(reported > 0, value != left, "{schema}: each dropped field is reported");
        }
    }

    #[test]
    fn invalid_null_is_dropped_or_replaced_by_the_default() {
        let schema = json!({"properties": {
            "plain": {"type": "string"}, "nullable": {"type": "string", "nullable": true}, "default": {"type": "string", "default": "d"},
            "list": {"type": "array", "items": {"type": "object", "properties": {"plain": {"type": "integer"}}}},
            "items": {"type": "array", "items": {"type": "integer", "default": 7}},
            "map": {"type": "object", "additionalProperties": {"type": "string"}},
            "free": {"x-kubernetes-preserve-unknown-fields": true},
        }});
        let mut body = json!({"plain": null, "nullable": null, "default": null, "list": [{"plain": null}, null], "items": [null, 1],
            "map": {"a": null, "b": "c"}, "free": {"any": null}, "unknown": null});
        drop_nulls(&schema, &mut body);
        fill_in(&schema, &mut body);
        let expected = json!({"nullable": null, "default": "d", "list": [{}, null], "items": [7, 1], "map": {"b": "c"}, "free": {"any": null},
            "unknown": null});
        assert_eq!(body, expected);
    }

    #[test]
    fn defaults_are_filled_in_for_missing_fields() {
        let cases = [
            (json!({}), json!({"spec": {"sail": "red", "nothing": "x"}})),
            (json!({"spec": null}), json!({"spec": {"sail": "red", "nothing": "x"}})),
            (
                json!({"spec": {"sail": "white", "nothing": null, "cargo": [{}, {"kg": 3}], "ports": {"a": {}}}}),
                json!({"spec": {"sail": "white", "nothing": null, "cargo": [{"kg": 1}, {"kg": 3}], "ports": {"a": {"n": 2}}}}),
            ),
        ];
        for (mut body, expected) in cases {
            fill_in(schema(), &mut body);
            assert_eq!(body, expected);
        }
    }
}
