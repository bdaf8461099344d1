//! The error of the API server: Kubernetes' `Status`.

use serde_json::{Value, json};
use std::fmt;

/// The reason of an error, which determines the HTTP code (Kubernetes: `metav1.StatusReason`).
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
    /// 409, the name is in use.
    AlreadyExists,
    /// 409, a precondition failed.
    Conflict,
    /// 410, the requested revision is no longer available.
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
    /// 500, an error without a reason in Kubernetes.
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
    /// The field with a value of the wrong type, if that is the cause. Additional information of kloop.
    pub misfit: Option<String>,
    /// The exit code of a command that fails because of the machine, such as a full disk.
    pub exit_code: Option<u8>,
    /// The code, reason and details that a webhook chose; they replace those of `reason`.
    pub foreign: Option<Box<ForeignStatus>>,
}

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

impl Status {
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
            misfit: None,
            exit_code: None,
            foreign: None,
        }
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
