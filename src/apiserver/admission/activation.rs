//! A request as the expressions of policies and of webhooks' conditions see it (`k8s.io/apiserver/pkg/admission/plugin/cel`).
//!
//! Knows: the variables and their values, the budgets, and the decision of match conditions. Never: changes the request or compiles an
//! expression. Start reading at [`Activation`].

use super::AdmissionRequest;
use super::matching::MatchedVersion;
use super::request::{SeenObjects, group_version};
use crate::apiserver::ApiResult;
use crate::apiserver::authorization::{AccessRequest, AccessTarget, AccessedResource, authorize};
use crate::apiserver::transaction::Transaction;
use crate::apiserver::user::User;
use crate::cel::foreign::authorizer::{AccessQuestion, Authorize, Decision};
use crate::cel::library::authorizer;
use crate::cel::{CALL_LIMIT, CONDITIONS_BUDGET, Context, EvalError, Value};
use crate::kinds::custom::rules::NO_BUDGET;
use crate::kinds::shared::policy_programs::{Expression, NAMESPACE, REQUEST};
use crate::object::{Key, Object, Resource};
use serde_json::{Map, Value as Json, json};
use std::borrow::Cow;
use std::sync::Arc;

/// A request with the data that expressions see besides its objects.
pub struct Activation<'a> {
    txn: &'a dyn Transaction,
    /// The user of the request.
    pub user: Arc<User>,
    object: Option<Cow<'a, Object>>,
    old: Option<Cow<'a, Object>>,
    namespace: Option<Arc<Object>>,
    /// The variable `request` of conditions and of the other expressions. Conditions see the resource of the request itself, the others
    /// that of the version that matched.
    requests: (Json, Option<Json>),
    resource: AccessQuestion,
}

impl<'a> Activation<'a> {
    /// Reads the namespace of a request, and describes the request in the version in which it matched.
    pub fn new(
        txn: &'a dyn Transaction,
        request: &'a AdmissionRequest<'_>,
        version: &MatchedVersion,
        seen: SeenObjects<'a>,
    ) -> ApiResult<Activation<'a>> {
        let is_namespace = request.kind.resource == "namespaces";
        let namespace = match request.namespace() {
            "" => None,
            _ if is_namespace => None,
            name => txn.get_shared(&Key::new(Resource("namespaces"), "", name))?,
        };
        let resource = AccessQuestion {
            group: request.kind.resource.group().to_owned(),
            resource: request.kind.resource.plural().to_owned(),
            subresource: request.subresource.to_owned(),
            namespace: request.namespace().to_owned(),
            name: request.name().to_owned(),
            ..AccessQuestion::default()
        };
        let SeenObjects { object, old } = seen;
        let requests = describe_versions(request, version);
        Ok(Activation { txn, user: request.user.clone(), object, old, namespace, requests, resource })
    }

    /// Answers the questions of expressions about rights; the contexts borrow it.
    pub fn authorizer(&self) -> RequestAuthorizer<'_> {
        RequestAuthorizer { txn: self.txn, user: &self.user }
    }

    /// The context of match conditions: they see no namespace.
    pub fn conditions_context<'v>(
        &'v self,
        params: Option<&'v Object>,
        authorizer: &'v RequestAuthorizer<'v>,
    ) -> Result<Context<'v>, EvalError> {
        let mut context = self.bind_all(&self.requests.0, params, authorizer)?;
        context.bind("namespaceObject", Value::Null);
        Ok(context)
    }

    /// The context of validations, mutations and annotations; `variables` are bound by the caller.
    pub fn context<'v>(
        &'v self,
        params: Option<&'v Object>,
        authorizer: &'v RequestAuthorizer<'v>,
    ) -> Result<Context<'v>, EvalError> {
        let mut context = self.bind_all(self.requests.1.as_ref().unwrap_or(&self.requests.0), params, authorizer)?;
        let namespace = match &self.namespace {
            Some(namespace) => Value::from_json(&namespace.0, Some(&NAMESPACE))?,
            None => Value::Null,
        };
        context.bind("namespaceObject", namespace);
        Ok(context)
    }

    fn bind_all<'v>(
        &'v self,
        request: &'v Json,
        params: Option<&'v Object>,
        asked: &'v RequestAuthorizer<'v>,
    ) -> Result<Context<'v>, EvalError> {
        let view = |object: Option<&'v Object>| match object {
            Some(object) => Value::from_json(&object.0, None),
            None => Ok(Value::Null),
        };
        let mut context = Context::default();
        context.bind("object", view(self.object.as_deref())?);
        context.bind("oldObject", view(self.old.as_deref())?);
        context.bind("request", Value::from_json(request, Some(&REQUEST))?);
        context.bind("params", view(params)?);
        context.bind("authorizer", authorizer::authorizer());
        context.bind("authorizer.requestResource", authorizer::request_resource(self.resource.clone()));
        context.set_authorizer(asked);
        Ok(context)
    }

    /// Whether all match conditions hold. An error decides by the failure policy: the message of the refusal, or no match.
    pub fn matches(
        &self,
        conditions: &[(String, Expression)],
        params: Option<&Object>,
        fails: bool,
    ) -> Result<bool, String> {
        if conditions.is_empty() {
            return Ok(true);
        }
        let authorizer = self.authorizer();
        match self.conditions_context(params, &authorizer) {
            Ok(context) => conditions_hold(conditions, &context, fails),
            Err(why) if fails => Err(why.to_string()),
            Err(_) => Ok(false),
        }
    }
}

