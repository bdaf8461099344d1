//! The error of the API server: Kubernetes' `Status`.

use serde_json::{Value, json};
use std::fmt;

/// The message of [`Status::unknown_resource`].
pub const UNKNOWN_RESOURCE: &str = "the server could not find the requested resource";
/// Maximum number of bytes of a body without a `Status` that an error shows.
const MAX_MESSAGE: usize = 2048;

/// The reason of an error, which determines the HTTP code (Kubernetes: `metav1.StatusReason`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Code 400.
    BadRequest,
    /// Code 401.
    Unauthorized,
    /// Code 403.
    Forbidden,
    /// Code 404.
    NotFound,
    /// Code 405.
    MethodNotAllowed,
    /// Code 406.
    NotAcceptable,
    /// Code 409, the name is in use.
    AlreadyExists,
    /// Code 409, a precondition failed.
    Conflict,
    /// Code 410, the requested revision is no longer available.
    Expired,
    /// Code 413.
    RequestEntityTooLarge,
    /// Code 415.
    UnsupportedMediaType,
    /// Code 422.
    Invalid,
    /// Code 429.
    TooManyRequests,
    /// Code 500.
    InternalError,
    /// Code 500, an error without a reason in Kubernetes.
    Unknown,
    /// Code 501.
    NotImplemented,
    /// Code 503.
    ServiceUnavailable,
    /// Code 504.
    Timeout,
}

/// Every reason with the name that bodies have.
const NAMED: [(&str, Reason); 19] = [
    ("BadRequest", Reason::BadRequest),
    ("Unauthorized", Reason::Unauthorized),
    ("Forbidden", Reason::Forbidden),
    ("NotFound", Reason::NotFound),
    ("MethodNotAllowed", Reason::MethodNotAllowed),
    ("NotAcceptable", Reason::NotAcceptable),
    // The first reason with a code is that of an answer without a name.
    ("Conflict", Reason::Conflict),
    ("AlreadyExists", Reason::AlreadyExists),
    ("Expired", Reason::Expired),
    ("Gone", Reason::Expired),
    ("RequestEntityTooLarge", Reason::RequestEntityTooLarge),
    ("UnsupportedMediaType", Reason::UnsupportedMediaType),
    ("Invalid", Reason::Invalid),
    ("TooManyRequests", Reason::TooManyRequests),
    ("InternalError", Reason::InternalError),
    ("NotImplemented", Reason::NotImplemented),
    ("ServiceUnavailable", Reason::ServiceUnavailable),
    ("Timeout", Reason::Timeout),
    ("ServerTimeout", Reason::Timeout),
];

impl Reason {
    /// Finds a reason by its name, else by its code.
    fn parse(name: &str, code: u16) -> Reason {
        let named = NAMED.iter().find(|(known, _)| *known == name);
        let coded = || NAMED.iter().find(|(_, reason)| reason.code() == code);
        named.or_else(coded).map_or(Reason::Unknown, |(_, reason)| *reason)
    }

    /// The HTTP status code.
    pub fn code(self) -> u16 {
        match self {
            Reason::BadRequest => 400,
            Reason::Unauthorized => 401,
            Reason::Forbidden => 403,
            Reason::NotFound => 404,
            Reason::MethodNotAllowed => 405,
            Reason::NotAcceptable => 406,
            Reason::AlreadyExists | Reason::Conflict => 409,
            Reason::Expired => 410,
            Reason::RequestEntityTooLarge => 413,
            Reason::UnsupportedMediaType => 415,
            Reason::Invalid => 422,
            Reason::TooManyRequests => 429,
            Reason::InternalError | Reason::Unknown => 500,
            Reason::NotImplemented => 501,
            Reason::ServiceUnavailable => 503,
            Reason::Timeout => 504,
        }
    }
}

/// A cause of an `Invalid` error: the field and its problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The reason, such as `FieldValueRequired` or `FieldValueInvalid`.
    pub reason: String,
    /// The field, such as `spec.containers[0].name`.
    pub field: String,
    /// The message, without the field.
    pub message: String,
}

impl Cause {
    fn to_value(&self) -> Value {
        let mut value = json!({"message": self.message});
        for (field, text) in [("reason", &self.reason), ("field", &self.field)] {
            if !text.is_empty() {
                value[field] = text.as_str().into();
            }
        }
        value
    }
}

