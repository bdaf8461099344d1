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
use crate::world::access::index::Grants;
use crate::world::access::rule::{AccessRule, quote_list};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Refuses a new or changed role or binding that gives rights which the user lacks, also if the rights stay the same: labels make a role
/// part of aggregated ones. A user who may `escalate` the role, or `bind` the role that a binding refers to, may give all of its rights.
pub fn check_escalation(
    txn: &dyn Transaction,
    user: &User,
    kind: &Kind,
    new: &Object,
    old: Option<&Object>,
) -> ApiResult<()> {
    if old.is_some_and(|old| differ_for_garbage_collection_only(new, old)) {
        return Ok(());
    }
    let namespace = new.namespace();
    let (verb, resource, name, rules) = match kind.kind {
        "Role" | "ClusterRole" => {
            ("escalate", kind.resource.plural(), new.name().to_owned(), AccessRule::read_all(new.value_at(&["rules"])))
        }
        "RoleBinding" | "ClusterRoleBinding" => {
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
    let refuse = |why: &str| Err(Status::forbidden(kind.resource, new.name(), why));
    let grants = find_grants(txn, user, namespace)?;
    let lacking = find_lacking(&grants, &rules);
    if !lacking.is_empty() {
        let lines: Vec<String> = AccessRule::compact(lacking).iter().map(ToString::to_string).collect();
        let errors = match grants.errors.is_empty() {
            true => String::new(),
            false => format!("; resolution errors: {}", quote_list(&grants.errors)),
        };
        return refuse(&format!(
            "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}{errors}",
            user.name,
            quote_list(&user.groups),
            lines.join("\n")
        ));
    }
    // An aggregation rule gives all rights of other roles: only a user who holds everything may write, change or remove one.
    let aggregates = |role: &Object| role.value_at(&["aggregationRule"]).is_some_and(|rule| !rule.is_null());
    let is_aggregated = aggregates(new) || old.is_some_and(aggregates);
    if is_aggregated && !find_lacking(&grants, &full_authority()).is_empty() {
        return refuse("must have cluster-admin privileges to use the aggregationRule");
    }
    Ok(())
}

/// Whether an update changes only fields that the garbage collector writes.
fn differ_for_garbage_collection_only(new: &Object, old: &Object) -> bool {
    let rest = |object: &Object| {
        let mut rest = object.clone();
        for field in ["ownerReferences", "finalizers", "managedFields", "resourceVersion"] {
            rest.unset(&["metadata", field]);
        }
        rest
    };
    rest(new) == rest(old)
}

/// The simple rules that no grant covers.
fn find_lacking(grants: &Grants, rules: &[AccessRule]) -> Vec<AccessRule> {
    let wanted = AccessRule::split_all(rules).into_iter();
    wanted.filter(|simple| !grants.rules().any(|rule| rule.covers(simple))).collect()
}

/// The rules of `cluster-admin`.
fn full_authority() -> [AccessRule; 2] {
    let all = || vec!["*".to_owned()];
    [
        AccessRule { verbs: all(), api_groups: all(), resources: all(), ..AccessRule::default() },
        AccessRule { verbs: all(), paths: all(), ..AccessRule::default() },
    ]
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
