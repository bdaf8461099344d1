//! Audit events (`audit.k8s.io/v1`): one line of JSON for each recorded stage of a request.
//!
//! Knows: the fields of an event at each level. Never: writes the log ([`super::http::audit_log`] does) or decides about the request.
//! Start reading at [`AuditedRequest::begin`].

pub mod policy;

use super::access::access_request;
use super::path::{self, ApiPath};
use super::{AnswerBody, ApiRequest, HttpAnswer};
use crate::apiserver::outside::AuditAnnotation;
use crate::apiserver::user::User;
use crate::object::{Time, time};
use policy::{AuditDecision, AuditLevel, AuditPolicy, AuditStage};
use serde::Deserialize;
use serde_json::{Value, json};

/// A request that is recorded.
pub struct AuditedRequest {
    decision: AuditDecision,
    event: Value,
}

/// The part of a body that names its object.
#[derive(Default, Deserialize)]
struct NamedBody {
    #[serde(default)]
    metadata: BodyMetadata,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BodyMetadata {
    namespace: String,
    name: String,
    uid: String,
    resource_version: String,
}

/// Data about a request that is not part of it.
pub struct AuditContext {
    /// The id in the header `Audit-Id`.
    pub id: String,
    /// The path with its parameters.
    pub uri: String,
    /// The client's address.
    pub source: Option<String>,
    /// The time at which the request arrived.
    pub received: Time,
}

impl AuditedRequest {
    /// Starts the event of a request whose user is known; `None` when the policy records nothing of it.
    pub fn begin(
        policy: &AuditPolicy,
        context: &AuditContext,
        request: &ApiRequest,
        user: &User,
        impersonated: Option<&User>,
    ) -> Option<AuditedRequest> {
        let access = access_request(request);
        let decision = policy.decide(user, &access);
        if decision.level == AuditLevel::None {
            return None;
        }
        let mut event = json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": format!("{:?}", decision.level), "auditID": context.id,
            "stage": "", "requestURI": context.uri, "verb": access.verb, "user": user.info(),
        });
        if let Some(impersonated) = impersonated {
            event["impersonatedUser"] = impersonated.info();
        }
        if let Some(source) = &context.source {
            event["sourceIPs"] = json!([source]);
        }
        if !request.agent.is_empty() {
            event["userAgent"] = request.agent.as_str().into();
        }
        if let Some(ApiPath::Object(named)) = path::parse(&request.path) {
            let fields = [
                ("resource", Some(named.plural)),
                ("namespace", named.namespace),
                ("name", named.name),
                ("apiGroup", Some(named.group)),
                ("apiVersion", Some(named.version)),
                ("subresource", named.subresource),
            ];
            for (field, text) in fields {
                if let Some(text) = text.filter(|text| !text.is_empty()) {
                    event["objectRef"][field] = text.into();
                }
            }
        }
        event["requestReceivedTimestamp"] = time::micro(context.received).into();
        Some(AuditedRequest { decision, event })
    }

    /// Records the authorizer's decision.
    pub fn set_decision(&mut self, is_allowed: bool, reason: &str) {
        let decision = if is_allowed { "allow" } else { "forbid" };
        self.event["annotations"] =
            json!({"authorization.k8s.io/decision": decision, "authorization.k8s.io/reason": reason});
    }

    /// Records the annotations of admission that the level includes.
    pub fn set_annotations(&mut self, annotations: &[AuditAnnotation]) {
        for annotation in annotations {
            if !annotation.is_detail || self.decision.level >= AuditLevel::Request {
                self.event["annotations"][&annotation.key] = annotation.value.as_str().into();
            }
        }
    }

    /// Records the object that the body of the request names, and the body if the level includes it.
    pub fn set_request_body(&mut self, request: &ApiRequest) {
        if request.body.is_empty() {
            return;
        }
        if matches!(request.method.as_str(), "POST" | "PUT") && self.event["objectRef"].is_object() {
            let named: Option<NamedBody> = serde_json::from_slice(&request.body).ok();
            self.complete_reference(named.unwrap_or_default().metadata);
        }
        if self.decision.level < AuditLevel::Request {
            return;
        }
        if let Some(body) = super::body::read_any(request) {
            self.event["requestObject"] = self.without_managed_fields(body);
        }
    }

    /// Adds what the path does not tell.
    fn complete_reference(&mut self, metadata: BodyMetadata) {
        let BodyMetadata { namespace, name, uid, resource_version } = metadata;
        let fields = [("namespace", namespace), ("name", name), ("uid", uid), ("resourceVersion", resource_version)];
        for (field, text) in fields.into_iter().filter(|(_, text)| !text.is_empty()) {
            if self.event["objectRef"][field].is_null() {
                self.event["objectRef"][field] = text.into();
            }
        }
    }

    /// Records the answer, with its body if the level includes that.
    pub fn set_answer(&mut self, answer: &HttpAnswer) {
        let mut status = json!({"metadata": {}, "code": answer.code});
        let has_body = self.decision.level == AuditLevel::RequestResponse;
        let body = match &answer.body {
            AnswerBody::Whole(body) if has_body || answer.code >= 400 => serde_json::from_slice::<Value>(body).ok(),
            _ => None,
        };
        if let Some(body) = body {
            if body["kind"] == "Status" {
                for field in ["status", "message", "reason", "details"] {
                    if let Some(value) = body.get(field) {
                        status[field] = value.clone();
                    }
                }
            }
            if has_body {
                self.event["responseObject"] = self.without_managed_fields(body);
            }
        }
        self.event["responseStatus"] = status;
    }

    /// Formats the event of a stage as a line; `None` if the policy omits the stage.
    pub fn format_line(&mut self, stage: AuditStage, now: Time) -> Option<String> {
        if self.decision.omitted_stages.contains(&stage) {
            return None;
        }
        self.event["stage"] = format!("{stage:?}").into();
        self.event["stageTimestamp"] = time::micro(now).into();
        Some(format!("{}\n", self.event))
    }

    fn without_managed_fields(&self, mut body: Value) -> Value {
        if !self.decision.omits_managed_fields {
            return body;
        }
        let remove = |object: &mut Value| {
            if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.remove("managedFields");
            }
        };
        remove(&mut body);
        body.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten().for_each(remove);
        body
    }
}
