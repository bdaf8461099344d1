//! Client-side apply, as kubectl does it: three-way merge of the last applied manifest, the new manifest, and the live object.

use super::create::create;
use super::patch::{PatchType, patch};
use super::rules::names::key_of;
use super::transaction::Transaction;
use super::update::UpdatePart;
use super::{ApiResult, WriteOptions, WriteReply, conversion};
use crate::kinds::Kind;
use crate::kinds::catalogue::merge_rules;
use crate::managed_fields::last_applied::{missing_annotation, with_last_applied};
use crate::object::{LAST_APPLIED, Object, Reason, Status, merge};
use serde_json::{Value, json};
use std::sync::Arc;

/// Result of an apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyOutcome {
    /// The object is new.
    Created,
    /// The object was changed.
    Configured,
    /// The live object already matched the manifest.
    Unchanged,
}

/// The result of an apply.
pub struct Applied {
    /// The result.
    pub outcome: ApplyOutcome,
    /// The object.
    pub object: Object,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

impl Applied {
    /// Converts the reply of a write.
    pub fn from_reply(outcome: ApplyOutcome, WriteReply { object, warnings, .. }: WriteReply) -> Applied {
        Applied { outcome, object: Arc::unwrap_or_clone(object), warnings }
    }
}

/// Applies one manifest, whose namespace is filled in.
pub fn apply(
    txn: &mut dyn Transaction,
    kind: &Kind,
    manifest: &Object,
    overwrite: bool,
    options: &WriteOptions,
) -> ApiResult<Applied> {
    let modified = with_last_applied(manifest);
    let key = key_of(kind, manifest);
    let Some(live) = txn.get(&key)? else {
        // Like kubectl, ignores a resourceVersion in the manifest of a new object.
        let mut modified = modified;
        modified.unset(&["metadata", "resourceVersion"]);
        drop_nulls(&mut modified.0);
        let reply = create(txn, kind, &modified, options)?;
        return Ok(Applied::from_reply(ApplyOutcome::Created, reply));
    };
    let live = conversion::convert(txn, kind, &live, manifest.api_version())?.into_owned();
    let mut warnings = Vec::new();
    let original = live.annotation(LAST_APPLIED).and_then(|text| serde_json::from_str::<Value>(text).ok());
    if live.annotation(LAST_APPLIED).is_none() {
        warnings.push(missing_annotation(kind, live.name()));
    }
    let change = three_way(kind, original.as_ref(), &modified, &live, overwrite)?;
    // Frees the memory: the manifest and the patched object may both be large.
    drop(modified);
    if change.as_object().is_some_and(serde_json::Map::is_empty) {
        return Ok(Applied { outcome: ApplyOutcome::Unchanged, object: live, warnings });
    }
    if live.deletion().is_some() {
        warnings.push(format!("Detected changes to resource {} which is currently being deleted.", live.name()));
    }
    let language = if merge_rules::schema_for(&kind.api_version(), kind.kind).is_some() {
        PatchType::Strategic
    } else {
        PatchType::Merge
    };
    let version = conversion::webhook(kind).map(|_| manifest.api_version().to_owned());
    let options = &WriteOptions { api_version: version.or(options.api_version.clone()), ..options.clone() };
    let reply = patch(txn, kind, &key, language, &change, UpdatePart::Main, options)?;
    let done = Applied::from_reply(ApplyOutcome::Configured, reply);
    warnings.extend(done.warnings);
    // kubectl reports "configured" for a non-empty patch, even if it changes nothing (a Secret's stringData, unknown fields).
    Ok(Applied { warnings, ..done })
}

/// Removes fields that are null, as kubectl does in a new object: in a patch, which changes an existing one, null removes the field, too.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// The patch that leads from the live object to the manifest; empty when nothing is to be done.
pub fn three_way(
    kind: &Kind,
    original: Option<&Value>,
    modified: &Object,
    live: &Object,
    overwrite: bool,
) -> ApiResult<Value> {
    let nothing = json!({});
    let original = original.unwrap_or(&nothing);
    let made = match merge_rules::schema_for(&kind.api_version(), kind.kind) {
        Some(schema) => merge::three_way_strategic(original, &modified.0, &live.0, schema, overwrite),
        None => merge::three_way_json_merge(original, &modified.0, &live.0),
    };
    made.map_err(|error| Status::new(Reason::BadRequest, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_fields_are_dropped_but_not_null_items() {
        let mut value = json!({"a": null, "b": {"c": null}, "d": [null, {"e": null, "f": 1}]});
        drop_nulls(&mut value);
        assert_eq!(value, json!({"b": {}, "d": [null, {"f": 1}]}));
    }
}
