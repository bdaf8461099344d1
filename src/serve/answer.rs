//! HTTP answers.

use super::form::{AnswerEncoding, AnswerForm};
use super::list_body::ListBody;
use super::overview_feed::OverviewFeed;
use super::protobuf::{self, PROTOBUF_WATCH};
use super::target::{ProxyTarget, StreamTarget};
use super::watch::ActiveWatch;
use crate::apiserver::packed_documents::PackedDocument;
use crate::object::status::UNKNOWN_RESOURCE;
use crate::object::{Object, Reason, Status, yaml};
use crate::runtime::logs::LogReader;
use serde_json::{Value, json};
use std::sync::Arc;

/// An answer: status code, headers and body.
pub struct HttpAnswer {
    /// The HTTP status.
    pub code: u16,
    /// The header `Content-Type`.
    pub content_type: String,
    /// The other headers.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: AnswerBody,
}

/// The body of an answer.
pub enum AnswerBody {
    /// The complete body.
    Whole(Vec<u8>),
    /// A document that is compressed already.
    Packed(Arc<PackedDocument>),
    /// A long list: its first piece, and the rest.
    List(Vec<u8>, Box<ListBody>),
    /// Changes as they happen.
    Watch(Box<ActiveWatch>),
    /// Log of a container.
    Log(Box<LogReader>),
    /// Changes of the overview.
    Overview(Box<OverviewFeed>),
    /// Streams after a change of protocols.
    Streams(Box<StreamTarget>),
    /// The response of another server.
    Proxied(Box<ProxyTarget>),
}

/// Messages of generic server errors in Kubernetes' client library; their details are present and empty
/// (`NewGenericServerResponse`).
const GENERIC: [&str; 5] = [
    UNKNOWN_RESOURCE,
    "the server does not allow this method on the requested resource",
    "the server rejected our request due to an error in our request",
    "415: Unsupported Media Type",
    "406: Not Acceptable",
];

/// Maximum length of all warnings of an answer, and of each one when that is exceeded (`apiserver/pkg/endpoints/filters`).
const WARNINGS: usize = 4096;
const CUT_WARNING: usize = 256;

/// Seconds after which a client may try again.
const RETRY: u32 = 1;

/// The beginning of the message when another server does not answer. As in Kubernetes, the answer has no `Retry-After` then.
pub const UNREACHABLE: &str = "error trying to reach service: ";

/// The end of the messages of overload.
const TRY_AGAIN: &str = ", please try again later.";

/// The error for a client that exceeds its share: 429, with the time after which it may try again.
pub fn too_many_requests(what: &str) -> Status {
    Status::new(Reason::TooManyRequests, format!("{what}{TRY_AGAIN}"))
}

impl HttpAnswer {
    /// Makes an answer with a document in the requested form.
    pub fn document(code: u16, document: &Value, form: &AnswerForm) -> HttpAnswer {
        let (encoding, bytes) = match (form.encoding, form.is_pretty) {
            (AnswerEncoding::Protobuf, _) => match protobuf::encode_document(document) {
                Some(bytes) => (form.encoding, bytes),
                None => (AnswerEncoding::Json, json_text(document, form.is_pretty)),
            },
            (AnswerEncoding::Yaml, _) => (form.encoding, yaml::to_yaml(document).into_bytes()),
            (AnswerEncoding::Json, is_pretty) => (form.encoding, json_text(document, is_pretty)),
        };
        let content_type = encoding.media_type().into();
        HttpAnswer { code, content_type, headers: Vec::new(), body: AnswerBody::Whole(bytes) }
    }

    /// Makes an answer with a document that is compressed already.
    pub fn packed(content_type: &str, document: Arc<PackedDocument>) -> HttpAnswer {
        let body = AnswerBody::Packed(document);
        HttpAnswer { code: 200, content_type: content_type.into(), headers: Vec::new(), body }
    }

    /// Makes an answer with a list whose first piece is ready.
    pub fn list(first: Vec<u8>, list: ListBody) -> HttpAnswer {
        let content_type = list.media_type().into();
        let body = if list.is_over() { AnswerBody::Whole(first) } else { AnswerBody::List(first, Box::new(list)) };
        HttpAnswer { code: 200, content_type, headers: Vec::new(), body }
    }

    /// Makes an answer with a document that is encoded already.
    pub fn encoded(document: Vec<u8>, encoding: AnswerEncoding) -> HttpAnswer {
        let body = AnswerBody::Whole(document);
        HttpAnswer { code: 200, content_type: encoding.media_type().into(), headers: Vec::new(), body }
    }

    /// Makes an answer with the changes of a watch.
    pub fn watch(watching: ActiveWatch) -> HttpAnswer {
        let content_type = if watching.is_protobuf() { PROTOBUF_WATCH } else { "application/json" }.into();
        HttpAnswer { code: 200, content_type, headers: Vec::new(), body: AnswerBody::Watch(Box::new(watching)) }
    }

