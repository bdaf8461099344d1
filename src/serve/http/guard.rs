//! Access control: admits clients with the token, or without a token those that address this machine by one of its own
//! names.
//!
//! Other users of the machine can reach its loopback addresses too, and a client that can write objects can start
//! processes: hence the token. A malicious page, also through a foreign name (DNS rebinding), has no token; without
//! the token, such requests are recognized by their headers.

use super::kubelet_guard::KubeletGuard;
use super::proxy_filter::ProxyFilter;
use crate::apiserver::tokens::bootstrap;
use crate::apiserver::tokens::compare::is_same_secret;
use crate::object::{Reason, Status, strip_port};
use crate::serve::impersonation::Impersonation;
use crate::serve::{ApiRequest, kubelet_paths};
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HOST, ORIGIN};
use percent_encoding::percent_decode_str;

/// The allowed names of this machine.
const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Condition for access.
pub enum AccessGuard {
    /// The client must send this token.
    Token(String),
    /// The client must address this machine by one of its own names.
    Names,
    /// The request must pass this filter.
    Filter(Box<ProxyFilter>),
    /// The server is that of a kubelet: the cluster's API server decides.
    Kubelet(KubeletGuard),
}

/// The object with the cluster's authority, which joining machines read without credentials.
const CLUSTER_INFO: &str = "/api/v1/namespaces/kube-public/configmaps/cluster-info";
/// Paths without access control, as in the role `system:public-info-viewer`; the page for browsers, which shows nothing without a
/// token; and the cluster's authority.
const PUBLIC: [&str; 8] = ["/healthz", "/livez", "/readyz", "/version", "/version/", "/ui", "/ui/", CLUSTER_INFO];

/// Result of access control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Full access.
    Full,
    /// Access to public information only.
    Anonymous,
    /// Access of the user whose certificate or token the client shows, once the token is verified.
    Account,
}

/// Maximum length of a service account's token that is verified.
const MAX_TOKEN_LENGTH: usize = 16 << 10;

impl AccessGuard {
    /// Translates a path of this server to the path of the API. A path without a counterpart becomes an unknown one, so that it is not
    /// found.
    pub fn translate(&self, request: &mut ApiRequest) {
        match self {
            AccessGuard::Filter(filter) => {
                request.path = filter.strip_prefix(&request.path).unwrap_or_default().to_owned();
            }
            AccessGuard::Kubelet(kubelet) => kubelet_paths::translate(&kubelet.node, request),
            AccessGuard::Token(_) | AccessGuard::Names => {}
        }
    }

    /// The guard of a kubelet's server, if it is one.
    pub fn kubelet(&self) -> Option<&KubeletGuard> {
        match self {
            AccessGuard::Kubelet(kubelet) => Some(kubelet),
            AccessGuard::Token(_) | AccessGuard::Names | AccessGuard::Filter(_) => None,
        }
    }

    /// The user as whom requests act that name no other user.
    pub fn acts_as(&self) -> Option<Impersonation> {
        match self {
            AccessGuard::Filter(filter) => filter.acts_as.clone(),
            AccessGuard::Token(_) | AccessGuard::Names | AccessGuard::Kubelet(_) => None,
        }
    }

    /// Admits a client; one without a token only to public paths. A wrong token is always an error.
    pub fn admit(&self, headers: &HeaderMap, method: &str, path: &str) -> Result<Access, Status> {
        let is_public = method == "GET" && PUBLIC.contains(&path) && !headers.contains_key(AUTHORIZATION);
        match (self, self.check(headers, method, path)) {
            (_, Ok(())) => Ok(Access::Full),
            (AccessGuard::Token(_), Err(_)) if shows_account_token(headers) => Ok(Access::Account),
            (AccessGuard::Token(_), Err(_)) if is_public => Ok(Access::Anonymous),
            (_, Err(status)) => Err(status),
        }
    }

