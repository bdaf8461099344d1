//! ValidatingAdmissionPolicy and MutatingAdmissionPolicy: expressions of users that refuse or change requests.
//!
//! [`definitions`] has the policies and bindings, compiled once for each of their states; [`invocations`] finds those that a request
//! matches, with their parameters; [`evaluation`] evaluates one. They see every write, deletion and connection, those of control loops
//! too, but never the configuration of admission itself. Without policies the cost is one check of an empty list.
//! Never: lets a request pass whose policy cannot be evaluated, unless its failurePolicy says so. Start reading at [`validate`].

mod definitions;
mod evaluation;
mod invocations;
mod patches;
#[cfg(test)]
mod tests;

use super::AdmissionRequest;
use super::matching::Operation;
use super::webhooks::EXEMPT;
use crate::apiserver::ApiResult;
use crate::apiserver::custom;
use crate::apiserver::transaction::Transaction;
use crate::kinds::Kind;
use crate::object::{Cause, Reason, Resource, Status};
use evaluation::{Denial, Evaluation};
use invocations::Invocation;

/// The resources of the policies and of the bindings of one of the two types.
#[derive(Clone, Copy)]
struct PolicyType {
    name: &'static str,
    policies: Resource,
    bindings: Resource,
    mutates: bool,
}

const VALIDATING: PolicyType = PolicyType {
    name: "ValidatingAdmissionPolicy",
    policies: Resource("validatingadmissionpolicies.admissionregistration.k8s.io"),
    bindings: Resource("validatingadmissionpolicybindings.admissionregistration.k8s.io"),
    mutates: false,
};
const MUTATING: PolicyType = PolicyType {
    name: "MutatingAdmissionPolicy",
    policies: Resource("mutatingadmissionpolicies.admissionregistration.k8s.io"),
    bindings: Resource("mutatingadmissionpolicybindings.admissionregistration.k8s.io"),
    mutates: true,
};

fn is_exempt(request: &AdmissionRequest<'_>) -> bool {
    request.kind.resource.group() == EXEMPT
}

/// Whether a policy may be about such requests; cheap to ask before writes that loops make often.
pub fn may_match(txn: &dyn Transaction, kind: &Kind, operation: Operation, subresource: &str) -> ApiResult<bool> {
    let may = |policies| invocations::may_match(txn, policies, operation, kind.resource.plural(), subresource);
    Ok(kind.resource.group() != EXEMPT && (may(VALIDATING)? || may(MUTATING)?))
}

/// Refuses a request that a policy denies, and warns where a binding says so.
pub fn validate(txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    if is_exempt(request) {
        return Ok(());
    }
    let found = invocations::find(txn, request, VALIDATING)?;
    if found.is_empty() {
        return Ok(());
    }
    defer_compilation(txn, &found)?;
    let mut evaluation = Evaluation::new(txn, request, &found)?;
    for invocation in &found {
        evaluation.validate(invocation)?;
    }
    let findings = evaluation.findings;
    findings.audit_annotations().into_iter().for_each(|annotation| txn.annotate(annotation));
    request.warnings.extend(findings.warnings.iter().cloned());
    match findings.denials.first() {
        Some(denial) => Err(refusal(request, denial)),
        None => Ok(()),
    }
}

/// Ends a write whose policies are not compiled yet, where it is made again with them.
fn defer_compilation(txn: &mut dyn Transaction, found: &[Invocation]) -> ApiResult<()> {
    custom::defer(txn, found.iter().filter_map(|invocation| invocation.policy.find_uncompiled()).collect())
}

/// The refusal of a request, in the words of Kubernetes.
fn refusal(request: &AdmissionRequest<'_>, denial: &Denial) -> Status {
    let reason = match denial.reason.as_deref() {
        Some("Unauthorized") => Reason::Unauthorized,
        Some("Forbidden") => Reason::Forbidden,
        Some("RequestEntityTooLarge") => Reason::RequestEntityTooLarge,
        _ => Reason::Invalid,
    };
    let mut status = request.forbidden(&denial.message);
    status.reason = reason;
    status.causes = vec![Cause { reason: String::new(), field: String::new(), message: denial.message.clone() }];
    status
}

/// The policies that ran for a request and run again when a later change may concern them.
#[derive(Default)]
pub struct Reinvocations {
    ran: Vec<String>,
    due: Vec<String>,
}

/// Changes a request as policies say. Returns whether the object changed, after which the plugins run again; then only policies run
/// that are to see later changes.
pub fn mutate(
    txn: &mut dyn Transaction,
    request: &mut AdmissionRequest<'_>,
    state: &mut Reinvocations,
    is_again: bool,
) -> ApiResult<bool> {
    if is_exempt(request) || request.new_object().is_none() {
        return Ok(false);
    }
    let found = invocations::find(txn, request, MUTATING)?;
    defer_compilation(txn, &found)?;
    let due = std::mem::take(&mut state.due);
    let mut errors: Vec<Denial> = Vec::new();
    let mut is_changed = false;
    for invocation in &found {
        if is_again && !due.contains(&invocation.key()) {
            continue;
        }
        let before = request.object.clone();
        evaluation::mutate(txn, request, invocation, &mut errors)?;
        if *request.object != before {
            is_changed = true;
            state.due.append(&mut state.ran);
        }
        if invocation.policy.reinvokes {
            state.ran.push(invocation.key());
        }
    }
    if errors.is_empty() {
        return Ok(is_changed);
    }
    let first = &errors[0];
    let mut status = request.forbidden_early("");
    status.message = first.message.clone();
    if first.reason.is_some() {
        status.reason = Reason::Invalid;
    }
    let cause =
        |denial: &Denial| Cause { reason: String::new(), field: String::new(), message: denial.message.clone() };
    status.causes = errors.iter().map(cause).collect();
    Err(status)
}

/// The start of a refusal by a policy.
fn denied_by(kind: PolicyType, invocation: &Invocation, message: &str) -> String {
    let (policy, binding) = (&invocation.policy.name, &invocation.binding.name);
    let name = if kind.mutates { "policy" } else { kind.name };
    format!("{name} '{policy}' with binding '{binding}' denied request: {message}")
}