/// An error of a request. Its display is only the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The reason.
    pub reason: Reason,
    /// The message.
    pub message: String,
    /// Name of the affected object, or empty.
    pub name: String,
    /// Group of the affected object.
    pub group: String,
    /// The plural for most reasons, the kind for `Invalid`, as in Kubernetes.
    pub kind: String,
    /// The causes of an `Invalid` error.
    pub causes: Vec<Cause>,
    /// The token that continues an expired list from a newer revision (`ListMeta`).
    pub resume: Option<Box<str>>,
    /// Unknown fields, each with the most similar known one. Additional information of kloop.
    pub unknown: Vec<(String, Option<&'static str>)>,
    /// Warnings that the server sends together with the error.
    pub warnings: Option<Box<ErrorWarnings>>,
    /// The value that its field cannot have, if that is the cause. Additional information of kloop.
    pub misfit: Option<Box<Misfit>>,
    /// The exit code of a command that fails because of the machine, such as a full disk; 1 for a server that gave no answer, whose message
    /// is printed as it is.
    pub exit_code: Option<u8>,
    /// The code, reason and details that a webhook chose; they replace those of `reason`.
    pub foreign: Option<Box<ForeignStatus>>,
}

/// A value that its field cannot have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// Path of the field, such as `spec.containers[0].image`.
    pub path: String,
    /// The Go type that the value should have, such as `int32`; `None` when the type is right.
    pub go_type: Option<String>,
}

/// The warnings that come with an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorWarnings(pub Vec<String>);

/// The parts of an error that a webhook chose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignStatus {
    /// The HTTP status code.
    pub code: u16,
    /// The reason, in any words; may be empty.
    pub reason: String,
    /// The details, as they were sent; may be null.
    pub details: Value,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}

/// Formats the message about a bug in kloop.
pub fn bug_text(problem: impl fmt::Display) -> String {
    format!("internal error in kloop: {problem}; please report it")
}

impl Status {
    /// Creates an error about a bug in kloop.
    pub fn bug(problem: impl fmt::Display) -> Status {
        Status::new(Reason::InternalError, bug_text(problem))
    }

    /// Creates the error about a malformed request.
    pub fn bad_request(message: impl Into<String>) -> Status {
        Status::new(Reason::BadRequest, message)
    }

    /// Creates an error with a message and no details.
    pub fn new(reason: Reason, message: impl Into<String>) -> Status {
        Status {
            reason,
            message: message.into(),
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            causes: Vec::new(),
            resume: None,
            unknown: Vec::new(),
            warnings: None,
            misfit: None,
            exit_code: None,
            foreign: None,
        }
    }

    /// The error for a kind, a part or a path that the server does not have.
    pub fn unknown_resource() -> Status {
        Status::new(Reason::NotFound, UNKNOWN_RESOURCE)
    }

    /// The error with the warnings that the request has led to.
    pub fn with_warnings(self, warnings: Vec<String>) -> Status {
        let warnings = (!warnings.is_empty()).then(|| Box::new(ErrorWarnings(warnings)));
        Status { warnings, ..self }
    }

    /// Returns the error of another server that answered with this HTTP code and body, in client-go's words where the body has none.
    pub fn from_answer(code: u16, body: &[u8]) -> Status {
        if let Some(status) = serde_json::from_slice(body).ok().and_then(|body| Status::from_value(&body, code)) {
            return status;
        }
        let said = String::from_utf8_lossy(&body[..body.len().min(MAX_MESSAGE)]).trim().to_owned();
        let text = match code {
            401 => "the server has asked for the client to provide credentials",
            403 if said.is_empty() => "unknown",
            403 => &said,
            404 => UNKNOWN_RESOURCE,
            405 => "the server does not allow this method on the requested resource",
            406 | 415 => "the server was unable to respond with a content type that the client supports",
            409 => "the server reported a conflict",
            422 => "the server rejected our request due to an error in our request",
            429 => "the server has received too many requests and has asked us to try again later",
            503 => "the server is currently unable to handle the request",
            504 => {
                "the server was unable to return a response in the time allotted, but may still be processing the request"
            }
            500.. => {
                let text = format!("an error on the server ({said:?}) has prevented the request from succeeding");
                return Status::new(Reason::parse("", code), text);
            }
            _ => "the server rejected our request for an unknown reason",
        };
        Status::new(Reason::parse("", code), text)
    }

