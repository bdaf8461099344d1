//! Receives a request: its head and body, and the user who makes it.
//!
//! Never: answers. Start reading at [`receive_request`].

use super::audit_log::AuditExchange;
use super::client_certificate::ClientIdentity;
use super::connections::Connection;
use super::guard::{self, Access};
use super::kubelet_guard::{self, KubeletGuard};
use super::{ClientFacts, MAX_BODY_BYTES, REQUEST_TIMEOUT, ServerState};
use crate::apiserver::authorization::{self, AccessRequest, AccessedResource};
use crate::apiserver::tokens::authenticate::{TokenUser, authenticate};
use crate::apiserver::tokens::bootstrap::authenticate_bootstrap;
use crate::apiserver::tokens::keys::ClusterKeys;
use crate::apiserver::user::{ADMINISTRATOR, User};
use crate::apiserver::{Api, ApiResult, Transaction};
use crate::object::{Reason, Status};
use crate::serve::ApiRequest;
use crate::serve::access;
use crate::serve::impersonation::{Impersonation, impersonate};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, IF_NONE_MATCH, USER_AGENT};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Uri, Version};
use rustls::pki_types::UnixTime;
use std::sync::Arc;

/// Maximum size of a body that is read, whether it is kept or not.
const MAX_DRAINED: usize = 16 << 20;

/// Returns a request without its body.
pub fn read_head(head: &Parts) -> ApiRequest {
    let target = target(&head.uri);
    let text = |name: HeaderName| text(&head.headers, &name);
    // In HTTP/2 the host is part of the URI.
    let host = head.uri.authority().map_or_else(|| text(HOST), |authority| authority.to_string());
    ApiRequest {
        accept: text(ACCEPT),
        content_type: text(CONTENT_TYPE),
        agent: text(USER_AGENT),
        authorization: text(AUTHORIZATION),
        host,
        if_none_match: text(IF_NONE_MATCH),
        ..ApiRequest::new(head.method.as_str(), target)
    }
}

/// Returns the path with its parameters; in HTTP/2 a URI has the host, too.
pub fn target(uri: &Uri) -> &str {
    uri.path_and_query().map_or("/", |target| target.as_str())
}

/// A client of a request: its connection, facts about it, and the audit of the request.
type Requester<'a> = (&'a Connection, &'a ClientFacts, Option<&'a Arc<AuditExchange>>);

/// Returns the complete request of an admitted client. The body of a refused one is dropped while the client still sends it, so that its
/// connection can be used again.
pub async fn receive_request(
    (head, request): (&Parts, ApiRequest),
    body: Incoming,
    shared: &Arc<ServerState>,
    client: Requester<'_>,
) -> Result<(ApiRequest, Access), Status> {
    match admit((head, request), shared, client).await {
        Ok((mut request, access)) if access != Access::Anonymous => {
            request.body = receive_body(body, head.version).await?;
            Ok((request, access))
        }
        bodyless => {
            drain(body, head.version);
            bodyless
        }
    }
}

/// Returns the request of a client that may make it, without the body.
async fn admit(
    (head, mut request): (&Parts, ApiRequest),
    shared: &Arc<ServerState>,
    (connection, facts, audited): Requester<'_>,
) -> Result<(ApiRequest, Access), Status> {
    if !has_valid_escapes(head.uri.path()) {
        return Err(Status::new(Reason::BadRequest, format!("invalid URL escape in {}", head.uri.path())));
    }
    let headers = &head.headers;
    let identity = facts.identity.identity_at(UnixTime::now());
    if let Some(node) = &facts.kubelet {
        admit_to_own_kubelet(node, identity, (head, &request), (shared, connection)).await?;
        return Ok((request, Access::Full));
    }
    if let Some(kubelet) = shared.guard.kubelet() {
        admit_to_kubelet(kubelet.clone(), identity, head, &request, connection).await?;
        return Ok((request, Access::Full));
    }
    let access = shared.guard.admit(headers, &request.method, &request.path);
    let access = match identity {
        ClientIdentity::User(_) => Access::Account,
        ClientIdentity::Invalid if access == Ok(Access::Anonymous) => {
            return Err(Status::new(Reason::Unauthorized, "Unauthorized"));
        }
        ClientIdentity::Invalid | ClientIdentity::None => access?,
    };
    if access == Access::Anonymous {
        if let Some(audited) = audited {
            audited.begin(&request, &User::anonymous(), None);
        }
        return Ok((request, access));
    }
    let impersonation = guard::impersonation(headers).or_else(|| shared.guard.acts_as());
    let mut own = None;
    if access == Access::Account || impersonation.is_some() {
        let client = (access, identity, audited.cloned());
        (request, own) = identify(request, client, impersonation, (shared, connection)).await?;
    } else if let Some(audited) = audited {
        audited.begin(&request, &User::administrator(), None);
        audited.set_decision(true, "");
    }
    connection.mark_authenticated(own.as_ref().map_or(ADMINISTRATOR, |user| &user.name))?;
    Ok((request, access))
}

