//! Evaluates the expressions of a policy about a request (`plugin/policy/validating/validator.go`,
//! `plugin/policy/mutating/dispatcher.go`).

use super::invocations::{Invocation, NAMESPACES};
use super::{MUTATING, VALIDATING, denied_by, patches};
use crate::apiserver::ApiResult;
use crate::apiserver::admission::AdmissionRequest;
use crate::apiserver::admission::matching::MatchedVersion;
use crate::apiserver::admission::webhooks::keep_identity;
use crate::apiserver::authorization::{AccessRequest, AccessTarget, AccessedResource, authorize};
use crate::apiserver::transaction::Transaction;
use crate::apiserver::user::User;
use crate::cel::foreign::authorizer::{AccessQuestion, Authorize, Decision};
use crate::cel::library::authorizer;
use crate::cel::{BUDGET, CALL_LIMIT, CONDITIONS_BUDGET, Context, EvalError, Value};
use crate::kinds::policy_programs::{Expression, NAMESPACE, REQUEST, Validation};
use crate::object::{Key, Object};
use serde_json::{Map, Value as Json, json};
use std::sync::Arc;

/// Maximum length of a computed message.
const LONGEST_MESSAGE: usize = 5 * 1024;
const NO_BUDGET: &str = "validation failed due to running out of cost budget, no further validation rules will be run";

/// A refusal by a policy.
pub struct Denial {
    /// The whole message.
    pub message: String,
    /// The reason that the policy gives.
    pub reason: Option<String>,
}

/// A request with the data that expressions see besides its objects.
pub struct Evaluation<'a> {
    txn: &'a dyn Transaction,
    user: Arc<User>,
    object: Option<&'a Object>,
    old: Option<&'a Object>,
    namespace: Option<Arc<Object>>,
    request: Json,
    resource: AccessQuestion,
    /// The `apiVersion` of the request, which `request` shows unless another one matched.
    api_version: String,
}

/// The decision of a validation: nothing when it is fulfilled.
struct Failure {
    message: String,
    reason: Option<String>,
}

