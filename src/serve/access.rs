//! Authorization of requests: the verb and resource of a request, and whether its user may use them.
//!
//! Never: checks credentials ([`super::http::guard`] and [`crate::apiserver::tokens`] do). Start reading at
//! [`authorize`].

use super::path::{self, ApiPath};
use super::{ApiRequest, ServeResult};
use crate::apiserver::Api;
use crate::apiserver::authorization::{AccessRequest, AccessTarget, AccessedResource, check_access};

/// Refuses a request that its user may not make. Returns why others are allowed.
pub fn authorize(api: &Api, request: &ApiRequest) -> ServeResult<String> {
    match &request.user {
        Some(user) => api.read_view(|txn| {
            let access = access_request(request);
            let reason = check_access(txn, user, &access)?;
            if opens_streams(request, &access) {
                check_access(txn, user, &AccessRequest { verb: "create".to_owned(), ..access })?;
            }
            Ok(reason)
        }),
        None => Ok(String::new()),
    }
}

/// Whether the request opens a stream into a container by GET, as WebSockets do: that needs the right to create, too
/// (Kubernetes 1.35: AuthorizePodWebsocketUpgradeCreatePermission).
fn opens_streams(request: &ApiRequest, access: &AccessRequest) -> bool {
    let AccessTarget::Resource(accessed) = &access.target else { return false };
    let is_stream = matches!(accessed.subresource.as_str(), "exec" | "attach" | "portforward");
    request.method == "GET" && accessed.resource == "pods" && is_stream
}

/// The verb and the target of a request (`apiserver/pkg/endpoints/request`: RequestInfo).
pub fn access_request(request: &ApiRequest) -> AccessRequest {
    let verb = request.method.to_ascii_lowercase();
    let Some(ApiPath::Object(named)) = path::parse(&request.path) else {
        return AccessRequest { verb, target: AccessTarget::Path(request.path.clone()) };
    };
    // A list of the one object that a field selector names counts as naming it.
    let selector = request.parameter("fieldSelector");
    let selected = selector.and_then(|text| text.strip_prefix("metadata.name="));
    let selected = selected.filter(|name| named.name.is_none() && !name.contains([',', '=', '!']));
    let verb = match (verb.as_str(), named.name.is_some()) {
        ("get" | "head", _) if named.watch || request.flag("watch") => "watch",
        ("get" | "head", false) => "list",
        ("get" | "head", true) => "get",
        ("post", _) => "create",
        ("put", _) => "update",
        ("delete", false) => "deletecollection",
        (verb, _) => verb,
    };
    let is_about_several = matches!(verb, "list" | "watch" | "deletecollection");
    let name = named.name.or(selected.map(str::to_owned)).unwrap_or_default();
    // A request for a namespace is checked in that namespace, so that roles of the namespace can allow it.
    let is_namespace = named.plural == "namespaces" && named.group.is_empty();
    let namespace = named.namespace.unwrap_or_else(|| if is_namespace { name.clone() } else { String::new() });
    let accessed = AccessedResource {
        group: named.group,
        resource: named.plural,
        subresource: named.subresource.unwrap_or_default(),
        namespace,
        name,
        field_selector: if is_about_several { selector.unwrap_or_default().to_owned() } else { String::new() },
    };
    AccessRequest::for_resource(verb, accessed)
}