/// Admits a client to the server of a kubelet.
async fn admit_to_kubelet(
    kubelet: KubeletGuard,
    identity: ClientIdentity,
    head: &Parts,
    request: &ApiRequest,
    connection: &Connection,
) -> Result<(), Status> {
    let (method, path) = (head.method.as_str().to_owned(), head.uri.path().to_owned());
    let token = request.bearer_token().to_owned();
    // It may wait for the API server.
    let admitted = tokio::task::spawn_blocking(move || kubelet.admit(&identity, &token, &method, &path)).await;
    let user = admitted.map_err(Status::bug)??;
    connection.mark_authenticated(&user.name)
}

/// Admits a client to the kubelet of this machine's node, by the rules of the cluster (`pkg/kubelet/server/auth.go`).
async fn admit_to_own_kubelet(
    node: &Arc<str>,
    identity: ClientIdentity,
    (head, request): (&Parts, &ApiRequest),
    (shared, connection): (&Arc<ServerState>, &Connection),
) -> Result<(), Status> {
    let (method, path) = (head.method.as_str().to_owned(), head.uri.path().to_owned());
    let (node, token) = (node.clone(), request.bearer_token().to_owned());
    let unauthorized = || Status::new(Reason::Unauthorized, "Unauthorized");
    let has_token = shared.guard.admit(&head.headers, &method, &path) == Ok(Access::Full);
    let known = match identity {
        ClientIdentity::User(user) => Some(user),
        ClientIdentity::None if has_token => Some(Arc::new(User::administrator())),
        ClientIdentity::None if !token.is_empty() => None,
        ClientIdentity::None | ClientIdentity::Invalid => return Err(unauthorized()),
    };
    let _turn = if known.is_some() { None } else { Some(shared.anonymous.wait_for(connection.client()).await?) };
    let work = move |api: &mut Api| {
        let user = match known {
            Some(user) => user,
            None => {
                let keys = api.keys()?;
                let found = api.read_view(|txn| find_token_user(txn, &keys, &token))?;
                Arc::new(found.map_err(|_| unauthorized())?.user)
            }
        };
        api.read_view(|txn| {
            kubelet_guard::check_rights(&user, &method, &path, |verb, part| {
                let (resource, subresource, name) = ("nodes".to_owned(), part.to_owned(), node.to_string());
                let accessed = AccessedResource { resource, subresource, name, ..AccessedResource::default() };
                let access = AccessRequest::for_resource(verb, accessed);
                authorization::authorize(txn, &user, &access).map(|decision| decision.is_allowed)
            })
        })?;
        Ok(user)
    };
    let user = shared.work(connection.client(), work).await??;
    connection.mark_authenticated(&user.name)
}

async fn receive_body(body: Incoming, version: Version) -> Result<Vec<u8>, Status> {
    let timeout = |_| Status::new(Reason::Timeout, "the body of the request did not arrive in time");
    tokio::time::timeout(REQUEST_TIMEOUT, read_body(body, version)).await.map_err(timeout)?
}

/// Whether two hexadecimal digits follow each `%` of a path.
fn has_valid_escapes(path: &str) -> bool {
    let is_digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
    path.split('%').skip(1).all(|rest| (0..2).all(|index| is_digit(rest.as_bytes().get(index))))
}

/// Reads a body. HTTP/1: refuses a body that is too large immediately, and drops the rest that the client still sends. HTTP/2: reads all of
/// it first, because clients treat an answer before the end of their request as a connection failure.
async fn read_body(mut body: Incoming, version: Version) -> Result<Vec<u8>, Status> {
    let most = if version == Version::HTTP_2 { MAX_DRAINED } else { MAX_BODY_BYTES };
    if body.size_hint().lower() > most as u64 {
        drain(body, version);
        return Err(too_large());
    }
    let (mut bytes, mut length) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let error = |error| Status::new(Reason::BadRequest, format!("error reading the body: {error}"));
        let Ok(data) = frame.map_err(error)?.into_data() else { continue };
        length += data.len();
        if length <= MAX_BODY_BYTES {
            bytes.extend_from_slice(&data);
        } else if length <= most {
            bytes = Vec::new();
        } else {
            drain(body, version);
            break;
        }
    }
    if length > MAX_BODY_BYTES { Err(too_large()) } else { Ok(bytes) }
}

