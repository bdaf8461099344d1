//! Where the proxy listens: at port 80, and at 443 while there are certificates, of the address of all Ingresses; elsewhere where
//! the machine does not let it (an ordinary user, a port that is taken), which it tells. Pods find it at 80 and 443 all the same.

use super::{Shared, Tell, forward, tls};
use crate::world::Report;
use crate::world::entrance::{self, Door};
use crate::world::plan::{Route, RoutePort};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;

/// The ports for HTTP, best first; 0 for any that is free.
const HTTP: [u16; 3] = [80, 8080, 0];
/// The same for HTTPS.
const HTTPS: [u16; 3] = [443, 8443, 0];
/// How long a client may take for a handshake, and for the head of a request.
const PATIENCE: Duration = Duration::from_secs(30);

/// One client, until it goes.
type Conversation = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The doors of the proxy.
pub struct Doors {
    state: PathBuf,
    tell: Tell,
    told: entrance::Doors,
    address: Option<Ipv4Addr>,
    http: Option<(Door, AbortHandle)>,
    https: Option<(Door, AbortHandle)>,
}

impl Doors {
    /// All closed.
    pub fn new(state: PathBuf, tell: Tell) -> Doors {
        Doors { state, tell, told: entrance::Doors::default(), address: None, http: None, https: None }
    }

    /// Opens and closes what the Ingresses that are known now need, and tells when that changes anything.
    pub async fn adjust(&mut self, shared: &Arc<Shared>) {
        let (address, is_secure) = {
            let known = shared.known();
            let mut all = known.entrances.values();
            let is_secure = all.clone().any(|entrance| !entrance.certificates.is_empty());
            (all.next().and_then(|entrance| entrance.address.parse().ok()), is_secure)
        };
        if address != self.address {
            close(&mut self.http);
            close(&mut self.https);
        }
        let before = std::mem::replace(&mut self.address, address);
        if let Some(address) = address {
            if self.http.is_none() {
                self.http = open(address, HTTP, |listener, port| serve(listener, plain(shared.clone(), port))).await;
            }
            if is_secure
                && self.https.is_none()
                && let Ok(acceptor) = tls::acceptor(shared.clone())
            {
                let secure = |port| secure(shared.clone(), acceptor.clone(), port);
                self.https = open(address, HTTPS, |listener, port| serve(listener, secure(port))).await;
            }
        }
        if !is_secure {
            close(&mut self.https);
        }
        let door = |open: &Option<(Door, AbortHandle)>| open.as_ref().map(|(door, _)| door.clone()).unwrap_or_default();
        let now = entrance::Doors { http: door(&self.http), https: door(&self.https) };
        if now != self.told {
            self.lead_pods(address.or(before), &now);
            self.told = now.clone();
            (self.tell)(Report::Doors(now));
        }
    }

    /// Pods come in at the usual ports, wherever the doors are. A disk that refuses keeps only pods out.
    fn lead_pods(&self, address: Option<Ipv4Addr>, doors: &entrance::Doors) {
        let Some(address) = address else { return };
        let lead = |port: u16, door: &Door| RoutePort {
            name: "".into(),
            protocol: "TCP".into(),
            port,
            node_port: None,
            sticky: false,
            endpoints: vec![format!("{address}:{}", door.port).into()],
        };
        let both = [(HTTP[0], &doors.http), (HTTPS[0], &doors.https)].into_iter();
        let ports = both.filter(|(_, door)| door.port > 0).map(|(port, door)| lead(port, door)).collect();
        let route = Route { address: address.to_string().into(), ports, ..Route::default() };
        let _ = super::routes::write(&self.state, &route);
    }
}

fn close(door: &mut Option<(Door, AbortHandle)>) {
    if let Some((_, task)) = door.take() {
        task.abort();
    }
}

async fn open(
    address: Ipv4Addr,
    ports: [u16; 3],
    serve: impl FnOnce(TcpListener, u16) -> AbortHandle,
) -> Option<(Door, AbortHandle)> {
    let mut instead = String::new();
    for port in ports {
        match TcpListener::bind((address, port)).await {
            Ok(listener) => {
                let port = listener.local_addr().ok()?.port();
                return Some((Door { port, instead: instead.into() }, serve(listener, port)));
            }
            Err(error) if instead.is_empty() => instead = format!("port {port}: {error}"),
            Err(_) => {}
        }
    }
    None
}

/// Serves a listener until its task is aborted; connections that it has taken go on.
fn serve<F>(listener: TcpListener, handle: impl Fn(TcpStream, SocketAddr) -> F + Send + 'static) -> AbortHandle
where
    F: Future<Output = ()> + Send + 'static,
{
    let accept = async move {
        loop {
            match listener.accept().await {
                Ok((stream, client)) => {
                    let _ = stream.set_nodelay(true);
                    tokio::spawn(handle(stream, client));
                }
                // Out of descriptors, mostly: the client that waits is taken when there is one again.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    tokio::spawn(accept).abort_handle()
}

fn plain(shared: Arc<Shared>, port: u16) -> impl Fn(TcpStream, SocketAddr) -> Conversation + Send + 'static {
    move |stream, client| {
        let visit = forward::Visit { shared: shared.clone(), client, scheme: "http", port };
        Box::pin(talk(stream, visit))
    }
}

fn secure(
    shared: Arc<Shared>,
    acceptor: TlsAcceptor,
    port: u16,
) -> impl Fn(TcpStream, SocketAddr) -> Conversation + Send + 'static {
    move |stream, client| {
        let visit = forward::Visit { shared: shared.clone(), client, scheme: "https", port };
        let handshake = tokio::time::timeout(PATIENCE, acceptor.accept(stream));
        Box::pin(async move {
            match handshake.await {
                Ok(Ok(stream)) if stream.get_ref().1.alpn_protocol() == Some(tls::SECOND) => many(stream, visit).await,
                Ok(Ok(stream)) => talk(stream, visit).await,
                _ => {}
            }
        })
    }
}

/// Answers one client of HTTP/2, with many requests at a time, until it goes.
async fn many(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, visit: forward::Visit) {
    let visit = Arc::new(visit);
    let service = service_fn(move |request| forward::answer(request, visit.clone()));
    let mut server = http2::Builder::new(TokioExecutor::new());
    // One that is dead answers nothing, and would be kept for good.
    server.timer(TokioTimer::new()).keep_alive_interval(PATIENCE).keep_alive_timeout(PATIENCE);
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

/// Answers one client until it goes.
async fn talk(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, visit: forward::Visit) {
    let visit = Arc::new(visit);
    let service = service_fn(move |request| forward::answer(request, visit.clone()));
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(PATIENCE).preserve_header_case(true);
    // Clients that break off are nobody's business.
    let _ = server.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
}
