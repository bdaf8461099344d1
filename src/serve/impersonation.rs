//! Acting as another user, in one of several modes (KEP-5284).
//!
//! Knows: the permissions that each mode needs. The older mode `impersonate` permits every request as the other user; the constrained modes
//! permit single verbs on single resources (`impersonate-on:MODE:VERB`), and decide the groups of nodes and service accounts themselves.
//! Never: decides what the other user may do. Start reading at [`impersonate`].

use super::access::access_request;
use super::{ApiRequest, ServeResult};
use crate::apiserver::authorization::{AccessRequest, AccessedResource, check_access, refusal};
use crate::apiserver::transaction::Transaction;
use crate::apiserver::user::{ADMINISTRATORS, User, service_account};
use crate::apiserver::{Api, ApiResult};
use crate::go::fmt;
use crate::kinds::node;
use crate::kinds::shared::names;
use crate::object::Status;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Another user as whom a client wants to act: the headers `Impersonate-*`.
#[derive(Clone, Debug, Default)]
pub struct Impersonation {
    /// `Impersonate-User`.
    pub user: String,
    /// `Impersonate-Group`, as often as it was sent.
    pub groups: Vec<String>,
    /// `Impersonate-Uid`.
    pub uid: String,
    /// `Impersonate-Extra-*`, in lower case.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// A way to act as another user. Clients are permitted by the first one whose permissions they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ImpersonationMode {
    /// A service account acts as the node of its pod.
    AssociatedNode,
    /// Any node.
    ArbitraryNode,
    /// A service account.
    ServiceAccount,
    /// Any other user.
    UserInfo,
    /// Everybody, for all requests.
    Unconstrained,
}

const MODES: [ImpersonationMode; 5] = [
    ImpersonationMode::AssociatedNode,
    ImpersonationMode::ArbitraryNode,
    ImpersonationMode::ServiceAccount,
    ImpersonationMode::UserInfo,
    ImpersonationMode::Unconstrained,
];

/// The API group of identities.
const IDENTITY: &str = "authentication.k8s.io";

/// Returns the user as whom the request is made. `user` has to be permitted to act as that one; the error is that of the first mode that
/// applies.
pub fn impersonate(api: &Api, user: &User, asked: &Impersonation, request: &ApiRequest) -> ServeResult<Arc<User>> {
    if asked.user.is_empty() {
        let groups: Vec<String> = asked.groups.iter().map(|group| fmt::quote(group)).collect();
        let groups = if groups.is_empty() { "(nil)".to_owned() } else { format!("{{{}}}", groups.join(", ")) };
        let user = format!(
            "Name:\"\", UID:{}, Groups:[]string{groups}, Extra:map[string][]string(nil)",
            fmt::quote(&asked.uid)
        );
        return Err(Status::bad_request(format!(
            "requested &user.DefaultInfo{{{user}}} without impersonating a user name"
        )));
    }
    let access = access_request(request);
    let mut first = None;
    for mode in MODES.into_iter().filter(|mode| mode.applies(user, asked)) {
        match api.read_view(|txn| mode.check(txn, user, asked, &access)) {
            Ok(()) => return Ok(Arc::new(mode.wanted_user(asked))),
            Err(status) => first = first.or(Some(status)),
        }
    }
    Err(first.unwrap_or_else(|| Status::bad_request("all impersonation modes failed")))
}

impl Impersonation {
    /// The node that the user name names.
    fn node(&self) -> Option<&str> {
        self.user.strip_prefix("system:node:").filter(|name| !name.is_empty())
    }

    /// The namespace and name of the service account that the user name names.
    fn account(&self) -> Option<(&str, &str)> {
        service_account(&self.user)
    }

    fn has_only_name(&self) -> bool {
        self.uid.is_empty() && self.groups.is_empty() && self.extra.is_empty()
    }
}

