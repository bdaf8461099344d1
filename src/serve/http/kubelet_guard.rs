//! Access to a kubelet's server: the client presents a certificate of the cluster or a token, and the cluster's API server authorizes its
//! user (Kubernetes: "Kubelet authentication/authorization").
//!
//! Knows: the subresource of the Node that each path needs. Never: sends requests to the API server; a [`KubeletClients`] does.
//! Start reading at [`KubeletGuard::admit`].

use super::client_certificate::ClientIdentity;
use crate::apiserver::ApiResult;
use crate::apiserver::kubelet_clients::KubeletClients;
use crate::apiserver::user::{ADMINISTRATORS, User};
use crate::object::{Reason, Status};
use std::sync::Arc;

/// The access to the server of one node.
#[derive(Clone)]
pub struct KubeletGuard {
    /// The node's name.
    pub node: String,
    /// The answers of the API server.
    pub clients: Arc<dyn KubeletClients>,
}

impl KubeletGuard {
    /// Refuses a client without access. `path`: as the client has sent it. It may wait for the API server.
    pub fn admit(&self, client: &ClientIdentity, token: &str, method: &str, path: &str) -> ApiResult<Arc<User>> {
        let unauthorized = || Status::new(Reason::Unauthorized, "Unauthorized");
        let user = match client {
            ClientIdentity::User(user) => user.clone(),
            ClientIdentity::None if !token.is_empty() => self.clients.identify(token)?,
            ClientIdentity::None | ClientIdentity::Invalid => return Err(unauthorized()),
        };
        check_rights(&user, method, path, |verb, part| self.clients.may_use(&user, verb, part))?;
        Ok(user)
    }
}

/// Refuses a user who may not use the Node's subresource of a path. `may_use` takes a verb and a subresource.
pub fn check_rights(
    user: &User,
    method: &str,
    path: &str,
    may_use: impl Fn(&str, &str) -> ApiResult<bool>,
) -> ApiResult<()> {
    // This group has all rights, so the API server is not asked.
    if user.groups.iter().any(|group| group == ADMINISTRATORS) {
        return Ok(());
    }
    let (verb, parts) = (access_verb(method), node_parts(path));
    for part in parts {
        if may_use(verb, part)? {
            return Ok(());
        }
    }
    let (name, parts) = (&user.name, parts.join(" "));
    let text = format!("Forbidden (user={name}, verb={verb}, resource=nodes, subresource(s)=[{parts}])");
    Err(Status::new(Reason::Forbidden, text))
}

/// Returns the verb of an HTTP method.
fn access_verb(method: &str) -> &'static str {
    match method {
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "get",
    }
}

/// Returns the subresources of the Node of which one must be allowed for a path (KEP-2862: fine-grained kubelet authorization).
fn node_parts(path: &str) -> &'static [&'static str] {
    match path.trim_matches('/').split('/').next().unwrap_or_default() {
        "stats" => &["stats"],
        "metrics" => &["metrics"],
        "logs" => &["log"],
        "healthz" => &["healthz", "proxy"],
        "pods" | "runningpods" => &["pods", "proxy"],
        _ => &["proxy"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Knows one token, and lets each user read the statistics and `ann` the pods.
    struct Rules;

    impl KubeletClients for Rules {
        fn identify(&self, token: &str) -> ApiResult<Arc<User>> {
            let user = User { name: "metrics".into(), ..User::default() };
            let wrong = Status::new(Reason::Unauthorized, "Unauthorized");
            if token == "right" { Ok(Arc::new(user)) } else { Err(wrong) }
        }

        fn may_use(&self, user: &User, verb: &str, part: &str) -> ApiResult<bool> {
            Ok(verb == "get" && (part == "stats" || part == "pods" && user.name == "ann"))
        }
    }

    fn admit(client: ClientIdentity, token: &str, request: &str) -> u16 {
        let guard = KubeletGuard { node: "n".into(), clients: Arc::new(Rules) };
        let (method, path) = request.split_once(' ').unwrap();
        guard.admit(&client, token, method, path).map_or_else(|status| status.reason.code(), |_| 200)
    }

    #[test]
    fn users_have_the_rights_that_the_server_says() {
        let user = |name: &str, group: &str| {
            ClientIdentity::User(Arc::new(User { name: name.into(), groups: vec![group.into()], ..User::default() }))
        };
        for (client, token, request, code) in [
            (ClientIdentity::None, "", "GET /stats/summary", 401),
            (ClientIdentity::None, "wrong", "GET /stats/summary", 401),
            (ClientIdentity::Invalid, "right", "GET /stats/summary", 401),
            (ClientIdentity::None, "right", "GET /stats/summary", 200),
            (ClientIdentity::None, "right", "GET /pods", 403),
            (user("ann", "devs"), "", "GET /pods/", 200),
            (user("ann", "devs"), "", "GET /runningpods", 200),
            (user("ann", "devs"), "", "POST /pods", 403),
            (user("ann", "devs"), "", "POST /exec/default/web/main", 403),
            (user("ann", "devs"), "", "GET /containerLogs/default/web/main", 403),
            (user("root", ADMINISTRATORS), "", "POST /exec/default/web/main", 200),
        ] {
            assert_eq!(admit(client, token, request), code, "{request} {token}");
        }
    }
}
