//! Evaluates the expressions of a policy about a request (`plugin/policy/validating/validator.go`,
//! `plugin/policy/mutating/dispatcher.go`).

use super::invocations::Invocation;
use super::{MUTATING, VALIDATING, denied_by, patches};
use crate::apiserver::admission::AdmissionRequest;
use crate::apiserver::admission::activation::{Activation, Stop, evaluate};
use crate::apiserver::admission::matching::MatchedVersion;
use crate::apiserver::admission::request::SeenObjects;
use crate::apiserver::admission::webhooks::keep_identity;
use crate::apiserver::outside::AuditAnnotation;
use crate::apiserver::transaction::Transaction;
use crate::apiserver::{ApiResult, conversion};
use crate::cel::{BUDGET, Context, Value};
use crate::kinds::shared::policy_programs::Validation;
use crate::object::{Object, Status};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;

/// Maximum length of a computed message.
const MAX_MESSAGE_LENGTH: usize = 5 * 1024;
/// Maximum length of the value of an annotation.
const MAX_ANNOTATION_LENGTH: usize = 10 * 1024;
/// Maximum number of failures in the audit log of one request.
const MAX_FAILURES: usize = 50;

/// A refusal by a policy.
pub struct Denial {
    /// The whole message.
    pub message: String,
    /// The reason that the policy gives.
    pub reason: Option<String>,
}

/// The decisions of all policies about a request.
#[derive(Default)]
pub struct Findings {
    /// The refusals, by policy and binding.
    pub denials: Vec<Denial>,
    /// The warnings for the client.
    pub warnings: Vec<String>,
    /// The failures whose binding wants them in the audit log.
    failures: Vec<Json>,
    /// The annotations of the audit log that policies compute, by name, with their different values.
    annotations: BTreeMap<String, Vec<String>>,
}

impl Findings {
    /// The annotations for the audit log.
    pub fn audit_annotations(&self) -> Vec<AuditAnnotation> {
        let computed = self.annotations.iter().map(|(key, values)| AuditAnnotation::new(key, values.join(", ")));
        let failures = &self.failures[..self.failures.len().min(MAX_FAILURES)];
        let key = "validation.policy.admission.k8s.io/validation_failure";
        let failed = (!failures.is_empty()).then(|| AuditAnnotation::new(key, json!(failures).to_string()));
        computed.chain(failed).collect()
    }

    fn deny(&mut self, invocation: &Invocation, message: &str, reason: Option<String>) {
        self.denials.push(Denial { message: denied_by(VALIDATING, invocation, message), reason });
    }

    /// Handles a failed validation as the binding's actions say.
    fn take_failure(&mut self, invocation: &Invocation, index: usize, failure: &Failure) {
        let (policy, binding) = (&invocation.policy.name, &invocation.binding);
        for action in &binding.actions {
            match action.as_str() {
                "Deny" => self.deny(invocation, &failure.message, failure.reason.clone()),
                "Warn" => self.warnings.push(format!(
                    "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{}': {}",
                    binding.name, failure.message
                )),
                "Audit" => self.failures.push(json!({
                    "message": failure.message, "policy": policy, "binding": binding.name, "expressionIndex": index,
                    "validationActions": binding.actions,
                })),
                _ => {}
            }
        }
    }

    /// Takes the value of an annotation.
    fn take_annotation(&mut self, invocation: &Invocation, key: &str, value: &str) {
        let value = value.trim();
        let value = &value[..value.floor_char_boundary(MAX_ANNOTATION_LENGTH)];
        if value.is_empty() {
            return;
        }
        let values = self.annotations.entry(format!("{}/{key}", invocation.policy.name)).or_default();
        if !values.iter().any(|known| known == value) {
            values.push(value.to_owned());
        }
    }
}

/// The decision of a validation: nothing when it is fulfilled.
struct Failure {
    message: String,
    reason: Option<String>,
}

/// Evaluates validating policies about one request.
pub struct Evaluation<'a> {
    /// The request in each version in which a policy matches.
    activations: Vec<(MatchedVersion, Activation<'a>)>,
    /// The decisions.
    pub findings: Findings,
}

impl<'a> Evaluation<'a> {
    /// Begins with no decision, and with the request in each version in which these policies match.
    pub fn new(
        txn: &'a mut dyn Transaction,
        request: &'a AdmissionRequest<'a>,
        found: &[Invocation],
    ) -> ApiResult<Evaluation<'a>> {
        let mut seen: Vec<(MatchedVersion, SeenObjects)> = Vec::new();
        for version in found.iter().map(|invocation| &invocation.version) {
            if seen.iter().all(|(known, _)| known != version) {
                seen.push((version.clone(), SeenObjects::convert(txn, request, version)?));
            }
        }
        let txn: &'a dyn Transaction = txn;
        let activate = |(version, seen)| {
            let activation = Activation::new(txn, request, &version, seen)?;
            Ok((version, activation))
        };
        let activations = seen.into_iter().map(activate).collect::<ApiResult<_>>()?;
        Ok(Evaluation { activations, findings: Findings::default() })
    }

    /// Adds the decisions of a policy.
    pub fn validate(&mut self, invocation: &Invocation) -> ApiResult<()> {
        let policy = &invocation.policy;
        let params = match &invocation.params {
            Ok(params) => params,
            Err(_) if !policy.fails => return Ok(()),
            Err(why) => {
                self.findings.deny(invocation, &format!("failed to configure binding: {why}"), None);
                return Ok(());
            }
        };
        let Some((_, activation)) = self.activations.iter().find(|(version, _)| *version == invocation.version) else {
            return Err(Status::bug("a policy is evaluated in a version in which none matched"));
        };
        params.iter().for_each(|param| evaluate_policy(activation, invocation, param.as_deref(), &mut self.findings));
        Ok(())
    }
}

