//! Patch: applies an edit to the current object, which then passes the pipeline of an update.

use super::authorization::check_verb;
use super::conversion;
use super::create::misfit_head;
use super::forward::{ForwardedAction, ForwardedWrite};
use super::transaction::Transaction;
use super::update::{UpdatePart, write_update};
use super::{ApiResult, WriteOptions, WriteReply, read};
use crate::client::PatchFormat;
use crate::go::fmt;
use crate::kinds::catalogue::merge_rules;
use crate::kinds::catalogue::read::is_text_type;
use crate::kinds::{self, FieldErrors, FieldPath, Kind};
use crate::object::merge::{self, MergeError};
use crate::object::patch::PatchError;
use crate::object::{Key, Object, Reason, Resource, Status, patch};
use serde_json::Value;
use std::borrow::Cow;

/// The language that a patch is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    /// Kubernetes' own merge, which knows the keys of lists.
    Strategic,
    /// RFC 7386.
    Merge,
    /// RFC 6902.
    Json,
}

impl PatchType {
    fn format(self) -> PatchFormat {
        match self {
            PatchType::Strategic => PatchFormat::Strategic,
            PatchType::Merge => PatchFormat::Merge,
            PatchType::Json => PatchFormat::Json,
        }
    }
}

/// Error message for a strategic merge patch of a kind without merge keys.
pub const UNKNOWN_FORMAT: &str = "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, \
                                  application/merge-patch+json, application/apply-patch+yaml";

/// Patches an object, or its status.
pub fn patch(
    txn: &mut dyn Transaction,
    kind: &Kind,
    key: &Key,
    kind_of_patch: PatchType,
    patch: &Value,
    part: UpdatePart,
    options: &WriteOptions,
) -> ApiResult<WriteReply> {
    let action = ForwardedAction::Patch(kind_of_patch.format(), patch, options);
    let write = ForwardedWrite::from_key(kind, key, options.api_version.as_ref(), part.subresource(), action);
    if let Some(reply) = txn.forward(&write) {
        return reply;
    }
    carry_out(txn, (kind, key), (kind_of_patch, patch), part, options)
}

/// Patches an object of this transaction.
fn carry_out(
    txn: &mut dyn Transaction,
    (kind, key): (&Kind, &Key),
    (kind_of_patch, patch): (PatchType, &Value),
    part: UpdatePart,
    options: &WriteOptions,
) -> ApiResult<WriteReply> {
    check_verb(txn, "patch", part.subresource(), key)?;
    options.check_manager("PatchOptions")?;
    let old = read::exact(txn, key)?;
    let newest = kind.api_version();
    let old = conversion::convert(txn, kind, &old, options.api_version.as_deref().unwrap_or(&newest))?.into_owned();
    let base = in_version_of_patch(kind, &old, options);
    let mut new = Object(patched(kind, &base, kind_of_patch, patch)?);
    // An error of decoding the patched object is one about the patch; Kubernetes shows the patch or that object.
    let shown = match kind_of_patch {
        PatchType::Strategic => fmt::plain(patch),
        PatchType::Merge | PatchType::Json => new.0.to_string(),
    };
    if let Some(why) = find_wrong_type(kind, &new, kind_of_patch) {
        return Err(patch_error(&shown, &why));
    }
    // A strategic patch cannot change the type of an object.
    for field in ["apiVersion", "kind"] {
        if let Some(own) = base.value_at(&[field]) {
            new.set(&[field], own.clone());
        }
    }
    // The schema of this version checks it.
    if let (Some(_), Some(version)) = (kind.custom, &options.api_version) {
        new.set(&["apiVersion"], version.as_str());
    }
    // The namespace of the request counts, unless the patch names another.
    let is_absent = |new: &Object, field: &str| match new.value_at(&["metadata", field]) {
        None | Some(Value::Null) => true,
        Some(value) => value == "",
    };
    match old.namespace() {
        "" if new.value_at(&["metadata", "namespace"]).is_none_or(Value::is_string) => {
            new.unset(&["metadata", "namespace"]);
        }
        namespace if !namespace.is_empty() && is_absent(&new, "namespace") => {
            new.set(&["metadata", "namespace"], namespace);
        }
        _ => {}
    }
    check_identity(kind, &new, &old)?;
    // A patch without resourceVersion applies to the object that was read: it must not have changed since.
    if is_absent(&new, "resourceVersion") {
        new.set(&["metadata", "resourceVersion"], old.text(&["metadata", "resourceVersion"]).unwrap_or_default());
    }
    write_update(txn, kind, &new, part, options).map_err(|status| {
        let head = misfit_head(kind, &new);
        match status.message.strip_prefix(&head).filter(|_| status.reason == Reason::BadRequest) {
            Some(why) if kind_of_patch == PatchType::Strategic => patch_error(&shown, &strategic_words(why)),
            Some(why) => patch_error(&shown, why),
            None => status,
        }
    })
}

