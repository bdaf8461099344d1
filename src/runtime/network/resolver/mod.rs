//! The DNS resolver: a thread of the gateway that answers queries of pods over UDP and TCP, and forwards queries for other names to the
//! machine's own resolver.
//!
//! Pods need not know its address: their shim redirects queries to any server of the machine at port 53 here, as long as it listens.
//! Knows: sockets. [`message`] computes the answers; [`upstream`] queries the machine's resolver. Start reading at [`start`].

mod message;
mod upstream;

use super::super::relay;
use super::{routes, socket_calls};
use crate::network::names::DnsDirectory;
use crate::world::ingress_routes;
use crate::world::plan::{Route, RoutePort};
use message::{DnsAnswer, ForwardedQuery};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, UdpSocket};
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::timeout;

/// Maximum number of concurrent queries to the machine's resolver; more are refused.
const ASKED: usize = 256;
/// Maximum number of concurrent connections; more are closed.
const CONNECTIONS: usize = 256;
/// Maximum idle time of a connection (RFC 7766: some seconds).
const IDLE: Duration = Duration::from_secs(10);
/// The longest message.
const MAX_MESSAGE_BYTES: usize = 65_535;
/// Maximum attempts to find a port that is free for both protocols.
const MAX_PORT_ATTEMPTS: usize = 16;

/// Directory shared between the resolver and its caller.
pub type SharedDirectory = Arc<Mutex<DnsDirectory>>;

/// Starts the resolver and redirects the cluster's pods to it. It listens at a port of its own, and where the machine allows it also at the
/// cluster's DNS address, for programs that accept replies only from there. It ends with the process.
pub fn start(state: &Path, network: u8, directory: &SharedDirectory) -> io::Result<()> {
    let cluster_address = ingress_routes::resolver(network);
    let own = ResolverListener::at_any_port()?;
    publish_route(state, &own)?;
    message::locked(directory).serve_at(cluster_address);
    let at_cluster_address = ResolverListener::open(SocketAddrV4::new(cluster_address, routes::DNS_PORT))
        .map(|listener| ResolverListener { completes: false, ..listener });
    let listeners = std::iter::once(own).chain(at_cluster_address.ok()).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let context = ResolverContext {
        directory: directory.clone(),
        cluster_address,
        asked: Semaphore::new(ASKED),
        open: Semaphore::new(CONNECTIONS),
    };
    let run = move || LocalSet::new().block_on(&runtime, listen(listeners, Rc::new(context)));
    std::thread::Builder::new().name("resolver".into()).spawn(run)?;
    Ok(())
}

/// Returns the address at which the cluster's resolver answers the rest of the machine; `None` while it does not run.
pub fn resolver_address(state: &Path, network: u8) -> Option<SocketAddrV4> {
    let cluster_address = SocketAddrV4::new(ingress_routes::resolver(network), routes::DNS_PORT);
    let text = std::fs::read_to_string(state.join(routes::FOLDER).join(routes::DNS)).unwrap_or_default();
    let own = routes::choose(&text, routes::DNS_PORT, false, Ipv4Addr::LOCALHOST, 0).endpoints;
    std::iter::once(cluster_address).chain(own).find(|place| socket_calls::is_bound_here(*place.ip(), place.port()))
}

/// One address that receives queries.
struct ResolverListener {
    datagrams: UdpSocket,
    /// `None` when another program uses the TCP port.
    connections: Option<TcpListener>,
    /// Whether clients here use the machine's `/etc/resolv.conf`; clients that know this address have their own file, with a search path.
    completes: bool,
}

impl ResolverListener {
    fn open(place: SocketAddrV4) -> io::Result<ResolverListener> {
        let datagrams = UdpSocket::bind(place)?;
        Ok(ResolverListener {
            connections: TcpListener::bind(datagrams.local_addr()?).ok(),
            datagrams,
            completes: true,
        })
    }