    /// Refuses clients without access.
    fn check(&self, headers: &HeaderMap, method: &str, path: &str) -> Result<(), Status> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        match self {
            AccessGuard::Token(token) => {
                let shown = text(AUTHORIZATION).and_then(|words| words.split_once(' '));
                let shown =
                    shown.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token.trim());
                if !shown.is_some_and(|shown| is_same_secret(shown, token)) {
                    return Err(Status::new(Reason::Unauthorized, "Unauthorized"));
                }
            }
            AccessGuard::Kubelet(_) => return Err(Status::new(Reason::Unauthorized, "Unauthorized")),
            AccessGuard::Filter(filter) => filter.check(strip_port(text(HOST).unwrap_or_default()), method, path)?,
            AccessGuard::Names => {
                let host = text(HOST).unwrap_or_default();
                let own =
                    |origin: &str| origin.strip_prefix("http://").or(origin.strip_prefix("https://")) == Some(host);
                let is_foreign = headers.contains_key(ORIGIN) && !text(ORIGIN).is_some_and(own);
                if is_foreign || !NAMES.contains(&strip_port(host)) {
                    return Err(Status::new(
                        Reason::Forbidden,
                        "Forbidden: send the request to localhost, 127.0.0.1 or [::1]; pages of other sites may not call this server",
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Whether the client shows a token in the form of those of service accounts, or of machines that want to join.
fn shows_account_token(headers: &HeaderMap) -> bool {
    let shown =
        headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(|words| words.split_once(' '));
    shown.is_some_and(|(scheme, token)| {
        let is_account = || token.len() <= MAX_TOKEN_LENGTH && token.matches('.').count() == 2;
        scheme.eq_ignore_ascii_case("bearer") && (is_account() || bootstrap::split(token.trim()).is_some())
    })
}

/// Returns the user as whom the client wants to act.
pub fn impersonation(headers: &HeaderMap) -> Option<Impersonation> {
    const EXTRA: &str = "impersonate-extra-";
    let texts = |name: &str| -> Vec<String> {
        headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).map(str::to_owned).collect()
    };
    let first = |name: &str| texts(name).into_iter().next().unwrap_or_default();
    if !headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        return None;
    }
    let extra = headers.keys().filter_map(|name| {
        let key = name.as_str().strip_prefix(EXTRA)?;
        Some((percent_decode_str(key).decode_utf8_lossy().into_owned(), texts(name.as_str())))
    });
    Some(Impersonation {
        user: first("impersonate-user"),
        groups: texts("impersonate-group"),
        uid: first("impersonate-uid"),
        extra: extra.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(guard: &AccessGuard, headers: &[(&'static str, &'static str)]) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        guard.check(&map, "GET", "/api").map_or_else(|status| status.reason.code(), |()| 200)
    }

    #[test]
    fn token_grants_access() {
        let guard = AccessGuard::Token("secret".into());
        let table = [
            ("Bearer secret", 200),
            ("bearer  secret", 200),
            ("Bearer secre", 401),
            ("Bearer secrets", 401),
            ("Basic secret", 401),
            ("secret", 401),
        ];
        for (words, code) in table {
            assert_eq!(check(&guard, &[("authorization", words)]), code, "{words}");
        }
        assert_eq!(check(&guard, &[]), 401);
    }

    #[test]
    fn without_a_token_foreign_hosts_and_origins_are_refused() {
        for (host, code) in [
            ("localhost:8001", 200),
            ("127.0.0.1", 200),
            ("[::1]:9", 200),
            ("evil.example:8001", 403),
            ("", 403),
            ("127.0.0.1.evil.example", 403),
        ] {
            assert_eq!(check(&AccessGuard::Names, &[("host", host)]), code, "{host}");
        }
        let of = |origin| check(&AccessGuard::Names, &[("host", "localhost:8001"), ("origin", origin)]);
        assert_eq!(
            (of("http://localhost:8001"), of("http://evil.example"), of("null"), of("http://localhost:3000")),
            (200, 403, 403, 403)
        );
    }
}
