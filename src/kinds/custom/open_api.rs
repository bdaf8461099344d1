//! The rules for a definition's schema besides those of its structure: supported keywords, lists, and defaults
//! (k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation/validation.go: ValidateCustomResourceDefinitionOpenAPISchema;
//! pkg/apiserver/schema/defaulting/validation.go).

use super::check::{check_part, has_rules};
use super::embedded;
use super::rules::RuleTree;
use super::schema::{has_flag, is_pruned};
use super::structural::{has, properties, type_of};
use crate::kinds::{FieldError, FieldErrors, FieldPath};
use serde_json::Value;
use std::collections::BTreeSet;

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// Checks the defaults of a schema.
pub fn check_defaults(schema: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if !schema["default"].is_null() {
        default(schema, &path.child("default"), errors);
    }
    if schema["items"].is_object() {
        check_defaults(&schema["items"], &path.child("items"), errors);
    }
    for (name, schema) in properties(schema) {
        check_defaults(schema, &path.child("properties").key(name), errors);
    }
}

/// Checks the defaults of a schema against its rules, which are valid themselves.
pub fn check_defaults_by_rules(schema: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if !has_rules(schema) {
        return;
    }
    if !schema["default"].is_null()
        && let Some(rules) = RuleTree::compile_part(schema)
    {
        let (default, mut inner) = (&schema["default"], FieldErrors::default());
        rules.evaluate(default, None, &mut inner);
        extend_below(&path.child("default"), inner, errors);
    }
    if schema["items"].is_object() {
        check_defaults_by_rules(&schema["items"], &path.child("items"), errors);
    }
    for (name, schema) in properties(schema) {
        check_defaults_by_rules(schema, &path.child("properties").key(name), errors);
    }
}

/// Checks one default. Kubernetes validates it like a separate object, so details name only fields below it.
fn default(schema: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let default = &schema["default"];
    if !is_pruned(schema, default) {
        errors.invalid(path, default.clone(), "must not have unknown fields");
    }
    let mut inner = FieldErrors::default();
    embedded::check(schema, default, &FieldPath::default(), &mut inner);
    inner.extend(check_part(schema, default));
    extend_below(path, inner, errors);
}

/// Adds the errors of a value that was checked separately, as errors of the value at a path.
fn extend_below(path: &FieldPath, inner: FieldErrors, errors: &mut FieldErrors) {
    errors.extend(inner.0.into_iter().map(|error| {
        let field = if matches!(error.field.as_str(), "" | "<nil>") {
            path.to_string()
        } else {
            path.child(&error.field).to_string()
        };
        FieldError { field, ..error }
    }));
}

/// Restrictions on a schema at its place in the tree.
#[derive(Clone, Copy, Default)]
struct Place {
    is_root: bool,
    /// Inside of `metadata`, `kind` or `apiVersion`.
    is_in_metadata: bool,
    /// The reason why no default may be set.
    no_default: Option<&'static str>,
}

/// Checks the keywords of a schema.
pub fn check(schema: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    node(schema, Place { is_root: true, ..Place::default() }, path, errors);
}

fn node(schema: &Value, place: Place, path: &FieldPath, errors: &mut FieldErrors) {
    keywords(schema, place, path, errors);
    if has_flag(schema, "uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.forbidden(&path.child("uniqueItems"), detail);
    }
    let others = &schema["additionalProperties"];
    if has(schema, "additionalProperties") && has(schema, "properties") && *others != true {
        let detail = "additionalProperties and properties are mutual exclusive";
        errors.forbidden(&path.child("additionalProperties"), detail);
    }
    if others.is_object() {
        let why = "inside additionalProperties applying to object metadata";
        let no_default = if place.is_in_metadata { Some(why) } else { place.no_default };
        let place = Place { is_root: false, no_default, ..place };
        node(others, place, &path.child("additionalProperties"), errors);
    }
    let inside = Place { is_root: false, ..place };
    for (name, inner) in properties(schema) {
        let is_metadata = matches!(name.as_str(), "metadata" | "kind" | "apiVersion");
        let no_default = match name.as_str() {
            "metadata" if place.is_root => Some("in top-level metadata"),
            "kind" if place.is_root => Some("in top-level kind"),
            "apiVersion" if place.is_root => Some("in top-level apiVersion"),
            _ => place.no_default,
        };
        let is_resource = place.is_root || has_flag(schema, "x-kubernetes-embedded-resource");
        let is_in_metadata = place.is_in_metadata || is_resource && is_metadata;
        node(inner, Place { is_root: false, is_in_metadata, no_default }, &path.child("properties").key(name), errors);
    }
    for word in ["not", "items"].into_iter().filter(|word| schema[*word].is_object()) {
        node(&schema[word], inside, &path.child(word), errors);
    }
    for word in ["allOf", "oneOf", "anyOf"] {
        for (index, inner) in schema[word].as_array().into_iter().flatten().enumerate() {
            node(inner, inside, &path.child(word).index(index), errors);
        }
    }
    check_maps_and_lists(schema, path, errors);
    check_keyed_list(schema, path, errors);
}

