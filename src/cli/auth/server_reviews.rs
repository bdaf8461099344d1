//! The questions of `kloop auth` as reviews that a server answers.

use crate::apiserver::authorization::{AccessDecision, AccessRequest, AccessTarget};
use crate::cli::cluster::rest;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::client::ClientRequest;
use crate::world::access::rule::AccessRule;
use serde_json::{Value, json};

/// Sends a review to the server that is used in place of a state file. Returns its status; `None` without a server.
fn ask(context: &mut CommandContext, group: &str, review: (&str, &str), spec: Value) -> CliResult<Option<Value>> {
    let (kind, plural) = review;
    let body = json!({"apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {}, "spec": spec});
    let request = ClientRequest::post(format!("/apis/{group}/v1/{plural}"), &body);
    let Some(reply) = rest::send_to_server(context, request)? else { return Ok(None) };
    let mut answer = reply.json().map_err(|error| Failure::plain(error.to_string()))?;
    Ok(Some(answer["status"].take()))
}

/// Asks whether the user may do something.
pub fn ask_decision(context: &mut CommandContext, request: &AccessRequest) -> CliResult<Option<AccessDecision>> {
    let verb = &request.verb;
    let spec = match &request.target {
        AccessTarget::Path(path) => json!({"nonResourceAttributes": {"path": path, "verb": verb}}),
        AccessTarget::Resource(accessed) => json!({"resourceAttributes": {
            "verb": verb, "group": accessed.group, "resource": accessed.resource, "subresource": accessed.subresource,
            "namespace": accessed.namespace, "name": accessed.name,
        }}),
    };
    let review = ("SelfSubjectAccessReview", "selfsubjectaccessreviews");
    let status = ask(context, "authorization.k8s.io", review, spec)?;
    Ok(status.map(|status| {
        let mut reason = status["reason"].as_str().unwrap_or_default().to_owned();
        if let Some(error) = status["evaluationError"].as_str().filter(|error| !error.is_empty()) {
            reason = if reason.is_empty() { error.to_owned() } else { format!("{reason} - {error}") };
        }
        AccessDecision { is_allowed: status["allowed"] == true, reason }
    }))
}

/// Asks the server for the user's permissions in a namespace. Returns the rules, and the reason why they may be incomplete.
pub fn ask_rules(context: &mut CommandContext, namespace: &str) -> CliResult<Option<(Vec<AccessRule>, String)>> {
    let review = ("SelfSubjectRulesReview", "selfsubjectrulesreviews");
    let status = ask(context, "authorization.k8s.io", review, json!({"namespace": namespace}))?;
    Ok(status.map(|status| {
        let mut rules = AccessRule::read_all(status.get("resourceRules"));
        rules.extend(AccessRule::read_all(status.get("nonResourceRules")));
        let is_incomplete = status["incomplete"] == true;
        let why = status["evaluationError"].as_str().filter(|_| is_incomplete).unwrap_or_default();
        (rules, why.to_owned())
    }))
}

/// Asks who the user is. Returns the `userInfo`.
pub fn ask_user(context: &mut CommandContext) -> CliResult<Option<Value>> {
    let status = ask(context, "authentication.k8s.io", ("SelfSubjectReview", "selfsubjectreviews"), json!({}))?;
    Ok(status.map(|mut status| status["userInfo"].take()))
}
