//! Proxy from the rest of the machine into the cluster: a thread that listens at the addresses of Services, at their node ports on
//! localhost and at host ports of pods, and forwards connections and datagrams to endpoints. Pods do not use it, except for datagrams
//! whose answers have to come from the address that they were sent to.
//!
//! Listeners stay open while their route changes, so that no client is refused because of a change.
//! A listener that cannot be opened (a port below 1024 without root, a used port) is reported and tried again regularly.

mod datagrams;
pub mod host_addresses;

use super::super::{ports, relay};
use super::affinity::SessionAffinity;
use super::links::request::RemoteAddresses;
use super::random::random_number;
use super::routes::{self, EndpointChoice};
use super::tables::NetworkTables;
use super::worker_pool::WorkerPool;
use crate::object::{Key, io_error_text};
use crate::world::ingress_routes::{BlockedListener, HostPort};
use crate::world::plan::Route;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use tokio::time::{Instant, timeout};

/// Interval for trying to listen again after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Sends routes to the proxy, which ends when this is dropped.
pub type ProxyCommands = UnboundedSender<ProxyCommand>;

/// Commands to the proxy.
pub enum ProxyCommand {
    /// The listeners of a route.
    Open(Key, Vec<ProxyListener>),
    /// Report the state of a route's listeners, even if it has not changed.
    Ask(Key),
}

/// Reports listeners that could not be opened, whenever that changes.
pub type BlockedPortsCallback = Box<dyn Fn(Key, Vec<BlockedListener>) + Send>;

/// Starts the thread.
pub fn start(state: &Path, tell: BlockedPortsCallback) -> io::Result<ProxyCommands> {
    let (sender, commands) = unbounded_channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let state = state.to_owned();
    let run = move || {
        LocalSet::new().block_on(&runtime, listen(commands, ProxyContext::new(&state), tell));
    };
    std::thread::Builder::new().name("proxy".into()).spawn(run)?;
    Ok(sender)
}

/// State shared by all listeners.
struct ProxyContext {
    /// Routes of Services.
    tables: Rc<NetworkTables>,
    /// Addresses of other machines at which the gateway listens.
    remote: Rc<RefCell<RemoteAddresses>>,
    /// Worker threads.
    workers: Rc<RefCell<WorkerPool>>,
    /// Session affinity.
    affinity: Arc<SessionAffinity>,
}

impl ProxyContext {
    fn new(state: &Path) -> ProxyContext {
        let workers = Rc::new(RefCell::new(WorkerPool::new("proxy")));
        let remote = Rc::new(RefCell::new(RemoteAddresses::new(state)));
        ProxyContext { tables: Rc::new(NetworkTables::for_state(state)), remote, workers, affinity: Arc::default() }
    }
}

/// A listener that a route needs.
#[derive(Clone, Copy, Debug)]
pub struct ProxyListener {
    place: ListenAddress,
    to: ProxyTarget,
    /// Whether there are endpoints; otherwise clients are refused.
    is_used: bool,
}

/// Address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ListenAddress {
    at: SocketAddrV4,
    is_udp: bool,
}

/// Destination.
#[derive(Clone, Copy, Debug)]
enum ProxyTarget {
    /// The current endpoints of this port of the Service at this address.
    Service(Ipv4Addr, u16),
    /// The endpoints of this node port, even while the Service's port changes.
    Node(Ipv4Addr, u16),
    /// A fixed address.
    Pod(SocketAddrV4),
}

