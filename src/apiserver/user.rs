//! Users, as authentication finds them: the administrator, service accounts, and whom they act as.

use crate::kinds::node;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The name of the owner of the state.
pub const ADMINISTRATOR: &str = "admin";
/// The group whose members may do everything.
pub const ADMINISTRATORS: &str = "system:masters";
/// The group of every user that is known.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of requests without credentials.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The fact about a service account's user that names the node of its pod.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
const ACCOUNTS: &str = "system:serviceaccounts";
const ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// The namespace and name of the service account that a user name names. Names of another form are those of ordinary users
/// (Kubernetes: `serviceaccount.SplitUsername`).
pub fn service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(ACCOUNT_PREFIX)?.split_once(':')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
}

/// A user, as authentication found it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// `ann` or `system:serviceaccount:default:web`.
    pub name: String,
    /// A name that is never given again; may be empty.
    pub uid: String,
    /// The groups, in the order in which they were given.
    pub groups: Vec<String>,
    /// Facts about the user by name.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The owner of the state, as `kubectl auth whoami` shows it.
    pub fn administrator() -> User {
        User {
            name: ADMINISTRATOR.to_owned(),
            uid: ADMINISTRATOR.to_owned(),
            groups: vec![ADMINISTRATORS.to_owned(), AUTHENTICATED.to_owned()],
            ..User::default()
        }
    }

    /// The user of a component of the control plane, as Kubernetes names it: the kubelet, the scheduler, or the controller with this name.
    pub fn component(name: &str) -> User {
        match name {
            "default-scheduler" => User::impersonated("system:kube-scheduler", "", &[], BTreeMap::new()),
            "kubelet" => {
                let groups = [node::GROUP.to_owned()];
                User::impersonated("system:node:kloop", "", &groups, BTreeMap::new())
            }
            controller => {
                let name = format!("{ACCOUNT_PREFIX}kube-system:{controller}");
                User::impersonated(&name, "", &[], BTreeMap::new())
            }
        }
    }

    /// A client that showed no credentials.
    pub fn anonymous() -> User {
        User { name: "system:anonymous".to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..User::default() }
    }

    /// The user of a client certificate with this fingerprint (SHA-256, hexadecimal).
    pub fn certified(name: &str, mut groups: Vec<String>, fingerprint: &str) -> User {
        if !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        let id = vec![format!("X509SHA256={fingerprint}")];
        let extra = BTreeMap::from([("authentication.kubernetes.io/credential-id".to_owned(), id)]);
        User { name: name.to_owned(), uid: String::new(), groups, extra }
    }

    /// A user by name, as tokens and impersonation name one: a service account gets its groups.
    pub fn impersonated(name: &str, uid: &str, groups: &[String], extra: BTreeMap<String, Vec<String>>) -> User {
        let mut groups = groups.to_vec();
        if let Some((namespace, _)) = service_account(name).filter(|_| groups.is_empty()) {
            groups = vec![ACCOUNTS.to_owned(), format!("{ACCOUNTS}:{namespace}")];
        }
        let is_anonymous = name == User::anonymous().name;
        let usual = if is_anonymous { UNAUTHENTICATED } else { AUTHENTICATED };
        if !groups.iter().any(|group| [AUTHENTICATED, UNAUTHENTICATED].contains(&group.as_str())) {
            groups.push(usual.to_owned());
        }
        User { name: name.to_owned(), uid: uid.to_owned(), groups, extra }
    }

    /// Whether it is a service account.
    pub fn is_service_account(&self) -> bool {
        service_account(&self.name).is_some()
    }

    /// Whether it is a service account in a pod on this node.
    pub fn is_on_node(&self, node: &str) -> bool {
        let nodes = self.extra.get(NODE_NAME).map(Vec::as_slice).unwrap_or_default();
        self.is_service_account() && matches!(nodes, [own] if own == node)
    }

    /// Whether it is a controller of the control plane, as [`User::component`] makes it: such a user has no uid.
    pub fn is_controller(&self) -> bool {
        self.uid.is_empty() && service_account(&self.name).is_some_and(|(namespace, _)| namespace == "kube-system")
    }

    /// Whether the user may do everything.
    pub fn is_administrator(&self) -> bool {
        self.groups.iter().any(|group| group == ADMINISTRATORS)
    }

    /// The user as reviews show it (`authentication.k8s.io/v1` UserInfo).
    pub fn info(&self) -> Value {
        let mut info = json!({"username": self.name, "groups": self.groups});
        if !self.uid.is_empty() {
            info["uid"] = self.uid.as_str().into();
        }
        if !self.extra.is_empty() {
            info["extra"] = json!(self.extra);
        }
        info
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_service_accounts_have_their_groups() {
        let groups = |name: &str| User::impersonated(name, "", &[], BTreeMap::new()).groups;
        let account = ["system:serviceaccounts", "system:serviceaccounts:ns", AUTHENTICATED];
        assert_eq!(groups("system:serviceaccount:ns:bot"), account);
        for name in [
            "ann",
            "system:serviceaccount:ns",
            "system:serviceaccount:ns:",
            "system:serviceaccount::bot",
            "system:serviceaccount:ns:a:b",
        ] {
            assert_eq!(groups(name), [AUTHENTICATED], "{name}");
        }
    }
}
