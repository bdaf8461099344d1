//! Validates objects against a schema, with the error messages of Kubernetes' validator (kube-openapi/pkg/validation).

use super::pattern;
use super::schema::has_flag;
use crate::kinds::{FieldError, FieldErrors, FieldPath};
use crate::object::Object;
use serde_json::Value;
use std::collections::BTreeSet;

/// Pattern of the format `uuid`.
const UUID: &str = "^(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$";

/// Validates an object against a schema.
pub fn check(schema: &Value, object: &Object) -> Vec<FieldError> {
    let mut errors = FieldErrors::default();
    for (name, value) in object.0.as_object().into_iter().flatten() {
        if !matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
            let schema = &schema["properties"][name.as_str()];
            check_value(schema, value, &FieldPath::root(name), &mut errors);
        }
    }
    check_required(schema, &object.0, &FieldPath::default(), &mut errors);
    check_combined(schema, &object.0, &FieldPath::root("<nil>"), &mut errors);
    errors.0
}

/// Whether errors of the schema keep the rules from being checked, of which an error then tells.
pub fn block_rules(errors: &mut FieldErrors) -> bool {
    const BLOCKS: [&str; 5] = [
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueNotSupported",
        "FieldValueTypeInvalid",
    ];
    let is_blocked = errors.0.iter().any(|error| BLOCKS.contains(&error.reason));
    if is_blocked {
        let detail = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
        errors.invalid(&FieldPath::root("<nil>"), Value::Null, detail);
    }
    is_blocked
}

/// Collects the patterns that [`check`] may match against strings of this value.
pub fn collect_patterns<'s>(schema: &'s Value, value: &Value, patterns: &mut BTreeSet<&'s str>) {
    if value.is_string() {
        patterns.extend(schema["pattern"].as_str());
        patterns.extend((schema["format"] == "uuid").then_some(UUID));
    }
    for word in ["allOf", "anyOf", "oneOf"] {
        schema[word].as_array().into_iter().flatten().for_each(|one| collect_patterns(one, value, patterns));
    }
    if schema["not"].is_object() {
        collect_patterns(&schema["not"], value, patterns);
    }
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect_patterns(&schema["items"], item, patterns)),
        Value::Object(map) => {
            for (name, value) in map {
                let of_name = schema["properties"].get(name.as_str());
                collect_patterns(of_name.unwrap_or(&schema["additionalProperties"]), value, patterns);
            }
        }
        _ => {}
    }
}

/// Whether a schema contains CEL rules.
pub fn has_rules(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => map.contains_key("x-kubernetes-validations") || map.values().any(has_rules),
        Value::Array(list) => list.iter().any(has_rules),
        _ => false,
    }
}

/// Checks one value; `path` starts at the object's root.
pub fn check_value(schema: &Value, value: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if !schema.is_object() || value.is_null() && has_flag(schema, "nullable") {
        return;
    }
    if let Some(wanted) = wrong_type(schema, value) {
        let found = type_of(value);
        let detail = format!("{path} in body must be of type {wanted}: {:?}", found);
        return errors.type_invalid(path, found, &detail);
    }
    check_enum(schema, value, path, errors);
    match value {
        Value::String(text) => check_text(schema, text, path, errors),
        Value::Number(number) => check_number(schema, number.as_f64().unwrap_or_default(), value, path, errors),
        Value::Array(items) => check_list(schema, items, path, errors),
        Value::Object(_) => check_map(schema, value, path, errors),
        _ => {}
    }
    check_combined(schema, value, path, errors);
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The declared type, when the value has another type.
fn wrong_type<'a>(schema: &'a Value, value: &Value) -> Option<&'a str> {
    let found = type_of(value);
    if has_flag(schema, "x-kubernetes-int-or-string") {
        return (!matches!(found, "integer" | "string")).then_some("integer,string");
    }
    let wanted = schema["type"].as_str()?;
    let is_whole = value.as_f64().is_some_and(|number| number.fract() == 0.0);
    let fits = wanted == found
        || wanted == "number" && found == "integer"
        || wanted == "integer" && found == "number" && is_whole;
    (!fits).then_some(wanted)
}

fn check_enum(schema: &Value, value: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(known) = schema["enum"].as_array().filter(|known| !known.contains(value)) else { return };
    let known: Vec<String> =
        known.iter().map(|one| one.as_str().map_or_else(|| one.to_string(), str::to_owned)).collect();
    errors.unsupported_as_listed(path, value.clone(), &known.iter().map(String::as_str).collect::<Vec<_>>());
}