/// Returns the external listeners of a Service: its node ports on localhost, and on these addresses.
pub fn listeners_for_service(route: &Route, outside: &[Ipv4Addr]) -> Vec<ProxyListener> {
    let addresses: Vec<Ipv4Addr> = route.addresses().filter_map(|address| address.parse().ok()).collect();
    let Some(service) = addresses.first().copied() else { return Vec::new() };
    let ports = route.ports.iter().filter(|port| matches!(&*port.protocol, "TCP" | "UDP"));
    let listeners = ports.flat_map(|port| {
        let closed = addresses.iter().filter(|_| !port.is_open);
        // The Services of another Kubernetes have addresses that this machine does not have.
        let own = closed.filter(|address| address.is_loopback()).map(|address| SocketAddrV4::new(*address, port.port));
        let nodes = || std::iter::once(&Ipv4Addr::LOCALHOST).chain(outside);
        let node = port.node_port.into_iter().flat_map(|node| nodes().map(move |at| SocketAddrV4::new(*at, node)));
        let is_udp = *port.protocol == *"UDP";
        let own = own.map(|at| (at, ProxyTarget::Service(service, at.port())));
        let node = node.map(|at| (at, ProxyTarget::Node(service, at.port())));
        let is_used = !port.endpoints.is_empty();
        own.chain(node)
            .map(|(at, to)| ProxyListener { place: ListenAddress { at, is_udp }, to, is_used })
            .collect::<Vec<_>>()
    });
    listeners.collect()
}

/// Returns the listeners for the host ports of a pod.
pub fn listeners_for_pod(ports: &[HostPort]) -> Vec<ProxyListener> {
    let place = |port: &HostPort| ListenAddress { at: port.at, is_udp: port.is_udp };
    ports
        .iter()
        .map(|port| ProxyListener { place: place(port), to: ProxyTarget::Pod(port.to), is_used: true })
        .collect()
}

/// Wanted listeners, and the result of opening them.
#[derive(Default)]
struct WantedListeners {
    wanted: Vec<ProxyListener>,
    open: HashMap<ListenAddress, OpenListener>,
    blocked: Vec<BlockedListener>,
}

/// An open listener.
struct OpenListener {
    /// Destination of new clients.
    to: Rc<Cell<ProxyTarget>>,
    task: JoinHandle<()>,
}

async fn listen(mut commands: UnboundedReceiver<ProxyCommand>, context: ProxyContext, tell: BlockedPortsCallback) {
    let mut all: HashMap<Key, WantedListeners> = HashMap::new();
    let mut last = Instant::now();
    let mut is_freed = false;
    loop {
        let patience = if is_freed { Duration::ZERO } else { RETRY_INTERVAL };
        let mut asked = None;
        let concerned = match timeout(patience, commands.recv()).await {
            Ok(None) => return,
            Ok(Some(ProxyCommand::Open(key, wanted))) => {
                all.entry(key.clone()).or_default().wanted = wanted;
                Some(key)
            }
            Ok(Some(ProxyCommand::Ask(key))) => {
                all.entry(key.clone()).or_default();
                asked = Some(key.clone());
                Some(key)
            }
            Err(_) => None,
        };
        // A closed listener may free the address for another one.
        let is_time = std::mem::take(&mut is_freed) || last.elapsed() >= RETRY_INTERVAL;
        last = if is_time { Instant::now() } else { last };
        let waiting = is_time.then(|| all.iter().filter(|(_, listeners)| !listeners.blocked.is_empty()));
        let blocked = waiting.into_iter().flatten().map(|(key, _)| key.clone());
        for key in blocked.chain(concerned).collect::<Vec<_>>() {
            let Some(listeners) = all.get_mut(&key) else { continue };
            is_freed |= listeners.close().await;
            let blocked = listeners.open(&context).await;
            if blocked != listeners.blocked || asked.as_ref() == Some(&key) {
                listeners.blocked = blocked.clone();
                tell(key.clone(), blocked);
            }
            if listeners.wanted.is_empty() {
                all.remove(&key);
            }
        }
    }
}

impl WantedListeners {
    /// Closes listeners that are no longer needed. Returns whether there were any.
    async fn close(&mut self) -> bool {
        let is_wanted =
            |place: &ListenAddress| self.wanted.iter().any(|listener| listener.is_used && listener.place == *place);
        let mut is_any = false;
        for (_, open) in self.open.extract_if(|place, _| !is_wanted(place)) {
            open.task.abort();
            // The address is in use until the task has ended.
            let _ = open.task.await;
            is_any = true;
        }
        is_any
    }

