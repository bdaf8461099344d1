//! Authorization: whether a user may do something, by the RBAC rules of the cluster.
//!
//! [`rule`] matches one rule, [`grants`] finds the rules that bindings give to a user, [`escalation`] refuses to give
//! rights away that the giver lacks, and [`default_roles`] are the roles of every cluster. Never: authenticates.
//! Source: Kubernetes, "Using RBAC Authorization". Start reading at [`authorize`].

pub mod default_roles;
pub mod escalation;
pub mod grants;
pub mod rule;

use super::ApiResult;
use super::transaction::Transaction;
use super::user::User;
use crate::object::{Key, Reason, Status};
use grants::Grants;

/// The verb and the target of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessRequest {
    /// `get`, `list`, `create`; for a path the method in lower case.
    pub verb: String,
    /// The object or the path.
    pub target: AccessTarget,
}

/// The objects or the path of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessTarget {
    /// Objects of the API.
    Resource(AccessedResource),
    /// A path outside of the API groups, such as `/healthz`.
    Path(String),
}

/// Objects that a request is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessedResource {
    /// `apps`; empty for the core group.
    pub group: String,
    /// `deployments`.
    pub resource: String,
    /// `scale`; empty for the object itself.
    pub subresource: String,
    /// The namespace; empty for all of them, and where the kind has none.
    pub namespace: String,
    /// The name; empty for requests about several objects.
    pub name: String,
}

/// An answer of the authorizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessDecision {
    /// Whether it may.
    pub is_allowed: bool,
    /// The rule that allows it, or the roles that were not found.
    pub reason: String,
}

impl AccessRequest {
    /// A request for objects.
    pub fn for_resource(verb: &str, resource: AccessedResource) -> AccessRequest {
        AccessRequest { verb: verb.to_owned(), target: AccessTarget::Resource(resource) }
    }

    /// The refusal of a request, in the words of Kubernetes' API server.
    pub fn refusal(&self, user: &User, reason: &str) -> Status {
        let verb = &self.verb;
        let because = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        match &self.target {
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
}

impl AccessedResource {
    /// `deployments/scale`, as rules name it.
    pub fn path(&self) -> String {
        match self.subresource.as_str() {
            "" => self.resource.clone(),
            subresource => format!("{}/{subresource}", self.resource),
        }
    }
}

/// Decides whether a user may do something.
pub fn authorize(txn: &dyn Transaction, user: &User, request: &AccessRequest) -> ApiResult<AccessDecision> {
    if user.is_administrator() {
        return Ok(AccessDecision { is_allowed: true, reason: String::new() });
    }
    let namespace = match &request.target {
        AccessTarget::Resource(accessed) => accessed.namespace.as_str(),
        AccessTarget::Path(_) => "",
    };
    let grants = Grants::find(txn, user, namespace)?;
    Ok(grants.decide(request))
}

/// Refuses what the user may not do.
pub fn check_access(txn: &dyn Transaction, user: &User, request: &AccessRequest) -> ApiResult<()> {
    let decision = authorize(txn, user, request)?;
    if decision.is_allowed { Ok(()) } else { Err(request.refusal(user, &decision.reason)) }
}

/// Refuses a verb on an object, or on all of its resource and namespace if the key has no name, to the user as whom a command acts. Requests over HTTP are authorized before
/// they get here.
pub fn check_verb(txn: &dyn Transaction, verb: &str, subresource: &str, key: &Key) -> ApiResult<()> {
    match txn.acting_user() {
        Some(user) => check_access(txn, user, &verb_request(verb, subresource, key)),
        None => Ok(()),
    }
}

/// Refuses a replacement or an apply that would create the object to a user who may not create it.
pub fn check_creation(txn: &dyn Transaction, key: &Key) -> ApiResult<()> {
    match txn.user() {
        Some(user) => check_access(txn, user, &verb_request("create", "", key)),
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
    };
    AccessRequest::for_resource(verb, accessed)
}

#[cfg(test)]
mod tests;
