//! Authorization: whether a user may do something, by the RBAC rules of the cluster.
//!
//! Knows: the rules and their index are [`crate::world::access`]; [`cache`] keeps the index, [`node`] decides about kubelets,
//! [`escalation`] refuses to give rights that the giver lacks, and [`default_roles`] are the roles of every cluster.
//! Never: authenticates a user.
//! Source: Kubernetes, "Using RBAC Authorization". Start reading at [`authorize`].

pub mod cache;
pub mod default_roles;
pub mod escalation;
pub mod node;

use super::ApiResult;
use super::transaction::Transaction;
use super::user::User;
use crate::object::{Key, Reason, Status};
use crate::world::access::index::Grants;

pub use crate::world::access::{AccessDecision, AccessRequest, AccessTarget, AccessedResource};

/// Returns the refusal of a request, in the words of Kubernetes' API server.
pub fn refusal(request: &AccessRequest, user: &User, reason: &str) -> Status {
    let verb = &request.verb;
    let because = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    match &request.target {
        AccessTarget::Path(path) => Status::new(
            Reason::Forbidden,
            format!("forbidden: User {:?} cannot {verb} path {path:?}{because}", user.name),
        ),
        AccessTarget::Resource(accessed) => {
            let AccessedResource { group, resource, namespace, name, .. } = accessed;
            let place = match namespace.as_str() {
                "" => "at the cluster scope".to_owned(),
                namespace => format!("in the namespace {namespace:?}"),
            };
            let dot = if group.is_empty() { "" } else { "." };
            let named = if name.is_empty() { String::new() } else { format!(" {name:?}") };
            let text = format!(
                "{resource}{dot}{group}{named} is forbidden: User {:?} cannot {verb} resource {:?} in API group {group:?} \
                     {place}{because}",
                user.name,
                accessed.path()
            );
            let status = Status::new(Reason::Forbidden, text);
            Status { kind: resource.clone(), group: group.clone(), name: name.clone(), ..status }
        }
    }
}

/// Decides whether a user may do something.
pub fn authorize(txn: &dyn Transaction, user: &User, request: &AccessRequest) -> ApiResult<AccessDecision> {
    if user.is_administrator() {
        return Ok(AccessDecision { is_allowed: true, reason: String::new() });
    }
    let node_decision = node::authorize_node(txn, user, request)?;
    if let Some(allowed) = node_decision.as_ref().filter(|decision| decision.is_allowed) {
        return Ok(allowed.clone());
    }
    let mut decision = find_grants(txn, user, request.namespace())?.decide(request);
    if let Some(refused) = node_decision.filter(|refused| !decision.is_allowed && !refused.reason.is_empty()) {
        let both = [refused.reason, decision.reason].into_iter().filter(|reason| !reason.is_empty());
        decision.reason = both.collect::<Vec<_>>().join("\n");
    }
    Ok(decision)
}

/// Finds the rules that hold for a user in a namespace; in the cluster as a whole if it is empty.
pub fn find_grants(txn: &dyn Transaction, user: &User, namespace: &str) -> ApiResult<Grants> {
    Ok(txn.access_index()?.find_grants(&user.name, &user.groups, namespace))
}

/// Refuses a request that the user may not make. Returns the reason why another one is allowed.
pub fn check_access(txn: &dyn Transaction, user: &User, request: &AccessRequest) -> ApiResult<String> {
    let decision = authorize(txn, user, request)?;
    if decision.is_allowed { Ok(decision.reason) } else { Err(refusal(request, user, &decision.reason)) }
}

/// Refuses a verb that the user as whom a command acts may not use on an object; on all objects of the resource and namespace if the
/// key has no name. Requests over HTTP are authorized before.
pub fn check_verb(txn: &dyn Transaction, verb: &str, subresource: &str, key: &Key) -> ApiResult<()> {
    match txn.acting_user() {
        Some(user) => check_access(txn, user, &verb_request(verb, subresource, key)).map(|_| ()),
        None => Ok(()),
    }
}

/// Refuses a replacement or an apply that would create an object which the user may not create.
pub fn check_creation(txn: &dyn Transaction, key: &Key) -> ApiResult<()> {
    match txn.user() {
        Some(user) => check_access(txn, user, &verb_request("create", "", key)).map(|_| ()),
        None => Ok(()),
    }
}

fn verb_request(verb: &str, subresource: &str, key: &Key) -> AccessRequest {
    let accessed = AccessedResource {
        group: key.resource.group().to_owned(),
        resource: key.resource.plural().to_owned(),
        subresource: subresource.to_owned(),
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
        field_selector: String::new(),
    };
    AccessRequest::for_resource(verb, accessed)
}

#[cfg(test)]
pub mod testing;
#[cfg(test)]
mod tests;
