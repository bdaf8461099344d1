//! Review requests, such as TokenReview and SubjectAccessReview: identity and permissions of a user. They are answered and not stored.
//!
//! Never: decides itself; the authorizer and the tokens' authenticator do.
//! Start reading at [`REVIEWS`].

use super::body;
use super::form::AnswerForm;
use super::path::PathTarget;
use super::request::ApiRequest;
use super::review_selectors::check_selectors;
use super::{HttpAnswer, ServeResult, not_allowed, unknown_path};
use crate::apiserver::Api;
use crate::apiserver::Transaction;
use crate::apiserver::authorization::{AccessRequest, AccessTarget, AccessedResource, authorize, find_grants};
use crate::apiserver::tokens::authenticate::authenticate;
use crate::apiserver::tokens::compare::is_same_secret;
use crate::apiserver::tokens::keys::ClusterKeys;
use crate::apiserver::user::User;
use crate::kinds::shared::field::invalid;
use crate::kinds::{FieldErrors, FieldPath};
use crate::object::{Reason, Resource, Status, join_errors};
use k8s_openapi::api::authentication::v1::{SelfSubjectReview, TokenReview};
use k8s_openapi::api::authorization::v1::{
    LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One kind of review.
pub struct Review {
    /// `authorization.k8s.io`; the version is v1.
    pub group: &'static str,
    /// `subjectaccessreviews`.
    pub plural: &'static str,
    /// `SubjectAccessReview`.
    pub kind: &'static str,
    /// Whether it is made in a namespace.
    pub namespaced: bool,
    check_type: fn(&Value, (&str, &str)) -> ServeResult<()>,
    check: fn(&Review, &Value, &ReviewRequest) -> ServeResult<()>,
    status: fn(&Value, &ReviewRequest) -> ServeResult<Value>,
}

/// The circumstances of a review.
struct ReviewRequest<'a> {
    namespace: Option<&'a str>,
    /// The administrator's token, for a review of a token; else empty.
    admin_token: &'a str,
    /// The user who asks.
    user: &'a User,
    txn: &'a dyn Transaction,
    keys: &'a ClusterKeys,
}

/// The kind of reviews of tokens.
const TOKEN_REVIEW: &str = "TokenReview";

/// Every kind of review.
pub const REVIEWS: [Review; 6] = [
    Review {
        group: "authentication.k8s.io",
        plural: "selfsubjectreviews",
        kind: "SelfSubjectReview",
        namespaced: false,
        check_type: body::check_type::<SelfSubjectReview>,
        check: |_, _, _| Ok(()),
        status: |_, request| Ok(json!({"userInfo": request.user.info()})),
    },
    Review {
        group: "authentication.k8s.io",
        plural: "tokenreviews",
        kind: TOKEN_REVIEW,
        namespaced: false,
        check_type: body::check_type::<TokenReview>,
        check: check_token,
        status: token_status,
    },
    Review {
        group: "authorization.k8s.io",
        plural: "localsubjectaccessreviews",
        kind: "LocalSubjectAccessReview",
        namespaced: true,
        check_type: body::check_type::<LocalSubjectAccessReview>,
        check: check_subject,
        status: subject_status,
    },
    Review {
        group: "authorization.k8s.io",
        plural: "selfsubjectaccessreviews",
        kind: "SelfSubjectAccessReview",
        namespaced: false,
        check_type: body::check_type::<SelfSubjectAccessReview>,
        check: check_attributes,
        status: |spec, request| access_status(spec, request.user, request.txn),
    },
    Review {
        group: "authorization.k8s.io",
        plural: "selfsubjectrulesreviews",
        kind: "SelfSubjectRulesReview",
        namespaced: false,
        check_type: body::check_type::<SelfSubjectRulesReview>,
        check: check_namespace,
        status: rules_status,
    },
    Review {
        group: "authorization.k8s.io",
        plural: "subjectaccessreviews",
        kind: "SubjectAccessReview",
        namespaced: false,
        check_type: body::check_type::<SubjectAccessReview>,
        check: check_subject,
        status: subject_status,
    },
];

