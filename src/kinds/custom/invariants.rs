//! Rules for objects besides the keywords of their schema: lists without duplicates, embedded objects, and the numbers of the subresource
//! `scale` (k8s.io/apiextensions-apiserver: schema/listtype, schema/objectmeta, registry/customresource/validator.go).

use super::ScalePaths;
use super::check::{check_unique, key_of};
use super::embedded;
use super::schema::visit_parts;
use crate::kinds::{FieldErrors, FieldPath};
use crate::object::Object;
use serde_json::Value;

/// Checks an object, which was `old` before. Lists that had duplicates before may keep them.
pub fn check(
    schema: &Value,
    scale: Option<&ScalePaths>,
    object: &Object,
    old: Option<&Object>,
    errors: &mut FieldErrors,
) {
    if let Some(scale) = scale {
        check_scale(scale, object, errors);
    }
    embedded::check(schema, &object.0, &FieldPath::default(), errors);
    let had_duplicates = old.is_some_and(|old| {
        let mut known = FieldErrors::default();
        check_lists(schema, &old.0, &FieldPath::default(), &mut known);
        !known.0.is_empty()
    });
    if !had_duplicates {
        check_lists(schema, &object.0, &FieldPath::default(), errors);
    }
}

fn check_lists(schema: &Value, value: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    visit_parts(schema, value, path, &mut |schema, value, path| check_lists(schema, value, path, errors));
    let Some(items) = value.as_array() else { return };
    match schema["x-kubernetes-list-type"].as_str() {
        Some("set") => check_unique(items.iter().cloned(), path, errors),
        Some("map") => check_unique(items.iter().map(|item| key_of(schema, item)), path, errors),
        _ => {}
    }
}

/// Checks the fields that `scale` reads.
fn check_scale(scale: &ScalePaths, object: &Object, errors: &mut FieldErrors) {
    for steps in [&scale.wanted, &scale.seen] {
        let path = FieldPath::root(&format!(".{}", steps.join(".")));
        let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
        match object.value_at(&steps) {
            None => {}
            Some(value) => check_replicas(value, &path, errors),
        }
    }
}

fn check_replicas(value: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    const MAX_REPLICAS: i64 = i32::MAX as i64;
    match value.as_i64() {
        Some(count) if count < 0 => errors.invalid(path, count, "should be a non-negative integer"),
        Some(count) if count > MAX_REPLICAS => {
            errors.invalid(path, count, &format!("should be less than or equal to {MAX_REPLICAS}"));
        }
        Some(_) => {}
        None => {
            let text = path.to_string();
            errors.invalid(path, 0, &format!("{text} accessor error: {value} is of the wrong type, expected int64"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn wrong(schema: Value, object: Value, old: Option<Value>) -> Vec<String> {
        let mut errors = FieldErrors::default();
        let scale = ScalePaths { wanted: vec!["spec".into(), "n".into()], seen: Vec::new(), selector: Vec::new() };
        let scale = ScalePaths { seen: vec!["status".into(), "n".into()], ..scale };
        check(&schema, Some(&scale), &Object(object), old.map(Object).as_ref(), &mut errors);
        errors.0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn duplicates_are_refused_unless_there_were_some_before() {
        let list = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object"}});
        let schema = json!({"properties": {"spec": {"properties": {"l": list}}}});
        let object =
            |keys: &[i64]| json!({"spec": {"l": keys.iter().map(|key| json!({"k": key})).collect::<Vec<_>>()}});
        assert_eq!(wrong(schema.clone(), object(&[1, 1]), None), ["spec.l[1]: Duplicate value: {\"k\":1}"]);
        assert_eq!(wrong(schema.clone(), object(&[1, 1]), Some(object(&[1]))).len(), 1);
        let set = json!({"properties": {"v": {"type": "array", "x-kubernetes-list-type": "set"}}});
        assert_eq!(wrong(set, json!({"v": ["a", "a"]}), None), ["v[1]: Duplicate value: \"a\""]);
        assert_eq!(wrong(schema, object(&[2, 2]), Some(object(&[1, 1]))), [] as [String; 0]);
    }

    #[test]
    fn embedded_objects_and_replicas_are_checked() {
        let schema = json!({"properties": {"spec": {"properties": {"pod": {"x-kubernetes-embedded-resource": true}}}}});
        let object = json!({"spec": {"n": -1, "pod": {"kind": "_"}}, "status": {"n": "x"}});
        let expected = [
            ".spec.n: Invalid value: -1: should be a non-negative integer",
            ".status.n: Invalid value: 0: .status.n accessor error: \"x\" is of the wrong type, expected int64",
            "spec.pod.apiVersion: Required value",
            "spec.pod.kind: Invalid value: \"_\": may have mixed case, but should otherwise match: a DNS-1035 label must consist",
        ];
        let found = wrong(schema, object, None);
        assert!(
            found.len() == 4 && found.iter().zip(expected).all(|(found, start)| found.starts_with(start)),
            "{found:?}"
        );
    }
}
