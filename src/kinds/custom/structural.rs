//! Checks that a definition's schema is structural: every node has a type, and `anyOf`, `allOf`, `oneOf` and `not` only
//! restrict values, so that pruning and defaulting are well defined
//! (k8s.io/apiextensions-apiserver/pkg/apiserver/schema: validation.go, complete.go).

use super::pattern::{self, MAX_STATES, MAX_STATES_OF_A_SCHEMA, MIN_STATES};
use super::schema::has_flag;
use crate::kinds::{FieldErrors, FieldPath};
use serde_json::{Value, json};

/// Keywords with a list of schemas.
const LISTS: [&str; 3] = ["anyOf", "allOf", "oneOf"];

/// Position of a schema in the tree.
#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Checks a version's schema; sorts the errors as Kubernetes does.
pub fn check(schema: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let mut found = FieldErrors::default();
    let mut states = 0;
    node(schema, Level::Root, path, &mut states, &mut found);
    check_complete(schema, schema, path, path, &mut found);
    if states > MAX_STATES_OF_A_SCHEMA {
        let detail = format!(
            "its patterns are too large together (about {states} states, at most {MAX_STATES_OF_A_SCHEMA}): repeat less, or use maxLength"
        );
        found.forbidden(path, &detail);
    }
    found.0.sort_by_cached_key(ToString::to_string);
    errors.extend(found.0);
}

/// Whether a keyword is set.
pub fn has(schema: &Value, word: &str) -> bool {
    match &schema[word] {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty() || matches!(word, "items" | "not" | "additionalProperties"),
        _ => true,
    }
}

/// The declared fields of a schema.
pub fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema["properties"].as_object().into_iter().flatten()
}

/// The type that a schema declares; empty without one.
pub fn type_of(schema: &Value) -> &str {
    schema["type"].as_str().unwrap_or_default()
}

/// Checks a schema outside of `anyOf`, `allOf`, `oneOf` and `not`.
fn node(schema: &Value, level: Level, path: &FieldPath, states: &mut usize, errors: &mut FieldErrors) {
    let declared = type_of(schema);
    if declared == "array" && !has(schema, "items") {
        errors.required(&path.child("items"), "must be specified");
    }
    if schema["items"].is_object() {
        node(&schema["items"], Level::Item, &path.child("items"), states, errors);
    }
    for (name, schema) in properties(schema) {
        node(schema, Level::Field, &path.child("properties").key(name), states, errors);
    }
    let others = &path.child("additionalProperties");
    if has(schema, "additionalProperties") && level == Level::Root {
        errors.forbidden(others, "must not be used at the root");
    }
    if schema["additionalProperties"].is_object() {
        node(&schema["additionalProperties"], Level::Field, others, states, errors);
    }
    let skips_any = is_int_or_string(&schema["anyOf"]);
    let skips_first = is_int_or_string(&schema["allOf"][0]["anyOf"]);
    values(schema, skips_any, skips_first, path, states, errors);
    check_type(schema, level, path, errors);
    let is_resource = has_flag(schema, "x-kubernetes-embedded-resource");
    if is_resource && has(schema, "additionalProperties") {
        errors.forbidden(others, "must not be used if x-kubernetes-embedded-resource is set");
    }
    metadata(schema, level, path, errors);
    if is_resource && !has_flag(schema, "x-kubernetes-preserve-unknown-fields") && !has(schema, "properties") {
        let detail =
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.required(&path.child("properties"), detail);
    }
}

/// Whether a list has exactly the types `integer` and `string` in this order, apart from empty keywords.
fn is_int_or_string(list: &Value) -> bool {
    let Some([first, second]) = list.as_array().map(Vec::as_slice) else { return false };
    let has_only_type = |schema: &Value, wanted: &str| {
        let mut words = schema.as_object().into_iter().flatten();
        type_of(schema) == wanted && words.all(|(word, _)| word == "type" || !has(schema, word))
    };
    has_only_type(first, "integer") && has_only_type(second, "string")
}

