//! Requests that an extension API server answers: those of the version of an APIService with a Service
//! (k8s.io/kube-aggregator: handler_proxy.go).
//!
//! Knows: the server of such a version, and Kubernetes' answers where it is not available. [`super::http`] forwards the request.
//! Never: waits for an extension server. Start reading at [`find_answer`].

use super::path::{ApiDocument, ApiPath};
use super::request::ApiRequest;
use super::target::{ExtensionTls, ProxyTarget, ProxyTls};
use super::{HttpAnswer, ServeResult};
use crate::apiserver::Api;
use crate::apiserver::aggregation::{Extension, find_server};
use crate::apiserver::user::User;
use std::sync::Arc;

/// Answers a request for a version of an extension server; `None` for all others.
pub fn find_answer(api: &Api, request: &ApiRequest, path: &ApiPath) -> ServeResult<Option<HttpAnswer>> {
    let (group, version) = match path {
        ApiPath::Document(ApiDocument::Resources(group, version)) => (group.as_str(), version.as_str()),
        ApiPath::Document(ApiDocument::OpenApi3Of(path)) => match path.split('/').collect::<Vec<_>>()[..] {
            ["apis", group, version] => (group, version),
            _ => return Ok(None),
        },
        ApiPath::Object(named) => (named.group.as_str(), named.version.as_str()),
        ApiPath::Document(_) => return Ok(None),
    };
    let Some(extension) = api.find_extension(group, version)? else { return Ok(None) };
    forwarded(api, request, &extension).map(Some)
}

fn forwarded(api: &Api, request: &ApiRequest, extension: &Extension) -> ServeResult {
    if !extension.is_available {
        return Ok(unavailable());
    }
    let Ok(server) = api.read_view(|txn| find_server(txn, extension))? else { return Ok(unavailable()) };
    let user = request.user.clone().unwrap_or_else(|| Arc::new(User::administrator()));
    let tls = ProxyTls::Extension(tls(extension, user));
    Ok(HttpAnswer::proxied(ProxyTarget {
        place: server.place,
        tls,
        path: request.path.clone(),
        prefix: None,
        query: None,
        body: request.body.clone(),
    }))
}

/// The TLS of an extension server for the requests of a user.
pub fn tls(extension: &Extension, user: Arc<User>) -> ExtensionTls {
    let (host, authorities) = (extension.host(), extension.authorities.clone());
    ExtensionTls { host, authorities, verifies: extension.verifies, user }
}

/// The answer of Kubernetes where an extension server is not available.
fn unavailable() -> HttpAnswer {
    HttpAnswer { code: 503, ..HttpAnswer::text("service unavailable\n") }
        .with_header("X-Content-Type-Options", "nosniff".into())
}