/// Returns the path of a kind of review, in a namespace if it is made in one; nothing for other kinds.
pub fn review_path(api_version: &str, kind: &str, namespace: &str) -> Option<String> {
    let (group, version) = api_version.split_once('/')?;
    let review = REVIEWS.iter().find(|review| review.group == group && review.kind == kind && version == "v1")?;
    let place = if review.namespaced { format!("/namespaces/{namespace}") } else { String::new() };
    Some(format!("/apis/{group}/v1{place}/{}", review.plural))
}

/// Answers a review; nothing for all other requests.
pub fn answer(api: &mut Api, request: &ApiRequest, named: &PathTarget) -> Option<ServeResult> {
    Some(review_at(named)?.answer(api, request, named))
}

fn review_at(named: &PathTarget) -> Option<&'static Review> {
    REVIEWS.iter().find(|review| named.group == review.group && named.version == "v1" && named.plural == review.plural)
}

impl Review {
    fn answer(&self, api: &mut Api, request: &ApiRequest, named: &PathTarget) -> ServeResult {
        if named.name.is_some() || named.watch || self.namespaced != named.namespace.is_some() {
            return Err(unknown_path());
        }
        if request.method != "POST" {
            return Err(not_allowed());
        }
        let form = AnswerForm::negotiate_whole(request)?;
        let api_version = format!("{}/v1", self.group);
        let mut review = body::value(request, (&api_version, self.kind))?;
        check_kind(&review, &api_version, self.kind)?;
        (self.check_type)(&review, (&api_version, self.kind))?;
        let keys = api.keys()?;
        let user = request.user.clone().unwrap_or_else(|| Arc::new(User::administrator()));
        // A kubelet asks about the tokens of its clients, too.
        let admin_token = if self.kind == TOKEN_REVIEW { api.admin_token()? } else { String::new() };
        let status = api.read_view(|txn| {
            let namespace = named.namespace.as_deref();
            let asked = ReviewRequest { namespace, admin_token: &admin_token, user: &user, txn, keys: &keys };
            (self.check)(self, &review["spec"], &asked)?;
            (self.status)(&review["spec"], &asked)
        })?;
        (review["apiVersion"], review["kind"], review["status"]) = (api_version.into(), self.kind.into(), status);
        if !review["metadata"].is_object() {
            review["metadata"] = json!({});
        }
        Ok(HttpAnswer::document(201, &review, &form))
    }

    fn refuse(&self, errors: FieldErrors) -> ServeResult<()> {
        if errors.0.is_empty() {
            return Ok(());
        }
        let resource =
            if self.group == "authentication.k8s.io" { "x.authentication.k8s.io" } else { "x.authorization.k8s.io" };
        Err(invalid(self.kind, Resource(resource), "", &errors.0))
    }
}

/// Refuses the body of another kind.
fn check_kind(review: &Value, api_version: &str, kind: &str) -> ServeResult<()> {
    let is_other = |field: &str, wanted: &str| review[field].as_str().is_some_and(|found| found != wanted);
    if is_other("kind", kind) || is_other("apiVersion", api_version) {
        let text = format!("the body of a request for a {kind} of {api_version} has to be one");
        return Err(Status::new(Reason::BadRequest, text));
    }
    Ok(())
}

/// Decides about the attributes of a review.
fn access_status(spec: &Value, user: &User, txn: &dyn Transaction) -> ServeResult<Value> {
    let decision = authorize(txn, user, &access_request(spec))?;
    let mut status = json!({"allowed": decision.is_allowed});
    if !decision.reason.is_empty() {
        status["reason"] = decision.reason.into();
    }
    Ok(status)
}

