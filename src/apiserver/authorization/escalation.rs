//! Privilege escalation: a user cannot give rights that the user lacks (Kubernetes, "Privilege escalation prevention and
//! bootstrapping").
//!
//! Never: decides whether the user may write the object at all; authorization has done that before. Start reading at
//! [`check_escalation`].

use super::{AccessRequest, AccessedResource, authorize, find_grants};
use crate::apiserver::ApiResult;
use crate::apiserver::transaction::Transaction;
use crate::apiserver::user::User;
use crate::kinds::Kind;
use crate::object::{Object, Reason, Status};
use crate::world::access::rule::{AccessRule, quote_list};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Refuses a new or changed role or binding that gives rights which the user lacks. A user who may `escalate` the role, or
/// `bind` the role that a binding refers to, may give all of its rights.
pub fn check_escalation(
    txn: &dyn Transaction,
    user: &User,
    kind: &Kind,
    new: &Object,
    old: Option<&Object>,
) -> ApiResult<()> {
    let is_same = |field: &str| old.is_some_and(|old| old.value_at(&[field]) == new.value_at(&[field]));
    let namespace = new.namespace();
    let (verb, resource, name, rules) = match kind.kind {
        "Role" | "ClusterRole" if !is_same("rules") || !is_same("aggregationRule") => {
            ("escalate", kind.resource.plural(), new.name().to_owned(), AccessRule::read_all(new.value_at(&["rules"])))
        }
        "RoleBinding" | "ClusterRoleBinding" if !is_same("subjects") || !is_same("roleRef") => {
            let text = |field: &str| new.text(&["roleRef", field]).unwrap_or_default();
            let resource = if text("kind") == "Role" { "roles" } else { "clusterroles" };
            let rules = match txn.access_index()?.find_rules(text("kind"), text("name"), namespace) {
                Ok(rules) => rules.to_vec(),
                Err(_) if is_allowed(txn, user, "bind", resource, namespace, text("name"))? => return Ok(()),
                Err(error) => return Err(Status::new(Reason::NotFound, error)),
            };
            ("bind", resource, text("name").to_owned(), rules)
        }
        _ => return Ok(()),
    };
    if user.is_administrator() || is_allowed(txn, user, verb, resource, namespace, &name)? {
        return Ok(());
    }
    // An aggregation rule gives all rights of other roles: only a user who holds everything may write one.
    let everything = new.value_at(&["aggregationRule"]).filter(|rule| !rule.is_null()).map(|_| AccessRule {
        verbs: vec!["*".into()],
        api_groups: vec!["*".into()],
        resources: vec!["*".into()],
        ..AccessRule::default()
    });
    let wanted: Vec<AccessRule> = AccessRule::split_all(rules.iter().chain(&everything));
    let grants = find_grants(txn, user, namespace)?;
    let lacking: Vec<AccessRule> =
        wanted.into_iter().filter(|simple| !grants.rules().any(|rule| rule.covers(simple))).collect();
    if lacking.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = AccessRule::compact(lacking).iter().map(ToString::to_string).collect();
    let errors = match grants.errors.is_empty() {
        true => String::new(),
        false => format!("; resolution errors: {}", quote_list(&grants.errors)),
    };
    let text = format!(
        "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}{errors}",
        user.name,
        quote_list(&user.groups),
        lines.join("\n")
    );
    Err(Status::forbidden(kind.resource, new.name(), &text))
}

fn is_allowed(
    txn: &dyn Transaction,
    user: &User,
    verb: &str,
    resource: &str,
    namespace: &str,
    name: &str,
) -> ApiResult<bool> {
    let accessed = AccessedResource {
        group: GROUP.to_owned(),
        resource: resource.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        ..AccessedResource::default()
    };
    Ok(authorize(txn, user, &AccessRequest::for_resource(verb, accessed))?.is_allowed)
}
