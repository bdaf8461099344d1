//! The annotation with the manifest that kubectl applied last, from which it finds removed fields.

use crate::go::json::to_json;
use crate::kinds::Kind;
use crate::kinds::shared::manifest_folder;
use crate::object::{LAST_APPLIED, Object};
use serde_json::{Value, json};

/// Adds the annotation to a manifest: compact JSON of the manifest without that annotation, and a newline. Keeps
/// annotations that are not a map, so that validation refuses them.
pub fn with_last_applied(manifest: &Object) -> Object {
    let mut modified = manifest.clone();
    match modified.value_at(&["metadata", "annotations"]) {
        Some(Value::Object(_)) => {}
        None | Some(Value::Null) => modified.set(&["metadata", "annotations"], json!({})),
        Some(_) => return modified,
    }
    modified.unset(&["metadata", "annotations", LAST_APPLIED]);
    let remembered = last_applied(&modified);
    modified.set(&["metadata", "annotations", LAST_APPLIED], remembered);
    modified
}

/// Returns the value of the last-applied annotation for a manifest without it.
pub fn last_applied(manifest: &Object) -> String {
    let mut manifest = manifest.clone();
    let is_annotated = manifest.value_at(&["metadata", "annotations"]).is_some();
    manifest_folder::remove(&mut manifest);
    if is_annotated && manifest.value_at(&["metadata", "annotations"]).is_none() {
        manifest.set(&["metadata", "annotations"], json!({}));
    }
    let mut remembered = to_json(&manifest.0);
    remembered.push('\n');
    remembered
}

/// The warning about an object that was not created by apply.
pub fn missing_annotation(kind: &Kind, name: &str) -> String {
    format!(
        "resource {}/{name} is missing the {LAST_APPLIED} annotation which is required by kubectl apply. \
         kubectl apply should only be used on resources created declaratively by either kubectl create --save-config \
         or kubectl apply. The missing annotation will be patched automatically.",
        kind.resource.plural()
    )
}