fn access_request(spec: &Value) -> AccessRequest {
    let text = |attributes: &Value, field: &str| attributes[field].as_str().unwrap_or_default().to_owned();
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    if resource.is_null() {
        return AccessRequest { verb: text(path, "verb"), target: AccessTarget::Path(text(path, "path")) };
    }
    let accessed = AccessedResource {
        group: text(resource, "group"),
        resource: text(resource, "resource"),
        subresource: text(resource, "subresource"),
        namespace: text(resource, "namespace"),
        name: text(resource, "name"),
        field_selector: read_field_selector(&resource["fieldSelector"]),
    };
    AccessRequest::for_resource(&text(resource, "verb"), accessed)
}

/// Lists the rules that hold for the user in a namespace.
fn rules_status(spec: &Value, request: &ReviewRequest) -> ServeResult<Value> {
    let namespace = spec["namespace"].as_str().unwrap_or_default();
    let grants = find_grants(request.txn, request.user, namespace)?;
    let (paths, resources): (Vec<_>, Vec<_>) = grants.rules().partition(|rule| !rule.paths.is_empty());
    let mut status = json!({
        "resourceRules": resources, "nonResourceRules": paths, "incomplete": !grants.errors.is_empty(),
    });
    if !grants.errors.is_empty() {
        status["evaluationError"] = join_errors(&grants.errors).into();
    }
    Ok(status)
}

fn check_token(_: &Review, spec: &Value, _: &ReviewRequest) -> ServeResult<()> {
    match spec["token"].as_str().unwrap_or_default() {
        "" => Err(Status::new(Reason::BadRequest, "token is required for TokenReview in authentication")),
        _ => Ok(()),
    }
}

/// Tells whose token it is: the administrator's, with which the review itself came, or that of a service account.
fn token_status(spec: &Value, request: &ReviewRequest) -> ServeResult<Value> {
    let token = spec["token"].as_str().unwrap_or_default();
    let texts = |list: &Value| {
        Vec::from_iter(list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned))
    };
    let audiences = texts(&spec["audiences"]);
    if is_same_secret(token, request.admin_token) {
        return Ok(json!({"authenticated": true, "user": User::administrator().info()}));
    }
    Ok(match authenticate(request.txn, request.keys, token, &audiences)? {
        Ok(found) => json!({"authenticated": true, "user": found.user.info(), "audiences": found.audiences}),
        Err(why) => json!({"user": {}, "error": why}),
    })
}

fn check_namespace(_: &Review, spec: &Value, _: &ReviewRequest) -> ServeResult<()> {
    match spec["namespace"].as_str().unwrap_or_default() {
        "" => Err(Status::new(Reason::BadRequest, "no namespace on request")),
        _ => Ok(()),
    }
}

fn check_attributes(review: &Review, spec: &Value, _: &ReviewRequest) -> ServeResult<()> {
    let mut errors = FieldErrors::default();
    find_attribute_errors(spec, &mut errors);
    check_selectors(&spec["resourceAttributes"], &FieldPath::root("spec").child("resourceAttributes"), &mut errors);
    review.refuse(errors)
}

/// Returns the field selector of an access review as text. Of its requirements, those for one value are kept, as the authorizers know
/// others not.
fn read_field_selector(selector: &Value) -> String {
    let raw = selector["rawSelector"].as_str().filter(|raw| !raw.is_empty());
    let requirements = selector["requirements"].as_array().into_iter().flatten();
    let equalities = requirements.filter_map(|one| match one["values"].as_array().map(Vec::as_slice) {
        Some([value]) if one["operator"] == "In" => Some(format!("{}={}", one["key"].as_str()?, value.as_str()?)),
        _ => None,
    });
    raw.map_or_else(|| equalities.collect::<Vec<_>>().join(","), str::to_owned)
}

