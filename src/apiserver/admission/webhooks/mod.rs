//! Webhooks: servers that change and refuse requests (MutatingAdmissionWebhook and ValidatingAdmissionWebhook).
//!
//! [`hook`] reads configurations, [`review`] writes and reads AdmissionReviews, [`annotations`] writes annotations for the audit log.
//! Never: makes a request: a write that needs an answer fails, and is tried again with it ([`crate::apiserver::outside`]).
//! Start reading at [`mutate`].

mod annotations;
mod hook;
mod review;
#[cfg(test)]
mod tests;

use super::AdmissionRequest;
use super::activation::Activation;
use super::matching::{MatchedVersion, Operation};
use super::request::{SeenObjects, served_versions};
use crate::apiserver::hook_client::find_endpoint;
use crate::apiserver::outside::{self, Answer, Asked, WebhookQuestion};
use crate::apiserver::transaction::Transaction;
use crate::apiserver::{ApiResult, conversion, custom};
use crate::kinds::Kind;
use crate::managed_fields;
use crate::object::{Key, Object, Reason, Resource, Status, patch};
use hook::{Hook, HookCache};
use review::Verdict;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Resource of the configurations of webhooks that change objects.
const MUTATING: Resource = Resource("mutatingwebhookconfigurations.admissionregistration.k8s.io");
/// Resource of the configurations of webhooks that refuse requests.
const VALIDATING: Resource = Resource("validatingwebhookconfigurations.admissionregistration.k8s.io");
/// The group whose objects configure admission: no webhook sees them, so that a broken one can be removed.
pub const EXEMPT: &str = "admissionregistration.k8s.io";

/// The webhooks that one request has passed, for the second round.
#[derive(Default)]
pub struct WebhookRound {
    /// Whether it is the second.
    is_second: bool,
    /// The webhooks that the second round asks.
    again: BTreeSet<String>,
    /// The webhooks with `reinvocationPolicy: IfNeeded` that were asked since the last change of the object.
    reinvocable: BTreeSet<String>,
    /// The object as the first round has left it.
    left: Option<Object>,
}

impl WebhookRound {
    /// Makes the second round ask the webhooks that have not seen the last change of the object.
    fn ask_again(&mut self) {
        self.again.append(&mut self.reinvocable);
    }
}

/// A webhook that matches a request.
struct Invocation<'h> {
    hook: &'h Hook,
    version: MatchedVersion,
}

/// A question, the URL that errors name, and the answer.
struct Called {
    url: String,
    uid: String,
    answer: Answer,
}

/// Asks the mutating webhooks one after another, each with the object that the one before has left. Returns whether one has changed it:
/// then all plugins run a second time, in which this asks only webhooks with `reinvocationPolicy: IfNeeded` that have not seen a change
/// (`apiserver/pkg/admission/plugin/webhook/mutating/reinvocationcontext.go`). A change of the second round counts, too.
pub fn mutate(
    txn: &mut dyn Transaction,
    request: &mut AdmissionRequest<'_>,
    round: &mut WebhookRound,
) -> ApiResult<bool> {
    let hooks = find_hooks(txn, request.kind, MUTATING)?;
    if hooks.is_empty() {
        return Ok(false);
    }
    if round.left.take().is_some_and(|left| left != *request.object) {
        round.ask_again();
    }
    let mut is_changed = false;
    for (index, hook) in hooks.iter().flat_map(|configuration| configuration.iter()).enumerate() {
        if round.is_second && !round.again.contains(&hook.id) {
            continue;
        }
        let Some(version) = find_version(txn, hook, request)? else { continue };
        let invocation = Invocation { hook, version };
        let before = request.object.clone();
        let place = format!("round_{}_index_{index}", u8::from(round.is_second));
        let patch = match call(txn, &invocation, request, &place)? {
            Some(verdict) => apply(txn, &invocation, request, verdict)?,
            None => None,
        };
        annotations::note_mutation(txn, hook, &place, *request.object != before, patch);
        if *request.object != before {
            is_changed = true;
            round.ask_again();
        }
        if hook.is_reinvoked {
            round.reinvocable.insert(hook.id.clone());
        }
    }
    round.left = Some(request.object.clone());
    round.is_second = true;
    Ok(is_changed)
}

