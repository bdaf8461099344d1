//! OpenAPI 2 made from OpenAPI 3; unsupported parts are left out.

use serde_json::{Map, Value, json};

const REFERENCE: &str = "#/components/schemas/";

/// The kinds whose objects a schema describes.
const KINDS: &str = "x-kubernetes-group-version-kind";
const UNKNOWN_FIELDS: &str = "x-kubernetes-preserve-unknown-fields";

/// Fields of schemas with the same meaning in both.
const SAME: [&str; 18] = [
    "format",
    "title",
    "description",
    "default",
    "multipleOf",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "maxProperties",
    "minProperties",
    "enum",
];

/// Returns the ways to authenticate, which generated clients offer: a token in a header.
pub fn security_definitions() -> Value {
    let text = "Bearer Token authentication";
    json!({"BearerToken": {"description": text, "in": "header", "name": "authorization", "type": "apiKey"}})
}

/// Converts the operations of a path.
pub fn convert_path(item: &Value) -> Value {
    let parameters: Vec<Value> = list(&item["parameters"]).map(convert_parameter).collect();
    let operations = item.as_object().into_iter().flatten().filter(|(method, _)| *method != "parameters");
    let mut item: Map<String, Value> =
        operations.map(|(method, operation)| (method.clone(), convert_operation(operation))).collect();
    item.insert("parameters".into(), parameters.into());
    Value::Object(item)
}

fn is_set(schema: &Value, field: &str) -> bool {
    schema[field] == true
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Converts a parameter, whose type is outside of a schema in version 2.
fn convert_parameter(parameter: &Value) -> Value {
    let mut parameter = parameter.clone();
    if let Some(Value::Object(schema)) = parameter.as_object_mut().and_then(|map| map.remove("schema")) {
        schema.into_iter().for_each(|(field, value)| parameter[field] = value);
    }
    parameter
}

/// Converts an operation: bodies become parameters, and media types are listed once.
fn convert_operation(operation: &Value) -> Value {
    let media = |content: &Value| -> Vec<Value> {
        content.as_object().into_iter().flatten().map(|(media, _)| media.as_str().into()).collect()
    };
    let first =
        |content: &Value| content.as_object().and_then(|map| map.values().next()).map(|one| convert(&one["schema"]));
    let mut parameters: Vec<Value> = list(&operation["parameters"]).map(convert_parameter).collect();
    let body = &operation["requestBody"];
    if let Some(schema) = first(&body["content"]) {
        let required = body["required"] == true;
        parameters.insert(0, json!({"name": "body", "in": "body", "required": required, "schema": schema}));
    }
    let responses: Map<String, Value> = operation["responses"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(code, response)| {
            let mut converted = json!({"description": response["description"]});
            if let Some(schema) = first(&response["content"]) {
                converted["schema"] = schema;
            }
            (code.clone(), converted)
        })
        .collect();
    let consumes = if body.is_null() { vec!["*/*".into()] } else { media(&body["content"]) };
    let mut converted = json!({
        "consumes": consumes, "produces": media(&operation["responses"]["200"]["content"]), "schemes": ["https"],
        "parameters": parameters, "responses": responses,
    });
    let same = ["description", "operationId", "tags", "deprecated"];
    for (field, value) in operation.as_object().into_iter().flatten() {
        if same.contains(&field.as_str()) || field.starts_with("x-") {
            converted[field] = value.clone();
        }
    }
    converted
}

/// Converts a schema. Clients that validate by version 2, such as older kubectl, know neither unknown fields nor null, so that those parts
/// stay without a type (k8s.io/apiextensions-apiserver/pkg/controller/openapi).
pub fn convert(schema: &Value) -> Value {
    let Some(map) = schema.as_object() else { return json!({}) };
    let mut converted = Map::new();
    let has = |field: &str| is_set(schema, field);
    if has(UNKNOWN_FIELDS) && map.contains_key(KINDS) {
        return json!({"type": "object", KINDS: map[KINDS]});
    }
    for (field, value) in map {
        if SAME.contains(&field.as_str()) || field.starts_with("x-") {
            converted.insert(field.clone(), value.clone());
        }
    }
    let of = map.get("$ref").or_else(|| match map.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
        Some([only]) => only.get("$ref"),
        _ => None,
    });
    if let Some(name) = of.and_then(Value::as_str).and_then(|of| of.strip_prefix(REFERENCE)) {
        converted.insert("$ref".into(), format!("#/definitions/{name}").into());
        return Value::Object(converted);
    }
    if map.get("format").is_some_and(|format| format == "int-or-string") {
        converted.insert("type".into(), "string".into());
        return Value::Object(converted);
    }
    // A value of more than one type has no type in version 2.
    if has("nullable") || has("x-kubernetes-int-or-string") || has(UNKNOWN_FIELDS) {
        return Value::Object(converted);
    }
    let is_list_of_any = schema["type"] == "array" && !map.contains_key("items");
    converted.extend(map.get("type").filter(|_| !is_list_of_any).map(|value| ("type".to_owned(), value.clone())));
    let required: Vec<&Value> = list(&schema["required"])
        .filter(|name| !name.as_str().is_some_and(|name| is_set(&schema["properties"][name], "nullable")))
        .collect();
    if !required.is_empty() && !is_set(&schema["additionalProperties"], "nullable") {
        converted.insert("required".into(), json!(required));
    }
    if let Some(properties) = map.get("properties").and_then(Value::as_object) {
        let properties: Map<String, Value> =
            properties.iter().map(|(name, schema)| (name.clone(), convert(schema))).collect();
        converted.insert("properties".into(), properties.into());
    }
    for field in ["items", "additionalProperties"] {
        let inner = map.get(field).map(|inner| if inner.is_boolean() { inner.clone() } else { convert(inner) });
        converted.extend(inner.map(|inner| (field.to_owned(), inner)));
    }
    Value::Object(converted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_parts_of_schemas_are_left_out() {
        for (newer, older) in [
            (
                json!({"allOf": [{"$ref": "#/components/schemas/a.B"}], "description": "d"}),
                json!({"$ref": "#/definitions/a.B", "description": "d"}),
            ),
            (
                json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}),
                json!({"format": "int-or-string", "type": "string"}),
            ),
            (json!({"type": "string", "nullable": true}), json!({})),
            (
                json!({"type": "object", "properties": {"a": {"type": "string", "nullable": true}, "b": {"type": "string"}}, "required": ["a", "b"]}),
                json!({"type": "object", "properties": {"a": {}, "b": {"type": "string"}}, "required": ["b"]}),
            ),
            (
                json!({"type": "object", "additionalProperties": {"nullable": true}, "required": ["a"]}),
                json!({"type": "object", "additionalProperties": {}}),
            ),
            (json!({"type": "array"}), json!({})),
            (json!({"type": "object", UNKNOWN_FIELDS: true, "properties": {"a": {}}}), json!({UNKNOWN_FIELDS: true})),
            (
                json!({"type": "object", UNKNOWN_FIELDS: true, "properties": {"a": {}}, KINDS: [{"kind": "A"}]}),
                json!({"type": "object", KINDS: [{"kind": "A"}]}),
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}, "anyOf": []}}}),
                json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}}}),
            ),
            (
                json!({"type": "object", "additionalProperties": true}),
                json!({"type": "object", "additionalProperties": true}),
            ),
        ] {
            assert_eq!(convert(&newer), older, "{newer}");
        }
    }
}
