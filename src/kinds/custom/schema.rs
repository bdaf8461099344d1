//! What a structural schema makes of a body: unknown fields are dropped, defaults are filled in.
//! (k8s.io/apiextensions-apiserver/pkg/apiserver/schema: pruning, defaulting)

use crate::kinds::UnknownField;
use crate::kinds::read::nearest;
use serde_json::{Map, Value};

/// What every object has, and a schema need not say.
const HEAD: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Whether a schema says so.
pub fn is(schema: &Value, word: &str) -> bool {
    schema[word] == true
}

/// Drops the fields that a schema does not know; each is told by its path.
pub fn prune(schema: &'static Value, value: &mut Value, unknown: &mut dyn FnMut(UnknownField)) {
    prune_at(schema, value, "", unknown);
}

fn prune_at(schema: &'static Value, value: &mut Value, path: &str, unknown: &mut dyn FnMut(UnknownField)) {
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                prune_at(&schema["items"], item, &format!("{path}[{index}]"), unknown);
            }
        }
        Value::Object(fields) => prune_fields(schema, fields, path, unknown),
        _ => {}
    }
}

fn prune_fields(
    schema: &'static Value,
    fields: &mut Map<String, Value>,
    path: &str,
    unknown: &mut dyn FnMut(UnknownField),
) {
    let keeps_all = is(schema, "x-kubernetes-preserve-unknown-fields");
    let is_object = is(schema, "x-kubernetes-embedded-resource");
    let others = &schema["additionalProperties"];
    let known = schema["properties"].as_object();
    fields.retain(|name, value| {
        let inside = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match known.and_then(|known| known.get(name)) {
            Some(schema) => prune_at(schema, value, &inside, unknown),
            None if is_object && HEAD.contains(&name.as_str()) => {}
            None if others.is_object() => prune_at(others, value, &inside, unknown),
            None if keeps_all || *others == true => {}
            None => {
                let names: Vec<&'static str> = known.into_iter().flat_map(Map::keys).map(String::as_str).collect();
                unknown(UnknownField { nearest: nearest(name, &names), path: inside });
                return false;
            }
        }
        true
    });
}

/// Fills in defaults. A `null` where none may be is as good as nothing.
pub fn fill_in(schema: &Value, value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| fill_in(&schema["items"], item)),
        Value::Object(fields) => {
            let known = schema["properties"].as_object();
            for (name, schema) in known.into_iter().flatten() {
                let Some(default) = schema.get("default").filter(|default| !default.is_null()) else { continue };
                let is_missing = match fields.get(name) {
                    None => true,
                    Some(value) => value.is_null() && !is(schema, "nullable"),
                };
                if is_missing {
                    fields.insert(name.clone(), default.clone());
                }
            }
            let others = &schema["additionalProperties"];
            for (name, value) in fields.iter_mut() {
                match known.and_then(|known| known.get(name)) {
                    Some(schema) => fill_in(schema, value),
                    None if others.is_object() => fill_in(others, value),
                    None => {}
                }
            }
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
    fn unknown_fields_are_dropped_and_told() {
        let mut body = json!({"spec": {"sial": 1, "cargo": [{"kg": 1}, {"weight": 2}], "ports": {"a": {"n": 1, "m": 2}},
            "free": {"any": {"thing": 1}, "known": {"x": 1}}, "pod": {"kind": "Pod", "spec": {}, "status": {}}}, "extra": 1});
        let mut told = Vec::new();
        prune(schema(), &mut body, &mut |field| told.push((field.path, field.nearest)));
        let expected = json!({"spec": {"cargo": [{"kg": 1}, {}], "ports": {"a": {"n": 1}},
            "free": {"any": {"thing": 1}, "known": {}}, "pod": {"kind": "Pod", "spec": {}}}});
        assert_eq!(body, expected);
        told.sort();
        let told: Vec<(&str, Option<&str>)> = told.iter().map(|(path, nearest)| (path.as_str(), *nearest)).collect();
        assert_eq!(
            told,
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
    fn defaults_are_filled_in_where_nothing_stands() {
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
