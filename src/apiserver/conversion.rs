//! Conversion of custom resources between versions, by the webhook of their definition (ConversionReview v1).
//!
//! Knows: objects of such kinds are stored in the storage version, and clients see the one that they ask for. Of metadata, a webhook may
//! change labels and annotations only. Never: converts kinds without a webhook, whose versions differ in `apiVersion` alone.
//! Start reading at [`convert`].

use super::ApiResult;
use super::hook_client::{HookClient, find_endpoint};
use super::outside::{self, Answer, Asked, WebhookQuestion};
use super::transaction::Transaction;
use crate::kinds::Kind;
use crate::kinds::custom::ConversionWebhook;
use crate::object::{Key, Object, Reason, Status};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

/// Seconds that a webhook has for a conversion, as in Kubernetes.
const TIMEOUT: u64 = 30;
/// Maximum number of objects in one request.
const MOST_OBJECTS: usize = 500;

/// The webhook that converts objects of a kind.
pub fn webhook(kind: &Kind) -> Option<&'static ConversionWebhook> {
    kind.custom.and_then(|custom| custom.conversion.as_ref())
}

/// Returns an object in another version, within a write.
pub fn convert<'o>(
    txn: &mut dyn Transaction,
    kind: &Kind,
    object: &'o Object,
    api_version: &str,
) -> ApiResult<Cow<'o, Object>> {
    let Some(webhook) = webhook(kind).filter(|_| object.api_version() != api_version) else {
        return Ok(Cow::Borrowed(object));
    };
    let asked = ConversionQuestion::new(txn, kind, webhook, std::slice::from_ref(object), api_version);
    let answer = match asked.question {
        Err(why) => (Err(why), String::new()),
        Ok(question) => match txn.ask(question) {
            Asked::Answered(answer, uid) => (answer, uid),
            Asked::Deferred => return Err(outside::deferred()),
            // A preview shows it as it is stored.
            Asked::Unavailable => return Ok(Cow::Borrowed(object)),
        },
    };
    let mut converted =
        read_answer(kind, std::slice::from_ref(object), api_version, (&asked.url, &answer.0, &answer.1))?;
    Ok(converted.pop().map_or(Cow::Borrowed(object), Cow::Owned))
}

/// Returns an object as it is stored.
pub fn to_storage<'o>(txn: &mut dyn Transaction, kind: &Kind, object: &'o Object) -> ApiResult<Cow<'o, Object>> {
    match webhook(kind) {
        Some(webhook) => convert(txn, kind, object, &webhook.storage),
        None => Ok(Cow::Borrowed(object)),
    }
}

/// Returns an object that is read in a write in another version.
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

/// Keeps an object, in the storage version. Returns it as it was given, with its new revision.
pub fn put(txn: &mut dyn Transaction, kind: &Kind, key: &Key, object: Object) -> ApiResult<Arc<Object>> {
    let stored = match to_storage(txn, kind, &object)? {
        Cow::Borrowed(_) => return txn.put(key, object),
        Cow::Owned(stored) => stored,
    };
    let kept = txn.put(key, stored)?;
    let mut object = object;
    object.set(&["metadata", "resourceVersion"], kept.revision().to_string());
    Ok(Arc::new(object))
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
        let endpoint = find_endpoint(txn, &HookClient::read(&webhook.client_config), Some(TIMEOUT));
        debug_assert_eq!(kind.resource.group(), api_version.split('/').next().unwrap_or_default());
        let body = json!({
            "kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
            "request": {"uid": "", "desiredAPIVersion": api_version, "objects": objects.iter().map(|object| &object.0).collect::<Vec<_>>()},
        });
        let timeout = Duration::from_secs(TIMEOUT);
        let question = endpoint.target.map(|target| WebhookQuestion { target, timeout, body });
        ConversionQuestion { url: endpoint.url, question }
    }
}

/// Splits objects into requests of a bounded size.
pub fn batches(objects: &[Object]) -> impl Iterator<Item = &[Object]> {
    objects.chunks(MOST_OBJECTS)
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
    let failed = |why: String| Status::new(Reason::Unknown, format!("conversion webhook for {about} failed: {why}"));
    let reply = answer.as_ref().map_err(|why| failed(format!("Post {url:?}: {why}")))?;
    if !(200..300).contains(&reply.status) {
        return Err(failed(format!("the server answered with status {}", reply.status)));
    }
    let review: Value = serde_json::from_slice(&reply.body).map_err(|error| failed(error.to_string()))?;
    let response = &review["response"];
    if review["kind"] != "ConversionReview" || !response.is_object() {
        return Err(failed("no response provided".to_owned()));
    }
    let own = response["uid"].as_str().unwrap_or_default();
    if own != uid {
        return Err(failed(format!("expected response.uid={uid:?}, got {own:?}")));
    }
    match response["result"]["status"].as_str() {
        Some("Success") => {}
        status => {
            let other = format!("response.result.status was '{}', not 'Success'", status.unwrap_or_default());
            return Err(failed(response["result"]["message"].as_str().map_or(other, str::to_owned)));
        }
    }
    let converted = response["convertedObjects"].as_array().cloned().unwrap_or_default();
    if converted.len() != objects.len() {
        let (count, wanted) = (converted.len(), objects.len());
        let text = format!("conversion webhook for {about} returned {count} objects, expected {wanted}");
        return Err(Status::new(Reason::Unknown, text));
    }
    let restored =
        objects.iter().zip(converted).map(|(before, after)| restore(kind, before, Object(after), api_version));
    restored
        .collect::<Result<_, String>>()
        .map_err(|why| Status::new(Reason::Unknown, format!("conversion webhook for {about} returned invalid {why}")))
}

/// A converted object with the metadata of the original, of which labels and annotations are the webhook's.
fn restore(kind: &Kind, before: &Object, mut after: Object, api_version: &str) -> Result<Object, String> {
    if after.api_version() != api_version || after.kind() != kind.kind {
        let (got, own) = (after.api_version(), after.kind());
        return Err(format!(
            "converted object: invalid groupVersion (expected {api_version}, received {got}) or kind {own}"
        ));
    }
    let mut metadata = before.0["metadata"].clone();
    if !after.0["metadata"].is_object() {
        return Err("metadata of converted object: missing metadata".to_owned());
    }
    for field in ["name", "namespace", "uid"] {
        if after.0["metadata"][field] != metadata[field] {
            return Err(format!("metadata of converted object: metadata.{field} is immutable"));
        }
    }
    for field in ["labels", "annotations"] {
        match after.0["metadata"][field].take() {
            Value::Null => drop(metadata.as_object_mut().map(|metadata| metadata.remove(field))),
            value => metadata[field] = value,
        }
    }
    after.0["metadata"] = metadata;
    if let Some(custom) = kind.custom {
        custom.complete(&mut after);
    }
    Ok(after)
}
