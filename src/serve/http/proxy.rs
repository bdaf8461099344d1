//! Requests that are forwarded to another server.

use super::stream::AnswerStream;
use crate::object::{Reason, Status};
use crate::runtime::relay;
use crate::serve::target::ProxyTarget;
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, HeaderName, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use hyper::{HeaderMap, Method, Request, Response};
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Time limit for a connection to the other server.
const CONNECT: Duration = Duration::from_secs(30);

/// Parts of a client's request that are forwarded unchanged.
pub struct ProxiedHead {
    /// The method.
    pub method: Method,
    /// Everything after the question mark.
    pub query: Option<String>,
    /// The headers.
    pub headers: HeaderMap,
}

fn unreachable(why: &str) -> Status {
    Status::new(Reason::ServiceUnavailable, format!("error trying to reach service: {why}"))
}

/// Forwards a request, and returns the response.
pub async fn forward(
    target: ProxyTarget,
    head: ProxiedHead,
    permits: &Arc<Semaphore>,
) -> Result<Response<AnswerStream>, Status> {
    let Ok(permit) = permits.clone().try_acquire_owned() else {
        return Err(Status::new(Reason::TooManyRequests, "too many open streams: end some of them, and try again"));
    };
    let connected = timeout(CONNECT, relay::connect(target.place)).await;
    let stream = connected.unwrap_or_else(|_| Err(format!("dial tcp {}: i/o timeout", target.place)));
    let stream = TokioIo::new(stream.map_err(|why| unreachable(&why))?);
    let failed = |error: hyper::Error| unreachable(&error.to_string());
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.map_err(failed)?;
    // Ends with the response, or when the client has disconnected.
    tokio::spawn(connection);
    let path = head.query.map_or(target.path.clone(), |query| format!("{}?{query}", target.path));
    let mut request = Request::builder().method(head.method).uri(path).body(Full::new(Bytes::from(target.body)));
    if let Ok(request) = &mut request {
        *request.headers_mut() = head.headers;
        remove_hop_by_hop(request.headers_mut());
        // The token is for this server only; the length follows from the body.
        for name in [AUTHORIZATION, HOST, CONTENT_LENGTH] {
            request.headers_mut().remove(name);
        }
        if let Ok(host) = target.place.to_string().parse() {
            request.headers_mut().insert(HOST, host);
        }
    }
    let request = request.map_err(|error| Status::new(Reason::BadRequest, error.to_string()))?;
    let (mut head, body) = sender.send_request(request).await.map_err(failed)?.into_parts();
    remove_hop_by_hop(&mut head.headers);
    Ok(Response::from_parts(head, AnswerStream::Proxied { body, _permit: permit }))
}

/// Removes hop-by-hop headers (RFC 9110, 7.6.1).
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named = headers.get_all(CONNECTION).into_iter().filter_map(|value| value.to_str().ok());
    let named: Vec<HeaderName> =
        named.flat_map(|value| value.split(',')).filter_map(|name| name.trim().parse().ok()).collect();
    let known = [CONNECTION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, HeaderName::from_static("keep-alive")];
    for name in named.into_iter().chain(known) {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hop_by_hop_headers_are_removed() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("connection", "close, x-own"), ("x-own", "1"), ("te", "trailers"), ("accept", "a/b")] {
            headers.insert(name, value.parse().unwrap());
        }
        remove_hop_by_hop(&mut headers);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
    }
}
