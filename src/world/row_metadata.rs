//! The metadata that each row has.
//!
//! Knows: the text of a stored object gives it without a tree of its values. 500 pods have 2,500 events, so that the rows of a start are
//! mostly those of objects of which only the metadata counts. Never: judges a text in another form than the store's; the parser does.
//! Start reading at [`RowMetadata::from_text`].

use crate::object::json_scan::{ScannedPart, find_path, next_member, value_end};
use crate::object::{Object, OwnerRef, Str, Time};
use serde_json::{Map, json};
use std::sync::Arc;

/// The metadata of a row; [`Row`](super::Row) describes the fields.
#[derive(Default)]
pub(super) struct RowMetadata {
    pub uid: Str,
    pub revision: u64,
    pub generation: i64,
    pub created: Option<Time>,
    pub deletion: Option<Time>,
    pub labels: Arc<[(Str, Str)]>,
    pub owners: Arc<[OwnerRef]>,
    pub finalizers: Arc<[Str]>,
}

impl RowMetadata {
    /// Takes the metadata of an object.
    pub fn from_object(object: &Object) -> RowMetadata {
        RowMetadata {
            uid: object.uid().into(),
            revision: object.revision(),
            generation: object.generation(),
            created: object.created(),
            deletion: object.deletion(),
            ..RowMetadata::default()
        }
        .with_lists(object)
    }

    /// Reads the metadata from the text of an object; `None` for a text in another form than the usual one.
    pub fn from_text(text: &str) -> Option<RowMetadata> {
        let bytes = text.as_bytes();
        let mut metadata = RowMetadata::default();
        let mut lists = Map::new();
        let mut at = find_path(text, &["metadata"])?.start;
        while let ScannedPart::Begins((name, start)) = next_member(bytes, at)? {
            at = value_end(bytes, start)?;
            let value = text.get(start..at)?;
            match text.get(name)? {
                "uid" => metadata.uid = plain_string(value)?.into(),
                "resourceVersion" => metadata.revision = plain_string(value)?.parse().ok()?,
                "generation" => metadata.generation = value.parse().ok()?,
                "creationTimestamp" => metadata.created = Some(plain_string(value)?.parse().ok()?),
                "deletionTimestamp" => metadata.deletion = Some(plain_string(value)?.parse().ok()?),
                name @ ("labels" | "ownerReferences" | "finalizers") => {
                    lists.insert(name.to_owned(), serde_json::from_str(value).ok()?);
                }
                escaped if escaped.contains('\\') => return None,
                _ => {}
            }
        }
        if lists.is_empty() { Some(metadata) } else { Some(metadata.with_lists(&Object(json!({ "metadata": lists })))) }
    }

    fn with_lists(self, object: &Object) -> RowMetadata {
        RowMetadata {
            labels: object.labels().map(|(key, value)| (Str::from(key), Str::from(value))).collect(),
            owners: object.owners().into(),
            finalizers: object.finalizers().into_iter().map(Str::from).collect(),
            ..self
        }
    }
}

/// Returns the content of a JSON string without escapes.
fn plain_string(value: &str) -> Option<&str> {
    value.strip_prefix('"')?.strip_suffix('"').filter(|content| !content.contains('\\'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn parts(metadata: &RowMetadata) -> Value {
        let RowMetadata { uid, revision, generation, created, deletion, labels, owners, finalizers } = metadata;
        let times = [created, deletion].map(|time| time.map(|time| time.to_string()));
        json!([**uid, revision, generation, times, format!("{labels:?} {owners:?} {finalizers:?}")])
    }

    #[test]
    fn metadata_of_a_text_is_that_of_its_object() {
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "o", "controller": true});
        let full = json!({"name": "a", "uid": "u", "resourceVersion": "7", "generation": 3, "annotations": {"uid": "x"},
            "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z",
            "labels": {"b": "2", "a": "\"1"}, "ownerReferences": [owner], "finalizers": ["x/y"],
            "managedFields": [{"manager": "m", "fieldsV1": {"f:metadata": {}}}]});
        for metadata in [full, json!({"name": "a", "uid": "u"}), json!({})] {
            let object = Object(json!({"apiVersion": "v1", "kind": "A", "metadata": metadata, "spec": {"uid": "no"}}));
            let read = RowMetadata::from_text(&object.0.to_string()).expect("in the usual form");
            assert_eq!(parts(&read), parts(&RowMetadata::from_object(&object)));
        }
    }

    #[test]
    fn text_in_another_form_is_left_to_the_parser() {
        for metadata in [
            r#"{"uid": "a\u0041"}"#,
            r#"{"\u0075id": "a"}"#,
            r#"{"uid": 7}"#,
            r#"{"generation": 1.5}"#,
            r#"{"creationTimestamp": null}"#,
            r#"{"resourceVersion": "x"}"#,
            r#"{"labels": {"a"}}"#,
            r#"{"uid" "a"}"#,
            "7",
        ] {
            assert!(RowMetadata::from_text(&format!(r#"{{"metadata": {metadata}}}"#)).is_none(), "{metadata}");
        }
        assert!(RowMetadata::from_text("{}").is_none());
    }
}
