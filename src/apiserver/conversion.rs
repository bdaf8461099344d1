//! Conversion of custom resources between versions, by the webhook of their definition (ConversionReview).
//!
//! Knows: custom resources are stored in the storage version, and clients see the one that they ask for. Of metadata, a webhook may change
//! labels and annotations only. Without a webhook, versions differ in `apiVersion` and in the fields that their schemas know.
//! Built-in kinds convert themselves ([`Kind::to_version`]). Start reading at [`convert`].

use super::ApiResult;
use super::custom::load_schemas;
use super::hook_client::{HookClient, find_endpoint};
use super::outside::{self, Answer, Asked, WebhookQuestion};
use super::transaction::Transaction;
use crate::go::fmt;
use crate::kinds::custom::ConversionWebhook;
use crate::kinds::shared::metadata;
use crate::kinds::{FieldErrors, FieldPath, Kind};
use crate::object::status::UNKNOWN_RESOURCE;
use crate::object::{Key, Object, Reason, Status};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

/// Seconds that a webhook has for a conversion, as in Kubernetes.
const TIMEOUT: u64 = 30;
/// Maximum number of objects in one request.
const MAX_OBJECTS: usize = 500;

/// The webhook that converts objects of a kind.
pub fn webhook(kind: &Kind) -> Option<&'static ConversionWebhook> {
    kind.custom.and_then(|custom| custom.conversion.as_ref())
}

/// Returns a stored object in another version, within a write.
pub fn convert<'o>(
    txn: &mut dyn Transaction,
    kind: &Kind,
    object: &'o Object,
    api_version: &str,
) -> ApiResult<Cow<'o, Object>> {
    let Some(custom) = kind.custom.filter(|_| !txn.is_remote()) else { return Ok(Cow::Borrowed(object)) };
    load_schemas(txn, kind)?;
    let mut stored = Cow::Borrowed(object);
    if custom.is_older(object) {
        custom.complete_stored(stored.to_mut());
    }
    if stored.api_version() == api_version {
        return Ok(stored);
    }
    Ok(Cow::Owned(change_version(txn, kind, &stored, api_version)?))
}

/// Returns a custom resource in another version.
fn change_version(txn: &mut dyn Transaction, kind: &Kind, object: &Object, api_version: &str) -> ApiResult<Object> {
    let Some(webhook) = webhook(kind) else {
        let mut changed = object.clone();
        kind.custom.into_iter().for_each(|custom| custom.relabel(&mut changed, api_version));
        return Ok(changed);
    };
    let asked = ConversionQuestion::new(txn, kind, webhook, std::slice::from_ref(object), api_version);
    let answer = match asked.question {
        Err(why) => (Err(why), String::new()),
        Ok(question) => match txn.ask(question) {
            Asked::Answered(answer, uid) => (answer, uid),
            Asked::Deferred => return Err(outside::missing_answer_error()),
            // In a preview, objects are not converted.
            Asked::Unavailable => return Ok(object.clone()),
        },
    };
    let mut converted =
        read_answer(kind, std::slice::from_ref(object), api_version, (&asked.url, &answer.0, &answer.1))?;
    Ok(converted.pop().unwrap_or_else(|| object.clone()))
}

/// Returns an object of a request in another version. Of a custom resource without a webhook, only the `apiVersion` differs.
pub fn in_version<'o>(
    txn: &mut dyn Transaction,
    kind: &Kind,
    object: &'o Object,
    api_version: &str,
) -> ApiResult<Cow<'o, Object>> {
    if object.kind() != kind.kind || object.api_version() == api_version {
        return Ok(Cow::Borrowed(object));
    }
    if webhook(kind).is_some() {
        return change_version(txn, kind, object, api_version).map(Cow::Owned);
    }
    if kind.custom.is_none() {
        return in_version_of_built_in(kind, object, api_version).map(Cow::Owned);
    }
    let mut seen = object.clone();
    seen.set(&["apiVersion"], api_version);
    Ok(Cow::Owned(seen))
}

fn in_version_of_built_in(kind: &Kind, object: &Object, api_version: &str) -> ApiResult<Object> {
    if api_version != kind.api_version() {
        return Ok(kind.to_version(object.clone(), api_version));
    }
    let stored = kind.normalized(&object.0, &mut |_| {});
    stored.map(Object).map_err(|error| Status::new(Reason::BadRequest, error.to_string()))
}

/// Whether a stored object is as it would be stored now. A write that changes nothing else brings it into that form: so objects migrate.
pub fn is_in_storage_form(txn: &dyn Transaction, kind: &Kind, key: &Key) -> ApiResult<bool> {
    let Some(custom) = kind.custom else { return Ok(true) };
    let Some(stored) = txn.get_shared(key)? else { return Ok(true) };
    if !custom.is_older(&stored) {
        return Ok(stored.api_version() == custom.storage);
    }
    let mut completed = Object::clone(&stored);
    custom.complete_stored(&mut completed);
    Ok(stored.api_version() == custom.storage && completed == *stored)
}