/// Checks that a schema has a type, except with `x-kubernetes-int-or-string` or `x-kubernetes-preserve-unknown-fields`.
fn check_type(schema: &Value, level: Level, path: &FieldPath, errors: &mut FieldErrors) {
    let declared = type_of(schema);
    let is_mixed = has_flag(schema, "x-kubernetes-int-or-string");
    for word in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
        if is_mixed && has_flag(schema, word) {
            errors.invalid(&path.child(word), true, "must be false if x-kubernetes-int-or-string is true");
        }
    }
    let path = &path.child("type");
    let is_resource = has_flag(schema, "x-kubernetes-embedded-resource");
    let of_resource = "must be object if x-kubernetes-embedded-resource is true";
    match (declared, is_resource) {
        ("", true) => errors.required(path, of_resource),
        ("", false) if !is_mixed && !has_flag(schema, "x-kubernetes-preserve-unknown-fields") => {
            let place = match level {
                Level::Root => "at the root",
                Level::Item => "for specified array items",
                Level::Field => "for specified object fields",
            };
            errors.required(path, &format!("must not be empty {place}"));
        }
        (other, true) if other != "object" => errors.invalid(path, other, of_resource),
        _ => {}
    }
    if level == Level::Root && !matches!(declared, "" | "object") {
        errors.invalid(path, declared, "must be object at the root");
    }
}

/// Checks that the schema of `metadata` restricts only the name.
fn metadata(schema: &Value, level: Level, path: &FieldPath, errors: &mut FieldErrors) {
    let path = path.child("properties");
    let is_resource = level == Level::Root || has_flag(schema, "x-kubernetes-embedded-resource");
    let declared = |name: &str| schema["properties"].get(name);
    for name in ["kind", "apiVersion"] {
        if let Some(found) = declared(name).map(type_of).filter(|found| is_resource && *found != "string") {
            errors.invalid(&path.key(name).child("type"), found, "must be string");
        }
    }
    let Some(metadata) = declared("metadata") else { return };
    let path = path.key("metadata");
    if is_resource && type_of(metadata) != "object" {
        errors.invalid(&path.child("type"), type_of(metadata), "must be object");
    }
    let extras = metadata.as_object().into_iter().flatten().filter(|(word, value)| match word.as_str() {
        "properties" => properties(metadata).any(|(name, _)| !matches!(name.as_str(), "name" | "generateName")),
        "type" | "default" => false,
        _ => !value.is_null() && **value != false && **value != json!({}) && **value != json!([]),
    });
    if level == Level::Root && extras.count() > 0 {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.forbidden(&path, detail);
    }
}

/// Checks the value restrictions of a schema, including `anyOf`, `allOf`, `oneOf` and `not`.
fn values(
    schema: &Value,
    skips_any: bool,
    skips_first: bool,
    path: &FieldPath,
    states: &mut usize,
    errors: &mut FieldErrors,
) {
    for word in LISTS {
        let list = schema[word].as_array().into_iter().flatten().enumerate();
        for (index, schema) in list.filter(|_| !(word == "anyOf" && skips_any)) {
            let skips = word == "allOf" && index == 0 && skips_first;
            nested(schema, skips, &path.child(word).index(index), states, errors);
        }
    }
    if schema["not"].is_object() {
        nested(&schema["not"], false, &path.child("not"), states, errors);
    }
    if let Some(text) = schema["pattern"].as_str() {
        let path = path.child("pattern");
        match pattern::translate(text) {
            Err(why) => {
                errors.invalid(&path, text, &format!("must be a valid regular expression, but isn't: {why}"));
            }
            Ok(known) if known.states > MAX_STATES => {
                let detail = format!(
                    "is too large to be matched (about {} states, at most {MAX_STATES}): repeat less, or use maxLength",
                    known.states
                );
                errors.invalid(&path, text, &detail);
            }
            Ok(known) => *states = states.saturating_add(known.states.max(MIN_STATES)),
        }
    }
}

