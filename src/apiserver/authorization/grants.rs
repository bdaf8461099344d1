//! The rules that bindings give to a user.

use super::rule::AccessRule;
use super::{AccessDecision, AccessRequest};
use crate::apiserver::ApiResult;
use crate::apiserver::transaction::Transaction;
use crate::apiserver::user::User;
use crate::object::{Key, Object, Resource};
use serde_json::Value;

/// Roles of a namespace.
pub const ROLES: &str = "roles.rbac.authorization.k8s.io";
/// Roles of the cluster.
pub const CLUSTER_ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
/// Bindings of a namespace.
pub const BINDINGS: &str = "rolebindings.rbac.authorization.k8s.io";
/// Bindings of the cluster.
pub const CLUSTER_BINDINGS: &str = "clusterrolebindings.rbac.authorization.k8s.io";

/// The rules of one role that one binding gives to a user.
struct Grant {
    /// `ClusterRoleBinding "b" of ClusterRole "r" to User "ann"`.
    text: String,
    rules: Vec<AccessRule>,
}

/// All rules that hold for a user in one namespace, or in the cluster as a whole.
pub struct Grants {
    all: Vec<Grant>,
    /// Why bindings give nothing: roles that are not there.
    pub errors: Vec<String>,
}

impl Grants {
    /// Finds what bindings of the cluster, and of a namespace unless it is empty, give to a user.
    pub fn find(txn: &dyn Transaction, user: &User, namespace: &str) -> ApiResult<Grants> {
        let mut grants = Grants { all: Vec::new(), errors: Vec::new() };
        for binding in txn.list(Resource(CLUSTER_BINDINGS), None)? {
            grants.add(txn, user, &binding)?;
        }
        if !namespace.is_empty() {
            for binding in txn.list(Resource(BINDINGS), Some(namespace))? {
                grants.add(txn, user, &binding)?;
            }
        }
        Ok(grants)
    }

    fn add(&mut self, txn: &dyn Transaction, user: &User, binding: &Object) -> ApiResult<()> {
        let subjects = binding.items(&["subjects"]);
        let Some(subject) = subjects.iter().find(|subject| is_user(subject, user, binding.namespace())) else {
            return Ok(());
        };
        let text = |field: &str| binding.text(&["roleRef", field]).unwrap_or_default();
        match find_rules(txn, text("kind"), text("name"), binding.namespace())? {
            Ok(rules) => {
                let place = |name: &str, namespace: &str| match namespace {
                    "" => name.to_owned(),
                    namespace => format!("{name}/{namespace}"),
                };
                let subject_text = place(
                    subject["name"].as_str().unwrap_or_default(),
                    subject["namespace"].as_str().unwrap_or_default(),
                );
                let text = format!(
                    "{} {:?} of {} {:?} to {} {subject_text:?}",
                    binding.kind(),
                    place(binding.name(), binding.namespace()),
                    text("kind"),
                    text("name"),
                    subject["kind"].as_str().unwrap_or_default(),
                );
                self.all.push(Grant { text, rules });
            }
            Err(error) => self.errors.push(error),
        }
        Ok(())
    }

    /// Decides about a request.
    pub fn decide(&self, request: &AccessRequest) -> AccessDecision {
        let found = self.all.iter().find(|grant| grant.rules.iter().any(|rule| rule.allows(request)));
        let reason = match found {
            Some(grant) => format!("RBAC: allowed by {}", grant.text),
            None if self.errors.is_empty() => String::new(),
            None => format!("RBAC: {}", joined(&self.errors)),
        };
        AccessDecision { is_allowed: found.is_some(), reason }
    }

    /// All rules, in the order of the bindings.
    pub fn rules(&self) -> impl Iterator<Item = &AccessRule> {
        self.all.iter().flat_map(|grant| &grant.rules)
    }
}

/// Several errors, as Go's aggregate shows them.
pub fn joined(errors: &[String]) -> String {
    match errors {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

/// The rules of a role that a binding of this namespace refers to; or the error about a role that is not there.
pub fn find_rules(
    txn: &dyn Transaction,
    kind: &str,
    name: &str,
    namespace: &str,
) -> ApiResult<Result<Vec<AccessRule>, String>> {
    let key = match kind {
        "Role" => Key::new(Resource(ROLES), namespace, name),
        _ => Key::new(Resource(CLUSTER_ROLES), "", name),
    };
    Ok(match txn.get_shared(&key)? {
        Some(role) => Ok(AccessRule::read_all(role.value_at(&["rules"]))),
        None => Err(format!("{}.rbac.authorization.k8s.io {name:?} not found", kind.to_ascii_lowercase())),
    })
}

/// Whether a subject of a binding is this user or a group of the user.
fn is_user(subject: &Value, user: &User, namespace: &str) -> bool {
    let text = |field: &str| subject[field].as_str().unwrap_or_default();
    match text("kind") {
        "User" => text("name") == user.name,
        "Group" => user.groups.iter().any(|group| group == text("name")),
        "ServiceAccount" => {
            let place = if text("namespace").is_empty() { namespace } else { text("namespace") };
            user.name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'))
                == Some((place, text("name")))
        }
        _ => false,
    }
}
