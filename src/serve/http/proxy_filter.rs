//! Rules of `kloop proxy`: which hosts, paths and methods of clients are accepted (kubectl: `pkg/proxy`, FilterServer).

use crate::object::{Reason, Status};
use crate::serve::impersonation::Impersonation;
use regex::Regex;

/// The rules for requests.
pub struct ProxyFilter {
    /// Hosts that clients may address.
    pub accepted_hosts: Vec<Regex>,
    /// Paths that are accepted.
    pub accepted_paths: Vec<Regex>,
    /// Paths that are refused even if they match `accepted_paths`.
    pub rejected_paths: Vec<Regex>,
    /// Methods that are refused.
    pub rejected_methods: Vec<Regex>,
    /// Prefix of all paths, with a slash at both ends.
    pub prefix: String,
    /// The user as whom requests act that name no other user; `None` for the administrator.
    pub acts_as: Option<Impersonation>,
}

impl ProxyFilter {
    /// Translates a path of this proxy to the path of the API.
    pub fn strip_prefix<'p>(&self, path: &'p str) -> Option<&'p str> {
        // The slash at the end of the prefix begins the path.
        path.strip_prefix(self.prefix.trim_end_matches('/')).filter(|rest| rest.starts_with('/'))
    }

    /// Refuses requests that the rules forbid. `path`: below the prefix.
    pub fn check(&self, host: &str, method: &str, path: &str) -> Result<(), Status> {
        let matches = |rules: &[Regex], text: &str| rules.iter().any(|rule| rule.is_match(text));
        let is_accepted = matches(&self.accepted_hosts, host)
            && matches(&self.accepted_paths, path)
            && !matches(&self.rejected_paths, path)
            && !matches(&self.rejected_methods, method);
        if is_accepted { Ok(()) } else { Err(Status::new(Reason::Forbidden, "Forbidden")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_paths_and_methods_are_filtered() {
        let rules = |text: &str| vec![Regex::new(text).unwrap()];
        let filter = ProxyFilter {
            accepted_hosts: rules("^localhost$"),
            accepted_paths: rules("^.*"),
            rejected_paths: rules("^/api/.*/pods/.*/exec"),
            rejected_methods: rules("^DELETE$"),
            acts_as: None,
            prefix: "/k8s/".into(),
        };
        let check = |host, method, path| filter.check(host, method, path).is_ok();
        assert!(check("localhost", "GET", "/api/v1/pods"));
        assert!(!check("evil.example", "GET", "/api/v1/pods"));
        assert!(!check("localhost", "DELETE", "/api/v1/pods"));
        assert!(!check("localhost", "POST", "/api/v1/namespaces/a/pods/b/exec"));
        assert_eq!(filter.strip_prefix("/k8s/api/v1"), Some("/api/v1"));
        assert_eq!((filter.strip_prefix("/k8sx/api"), filter.strip_prefix("/api")), (None, None));
    }
}
