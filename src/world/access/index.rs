//! The rules that bindings give, by user and group, so that a request looks at the bindings of its user alone.
//!
//! Knows: roles that bindings name and that are not there. Never: reads a store; callers give it all roles and bindings.
//! Start reading at [`AccessIndex::build`] and [`Grants::decide`].

use super::rule::AccessRule;
use super::{AccessDecision, AccessRequest};
use crate::object::{Object, join_errors};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;

/// Roles of a namespace.
pub const ROLES: &str = "roles.rbac.authorization.k8s.io";
/// Roles of the cluster.
pub const CLUSTER_ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
/// Bindings of a namespace.
pub const BINDINGS: &str = "rolebindings.rbac.authorization.k8s.io";
/// Bindings of the cluster.
pub const CLUSTER_BINDINGS: &str = "clusterrolebindings.rbac.authorization.k8s.io";

/// The objects that an index is made of.
pub const INDEXED: [&str; 4] = [ROLES, CLUSTER_ROLES, BINDINGS, CLUSTER_BINDINGS];

/// The rules of one role that one binding gives to a subject.
struct Grant {
    /// The place of the binding among all bindings.
    order: usize,
    /// `ClusterRoleBinding "b" of ClusterRole "r" to User "ann"`.
    text: String,
    /// The rules, or the error about a role that is not there.
    rules: Result<Arc<[AccessRule]>, String>,
}

/// Grants by subject, each list in the order of the bindings.
#[derive(Default)]
struct GrantTable {
    users: HashMap<String, Vec<Arc<Grant>>>,
    groups: HashMap<String, Vec<Arc<Grant>>>,
}

/// All roles and bindings of a cluster at one revision.
#[derive(Default)]
pub struct AccessIndex {
    cluster_roles: HashMap<String, Arc<[AccessRule]>>,
    /// By namespace and name.
    roles: HashMap<(String, String), Arc<[AccessRule]>>,
    cluster: GrantTable,
    namespaces: HashMap<String, GrantTable>,
    bindings: usize,
}

/// All rules that hold for a user in one namespace, or in the cluster as a whole.
pub struct Grants {
    all: Vec<Arc<Grant>>,
    /// The errors of bindings that give nothing, because their roles are not there.
    pub errors: Vec<String>,
}

impl AccessIndex {
    /// Makes an index of roles and bindings; the bindings of the cluster come first in it.
    pub fn build(
        roles: &[Object],
        cluster_roles: &[Object],
        bindings: &[Object],
        cluster_bindings: &[Object],
    ) -> AccessIndex {
        let rules = |role: &Object| -> Arc<[AccessRule]> { AccessRule::read_all(role.value_at(&["rules"])).into() };
        let mut index = AccessIndex {
            cluster_roles: cluster_roles.iter().map(|role| (role.name().to_owned(), rules(role))).collect(),
            roles: roles
                .iter()
                .map(|role| ((role.namespace().to_owned(), role.name().to_owned()), rules(role)))
                .collect(),
            ..AccessIndex::default()
        };
        cluster_bindings.iter().chain(bindings).for_each(|binding| index.add(binding));
        index
    }

    fn add(&mut self, binding: &Object) {
        let (order, namespace) = (self.bindings, binding.namespace());
        self.bindings += 1;
        let text = |field: &str| binding.text(&["roleRef", field]).unwrap_or_default();
        let rules = self.find_rules(text("kind"), text("name"), namespace);
        let place = |name: &str, namespace: &str| match namespace {
            "" => name.to_owned(),
            namespace => format!("{name}/{namespace}"),
        };
        let head =
            format!("{} {:?} of {} {:?}", binding.kind(), place(binding.name(), namespace), text("kind"), text("name"));
        for subject in binding.items(&["subjects"]) {
            let Some((is_group, name)) = read_subject(subject, namespace) else { continue };
            let field = |field: &str| subject[field].as_str().unwrap_or_default();
            let subject_text = place(field("name"), field("namespace"));
            let grant =
                Grant { order, text: format!("{head} to {} {subject_text:?}", field("kind")), rules: rules.clone() };
            let table = match namespace {
                "" => &mut self.cluster,
                namespace => self.namespaces.entry(namespace.to_owned()).or_default(),
            };
            let subjects = if is_group { &mut table.groups } else { &mut table.users };
            subjects.entry(name).or_default().push(Arc::new(grant));
        }
    }

    /// The rules of a role that a binding of this namespace refers to; or the error about a role that is not there.
    pub fn find_rules(&self, kind: &str, name: &str, namespace: &str) -> Result<Arc<[AccessRule]>, String> {
        let rules = match kind {
            "Role" => self.roles.get(&(namespace.to_owned(), name.to_owned())),
            _ => self.cluster_roles.get(name),
        };
        rules
            .cloned()
            .ok_or_else(|| format!("{}.rbac.authorization.k8s.io {name:?} not found", kind.to_ascii_lowercase()))
    }

    /// The rules that hold for a user, by bindings of the cluster, and of a namespace unless it is empty.
    pub fn find_grants(&self, user: &str, groups: &[String], namespace: &str) -> Grants {
        let tables =
            std::iter::once(&self.cluster).chain(self.namespaces.get(namespace).filter(|_| !namespace.is_empty()));
        let mut given: Vec<&Arc<Grant>> = Vec::new();
        for table in tables {
            let own = table.users.get(user).into_iter();
            let lists = own.chain(groups.iter().filter_map(|group| table.groups.get(group)));
            lists.for_each(|list| given.extend(list));
        }
        // A binding counts once, however many of its subjects are this user.
        given.sort_by_key(|grant| grant.order);
        given.dedup_by_key(|grant| grant.order);
        let mut grants = Grants { all: Vec::with_capacity(given.len()), errors: Vec::new() };
        for grant in given {
            match &grant.rules {
                Ok(_) => grants.all.push(grant.clone()),
                Err(error) => grants.errors.push(error.clone()),
            }
        }
        grants
    }
}

/// Reads a subject: whether it is a group, and the name of the group or user.
fn read_subject(subject: &Value, namespace: &str) -> Option<(bool, String)> {
    let text = |field: &str| subject[field].as_str().unwrap_or_default();
    match text("kind") {
        "User" => Some((false, text("name").to_owned())),
        "Group" => Some((true, text("name").to_owned())),
        "ServiceAccount" => {
            let place = if text("namespace").is_empty() { namespace } else { text("namespace") };
            Some((false, format!("system:serviceaccount:{place}:{}", text("name"))))
        }
        _ => None,
    }
}

impl Grants {
    /// Decides about a request.
    pub fn decide(&self, request: &AccessRequest) -> AccessDecision {
        let allows =
            |grant: &&Arc<Grant>| grant.rules.iter().flat_map(|rules| rules.iter()).any(|rule| rule.allows(request));
        let allowing = self.all.iter().find(allows);
        let reason = match allowing {
            Some(grant) => format!("RBAC: allowed by {}", grant.text),
            None if self.errors.is_empty() => String::new(),
            None => format!("RBAC: {}", join_errors(&self.errors)),
        };
        AccessDecision { is_allowed: allowing.is_some(), reason }
    }

    /// All rules, in the order of the bindings.
    pub fn rules(&self) -> impl Iterator<Item = &AccessRule> {
        self.all.iter().flat_map(|grant| grant.rules.iter().flat_map(|rules| rules.iter()))
    }
}
