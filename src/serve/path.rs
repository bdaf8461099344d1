//! Parses request paths: a document about the API, or objects (`apiserver/pkg/endpoints/request`: RequestInfo).

use percent_encoding::percent_decode_str;
use std::borrow::Cow;

/// Target of a path.
#[derive(Debug, PartialEq, Eq)]
pub enum ApiPath {
    /// A document about the API.
    Document(ApiDocument),
    /// Objects.
    Object(PathTarget),
}

/// A document about the API.
#[derive(Debug, PartialEq, Eq)]
pub enum ApiDocument {
    /// `/`: the paths.
    Root,
    /// `/version`.
    Version,
    /// `/healthz`, `/livez`, `/readyz`: the endpoint, and the named check.
    Health(&'static str, Option<String>),
    /// `/metrics`.
    Metrics,
    /// `/metrics/slis`: the health checks as metrics.
    HealthMetrics,
    /// `/.well-known/openid-configuration`.
    OpenIdConfiguration,
    /// `/openid/v1/jwks`.
    JsonWebKeys,
    /// `/api`.
    Core,
    /// `/apis`.
    Groups,
    /// `/apis/apps`.
    Group(String),
    /// `/api/v1`, `/apis/apps/v1`: the group (empty for the core) and the version.
    Resources(String, String),
    /// `/openapi/v2`.
    OpenApi2,
    /// `/openapi/v3`.
    OpenApi3,
    /// `/openapi/v3/apis/apps/v1`: the rest of the path.
    OpenApi3Of(String),
    /// `/ui`, the page for browsers, and its resources: the rest of the path.
    Ui(String),
}

/// Objects, by the segments of a path.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PathTarget {
    /// Empty for the core group.
    pub group: String,
    /// `v1`.
    pub version: String,
    /// The namespace, where the path has one.
    pub namespace: Option<String>,
    /// `pods`.
    pub plural: String,
    /// The object, if one is named.
    pub name: Option<String>,
    /// `status`, `log`.
    pub subresource: Option<String>,
    /// Whether the path implies a watch: `/api/v1/watch/pods`.
    pub watch: bool,
}

/// Parses a path; `None` when it has none of the API's forms.
pub fn parse(path: &str) -> Option<ApiPath> {
    let words = path.strip_prefix('/')?.trim_end_matches('/');
    // Few paths have escapes, and only those are decoded word by word.
    let words: Vec<Cow<'_, str>> = match words {
        "" => Vec::new(),
        words if !words.contains('%') => words.split('/').map(Cow::Borrowed).collect(),
        words => words.split('/').map(|word| percent_decode_str(word).decode_utf8_lossy()).collect(),
    };
    let plain: Vec<&str> = words.iter().map(|word| &**word).collect();
    let document = match plain[..] {
        [] => ApiDocument::Root,
        ["version"] => ApiDocument::Version,
        ["healthz", ref rest @ ..] => ApiDocument::Health("healthz", check_name(rest)?),
        ["livez", ref rest @ ..] => ApiDocument::Health("livez", check_name(rest)?),
        ["readyz", ref rest @ ..] => ApiDocument::Health("readyz", check_name(rest)?),
        ["metrics"] => ApiDocument::Metrics,
        ["metrics", "slis"] => ApiDocument::HealthMetrics,
        ["openapi", "v2"] => ApiDocument::OpenApi2,
        ["openapi", "v3"] => ApiDocument::OpenApi3,
        ["openapi", "v3", ref rest @ ..] => ApiDocument::OpenApi3Of(rest.join("/")),
        ["ui"] => ApiDocument::Ui(String::new()),
        ["ui", part] => ApiDocument::Ui(part.into()),
        [".well-known", "openid-configuration"] => ApiDocument::OpenIdConfiguration,
        ["openid", "v1", "jwks"] => ApiDocument::JsonWebKeys,
        ["api"] => ApiDocument::Core,
        ["apis"] => ApiDocument::Groups,
        ["apis", group] => ApiDocument::Group(group.into()),
        ["api", version] => ApiDocument::Resources(String::new(), version.into()),
        ["apis", group, version] => ApiDocument::Resources(group.into(), version.into()),
        ["api", version, ref rest @ ..] => return named("", version, rest).map(ApiPath::Object),
        ["apis", group, version, ref rest @ ..] => return named(group, version, rest).map(ApiPath::Object),
        _ => return None,
    };
    Some(ApiPath::Document(document))
}

/// Returns the check that the rest of a path names, if any.
fn check_name(rest: &[&str]) -> Option<Option<String>> {
    match rest {
        [] => Some(None),
        [name] => Some(Some((*name).to_owned())),
        _ => None,
    }
}

fn named(group: &str, version: &str, rest: &[&str]) -> Option<PathTarget> {
    let (watch, rest) = match rest {
        ["watch", rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let (namespace, rest) = match rest {
        // A namespace is also an object, with its own subresources.
        ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => (None, rest),
        ["namespaces", namespace, rest @ ..] => (Some((*namespace).to_owned()), rest),
        rest => (None, rest),
    };
    let text = |index: usize| rest.get(index).map(|word| (*word).to_owned());
    let named = PathTarget {
        group: group.into(),
        version: version.into(),
        namespace,
        plural: text(0)?,
        name: text(1),
        subresource: text(2),
        watch,
    };
    // The rest after `proxy` is the path of another server.
    let is_whole = (rest.len() <= 3 || rest[2] == "proxy") && rest.iter().take(3).all(|word| !word.is_empty());
    is_whole.then_some(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_objects() {
        let cases = [
            ("/api/v1/pods", " v1 - pods - -"),
            ("/api/v1/namespaces", " v1 - namespaces - -"),
            ("/api/v1/namespaces/web", " v1 - namespaces web -"),
            ("/api/v1/namespaces/web/status", " v1 - namespaces web status"),
            ("/api/v1/namespaces/web/pods", " v1 web pods - -"),
            ("/api/v1/namespaces/web/pods/a%2Db/log", " v1 web pods a-b log"),
            ("/api/v1/watch/namespaces/web/pods/a", " v1 web pods a - watch"),
            ("/apis/apps/v1/namespaces/web/deployments/", "apps v1 web deployments - -"),
            ("/api/v1/namespaces/web/services/http:a:80/proxy/x//y", " v1 web services http:a:80 proxy"),
            ("/apis/x.dev/v2/boats/b", "x.dev v2 - boats b -"),
        ];
        for (path, expected) in cases {
            let Some(ApiPath::Object(named)) = parse(path) else { panic!("{path}") };
            let or = |word: Option<String>| word.unwrap_or("-".into());
            let text =
                [named.group, named.version, or(named.namespace), named.plural, or(named.name), or(named.subresource)];
            let watch = if named.watch { " watch" } else { "" };
            assert_eq!(text.join(" ") + watch, expected, "{path}");
        }
        for path in ["", "x", "/api/v1/namespaces/w/pods/a/b/c", "/api/v1//pods", "/livez/a/b", "/apiv1"] {
            assert_eq!(parse(path), None, "{path}");
        }
        assert_eq!(parse("/apis/apps"), Some(ApiPath::Document(ApiDocument::Group("apps".into()))));
    }
}
