//! Connections to endpoints, kept for further requests.
//!
//! A connection returns to the pool when the response head has arrived, before the end of the body: the next user checks whether it is
//! free.
//! The oldest connections are checked first, because they are most likely free. So no task has to wait for the end of a body.

use crate::object::IgnorePoison;
use crate::runtime::low_ports;
use crate::runtime::network::links;
use crate::runtime::probe::dial;
use http_body_util::{Either, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{TrySendError, http1, http2};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tokio::net::TcpStream;

/// The body of a forwarded request, streamed from the client, or empty.
pub type EndpointBody = Either<Incoming, Empty<Bytes>>;

/// Approximate maximum number of idle connections per endpoint.
const MAX_IDLE_CONNECTIONS: usize = 64;
/// Maximum number of pooled connections that are checked for a free one.
const TRIED: usize = 8;
/// Time limit for connecting to an endpoint; external hosts may be far away.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

type IdleConnections = HashMap<SocketAddr, VecDeque<EndpointSender>>;

/// The connections of a thread.
pub struct EndpointPool {
    idle: Mutex<IdleConnections>,
    /// The cluster's folder.
    state: PathBuf,
}

/// A connection to an endpoint, by protocol.
enum EndpointSender {
    /// HTTP/1: one request at a time.
    Http1(http1::SendRequest<EndpointBody>),
    /// HTTP/2: concurrent requests; it stays in the pool.
    Http2(http2::SendRequest<EndpointBody>),
}

impl EndpointSender {
    fn is_ready(&self) -> bool {
        match self {
            EndpointSender::Http1(sender) => sender.is_ready(),
            EndpointSender::Http2(sender) => sender.is_ready(),
        }
    }

    fn is_closed(&self) -> bool {
        match self {
            EndpointSender::Http1(sender) => sender.is_closed(),
            EndpointSender::Http2(sender) => sender.is_closed(),
        }
    }

    async fn send(
        &mut self,
        request: Request<EndpointBody>,
    ) -> Result<Response<Incoming>, TrySendError<Request<EndpointBody>>> {
        match self {
            EndpointSender::Http1(sender) => sender.try_send_request(request).await,
            EndpointSender::Http2(sender) => sender.try_send_request(request).await,
        }
    }
}

impl EndpointPool {
    /// Makes an empty pool for the cluster with this folder.
    pub fn new(state: &Path) -> EndpointPool {
        EndpointPool { idle: Mutex::default(), state: state.to_owned() }
    }

    fn lock_idle(&self) -> MutexGuard<'_, IdleConnections> {
        self.idle.lock().ignore_poison()
    }

    /// Closes the connections to a removed endpoint.
    pub fn drop_endpoint(&self, endpoint: &str) {
        let mut kept = self.lock_idle();
        if !kept.is_empty()
            && let Ok(endpoint) = endpoint.parse()
        {
            kept.remove(&endpoint);
        }
    }

    /// Sends a request to the first address that accepts it. Tries the next one when no server can have seen the request, or when the
    /// server closes the connection without an answer to a safe request, as nginx does (`proxy_next_upstream`).
    pub async fn send(
        &self,
        places: impl IntoIterator<Item = SocketAddr>,
        request: Request<EndpointBody>,
        is_h2: bool,
    ) -> Result<Response<Incoming>, String> {
        let again = is_repeatable(&request).then(|| copy(&request));
        let (mut request, mut why) = (request, String::new());
        for address in places {
            loop {
                let kept = self.take_idle(&address);
                let was_kept = kept.is_some();
                let mut sender = match kept {
                    Some(sender) => sender,
                    None => match self.connect(&address, is_h2).await {
                        Ok(sender) => sender,
                        Err(error) => {
                            why = error;
                            break;
                        }
                    },
                };
                if let EndpointSender::Http2(shared) = &sender {
                    self.put_back(address, EndpointSender::Http2(shared.clone()));
                }
                let mut failed = match sender.send(request).await {
                    Ok(response) => {
                        if let EndpointSender::Http1(_) = sender {
                            self.put_back(address, sender);
                        }
                        return Ok(response);
                    }
                    Err(failed) => failed,
                };
                let repeated = || again.as_ref().map(copy);
                match failed.take_message().or_else(repeated) {
                    Some(unsent) => request = unsent,
                    None => return Err(failed.into_error().to_string()),
                }
                if !was_kept {
                    why = failed.into_error().to_string();
                    break;
                }
            }
        }
        Err(why)
    }

    async fn connect(&self, address: &SocketAddr, is_h2: bool) -> Result<EndpointSender, String> {
        if let SocketAddr::V4(to) = address {
            links::request::prepare_once(&self.state, *to)
                .map_err(|errno| dial::error_of(&address.to_string(), &errno.into()))?;
        }
        connect(address, is_h2).await
    }

    fn take_idle(&self, address: &SocketAddr) -> Option<EndpointSender> {
        let mut all = self.lock_idle();
        let kept = all.get_mut(address)?;
        for _ in 0..TRIED.min(kept.len()) {
            let sender = kept.pop_front()?;
            if sender.is_ready() {
                return Some(sender);
            }
            if !sender.is_closed() {
                kept.push_back(sender);
            }
        }
        if kept.is_empty() {
            all.remove(address);
        }
        None
    }

    fn put_back(&self, address: SocketAddr, sender: EndpointSender) {
        let mut all = self.lock_idle();
        let kept = all.entry(address).or_default();
        kept.push_back(sender);
        // The oldest connection is idle, so enough idle ones exist without it.
        if kept.get(MAX_IDLE_CONNECTIONS).is_some_and(|sender| sender.is_ready() || sender.is_closed()) {
            kept.pop_front();
        }
    }
}

