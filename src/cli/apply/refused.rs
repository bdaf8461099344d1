//! The error of a refused patch in kubectl's form: with the patch, the object and the file.

use crate::apiserver::apply::three_way;
use crate::apiserver::rules::names::key_of;
use crate::cli::manifests::files::Manifest;
use crate::cli::{CommandContext, Failure};
use crate::go::fmt;
use crate::go::json::to_json;
use crate::kinds::Kind;
use crate::managed_fields::last_applied::{missing_annotation, with_last_applied};
use crate::object::LAST_APPLIED;
use crate::object::{Cause, Object, Status};
use serde_json::Value;

/// Adds the patch, the object and the file to the API server's refusal. The patch is computed again
/// for this.
pub fn patch(
    context: &mut CommandContext,
    manifest: &Manifest,
    kind: &'static Kind,
    object: &Object,
    overwrite: bool,
    status: Status,
) -> Failure {
    let plain = |status: Status| manifest.refusal("patching", status);
    let live = context.read_view(|txn| txn.get(&key_of(kind, object)));
    let Ok(Some(live)) = live else { return plain(status) };
    let last = live.annotation(LAST_APPLIED);
    if last.is_none() {
        context.warn(&[missing_annotation(kind, live.name())]);
    }
    let original = last.and_then(|text| serde_json::from_str(text).ok());
    let change = three_way(kind, original.as_ref(), &with_last_applied(object), &live, overwrite);
    let (Ok(change), Failure::Api { status, doing, hints }) = (change, plain(status.clone())) else {
        return plain(status);
    };
    let status = shortened(status, &change);
    let (change, place) = (to_json(&change), place(kind, live.name(), live.namespace()));
    let doing = format!("error when applying patch:\n{change}\nto:\n{place}\nfor: {:?}: {doing}", manifest.source);
    Failure::Api { status, doing, hints }
}

/// The longest patch, in bytes, that the message quotes.
const MAX_QUOTE_LENGTH: usize = 120;

/// Shortens the error of an unknown field. The API server quotes the whole patch, which contains the
/// manifest a second time in the last-applied annotation. This removes the annotation, and the whole
/// quote if it is still long: the error names the field after it.
fn shortened(status: Status, change: &Value) -> Status {
    let quoted = |patch: &Value| format!("Invalid value: {:?}: ", fmt::plain(patch));
    let [Cause { field, message, .. }] = &status.causes[..] else { return status };
    let why = message.strip_prefix(&quoted(change)).filter(|_| field == "patch" && !status.unknown.is_empty());
    let Some(why) = why else { return status };
    let mut trimmed = change.clone();
    let is_empty = |value: &Value| value.as_object().is_some_and(serde_json::Map::is_empty);
    if let Some(annotations) = trimmed.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(LAST_APPLIED);
    }
    for (place, field) in [("/metadata", "annotations"), ("", "metadata")] {
        if let Some(holder) = trimmed.pointer_mut(place).and_then(Value::as_object_mut)
            && holder.get(field).is_some_and(is_empty)
        {
            holder.remove(field);
        }
    }
    let prefix = quoted(&trimmed);
    let message = if prefix.len() <= MAX_QUOTE_LENGTH { format!("{prefix}{why}") } else { why.to_owned() };
    let cause = Cause { message, ..status.causes[0].clone() };
    Status { causes: vec![cause], ..status }
}

/// Names an object and its place, as kubectl's errors do.
pub fn place(kind: &Kind, name: &str, namespace: &str) -> String {
    let version = kind.api_version();
    let version = if version.contains('/') { version } else { format!("/{version}") };
    let (resource, kind) = (kind.resource.plural(), kind.kind);
    format!(
        "Resource: \"{version}, Resource={resource}\", GroupVersionKind: \"{version}, Kind={kind}\"\n\
         Name: {name:?}, Namespace: {namespace:?}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Reason;
    use serde_json::json;

    #[test]
    fn unknown_field_error_quotes_no_manifest() {
        let why = "strict decoding error: unknown field \"spec.replcias\"";
        let message_of = |change: Value, unknown: bool| {
            let message = format!("Invalid value: {:?}: {why}", fmt::plain(&change));
            let causes = vec![Cause { reason: String::new(), field: "patch".to_owned(), message }];
            let unknown = unknown.then(|| ("spec.replcias".to_owned(), None)).into_iter().collect();
            let status = Status { causes, unknown, ..Status::new(Reason::Invalid, "") };
            shortened(status, &change).causes.remove(0).message
        };
        let with = |spec: Value| json!({"metadata": {"annotations": {LAST_APPLIED: "all of it"}}, "spec": spec});
        let short = message_of(with(json!({"replcias": 3})), true);
        assert_eq!(short, format!("Invalid value: \"map[spec:map[replcias:3]]\": {why}"));
        let long = message_of(with(json!({"replcias": 3, "paused": "x".repeat(MAX_QUOTE_LENGTH)})), true);
        assert_eq!(long, why);
        assert!(
            message_of(with(json!({"replcias": 3})), false).contains("all of it"),
            "other errors are not shortened"
        );
    }
}