/// Asks the validating webhooks, all at once. The first one that refuses, by the order of their names, decides.
pub fn validate(txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    let hooks = find_hooks(txn, request.kind, VALIDATING)?;
    let (mut called, mut is_deferred) = (Vec::new(), false);
    let hooks = hooks.iter().flat_map(|configuration| configuration.iter());
    for (index, hook) in hooks.enumerate() {
        let Some(version) = find_version(txn, hook, request)? else { continue };
        let invocation = Invocation { hook, version };
        match ask(txn, &invocation, request, false, format!("validating_{index}"))? {
            AskedHook::Called(outcome) => called.push((index, invocation, outcome)),
            AskedHook::Deferred => is_deferred = true,
            AskedHook::Unavailable => {}
        }
    }
    if is_deferred {
        return Err(outside::missing_answer_error());
    }
    for (index, Invocation { hook, .. }, Called { url, uid, answer }) in called {
        match review::read_answer(hook, &url, &answer, &uid, false) {
            Err(why) => {
                hook.tolerate(&why)?;
                annotations::note_failed_open(txn, hook, "validating", &format!("round_0_index_{index}"));
            }
            Ok(mut verdict) => {
                annotations::note_own(txn, hook, std::mem::take(&mut verdict.annotations));
                request.warnings.extend(verdict.warnings);
                verdict.refusal.map_or(Ok(()), Err)?;
            }
        }
    }
    Ok(())
}

