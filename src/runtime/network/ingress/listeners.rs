//! Listeners of the Ingress proxy at the address of all Ingresses: port 80, and 443 while there are certificates. Where the machine forbids
//! these ports (an ordinary user, a used port), other ports are used and reported. Pods always find the proxy at 80 and 443.

use super::super::super::relay;
use super::super::worker_pool::WorkerPool;
use super::forward::{self, IngressClient};
use super::{ListenersCallback, SharedIngress, tls};
use crate::object::io_error_text;
use crate::world::Report;
use crate::world::ingress_routes::{self, IngressListener};
use crate::world::plan::{Route, RoutePort};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::cell::RefCell;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, spawn_local};
use tokio_rustls::TlsAcceptor;

/// The ports for HTTP, best first; 0 for any free port.
const HTTP: [u16; 3] = [80, 8080, 0];
/// The ports for HTTPS.
const HTTPS: [u16; 3] = [443, 8443, 0];
/// Time limit for a handshake, and for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves one client until it disconnects.
type ClientConnection = Pin<Box<dyn Future<Output = ()>>>;

/// The listeners of the proxy.
pub struct OpenIngressListeners {
    state: PathBuf,
    tell: ListenersCallback,
    /// Worker threads.
    workers: Rc<RefCell<WorkerPool>>,
    reported: ingress_routes::IngressListeners,
    address: Option<Ipv4Addr>,
    http: Option<(IngressListener, AbortHandle)>,
    https: Option<(IngressListener, AbortHandle)>,
}

impl OpenIngressListeners {
    /// Makes a proxy without open listeners.
    pub fn new(state: PathBuf, tell: ListenersCallback) -> OpenIngressListeners {
        let workers = Rc::new(RefCell::new(WorkerPool::new("ingress")));
        OpenIngressListeners {
            state,
            tell,
            workers,
            reported: ingress_routes::IngressListeners::default(),
            address: None,
            http: None,
            https: None,
        }
    }

    /// Opens and closes listeners as the current Ingresses need them, and reports changes.
    pub async fn adjust(&mut self, shared: &Arc<SharedIngress>) {
        let (address, is_secure) = {
            let known = shared.lock_state();
            let mut all = known.ingress_routes.values();
            let is_secure = all.clone().any(|ingress_route| !ingress_route.certificates.is_empty());
            (all.next().and_then(|ingress_route| ingress_route.address.parse().ok()), is_secure)
        };
        if address != self.address {
            close(&mut self.http);
            close(&mut self.https);
        }
        let before = std::mem::replace(&mut self.address, address);
        let workers = &self.workers;
        if let Some(address) = address {
            if self.http.is_none() {
                self.http =
                    open(address, HTTP, |listener, port| serve(listener, workers, plain(shared.clone(), port))).await;
            }
            if is_secure
                && self.https.is_none()
                && let Ok(acceptor) = tls::acceptor(shared.clone())
            {
                let secure = |port| secure(shared.clone(), acceptor.clone(), port);
                self.https = open(address, HTTPS, |listener, port| serve(listener, workers, secure(port))).await;
            }
        }
        if !is_secure {
            close(&mut self.https);
        }
        let address_of = |open: &Option<(IngressListener, AbortHandle)>| {
            open.as_ref().map(|(listener, _)| listener.clone()).unwrap_or_default()
        };
        let now = ingress_routes::IngressListeners { http: address_of(&self.http), https: address_of(&self.https) };
        if now != self.reported {
            self.redirect_pods(address.or(before), &now);
            self.reported = now.clone();
            (self.tell)(Report::IngressListeners(now));
        }
    }

    /// Redirects pods from the usual ports to the actual listeners. A failed write affects only pods.
    fn redirect_pods(&self, address: Option<Ipv4Addr>, listeners: &ingress_routes::IngressListeners) {
        let Some(address) = address else { return };
        let route_port = |port: u16, listener: &IngressListener| RoutePort {
            name: "".into(),
            protocol: "TCP".into(),
            port,
            node_port: None,
            is_open: false,
            sticky: None,
            is_h2: false,
            endpoints: vec![format!("{address}:{}", listener.port).into()],
        };
        let both = [(HTTP[0], &listeners.http), (HTTPS[0], &listeners.https)].into_iter();
        let ports =
            both.filter(|(_, listener)| listener.port > 0).map(|(port, listener)| route_port(port, listener)).collect();
        let route = Route { address: address.to_string().into(), ports, ..Route::default() };
        let _ = super::routes::write(&self.state, &route);
    }
}

fn close(listener: &mut Option<(IngressListener, AbortHandle)>) {
    if let Some((_, task)) = listener.take() {
        task.abort();
    }
}

