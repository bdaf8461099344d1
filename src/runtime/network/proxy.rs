//! The way into the cluster for the rest of the machine: a thread of the control plane that listens where Services are to be found
//! (their addresses, and their node ports on localhost) and carries connections to their endpoints. Pods do not come this way.
//!
//! Where it may not listen (a port below 1024 without root, one that is taken) a Service is not to be had from outside.

use super::super::relay;
use super::routes;
use crate::object::Key;
use crate::world::plan::Route;
use std::collections::HashMap;
use std::future::ready;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{AbortHandle, LocalSet, spawn_local};

/// Where routes are told to the proxy. It ends when this is dropped.
pub type Teller = UnboundedSender<(Key, Route)>;

/// Starts the thread.
pub fn start(state: PathBuf) -> io::Result<Teller> {
    let (teller, told) = unbounded_channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let run = move || LocalSet::new().block_on(&runtime, listen(told, state.join(routes::FOLDER)));
    std::thread::Builder::new().name("proxy".into()).spawn(run)?;
    Ok(teller)
}

/// Doors of a Service: where it listens, and the port that it has there.
type Doors = HashMap<SocketAddrV4, AbortHandle>;

async fn listen(mut told: UnboundedReceiver<(Key, Route)>, folder: PathBuf) {
    let mut services: HashMap<Key, Doors> = HashMap::new();
    while let Some((service, route)) = told.recv().await {
        let wanted = doors(&route);
        let open = services.entry(service).or_default();
        open.retain(|door, task| {
            let stays = wanted.iter().any(|(at, _)| at == door);
            if !stays {
                task.abort();
            }
            stays
        });
        for (door, port) in wanted {
            if open.contains_key(&door) {
                continue;
            }
            let Ok(listener) = TcpListener::bind(door).await else { continue };
            let (folder, address) = (folder.clone(), route.address.to_string());
            let places = move |client: SocketAddr| {
                let IpAddr::V4(client) = client.ip() else { return ready(Vec::new()) };
                // Read at this moment, as the pods' own connections are led.
                let endpoints = routes::endpoints(&folder, &address, port, true, client);
                ready(endpoints.into_iter().map(SocketAddr::V4).collect())
            };
            open.insert(door, spawn_local(relay::serve(listener, places, |_| {})).abort_handle());
        }
        services.retain(|_, doors| !doors.is_empty());
    }
}

/// Where a Service is to be found from outside, each place with the port of the Service that it stands for.
fn doors(route: &Route) -> Vec<(SocketAddrV4, u16)> {
    let addresses: Vec<Ipv4Addr> = route.addresses().filter_map(|address| address.parse().ok()).collect();
    // Where nobody is, a client is refused at the door.
    let ports = route.ports.iter().filter(|port| *port.protocol == *"TCP" && !port.endpoints.is_empty());
    let doors = ports.flat_map(|port| {
        let own = addresses.iter().map(|address| (SocketAddrV4::new(*address, port.port), port.port));
        let node = port.node_port.map(|node| (SocketAddrV4::new(Ipv4Addr::LOCALHOST, node), port.port));
        own.chain(node)
    });
    doors.collect()
}