    fn at_any_port() -> io::Result<ResolverListener> {
        let mut resolver = ResolverListener::open(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        for _ in 0..MAX_PORT_ATTEMPTS {
            if resolver.connections.is_some() {
                break;
            }
            resolver = ResolverListener::open(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        }
        Ok(resolver)
    }
}

fn publish_route(state: &Path, resolver: &ResolverListener) -> io::Result<()> {
    let place = resolver.datagrams.local_addr()?.to_string();
    let port = |protocol: &str| RoutePort {
        name: "dns".into(),
        protocol: protocol.into(),
        port: routes::DNS_PORT,
        node_port: None,
        is_open: false,
        sticky: None,
        is_h2: false,
        endpoints: vec![place.as_str().into()],
    };
    let ports = std::iter::once(port("UDP")).chain(resolver.connections.iter().map(|_| port("TCP"))).collect();
    routes::write(state, &Route { address: routes::DNS.into(), ports, ..Route::default() })
}

/// State shared by all listeners.
struct ResolverContext {
    directory: SharedDirectory,
    /// The cluster's DNS address, which is never queried as an upstream server.
    cluster_address: Ipv4Addr,
    asked: Semaphore,
    open: Semaphore,
}

async fn listen(listeners: Vec<ResolverListener>, context: Rc<ResolverContext>) {
    for resolver in listeners {
        let (datagrams, connections) = (context.clone(), context.clone());
        if let Some(socket) = asynchronous(resolver.datagrams) {
            spawn_local(take_datagrams(Rc::new(socket), datagrams, resolver.completes));
        }
        let listener = resolver.connections.filter(|listener| listener.set_nonblocking(true).is_ok());
        if let Some(Ok(listener)) = listener.map(tokio::net::TcpListener::from_std) {
            let serve = move |stream, from| {
                drop(spawn_local(serve_connection(stream, from, connections.clone(), resolver.completes)))
            };
            spawn_local(relay::accept(listener, serve));
        }
    }
    std::future::pending().await
}

fn asynchronous(socket: UdpSocket) -> Option<tokio::net::UdpSocket> {
    socket.set_nonblocking(true).ok()?;
    tokio::net::UdpSocket::from_std(socket).ok()
}

async fn take_datagrams(socket: Rc<tokio::net::UdpSocket>, context: Rc<ResolverContext>, completes: bool) {
    let mut bytes = vec![0; MAX_MESSAGE_BYTES];
    loop {
        let Ok((length, client)) = socket.recv_from(&mut bytes).await else { continue };
        match message::answer(&bytes[..length], client, &context.directory, false, completes) {
            Some(DnsAnswer::Known(reply)) => drop(socket.send_to(&reply, client).await),
            Some(DnsAnswer::Ask(forward)) => {
                let (socket, context) = (socket.clone(), context.clone());
                spawn_local(async move {
                    if let Some(reply) = context.query_upstream(&forward).await {
                        let _ = socket.send_to(&reply, client).await;
                    }
                });
            }
            None => {}
        }
    }
}

/// Answers the queries on a connection one after the other, until the client closes it (RFC 7766).
async fn serve_connection(
    mut stream: TcpStream,
    client: SocketAddr,
    context: Rc<ResolverContext>,
    completes: bool,
) -> io::Result<()> {
    let Ok(_open) = context.open.try_acquire() else { return Ok(()) };
    stream.set_nodelay(true)?;
    loop {
        let length = timeout(IDLE, stream.read_u16()).await??;
        let mut bytes = vec![0; length.into()];
        timeout(IDLE, stream.read_exact(&mut bytes)).await??;
        let reply = match message::answer(&bytes, client, &context.directory, true, completes) {
            Some(DnsAnswer::Known(reply)) => Some(reply),
            Some(DnsAnswer::Ask(forward)) => context.query_upstream(&forward).await,
            None => None,
        };
        let Some(reply) = reply else { return Ok(()) };
        timeout(IDLE, stream.write_all(&message::framed(&reply))).await??;
    }
}

impl ResolverContext {
    /// Queries the machine's resolver; returns SERVFAIL when it does not answer.
    async fn query_upstream(&self, forward: &ForwardedQuery) -> Option<Vec<u8>> {
        let reply = match self.asked.try_acquire() {
            Ok(_asked) => upstream::query(forward, self.cluster_address).await,
            Err(_) => None,
        };
        reply.or_else(|| message::failure(forward))
    }
}