    /// Makes an answer with the changes of the overview.
    pub fn overview(feed: OverviewFeed) -> HttpAnswer {
        let content_type = "application/x-ndjson".into();
        HttpAnswer { code: 200, content_type, headers: Vec::new(), body: AnswerBody::Overview(Box::new(feed)) }
    }

    /// Makes an answer that switches to streams.
    pub fn streams(target: StreamTarget) -> HttpAnswer {
        let body = AnswerBody::Streams(Box::new(target));
        HttpAnswer { code: 101, content_type: String::new(), headers: Vec::new(), body }
    }

    /// Makes an answer that forwards the response of another server.
    pub fn proxied(target: ProxyTarget) -> HttpAnswer {
        HttpAnswer { body: AnswerBody::Proxied(Box::new(target)), ..HttpAnswer::text("") }
    }

    /// Makes an answer with plain text.
    pub fn text(text: impl Into<Vec<u8>>) -> HttpAnswer {
        let content_type = "text/plain; charset=utf-8".into();
        HttpAnswer { code: 200, content_type, headers: Vec::new(), body: AnswerBody::Whole(text.into()) }
    }

    /// Makes the answer that the client's copy is current.
    pub fn unchanged() -> HttpAnswer {
        HttpAnswer { code: 304, ..HttpAnswer::text("") }
    }

    /// Makes an answer of success without an object: `metav1.Status`.
    pub fn done(code: u16, details: Option<Value>, form: &AnswerForm) -> HttpAnswer {
        let mut body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
        match details {
            Some(details) => body["details"] = details,
            None => body["code"] = code.into(),
        }
        HttpAnswer::document(code, &body, form)
    }

    /// Makes an answer with an error.
    pub fn refusal(status: &Status, form: &AnswerForm) -> HttpAnswer {
        let mut body = status.to_value();
        if GENERIC.iter().any(|generic| status.message.starts_with(generic)) {
            body["details"] = json!({});
        }
        let again = retries(status);
        if again {
            body["details"]["retryAfterSeconds"] = RETRY.into();
        }
        let answer = HttpAnswer::document(status.code(), &body, form);
        let answer = match &status.warnings {
            Some(warnings) => answer.warning(&warnings.0),
            None => answer,
        };
        if again { answer.with_header("Retry-After", RETRY.to_string()) } else { answer }
    }

    /// Adds a header.
    pub fn with_header(mut self, name: &'static str, value: String) -> HttpAnswer {
        self.headers.push((name, value));
        self
    }

    /// Adds warnings for the client: `Warning: 299 - "text"` (RFC 7234, 5.5). Repeated ones are added once. When they are long, they are
    /// truncated, and the last ones are left out.
    pub fn warning(mut self, warnings: &[String]) -> HttpAnswer {
        for warning in warnings {
            let told = self.headers.iter().filter(|(name, _)| *name == "Warning").map(|(_, value)| value.len());
            let left = WARNINGS.saturating_sub(told.sum());
            let most = if warning.len() <= left { left } else { left.min(CUT_WARNING) };
            let plain = warning.chars().take(most).map(|c| if c.is_control() { ' ' } else { c });
            let quoted = plain.collect::<String>().replace('\\', "\\\\").replace('"', "\\\"");
            let header = ("Warning", format!("299 - \"{quoted}\""));
            if !quoted.is_empty() && !self.headers.contains(&header) {
                self.headers.push(header);
            }
        }
        self
    }
}

fn json_text(document: &Value, is_pretty: bool) -> Vec<u8> {
    let text = if is_pretty { serde_json::to_string_pretty(document) } else { serde_json::to_string(document) };
    (text.unwrap_or_default() + "\n").into_bytes()
}

/// Whether the client should try again soon.
fn retries(status: &Status) -> bool {
    status.causes.iter().any(|cause| cause.reason == "ResourceVersionTooLarge")
        || status.reason == Reason::ServiceUnavailable && !status.message.starts_with(UNREACHABLE)
        || status.reason == Reason::TooManyRequests && status.message.ends_with(TRY_AGAIN)
}

/// Returns `details` that identify a deleted object.
pub fn details(kind: &crate::kinds::Kind, object: &Object) -> Value {
    let mut details = json!({"name": object.name(), "kind": kind.resource.plural(), "uid": object.uid()});
    if !kind.resource.group().is_empty() {
        details["group"] = kind.resource.group().into();
    }
    details
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_unique_and_bounded() {
        let texts = |warnings: &[String]| -> Vec<String> {
            HttpAnswer::text("").warning(warnings).headers.into_iter().map(|(_, value)| value).collect()
        };
        let twice = ["a \"b\"\n".to_owned(), "a \"b\"\n".to_owned()];
        assert_eq!(texts(&twice), [r#"299 - "a \"b\" ""#]);
        let long: Vec<String> = (0..100).map(|number| format!("{number} {}", "x".repeat(1000))).collect();
        let told = texts(&long);
        let length: usize = told.iter().map(String::len).sum();
        assert!(told.len() > 4 && length <= WARNINGS + 10 * told.len(), "{} of {length}", told.len());
    }
}
