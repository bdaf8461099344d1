//! A proxy to the server: takes requests of plain HTTP/1.1 and sends them with the client's credentials (kubectl: `pkg/proxy`).
//!
//! Knows: the headers of one connection only, and that both sides may change their protocol, as for exec. Never: decides which requests are
//! let through; the caller's rule does. Start reading at [`serve`].

use super::connection::{ClientStream, ServerConnections, use_origin_form};
use super::error::ClientResult;
use crate::object::Status;
use crate::runtime::https::answer::http_error;
use crate::runtime::proxied_headers::remove_hop_by_hop;
use crate::runtime::relay::pause_accepting;
use crate::runtime::upgrade::relay_upgraded;
use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, UPGRADE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, client, server};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of clients at the same time; further ones wait.
const MAX_CLIENTS: usize = 256;
/// Time limit for the headers of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Decides on a request by its host, method and path: returns the path at the server, or the refusal.
pub type RequestRule = dyn Fn(&str, &Method, &str) -> Result<String, Status> + Send + Sync;

/// The socket at which a proxy listens.
pub enum ForwardListener {
    /// A port.
    Port(std::net::TcpListener),
    /// A Unix socket.
    Socket(std::os::unix::net::UnixListener),
}

enum OpenListener {
    Port(TcpListener),
    Socket(UnixListener),
}

impl OpenListener {
    fn new(listener: ForwardListener) -> io::Result<OpenListener> {
        Ok(match listener {
            ForwardListener::Port(listener) => {
                listener.set_nonblocking(true)?;
                OpenListener::Port(TcpListener::from_std(listener)?)
            }
            ForwardListener::Socket(listener) => {
                listener.set_nonblocking(true)?;
                OpenListener::Socket(UnixListener::from_std(listener)?)
            }
        })
    }

    async fn accept(&self) -> io::Result<Box<dyn ClientStream>> {
        Ok(match self {
            OpenListener::Port(listener) => Box::new(listener.accept().await?.0),
            OpenListener::Socket(listener) => Box::new(listener.accept().await?.0),
        })
    }
}

/// The body of an answer: the server's, or a message of the proxy.
type AnswerBody = Either<Incoming, Full<Bytes>>;

/// Context of a client's requests.
struct ProxyClient {
    connections: Arc<ServerConnections>,
    rule: Arc<RequestRule>,
    /// Held while the client is connected, also after a change of protocol.
    _permit: OwnedSemaphorePermit,
}

/// Serves clients until it is dropped.
pub async fn serve(
    connections: Arc<ServerConnections>,
    listener: ForwardListener,
    rule: Arc<RequestRule>,
) -> io::Result<()> {
    let listener = OpenListener::new(listener)?;
    let permits = Arc::new(Semaphore::new(MAX_CLIENTS));
    loop {
        let Ok(permit) = permits.clone().acquire_owned().await else { return Ok(()) };
        match listener.accept().await {
            Ok(stream) => {
                let (connections, rule) = (connections.clone(), rule.clone());
                tokio::spawn(serve_client(stream, Arc::new(ProxyClient { connections, rule, _permit: permit })));
            }
            Err(_) => pause_accepting().await,
        }
    }
}

async fn serve_client(stream: Box<dyn ClientStream>, client: Arc<ProxyClient>) {
    let service = service_fn(move |request| {
        let client = client.clone();
        async move { Ok::<_, Infallible>(answer(request, &client).await) }
    });
    let mut http = server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(REQUEST_TIMEOUT);
    // A connection that breaks is not an error of the proxy.
    let _ = http.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
}

async fn answer(request: Request<Incoming>, client: &Arc<ProxyClient>) -> Response<AnswerBody> {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let path = match (client.rule)(host, request.method(), request.uri().path()) {
        Ok(path) => path,
        Err(refusal) => return plain_answer(refusal.code(), &refusal.message),
    };
    match forward(request, &path, client).await {
        Ok(response) => response,
        Err(error) => plain_answer(StatusCode::INTERNAL_SERVER_ERROR.as_u16(), &error.to_string()),
    }
}

/// Makes an answer of the proxy itself, in the form of Go's `http.Error`.
fn plain_answer(code: u16, message: &str) -> Response<AnswerBody> {
    let mut response = Response::new(Either::Right(Full::from(format!("{message}\n"))));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// Sends a request to the server over a connection of its own, and returns the answer, whose body is still being read.
async fn forward(
    mut request: Request<Incoming>,
    path: &str,
    client: &Arc<ProxyClient>,
) -> ClientResult<Response<AnswerBody>> {
    let connections = &client.connections;
    let upgrade = request.headers().get(UPGRADE).cloned();
    let own_side = hyper::upgrade::on(&mut request);
    let (stream, presented) = connections.open_own().await?;
    let query = request.uri().query().map_or(String::new(), |query| format!("?{query}"));
    let (head, body) = request.into_parts();
    let outgoing = Request::builder().method(head.method);
    let mut outgoing = connections.complete(outgoing, &format!("{path}{query}"), &presented)?.map(|()| body);
    *outgoing.headers_mut() = forwarded_headers(head.headers, outgoing.headers(), upgrade);
    use_origin_form(&mut outgoing, connections.config());
    let failed = |error: hyper::Error| connections.unreachable(http_error(&error));
    let (mut sender, connection) =
        client::conn::http1::handshake::<_, Incoming>(TokioIo::new(stream)).await.map_err(failed)?;
    // Ends with the answer, or when the client has disconnected.
    tokio::spawn(connection.with_upgrades());
    let mut response = sender.send_request(outgoing).await.map_err(failed)?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let other_side = hyper::upgrade::on(&mut response);
        let client = client.clone();
        tokio::spawn(async move {
            relay_upgraded(own_side, other_side).await;
            drop(client);
        });
        return Ok(response.map(|_| Either::Right(Full::default())));
    }
    remove_hop_by_hop(response.headers_mut());
    Ok(response.map(Either::Left))
}

/// Returns the headers for the server: the client's without those of its connection, and of the proxy's those that the client lacks.
fn forwarded_headers(mut headers: HeaderMap, own: &HeaderMap, upgrade: Option<HeaderValue>) -> HeaderMap {
    remove_hop_by_hop(&mut headers);
    headers.remove(HOST);
    let missing: Vec<_> = own.iter().filter(|(name, _)| !headers.contains_key(*name)).collect();
    for (name, value) in missing {
        headers.append(name, value.clone());
    }
    if let Some(protocol) = upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, protocol);
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn forwarded_headers_are_the_clients_with_the_proxys_credentials() {
        let own = headers(&[("authorization", "Bearer a"), ("user-agent", "kloop"), ("impersonate-group", "x")]);
        let sent = headers(&[("host", "localhost"), ("connection", "keep-alive"), ("user-agent", "curl")]);
        let expected = headers(&[("user-agent", "curl"), ("authorization", "Bearer a"), ("impersonate-group", "x")]);
        assert_eq!(forwarded_headers(sent, &own, None), expected);
        let token = headers(&[("authorization", "Bearer b"), ("connection", "Upgrade"), ("upgrade", "websocket")]);
        let kept = forwarded_headers(token, &own, Some(HeaderValue::from_static("websocket")));
        assert_eq!((&kept["authorization"], &kept["upgrade"]), (&own_value("Bearer b"), &own_value("websocket")));
    }

    fn own_value(text: &'static str) -> HeaderValue {
        HeaderValue::from_static(text)
    }
}