fn find_attribute_errors(spec: &Value, errors: &mut FieldErrors) {
    const ONE: &str = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
    let path = FieldPath::root("spec");
    match (&spec["resourceAttributes"], &spec["nonResourceAttributes"]) {
        (Value::Null, Value::Null) => errors.invalid(&path.child("resourceAttributes"), Value::Null, ONE),
        (Value::Null, _) | (_, Value::Null) => {}
        (_, other) => {
            let detail = "cannot be specified in combination with resourceAttributes";
            errors.invalid(&path.child("nonResourceAttributes"), other.clone(), detail);
        }
    }
}

fn check_subject(review: &Review, spec: &Value, request: &ReviewRequest) -> ServeResult<()> {
    let (mut errors, path) = (FieldErrors::default(), FieldPath::root("spec"));
    find_attribute_errors(spec, &mut errors);
    if review.namespaced && !spec["nonResourceAttributes"].is_null() {
        let detail = "disallowed on this kind of request";
        errors.invalid(&path.child("nonResourceAttributes"), spec["nonResourceAttributes"].clone(), detail);
    }
    let has_groups = spec["groups"].as_array().is_some_and(|groups| !groups.is_empty());
    if spec["user"].as_str().unwrap_or_default().is_empty() && !has_groups {
        errors.invalid(&path.child("user"), "", "at least one of user or group must be specified");
    }
    check_selectors(&spec["resourceAttributes"], &path.child("resourceAttributes"), &mut errors);
    review.refuse(errors)?;
    let asked = spec["resourceAttributes"]["namespace"].as_str().unwrap_or_default();
    match request.namespace {
        Some(namespace) if namespace != asked => {
            let text = format!("spec.resourceAttributes.namespace must match namespace: {namespace}");
            Err(Status::new(Reason::BadRequest, text))
        }
        _ => Ok(()),
    }
}