/// Returns an object as it is stored: in the storage version, with that version's defaults.
pub fn to_storage<'o>(txn: &mut dyn Transaction, kind: &Kind, object: &'o Object) -> ApiResult<Cow<'o, Object>> {
    let Some(custom) = kind.custom.filter(|custom| object.api_version() != custom.storage) else {
        return Ok(Cow::Borrowed(object));
    };
    let mut stored = change_version(txn, kind, object, &custom.storage)?;
    custom.complete(&mut stored);
    Ok(Cow::Owned(stored))
}

/// Returns a stored object in another version, within a write.
pub fn shared(
    txn: &mut dyn Transaction,
    kind: &Kind,
    object: Arc<Object>,
    api_version: &str,
) -> ApiResult<Arc<Object>> {
    let converted = match convert(txn, kind, &object, api_version)? {
        Cow::Borrowed(_) => None,
        Cow::Owned(converted) => Some(converted),
    };
    Ok(converted.map_or(object, Arc::new))
}

/// Stores an object in the storage version. Returns it converted back to its own version, which may differ from the given object.
pub fn put(txn: &mut dyn Transaction, kind: &Kind, key: &Key, object: Object) -> ApiResult<Arc<Object>> {
    let stored = match to_storage(txn, kind, &object)? {
        Cow::Borrowed(_) => return txn.put(key, object),
        Cow::Owned(stored) => stored,
    };
    let kept = txn.put(key, stored)?;
    let converted = change_version(txn, kind, &kept, object.api_version())?;
    Ok(Arc::new(converted))
}

/// A question for a webhook, and the URL that errors name.
pub struct ConversionQuestion {
    /// The URL.
    pub url: String,
    /// The question; or the reason why its server is not known.
    pub question: Result<WebhookQuestion, String>,
}

impl ConversionQuestion {
    /// Asks for objects in another version.
    pub fn new(
        txn: &dyn Transaction,
        kind: &Kind,
        webhook: &ConversionWebhook,
        objects: &[Object],
        api_version: &str,
    ) -> ConversionQuestion {
        let endpoint = find_endpoint(txn, &HookClient::read(&webhook.client_config), TIMEOUT);
        debug_assert_eq!(kind.resource.group(), api_version.split('/').next().unwrap_or_default());
        let objects: Vec<&Value> = objects.iter().map(|object| &object.0).collect();
        let body = json!({
            "kind": "ConversionReview", "apiVersion": format!("apiextensions.k8s.io/{}", webhook.review_version),
            "request": {"uid": "", "desiredAPIVersion": api_version, "objects": objects},
        });
        let timeout = Duration::from_secs(TIMEOUT);
        let question = endpoint.target.map(|target| WebhookQuestion { target, timeout, body, place: String::new() });
        ConversionQuestion { url: endpoint.url, question }
    }
}

/// Splits objects into requests of a bounded size.
pub fn batches(objects: &[Object]) -> impl Iterator<Item = &[Object]> {
    objects.chunks(MAX_OBJECTS)
}

/// Reads the answer: the objects in the wanted version, with the metadata that they had.
pub fn read_answer(
    kind: &Kind,
    objects: &[Object],
    api_version: &str,
    (url, answer, uid): (&str, &Answer, &str),
) -> ApiResult<Vec<Object>> {
    let about =
        objects.first().map_or_else(String::new, |object| format!("{}, Kind={}", object.api_version(), kind.kind));
    let failed = |why: String| Status::new(Reason::Unknown, format!("conversion webhook for {about} {why}"));
    let converted = converted_objects(kind, (url, answer, uid)).map_err(|why| failed(format!("failed: {why}")))?;
    if converted.len() != objects.len() {
        let (count, wanted) = (converted.len(), objects.len());
        return Err(failed(format!("returned {count} objects, expected {wanted}")));
    }
    let restored =
        objects.iter().zip(converted).map(|(before, after)| restore(kind, before, Object(after), api_version));
    restored.collect::<Result<_, String>>().map_err(|why| failed(format!("returned invalid {why}")))
}