fn check_text(schema: &Value, text: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let length = text.chars().count() as u64;
    if let Some(most) = schema["maxLength"].as_u64().filter(|most| length > *most) {
        errors.too_long(path, most as usize);
    }
    if let Some(least) = schema["minLength"].as_u64().filter(|least| length < *least) {
        errors.invalid(path, text, &format!("{path} in body should be at least {least} chars long"));
    }
    if let Some(pattern) = schema["pattern"].as_str()
        && schema["maxLength"].as_u64().is_none_or(|most| length <= most)
        && !pattern::matches(pattern, text)
    {
        errors.invalid(path, text, &format!("{path} in body should match '{pattern}'"));
    }
    if let Some(format) = schema["format"].as_str().filter(|format| !has_format(format, text)) {
        errors.invalid(path, text, &format!("{path} in body must be of type {format}: {text:?}"));
    }
}

/// Whether a text has a format. Formats unknown to Kubernetes are not checked.
fn has_format(format: &str, text: &str) -> bool {
    match format {
        "date-time" => text.parse::<crate::object::Time>().is_ok(),
        "date" => text.parse::<jiff::civil::Date>().is_ok() && text.len() == 10,
        "ipv4" => text.parse::<std::net::Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<std::net::Ipv6Addr>().is_ok(),
        "uuid" => pattern::matches(UUID, text),
        "email" => text.split_once('@').is_some_and(|(name, host)| !name.is_empty() && !host.is_empty()),
        _ => true,
    }
}

fn check_number(schema: &Value, number: f64, value: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let mut refuse =
        |detail: String| errors.invalid(path, value.clone(), &format!("{path} in body should be {detail}"));
    if let Some(most) = schema["maximum"].as_f64() {
        let (is_over, words) = match has_flag(schema, "exclusiveMaximum") {
            true => (number >= most, "less than"),
            false => (number > most, "less than or equal to"),
        };
        if is_over {
            refuse(format!("{words} {}", schema["maximum"]));
        }
    }
    if let Some(least) = schema["minimum"].as_f64() {
        let (is_under, words) = match has_flag(schema, "exclusiveMinimum") {
            true => (number <= least, "greater than"),
            false => (number < least, "greater than or equal to"),
        };
        if is_under {
            refuse(format!("{words} {}", schema["minimum"]));
        }
    }
    if let Some(factor) = schema["multipleOf"].as_f64().filter(|factor| *factor > 0.0)
        && (number / factor).fract() != 0.0
    {
        refuse(format!("a multiple of {}", schema["multipleOf"]));
    }
}

fn check_list(schema: &Value, items: &[Value], path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(most) = schema["maxItems"].as_u64().filter(|most| items.len() as u64 > *most) {
        errors.too_many(path, items.len(), most as usize);
    }
    if let Some(least) = schema["minItems"].as_u64().filter(|least| (items.len() as u64) < *least) {
        errors.invalid(path, items.len(), &format!("{path} in body should have at least {least} items"));
    }
    for (index, item) in items.iter().enumerate() {
        check_value(&schema["items"], item, &path.index(index), errors);
    }
    let keys: Option<Vec<Value>> = match schema["x-kubernetes-list-type"].as_str() {
        Some("set") => Some(items.to_vec()),
        Some("map") => Some(items.iter().map(|item| key_of(schema, item)).collect()),
        _ if has_flag(schema, "uniqueItems") => Some(items.to_vec()),
        _ => None,
    };
    let mut seen = std::collections::HashSet::new();
    for (index, key) in keys.into_iter().flatten().enumerate() {
        if !seen.insert(key.to_string()) {
            errors.duplicate(&path.index(index), key);
        }
    }
}

/// Returns the key of an item in a list of type map.
fn key_of(schema: &Value, item: &Value) -> Value {
    let names = schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten().filter_map(Value::as_str);
    names.filter_map(|name| Some((name.to_owned(), item.get(name)?.clone()))).collect::<serde_json::Map<_, _>>().into()
}

fn check_map(schema: &Value, value: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let fields = value.as_object().into_iter().flatten();
    let count = value.as_object().map_or(0, serde_json::Map::len);
    if let Some(most) = schema["maxProperties"].as_u64().filter(|most| count as u64 > *most) {
        errors.too_many(path, count, most as usize);
    }
    if let Some(least) = schema["minProperties"].as_u64().filter(|least| (count as u64) < *least) {
        errors.invalid(path, count, &format!("{path} in body should have at least {least} properties"));
    }
    check_required(schema, value, path, errors);
    for (name, value) in fields {
        match schema["properties"].get(name) {
            Some(schema) => check_value(schema, value, &path.child(name), errors),
            None => check_value(&schema["additionalProperties"], value, &path.child(name), errors),
        }
    }
}

fn check_required(schema: &Value, value: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let names = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    for name in names.filter(|name| value.get(name).is_none()) {
        errors.required(&path.child(name), "");
    }
}

