//! The Kubernetes REST API, for clients that speak HTTP and for `kloop get --raw`, which needs no socket.
//!
//! Knows: the paths, parameters, media types and documents of the API, and the form of answers ([`HttpAnswer`]). The API server carries out
//! the requests, as for the command line.
//! Never: writes to the store except through the API server, decides anything about objects, or serves clients without access
//! ([`http::guard`]).
//! Start reading at [`answer()`]: one request in, one answer out. [`http`] is the HTTP server around it.

pub mod advertise;
mod answer;
mod body;
mod brief;
mod computed;
mod continue_token;
mod discovery;
mod form;
mod health;
pub mod http;
mod indent;
pub mod kubeconfig;
mod list_body;
mod list_frame;
mod log;
mod metrics;
mod options;
mod path;
mod presentation;
pub mod protobuf;
mod proxy;
mod read;
mod remove;
mod request;
mod resolve;
pub mod resource_metrics;
mod reviews;
mod streaming;
mod subresource;
mod table;
mod target;
mod version;
mod watch;
mod write;

pub use answer::{AnswerBody, HttpAnswer};
pub use brief::answer_brief;
pub use computed::ComputedKind;
pub use list_body::ListBody;
pub use request::ApiRequest;
use resolve::ResolvedTarget;
pub use watch::ActiveWatch;

use crate::apiserver::Api;
use crate::object::{Reason, Status};
use form::AnswerForm;
use metrics::MetricsText;
use path::{ApiDocument, ApiPath, PathTarget};

/// Result of handling a request; an error is answered, too.
pub type ServeResult<T = HttpAnswer> = std::result::Result<T, Status>;

/// The Kubernetes version of this API.
pub const KUBERNETES: &str = "v1.36.2";

/// Every kind whose objects are computed when they are read.
pub fn computed_kinds() -> &'static [ComputedKind] {
    &computed::COMPUTED
}

/// Answers one request.
pub fn answer(api: &mut Api, request: &ApiRequest) -> HttpAnswer {
    handle_request(api, request)
        .unwrap_or_else(|status| HttpAnswer::refusal(&status, &AnswerForm::negotiate_error(request)))
}

/// Like [`answer()`], for callers that word errors themselves.
pub fn handle_request(api: &mut Api, request: &ApiRequest) -> ServeResult {
    match path::parse(&request.path) {
        Some(ApiPath::Document(ApiDocument::Health(endpoint, check))) => {
            health::answer(api, request, endpoint, check.as_deref())
        }
        Some(ApiPath::Document(ApiDocument::Metrics)) if request.method == "GET" => {
            let mut text = MetricsText::default();
            metrics::measure_store(api, &mut text)?;
            Ok(text.into_answer())
        }
        Some(ApiPath::Document(ApiDocument::OpenIdConfiguration | ApiDocument::JsonWebKeys))
            if request.method != "GET" =>
        {
            Err(not_allowed())
        }
        Some(ApiPath::Document(ApiDocument::OpenIdConfiguration)) => Ok(discovery::openid_configuration(request)),
        Some(ApiPath::Document(ApiDocument::JsonWebKeys)) => Ok(discovery::key_set(&api.keys()?.signer)),
        Some(ApiPath::Document(document)) => discovery::answer(api, request, &document),
        Some(ApiPath::Object(named)) => object(api, request, &named),
        None => Err(unknown_path()),
    }
}

fn object(api: &mut Api, request: &ApiRequest, named: &PathTarget) -> ServeResult {
    if let Some(answer) = subresource::without_kind(api, request, named) {
        return answer;
    }
    let kind = resolve::kind(api, named)?;
    let asked = resolve::resolve_target(kind, named)?;
    let answer = dispatch(api, request, named, &asked)?;
    Ok(match kind.deprecation(&asked.api_version) {
        Some(warning) => answer.warning(&[warning.to_owned()]),
        None => answer,
    })
}