async fn open(
    address: Ipv4Addr,
    ports: [u16; 3],
    serve: impl FnOnce(TcpListener, u16) -> AbortHandle,
) -> Option<(IngressListener, AbortHandle)> {
    let mut instead = String::new();
    for port in ports {
        match TcpListener::bind((address, port)).await {
            Ok(listener) => {
                let port = listener.local_addr().ok()?.port();
                return Some((IngressListener { port, instead: instead.into() }, serve(listener, port)));
            }
            Err(error) if instead.is_empty() => instead = format!("port {port}: {error}", error = io_error_text(error)),
            Err(_) => {}
        }
    }
    None
}

/// The first bytes of a client of HTTP/2 (RFC 9113, 3.4).
const PREFACE: &[u8; 14] = b"PRI * HTTP/2.0";

/// Serves a listener until its task is aborted; accepted connections continue.
fn serve<F: Future<Output = ()> + 'static>(
    listener: TcpListener,
    workers: &Rc<RefCell<WorkerPool>>,
    talk: impl Fn(TcpStream, SocketAddr) -> F + Clone + Send + 'static,
) -> AbortHandle {
    let workers = workers.clone();
    let serve = move |client: TcpStream, from: SocketAddr| {
        let _ = client.set_nodelay(true);
        let talk = talk.clone();
        workers.borrow_mut().spawn_future(client, move |client| talk(client, from));
    };
    spawn_local(relay::accept(listener, serve)).abort_handle()
}

fn plain(
    shared: Arc<SharedIngress>,
    port: u16,
) -> impl Fn(TcpStream, SocketAddr) -> ClientConnection + Clone + Send + 'static {
    move |stream, client| {
        let visit = IngressClient::new(shared.clone(), client, "http", port);
        Box::pin(async move {
            match begins_with_http2(&stream).await {
                true => serve_http2(stream, visit, HEAD_TIMEOUT).await,
                false => talk(stream, visit).await,
            }
        })
    }
}

/// Whether a client starts with HTTP/2 without negotiation, as gRPC clients do: the preface is not a valid HTTP/1 request.
async fn begins_with_http2(stream: &TcpStream) -> bool {
    let mut first = [0; PREFACE.len()];
    let seen = tokio::time::timeout(HEAD_TIMEOUT, stream.peek(&mut first)).await;
    matches!(seen, Ok(Ok(length)) if length >= 3 && PREFACE.starts_with(&first[..length]))
}

fn secure(
    shared: Arc<SharedIngress>,
    acceptor: TlsAcceptor,
    port: u16,
) -> impl Fn(TcpStream, SocketAddr) -> ClientConnection + Clone + Send + 'static {
    move |stream, client| {
        let visit = IngressClient::new(shared.clone(), client, "https", port);
        let handshake = tokio::time::timeout(HEAD_TIMEOUT, acceptor.accept(stream));
        Box::pin(async move {
            match handshake.await {
                Ok(Ok(stream)) if stream.get_ref().1.alpn_protocol() == Some(tls::SECOND) => {
                    serve_http2(stream, visit, HEAD_TIMEOUT).await
                }
                Ok(Ok(stream)) => talk(stream, visit).await,
                _ => {}
            }
        })
    }
}

/// Serves one HTTP/2 client, with concurrent requests, until it disconnects or does not answer a ping in time.
async fn serve_http2(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    visit: IngressClient,
    patience: Duration,
) {
    let visit = Arc::new(visit);
    let service = service_fn(move |request| forward::answer(request, visit.clone()));
    let mut server = http2::Builder::new(TokioExecutor::new());
    // Pings detect a dead client, whose connection would otherwise stay open.
    server.timer(TokioTimer::new()).keep_alive_interval(patience).keep_alive_timeout(patience);
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

/// Serves one HTTP/1 client until it disconnects.
async fn talk(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, visit: IngressClient) {
    let visit = Arc::new(visit);
    let service = service_fn(move |request| forward::answer(request, visit.clone()));
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).preserve_header_case(true);
    // Broken connections of clients are not errors here.
    let _ = server.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Type of a PING frame (RFC 9113, 6.7).
    const PING: u8 = 6;

    #[test]
    fn http2_client_that_answers_no_ping_is_disconnected() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let (mut client, server) = tokio::io::duplex(1 << 16);
            let visit = IngressClient::new(SharedIngress::for_tests(), "127.0.0.1:9".parse().unwrap(), "https", 443);
            let served = spawn_local(serve_http2(server, visit, Duration::from_millis(20)));
            // The preface and empty settings only.
            client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
            served.await.unwrap();
            let mut said = Vec::new();
            client.read_to_end(&mut said).await.unwrap();
            let mut kinds = Vec::new();
            while let [a, b, c, kind, ..] = said[..] {
                kinds.push(kind);
                said.drain(..9 + u32::from_be_bytes([0, a, b, c]) as usize);
            }
            assert!(kinds.contains(&PING), "a ping was sent: {kinds:?}");
        });
    }
}
