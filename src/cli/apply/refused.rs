//! A refused patch, framed as kubectl frames it: with the patch, the object and the file.

use crate::apiserver::apply::{self, LAST_APPLIED};
use crate::apiserver::create::key_of;
use crate::cli::files::Manifest;
use crate::cli::{Context, Failure};
use crate::kinds::Kind;
use crate::object::{Object, Status, yaml};

/// Tells what was tried. The patch is made once more for it: nobody needs it otherwise.
pub fn patch(
    context: &mut Context,
    manifest: &Manifest,
    kind: &'static Kind,
    object: &Object,
    overwrite: bool,
    status: Status,
) -> Failure {
    let plain = |status: Status| Failure::in_manifest(status, "patching", manifest);
    let live = context.look(|ledger| ledger.get(&key_of(kind, object)));
    let Ok(Some(live)) = live else { return plain(status) };
    let last = live.annotation(LAST_APPLIED);
    if last.is_none() {
        context.warn(&[apply::missing_annotation(kind, live.name())]);
    }
    let original = last.and_then(|text| serde_json::from_str(text).ok());
    let change = apply::three_way(kind, original.as_ref(), &apply::with_last_applied(object), &live, overwrite);
    let (Ok(change), Failure::Api { status, doing, hints }) = (change, plain(status.clone())) else {
        return plain(status);
    };
    let (change, place) = (yaml::to_json(&change), place(kind, live.name(), live.namespace()));
    let doing = format!("error when applying patch:\n{change}\nto:\n{place}\nfor: {:?}: {doing}", manifest.source);
    Failure::Api { status, doing, hints }
}

/// What an object is and where, as kubectl's errors tell it.
pub fn place(kind: &Kind, name: &str, namespace: &str) -> String {
    let version = kind.api_version();
    let version = if version.contains('/') { version } else { format!("/{version}") };
    let (resource, kind) = (kind.resource.plural(), kind.kind);
    format!(
        "Resource: \"{version}, Resource={resource}\", GroupVersionKind: \"{version}, Kind={kind}\"\n\
         Name: {name:?}, Namespace: {namespace:?}"
    )
}
