//! The error that the API server answers with: Kubernetes' `Status`.

use serde_json::{Value, json};
use std::fmt;

/// Why a request was refused; fixes the HTTP code. Kubernetes: `metav1.StatusReason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// 400.
    BadRequest,
    /// 401.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 404.
    NotFound,
    /// 405.
    MethodNotAllowed,
    /// 406.
    NotAcceptable,
    /// 409, the name is taken.
    AlreadyExists,
    /// 409, a precondition does not hold.
    Conflict,
    /// 410, the revision asked for is no longer kept.
    Expired,
    /// 413.
    RequestEntityTooLarge,
    /// 415.
    UnsupportedMediaType,
    /// 422.
    Invalid,
    /// 429.
    TooManyRequests,
    /// 500.
    InternalError,
    /// 500, too: an error that Kubernetes gives no reason.
    Unknown,
    /// 501.
    NotImplemented,
    /// 503.
    ServiceUnavailable,
    /// 504.
    Timeout,
}

impl Reason {
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

/// One reason inside an `Invalid` answer: which field, and what about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// `FieldValueRequired`, `FieldValueInvalid` and so on.
    pub reason: String,
    /// `spec.containers[0].name`.
    pub field: String,
    /// The text after the field.
    pub message: String,
}

impl Cause {
    fn to_value(&self) -> Value {
        let mut value = json!({"reason": self.reason, "message": self.message});
        if !self.field.is_empty() {
            value["field"] = self.field.as_str().into();
        }
        value
    }
}

/// A refused request. Its display is the message alone, as the server words it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Why.
    pub reason: Reason,
    /// The sentence.
    pub message: String,
    /// Name of the object concerned, or empty.
    pub name: String,
    /// Group of the object concerned.
    pub group: String,
    /// Plural for most reasons, kind for `Invalid`, as Kubernetes has it.
    pub kind: String,
    /// The single fields of an `Invalid` answer.
    pub causes: Vec<Cause>,
    /// The token with which a list that expired goes on, although what it shows from there on is newer (`ListMeta`).
    pub resume: Option<String>,
    /// Fields that the kind does not know, with the known one that was probably meant: kloop's own help beside the message.
    pub unknown: Vec<(String, Option<&'static str>)>,
    /// The field that has a value of the wrong type, where that is the cause. Additional information of kloop.
    pub misfit: Option<String>,
    /// The machine failed and not the request, a full disk for one: the exit code of a command that fails by it.
    pub exit_code: Option<u8>,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}

impl Status {
    /// A refusal with a message and no details.
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
            misfit: None,
            exit_code: None,
        }
    }

    /// The same with details about one object.
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

    /// 409: the operation cannot be fulfilled, with Kubernetes' sentence around the detail.
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
        Status::new(Reason::Forbidden, format!("{resource} \"{name}\" is forbidden: {why}"))
            .with_details(resource, name)
    }

    /// As JSON, the body that the server sends.
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
        if let Some(token) = &self.resume {
            body["metadata"]["continue"] = token.as_str().into();
        }
        if !details.is_empty() {
            body["details"] = details.into();
        }
        body
    }
}