impl ImpersonationMode {
    /// The mode's name in verbs.
    fn name(self) -> &'static str {
        match self {
            ImpersonationMode::AssociatedNode => "associated-node",
            ImpersonationMode::ArbitraryNode => "arbitrary-node",
            ImpersonationMode::ServiceAccount => "serviceaccount",
            ImpersonationMode::UserInfo => "user-info",
            ImpersonationMode::Unconstrained => "",
        }
    }

    /// Whether the mode is for the wanted user.
    fn applies(self, user: &User, asked: &Impersonation) -> bool {
        match self {
            ImpersonationMode::AssociatedNode => {
                asked.has_only_name() && asked.node().is_some_and(|node| user.is_on_node(node))
            }
            ImpersonationMode::ArbitraryNode => asked.has_only_name() && asked.node().is_some(),
            ImpersonationMode::ServiceAccount => asked.has_only_name() && asked.account().is_some(),
            ImpersonationMode::UserInfo => asked.node().is_none() && asked.account().is_none(),
            ImpersonationMode::Unconstrained => true,
        }
    }

    /// Refuses a client that lacks a permission of the mode.
    fn check(self, txn: &dyn Transaction, user: &User, asked: &Impersonation, access: &AccessRequest) -> ApiResult<()> {
        let mut needed = Vec::new();
        if self != ImpersonationMode::Unconstrained {
            let verb = format!("impersonate-on:{}:{}", self.name(), access.verb);
            needed.push(AccessRequest { verb, ..access.clone() });
        }
        needed.extend(self.permissions(asked));
        needed.iter().try_for_each(|request| check_access(txn, user, request).map(drop))?;
        if self == ImpersonationMode::Unconstrained { Ok(()) } else { self.check_values(user, asked) }
    }

    /// The permission to take a part of an identity: its API group, resource and subresource, and its namespace and name.
    fn permission(
        self,
        (group, resource, subresource): (&str, &str, &str),
        namespace: &str,
        name: &str,
    ) -> AccessRequest {
        let verb = match self {
            ImpersonationMode::Unconstrained => "impersonate".to_owned(),
            _ => format!("impersonate:{}", self.name()),
        };
        let [group, resource, subresource, namespace, name] =
            [group, resource, subresource, namespace, name].map(str::to_owned);
        let accessed =
            AccessedResource { group, resource, subresource, namespace, name, ..AccessedResource::default() };
        AccessRequest::for_resource(&verb, accessed)
    }

    /// The API group of users, groups and service accounts.
    fn name_group(self) -> &'static str {
        if self == ImpersonationMode::Unconstrained { "" } else { IDENTITY }
    }

    /// The permissions to take each part of the wanted user's identity.
    fn permissions(self, asked: &Impersonation) -> Vec<AccessRequest> {
        let node = asked.node().filter(|_| self != ImpersonationMode::Unconstrained);
        let named = match (node, asked.account()) {
            // The permission is for all nodes: each account only acts as its own.
            (Some(_), _) if self == ImpersonationMode::AssociatedNode => {
                self.permission((IDENTITY, "nodes", ""), "", "*")
            }
            (Some(node), _) => self.permission((IDENTITY, "nodes", ""), "", node),
            (None, Some((namespace, name))) => {
                self.permission((self.name_group(), "serviceaccounts", ""), namespace, name)
            }
            (None, None) => self.permission((self.name_group(), "users", ""), "", &asked.user),
        };
        let uid = (!asked.uid.is_empty()).then(|| self.permission((IDENTITY, "uids", ""), "", &asked.uid));
        let groups = asked.groups.iter().map(|group| self.permission((self.name_group(), "groups", ""), "", group));
        let extra = asked.extra.iter().flat_map(|(key, values)| values.iter().map(move |value| (key, value)));
        let extra = extra.map(|(key, value)| self.permission((IDENTITY, "userextras", key), "", value));
        [named].into_iter().chain(uid).chain(groups).chain(extra).collect()
    }

    /// Refuses values that no permission of a constrained mode covers.
    fn check_values(self, user: &User, asked: &Impersonation) -> ApiResult<()> {
        let refuse = |resource: &str, name: &str, why: &str| {
            let group = if resource == "groups" { self.name_group() } else { IDENTITY };
            Err(refusal(
                &self.permission((group, resource, ""), "", name),
                user,
                &format!("impersonating {why} is not allowed"),
            ))
        };
        if asked.groups.iter().any(String::is_empty) {
            return refuse("groups", "", "the empty string group");
        }
        if asked.groups.iter().any(|group| group == ADMINISTRATORS) {
            return refuse("groups", ADMINISTRATORS, &format!("the {ADMINISTRATORS} group"));
        }
        let is_domain_path = |key: &str| {
            key.split_once('/').is_some_and(|(domain, path)| names::subdomain(domain).is_empty() && !path.is_empty())
        };
        let is_valid = |key: &str, values: &[String]| {
            is_domain_path(key)
                && key == key.to_lowercase()
                && !values.is_empty()
                && !values.iter().any(String::is_empty)
        };
        match asked.extra.iter().find(|(key, values)| !is_valid(key, values)) {
            Some((key, _)) => refuse("userextras", "", &format!("the key {key:?} with these values in extra")),
            None => Ok(()),
        }
    }

    /// Returns the wanted user. In a constrained mode all nodes have the same groups.
    fn wanted_user(self, asked: &Impersonation) -> User {
        let is_node = matches!(self, ImpersonationMode::AssociatedNode | ImpersonationMode::ArbitraryNode);
        let groups = if is_node { vec![node::GROUP.to_owned()] } else { asked.groups.clone() };
        User::impersonated(&asked.user, &asked.uid, &groups, asked.extra.clone())
    }
}