/// Returns the converted objects of an answer, unchecked.
fn converted_objects(kind: &Kind, (url, answer, uid): (&str, &Answer, &str)) -> Result<Vec<Value>, String> {
    let reply = answer.as_ref().map_err(|why| format!("Post {url:?}: {why}"))?;
    if !(200..300).contains(&reply.status) {
        return Err(refused_by_server(reply.status, &reply.body));
    }
    let review: Value = serde_json::from_slice(&reply.body).map_err(|error| error.to_string())?;
    let wanted = webhook(kind).map_or("v1", |webhook| webhook.review_version);
    let (group, text) = ("apiextensions.k8s.io", |field: &str| review[field].as_str().unwrap_or_default());
    if wanted == "v1" && (text("kind") != "ConversionReview" || text("apiVersion") != format!("{group}/v1")) {
        let got = format!("{}, Kind={}", text("apiVersion"), text("kind"));
        return Err(format!("expected webhook response of {group}/v1, Kind=ConversionReview, got {got}"));
    }
    let response = &review["response"];
    if !response.is_object() {
        return Err("no response provided".to_owned());
    }
    let own = response["uid"].as_str().unwrap_or_default();
    if wanted == "v1" && own != uid {
        return Err(format!("expected response.uid={uid:?}, got {own:?}"));
    }
    match response["result"]["status"].as_str() {
        Some("Success") => Ok(response["convertedObjects"].as_array().cloned().unwrap_or_default()),
        status => {
            let message = response["result"]["message"].as_str().filter(|message| !message.is_empty());
            let other = format!("response.result.status was '{}', not 'Success'", status.unwrap_or_default());
            Err(message.map_or(other, str::to_owned))
        }
    }
}

/// The error for an answer with another status than success, as client-go words it.
fn refused_by_server(status: u16, body: &[u8]) -> String {
    let said: Option<Value> = serde_json::from_slice(body).ok();
    let message = said.as_ref().filter(|said| said["kind"] == "Status").and_then(|said| said["message"].as_str());
    match (message, status) {
        (Some(message), _) => message.to_owned(),
        (None, 404) => UNKNOWN_RESOURCE.to_owned(),
        (None, 500..) => {
            let text = String::from_utf8_lossy(&body[..body.len().min(2048)]);
            format!("an error on the server ({:?}) has prevented the request from succeeding", text.trim())
        }
        (None, status) => format!("the server rejected our request for an unknown reason (status {status})"),
    }
}

/// A converted object with the metadata of the original, of which labels and annotations are the webhook's.
fn restore(kind: &Kind, before: &Object, mut after: Object, api_version: &str) -> Result<Object, String> {
    if after.api_version() != api_version {
        let got = after.api_version();
        return Err(format!("object at index 0: invalid groupVersion (expected {api_version}, received {got})"));
    }
    if after.kind() != kind.kind {
        let got = after.kind();
        return Err(format!("object at index 0: invalid kind (expected {}, received {got})", kind.kind));
    }
    for (field, word) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let text = |object: &Object| object.text(&["metadata", field]).unwrap_or_default().to_owned();
        let (own, got) = (text(before), text(&after));
        if own != got {
            return Err(format!("object: must have the same {word}: {own} != {got}"));
        }
    }
    let metadata = restored_metadata(&before.0["metadata"], after.0["metadata"].take());
    after.0["metadata"] = metadata.map_err(|why| format!("metadata: {why}"))?;
    if let Some(custom) = kind.custom {
        custom.prune(&mut after);
    }
    Ok(after)
}

/// Returns the metadata of the original with labels and annotations of the converted object.
fn restored_metadata(before: &Value, converted: Value) -> Result<Value, String> {
    let Value::Object(mut converted) = converted else {
        return Err(match converted {
            Value::Null => "missing metadata in converted object".to_owned(),
            other => format!("invalid metadata of type {} in converted object", fmt::type_name(&other)),
        });
    };
    let mut metadata = before.clone();
    for field in ["labels", "annotations"] {
        match converted.remove(field) {
            None | Some(Value::Null) => drop(metadata.as_object_mut().map(|metadata| metadata.remove(field))),
            Some(Value::Object(pairs)) => {
                check_pairs(field, &before[field], &pairs)?;
                metadata[field] = pairs.into();
            }
            Some(other) => {
                let found = fmt::type_name(&other);
                return Err(format!("invalid metadata.{field} of type {found} in converted object"));
            }
        }
    }
    Ok(metadata)
}

/// Checks labels or annotations that a webhook has changed.
fn check_pairs(field: &str, before: &Value, pairs: &Map<String, Value>) -> Result<(), String> {
    if let Some((key, value)) = pairs.iter().find(|(_, value)| !value.is_string()) {
        let found = fmt::type_name(value);
        return Err(format!("metadata.{field}[{key}] must be a string, but is {found} in converted object"));
    }
    if before.as_object() == Some(pairs) {
        return Ok(());
    }
    let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    let pairs = pairs.iter().filter_map(text).collect();
    let mut errors = FieldErrors::default();
    let path = FieldPath::root("metadata");
    match field {
        "labels" => metadata::check_labels(&pairs, &path.child("labels"), &mut errors),
        _ => metadata::check_annotations(&pairs, &path.child("annotation"), &mut errors),
    }
    match errors.0.iter().map(ToString::to_string).collect::<Vec<_>>() {
        none if none.is_empty() => Ok(()),
        one if one.len() == 1 => Err(one.concat()),
        all => Err(format!("[{}]", all.join(", "))),
    }
}
