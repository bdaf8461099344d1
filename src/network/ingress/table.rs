//! Matches requests to rules. Exact hosts take precedence over wildcards, and these over rules for any host; then the
//! longest path, then the exact path, then the older Ingress.

use crate::object::{Key, Str, strip_port};
use crate::world::ingress_routes::{IngressBackend, IngressRoute};
use std::collections::HashMap;

/// The rules of all Ingresses, by host.
#[derive(Default)]
pub struct IngressTable {
    /// Rules by host, best first. Keys can be wildcards such as `*.example.org`, or empty for any host.
    hosts: HashMap<Str, Vec<PathEntry>>,
}

struct PathEntry {
    /// The path without trailing slashes, unless it is exact.
    path: Str,
    kind: PathMatchKind,
    backend: Option<IngressBackend>,
}

/// The type of a path, in increasing precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PathMatchKind {
    /// The default backend.
    Default,
    Prefix,
    Exact,
}

/// The rule that matches a request.
#[derive(Debug, PartialEq, Eq)]
pub enum RouteMatch<'a> {
    /// No rule matches.
    Nothing,
    /// A rule with a backend that is not a Service.
    Unknown,
    /// A port of a Service.
    Service(&'a IngressBackend),
}

impl IngressTable {
    /// Creates the table of these Ingresses.
    pub fn new<'a>(ingress_routes: impl IntoIterator<Item = (&'a Key, &'a IngressRoute)>) -> IngressTable {
        let mut sorted: Vec<(&Key, &IngressRoute)> = ingress_routes.into_iter().collect();
        sorted.sort_by_key(|(key, ingress_route)| (ingress_route.created, *key));
        let mut table = IngressTable::default();
        for (_, ingress_route) in sorted {
            table.add(ingress_route);
        }
        for entries in table.hosts.values_mut() {
            // The sort is stable, so the older Ingress stays before the younger.
            entries.sort_by_key(|entry| {
                std::cmp::Reverse((entry.kind > PathMatchKind::Default, entry.path.len(), entry.kind))
            });
        }
        table
    }

    fn add(&mut self, ingress_route: &IngressRoute) {
        for rule in &ingress_route.rules {
            let (path, kind) = match rule.is_exact {
                true => (&*rule.path, PathMatchKind::Exact),
                false => (rule.path.trim_end_matches('/'), PathMatchKind::Prefix),
            };
            let entry = PathEntry { path: path.into(), kind, backend: rule.backend.clone() };
            self.hosts.entry(rule.host.to_lowercase().into()).or_default().push(entry);
        }
        let Some(default) = &ingress_route.default else { return };
        // Default backend for the Ingress's own hosts, and for hosts without any rule.
        let mut hosts: Vec<Str> = ingress_route.rules.iter().map(|rule| rule.host.to_lowercase().into()).collect();
        hosts.push("".into());
        hosts.sort();
        hosts.dedup();
        for host in hosts {
            let entry = PathEntry { path: "".into(), kind: PathMatchKind::Default, backend: Some(default.clone()) };
            self.hosts.entry(host).or_default().push(entry);
        }
    }

    /// Finds the rule for a path and a host from the client, which can have a port.
    pub fn find(&self, host: &str, path: &str) -> RouteMatch<'_> {
        let host = plain_host(host);
        let wildcard = host.split_once('.').map(|(_, parent)| format!("*.{parent}"));
        let names = [Some(host.as_str()).filter(|host| !host.is_empty()), wildcard.as_deref(), Some("")];
        let entries = |name: &str| self.hosts.get(name).map_or(&[][..], Vec::as_slice);
        let matches = |is_default: bool| {
            let all = names.iter().flatten().flat_map(|name| entries(name));
            all.filter(|entry| (entry.kind == PathMatchKind::Default) == is_default).find(|entry| entry.matches(path))
        };
        match matches(false).or_else(|| matches(true)) {
            None => RouteMatch::Nothing,
            Some(entry) => entry.backend.as_ref().map_or(RouteMatch::Unknown, RouteMatch::Service),
        }
    }
}