/// Returns why the result of a merge or JSON patch is not an object of its kind; a missing kind is filled in.
fn find_wrong_type(kind: &Kind, new: &Object, kind_of_patch: PatchType) -> Option<String> {
    if !new.0.is_object() {
        let fields = r#"APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"""#;
        let what = json_type(&new.0);
        return Some(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {what} into Go value of type struct {{ {fields} }}"
        ));
    }
    if kind_of_patch == PatchType::Strategic {
        return None;
    }
    let found = if new.kind().is_empty() { kind.kind } else { new.kind() };
    let has_version = !new.api_version().is_empty() && kind.custom.is_none();
    let is_other = found != kind.kind || has_version && kinds::by_kind(new.api_version(), found).is_none();
    is_other.then(|| kinds::wrong_kind(kind, new.api_version(), found))
}

/// Refuses a patch that changes the name, the namespace or the uid.
fn check_identity(kind: &Kind, new: &Object, old: &Object) -> ApiResult<()> {
    let is_text =
        |field: &str| new.value_at(&["metadata", field]).is_none_or(|value| value.is_string() || value.is_null());
    if kind.namespaced && new.namespace() != old.namespace() && is_text("namespace") {
        let text = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Status::new(Reason::BadRequest, text));
    }
    if new.name().is_empty() && is_text("name") {
        let name = old.name();
        let message = format!("the name of the object ({name} based on URL) was undeterminable: name must be provided");
        return Err(Status::new(Reason::BadRequest, message));
    }
    if new.name() != old.name() && is_text("name") {
        let message =
            format!("the name of the object ({}) does not match the name on the URL ({})", new.name(), old.name());
        return Err(Status::new(Reason::BadRequest, message));
    }
    // A patch may leave the uid out, as a replacement of the whole object may.
    if !new.uid().is_empty() && new.uid() != old.uid() {
        let field = kinds::FieldError {
            field: "metadata.uid".into(),
            reason: "FieldValueInvalid",
            message: format!("Invalid value: {:?}: field is immutable", new.uid()),
        };
        return Err(kinds::shared::field::invalid(kind.kind, kind.resource, old.name(), &[field]));
    }
    Ok(())
}

/// Returns an object with the field names that its patch uses.
fn in_version_of_patch<'a>(kind: &Kind, old: &'a Object, options: &WriteOptions) -> Cow<'a, Object> {
    match options.api_version.as_deref().filter(|version| kind.also.contains(version)) {
        Some(version) => Cow::Owned(kind.to_version(old.clone(), version)),
        None => Cow::Borrowed(old),
    }
}

/// The error about a patch, which makes an object that does not fit its kind.
fn patch_error(shown: &str, why: &str) -> Status {
    let mut errors = FieldErrors::default();
    errors.invalid_text(&FieldPath::root("patch"), &format!("{shown:?}"), why);
    // Kubernetes names neither kind nor object.
    kinds::shared::field::invalid("", Resource(""), "", &errors.0)
}

/// Returns the words of the converter of strategic patches for Go's error about a value of the wrong type: it names types only.
fn strategic_words(why: &str) -> String {
    let parts = why.strip_prefix("json: cannot unmarshal ").and_then(|rest| rest.split_once(" into Go "));
    let Some((found, (_, wanted))) = parts.and_then(|(found, rest)| Some((found, rest.rsplit_once(" of type ")?)))
    else {
        return match why.strip_prefix("illegal base64 ") {
            Some(_) => format!("error decoding from json: {why}"),
            None => why.to_owned(),
        };
    };
    let source = match found {
        "array" => "slice",
        "object" => "map",
        "string" | "bool" => found,
        number if number.contains('.') => "float64",
        _ => "int64",
    };
    match wanted {
        _ if wanted.starts_with("[]") => format!("cannot restore slice from {source}"),
        _ if wanted.starts_with("map[") || wanted == "v1.ResourceList" => format!("cannot restore map from {source}"),
        "int32" | "int64" if source == "float64" => format!("cannot convert {source} to {wanted}"),
        "bool" | "int32" | "int64" => format!("unrecognized type: {wanted}"),
        _ if is_text_type(wanted) && source == "int64" => format!("cannot convert {source} to {wanted}"),
        _ if is_text_type(wanted) => "unrecognized type: string".to_owned(),
        _ => format!("cannot restore struct from: {source}"),
    }
}