fn subject_status(spec: &Value, request: &ReviewRequest) -> ServeResult<Value> {
    let texts = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let text = |field: &str| spec[field].as_str().unwrap_or_default().to_owned();
    let user = User { name: text("user"), uid: text("uid"), groups: texts(&spec["groups"]), extra: BTreeMap::new() };
    access_status(spec, &user, request.txn)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::path::{ApiPath, parse};

    /// The code and the document of an answer.
    fn ask(method: &str, path: &str, spec: Value) -> (u16, Value) {
        answer_review(&mut Api::in_memory("test").unwrap(), (method, path), spec)
    }

    fn answer_review(api: &mut Api, (method, path): (&str, &str), spec: Value) -> (u16, Value) {
        let mut request = ApiRequest::new(method, path);
        request.body = json!({"spec": spec}).to_string().into_bytes();
        let Some(ApiPath::Object(named)) = parse(path) else { panic!("{path}") };
        match answer(api, &request, &named).expect("a review") {
            Ok(answer) => {
                let crate::serve::AnswerBody::Whole(bytes) = answer.body else { panic!("no document") };
                (answer.code, serde_json::from_slice(&bytes).unwrap())
            }
            Err(status) => (status.reason.code(), json!(status.message)),
        }
    }

    #[test]
    fn reviews_answer_by_the_rules_of_the_cluster() {
        let tokens = "/apis/authentication.k8s.io/v1/tokenreviews";
        let subjects = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let local = "/apis/authorization.k8s.io/v1/namespaces/web/localsubjectaccessreviews";
        let attributes = json!({"verb": "get", "resource": "pods", "namespace": "web"});
        let subject = |user: &str| json!({"user": user, "resourceAttributes": attributes});
        let group = |group: &str| json!({"groups": [group], "resourceAttributes": attributes});
        let cases = [
            (tokens, json!({"token": "x"}), "/status/authenticated", Value::Null),
            (tokens, json!({"token": "x"}), "/status/error", json!("invalid bearer token")),
            (subjects, subject("admin"), "/status/allowed", json!(false)),
            (subjects, subject("ann"), "/status/allowed", json!(false)),
            (subjects, group("system:masters"), "/status/allowed", json!(true)),
            (subjects, group("people"), "/status/allowed", json!(false)),
            (local, subject("ann"), "/status/allowed", json!(false)),
            (local, subject("admin"), "/kind", json!("LocalSubjectAccessReview")),
            (
                "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
                json!({"namespace": "web"}),
                "/status/resourceRules/0/verbs/0",
                json!("*"),
            ),
            (
                "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                json!({"nonResourceAttributes": {"path": "/metrics", "verb": "get"}}),
                "/status/allowed",
                json!(true),
            ),
            (
                "/apis/authentication.k8s.io/v1/selfsubjectreviews",
                json!({}),
                "/status/userInfo/username",
                json!("admin"),
            ),
        ];
        for (path, spec, pointer, expected) in cases {
            let (code, document) = ask("POST", path, spec);
            assert_eq!(
                (code, document.pointer(pointer).cloned().unwrap_or_default()),
                (201, expected),
                "{path} {pointer}"
            );
        }
    }

    #[test]
    fn review_of_the_administrators_token_may_come_from_others() {
        let mut api = Api::in_memory("test").unwrap();
        let token = api.admin_token().unwrap();
        let review =
            answer_review(&mut api, ("POST", "/apis/authentication.k8s.io/v1/tokenreviews"), json!({"token": token}));
        let status = &review.1["status"];
        assert_eq!(
            (&status["authenticated"], &status["user"]["username"]),
            (&json!(true), &json!("admin")),
            "{status}"
        );
    }

    #[test]
    fn reviews_that_ask_nothing_are_refused() {
        let group = "/apis/authorization.k8s.io/v1";
        let subjects = format!("{group}/subjectaccessreviews");
        let local = format!("{group}/namespaces/web/localsubjectaccessreviews");
        let elsewhere = json!({"user": "a", "resourceAttributes": {"namespace": "other"}});
        let cases = [
            ("POST", "/apis/authentication.k8s.io/v1/tokenreviews", json!({}), 400, "token is required"),
            (
                "POST",
                &subjects,
                json!({"user": "a"}),
                422,
                "exactly one of nonResourceAttributes or resourceAttributes",
            ),
            ("POST", &subjects, json!({"resourceAttributes": {}}), 422, "at least one of user or group"),
            (
                "POST",
                &subjects,
                json!({"user": "a", "resourceAttributes": {}, "nonResourceAttributes": {}}),
                422,
                "spec.nonResourceAttributes: Invalid value: {}: cannot be specified in combination with resourceAttributes",
            ),
            (
                "POST",
                &subjects,
                json!({"user": "a", "resourceAttributes": {"labelSelector": {}}}),
                422,
                "spec.resourceAttributes.labelSelector.requirements: Required value",
            ),
            (
                "POST",
                &format!("{group}/selfsubjectaccessreviews"),
                json!({"resourceAttributes": {"fieldSelector": {}}}),
                422,
                "spec.resourceAttributes.fieldSelector.requirements: Required value",
            ),
            ("POST", &subjects, json!([]), 400, "cannot unmarshal array into Go struct field SubjectAccessReview.spec"),
            (
                "POST",
                &subjects,
                json!({"user": "a", "groups": [1]}),
                400,
                "cannot unmarshal number into Go struct field",
            ),
            ("POST", &local, elsewhere, 400, "spec.resourceAttributes.namespace must match namespace: web"),
            ("POST", &format!("{group}/selfsubjectaccessreviews"), json!({}), 422, "exactly one of"),
            ("POST", &format!("{group}/selfsubjectrulesreviews"), json!({}), 400, "no namespace on request"),
            ("GET", &subjects, json!({}), 405, "does not allow this method"),
            ("POST", &format!("{group}/localsubjectaccessreviews"), json!({}), 404, "could not find"),
        ];
        for (method, path, spec, code, words) in cases {
            let (found, message) = ask(method, path, spec);
            assert!(found == code && message.to_string().contains(words), "{path}: {found} {message}");
        }
    }
}
