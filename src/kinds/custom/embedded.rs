//! Embedded resources: objects in the fields of a custom resource that have a version, a kind and metadata of their own
//! (k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta).

use super::schema::{has_flag, visit_parts};
use crate::kinds::catalogue::typed::{self, DecodeError};
use crate::kinds::shared::names::label_1035;
use crate::kinds::shared::{metadata, omit};
use crate::kinds::{FieldErrors, FieldPath, NameRule, UnknownField};
use crate::object::Object;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

/// The keyword of a schema that marks an embedded resource.
pub const EMBEDDED: &str = "x-kubernetes-embedded-resource";

/// Brings the metadata of each embedded resource into the form of [`ObjectMeta`]: drops its unknown fields, which are reported. Refuses
/// values of the wrong type.
pub fn coerce(
    schema: &Value,
    value: &mut Value,
    path: &FieldPath,
    unknown: &mut dyn FnMut(UnknownField),
) -> Result<(), DecodeError> {
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                coerce(&schema["items"], item, &path.index(index), unknown)?;
            }
        }
        Value::Object(fields) => {
            if has_flag(schema, EMBEDDED) {
                coerce_head(fields, path, unknown)?;
            }
            let others = &schema["additionalProperties"];
            for (name, field) in fields {
                match schema["properties"].get(name) {
                    Some(schema) => coerce(schema, field, &path.child(name), unknown)?,
                    None if others.is_object() => coerce(others, field, &path.key(name), unknown)?,
                    None => {}
                }
            }
        }
        _ => {}
    }
    Ok(())
}

fn coerce_head(
    fields: &mut Map<String, Value>,
    path: &FieldPath,
    unknown: &mut dyn FnMut(UnknownField),
) -> Result<(), DecodeError> {
    for name in ["apiVersion", "kind"] {
        if let Some(other) = fields.get(name).filter(|value| !value.is_string()) {
            return Err(invalid(&path.child(name), other, "must be a string"));
        }
    }
    let Some(written) = fields.get_mut("metadata") else { return Ok(()) };
    let path = path.child("metadata");
    let mut report = |field: UnknownField| unknown(UnknownField { path: format!("{path}.{}", field.path), ..field });
    let mut meta: ObjectMeta =
        typed::read(written, &mut report).map_err(|error| invalid(&path, written, &error.message))?;
    omit::metadata(&mut meta);
    *written = serde_json::to_value(&meta).map_err(|error| invalid(&path, written, &error.to_string()))?;
    Ok(())
}

fn invalid(path: &FieldPath, value: &Value, detail: &str) -> DecodeError {
    let message = format!("{path}: Invalid value: {value}: {detail}");
    DecodeError { path: path.to_string(), message, go_type: None }
}

/// Brings the metadata of the defaults of a schema into the form of [`ObjectMeta`], so that they add no field that it does not know. Drops
/// the default of a field of metadata that is unknown itself.
pub fn coerce_defaults(schema: &mut Value) {
    let mut default = schema["default"].take();
    if !default.is_null() {
        // A default of the wrong type is refused with the definition.
        let _ = coerce(schema, &mut default, &FieldPath::default(), &mut |_| {});
        schema["default"] = default;
    } else if let Some(fields) = schema.as_object_mut() {
        fields.remove("default");
    }
    if has_flag(schema, EMBEDDED) {
        let parts = schema.pointer_mut("/properties/metadata/properties").and_then(Value::as_object_mut);
        parts.into_iter().flatten().for_each(|(name, part)| drop_unknown_default(name, part));
    }
    for part in ["items", "additionalProperties"] {
        if schema.get(part).is_some_and(Value::is_object) {
            coerce_defaults(&mut schema[part]);
        }
    }
    if let Some(parts) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        parts.values_mut().filter(|part| part.is_object()).for_each(coerce_defaults);
    }
}

fn drop_unknown_default(name: &str, part: &mut Value) {
    let Some(default) = part.get("default") else { return };
    let (metadata, mut is_known) = (json!({ name: default }), true);
    let read: Result<ObjectMeta, _> = typed::read(&metadata, &mut |_| is_known = false);
    if !is_known || read.is_err() {
        part.as_object_mut().map(|part| part.remove("default"));
    }
}

/// Checks that each embedded resource has a version, a kind, and metadata in order.
pub fn check(schema: &Value, value: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    visit_parts(schema, value, path, &mut |schema, value, path| check(schema, value, path, errors));
    if !has_flag(schema, EMBEDDED) || !value.is_object() {
        return;
    }
    for name in ["apiVersion", "kind"] {
        let path = path.child(name);
        match value.get(name) {
            None => errors.required(&path, ""),
            Some(Value::String(text)) if text.is_empty() => errors.invalid(&path, "", "must not be empty"),
            Some(Value::String(text)) => check_type(name, text, &path, errors),
            Some(other) => errors.invalid(&path, other.clone(), "must be a string"),
        }
    }
    if let Some(written) = value.get("metadata") {
        check_metadata(written, &path.child("metadata"), errors);
    }
}

