//! Access of requests: what a request would do, as whom, and whether that user may.
//!
//! Never: checks credentials ([`super::http::guard`] and [`crate::apiserver::tokens`] do). Start reading at
//! [`authorize`].

use super::path::{self, ApiPath};
use super::{ApiRequest, ServeResult};
use crate::apiserver::Api;
use crate::apiserver::authorization::{AccessRequest, AccessTarget, AccessedResource, check_access};
use crate::apiserver::user::User;
use crate::object::{Reason, Status};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Another user as whom a client wants to act: the headers `Impersonate-*`.
#[derive(Clone, Debug, Default)]
pub struct Impersonation {
    /// `Impersonate-User`.
    pub user: String,
    /// `Impersonate-Group`, as often as it was sent.
    pub groups: Vec<String>,
    /// `Impersonate-Uid`.
    pub uid: String,
    /// `Impersonate-Extra-*`, in lower case.
    pub extra: BTreeMap<String, Vec<String>>,
}

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

/// Returns the user as whom the request is made; `user` has to be allowed to act as that one.
pub fn impersonate(api: &Api, user: &User, asked: &Impersonation) -> ServeResult<Arc<User>> {
    if asked.user.is_empty() {
        let text = "requesting uid, groups or user-extra without impersonating a user";
        return Err(Status::new(Reason::InternalError, text));
    }
    let account = asked.user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    let mut requests = vec![match account {
        Some((namespace, name)) => act_as(("", "serviceaccounts", ""), namespace, name),
        None => act_as(("", "users", ""), "", &asked.user),
    }];
    const IDENTITY: &str = "authentication.k8s.io";
    requests.extend(asked.groups.iter().map(|group| act_as(("", "groups", ""), "", group)));
    if !asked.uid.is_empty() {
        requests.push(act_as((IDENTITY, "uids", ""), "", &asked.uid));
    }
    for (key, values) in &asked.extra {
        requests.extend(values.iter().map(|value| act_as((IDENTITY, "userextras", key), "", value)));
    }
    for request in requests {
        api.read_view(|txn| check_access(txn, user, &request))?;
    }
    Ok(Arc::new(User::impersonated(&asked.user, &asked.uid, &asked.groups, asked.extra.clone())))
}

fn act_as((group, resource, subresource): (&str, &str, &str), namespace: &str, name: &str) -> AccessRequest {
    let [group, resource, subresource, namespace, name] =
        [group, resource, subresource, namespace, name].map(str::to_owned);
    let accessed = AccessedResource { group, resource, subresource, namespace, name, ..AccessedResource::default() };
    AccessRequest::for_resource("impersonate", accessed)
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
