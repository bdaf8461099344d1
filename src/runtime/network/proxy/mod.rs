//! The way into the cluster for the rest of the machine: a thread that listens where Services are to be found (their addresses, and
//! their node ports on localhost) and where pods want ports of the machine, and carries connections and datagrams to where they lead.
//! Pods do not come this way, but for datagrams whose answers have to come from where they were sent.
//!
//! Where it may not listen (a port below 1024 without root, one that is taken) it says so, and tries again now and then.

mod datagrams;
pub mod outside;

use super::super::relay;
use super::routes;
use super::tables::Tables;
use crate::object::Key;
use crate::world::entrance::{Blocked, HostPort};
use crate::world::plan::Route;
use std::collections::HashMap;
use std::future::ready;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{AbortHandle, LocalSet, spawn_local};
use tokio::time::{Instant, timeout};

/// How often it is tried again to listen where that was refused.
const AGAIN: Duration = Duration::from_secs(5);

/// Where the proxy is told what leads where. It ends when this is dropped.
pub type Teller = UnboundedSender<(Key, Vec<Door>)>;

/// Tells where the proxy could not listen for somebody, whenever that has changed.
pub type Tell = Box<dyn Fn(Key, Vec<Blocked>) + Send>;

/// Starts the thread.
pub fn start(state: &Path, tell: Tell) -> io::Result<Teller> {
    let (teller, told) = unbounded_channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let state = state.to_owned();
    let run = move || LocalSet::new().block_on(&runtime, listen(told, Rc::new(Tables::of(&state)), tell));
    std::thread::Builder::new().name("proxy".into()).spawn(run)?;
    Ok(teller)
}

/// One place where the proxy listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Door {
    at: SocketAddrV4,
    is_udp: bool,
    to: To,
}

/// Where it leads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum To {
    /// To the endpoints of this port of the Service at this address, as they are at that moment.
    Service(Ipv4Addr, u16),
    /// To one place.
    Pod(SocketAddrV4),
}

/// Where a Service is to be found from outside: its node ports at localhost, and at these addresses.
pub fn doors(route: &Route, outside: &[Ipv4Addr]) -> Vec<Door> {
    let addresses: Vec<Ipv4Addr> = route.addresses().filter_map(|address| address.parse().ok()).collect();
    let Some(service) = addresses.first().copied() else { return Vec::new() };
    // Where nobody is, a client is refused at the door.
    let ports =
        route.ports.iter().filter(|port| matches!(&*port.protocol, "TCP" | "UDP") && !port.endpoints.is_empty());
    let doors = ports.flat_map(|port| {
        let own = addresses.iter().map(|address| SocketAddrV4::new(*address, port.port));
        let nodes = || std::iter::once(&Ipv4Addr::LOCALHOST).chain(outside);
        let node = port.node_port.into_iter().flat_map(|node| nodes().map(move |at| SocketAddrV4::new(*at, node)));
        let to = To::Service(service, port.port);
        own.chain(node).map(move |at| Door { at, is_udp: *port.protocol == *"UDP", to: to.clone() }).collect::<Vec<_>>()
    });
    doors.collect()
}

/// The ports of the machine that a pod wants.
pub fn of_pod(ports: &[HostPort]) -> Vec<Door> {
    ports.iter().map(|port| Door { at: port.at, is_udp: port.is_udp, to: To::Pod(port.to) }).collect()
}

/// What somebody wants, and what came of it.
#[derive(Default)]
struct Doors {
    wanted: Vec<Door>,
    open: HashMap<Door, AbortHandle>,
    blocked: Vec<Blocked>,
}

async fn listen(mut told: UnboundedReceiver<(Key, Vec<Door>)>, tables: Rc<Tables>, tell: Tell) {
    let mut all: HashMap<Key, Doors> = HashMap::new();
    let mut last = Instant::now();
    loop {
        let concerned = match timeout(AGAIN, told.recv()).await {
            Ok(None) => return,
            Ok(Some((key, wanted))) => {
                all.entry(key.clone()).or_default().wanted = wanted;
                vec![key]
            }
            Err(_) => Vec::new(),
        };
        let is_time = last.elapsed() >= AGAIN;
        last = if is_time { Instant::now() } else { last };
        let blocked = all.iter().filter(|(_, doors)| is_time && !doors.blocked.is_empty()).map(|(key, _)| key.clone());
        for key in blocked.chain(concerned).collect::<Vec<_>>() {
            let Some(doors) = all.get_mut(&key) else { continue };
            let blocked = doors.adjust(&tables).await;
            if blocked != doors.blocked {
                doors.blocked = blocked.clone();
                tell(key.clone(), blocked);
            }
            if doors.wanted.is_empty() {
                all.remove(&key);
            }
        }
    }
}

impl Doors {
    /// Opens and closes; gives those that could not be opened.
    async fn adjust(&mut self, tables: &Rc<Tables>) -> Vec<Blocked> {
        self.open.retain(|door, task| {
            let stays = self.wanted.contains(door);
            if !stays {
                task.abort();
            }
            stays
        });
        let mut blocked = Vec::new();
        for door in &self.wanted {
            if self.open.contains_key(door) {
                continue;
            }
            match door.open(tables).await {
                Ok(task) => drop(self.open.insert(door.clone(), task)),
                Err(error) => blocked.push(Blocked {
                    at: door.at,
                    is_udp: door.is_udp,
                    is_reserved: error.kind() == io::ErrorKind::PermissionDenied,
                    why: error.to_string().split(" (os error").next().unwrap_or_default().to_owned(),
                }),
            }
        }
        blocked
    }
}

impl Door {
    async fn open(&self, tables: &Rc<Tables>) -> io::Result<AbortHandle> {
        let places = self.places(tables);
        if self.is_udp {
            let socket = UdpSocket::bind(self.at).await?;
            return Ok(spawn_local(datagrams::serve(socket, places)).abort_handle());
        }
        let listener = TcpListener::bind(self.at).await?;
        let places = move |client: SocketAddr| ready(places(client).into_iter().map(SocketAddr::V4).collect());
        Ok(spawn_local(relay::serve(listener, places, |_| {})).abort_handle())
    }

    /// Where a client is led, best first: read at this moment, as the pods' own connections are led.
    fn places(&self, tables: &Rc<Tables>) -> impl Fn(SocketAddr) -> Vec<SocketAddrV4> + 'static {
        let (to, tables, is_tcp) = (self.to.clone(), tables.clone(), !self.is_udp);
        move |client| match (&to, client.ip()) {
            (To::Pod(place), _) => vec![*place],
            (To::Service(address, port), IpAddr::V4(client)) => {
                tables.look();
                let text = tables.text(routes::FOLDER, address.to_string()).unwrap_or_default();
                routes::choose(&text, *port, is_tcp, client, routes::chance())
            }
            (To::Service(..), IpAddr::V6(_)) => Vec::new(),
        }
    }
}
