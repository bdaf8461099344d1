//! Reviews among manifests: they are answered and not stored.

use crate::cli::cluster::rest;
use crate::cli::manifests::files::Manifest;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::client::ClientRequest;
use crate::object::{Object, bug_text, group_of};
use crate::serve::{AnswerBody, ApiRequest, access, handle_request, review_path};

/// Sends a review; returns its answer, and the line that reports it. `None` for a manifest of another kind.
pub fn send(context: &mut CommandContext, manifest: &Manifest) -> Option<CliResult<(Object, String)>> {
    let object = &manifest.object;
    let namespace = if object.namespace().is_empty() { context.namespace() } else { object.namespace() };
    let path = review_path(object.api_version(), object.kind(), namespace)?;
    let group = group_of(object.api_version());
    let line = format!("{}.{group}/<unknown> created", object.kind().to_ascii_lowercase());
    Some(ask(context, object, &path).map(|answer| (answer, line)))
}

fn ask(context: &mut CommandContext, review: &Object, path: &str) -> CliResult<Object> {
    if let Some(reply) = rest::send_to_server(context, ClientRequest::post(path, &review.0))? {
        context.warn(&reply.warnings);
        return Ok(Object(reply.json().map_err(|error| Failure::plain(error.to_string()))?));
    }
    let user = context.user();
    let mut request = ApiRequest::new("POST", path);
    request.content_type = "application/json".to_owned();
    request.accept = "application/json".to_owned();
    request.user = (!user.is_administrator()).then_some(user);
    request.body = review.0.to_string().into_bytes();
    let api = context.api()?;
    access::authorize(api, &request)?;
    let AnswerBody::Whole(body) = handle_request(api, &request)?.body else {
        return Err(Failure::plain(bug_text("the answer to a review is not a document")));
    };
    Ok(Object(serde_json::from_slice(&body).map_err(|error| Failure::plain(error.to_string()))?))
}
