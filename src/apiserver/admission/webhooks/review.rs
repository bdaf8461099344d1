//! AdmissionReview: the question to a webhook and its answer (admission.k8s.io/v1 and v1beta1).

use super::hook::Hook;
use crate::apiserver::admission::AdmissionRequest;
use crate::apiserver::admission::matching::{MatchedVersion, Operation};
use crate::apiserver::admission::request::{SeenObjects, group_version};
use crate::apiserver::outside::Answer;
use crate::go::json_syntax;
use crate::object::status::ForeignStatus;
use crate::object::{Reason, Status};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

/// Maximum number of warnings of one answer that reach the client.
const MAX_WARNINGS: usize = 64;

/// The answer of a webhook.
#[derive(Debug, Default, PartialEq)]
pub struct Verdict {
    /// Warnings for the client.
    pub warnings: Vec<String>,
    /// The refusal, if it refuses.
    pub refusal: Option<Status>,
    /// Annotations for the audit log, by the names that the webhook gives them.
    pub annotations: Vec<(String, String)>,
    /// The JSON patch of a mutating webhook.
    pub patch: Option<Value>,
}

/// Writes the question. Its `uid` is filled in when it is sent.
pub fn write_question(
    hook: &Hook,
    request: &AdmissionRequest<'_>,
    version: &MatchedVersion,
    seen: &SeenObjects<'_>,
    is_mutating: bool,
) -> Value {
    let (requested_version, requested_kind) = request.requested_kind();
    let matched_version = version.api_version(request.api_version);
    let kind_version = if request.has_own_kind() { requested_version } else { matched_version };
    let plural = request.kind.resource.plural();
    let mut asked = json!({
        "uid": "",
        "kind": group_version("kind", kind_version, requested_kind),
        "resource": group_version("resource", matched_version, plural),
        "requestKind": group_version("kind", requested_version, requested_kind),
        "requestResource": group_version("resource", request.api_version, plural),
        "operation": request.operation.name(),
        "userInfo": request.user.info(),
        "object": sent_object(request, seen, is_mutating),
        "oldObject": seen.old.as_ref().map_or(Value::Null, |old| old.0.clone()),
        "dryRun": request.dry_run,
        "options": request.options_object(),
    });
    let optional = [
        ("subResource", request.subresource),
        ("requestSubResource", request.subresource),
        ("name", request.name()),
        ("namespace", request.namespace()),
    ];
    for (field, text) in optional.into_iter().filter(|(_, text)| !text.is_empty()) {
        asked[field] = text.into();
    }
    json!({"kind": "AdmissionReview", "apiVersion": hook.review_version, "request": asked})
}

/// The object as a webhook receives it. Mutating webhooks receive a new object without the metadata that the server sets.
pub fn sent_object(request: &AdmissionRequest<'_>, seen: &SeenObjects<'_>, is_mutating: bool) -> Value {
    let Some(mut sent) = seen.object.as_deref().cloned() else { return Value::Null };
    if is_mutating && request.operation == Operation::Create && request.subresource.is_empty() {
        for field in ["uid", "creationTimestamp", "generation"] {
            sent.unset(&["metadata", field]);
        }
        if request.name().is_empty() {
            sent.unset(&["metadata", "name"]);
        }
    }
    sent.0
}

/// Reads an answer; the error says why it cannot be used.
pub fn read_answer(hook: &Hook, url: &str, answer: &Answer, uid: &str, is_mutating: bool) -> Result<Verdict, String> {
    let reply = answer.as_ref().map_err(|why| hook.call_failure(url, why))?;
    let failed = |why: &str| hook.invalid_answer(&format!("failed to call webhook: {why}"));
    if !(200..300).contains(&reply.status) {
        return Err(failed(&Status::from_answer(reply.status, &reply.body).message));
    }
    let review: Value = serde_json::from_slice(&reply.body).map_err(|error| {
        let why = json_syntax::find_error(&reply.body).unwrap_or_else(|| error.to_string());
        failed(&format!("couldn't get version/kind; json parse error: {why}"))
    })?;
    let invalid = |why: String| hook.invalid_answer(&format!("received invalid webhook response: {why}"));
    let response = &review["response"];
    check_review(hook, &review, uid, is_mutating).map_err(invalid)?;
    let warnings = response["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let warnings = warnings.take(MAX_WARNINGS).map(str::to_owned).collect();
    let refusal = (response["allowed"] != true).then(|| refusal(&hook.name, &response["status"]));
    let patch = match response["patch"].as_str().filter(|patch| is_mutating && !patch.is_empty()) {
        Some(patch) => read_patch(hook, response, patch)?,
        None => None,
    };
    let annotations = response["auditAnnotations"].as_object().into_iter().flatten();
    let annotations = annotations.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect();
    Ok(Verdict { warnings, refusal, annotations, patch })
}

fn check_review(hook: &Hook, review: &Value, uid: &str, is_mutating: bool) -> Result<(), String> {
    let response = &review["response"];
    if !response.is_object() {
        return Err("webhook response was absent".to_owned());
    }
    if hook.review_version.ends_with("/v1beta1") {
        return Ok(());
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let own = text(&response["uid"]);
    if own != uid {
        return Err(format!("expected response.uid={uid:?}, got {own:?}"));
    }
    let (version, kind) = (text(&review["apiVersion"]), text(&review["kind"]));
    if version != hook.review_version || kind != "AdmissionReview" {
        let wanted = hook.review_version;
        return Err(format!("expected webhook response of {wanted}, Kind=AdmissionReview, got {version}, Kind={kind}"));
    }
    let has_patch = !text(&response["patch"]).is_empty();
    let has_type = !response["patchType"].is_null();
    match (is_mutating, has_patch, has_type) {
        (true, true, false) => Err("webhook returned response.patch but not response.patchType".to_owned()),
        (true, false, true) => Err("webhook returned response.patchType but not response.patch".to_owned()),
        (false, true, _) => Err("validating webhook may not return response.patch".to_owned()),
        (false, _, true) => Err("validating webhook may not return response.patchType".to_owned()),
        _ => Ok(()),
    }
}

/// Decodes a patch. `null`, as Go encodes a nil slice, changes nothing.
fn read_patch(hook: &Hook, response: &Value, patch: &str) -> Result<Option<Value>, String> {
    if let Some(other) = response["patchType"].as_str().filter(|kind| *kind != "JSONPatch") {
        return Err(hook.invalid_answer(&format!("unsupported patch type {other:?}")));
    }
    let wrong = |why: String| hook.invalid_answer(&format!("received invalid webhook response: {why}"));
    let bytes = BASE64_STANDARD.decode(patch).map_err(|error| wrong(format!("response.patch: {error}")))?;
    serde_json::from_slice(&bytes).map_err(|error| wrong(format!("response.patch: {error}")))
}

/// The refusal of a webhook as the client gets it.
fn refusal(name: &str, result: &Value) -> Status {
    let text = |field: &str| result[field].as_str().unwrap_or_default();
    let denied = format!("admission webhook {name:?} denied the request");
    let message = match (text("message"), text("reason")) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    let code =
        result["code"].as_u64().and_then(|code| u16::try_from(code).ok()).filter(|code| (400..600).contains(code));
    let foreign = ForeignStatus {
        code: code.unwrap_or(400),
        reason: text("reason").to_owned(),
        details: result["details"].clone(),
    };
    Status { foreign: Some(Box::new(foreign)), ..Status::new(Reason::Unknown, message) }
}