    /// Returns why a listener could not be opened. The process that uses the port is searched only once, because that walks all processes
    /// of the machine.
    fn unopened(&self, place: &ListenAddress, error: &io::Error) -> String {
        let is_reserved = error.kind() == io::ErrorKind::PermissionDenied;
        let is_same = |known: &&BlockedListener| {
            (known.at, known.is_udp, known.is_reserved) == (place.at, place.is_udp, is_reserved)
        };
        if let Some(known) = self.blocked.iter().find(is_same) {
            return known.why.clone();
        }
        let is_taken = error.kind() == io::ErrorKind::AddrInUse && !place.is_udp;
        match is_taken.then(|| ports::holder_at(*place.at.ip(), place.at.port())).flatten() {
            Some(holder) => format!("{}: {holder} listens there", io_error_text(error)),
            None => io_error_text(error),
        }
    }

    /// Opens the wanted listeners and updates their targets; returns those that could not be opened.
    async fn open(&mut self, context: &ProxyContext) -> Vec<BlockedListener> {
        let mut blocked = Vec::new();
        for ProxyListener { place, to, is_used } in &self.wanted {
            if !is_used {
                // Not tried in this round, so the last result stays valid.
                blocked.extend(
                    self.blocked.iter().find(|known| (known.at, known.is_udp) == (place.at, place.is_udp)).cloned(),
                );
                continue;
            }
            if let Some(open) = self.open.get(place) {
                open.to.set(*to);
                continue;
            }
            match place.open(*to, context).await {
                Ok(open) => drop(self.open.insert(*place, open)),
                Err(error) => blocked.push(BlockedListener {
                    at: place.at,
                    is_udp: place.is_udp,
                    is_reserved: error.kind() == io::ErrorKind::PermissionDenied,
                    why: self.unopened(place, &error),
                }),
            }
        }
        blocked
    }
}

impl ListenAddress {
    async fn open(&self, to: ProxyTarget, context: &ProxyContext) -> io::Result<OpenListener> {
        let to = Rc::new(Cell::new(to));
        let affinity = context.affinity.clone();
        let places = self.places(to.clone(), context);
        let task = if self.is_udp {
            let socket = UdpSocket::bind(self.at).await?;
            spawn_local(datagrams::serve(socket, places, affinity))
        } else {
            let listener = TcpListener::bind(self.at).await?;
            let workers = context.workers.clone();
            let serve = move |client: TcpStream, from: SocketAddr| {
                let (choice, affinity) = (places(from), affinity.clone());
                let places = choice.endpoints.iter().copied().map(SocketAddr::V4).collect();
                let record_choice = move |place| match place {
                    SocketAddr::V4(place) => choice.taken(&affinity, place),
                    SocketAddr::V6(_) => {}
                };
                workers
                    .borrow_mut()
                    .spawn_future(client, |client| async { drop(relay::carry(client, places, record_choice).await) });
            };
            spawn_local(relay::accept(listener, serve))
        };
        Ok(OpenListener { to, task })
    }

    /// Returns the destinations for a client, best first, from the same tables that pods' own connections use.
    fn places(
        &self,
        to: Rc<Cell<ProxyTarget>>,
        context: &ProxyContext,
    ) -> impl Fn(SocketAddr) -> EndpointChoice + use<> {
        let ProxyContext { tables, remote, affinity, .. } = context;
        let (tables, remote, affinity) = (tables.clone(), remote.clone(), affinity.clone());
        let is_tcp = !self.is_udp;
        let text = {
            let tables = tables.clone();
            move |service: Ipv4Addr| {
                tables.refresh();
                tables.text(routes::FOLDER, service).unwrap_or_default()
            }
        };
        let choose = move |client: SocketAddr| match (to.get(), client.ip()) {
            (ProxyTarget::Pod(place), _) => EndpointChoice::pick_endpoint(vec![place], 0),
            (ProxyTarget::Service(service, port), IpAddr::V4(client)) => {
                routes::choose(&text(service), port, is_tcp, client, random_number()).preferred(&affinity)
            }
            (ProxyTarget::Node(service, port), IpAddr::V4(client)) => {
                routes::choose_for_node(&text(service), port, is_tcp, client, random_number()).preferred(&affinity)
            }
            (_, IpAddr::V6(_)) => EndpointChoice::default(),
        };
        move |client| {
            let mut choice = choose(client);
            choice.endpoints.retain(|to| remote.borrow_mut().prepare(&tables, *to, is_tcp).is_ok());
            choice
        }
    }
}
