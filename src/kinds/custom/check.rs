//! Validates objects against a schema, with the error messages of Kubernetes' validator (kube-openapi/pkg/validation).
//!
//! A value that an update does not change keeps its errors, and is not refused (KEP-4008). Never: checks rules in CEL; [`super::rules`]
//! does.

use super::schema::has_flag;
use super::{pattern, string_format};
use crate::kinds::shared::field::MAX_ERRORS;
use crate::kinds::{FieldError, FieldErrors, FieldPath};
use crate::object::{Object, scalar_text};
use serde_json::Value;
use std::cell::Cell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::{Deref, DerefMut};

/// The largest number whose neighbours are all exact in a float of 64 bits.
const MAX_EXACT: f64 = 9_007_199_254_740_991.0;
/// Relative distance at which a float counts as a whole number.
const EPSILON: f64 = 1e-9;
/// Maximum number of steps of the check of one object: some tenths of a second.
const MAX_STEPS: u64 = 20_000_000;

/// Validates an object against a schema. `old`: the object before an update.
pub fn check(schema: &Value, object: &Object, old: Option<&Object>) -> Vec<FieldError> {
    let work = CheckWork::default();
    let mut errors = CheckErrors { found: FieldErrors::default(), work: &work };
    for (name, value) in object.0.as_object().into_iter().flatten() {
        let schema = &schema["properties"][name.as_str()];
        let old = old.and_then(|old| old.0.get(name));
        check_value(schema, value, old, &FieldPath::root(name), &mut errors);
    }
    check_required(schema, &object.0, &FieldPath::default(), &mut errors);
    check_combined(schema, &object.0, &FieldPath::root("<nil>"), &mut errors);
    errors.finish()
}

/// Validates one value without an object, such as a default.
pub fn check_part(schema: &Value, value: &Value) -> Vec<FieldError> {
    let work = CheckWork::default();
    let mut errors = CheckErrors { found: FieldErrors::default(), work: &work };
    check_value(schema, value, None, &FieldPath::default(), &mut errors);
    errors.finish()
}

/// Counts the steps of the check of an object. A schema of many values, alternatives or states, and an object of many values, would
/// otherwise take minutes under the write lock.
#[derive(Default)]
struct CheckWork(Cell<u64>);

impl CheckWork {
    /// Counts steps; false when there were too many.
    fn count(&self, steps: u64) -> bool {
        self.0.set(self.0.get().saturating_add(steps));
        self.0.get() <= MAX_STEPS
    }
}

/// The errors found so far, and the work of finding them.
struct CheckErrors<'w> {
    found: FieldErrors,
    work: &'w CheckWork,
}

impl CheckErrors<'_> {
    fn finish(mut self) -> Vec<FieldError> {
        if !self.work.count(0) {
            let detail = "the check of this object takes too long; make its lists, texts, patterns or enums smaller";
            self.found.0.truncate(MAX_ERRORS - 1);
            self.found.forbidden(&FieldPath::root("<nil>"), detail);
        }
        self.found.0
    }
}

impl Deref for CheckErrors<'_> {
    type Target = FieldErrors;

    fn deref(&self) -> &FieldErrors {
        &self.found
    }
}

impl DerefMut for CheckErrors<'_> {
    fn deref_mut(&mut self) -> &mut FieldErrors {
        &mut self.found
    }
}

/// Whether schema errors prevent the check of the rules. Then adds an error about that.
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
        patterns.extend(schema["format"].as_str().map_or(&[][..], string_format::patterns));
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

/// Checks one value, which was `old` before; `path` starts at the object's root. An unchanged value has no errors, so that an object which
/// was valid when it was written stays changeable (KEP-4008).
fn check_value(schema: &Value, value: &Value, old: Option<&Value>, path: &FieldPath, errors: &mut CheckErrors) {
    if old != Some(value) && errors.work.count(1) {
        check_new_value(schema, value, old, path, errors);
    }
}