impl<'a> Evaluation<'a> {
    /// Reads the namespace of a request, and describes the request.
    pub fn new(txn: &'a dyn Transaction, request: &'a AdmissionRequest<'_>) -> ApiResult<Evaluation<'a>> {
        let is_namespace = request.kind.resource == "namespaces";
        let namespace = match request.namespace() {
            "" => None,
            _ if is_namespace => None,
            name => txn.get_shared(&Key::new(NAMESPACES, "", name))?,
        };
        let resource = AccessQuestion {
            group: request.kind.resource.group().to_owned(),
            resource: request.kind.resource.plural().to_owned(),
            subresource: request.subresource.to_owned(),
            namespace: request.namespace().to_owned(),
            name: request.name().to_owned(),
            ..AccessQuestion::default()
        };
        Ok(Evaluation {
            txn,
            user: request.user.clone(),
            object: request.new_object(),
            old: request.old,
            namespace,
            request: describe(request),
            resource,
            api_version: request.api_version.to_owned(),
        })
    }

    /// Adds the denials and warnings of a policy.
    pub fn validate(
        &mut self,
        invocation: &Invocation,
        denials: &mut Vec<Denial>,
        warnings: &mut Vec<String>,
    ) -> ApiResult<()> {
        let policy = &invocation.policy;
        let params = match &invocation.params {
            Ok(params) => params,
            Err(why) => {
                let why = format!("failed to configure binding: {why}");
                let message = denied_by(VALIDATING, invocation, &why);
                denials.extend(policy.fails.then_some(Denial { message, reason: None }));
                return Ok(());
            }
        };
        self.match_version(&invocation.version);
        for param in params {
            for failure in self.failures(invocation, param.as_deref()) {
                for action in &invocation.binding.actions {
                    match action.as_str() {
                        "Deny" => denials.push(Denial {
                            message: denied_by(VALIDATING, invocation, &failure.message),
                            reason: failure.reason.clone(),
                        }),
                        "Warn" => warnings.push(format!(
                            "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
                            policy.name, invocation.binding.name, failure.message
                        )),
                        _ => {}
                    }
                }
            }
        }
        Ok(())
    }

    /// Shows the version that matched in `request`.
    fn match_version(&mut self, matched: &MatchedVersion) {
        let api_version = match matched {
            MatchedVersion::Requested => &self.api_version,
            MatchedVersion::Equivalent(other) => other,
        };
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        for field in ["kind", "resource"] {
            self.request[field]["group"] = group.into();
            self.request[field]["version"] = version.into();
        }
    }

    /// The context of a policy's expressions; its authorizer is set apart.
    fn context<'v>(
        &'v self,
        invocation: &'v Invocation,
        params: Option<&'v Object>,
        asked: &'v RequestAuthorizer<'v>,
    ) -> Result<Context<'v>, EvalError> {
        let view = |object: Option<&'v Object>| match object {
            Some(object) => Value::from_json(&object.0, None),
            None => Ok(Value::Null),
        };
        let mut context = Context::default();
        context.bind("object", view(self.object)?);
        context.bind("oldObject", view(self.old)?);
        let namespace = match &self.namespace {
            Some(namespace) => Value::from_json(&namespace.0, Some(&NAMESPACE))?,
            None => Value::Null,
        };
        context.bind("namespaceObject", namespace);
        context.bind("request", Value::from_json(&self.request, Some(&REQUEST))?);
        context.bind("params", view(params)?);
        context.bind("authorizer", authorizer::authorizer());
        context.bind("authorizer.requestResource", authorizer::request_resource(self.resource.clone()));
        context.set_authorizer(asked);
        for (name, expression) in &invocation.policy.programs.variables {
            if let Ok(program) = &expression.program {
                context.bind_lazily(name, program);
            }
        }
        Ok(context)
    }

    /// The validations that fail for one object of parameters.
    fn failures(&self, invocation: &Invocation, params: Option<&Object>) -> Vec<Failure> {
        let policy = &invocation.policy;
        let asked = RequestAuthorizer { txn: self.txn, user: &self.user };
        let error = |message: String| match policy.fails {
            true => vec![Failure { message, reason: None }],
            false => Vec::new(),
        };
        let context = match self.context(invocation, params, &asked) {
            Ok(context) => context,
            Err(why) => return error(why.to_string()),
        };
        match conditions_hold(&invocation.policy.programs.conditions, &context, policy.fails) {
            Err(message) => return error(message),
            Ok(false) => return Vec::new(),
            Ok(true) => {}
        }
        let mut budget = BUDGET;
        let mut failures = Vec::new();
        for validation in &policy.programs.validations {
            match evaluate(&validation.expression, &context, &mut budget) {
                Err(Stop::Budget) => return error(NO_BUDGET.to_owned()),
                Err(Stop::Error(message)) => failures.extend(error(message)),
                Ok(Value::Bool(true)) => {}
                Ok(_) => failures.push(Failure {
                    message: message(validation, &context, &mut budget),
                    reason: validation.reason.clone().or_else(|| Some("Invalid".to_owned())),
                }),
            }
        }
        let mut budget = BUDGET;
        for (_, expression) in &policy.programs.annotations {
            if let Err(stop) = evaluate(expression, &context, &mut budget) {
                failures.extend(error(stop.message()));
            }
        }
        failures
    }

    /// Changes the object of a request by a policy, or adds errors.
    pub fn mutate(
        txn: &dyn Transaction,
        request: &mut AdmissionRequest<'_>,
        invocation: &Invocation,
        errors: &mut Vec<Denial>,
    ) -> ApiResult<()> {
        let policy = &invocation.policy;
        let mut refuse = |message: &str, reason: Option<&str>| {
            let message = denied_by(MUTATING, invocation, message);
            errors.extend(policy.fails.then(|| Denial { message, reason: reason.map(str::to_owned) }));
        };
        let params = match &invocation.params {
            Ok(params) => params,
            Err(why) => {
                refuse(&format!("failed to configure binding: {why}"), None);
                return Ok(());
            }
        };
        for param in params {
            for (index, mutation) in policy.programs.mutations.iter().enumerate() {
                let patched = {
                    let mut evaluation = Evaluation::new(txn, request)?;
                    evaluation.match_version(&invocation.version);
                    let asked = RequestAuthorizer { txn, user: &evaluation.user };
                    let made = evaluation.context(invocation, param.as_deref(), &asked);
                    made.map_err(|why| why.to_string()).and_then(|context| {
                        let conditions = &policy.programs.conditions;
                        if index == 0 && !conditions_hold(conditions, &context, policy.fails)? {
                            return Ok(None);
                        }
                        let mut budget = BUDGET;
                        let value = evaluate(&mutation.expression, &context, &mut budget).map_err(Stop::message)?;
                        patches::apply(request.kind, &*request.object, &value, mutation.is_patch).map(Some)
                    })
                };
                match patched {
                    Err(why) => refuse(&why, Some("Invalid")),
                    Ok(None) => break,
                    Ok(Some(mut object)) => {
                        keep_identity(request.object, &mut object);
                        *request.object = object;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The reason why an expression has no value.
enum Stop {
    /// The budget of all expressions together is used up.
    Budget,
    Error(String),
}

impl Stop {
    fn message(self) -> String {
        match self {
            Stop::Budget => NO_BUDGET.to_owned(),
            Stop::Error(message) => message,
        }
    }
}

/// Evaluates an expression and takes its cost from a budget.
fn evaluate<'v>(expression: &Expression, context: &Context<'v>, budget: &mut u64) -> Result<Value<'v>, Stop> {
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

/// The message of a validation that fails.
fn message(validation: &Validation, context: &Context, budget: &mut u64) -> String {
    let computed = validation.message_expression.as_ref().map(|expression| evaluate(expression, context, budget));
    if let Some(Err(Stop::Budget)) = computed {
        return format!("failed messageExpression: {NO_BUDGET}");
    }
    if let Some(Ok(Value::String(text))) = computed {
        let text = text.trim();
        if !text.is_empty() && text.len() <= LONGEST_MESSAGE && !text.contains('\n') {
            return text.to_owned();
        }
    }
    match validation.message.trim() {
        "" => format!("failed expression: {}", validation.expression.text.trim()),
        message => message.to_owned(),
    }
}

/// Answers questions of expressions by the roles of the cluster.
struct RequestAuthorizer<'v> {
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
            }),
        };
        let request = AccessRequest { verb: verb.to_owned(), target };
        match authorize(self.txn, account.as_ref().unwrap_or(self.user), &request) {
            Ok(decision) => Decision { allowed: decision.is_allowed, reason: decision.reason, error: None },
            Err(status) => Decision { error: Some(status.message), ..Decision::default() },
        }
    }
}

/// The variable `request`: an AdmissionRequest without the objects; empty fields are absent.
fn describe(request: &AdmissionRequest<'_>) -> Json {
    let (api_version, kind) = request.requested_kind();
    let of = |api_version: &str, field: &str, name: &str| {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        json!({"group": group, "version": version, field: name})
    };
    let resource = of(request.api_version, "resource", request.kind.resource.plural());
    let kind = of(api_version, "kind", kind);
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