/// The body that a patch makes of an object.
pub fn patched(kind: &Kind, old: &Object, kind_of_patch: PatchType, change: &Value) -> ApiResult<Value> {
    let bad = |text: String| Status::new(Reason::BadRequest, text);
    match kind_of_patch {
        PatchType::Merge if change.is_object() => Ok(patch::json_merge(&old.0, change)),
        PatchType::Json => patch::json_patch(&old.0, change).map_err(|error| match error {
            PatchError::Decode(_) if !change.is_array() => {
                let what = if change.is_object() { "object" } else { "value" };
                bad(format!(
                    "error decoding patch: json: cannot unmarshal {what} into Go value of type []handlers.jsonPatchOp"
                ))
            }
            PatchError::Decode(_) if change.as_array().is_some_and(|all| all.iter().any(|one| !one.is_object())) => {
                let wrong = change.as_array().into_iter().flatten().find(|one| !one.is_object());
                let what = wrong.map_or("number", json_type);
                bad(format!(
                    "error decoding patch: json: cannot unmarshal {what} into Go value of type handlers.jsonPatchOp"
                ))
            }
            PatchError::TooLarge(text) => Status::new(Reason::RequestEntityTooLarge, text),
            // The API server keeps which operation failed to itself.
            PatchError::Decode(_) | PatchError::Apply(_) => {
                Status::new(Reason::Invalid, "the server rejected our request due to an error in our request")
            }
        }),
        PatchType::Strategic if change.is_object() => {
            let Some(schema) = merge_rules::schema_for(&kind.api_version(), kind.kind) else {
                return Err(Status::new(Reason::UnsupportedMediaType, UNKNOWN_FORMAT));
            };
            // Kubernetes knows few of these errors as those of the client (`interpretStrategicMergePatchError`).
            merge::strategic_merge(&old.0, change, schema).map_err(|error| match error {
                MergeError::InvalidFormat(_) => bad(error.to_string()),
                _ => Status::new(Reason::Unknown, error.to_string()),
            })
        }
        // As in Go, null is an empty map.
        _ if change.is_null() => Ok(old.0.clone()),
        _ => Err(bad(decoding_error(kind_of_patch, &unmarshal_error(change)))),
    }
}

/// Kubernetes' error for a patch that cannot be decoded: that of a strategic patch has no prefix.
pub fn decoding_error(language: PatchType, why: &str) -> String {
    let prefix = if language == PatchType::Strategic { "" } else { "error decoding patch: " };
    format!("{prefix}{why}")
}

/// Go's error for a patch that is not a map.
fn unmarshal_error(patch: &Value) -> String {
    format!("json: cannot unmarshal {} into Go value of type map[string]interface {{}}", json_type(patch))
}

/// The type of a value in Go's errors of decoding.
fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        _ => "number",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converter_of_strategic_patches_has_its_own_words() {
        for (found, wanted, words) in [
            ("string", "int32", "unrecognized type: int32"),
            ("number 1.5", "int64", "cannot convert float64 to int64"),
            ("string", "bool", "unrecognized type: bool"),
            ("number", "string", "cannot convert int64 to string"),
            ("number", "types.UID", "cannot convert int64 to types.UID"),
            ("object", "v1.SecretType", "unrecognized type: string"),
            ("object", "[]v1.Container", "cannot restore slice from map"),
            ("array", "map[string]string", "cannot restore map from slice"),
            ("string", "v1.PodSpec", "cannot restore struct from: string"),
        ] {
            let why = format!("json: cannot unmarshal {found} into Go struct field A.b.c of type {wanted}");
            assert_eq!(strategic_words(&why), words, "{why}");
        }
        let other = "strict decoding error: unknown field \"a\"";
        assert_eq!(strategic_words(other), other);
    }
}