/// Whether a webhook may want to see such requests; cheap to ask before writes that loops make often.
pub fn may_match(txn: &dyn Transaction, kind: &Kind, operation: Operation, subresource: &str) -> ApiResult<bool> {
    let wants = |hook: &Hook| hook.criteria.may_match(operation, kind.resource.plural(), subresource);
    for resource in [MUTATING, VALIDATING] {
        if find_hooks(txn, kind, resource)?.iter().flat_map(|configuration| configuration.iter()).any(wants) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The webhooks of all configurations, by the configurations' names; none for objects that no webhook sees.
fn find_hooks(txn: &dyn Transaction, kind: &Kind, resource: Resource) -> ApiResult<Vec<Arc<Vec<Hook>>>> {
    let mut hooks = Vec::new();
    if kind.resource.group() != EXEMPT {
        txn.visit(resource, &mut |uid, revision, read| {
            hooks.push(HookCache::get(uid, revision, read)?);
            Ok(())
        })?;
    }
    Ok(hooks)
}

/// The version in which a webhook matches a request: its rules, selectors and conditions do. A condition that cannot be evaluated refuses
/// the request, or counts as no match, by the failure policy.
fn find_version(
    txn: &mut dyn Transaction,
    hook: &Hook,
    request: &AdmissionRequest<'_>,
) -> ApiResult<Option<MatchedVersion>> {
    let resource = request.kind.resource.plural();
    if !hook.criteria.may_match(request.operation, resource, request.subresource) {
        return Ok(None);
    }
    let versions = served_versions(request.kind);
    let matched = request.matched(&versions);
    let namespace = match hook.criteria.selects_namespaces() && !matched.namespace.is_empty() {
        true => txn.get_shared(&Key::new(Resource("namespaces"), "", matched.namespace))?,
        false => None,
    };
    let label = |name: &str| namespace.as_deref().and_then(|namespace| namespace.label(name));
    let Some(version) = hook.criteria.find(&matched, label) else { return Ok(None) };
    custom::defer(txn, hook.find_uncompiled().into_iter().collect())?;
    if hook.conditions().is_empty() {
        return Ok(Some(version));
    }
    let seen = SeenObjects::convert(txn, request, &version)?;
    match Activation::new(txn, request, &version, seen)?.matches(hook.conditions(), None, !hook.ignores_failure) {
        Ok(holds) => Ok(holds.then_some(version)),
        Err(why) => Err(Status::forbidden(request.kind.resource, request.name(), &why)),
    }
}

/// The result of asking one webhook.
enum AskedHook {
    Called(Called),
    Deferred,
    Unavailable,
}

/// Asks one webhook.
fn ask(
    txn: &mut dyn Transaction,
    Invocation { hook, version }: &Invocation<'_>,
    request: &AdmissionRequest<'_>,
    is_mutating: bool,
    place: String,
) -> ApiResult<AskedHook> {
    if request.dry_run && !hook.is_silent {
        let text = format!("admission webhook {:?} does not support dry run", hook.name);
        return Err(Status::new(Reason::BadRequest, text));
    }
    let endpoint = find_endpoint(txn, &hook.client, hook.timeout);
    let target = match endpoint.target {
        Ok(target) => target,
        Err(why) => {
            let called = Called { url: endpoint.url, uid: String::new(), answer: Err(why) };
            return Ok(AskedHook::Called(called));
        }
    };
    let seen = SeenObjects::convert(txn, request, version)?;
    let body = review::write_question(hook, request, version, &seen, is_mutating);
    let timeout = Duration::from_secs(hook.timeout);
    Ok(match txn.ask(WebhookQuestion { target, timeout, body, place }) {
        Asked::Answered(answer, uid) => AskedHook::Called(Called { url: endpoint.url, uid, answer }),
        Asked::Deferred => AskedHook::Deferred,
        Asked::Unavailable => AskedHook::Unavailable,
    })
}

/// Calls one mutating webhook. Returns `None` if webhooks are disabled, or if it failed and its failurePolicy is Ignore.
fn call(
    txn: &mut dyn Transaction,
    invocation: &Invocation<'_>,
    request: &AdmissionRequest<'_>,
    place: &str,
) -> ApiResult<Option<Verdict>> {
    let Called { url, uid, answer } = match ask(txn, invocation, request, true, place.to_owned())? {
        AskedHook::Called(called) => called,
        AskedHook::Deferred => return Err(outside::missing_answer_error()),
        AskedHook::Unavailable => return Ok(None),
    };
    let hook = invocation.hook;
    match review::read_answer(hook, &url, &answer, &uid, true) {
        Ok(mut verdict) => {
            annotations::note_own(txn, hook, std::mem::take(&mut verdict.annotations));
            Ok(Some(verdict))
        }
        Err(why) => {
            hook.tolerate(&why)?;
            annotations::note_failed_open(txn, hook, "mutation", place);
            Ok(None)
        }
    }
}

/// Applies the answer of a mutating webhook to the object; returns its patch.
fn apply(
    txn: &mut dyn Transaction,
    invocation: &Invocation<'_>,
    request: &mut AdmissionRequest<'_>,
    verdict: Verdict,
) -> ApiResult<Option<Value>> {
    let Invocation { hook, version } = invocation;
    request.warnings.extend(verdict.warnings);
    if let Some(refusal) = verdict.refusal {
        return Err(refusal);
    }
    let Some(change) = verdict.patch.filter(|patch| patch.as_array().is_none_or(|steps| !steps.is_empty())) else {
        return Ok(None);
    };
    if request.new_object().is_none() {
        let text = format!(
            "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
            hook.name
        );
        return Err(hook::internal(&text));
    }
    let seen = SeenObjects::convert(txn, request, version)?;
    let sent = review::sent_object(request, &seen, true);
    let patched = patch::json_patch(&sent, &change).map_err(|error| hook::internal(&error.to_string()))?;
    let mut object = Object(patched);
    let kind = request.kind;
    if object.kind() == kind.kind {
        object.set(&["apiVersion"], version.api_version(request.api_version));
        object = conversion::in_version(txn, kind, &object, request.object.api_version())?.into_owned();
        let normalized = match kind.custom {
            Some(custom) => custom.normalize_patched(&object.0),
            None => kind.normalized(&object.0, &mut |_| {}),
        };
        object = Object(normalized.map_err(|error| hook::internal(&error.to_string()))?);
    }
    keep_identity(request.object, &mut object);
    request.warnings.extend(keep_managers(request.object, &mut object));
    *request.object = object;
    Ok(Some(change))
}

/// Keeps the managers of the fields where a webhook has left some that cannot be read; returns the warning.
fn keep_managers(before: &Object, after: &mut Object) -> Option<String> {
    let problem = managed_fields::find_problem(after)?;
    match before.value_at(&["metadata", "managedFields"]) {
        Some(managers) => after.set(&["metadata", "managedFields"], managers.clone()),
        None => drop(after.unset(&["metadata", "managedFields"])),
    }
    Some(format!(
        ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission \
         controller; please fix your requests: {problem}"
    ))
}

/// Restores metadata that webhooks and policies may not change, and metadata of a new object that they were not sent.
pub fn keep_identity(before: &Object, after: &mut Object) {
    for field in ["name", "namespace", "uid", "creationTimestamp", "generation", "resourceVersion"] {
        match before.value_at(&["metadata", field]) {
            Some(value) => after.set(&["metadata", field], value.clone()),
            None => drop(after.unset(&["metadata", field])),
        }
    }
}