/// Refuses keywords that are unsupported, or not allowed at this place.
fn keywords(schema: &Value, place: Place, path: &FieldPath, errors: &mut FieldErrors) {
    let declared = type_of(schema);
    if !declared.is_empty() && !TYPES.contains(&declared) {
        errors.unsupported(&path.child("type"), declared, &TYPES);
    }
    if !schema["default"].is_null()
        && let Some(why) = place.no_default
    {
        errors.forbidden(&path.child("default"), &format!("must not be set {why}"));
    }
    for word in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        if has(schema, word) && schema[word] != "" {
            errors.forbidden(&path.child(word), &format!("{word} is not supported"));
        }
    }
    if declared == "null" {
        errors.forbidden(&path.child("type"), "type cannot be set to null, use nullable as an alternative");
    }
    if schema["items"].is_array() {
        errors.forbidden(&path.child("items"), "items must be a schema object and not an array");
    }
    if place.is_in_metadata && has_flag(schema, "x-kubernetes-embedded-resource") {
        let path = path.child("x-kubernetes-embedded-resource");
        errors.forbidden(&path, "must not be used inside of resource meta");
    }
    if schema["x-kubernetes-preserve-unknown-fields"] == false {
        let path = path.child("x-kubernetes-preserve-unknown-fields");
        errors.invalid(&path, false, "must be true or undefined");
    }
}

/// Checks a keyword that requires a type: `must be array if x-kubernetes-list-type is specified`.
fn check_keyword_type(
    word: &str,
    wanted: &str,
    known: &[&str],
    schema: &Value,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let Some(found) = schema[word].as_str() else { return };
    let detail = format!("must be {wanted} if {word} is specified");
    match type_of(schema) {
        "" => errors.required(&path.child("type"), &detail),
        declared if declared != wanted => errors.invalid(&path.child("type"), declared, &detail),
        _ => {}
    }
    if !known.contains(&found) {
        errors.unsupported(&path.child(word), found, known);
    }
}

fn check_maps_and_lists(schema: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    check_keyword_type("x-kubernetes-map-type", "object", &["atomic", "granular"], schema, path, errors);
    check_keyword_type("x-kubernetes-list-type", "array", &["atomic", "set", "map"], schema, path, errors);
    let kind = schema["x-kubernetes-list-type"].as_str();
    let items = &schema["items"];
    if kind == Some("set") && type_of(schema) == "array" {
        let word = match type_of(items) {
            "array" if !items["x-kubernetes-list-type"].is_null() => "x-kubernetes-list-type",
            "object" => "x-kubernetes-map-type",
            _ => "",
        };
        if !word.is_empty() && items[word] != "atomic" {
            let found = items["x-kubernetes-list-type"].clone();
            let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
            errors.invalid(&path.child("items").child(word), found, detail);
        }
    }
    let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
    let path = path.child("x-kubernetes-list-type");
    match kind {
        _ if !has(schema, "x-kubernetes-list-map-keys") => {}
        None => errors.required(&path, detail),
        Some("map") => {}
        Some(other) => errors.invalid(&path, other, detail),
    }
}

