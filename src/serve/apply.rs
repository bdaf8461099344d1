//! Server-side apply over HTTP: a patch that says all that one manager wants of an object.

use super::options;
use super::read::ReadPresentation;
use super::request::ApiRequest;
use super::resolve::ResolvedTarget;
use super::write::{check_name, written};
use super::{ServeResult, body};
use crate::apiserver::apply::ApplyOutcome;
use crate::apiserver::apply_patch::apply_patch;
use crate::apiserver::update::UpdatePart;
use crate::apiserver::{Api, WriteReply};
use crate::object::{Reason, Status};

/// Whether a patch is of this kind.
pub fn is_asked_for(request: &ApiRequest) -> bool {
    request.content_type.split(';').next().unwrap_or_default().trim() == "application/apply-patch+yaml"
}

/// Applies what the body says to an object or its status; an object that is not there is made.
pub fn apply(api: &mut Api, request: &ApiRequest, asked: &ResolvedTarget<'_>, part: UpdatePart) -> ServeResult {
    let show = ReadPresentation::from_request(request, asked)?;
    let options = options::of_write(request, "PatchOptions")?;
    let Some(manager) = request.parameter("fieldManager") else {
        let message = "Required value: is required for apply patch".to_owned();
        return Err(options::wrong("PatchOptions", "fieldManager", "FieldValueRequired", message));
    };
    let bad = |text: String| Status::new(Reason::BadRequest, text);
    let read = body::from_yaml(&request.body);
    let config = body::of_value(read.map_err(|why| bad(format!("error decoding YAML: {why}")))?, asked)?;
    check_name(&config, asked.name)?;
    let force = request.flag("force");
    let done =
        api.write(options.dry_run, |txn| apply_patch(txn, asked.kind, &config, (manager, force), part, &options))?;
    let code = if done.outcome == ApplyOutcome::Created { 201 } else { 200 };
    Ok(written(&show, code, WriteReply::changed(done.object, done.warnings)))
}
