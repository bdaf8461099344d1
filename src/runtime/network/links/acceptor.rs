//! The end of a link that accepts: connects to pods of this machine for clients on others.
//!
//! Knows: a client's certificate names its node, and a node may use only the addresses of its own pods as sources. NetworkPolicies of this
//! machine apply. Never: connects to an address outside of this machine's block. Start reading at [`accept_links`].

use super::dialer::{Carried, PROTOCOL, SOURCE, UDP};
use super::{
    BUFFER_BYTES, CONNECTION_WINDOW, FRAME_BYTES, KEEP_ALIVE, LinkTable, MAX_STREAMS, RETRY_INTERVAL, STREAM_WINDOW,
    certificates, datagrams,
};
use crate::network::policy::table::PolicyFlow;
use crate::object::{IgnorePoison, io_error_text};
use crate::runtime::low_ports;
use crate::runtime::network::policies;
use crate::runtime::network::tables::NetworkTables;
use crate::runtime::relay::pause_accepting;
use crate::world::policy::Cidr;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper::upgrade::Upgraded;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

/// Maximum number of connections that are not proven yet, from one address; others are closed at once. And of all; others wait.
const HANDSHAKES: usize = 8;
const ALL_HANDSHAKES: usize = 256;
/// Maximum number of links of one node: a new one may be opened before the end of the old one is detected.
const LINKS: usize = 4;
/// Time limit of a handshake, and of connecting to a pod.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Accepts links until this task is aborted.
pub async fn accept_links(table: Arc<LinkTable>, address: SocketAddr) {
    let mut logged = None;
    let listener = loop {
        match TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(error) => {
                let why = format!("cannot listen on {address}: {}", io_error_text(error));
                if logged.as_ref() != Some(&why) {
                    (table.report)("".into(), Some(why.clone()));
                    logged = Some(why);
                }
                sleep(RETRY_INTERVAL).await;
            }
        }
    };
    (table.report)("".into(), table.acceptor().err());
    let counts = LinkCounts::default();
    let all = Arc::new(Semaphore::new(ALL_HANDSHAKES));
    let mut tasks = tokio::task::JoinSet::new();
    loop {
        let Ok(permit) = all.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, from)) => {
                let Some(handshake) = counts.count_link(from.ip().to_string(), HANDSHAKES) else { continue };
                let counted = (handshake, permit);
                tasks.spawn(serve_link(table.clone(), stream, counts.clone(), counted));
            }
            Err(_) => pause_accepting().await,
        }
        while tasks.try_join_next().is_some() {}
    }
}

/// Numbers of connections, by address before the handshake and by node after it.
#[derive(Clone, Default)]
struct LinkCounts(Arc<Mutex<HashMap<String, usize>>>);

/// A counted connection. It is no longer counted when this value is dropped.
struct CountedLink(LinkCounts, String);

impl LinkCounts {
    /// Counts a new connection; `None` if there are already `most`.
    fn count_link(&self, by: String, most: usize) -> Option<CountedLink> {
        let mut counts = self.0.lock().ignore_poison();
        let count = counts.entry(by.clone()).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(CountedLink(self.clone(), by))
    }
}

impl Drop for CountedLink {
    fn drop(&mut self) {
        let mut counts = self.0.0.lock().ignore_poison();
        if let Some(count) = counts.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.1);
            }
        }
    }
}

async fn serve_link(
    table: Arc<LinkTable>,
    stream: TcpStream,
    counts: LinkCounts,
    handshake: (CountedLink, OwnedSemaphorePermit),
) {
    let _ = stream.set_nodelay(true);
    let Ok(acceptor) = table.acceptor() else { return };
    let Ok(Ok(stream)) = timeout(CONNECT_TIMEOUT, acceptor.accept(stream)).await else { return };
    let Some(node) = certificates::node_of(stream.get_ref().1.peer_certificates()) else { return };
    let Some(_link) = counts.count_link(format!("node {node}"), LINKS) else { return };
    drop(handshake);
    let node: Arc<str> = node.into();
    let service = service_fn(move |request| answer(table.clone(), node.clone(), request));
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME_BYTES)
        .max_concurrent_streams(MAX_STREAMS)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE);
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

/// A refusal: the status and its reason.
type Refusal = (StatusCode, String);

async fn answer(
    table: Arc<LinkTable>,
    node: Arc<str>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.method() == Method::GET {
        return Ok(greet(&table, &node));
    }
    let (status, text) = match connect_to_pod(&table, &node, &request).await {
        Ok(server) => {
            tokio::spawn(async move {
                if let Ok(client) = hyper::upgrade::on(request).await {
                    server.carry(TokioIo::new(client)).await;
                }
            });
            (StatusCode::OK, String::new())
        }
        Err(refusal) => refusal,
    };
    Ok(text_response(status, text))
}

