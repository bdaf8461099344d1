//! The Kubernetes REST API, for clients that speak HTTP and for `kloop get --raw`, which needs no socket.
//!
//! Knows: the paths, parameters, media types and documents of the API, and the form of answers ([`HttpAnswer`]). The API server carries out
//! the requests, as for the command line.
//! Never: writes to the store except through the API server, decides anything about objects, or serves clients without access
//! ([`http::guard`]).
//! Start reading at [`answer()`]: one request in, one answer out. [`http`] is the HTTP server around it.

pub mod access;
pub mod advertise;
mod answer;
pub mod audit;
mod body;
mod brief;
mod computed;
mod continue_token;
mod definitions;
mod discovery;
mod extension;
mod form;
mod health;
pub mod http;
pub mod impersonation;
mod indent;
pub mod kubeconfig;
mod kubelet_paths;
mod list_body;
mod list_frame;
mod log;
mod metrics;
mod node_server;
mod options;
pub mod overview_feed;
mod path;
mod presentation;
pub mod protobuf;
mod proxy;
mod read;
mod remote_kubelet;
pub mod remote_stats;
mod remove;
mod request;
mod resolve;
pub mod resource_metrics;
mod review_selectors;
mod reviews;
mod spool;
mod streaming;
mod subresource;
mod table;
mod target;
pub mod ui;
mod version;
mod watch;
mod write;

pub use answer::{AnswerBody, HttpAnswer};
pub use brief::answer_brief;
pub use computed::ComputedKind;
pub use list_body::ListBody;
pub use request::ApiRequest;
use resolve::ResolvedTarget;
pub use reviews::review_path;
pub use watch::ActiveWatch;

use crate::apiserver::Api;
use crate::object::{Reason, Status, time};
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
    api.set_user(request.user.clone());
    let answer = handle_request(api, request);
    api.set_user(None);
    answer.unwrap_or_else(|status| HttpAnswer::refusal(&status, &AnswerForm::negotiate_error(request)))
}

/// Like [`answer()`], for callers that word errors themselves.
pub fn handle_request(api: &mut Api, request: &ApiRequest) -> ServeResult {
    let parsed = path::parse(&request.path);
    check_timeout(request, parsed.as_ref())?;
    if let Some(path) = &parsed
        && let Some(answer) = extension::find_answer(api, request, path)?
    {
        return Ok(answer);
    }
    match parsed {
        Some(ApiPath::Document(ApiDocument::Health(endpoint, check))) => {
            health::answer(api, request, endpoint, check.as_deref())
        }
        Some(ApiPath::Document(ApiDocument::Metrics)) if request.is_get_or_head() => {
            let mut text = MetricsText::default();
            metrics::measure_store(api, &mut text)?;
            Ok(text.into_answer())
        }
        Some(ApiPath::Document(ApiDocument::HealthMetrics)) if request.is_get_or_head() => {
            Ok(health::measure(api).into_answer())
        }
        Some(ApiPath::Document(ApiDocument::OpenIdConfiguration | ApiDocument::JsonWebKeys))
            if request.method != "GET" =>
        {
            Err(not_allowed())
        }
        Some(ApiPath::Document(ApiDocument::OpenIdConfiguration)) => Ok(discovery::openid_configuration(request)),
        Some(ApiPath::Document(ApiDocument::JsonWebKeys)) => Ok(discovery::key_set(&api.keys()?.signer)),
        Some(ApiPath::Document(ApiDocument::Ui(part))) => ui::answer(api, request, &part),
        Some(ApiPath::Document(document)) => discovery::answer(api, request, &document),
        Some(ApiPath::Object(named)) => object(api, request, &named),
        None => Err(unknown_path()),
    }
}

/// Refuses a timeout that is not a duration. Requests that run long have none (Kubernetes: WithRequestDeadline).
fn check_timeout(request: &ApiRequest, path: Option<&ApiPath>) -> ServeResult<()> {
    const LONG_SUBRESOURCES: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];
    let Some(text) = request.parameter("timeout") else { return Ok(()) };
    let runs_long = path.is_some_and(|path| match path {
        ApiPath::Object(named) => {
            let is_long = |part: &str| LONG_SUBRESOURCES.contains(&part);
            named.watch || request.flag("watch") || named.subresource.as_deref().is_some_and(is_long)
        }
        ApiPath::Document(_) => false,
    });
    if runs_long {
        return Ok(());
    }
    let invalid = |error| Status::bad_request(format!("invalid timeout specified in the request URL - {error}"));
    time::parse_duration(text).map(drop).map_err(invalid)
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
        // Such paths list the objects of all namespaces; Kubernetes has no other operation of custom kinds there.
        ("POST" | "DELETE", true) if !asked.is_placed() && asked.kind.custom.is_some() => Err(unknown_path()),
        ("POST", true) if asked.is_placed() => write::create(api, request, asked),
        ("PUT", false) => write::replace(api, request, asked),
        ("PATCH", false) => write::patch(api, request, asked),
        ("DELETE", false) => remove::delete_object(api, request, asked),
        ("DELETE", true) if asked.is_placed() => remove::delete_collection(api, request, asked),
        _ => Err(not_allowed()),
    }
}

/// The error for an unknown path.
fn unknown_path() -> Status {
    Status::unknown_resource()
}

/// The error for a method that the path does not support.
fn not_allowed() -> Status {
    Status::new(Reason::MethodNotAllowed, "the server does not allow this method on the requested resource")
}
