//! Warnings about parts of valid schemas that have no effect
//! (apiextensions-apiserver/pkg/registry/customresourcedefinition/strategy.go).

use crate::kinds::custom::string_format::is_known;
use crate::object::Object;
use itertools::Itertools;
use serde_json::Value;

/// Maximum number of warnings about one definition.
const MAX_WARNINGS: usize = 50;

/// Warns about formats that are not checked, and about sets whose items cannot be compared.
pub fn warn_about_schemas(definition: &Object) -> Vec<String> {
    let (mut formats, mut sets) = (Vec::new(), Vec::new());
    for version in definition.items(&["spec", "versions"]) {
        collect(&version["schema"]["openAPIV3Schema"], &mut formats, &mut sets);
    }
    sets.sort();
    formats.into_iter().chain(sets).unique().take(MAX_WARNINGS).collect()
}

fn collect(schema: &Value, formats: &mut Vec<String>, sets: &mut Vec<String>) {
    let declared = schema["type"].as_str().unwrap_or_default();
    if let Some(format) = schema["format"].as_str().filter(|format| !format.is_empty() && !is_known(declared, format)) {
        formats.push(format!("unrecognized format {format:?}"));
    }
    let items = schema["items"]["type"].as_str().unwrap_or_default();
    if schema["x-kubernetes-list-type"] == "set" && matches!(items, "object" | "array") {
        let what = "is not supported by server-side apply or CEL validation rules";
        sets.push(format!("x-kubernetes-list-type: set for items of type {items:?} {what}"));
    }
    for word in ["items", "additionalProperties", "not"] {
        if schema[word].is_object() {
            collect(&schema[word], formats, sets);
        }
    }
    let parts = ["allOf", "anyOf", "oneOf"].into_iter().filter_map(|word| schema[word].as_array()).flatten();
    let properties = schema["properties"].as_object().into_iter().flat_map(|fields| fields.values());
    parts.chain(properties).for_each(|part| collect(part, formats, sets));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unknown_formats_and_sets_of_objects_are_told() {
        let set = json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}});
        let fields = json!({
            "a": {"type": "string", "format": "foo"}, "b": {"type": "string", "format": "date-time"},
            "c": {"type": "array", "items": {"type": "integer", "format": "int16"}}, "d": set, "e": {"type": "string", "format": "foo"},
        });
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": fields}});
        let definition = Object(json!({"spec": {"versions": [{"name": "v1", "schema": schema}]}}));
        let expected = [
            "unrecognized format \"foo\"",
            "unrecognized format \"int16\"",
            "x-kubernetes-list-type: set for items of type \"object\" is not supported by server-side apply or CEL validation rules",
        ];
        assert_eq!(warn_about_schemas(&definition), expected);
    }
}