fn dispatch(api: &mut Api, request: &ApiRequest, named: &PathTarget, asked: &ResolvedTarget<'_>) -> ServeResult {
    if named.subresource.is_some() {
        return subresource::answer(api, request, asked);
    }
    match (request.method.as_str(), asked.name.is_empty()) {
        ("GET", _) if request.flag("watch") || asked.watch => watch::open(api, request, asked).map(HttpAnswer::watch),
        ("GET", true) => read::list(api, request, asked),
        ("GET", false) => read::get(api, request, asked),
        ("POST", true) if asked.is_placed() => write::create(api, request, asked),
        ("PUT", false) => write::replace(api, request, asked),
        ("PATCH", false) => write::patch(api, request, asked),
        ("DELETE", false) => remove::delete_object(api, request, asked),
        ("DELETE", true) if asked.is_placed() => remove::delete_collection(api, request, asked),
        _ => Err(not_allowed()),
    }
}

/// Paths that service accounts may read, as in the roles `system:discovery` and `system:service-account-issuer-discovery`.
const DISCOVERY: [&str; 8] =
    ["/api", "/apis", "/healthz", "/livez", "/readyz", "/openapi", "/version", "/openid/v1/jwks"];

/// Refuses what a service account may not do. RBAC rules are not enforced yet, so that it has the rights of Kubernetes' default roles for
/// authenticated users: discovery, and reviews about itself.
fn authorize(request: &ApiRequest) -> ServeResult<()> {
    let Some(user) = &request.user else { return Ok(()) };
    let is_allowed = match path::parse(&request.path) {
        Some(ApiPath::Object(named)) => request.method == "POST" && reviews::is_about_self(&named),
        _ => {
            let path = request.path.trim_end_matches('/');
            let is_below =
                |root: &&str| path.strip_prefix(*root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
            let is_issuer = path == discovery::OPENID_CONFIGURATION;
            request.method == "GET" && (is_issuer || DISCOVERY.iter().any(|root| is_below(&root)))
        }
    };
    if is_allowed { Ok(()) } else { Err(forbidden(request, &user.name)) }
}

/// Refuses impersonation: only the admitted user has rights, so another identity has none (RBAC's words).
fn forbidden(request: &ApiRequest, user: &str) -> Status {
    let refuse = |what: &str, why: String| {
        Status::new(Reason::Forbidden, format!("{what} is forbidden: User {user:?} cannot {why}"))
    };
    let verb = request.method.to_ascii_lowercase();
    let Some(ApiPath::Object(named)) = path::parse(&request.path) else {
        return refuse("request", format!("{verb} path {:?}", request.path));
    };
    let verb = match (verb.as_str(), named.name.is_some()) {
        ("get", _) if named.watch || request.flag("watch") => "watch",
        ("get", false) => "list",
        ("post", _) => "create",
        ("put", _) => "update",
        ("delete", false) => "deletecollection",
        (verb, _) => verb,
    };
    let below = named.subresource.as_ref().map(|name| format!("/{name}")).unwrap_or_default();
    let (group, plural) = (&named.group, format!("{}{below}", named.plural));
    let place = match &named.namespace {
        Some(namespace) => format!("in the namespace {namespace:?}"),
        None => "at the cluster scope".to_owned(),
    };
    let dot = if group.is_empty() { "" } else { "." };
    let name = named.name.as_ref().map(|name| format!(" {name:?}")).unwrap_or_default();
    let why = format!("{verb} resource {plural:?} in API group {group:?} {place}");
    let status = refuse(&format!("{}{dot}{group}{name}", named.plural), why);
    Status { kind: named.plural, group: named.group, name: named.name.unwrap_or_default(), ..status }
}

/// The error for an unknown path.
fn unknown_path() -> Status {
    Status::new(Reason::NotFound, "the server could not find the requested resource")
}

/// The error for a method that the path does not support.
fn not_allowed() -> Status {
    Status::new(Reason::MethodNotAllowed, "the server does not allow this method on the requested resource")
}