fn check_new_value(schema: &Value, value: &Value, old: Option<&Value>, path: &FieldPath, errors: &mut CheckErrors) {
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
        Value::Array(items) => check_list(schema, items, old, path, errors),
        Value::Object(_) => check_map(schema, value, old, path, errors),
        _ => {}
    }
    check_combined(schema, value, path, errors);
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_i64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The declared type, when the value has another type.
fn wrong_type<'a>(schema: &'a Value, value: &Value) -> Option<&'a str> {
    let is_whole = || value.as_f64().is_some_and(is_whole_number);
    let found = match type_of(value) {
        "number" if is_whole() => "integer",
        found => found,
    };
    if has_flag(schema, "x-kubernetes-int-or-string") {
        return (!matches!(found, "integer" | "string")).then_some("integer,string");
    }
    let wanted = schema["type"].as_str()?;
    (wanted != found && !(wanted == "number" && found == "integer")).then_some(wanted)
}

/// Whether a float is a whole number that JSON can represent exactly.
fn is_whole_number(number: f64) -> bool {
    let distance = (number - number.trunc()).abs();
    number.abs() <= MAX_EXACT && (distance == 0.0 || distance / (number.abs() + number.trunc().abs()) < EPSILON)
}

fn check_enum(schema: &Value, value: &Value, path: &FieldPath, errors: &mut CheckErrors) {
    let Some(known) = schema["enum"].as_array() else { return };
    if !errors.work.count(known.len() as u64) || known.contains(value) {
        return;
    }
    // The message names all of them.
    let letters: usize = known.iter().map(|one| one.as_str().map_or(8, str::len)).sum();
    if errors.0.len() >= MAX_ERRORS || !errors.work.count(letters as u64) {
        return;
    }
    let known: Vec<String> = known.iter().map(scalar_text).collect();
    errors.unsupported_as_listed(path, value.clone(), &known.iter().map(String::as_str).collect::<Vec<_>>());
}

fn check_text(schema: &Value, text: &str, path: &FieldPath, errors: &mut CheckErrors) {
    let length = text.chars().count() as u64;
    if let Some(most) = schema["maxLength"].as_u64().filter(|most| length > *most) {
        errors.too_long(path, most as usize);
    }
    if let Some(least) = schema["minLength"].as_u64().filter(|least| length < *least) {
        errors.invalid(path, text, &format!("{path} in body should be at least {least} chars long"));
    }
    if let Some(pattern) = schema["pattern"].as_str()
        && schema["maxLength"].as_u64().is_none_or(|most| length <= most)
        && let Some(program) = pattern::find(pattern)
        && errors.work.count(program.steps(text))
        && !program.regex.is_match(text)
    {
        errors.invalid(path, text, &format!("{path} in body should match '{pattern}'"));
    }
    if let Some(format) = schema["format"].as_str().filter(|format| !string_format::has_format(format, text)) {
        errors.invalid(path, text, &format!("{path} in body must be of type {format}: {text:?}"));
    }
}

fn check_number(schema: &Value, number: f64, value: &Value, path: &FieldPath, errors: &mut CheckErrors) {
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
        && !is_whole_number(if factor < 1.0 { 1.0 / factor * number } else { number / factor })
    {
        refuse(format!("a multiple of {}", schema["multipleOf"]));
    }
}

fn check_list(schema: &Value, items: &[Value], old: Option<&Value>, path: &FieldPath, errors: &mut CheckErrors) {
    if let Some(most) = schema["maxItems"].as_u64().filter(|most| items.len() as u64 > *most) {
        errors.too_many(path, items.len(), most as usize);
    }
    if let Some(least) = schema["minItems"].as_u64().filter(|least| (items.len() as u64) < *least) {
        errors.invalid(path, items.len(), &format!("{path} in body should have at least {least} items"));
    }
    let is_keyed = schema["x-kubernetes-list-type"] == "map";
    let known = old.and_then(Value::as_array).filter(|_| is_keyed);
    let known: Option<HashMap<String, &Value>> =
        known.map(|known| known.iter().map(|item| (key_of(schema, item).to_string(), item)).collect());
    for (index, item) in items.iter().enumerate() {
        let old = known.as_ref().and_then(|known| known.get(&key_of(schema, item).to_string()).copied());
        check_value(&schema["items"], item, old, &path.index(index), errors);
    }
    if has_flag(schema, "uniqueItems") {
        check_unique(items.iter().cloned(), path, errors);
    }
}