/// Checks a list of type map or set.
fn check_keyed_list(schema: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    const KEYS: &str = "x-kubernetes-list-map-keys";
    let kind = schema["x-kubernetes-list-type"].as_str().unwrap_or_default();
    let items = &schema["items"];
    let below = path.child("items");
    if matches!(kind, "set" | "map") && has_flag(items, "nullable") {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {kind}");
        errors.forbidden(&below.child("nullable"), &detail);
    }
    if kind != "map" {
        return;
    }
    if !has(schema, KEYS) {
        errors.required(&path.child(KEYS), "must not be empty if x-kubernetes-list-type is map");
    }
    if !has(schema, "items") {
        return errors.required(&below, "must have a schema if x-kubernetes-list-type is map");
    }
    if type_of(items) != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        return errors.invalid(&below.child("type"), type_of(items), detail);
    }
    let keys: Vec<&str> = schema[KEYS].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let required: BTreeSet<&str> =
        items["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut seen = BTreeSet::new();
    // The message contains the whole list, so it is added once.
    let mut has_strangers = false;
    let mut has_duplicates = false;
    for key in &keys {
        let at = below.child("properties").key(key);
        match items["properties"].get(*key) {
            None if std::mem::replace(&mut has_strangers, true) => {}
            None => {
                errors.invalid(&path.child(KEYS), schema[KEYS].clone(), "entries must all be names of item properties")
            }
            Some(field) => {
                if matches!(type_of(field), "array" | "object") {
                    let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                    errors.invalid(&at.child("type"), type_of(items), detail);
                }
                if !required.contains(key) && field["default"].is_null() {
                    let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
                    errors.required(&at.child("default"), detail);
                }
                if has_flag(field, "nullable") {
                    let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
                    errors.forbidden(&at.child("nullable"), detail);
                }
            }
        }
        if !seen.insert(*key) && !std::mem::replace(&mut has_duplicates, true) {
            errors.invalid(&path.child(KEYS), schema[KEYS].clone(), "must not contain duplicate entries");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keywords_that_are_not_supported_are_refused() {
        let item = |more: Value| {
            let mut item = json!({"type": "object", "properties": {"k": {"type": "string"}}, "required": ["k"]});
            item.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            item
        };
        let list = |keys: Value, item: Value| json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys, "items": item});
        let cases = [
            (
                json!({"type": "foo"}),
                "type: Unsupported value: \"foo\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\"",
            ),
            (json!({"$ref": "#/x"}), "$ref: Forbidden: $ref is not supported"),
            (json!({"definitions": {"a": {}}}), "definitions: Forbidden: definitions is not supported"),
            (
                json!({"items": [{"type": "string"}]}),
                "items: Forbidden: items must be a schema object and not an array",
            ),
            (
                json!({"properties": {"a": {}}, "additionalProperties": {}}),
                "additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
            ),
            (
                json!({"type": "array", "uniqueItems": true}),
                "uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            ),
            (
                json!({"properties": {"metadata": {"default": {}}}}),
                "properties[metadata].default: Forbidden: must not be set in top-level metadata",
            ),
            (
                json!({"x-kubernetes-preserve-unknown-fields": false}),
                "x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined",
            ),
            (
                json!({"type": "string", "x-kubernetes-list-type": "atomic"}),
                "type: Invalid value: \"string\": must be array if x-kubernetes-list-type is specified",
            ),
            (
                json!({"type": "array", "x-kubernetes-list-type": "bag"}),
                "x-kubernetes-list-type: Unsupported value: \"bag\": supported values: \"atomic\", \"map\", \"set\"",
            ),
            (
                list(json!([]), item(json!({}))),
                "x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
            ),
            (
                list(json!(["x"]), item(json!({}))),
                "x-kubernetes-list-map-keys: Invalid value: [\"x\"]: entries must all be names of item properties",
            ),
            (
                list(json!(["k"]), item(json!({"required": []}))),
                "items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            ),
            (
                list(json!(["k"]), item(json!({"nullable": true}))),
                "items.nullable: Forbidden: cannot be nullable when x-kubernetes-list-type is map",
            ),
            (
                json!({"type": "array", "x-kubernetes-list-map-keys": ["k"]}),
                "x-kubernetes-list-type: Required value: must be map if x-kubernetes-list-map-keys is non-empty",
            ),
            (
                json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}}),
                "items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
            ),
        ];
        for (schema, expected) in cases {
            let mut errors = FieldErrors::default();
            check(&schema, &FieldPath::root("s"), &mut errors);
            assert_eq!(errors.0.iter().map(ToString::to_string).collect::<Vec<_>>(), [format!("s.{expected}")]);
        }
        let mut errors = FieldErrors::default();
        check(&list(json!(["k"]), item(json!({}))), &FieldPath::root("s"), &mut errors);
        assert_eq!(errors.0, []);
    }

    #[test]
    fn defaults_must_keep_the_rules_of_their_schema() {
        let rule = json!([{"rule": "self.max >= self.min", "message": "max is below min"}]);
        let range = |max: i64| {
            let number = json!({"type": "integer"});
            json!({"type": "object", "properties": {"range": {"type": "object", "properties": {"min": number, "max": number},
                "x-kubernetes-validations": rule, "default": {"min": 2, "max": max}}}})
        };
        let text = |schema: &Value| {
            let mut errors = FieldErrors::default();
            check_defaults_by_rules(schema, &FieldPath::root("s"), &mut errors);
            errors.0.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let expected = "s.properties[range].default: Invalid value: max is below min";
        assert_eq!(text(&range(1)), [expected]);
        assert_eq!(text(&range(2)), Vec::<String>::new());
        let mut errors = FieldErrors::default();
        super::super::check_schema(&range(1), None, &FieldPath::root("s"), &mut errors);
        assert_eq!(errors.0.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);
        let mut errors = FieldErrors::default();
        super::super::check_schema(&range(1), Some(&range(1)), &FieldPath::root("s"), &mut errors);
        assert_eq!(errors.0, [], "an unchanged schema stays valid");
    }

    #[test]
    fn defaults_must_be_valid_by_their_schema() {
        let cases = [
            (
                json!({"type": "string", "default": 1}),
                "s.default: Invalid value: \"integer\":  in body must be of type string: \"integer\"",
            ),
            (
                json!({"type": "object", "default": {"b": 1}}),
                "s.default: Invalid value: {\"b\":1}: must not have unknown fields",
            ),
            (
                json!({"type": "object", "properties": {"b": {"type": "string"}}, "default": {"b": 1}}),
                "s.default.b: Invalid value: \"integer\": b in body must be of type string: \"integer\"",
            ),
            (
                json!({"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"kind": {"type": "string"}},
                    "default": {"kind": "Pod"}}),
                "s.default.apiVersion: Required value",
            ),
            (
                json!({"type": "array", "items": {"type": "integer", "default": "x"}}),
                "s.items.default: Invalid value: \"string\":  in body must be of type integer: \"string\"",
            ),
        ];
        for (schema, expected) in cases {
            let mut errors = FieldErrors::default();
            check_defaults(&schema, &FieldPath::root("s"), &mut errors);
            assert_eq!(errors.0.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);
        }
    }
}