fn check_type(name: &str, text: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if name == "apiVersion" {
        if text.matches('/').count() > 1 {
            errors.invalid(path, text, &format!("unexpected GroupVersion string: {text}"));
        }
        return;
    }
    let problems = label_1035(&text.to_lowercase());
    if !problems.is_empty() {
        let detail = format!("may have mixed case, but should otherwise match: {}", problems.join(","));
        errors.invalid(path, text, &detail);
    }
}

/// Checks metadata as that of a new object. The name may be absent, and the scope of the kind is not known.
fn check_metadata(written: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let mut object = Object(json!({"metadata": written}));
    if object.name().is_empty() {
        object.set(&["metadata", "name"], "unnamed");
    }
    let is_namespaced = !object.namespace().is_empty();
    metadata::check_new(&object, NameRule::PathSegment, is_namespaced, path, errors);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Value {
        let pod = json!({"type": "object", EMBEDDED: true, "properties": {"spec": {"type": "object"}}});
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "pod": pod, "pods": {"type": "array", "items": pod}, "named": {"type": "object", "additionalProperties": pod},
        }}}})
    }

    fn coerced(spec: &Value) -> (Result<Value, String>, Vec<String>) {
        let (mut value, mut unknown) = (json!({"spec": spec}), Vec::new());
        let done = coerce(&schema(), &mut value, &FieldPath::default(), &mut |field| unknown.push(field.path));
        (done.map(|()| value["spec"].take()).map_err(|error| error.message), unknown)
    }

    #[test]
    fn unknown_metadata_of_embedded_resources_is_dropped_and_reported() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {}, "extra": 1}});
        let kept = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}});
        let (value, unknown) = coerced(&json!({"pod": pod, "pods": [pod], "named": {"x": pod}}));
        assert_eq!(value, Ok(json!({"pod": kept, "pods": [kept], "named": {"x": kept}})));
        assert_eq!(unknown, ["spec.named[x].metadata.extra", "spec.pod.metadata.extra", "spec.pods[0].metadata.extra"]);
        assert_eq!(coerced(&json!({"pod": {"kind": "Pod"}})), (Ok(json!({"pod": {"kind": "Pod"}})), Vec::new()));
    }

    #[test]
    fn defaults_of_a_schema_lose_unknown_metadata() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "extra": 1}});
        let part = |default: Value| json!({"type": "string", "default": default});
        let metadata = json!({"type": "object", "properties": {"name": part(json!("b")), "extra": part(json!("c"))}});
        let embedded = json!({"type": "object", EMBEDDED: true, "default": pod, "properties": {"metadata": metadata}});
        let mut schema = json!({"type": "object", "properties": {"pods": {"type": "array", "items": embedded}}});
        coerce_defaults(&mut schema);
        let items = &schema["properties"]["pods"]["items"];
        assert_eq!(items["default"]["metadata"], json!({"name": "a"}));
        let fields = &items["properties"]["metadata"]["properties"];
        assert_eq!(fields, &json!({"name": part(json!("b")), "extra": {"type": "string"}}));
        assert!(schema.get("default").is_none(), "{schema}");
    }

    #[test]
    fn values_of_the_wrong_type_in_embedded_resources_are_refused() {
        let number = "cannot unmarshal number into Go struct field ObjectMeta.labels of type string";
        let cases = [
            (json!({"kind": 1}), "spec.pod.kind: Invalid value: 1: must be a string".to_owned()),
            (
                json!({"metadata": {"labels": {"a": 5}}}),
                format!("spec.pod.metadata: Invalid value: {{\"labels\":{{\"a\":5}}}}: json: {number}"),
            ),
        ];
        for (pod, problem) in cases {
            assert_eq!(coerced(&json!({"pod": pod})).0, Err(problem), "{pod}");
        }
    }

    #[test]
    fn metadata_of_embedded_resources_is_checked() {
        let cases = [
            (json!({}), ""),
            (json!({"name": "A:b", "namespace": "c", "finalizers": ["orphan"]}), ""),
            (json!({"name": "a/b"}), "spec.pod.metadata.name: Invalid value: \"a/b\": may not contain '/'"),
            (
                json!({"labels": {"a": "b c"}}),
                "spec.pod.metadata.labels: Invalid value: \"b c\": a valid label must be",
            ),
            (json!({"finalizers": ["x"]}), ""),
            (
                json!({"finalizers": ["x y"]}),
                "spec.pod.metadata.finalizers: Invalid value: \"x y\": name part must consist of",
            ),
        ];
        for (metadata, problem) in cases {
            let mut errors = FieldErrors::default();
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata});
            check(&schema(), &json!({"spec": {"pod": pod}}), &FieldPath::default(), &mut errors);
            let found: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
            let is_expected = found.len() == usize::from(!problem.is_empty()) && found.concat().starts_with(problem);
            assert!(is_expected, "{metadata}: {found:?}");
        }
    }
}
