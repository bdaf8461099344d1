//! Forwarding of one request to an endpoint: bodies are streamed in both directions; after `Upgrade` all bytes are.

use super::pool::EndpointBody;
use super::{RequestRoute, SharedIngress};
use crate::object::io_error_text;
use crate::runtime::proxied_headers::remove_hop_by_hop;
use crate::runtime::upgrade::relay_upgraded;
use http_body_util::{Either, Empty, Full};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Uri, Version};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

/// Value of `TE` for a client that accepts trailers.
const TRAILERS: &str = "trailers";

const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_SCHEME: HeaderName = HeaderName::from_static("x-forwarded-scheme");

/// A client connection and its listener.
pub struct IngressClient {
    /// State of the proxy.
    pub shared: Arc<SharedIngress>,
    /// Address of the client.
    pub client: SocketAddr,
    /// Forwarding headers for endpoints: the client's address, the scheme (`http` or `https`), the listener's port.
    headers: [HeaderValue; 3],
}

impl IngressClient {
    /// Makes the client of a connection to the listener with this scheme and port.
    pub fn new(shared: Arc<SharedIngress>, client: SocketAddr, scheme: &'static str, port: u16) -> IngressClient {
        let value = |text: String| HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""));
        let headers = [value(client.ip().to_string()), HeaderValue::from_static(scheme), port.into()];
        IngressClient { shared, client, headers }
    }
}

type IngressResponse = Response<Either<Incoming, Full<Bytes>>>;

/// Answers a request.
pub async fn answer(request: Request<Incoming>, connection: Arc<IngressClient>) -> Result<IngressResponse, Infallible> {
    Ok(forward(request, &connection).await.unwrap_or_else(|refusal| refusal))
}

async fn forward(
    mut request: Request<Incoming>,
    connection: &IngressClient,
) -> Result<IngressResponse, IngressResponse> {
    let value = host(&request);
    let host = value.to_str().unwrap_or_default();
    let (uri, is_head) = (request.uri().clone(), request.method() == Method::HEAD);
    let refuse = |code, why: &str| refusal(code, &format!("{host}{}: {why}", uri.path()), is_head);
    let (places, is_h2): (Vec<SocketAddr>, bool) =
        match connection.shared.choose_route(host, uri.path(), connection.client.ip()) {
            RequestRoute::NoRule => return Err(refuse(StatusCode::NOT_FOUND, "no Ingress has a matching rule")),
            RequestRoute::NoEndpoint(why) => return Err(refuse(StatusCode::SERVICE_UNAVAILABLE, &why)),
            RequestRoute::Endpoints(places, is_h2) => (places.into_iter().map(SocketAddr::V4).collect(), is_h2),
            RequestRoute::ExternalHost(name, port) => match tokio::net::lookup_host((name.as_str(), port)).await {
                Ok(places) => (places.collect(), false),
                Err(error) => {
                    return Err(refuse(StatusCode::SERVICE_UNAVAILABLE, &format!("{name}: {}", io_error_text(error))));
                }
            },
        };
    let upgrade = upgrade(request.headers());
    let client = upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
    let request = outgoing(request, &value, upgrade.as_ref().filter(|_| !is_h2), connection)
        .and_then(|request| if is_h2 { as_http2(request, host) } else { Some(request) })
        .ok_or_else(|| refuse(StatusCode::BAD_REQUEST, "the request cannot be forwarded"))?;
    let mut response = match connection.shared.pool().send(places, request, is_h2).await {
        Ok(response) => response,
        Err(why) => return Err(refuse(StatusCode::BAD_GATEWAY, &why)),
    };
    if response.status() == StatusCode::SWITCHING_PROTOCOLS
        && let Some(client) = client
    {
        let server = hyper::upgrade::on(&mut response);
        tokio::spawn(relay_upgraded(client, server));
        return Ok(response.map(|_| Either::Right(Full::default())));
    }
    remove_hop_by_hop(response.headers_mut());
    *response.version_mut() = Version::HTTP_11;
    Ok(response.map(Either::Left))
}

/// Returns the requested host: from the request line or the header; empty when both lack it.
fn host(request: &Request<Incoming>) -> HeaderValue {
    let header = || request.headers().get(header::HOST).filter(|host| host.to_str().is_ok()).cloned();
    let authority = request.uri().authority().and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
    authority.or_else(header).unwrap_or(HeaderValue::from_static(""))
}

/// Returns the protocol that the client wants to upgrade to.
fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let wants = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let mut tokens = wants.flat_map(|value| value.split(','));
    tokens.any(|token| token.trim().eq_ignore_ascii_case("upgrade")).then(|| headers.get(header::UPGRADE).cloned())?
}

/// Returns the request for the endpoint. `None` for a request without a path, such as CONNECT.
fn outgoing(
    request: Request<Incoming>,
    host: &HeaderValue,
    upgrade: Option<&HeaderValue>,
    connection: &IngressClient,
) -> Option<Request<EndpointBody>> {
    let (mut parts, body) = request.into_parts();
    parts.uri = Uri::from(parts.uri.path_and_query().filter(|_| parts.method != Method::CONNECT)?.clone());
    parts.version = Version::HTTP_11;
    let wants_trailers = parts.headers.get(header::TE).is_some_and(|value| value == TRAILERS);
    remove_hop_by_hop(&mut parts.headers);
    // The proxy itself has answered it.
    parts.headers.remove(header::EXPECT);
    if wants_trailers {
        // The only value of TE that HTTP/2 allows; gRPC servers require it.
        parts.headers.insert(header::TE, HeaderValue::from_static(TRAILERS));
    }
    join_cookies(&mut parts.headers);
    if let Some(protocol) = upgrade {
        parts.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        parts.headers.insert(header::UPGRADE, protocol.clone());
    }
    // Forwarding headers from the client are not trusted, as in ingress-nginx by default.
    let [client, scheme, port] = &connection.headers;
    let headers = [
        (header::HOST, host),
        (REAL_IP, client),
        (FORWARDED_FOR, client),
        (FORWARDED_HOST, host),
        (FORWARDED_PORT, port),
        (FORWARDED_PROTO, scheme),
        (FORWARDED_SCHEME, scheme),
    ];
    for (name, value) in headers {
        parts.headers.insert(name, value.clone());
    }
    let body = if body.is_end_stream() { Either::Right(Empty::new()) } else { Either::Left(body) };
    Some(Request::from_parts(parts, body))
}

/// Returns the request for an HTTP/2 endpoint: the host is part of the URI.
fn as_http2(mut request: Request<EndpointBody>, host: &str) -> Option<Request<EndpointBody>> {
    let path = request.uri().path_and_query()?.clone();
    let authority = if host.is_empty() { "localhost" } else { host };
    *request.uri_mut() = Uri::builder().scheme("http").authority(authority).path_and_query(path).build().ok()?;
    *request.version_mut() = Version::HTTP_2;
    request.headers_mut().remove(header::HOST);
    Some(request)
}

/// Joins cookies into one header, because HTTP/2 clients may send several (RFC 9113, 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    if !headers.contains_key(header::COOKIE) {
        return;
    }
    let cookies: Vec<&[u8]> = headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if cookies.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        headers.insert(header::COOKIE, joined);
    }
}

/// An error response of the proxy itself, such as `404 Not Found`, with the reason.
fn refusal(code: StatusCode, why: &str, is_head: bool) -> IngressResponse {
    let text = if is_head { String::new() } else { format!("{code}\n{why}\n") };
    let mut response = Response::new(Either::Right(Full::from(text)));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