/// Evaluates a policy with one object of parameters.
fn evaluate_policy(
    activation: &Activation<'_>,
    invocation: &Invocation,
    params: Option<&Object>,
    findings: &mut Findings,
) {
    let policy = &invocation.policy;
    let error = |findings: &mut Findings, index: usize, message: String| {
        if policy.fails {
            findings.take_failure(invocation, index, &Failure { message, reason: None });
        }
    };
    match activation.matches(&policy.programs().conditions, params, policy.fails) {
        Err(message) => return error(findings, 0, message),
        Ok(false) => return,
        Ok(true) => {}
    }
    let authorizer = activation.authorizer();
    let context = match activation.context(params, &authorizer) {
        Ok(context) => bind_variables(context, invocation),
        Err(why) => return error(findings, 0, why.to_string()),
    };
    match failures(invocation, &context) {
        Err(message) => return error(findings, 0, message),
        Ok(failures) => {
            for (index, failure) in &failures {
                findings.take_failure(invocation, *index, failure);
            }
        }
    }
    let mut budget = BUDGET;
    for (key, expression) in &policy.programs().annotations {
        match evaluate(expression, &context, &mut budget) {
            Ok(Value::String(text)) => findings.take_annotation(invocation, key, &text),
            Ok(_) => {}
            // With `failurePolicy: Fail` an error refuses the request, regardless of the binding's actions.
            Err(stop) if policy.fails => findings.deny(invocation, &stop.message(), None),
            Err(_) => {}
        }
    }
}

/// Binds the variables of a policy.
fn bind_variables<'v>(mut context: Context<'v>, invocation: &'v Invocation) -> Context<'v> {
    for (name, expression) in &invocation.policy.programs().variables {
        if let Ok(program) = &expression.program {
            context.bind_lazily(name, program);
        }
    }
    context
}

/// The validations that fail, with their places in the policy; an error when the budget of all is used up.
fn failures(invocation: &Invocation, context: &Context<'_>) -> Result<Vec<(usize, Failure)>, String> {
    let policy = &invocation.policy;
    let mut budget = BUDGET;
    let mut failures = Vec::new();
    for (index, validation) in policy.programs().validations.iter().enumerate() {
        match evaluate(&validation.expression, context, &mut budget) {
            Err(stop @ Stop::Budget) => return Err(stop.message()),
            Err(stop) if policy.fails => failures.push((index, Failure { message: stop.message(), reason: None })),
            Err(_) | Ok(Value::Bool(true)) => {}
            Ok(_) => {
                let message = message(validation, context, &mut budget);
                let reason = validation.reason.clone().or_else(|| Some("Invalid".to_owned()));
                failures.push((index, Failure { message, reason }));
            }
        }
    }
    Ok(failures)
}

/// Changes the object of a request by a policy, or adds errors.
pub fn mutate(
    txn: &mut dyn Transaction,
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
        for index in 0..policy.programs().mutations.len() {
            match patched(txn, request, invocation, param.as_deref(), index)? {
                Err(why) => refuse(&why, Some("Invalid")),
                Ok(None) => break,
                Ok(Some(object)) => {
                    let converted = conversion::in_version(txn, request.kind, &object, request.object.api_version())?;
                    let mut object = converted.into_owned();
                    keep_identity(request.object, &mut object);
                    *request.object = object;
                }
            }
        }
    }
    Ok(())
}

/// The object after one mutation, in the version in which the policy matches; none when the conditions of the policy, which are evaluated
/// before the first one, do not hold.
fn patched(
    txn: &mut dyn Transaction,
    request: &AdmissionRequest<'_>,
    invocation: &Invocation,
    params: Option<&Object>,
    index: usize,
) -> ApiResult<Result<Option<Object>, String>> {
    let policy = &invocation.policy;
    let seen = SeenObjects::convert(txn, request, &invocation.version)?;
    let object = seen.object.as_deref().unwrap_or(&*request.object).clone();
    let activation = Activation::new(txn, request, &invocation.version, seen)?;
    if index == 0 {
        match activation.matches(&policy.programs().conditions, params, policy.fails) {
            Ok(true) => {}
            Ok(false) => return Ok(Ok(None)),
            Err(why) => return Ok(Err(why)),
        }
    }
    let authorizer = activation.authorizer();
    let context = match activation.context(params, &authorizer) {
        Ok(context) => bind_variables(context, invocation),
        Err(why) => return Ok(Err(why.to_string())),
    };
    let mutation = &policy.programs().mutations[index];
    let mut budget = BUDGET;
    let value = evaluate(&mutation.expression, &context, &mut budget).map_err(Stop::message);
    Ok(value.and_then(|value| patches::apply(request.kind, &object, &value, mutation.is_patch).map(Some)))
}

/// The message of a validation that fails.
fn message(validation: &Validation, context: &Context, budget: &mut u64) -> String {
    let computed = validation.message_expression.as_ref().map(|expression| evaluate(expression, context, budget));
    if let Some(Err(stop @ Stop::Budget)) = computed {
        return format!("failed messageExpression: {}", stop.message());
    }
    if let Some(Ok(Value::String(text))) = computed {
        let text = text.trim();
        if !text.is_empty() && text.len() <= MAX_MESSAGE_LENGTH && !text.contains('\n') {
            return text.to_owned();
        }
    }
    match validation.message.trim() {
        "" => format!("failed expression: {}", validation.expression.text.trim()),
        message => message.to_owned(),
    }
}