/// Reads the rest of a refused body for a limited time while the answer is sent. Otherwise a client of HTTP/1 that is still sending would
/// see a connection reset instead of the answer.
fn drain(mut body: Incoming, version: Version) {
    if version == Version::HTTP_2 || body.is_end_stream() {
        return;
    }
    tokio::spawn(tokio::time::timeout(REQUEST_TIMEOUT, async move {
        let mut left = MAX_DRAINED;
        while let Some(Ok(frame)) = body.frame().await {
            let length = frame.data_ref().map_or(0, |data| data.len());
            match left.checked_sub(length) {
                Some(rest) => left = rest,
                None => break,
            }
        }
    }));
}

fn too_large() -> Status {
    Status::new(Reason::RequestEntityTooLarge, format!("Request entity too large: limit is {MAX_BODY_BYTES}"))
}

/// Returns the request with the user who makes it, if that user may: that of the client's certificate, the service account whose token
/// came with it, or the one as whom the client wants to act. Also returns the client's own user.
async fn identify(
    mut request: ApiRequest,
    (access, client_identity, audited): (Access, ClientIdentity, Option<Arc<AuditExchange>>),
    impersonation: Option<Impersonation>,
    (shared, connection): (&Arc<ServerState>, &Connection),
) -> Result<(ApiRequest, Option<Arc<User>>), Status> {
    // Clients that are not known yet share these turns.
    let is_known = access == Access::Full || matches!(client_identity, ClientIdentity::User(_));
    let _turn = if is_known { None } else { Some(shared.anonymous.wait_for(connection.client()).await?) };
    let work = move |api: &mut Api| {
        let mut user = Arc::new(User::administrator());
        if let ClientIdentity::User(certified) = client_identity {
            user = certified;
        } else if access == Access::Account {
            let keys = api.keys()?;
            let found = api.read_view(|txn| find_token_user(txn, &keys, request.bearer_token()))?;
            user = Arc::new(found.map_err(|_| Status::new(Reason::Unauthorized, "Unauthorized"))?.user);
        }
        let own = user.clone();
        if let Some(asked) = impersonation {
            user = impersonate(api, &user, &asked, &request)?;
        }
        request.user = Some(user.clone());
        if let Some(audited) = &audited {
            audited.begin(&request, &own, Some(&*user).filter(|user| **user != *own));
        }
        let decision = access::authorize(api, &request);
        if let Some(audited) = &audited {
            audited.set_decision(decision.is_ok(), decision.as_ref().map_or("", String::as_str));
        }
        decision.map(|_| (request, Some(own)))
    };
    shared.work(connection.client(), work).await?
}

/// Returns the user of a token: that of a machine that wants to join, or of a service account.
fn find_token_user(txn: &dyn Transaction, keys: &ClusterKeys, token: &str) -> ApiResult<Result<TokenUser, String>> {
    match authenticate_bootstrap(txn, token)? {
        Some(user) => Ok(Ok(user)),
        None => authenticate(txn, keys, token, &[]),
    }
}

/// Returns a header; several of the same name as one list.
pub fn text(headers: &HeaderMap, name: &HeaderName) -> String {
    let mut all = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let mut list = all.next().unwrap_or_default().to_owned();
    for value in all {
        list.push(',');
        list.push_str(value);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_of_a_request_has_no_host() {
        for (uri, expected) in [("https://127.0.0.1:1/api?a=b", "/api?a=b"), ("/api", "/api"), ("http://a", "/")] {
            assert_eq!(target(&uri.parse().unwrap()), expected);
        }
    }

    #[test]
    fn escapes_of_a_path_have_two_digits() {
        for path in ["/", "/api", "/a%20b", "/%2F%ff", "/é"] {
            assert!(has_valid_escapes(path), "{path}");
        }
        for path in ["/%", "/%2", "/%zz", "/a%20%2x", "/%é"] {
            assert!(!has_valid_escapes(path), "{path}");
        }
    }
}