/// The reason why an expression has no value.
pub enum Stop {
    /// The budget of all expressions together is used up.
    Budget,
    /// Error of the expression.
    Error(String),
}

impl Stop {
    /// The message of a refusal.
    pub fn message(self) -> String {
        match self {
            Stop::Budget => NO_BUDGET.to_owned(),
            Stop::Error(message) => message,
        }
    }
}

/// Evaluates an expression and takes its cost from a budget.
pub fn evaluate<'v>(expression: &Expression, context: &Context<'v>, budget: &mut u64) -> Result<Value<'v>, Stop> {
    let program = expression.program.as_ref().map_err(|why| Stop::Error(why.clone()))?;
    let outcome = context.evaluate(program, CALL_LIMIT);
    *budget = budget.checked_sub(outcome.cost).ok_or(Stop::Budget)?;
    let text = &expression.text;
    outcome.result.map_err(|why| Stop::Error(format!("expression '{text}' resulted in error: {why}")))
}

/// Whether all conditions hold. An error decides by the failure policy, but only when no condition is false.
fn conditions_hold(conditions: &[(String, Expression)], context: &Context, fails: bool) -> Result<bool, String> {
    let mut budget = CONDITIONS_BUDGET;
    let mut errors = Vec::new();
    for (_, expression) in conditions {
        match evaluate(expression, context, &mut budget) {
            Ok(Value::Bool(false)) => return Ok(false),
            Ok(_) => {}
            Err(Stop::Budget) => {
                errors = vec![NO_BUDGET.to_owned()];
                break;
            }
            Err(stop) => errors.push(stop.message()),
        }
    }
    match errors.len() {
        0 => Ok(true),
        _ if !fails => Ok(false),
        1 => Err(errors.remove(0)),
        _ => Err(format!("[{}]", errors.join(", "))),
    }
}

/// Answers questions of expressions by the roles of the cluster.
pub struct RequestAuthorizer<'v> {
    txn: &'v dyn Transaction,
    user: &'v User,
}

impl Authorize for RequestAuthorizer<'_> {
    fn decide(&self, question: &AccessQuestion, verb: &str) -> Decision {
        let account = question.account.as_ref().map(|(namespace, name)| {
            let name = format!("system:serviceaccount:{namespace}:{name}");
            User::impersonated(&name, "", &[], Default::default())
        });
        let target = match &question.path {
            Some(path) => AccessTarget::Path(path.clone()),
            None => AccessTarget::Resource(AccessedResource {
                group: question.group.clone(),
                resource: question.resource.clone(),
                subresource: question.subresource.clone(),
                namespace: question.namespace.clone(),
                name: question.name.clone(),
                field_selector: question.field_selector.clone(),
            }),
        };
        let request = AccessRequest { verb: verb.to_owned(), target };
        match authorize(self.txn, account.as_ref().unwrap_or(self.user), &request) {
            Ok(decision) => Decision { allowed: decision.is_allowed, reason: decision.reason, error: None },
            Err(status) => Decision { error: Some(status.message), ..Decision::default() },
        }
    }
}

/// The variable `request` of conditions, and of the other expressions where that differs: when another version matched.
fn describe_versions(request: &AdmissionRequest<'_>, version: &MatchedVersion) -> (Json, Option<Json>) {
    let mut asked = describe(request);
    let MatchedVersion::Equivalent(api_version) = version else { return (asked, None) };
    if !request.has_own_kind() {
        asked["kind"] = group_version("kind", api_version, request.kind.kind);
    }
    let mut matched = asked.clone();
    matched["resource"] = group_version("resource", api_version, request.kind.resource.plural());
    (asked, Some(matched))
}

/// The variable `request`: an AdmissionRequest without the objects; empty fields are absent.
fn describe(request: &AdmissionRequest<'_>) -> Json {
    let (api_version, kind) = request.requested_kind();
    let resource = group_version("resource", request.api_version, request.kind.resource.plural());
    let kind = group_version("kind", api_version, kind);
    let mut user = Map::new();
    for (field, text) in [("username", &request.user.name), ("uid", &request.user.uid)] {
        if !text.is_empty() {
            user.insert(field.to_owned(), text.as_str().into());
        }
    }
    user.insert("groups".to_owned(), json!(request.user.groups));
    if !request.user.extra.is_empty() {
        user.insert("extra".to_owned(), json!(request.user.extra));
    }
    let mut described = json!({
        "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
        "operation": request.operation.name(), "userInfo": user, "dryRun": request.dry_run,
        "options": request.options_object(),
    });
    let (name, namespace) = (request.name(), request.namespace());
    let texts = [
        ("subResource", request.subresource),
        ("requestSubResource", request.subresource),
        ("name", name),
        ("namespace", namespace),
    ];
    for (field, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        described[field] = text.into();
    }
    described
}