impl PathEntry {
    /// Whether a path matches. Prefixes are compared element by element: `/a` is not a prefix of `/ab`.
    fn matches(&self, path: &str) -> bool {
        match self.kind {
            PathMatchKind::Exact => *self.path == *path,
            PathMatchKind::Default | PathMatchKind::Prefix => {
                path.strip_prefix(&*self.path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
        }
    }
}

/// Normalizes a host for comparison, without its port.
pub fn plain_host(host: &str) -> String {
    strip_port(host).trim_end_matches('.').to_lowercase()
}

/// Whether a rule's host matches a request's host; `*` matches one label.
pub fn is_host(name: &str, host: &str) -> bool {
    match name.strip_prefix("*.") {
        None => name.eq_ignore_ascii_case(host),
        Some(parent) => {
            host.split_once('.').is_some_and(|(first, rest)| !first.is_empty() && rest.eq_ignore_ascii_case(parent))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Resource, Time};
    use crate::world::ingress_routes::{BackendPort, IngressPath};
    use jiff::SignedDuration;

    fn backend(name: &str) -> IngressBackend {
        IngressBackend { service: Key::new(Resource("services"), "default", name), port: BackendPort::Number(80) }
    }

    fn rule(text: &str) -> IngressPath {
        let words: Vec<&str> = text.split(' ').collect();
        let host = if words[0] == "*" { "" } else { words[0] };
        let path = if words[2] == "-" { "" } else { words[2] };
        IngressPath {
            host: host.into(),
            path: path.into(),
            is_exact: words[1] == "=",
            backend: (words[3] != "?").then(|| backend(words[3])),
        }
    }

    fn ingress_route(age: i64, rules: &[&str], default: Option<&str>) -> IngressRoute {
        IngressRoute {
            created: Some(Time::UNIX_EPOCH - SignedDuration::from_secs(age)),
            rules: rules.iter().map(|text| rule(text)).collect(),
            default: default.map(backend),
            ..IngressRoute::default()
        }
    }

    fn ask(ingress_routes: &[IngressRoute], host: &str, path: &str) -> String {
        let keys: Vec<Key> =
            (0..ingress_routes.len()).map(|at| Key::new(Resource("ingresses"), "default", &at.to_string())).collect();
        let table = IngressTable::new(keys.iter().zip(ingress_routes));
        match table.find(host, path) {
            RouteMatch::Nothing => "-".into(),
            RouteMatch::Unknown => "?".into(),
            RouteMatch::Service(backend) => backend.service.name.to_string(),
        }
    }

    /// The examples of <https://kubernetes.io/docs/concepts/services-networking/ingress/#examples>.
    #[test]
    fn paths_match_as_documented() {
        let table = [
            ("/", "/any/path", true, false),
            ("/foo", "/foo", true, true),
            ("/foo", "/bar", false, false),
            ("/foo", "/foo/", true, false),
            ("/foo/", "/foo", true, false),
            ("/foo/", "/foo/", true, true),
            ("/aaa/bb", "/aaa/bbb", false, false),
            ("/aaa/bbb", "/aaa/bbb", true, true),
            ("/aaa/bbb/", "/aaa/bbb", true, false),
            ("/aaa/bbb", "/aaa/bbb/", true, false),
            ("/aaa/bbb", "/aaa/bbb/ccc", true, false),
            ("/aaa/bbb", "/aaa/bbbxyz", false, false),
            ("/Foo", "/foo", false, false),
            ("-", "/foo", true, false),
        ];
        for (path, asked, prefix, exact) in table {
            for (kind, expected) in [("~", prefix), ("=", exact)] {
                let ingress_routes = [ingress_route(0, &[&format!("* {kind} {path} web")], None)];
                assert_eq!(ask(&ingress_routes, "h", asked) == "web", expected, "{kind} {path} for {asked}");
            }
        }
    }

    #[test]
    fn best_rule_takes_precedence() {
        let shop = ingress_route(
            9,
            &[
                "shop.example ~ / front",
                "shop.example ~ /api api",
                "shop.example ~ /api/v2/ new",
                "shop.example = /api health",
                "*.example ~ / wild",
                "* ~ /static files",
                "cloud.example ~ / ?",
            ],
            None,
        );
        let table = [
            ("shop.example", "/", "front"),
            ("SHOP.example.:8080", "/x", "front"),
            ("shop.example", "/api", "health"),
            ("shop.example", "/api/", "api"),
            ("shop.example", "/api/v2", "new"),
            ("shop.example", "/api/v22", "api"),
            ("other.example", "/api", "wild"),
            ("a.other.example", "/api", "-"),
            ("a.other.example", "/static/x.css", "files"),
            ("example", "/", "-"),
            ("", "/static", "files"),
            ("127.9.255.1:80", "/", "-"),
            ("[::1]:80", "/static", "files"),
            ("cloud.example", "/", "?"),
        ];
        for (host, path, expected) in table {
            assert_eq!(ask(std::slice::from_ref(&shop), host, path), expected, "{host}{path}");
        }
    }

    #[test]
    fn unmatched_request_goes_to_a_default_backend() {
        let one = ingress_route(5, &["one.example ~ /a a"], Some("one"));
        let two = ingress_route(9, &["two.example ~ /a b", "* ~ /any any"], Some("two"));
        let table = [
            ("one.example", "/a", "a"),
            ("one.example", "/b", "one"),
            ("one.example", "/any", "any"),
            ("two.example", "/b", "two"),
            ("none.example", "/", "two"),
        ];
        for (host, path, expected) in table {
            assert_eq!(ask(&[one.clone(), two.clone()], host, path), expected, "{host}{path}");
        }
    }

    #[test]
    fn older_ingress_takes_precedence() {
        let young = ingress_route(1, &["* ~ / young"], None);
        let old = ingress_route(2, &["* ~ / old"], None);
        assert_eq!(ask(&[young.clone(), old.clone()], "h", "/"), "old");
        assert_eq!(ask(&[old, young], "h", "/"), "old");
    }

    #[test]
    fn certificate_hosts_match() {
        let table = [
            ("a.example", "a.example", true),
            ("a.example", "A.Example", true),
            ("*.example", "a.example", true),
            ("*.example", "b.a.example", false),
            ("*.example", "example", false),
            ("*.example", ".example", false),
        ];
        for (name, host, expected) in table {
            assert_eq!(is_host(name, host), expected, "{name} {host}");
        }
    }
}
