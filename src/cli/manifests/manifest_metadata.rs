//! The metadata of a manifest: clients decode it before they look for the kind.
//!
//! Knows: the types of its fields. Never: checks values, which is the API server's work. Start reading at [`find_type_error`].

use crate::kinds::catalogue::typed::{self, DecodeError};
use crate::object::Object;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;

/// The part of an object that kubectl decodes, under the name that its errors have.
#[derive(Deserialize)]
#[serde(rename = "metadataOnlyObject")]
struct MetadataOnly {
    #[serde(default, rename = "metadata")]
    _metadata: ObjectMeta,
}

/// Returns why kubectl could not decode the metadata; `None` when only values are wrong.
pub fn find_type_error(object: &Object) -> Option<DecodeError> {
    let metadata = &object.0["metadata"];
    if metadata.is_null() || is_plain(metadata) {
        return None;
    }
    typed::read::<MetadataOnly>(&object.0, &mut |_| {}).err().filter(|error| error.go_type.is_some())
}

/// Whether metadata has only names, labels and annotations, as most manifests do, and all of them are texts.
fn is_plain(metadata: &Value) -> bool {
    metadata.as_object().is_some_and(|fields| {
        fields.iter().all(|(field, value)| match field.as_str() {
            "name" | "namespace" | "generateName" => value.is_string(),
            "labels" | "annotations" => value.as_object().is_some_and(|map| map.values().all(Value::is_string)),
            _ => false,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn types_of_metadata_are_checked() {
        let error = |metadata: Value| {
            let found = find_type_error(&Object(json!({"kind": "Any", "metadata": metadata, "spec": 1})));
            found.map(|error| (error.path, error.message))
        };
        let field = |path: &str, found: &str, field: &str, wanted: &str| {
            let message = format!("json: cannot unmarshal {found} into Go struct field {field} of type {wanted}");
            Some((path.to_owned(), message))
        };
        for right in [
            json!({"name": "a", "labels": {"b": "c"}}),
            json!({"labels": {"a": null}, "ownerReferences": [{"uid": "u"}]}),
            json!({"name": "-- invalid --", "creationTimestamp": "invalid", "else": 1}),
            Value::Null,
        ] {
            assert_eq!(error(right.clone()), None, "{right}");
        }
        for (wrong, expected) in [
            (json!({"name": 1}), field("metadata.name", "number", "ObjectMeta.metadata.name", "string")),
            (json!({"labels": {"a": 1}}), field("metadata.labels.a", "number", "ObjectMeta.metadata.labels", "string")),
            (json!(["a"]), field("metadata", "array", "metadataOnlyObject.metadata", "v1.ObjectMeta")),
        ] {
            assert_eq!(error(wrong), expected);
        }
    }
}
