//! Audit events (`audit.k8s.io/v1`): one line of JSON for each recorded stage of a request.
//!
//! Knows: the fields of an event at each level. Never: writes the log ([`super::http::audit_log`] does) or decides about the request.
//! Start reading at [`AuditedRequest::begin`].

pub mod policy;

use super::access::access_request;
use super::path::{self, ApiPath};
use super::protobuf;
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
        let has_body = self.decision.level >= AuditLevel::Request;
        // The names alone are read from JSON more cheaply than the whole.
        let is_whole = has_body || protobuf::is_document(&request.body);
        let body = is_whole.then(|| super::body::read_any(request)).flatten();
        if matches!(request.method.as_str(), "POST" | "PUT") && self.event["objectRef"].is_object() {
            let named: Option<NamedBody> = match &body {
                Some(body) => NamedBody::deserialize(body).ok(),
                None => serde_json::from_slice(&request.body).ok(),
            };
            self.complete_reference(named.unwrap_or_default().metadata);
        }
        if let Some(body) = body.filter(|_| has_body) {
            self.event["requestObject"] = self.without_managed_fields(body);
        }
    }

    /// Adds the fields that the path does not have.
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
            AnswerBody::Whole(body) if has_body || answer.code >= 400 => super::body::read_document(body),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The event of a request that creates a ConfigMap in protobuf, with an answer in protobuf.
    fn event(level: &str) -> Value {
        let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{{level: {level}}}]\n");
        let policy = AuditPolicy::parse(&text).unwrap();
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"a": "1"}});
        let body = protobuf::encode_document(&map).unwrap();
        let request = ApiRequest {
            method: "POST".into(),
            path: "/api/v1/namespaces/default/configmaps".into(),
            content_type: protobuf::PROTOBUF.into(),
            body: body.clone(),
            ..ApiRequest::default()
        };
        let context = AuditContext { id: "i".into(), uri: request.path.clone(), source: None, received: Time::now() };
        let user = User::administrator();
        let mut audited = AuditedRequest::begin(&policy, &context, &request, &user, None).expect("recorded");
        audited.set_request_body(&request);
        audited.set_answer(&HttpAnswer { code: 201, ..HttpAnswer::text(body) });
        audited.event
    }

    #[test]
    fn bodies_in_protobuf_are_recorded_as_json() {
        let all = event("RequestResponse");
        assert_eq!(all["objectRef"]["name"], "one");
        for body in ["requestObject", "responseObject"] {
            assert_eq!((&all[body]["kind"], &all[body]["data"]), (&json!("ConfigMap"), &json!({"a": "1"})), "{body}");
        }
        let least = event("Metadata");
        assert_eq!((&least["objectRef"]["name"], &least["requestObject"]), (&json!("one"), &Value::Null));
    }
}