fn text_response(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
}

/// Answers the first request of a link: whether the node is linked.
fn greet(table: &LinkTable, node: &str) -> Response<Full<Bytes>> {
    match linked_block(table, node) {
        Ok(_) => text_response(StatusCode::OK, String::new()),
        Err((status, why)) => text_response(status, why),
    }
}

fn linked_block(table: &LinkTable, node: &str) -> Result<Cidr, Refusal> {
    table.block_of(node).ok_or_else(|| (StatusCode::FORBIDDEN, format!("node {node} is not linked")))
}

/// A socket that is connected to a pod.
enum PodSocket {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

impl PodSocket {
    /// Connects, from this address.
    async fn connect(to: SocketAddrV4, source: Option<Ipv4Addr>, carried: Carried) -> io::Result<PodSocket> {
        let to = low_ports::moved_address(to);
        let from = SocketAddrV4::new(source.unwrap_or(Ipv4Addr::LOCALHOST), 0);
        if carried == Carried::Datagrams {
            let socket = UdpSocket::bind(from).await?;
            socket.connect(to).await?;
            return Ok(PodSocket::Udp(socket));
        }
        let socket = TcpSocket::new_v4()?;
        socket.bind(from.into())?;
        let stream = socket.connect(to.into()).await?;
        let _ = stream.set_nodelay(true);
        Ok(PodSocket::Tcp(stream))
    }

    async fn carry(self, mut client: TokioIo<Upgraded>) {
        match self {
            PodSocket::Tcp(mut server) => {
                let _ = copy_bidirectional_with_sizes(&mut client, &mut server, BUFFER_BYTES, BUFFER_BYTES).await;
            }
            PodSocket::Udp(socket) => datagrams::relay_socket(client, socket).await,
        }
    }
}

async fn connect_to_pod(table: &LinkTable, node: &str, request: &Request<Incoming>) -> Result<PodSocket, Refusal> {
    let carried = match request.headers().get(PROTOCOL) {
        Some(protocol) if protocol == UDP => Carried::Datagrams,
        Some(_) => return Err((StatusCode::BAD_REQUEST, "unknown protocol".to_owned())),
        None => Carried::Connection,
    };
    let (to, source) = destination(table, node, request, carried)?;
    let connected = timeout(CONNECT_TIMEOUT, PodSocket::connect(to, source, carried)).await;
    let connected = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    connected.map_err(|error| (StatusCode::BAD_GATEWAY, format!("{to}: {}", io_error_text(error))))
}

/// Returns the pod's address and port, and the address of the client's pod, if the node may ask for that.
fn destination(
    table: &LinkTable,
    node: &str,
    request: &Request<Incoming>,
    carried: Carried,
) -> Result<(SocketAddrV4, Option<Ipv4Addr>), Refusal> {
    let refuse = |why: String| (StatusCode::FORBIDDEN, why);
    if request.method() != Method::CONNECT {
        return Err((StatusCode::METHOD_NOT_ALLOWED, "a link carries connections only".to_owned()));
    }
    let to = request.uri().authority().and_then(|authority| authority.as_str().parse::<SocketAddrV4>().ok());
    let to = to.ok_or_else(|| (StatusCode::BAD_REQUEST, "no address and port of a pod".to_owned()))?;
    let is_here = table.own_block().is_some_and(|own| own.contains(*to.ip())) && table.peer_of(*to.ip()).is_none();
    if !is_here {
        return Err(refuse(format!("{} is not an address of this machine's pods", to.ip())));
    }
    let block = linked_block(table, node)?;
    let source = request.headers().get(SOURCE).map(|source| source.to_str().unwrap_or_default().parse::<Ipv4Addr>());
    let source = match source {
        None => None,
        Some(Ok(source)) if block.contains(source) && !table.own_block().is_some_and(|own| own.contains(source)) => {
            Some(source)
        }
        Some(_) => return Err(refuse(format!("node {node} does not speak for this client"))),
    };
    if let Some(from) = source {
        let protocol = if carried == Carried::Datagrams { "udp" } else { "tcp" };
        check_policies(table, &PolicyFlow { from, to, protocol })?;
    }
    Ok((to, source))
}

fn check_policies(table: &LinkTable, flow: &PolicyFlow<'_>) -> Result<(), Refusal> {
    let tables = NetworkTables::for_state(&table.state);
    match policies::denial(&tables, flow) {
        Ok(None) => Ok(()),
        Ok(Some(denial)) => {
            Err((StatusCode::FORBIDDEN, format!("denied by NetworkPolicy {}", denial.policies.join(", "))))
        }
        Err(error) => Err((StatusCode::SERVICE_UNAVAILABLE, io_error_text(error))),
    }
}
