//! Requests that are forwarded to another server, and connections that change their protocol on the way.
//!
//! Start reading at [`forward`].

pub mod connect;
pub mod identity;
mod links;
mod site;

use super::connections::ActiveRequest;
use super::stream::AnswerStream;
use crate::object::{Reason, Status};
use crate::runtime::https::trust::TlsClientKey;
use crate::runtime::proxied_headers::remove_hop_by_hop;
use crate::runtime::upgrade::relay_upgraded;
use crate::serve::answer::{UNREACHABLE, too_many_requests};
use crate::serve::target::{ProxyTarget, ProxyTls};
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, HeaderName, HeaderValue, TRAILER, UPGRADE};
use hyper::upgrade::OnUpgrade;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Time limit for the head of a response.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);

/// Beginnings of the names of headers about users.
const USER_HEADERS: [&str; 2] = ["impersonate-", "x-remote-"];

/// Parts of a client's request that are forwarded unchanged.
pub struct ProxiedHead {
    /// The method.
    pub method: Method,
    /// Everything after the question mark.
    pub query: Option<String>,
    /// The headers.
    pub headers: HeaderMap,
    /// The client's connection, should both sides change its protocol.
    pub upgrade: OnUpgrade,
}

fn unreachable(why: &str) -> Status {
    Status::new(Reason::ServiceUnavailable, format!("{UNREACHABLE}{why}"))
}

/// Forwards a request, and returns the response.
pub async fn forward(
    target: ProxyTarget,
    head: ProxiedHead,
    own: Option<&TlsClientKey>,
    permits: &Arc<Semaphore>,
    active: ActiveRequest,
) -> Result<Response<AnswerStream>, Status> {
    let Ok(permit) = permits.clone().try_acquire_owned() else {
        return Err(too_many_requests("too many streams are open: end some of them"));
    };
    let stream = TokioIo::new(connect::connect(&target, own).await.map_err(|why| unreachable(&why))?);
    let failed = |error: hyper::Error| unreachable(&error.to_string());
    let (mut sender, server) = hyper::client::conn::http1::handshake(stream).await.map_err(failed)?;
    // Ends with the response, or when the client has disconnected.
    tokio::spawn(server.with_upgrades());
    let query = target.query.clone().or(head.query).filter(|query| !query.is_empty());
    let path = query.map_or(target.path.clone(), |query| format!("{}?{query}", target.path));
    let site = site::find(&target, &head.headers);
    let has_body = head.method != Method::HEAD;
    let mut request = Request::builder().method(head.method).uri(path).body(Full::new(Bytes::from(target.body)));
    if let Ok(request) = &mut request {
        *request.headers_mut() = forwarded_headers(head.headers);
        if let Some(site) = &site {
            site::set_request_headers(request.headers_mut(), site, &target.path);
        }
        let host = match &target.tls {
            ProxyTls::Extension(tls) => {
                identity::set_headers(request.headers_mut(), &tls.user);
                tls.host.clone()
            }
            _ => target.place.to_string(),
        };
        if let Ok(host) = host.parse() {
            request.headers_mut().insert(HOST, host);
        }
    }
    let request = request.map_err(|error| Status::new(Reason::BadRequest, error.to_string()))?;
    let answered = tokio::time::timeout(HEAD_TIMEOUT, sender.send_request(request)).await;
    let mut response = answered.map_err(|_| unreachable("net/http: request canceled"))?.map_err(failed)?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let server = hyper::upgrade::on(&mut response);
        let client = head.upgrade;
        tokio::spawn(async move {
            relay_upgraded(client, server).await;
            drop((permit, active));
        });
        return Ok(response.map(|_| AnswerStream::Ended));
    }
    let (mut head, body) = response.into_parts();
    remove_connection_headers(&mut head.headers);
    let has_links = site.as_ref().is_some_and(|site| site::redirect_head(&mut head.headers, site) && has_body);
    let body = match site.filter(|_| has_links) {
        Some(site) => site::redirect_body(&mut head.headers, body, site, permit).await.map_err(failed)?,
        None => AnswerStream::Proxied { read: Bytes::new(), body, _permit: permit },
    };
    Ok(Response::from_parts(head, body))
}

/// Returns the headers for the other server: the client's without those of its connection, but for a change of protocol that it asks for.
fn forwarded_headers(mut headers: HeaderMap) -> HeaderMap {
    let upgrade = headers.get(UPGRADE).cloned();
    remove_connection_headers(&mut headers);
    // The token is for this server only; the length follows from the body.
    for name in [AUTHORIZATION, HOST, CONTENT_LENGTH] {
        headers.remove(name);
    }
    remove_user_headers(&mut headers);
    if let Some(upgrade) = upgrade {
        headers.insert(UPGRADE, upgrade);
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    }
    headers
}

/// Removes the headers by which a client impersonates a user, which this server has done, and by which a front proxy names one.
fn remove_user_headers(headers: &mut HeaderMap) {
    let is_about_user = |name: &&HeaderName| USER_HEADERS.iter().any(|prefix| name.as_str().starts_with(prefix));
    let names: Vec<HeaderName> = headers.keys().filter(is_about_user).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// Removes the headers of one connection. Trailers are not passed on, so that none are announced either.
fn remove_connection_headers(headers: &mut HeaderMap) {
    remove_hop_by_hop(headers);
    headers.remove(TRAILER);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_of_protocol_is_forwarded() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
            ("authorization", "x"),
            ("impersonate-user", "ann"),
            ("impersonate-extra-scopes", "all"),
            ("x-remote-user", "admin"),
        ] {
            headers.insert(name, value.parse().unwrap());
        }
        let forwarded = forwarded_headers(headers);
        assert_eq!(
            (&forwarded["connection"], &forwarded["upgrade"], forwarded.len()),
            (&"Upgrade".parse().unwrap(), &"websocket".parse().unwrap(), 2)
        );
        assert!(forwarded_headers(HeaderMap::new()).is_empty());
    }
}
