//! Whether a definition's schema is structural: every node says its type, so that pruning and defaults are well defined
//! (k8s.io/apiextensions-apiserver/pkg/apiserver/schema/validation.go).

use super::check::check_default;
use super::schema::is;
use crate::kinds::{Errors, Path};
use regex::Regex;
use serde_json::Value;

/// What is wrong with a version's schema.
pub fn check(schema: &Value, path: &Path, errors: &mut Errors) {
    let root = schema["type"].as_str().unwrap_or_default();
    if root.is_empty() {
        errors.required(&path.child("type"), "must not be empty at the root");
    } else if root != "object" {
        errors.invalid(&path.child("type"), root, "must be object at the root");
    }
    fields(schema, path, errors);
}

fn node(schema: &Value, path: &Path, what: &str, errors: &mut Errors) {
    let is_free = is(schema, "x-kubernetes-int-or-string") || is(schema, "x-kubernetes-preserve-unknown-fields");
    if schema["type"].as_str().unwrap_or_default().is_empty() && !is_free {
        errors.required(&path.child("type"), &format!("must not be empty for specified {what}"));
    }
    check_default(schema, &path.child("default"), errors);
    if let Some(pattern) = schema["pattern"].as_str()
        && let Err(error) = Regex::new(pattern)
    {
        let why = error.to_string();
        let detail =
            format!("must be a valid regular expression, but isn't: {}", why.lines().last().unwrap_or_default());
        errors.invalid(&path.child("pattern"), pattern, &detail);
    }
    fields(schema, path, errors);
}

fn fields(schema: &Value, path: &Path, errors: &mut Errors) {
    let has = |word: &str| schema.get(word).is_some_and(|value| !value.is_null());
    if has("properties") && has("additionalProperties") {
        errors
            .forbidden(&path.child("additionalProperties"), "additionalProperties and properties are mutual exclusive");
    }
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        node(schema, &path.child("properties").key(name), "object fields", errors);
    }
    if has("items") {
        node(&schema["items"], &path.child("items"), "array items", errors);
    }
    if schema["additionalProperties"].is_object() {
        node(&schema["additionalProperties"], &path.child("additionalProperties"), "additionalProperties", errors);
    }
    if schema["type"] == "array" && !has("items") {
        errors.required(&path.child("items"), "must be specified");
    }
    if is(schema, "uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.forbidden(&path.child("uniqueItems"), detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_node_says_its_type() {
        let cases = [
            (
                json!({"type": "object", "properties": {"spec": {"properties": {}}}}),
                "s.properties[spec].type: Required value: must not be empty for specified object fields",
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "array", "items": {}}}}),
                "s.properties[a].items.type: Required value: must not be empty for specified array items",
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "string", "default": 1}}}),
                "s.properties[a].default: Invalid value: \"integer\":  in body must be of type string: \"integer\"",
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "["}}}),
                "s.properties[a].pattern: Invalid value: \"[\": must be a valid regular expression, but isn't: error: unclosed character class",
            ),
            (json!({"type": "string"}), "s.type: Invalid value: \"string\": must be object at the root"),
            (
                json!({"type": "object", "properties": {"a": {"type": "object", "properties": {}, "additionalProperties": true}}}),
                "s.properties[a].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
            ),
        ];
        for (schema, expected) in cases {
            let mut errors = Errors::default();
            check(&schema, &Path::root("s"), &mut errors);
            assert_eq!(errors.0.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);
        }
        let mut errors = Errors::default();
        check(
            &json!({"type": "object", "properties": {"a": {"x-kubernetes-int-or-string": true}, "b": {"x-kubernetes-preserve-unknown-fields": true}}}),
            &Path::root("s"),
            &mut errors,
        );
        assert_eq!(errors.0, []);
    }
}