    /// Reads the error of another server: the body of its answer with this HTTP code; `None` if the body is not a `Status`.
    pub fn from_value(body: &Value, code_of_answer: u16) -> Option<Status> {
        if body["kind"] != "Status" || body["apiVersion"] != "v1" {
            return None;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (reason, details) = (text(&body["reason"]), &body["details"]);
        let code = body["code"].as_u64().and_then(|code| u16::try_from(code).ok()).filter(|code| *code >= 100);
        let code = code.unwrap_or(code_of_answer);
        let mut status = Status::new(Reason::parse(&reason, code), text(&body["message"]));
        (status.name, status.group, status.kind) =
            (text(&details["name"]), text(&details["group"]), text(&details["kind"]));
        let causes = details["causes"].as_array().map(Vec::as_slice).unwrap_or_default();
        let cause = |cause: &Value| Cause {
            reason: text(&cause["reason"]),
            field: text(&cause["field"]),
            message: text(&cause["message"]),
        };
        status.causes = causes.iter().map(cause).collect();
        status.resume = body["metadata"]["continue"].as_str().map(Box::from);
        let own = NAMED.iter().find(|(_, known)| *known == status.reason).map(|(name, _)| *name);
        if code != status.reason.code() || own != Some(&reason) {
            status.foreign = Some(Box::new(ForeignStatus { code, reason, details: details.clone() }));
        }
        Some(status)
    }

    /// The HTTP status code.
    pub fn code(&self) -> u16 {
        self.foreign.as_ref().map_or(self.reason.code(), |foreign| foreign.code)
    }

    /// Adds details about one object.
    pub fn with_details(mut self, resource: super::Resource, name: &str) -> Status {
        self.kind = resource.plural().into();
        self.group = resource.group().into();
        self.name = name.into();
        self
    }

    /// 404: `pods "x" not found`.
    pub fn not_found(resource: super::Resource, name: &str) -> Status {
        Status::new(Reason::NotFound, format!("{resource} \"{name}\" not found")).with_details(resource, name)
    }

    /// 409: `pods "x" already exists`.
    pub fn already_exists(resource: super::Resource, name: &str) -> Status {
        Status::new(Reason::AlreadyExists, format!("{resource} \"{name}\" already exists")).with_details(resource, name)
    }

    /// 409: `Operation cannot be fulfilled on pods "x": detail`.
    pub fn conflict(resource: super::Resource, name: &str, detail: &str) -> Status {
        let message = format!("Operation cannot be fulfilled on {resource} \"{name}\": {detail}");
        Status::new(Reason::Conflict, message).with_details(resource, name)
    }

    /// 409: the object was modified in the meantime.
    pub fn modified(resource: super::Resource, name: &str) -> Status {
        let detail = "the object has been modified; please apply your changes to the latest version and try again";
        Status::conflict(resource, name, detail)
    }

    /// 403: `pods "x" is forbidden: why`.
    pub fn forbidden(resource: super::Resource, name: &str, why: &str) -> Status {
        let named = if name.is_empty() { resource.to_string() } else { format!("{resource} {name:?}") };
        Status::new(Reason::Forbidden, format!("{named} is forbidden: {why}")).with_details(resource, name)
    }

    /// The JSON body of the response.
    pub fn to_value(&self) -> Value {
        let mut details = serde_json::Map::new();
        for (field, text) in [("name", &self.name), ("group", &self.group), ("kind", &self.kind)] {
            if !text.is_empty() {
                details.insert(field.into(), text.as_str().into());
            }
        }
        if !self.causes.is_empty() {
            let causes: Vec<Value> = self.causes.iter().map(Cause::to_value).collect();
            details.insert("causes".into(), causes.into());
        }
        let mut body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": format!("{:?}", self.reason), "code": self.reason.code(),
        });
        if self.reason == Reason::Unknown
            && let Some(body) = body.as_object_mut()
        {
            body.remove("reason");
        }
        if let Some(foreign) = &self.foreign {
            body["code"] = foreign.code.into();
            if !foreign.reason.is_empty() {
                body["reason"] = foreign.reason.as_str().into();
            }
            if foreign.details.is_object() {
                body["details"] = foreign.details.clone();
            }
        }
        if let Some(token) = &self.resume {
            body["metadata"]["continue"] = (**token).into();
        }
        if !details.is_empty() {
            body["details"] = details.into();
        }
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_of_another_server_is_read_as_it_was_written() {
        let causes =
            vec![Cause { reason: "FieldValueInvalid".into(), field: "spec.a".into(), message: "must be b".into() }];
        let own = Status { causes, kind: "Pod".into(), ..Status::new(Reason::Invalid, "Pod \"a\" is invalid") };
        let foreign = ForeignStatus { code: 418, reason: "Teapot".into(), details: json!({"name": "a"}) };
        let odd = Status {
            foreign: Some(Box::new(foreign)),
            name: "a".into(),
            ..Status::new(Reason::Unknown, "short and stout")
        };
        for status in [own, odd] {
            let read = Status::from_value(&status.to_value(), 500).unwrap();
            assert_eq!((read.to_value(), read.code()), (status.to_value(), status.code()));
        }
        assert_eq!(Status::from_value(&json!({"kind": "Pod", "apiVersion": "v1"}), 500), None);
    }

    #[test]
    fn answer_without_a_status_has_the_words_of_its_code() {
        let words = |code: u16, body: &str| Status::from_answer(code, body.as_bytes());
        assert_eq!(words(404, "404 page not found\n").reason, Reason::NotFound);
        assert_eq!(words(403, " no way\n").message, "no way");
        assert_eq!(
            words(502, "bad").message,
            "an error on the server (\"bad\") has prevented the request from succeeding"
        );
        assert_eq!(words(409, "[1]").reason, Reason::Conflict);
    }
}
