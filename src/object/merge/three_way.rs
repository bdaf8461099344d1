//! Three-way patches from the last applied manifest, the new manifest, and the live object.

use super::apply::{MergeTarget, merge_map};
use super::conflict;
use super::diff::{WantedDifferences, diff_map};
use super::schema::MergeSchemaRef;
use super::{MergeError, MergeResult, ObjectFields, fields};
use crate::object::patch::{create_json_merge, json_merge};
use crate::object::yaml::to_yaml;
use serde_json::Value;

/// Creates the strategic patch from one version of an object to another.
pub fn two_way_strategic(original: &Value, modified: &Value, schema: MergeSchemaRef) -> MergeResult<Value> {
    let want = WantedDifferences { additions: true, deletions: true, order: true };
    diff_map(&fields(original)?, &fields(modified)?, schema, want).map(Value::Object)
}

/// Creates the strategic patch of `kubectl apply`: adds and changes fields so that the live object has those of the
/// manifest, and deletes fields that only the last applied manifest has. Fields of other writers stay.
///
/// `original` is the last applied manifest, or `{}`. Without `overwrite`, different changes of other writers are a
/// conflict.
pub fn three_way_strategic(
    original: &Value,
    modified: &Value,
    current: &Value,
    schema: MergeSchemaRef,
    overwrite: bool,
) -> MergeResult<Value> {
    let (original, modified, current) = (fields(original)?, fields(modified)?, fields(current)?);
    let additions = WantedDifferences { additions: true, deletions: false, order: true };
    let deletions = WantedDifferences { additions: false, deletions: true, order: true };
    let delta = diff_map(&current, &modified, schema, additions)?;
    let gone = diff_map(&original, &modified, schema, deletions)?;
    let patch = merge_map(gone, delta, schema, MergeTarget::Patch)?;
    if !overwrite {
        let changed = diff_map(
            &original,
            &current,
            schema,
            WantedDifferences { additions: true, deletions: true, order: false },
        )?;
        if conflict::conflicts(&patch, &changed, schema)? {
            return Err(conflict_error(&patch.into(), &changed.into()));
        }
    }
    Ok(Value::Object(patch))
}

/// Like [`three_way_strategic`], but creates a JSON merge patch, for custom resources, whose lists have no keys.
pub fn three_way_json_merge(original: &Value, modified: &Value, current: &Value) -> MergeResult<Value> {
    let additions = additions(&fields(&create_json_merge(current, modified))?);
    let deletions = deletions(&fields(&create_json_merge(original, modified))?);
    let (additions, deletions) = (Value::Object(additions), Value::Object(deletions));
    if conflict::conflicts_in_json(&additions, &deletions) {
        return Err(conflict_error(&additions, &deletions));
    }
    Ok(json_merge(&deletions, &additions))
}

fn conflict_error(patch: &Value, changed: &Value) -> MergeError {
    let (patch, changed) = (to_yaml(patch), to_yaml(changed));
    MergeError::Conflict(format!("patch:\n{patch}\nconflicts with changes made from original to current:\n{changed}\n"))
}

/// A merge patch without its deletions.
fn additions(patch: &ObjectFields) -> ObjectFields {
    let kept = patch.iter().filter_map(|(key, value)| {
        let value = match value {
            Value::Null => return None,
            Value::Object(inner) if !inner.is_empty() => {
                let inner = additions(inner);
                if inner.is_empty() {
                    return None;
                }
                inner.into()
            }
            other => other.clone(),
        };
        Some((key.clone(), value))
    });
    kept.collect()
}

/// Only the deletions of a merge patch.
fn deletions(patch: &ObjectFields) -> ObjectFields {
    let kept = patch.iter().filter_map(|(key, value)| match value {
        Value::Null => Some((key.clone(), Value::Null)),
        Value::Object(inner) => {
            let inner = deletions(inner);
            (!inner.is_empty()).then(|| (key.clone(), inner.into()))
        }
        _ => None,
    });
    kept.collect()
}