/// Checks a schema inside of `anyOf`, `allOf`, `oneOf` or `not`, which may only restrict values.
fn nested(schema: &Value, skips_any: bool, path: &FieldPath, states: &mut usize, errors: &mut FieldErrors) {
    values(schema, skips_any, false, path, states, errors);
    if schema["items"].is_object() {
        nested(&schema["items"], false, &path.child("items"), states, errors);
    }
    for (name, schema) in properties(schema) {
        nested(schema, false, &path.child("properties").key(name), states, errors);
    }
    const FORBIDDEN: [(&str, &str); 12] = [
        ("type", "must be empty"),
        ("additionalProperties", "must be undefined"),
        ("default", "must be undefined"),
        ("title", "must be empty"),
        ("description", "must be empty"),
        ("nullable", "must be false"),
        ("x-kubernetes-preserve-unknown-fields", "must be false"),
        ("x-kubernetes-embedded-resource", "must be false"),
        ("x-kubernetes-int-or-string", "must be false"),
        ("x-kubernetes-list-map-keys", "must be empty"),
        ("x-kubernetes-list-type", "must be undefined"),
        ("x-kubernetes-map-type", "must be undefined"),
    ];
    let is_set = |word: &str| has(schema, word) && schema[word] != false && schema[word] != "";
    for (word, detail) in FORBIDDEN.into_iter().filter(|(word, _)| is_set(word)) {
        errors.forbidden(&path.child(word), &format!("{detail} to be structural"));
    }
    if has(schema, "x-kubernetes-validations") {
        errors.forbidden(&path.child("x-kubernetes-validations"), "must be empty to be structural");
    }
    if schema["properties"].get("metadata").is_some() {
        let path = path.child("properties").key("metadata");
        errors.forbidden(&path, "must not be specified in a nested context");
    }
}