async fn connect(address: &SocketAddr, is_h2: bool) -> Result<EndpointSender, String> {
    let late = || io::Error::from(io::ErrorKind::TimedOut);
    let stream = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(low_ports::socket_address(*address))).await;
    let stream =
        stream.unwrap_or_else(|_| Err(late())).map_err(|error| dial::error_of(&address.to_string(), &error))?;
    let _ = stream.set_nodelay(true);
    let stream = TokioIo::new(stream);
    let error_text = |error: hyper::Error| error.to_string();
    if is_h2 {
        let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.map_err(error_text)?;
        tokio::spawn(connection);
        return Ok(EndpointSender::Http2(sender));
    }
    let mut client = http1::Builder::new();
    let (sender, connection) = client.preserve_header_case(true).handshake(stream).await.map_err(error_text)?;
    tokio::spawn(connection.with_upgrades());
    Ok(EndpointSender::Http1(sender))
}

fn is_repeatable(request: &Request<EndpointBody>) -> bool {
    matches!(request.body(), Either::Right(_)) && request.method().is_idempotent()
}

fn copy(request: &Request<EndpointBody>) -> Request<EndpointBody> {
    let mut copy = Request::new(Either::Right(Empty::new()));
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    copy
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    #[test]
    fn connection_closed_without_an_answer_is_retried_on_another() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (rude, kind) =
                (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
            let places = [rude.local_addr().unwrap(), kind.local_addr().unwrap()];
            tokio::spawn(async move {
                loop {
                    let (mut stream, _) = rude.accept().await.unwrap();
                    let _ = stream.read(&mut [0; 512]).await;
                }
            });
            tokio::spawn(async move {
                loop {
                    let (mut stream, _) = kind.accept().await.unwrap();
                    let _ = stream.read(&mut [0; 512]).await;
                    stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
                }
            });
            let pool = EndpointPool::new(Path::new("/nonexistent"));
            for (method, code) in [("GET", Some(204)), ("DELETE", Some(204)), ("POST", None)] {
                let request = Request::builder().method(method).uri("/").body(Either::Right(Empty::new())).unwrap();
                let answer = pool.send(places, request, false).await;
                assert_eq!(answer.ok().map(|answer| answer.status().as_u16()), code, "{method}");
            }
        });
    }
}