/// Refuses values that stand in a list twice.
pub fn check_unique(keys: impl Iterator<Item = Value>, path: &FieldPath, errors: &mut FieldErrors) {
    let mut seen = HashSet::new();
    for (index, key) in keys.enumerate() {
        if !seen.insert(key.to_string()) {
            errors.duplicate(&path.index(index), key);
        }
    }
}

/// Returns the key of an item in a list of type map.
pub fn key_of(schema: &Value, item: &Value) -> Value {
    let names = schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten().filter_map(Value::as_str);
    names.filter_map(|name| Some((name.to_owned(), item.get(name)?.clone()))).collect::<serde_json::Map<_, _>>().into()
}

fn check_map(schema: &Value, value: &Value, old: Option<&Value>, path: &FieldPath, errors: &mut CheckErrors) {
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
        let old = old.and_then(|old| old.get(name));
        let schema = schema["properties"].get(name).unwrap_or(&schema["additionalProperties"]);
        check_value(schema, value, old, &path.child(name), errors);
    }
}

fn check_required(schema: &Value, value: &Value, path: &FieldPath, errors: &mut CheckErrors) {
    let names = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    for name in names.filter(|name| value.get(name).is_none()) {
        errors.required(&path.child(name), "");
    }
}

/// Checks `anyOf`, `oneOf`, `allOf` and `not`.
fn check_combined(schema: &Value, value: &Value, path: &FieldPath, errors: &mut CheckErrors) {
    let work = errors.work;
    let is_valid = |schema: &Value| {
        let mut inner = CheckErrors { found: FieldErrors::default(), work };
        check_value(schema, value, None, path, &mut inner);
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
                json!({"type": "integer"}),
                json!(1e16),
                "Invalid value: \"number\": v in body must be of type integer: \"number\"",
            ),
            (
                json!({"type": "integer"}),
                json!(12_345_678_901_234_567_890_u64),
                "Invalid value: \"number\": v in body must be of type integer: \"number\"",
            ),
            (
                json!({"type": "number", "multipleOf": 0.1}),
                json!(0.25),
                "Invalid value: 0.25: v in body should be a multiple of 0.1",
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
            let errors = check(&schema, &Object(json!({"v": value})), None);
            assert_eq!(errors.iter().map(|error| error.message.as_str()).collect::<Vec<_>>(), [expected], "{schema}");
        }
    }

    #[test]
    fn valid_values_pass_the_schema() {
        let cases = [
            (json!({"type": "integer"}), json!(2)),
            (json!({"type": "integer"}), json!(2.0)),
            (json!({"type": "number"}), json!(12_345_678_901_234_567_890_u64)),
            (json!({"type": "number", "multipleOf": 0.1}), json!(0.3)),
            (json!({"type": "number", "multipleOf": 0.1}), json!(0.7)),
            (json!({"type": "string", "nullable": true}), Value::Null),
            (json!({"x-kubernetes-int-or-string": true}), json!("80%")),
            (json!({"type": "object", "additionalProperties": {"type": "string"}}), json!({"a": "b"})),
            (json!({"oneOf": [{"required": ["a"]}, {"required": ["b"]}], "type": "object"}), json!({"a": 1})),
        ];
        for (schema, value) in cases {
            let schema = json!({"properties": {"v": schema}});
            assert_eq!(check(&schema, &Object(json!({"v": value})), None), [], "{schema}");
        }
    }

    #[test]
    fn name_is_checked_by_the_schema_of_metadata() {
        let name = json!({"type": "string", "enum": ["default"]});
        let schema = json!({"properties": {"metadata": {"type": "object", "properties": {"name": name}}}});
        let check_name = |name: &str| {
            let object = Object(json!({"metadata": {"name": name, "labels": {"a": "b"}}}));
            check(&schema, &object, None).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(check_name("default"), [] as [&str; 0]);
        assert_eq!(check_name("other"), ["metadata.name: Unsupported value: \"other\": supported values: \"default\""]);
    }

    #[test]
    fn unchecked_rules_are_reported() {
        let schema = json!({"required": ["spec"], "properties": {"spec": {"type": "object", "x-kubernetes-validations": [{"rule": "true"}]}}});
        let mut errors = FieldErrors(check(&schema, &Object(json!({})), None));
        assert!(block_rules(&mut errors));
        let errors: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        assert_eq!(errors.len(), 2);
        assert_eq!(errors[0], "spec: Required value");
        assert!(errors[1].starts_with("<nil>: Invalid value: null: some validation rules were not checked"));
    }

    #[test]
    fn unchanged_values_keep_their_errors() {
        let item =
            json!({"type": "object", "properties": {"k": {"type": "string"}, "n": {"type": "integer", "maximum": 3}}});
        let list = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": item});
        let number = json!({"type": "integer", "maximum": 3});
        let schema = json!({"properties": {"spec": {"type": "object", "required": ["must"],
            "properties": {"a": number, "b": number, "keyed": list, "plain": {"type": "array", "items": number}}}}});
        let old = json!({"a": 9, "b": 1, "keyed": [{"k": "x", "n": 9}], "plain": [9, 1]});
        let wrong = |change: Value| {
            let mut spec = old.clone();
            json_patch::merge(&mut spec, &change);
            let (new, old) = (Object(json!({"spec": spec})), Object(json!({"spec": old})));
            check(&schema, &new, Some(&old)).iter().map(|error| error.field.clone()).collect::<Vec<_>>()
        };
        assert_eq!(wrong(json!({})), [] as [&str; 0], "all of it is unchanged, the missing field included");
        assert_eq!(wrong(json!({"b": 2})), ["spec.must"]);
        assert_eq!(wrong(json!({"a": 10})), ["spec.must", "spec.a"]);
        let (other, same) = (json!({"k": "w", "n": 8}), json!({"k": "x", "n": 9}));
        assert_eq!(wrong(json!({"keyed": [other, same]})), ["spec.must", "spec.keyed[0].n"]);
        assert_eq!(wrong(json!({"plain": [9, 2]})), ["spec.must", "spec.plain[0]"]);
    }

    #[test]
    fn check_of_many_values_by_a_large_schema_ends_with_an_error() {
        let names: Vec<String> = (0..20_000).map(|index| format!("name-{index}")).collect();
        let schema = json!({"properties": {"list": {"type": "array", "items": {"type": "string", "enum": names}}}});
        let check_list = |item: &str, count: usize| {
            let object = Object(json!({"list": vec![item; count]}));
            check(&schema, &object, None).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let is_refused = |errors: &[String]| {
            errors.last().is_some_and(|error| error.contains("the check of this object takes too long"))
        };
        assert!(is_refused(&check_list("name-19999", 2000)), "valid values");
        let errors = check_list("nope", 2000);
        assert!(is_refused(&errors) && errors.len() < 200, "{} errors", errors.len());
        let stored = Object(json!({"list": vec!["nope"; 2000], "other": 1}));
        let changed = Object(json!({"list": vec!["nope"; 2000], "other": 2}));
        assert_eq!(check(&schema, &changed, Some(&stored)).len(), 0, "a stored object stays changeable");
        assert_eq!(check_list("name-19999", 20), [""; 0]);
        assert_eq!(check_list("nope", 20).len(), 20);
    }

    #[test]
    fn check_by_a_pattern_of_many_states_ends_with_an_error() {
        let schema = json!({"properties": {"text": {"type": "string", "pattern": "[ab]*a[ab]{990}c"}}});
        let errors = |length: usize| check(&schema, &Object(json!({"text": "ab".repeat(length)})), None);
        assert!(errors(500_000)[0].to_string().contains("the check of this object takes too long"));
        assert!(errors(10)[0].to_string().contains("should match"));
    }
}