/// Checks that every field in `anyOf`, `allOf`, `oneOf` and `not` is also declared outside of them.
fn check_complete(logic: &Value, schema: &Value, at: &FieldPath, defined_at: &FieldPath, errors: &mut FieldErrors) {
    let lists = LISTS.iter().flat_map(|word| {
        let list = logic[*word].as_array().into_iter().flatten().enumerate();
        list.map(move |(index, inner)| (inner, defined_at.child(word).index(index)))
    });
    let not = logic["not"].is_object().then(|| (&logic["not"], defined_at.child("not")));
    for (inner, defined_at) in lists.chain(not) {
        check_complete(inner, schema, at, &defined_at, errors);
        let items = [("items", &inner["items"], &schema["items"], at.child("items"), defined_at.child("items"))];
        let items = items.into_iter().filter(|(_, inner, ..)| inner.is_object());
        let fields = properties(inner).map(|(name, inner)| {
            let declared = &schema["properties"][name.as_str()];
            let path = |path: &FieldPath| path.child("properties").key(name);
            ("properties", inner, declared, path(at), path(&defined_at))
        });
        for (_, inner, declared, at, defined_at) in items.chain(fields) {
            match declared.is_null() {
                true => errors.required(&at, &format!("because it is defined in {defined_at}")),
                false => check_complete(&json!({"allOf": [inner]}), declared, &at, &defined_at, errors),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the errors of a schema for an object with one field `a`.
    fn wrong_with(field: Value) -> Vec<String> {
        let mut errors = FieldErrors::default();
        check(&json!({"type": "object", "properties": {"a": field}}), &FieldPath::root("s"), &mut errors);
        errors.0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn schema_that_is_not_structural_is_refused() {
        let cases = [
            (json!({"properties": {}}), "type: Required value: must not be empty for specified object fields"),
            (
                json!({"type": "array", "items": {}}),
                "items.type: Required value: must not be empty for specified array items",
            ),
            (json!({"type": "array"}), "items: Required value: must be specified"),
            (
                json!({"type": "string", "pattern": "["}),
                "pattern: Invalid value: \"[\": must be a valid regular expression, but isn't: error parsing regexp: missing closing ]: `[`",
            ),
            (
                json!({"type": "string", "anyOf": [{"type": "string"}]}),
                "anyOf[0].type: Forbidden: must be empty to be structural",
            ),
            (
                json!({"type": "string", "not": {"default": "x"}}),
                "not.default: Forbidden: must be undefined to be structural",
            ),
            (
                json!({"type": "object", "anyOf": [{"properties": {"metadata": {}}}], "properties": {"metadata": {"type": "object"}}}),
                "anyOf[0].properties[metadata]: Forbidden: must not be specified in a nested context",
            ),
            (
                json!({"x-kubernetes-int-or-string": true, "x-kubernetes-preserve-unknown-fields": true}),
                "x-kubernetes-preserve-unknown-fields: Invalid value: true: must be false if x-kubernetes-int-or-string is true",
            ),
            (
                json!({"type": "object", "x-kubernetes-embedded-resource": true}),
                "properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
            ),
            (
                json!({"x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}),
                "type: Required value: must be object if x-kubernetes-embedded-resource is true",
            ),
        ];
        for (field, expected) in cases {
            assert_eq!(wrong_with(field.clone()), [format!("s.properties[a].{expected}")], "{field}");
        }
    }

    #[test]
    fn root_of_a_schema_is_an_object_with_restricted_metadata() {
        let cases = [
            (json!({"type": "string"}), "s.type: Invalid value: \"string\": must be object at the root"),
            (
                json!({"type": "object", "additionalProperties": true}),
                "s.additionalProperties: Forbidden: must not be used at the root",
            ),
            (
                json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}),
                "s.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
            ),
            (
                json!({"type": "object", "properties": {"b": {"type": "string"}}, "oneOf": [{"properties": {"c": {"minLength": 1}}}]}),
                "s.properties[c]: Required value: because it is defined in s.oneOf[0].properties[c]",
            ),
            (
                json!({"type": "object", "properties": {"kind": {"type": "integer"}}}),
                "s.properties[kind].type: Invalid value: \"integer\": must be string",
            ),
        ];
        for (schema, expected) in cases {
            let mut errors = FieldErrors::default();
            check(&schema, &FieldPath::root("s"), &mut errors);
            assert_eq!(errors.0.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);
        }
    }

    #[test]
    fn structural_schema_is_accepted() {
        let int_or_string = json!([{"type": "integer"}, {"type": "string"}]);
        let cases = [
            json!({"x-kubernetes-int-or-string": true, "anyOf": int_or_string}),
            json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer", "definitions": {}}, {"type": "string", "properties": {}}]}),
            json!({"x-kubernetes-int-or-string": true, "allOf": [{"anyOf": int_or_string}, {"pattern": "^a"}]}),
            json!({"x-kubernetes-preserve-unknown-fields": true}),
            json!({"type": "object", "properties": {"b": {"type": "array", "items": {"type": "string"}}},
                "oneOf": [{"required": ["b"]}, {"properties": {"b": {"items": {"enum": ["x"]}}}}]}),
            json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}),
        ];
        for field in cases {
            assert_eq!(wrong_with(field.clone()), [] as [String; 0], "{field}");
        }
        let schema = json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string"}}}}});
        let mut errors = FieldErrors::default();
        check(&schema, &FieldPath::root("s"), &mut errors);
        assert_eq!(errors.0, []);
    }

    #[test]
    fn patterns_that_take_long_to_compile_are_refused() {
        let one = wrong_with(json!({"type": "string", "pattern": r"^\pL{1000}$"}));
        assert!(
            one[0].contains("s.properties[a].pattern: Invalid value") && one[0].contains("is too large"),
            "{one:?}"
        );
        let pattern = json!({"type": "string", "pattern": r"^\pL{50}$"});
        let fields: serde_json::Map<String, Value> = (0..9).map(|n| (format!("f{n}"), pattern.clone())).collect();
        let all = wrong_with(json!({"type": "object", "properties": fields}));
        assert!(all.len() == 1 && all[0].starts_with("s: Forbidden: its patterns are too large together"), "{all:?}");
        let pattern = json!({"type": "string", "pattern": r"^(\w{100})$"});
        let fields: serde_json::Map<String, Value> = (0..500).map(|n| (format!("f{n}"), pattern.clone())).collect();
        assert_eq!(wrong_with(json!({"type": "object", "properties": fields})), [] as [String; 0]);
    }
}