/// Checks `anyOf`, `oneOf`, `allOf` and `not`.
fn check_combined(schema: &Value, value: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let is_valid = |schema: &Value| {
        let mut inner = FieldErrors::default();
        check_value(schema, value, path, &mut inner);
        inner.0.is_empty()
    };
    let list = |word: &str| schema[word].as_array().filter(|list| !list.is_empty());
    let mut refuse = |detail: &str| errors.invalid(path, "", &format!("\"{path}\" must {detail}"));
    if list("anyOf").is_some_and(|list| !list.iter().any(is_valid)) {
        refuse("validate at least one schema (anyOf)");
    }
    match list("oneOf").map(|list| list.iter().filter(|schema| is_valid(schema)).count()) {
        None | Some(1) => {}
        Some(0) => refuse("validate one and only one schema (oneOf). Found none valid"),
        Some(count) => refuse(&format!("validate one and only one schema (oneOf). Found {count} valid alternatives")),
    }
    if list("allOf").is_some_and(|list| !list.iter().all(is_valid)) {
        refuse("validate all the schemas (allOf)");
    }
    if schema.get("not").is_some_and(is_valid) {
        refuse("not validate the schema (not)");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn schema_errors_have_kubernetes_wording() {
        let cases = [
            (
                json!({"type": "integer"}),
                json!("x"),
                "Invalid value: \"string\": v in body must be of type integer: \"string\"",
            ),
            (
                json!({"type": "integer"}),
                json!(1.5),
                "Invalid value: \"number\": v in body must be of type integer: \"number\"",
            ),
            (
                json!({"type": "integer", "maximum": 20}),
                json!(21),
                "Invalid value: 21: v in body should be less than or equal to 20",
            ),
            (
                json!({"type": "integer", "minimum": 1, "exclusiveMinimum": true}),
                json!(1),
                "Invalid value: 1: v in body should be greater than 1",
            ),
            (
                json!({"type": "number", "multipleOf": 2}),
                json!(3),
                "Invalid value: 3: v in body should be a multiple of 2",
            ),
            (json!({"type": "string", "maxLength": 2}), json!("abc"), "Too long: may not be more than 2 bytes"),
            (
                json!({"type": "string", "minLength": 2}),
                json!("a"),
                "Invalid value: \"a\": v in body should be at least 2 chars long",
            ),
            (
                json!({"type": "string", "pattern": "^[a-z]+$"}),
                json!("A"),
                "Invalid value: \"A\": v in body should match '^[a-z]+$'",
            ),
            (
                json!({"type": "string", "format": "date-time"}),
                json!("x"),
                "Invalid value: \"x\": v in body must be of type date-time: \"x\"",
            ),
            (
                json!({"type": "string", "enum": ["red", "white"]}),
                json!("blue"),
                "Unsupported value: \"blue\": supported values: \"red\", \"white\"",
            ),
            (json!({"type": "array", "maxItems": 1}), json!([1, 2]), "Too many: 2: must have at most 1 items"),
            (json!({"type": "array", "x-kubernetes-list-type": "set"}), json!(["a", "a"]), "Duplicate value: \"a\""),
            (json!({"type": "object", "required": ["a"]}), json!({}), "Required value"),
            (
                json!({"x-kubernetes-int-or-string": true}),
                json!(true),
                "Invalid value: \"boolean\": v in body must be of type integer,string: \"boolean\"",
            ),
            (
                json!({"anyOf": [{"type": "string"}, {"type": "integer"}]}),
                json!(true),
                "Invalid value: \"\": \"v\" must validate at least one schema (anyOf)",
            ),
            (
                json!({"not": {"type": "boolean"}}),
                json!(true),
                "Invalid value: \"\": \"v\" must not validate the schema (not)",
            ),
        ];
        for (schema, value, expected) in cases {
            let schema = json!({"properties": {"v": schema}});
            let errors = check(&schema, &Object(json!({"v": value})));
            assert_eq!(errors.iter().map(|error| error.message.as_str()).collect::<Vec<_>>(), [expected], "{schema}");
        }
    }

    #[test]
    fn valid_values_pass_the_schema() {
        let cases = [
            (json!({"type": "integer"}), json!(2)),
            (json!({"type": "integer"}), json!(2.0)),
            (json!({"type": "string", "nullable": true}), Value::Null),
            (json!({"x-kubernetes-int-or-string": true}), json!("80%")),
            (json!({"type": "object", "additionalProperties": {"type": "string"}}), json!({"a": "b"})),
            (json!({"oneOf": [{"required": ["a"]}, {"required": ["b"]}], "type": "object"}), json!({"a": 1})),
        ];
        for (schema, value) in cases {
            let schema = json!({"properties": {"v": schema}});
            assert_eq!(check(&schema, &Object(json!({"v": value}))), [], "{schema}");
        }
    }

    #[test]
    fn unchecked_rules_are_reported() {
        let schema = json!({"required": ["spec"], "properties": {"spec": {"type": "object", "x-kubernetes-validations": [{"rule": "true"}]}}});
        let mut errors = FieldErrors(check(&schema, &Object(json!({}))));
        assert!(block_rules(&mut errors));
        let errors: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        assert_eq!(errors.len(), 2);
        assert_eq!(errors[0], "spec: Required value");
        assert!(errors[1].starts_with("<nil>: Invalid value: null: some validation rules were not checked"));
    }
}
