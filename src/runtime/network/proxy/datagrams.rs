//! Forwarding of datagrams: each client has its own socket to its endpoint, and replies leave from the address that the client has sent to.

use super::super::super::low_ports;
use super::super::affinity::SessionAffinity;
use super::super::longest_idle::make_room;
use super::super::routes::EndpointChoice;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::{Instant, timeout};

/// Idle time after which a client is forgotten (conntrack: 30 s, 120 s for streams).
const IDLE: Duration = Duration::from_secs(60);
/// Maximum number of clients of one listener: a new one then takes the place of the one that has been idle longest.
const MAX_CLIENTS: usize = 1024;
/// The largest datagram.
const MAX_DATAGRAM_BYTES: usize = 65_535;

type UdpSessions = Rc<RefCell<HashMap<SocketAddr, UdpSession>>>;

/// State of one client.
struct UdpSession {
    to: SocketAddrV4,
    socket: Rc<UdpSocket>,
    used: Rc<Cell<Instant>>,
    task: AbortHandle,
}

/// The sessions of a listener; they end when it is dropped.
struct UdpSessionTable(UdpSessions);

impl Drop for UdpSessionTable {
    fn drop(&mut self) {
        self.0.borrow().values().for_each(|session| session.task.abort());
    }
}

/// Serves a socket until its task is aborted. Needs a `LocalSet`.
pub async fn serve(socket: UdpSocket, places: impl Fn(SocketAddr) -> EndpointChoice, affinity: Arc<SessionAffinity>) {
    let (door, table) = (Rc::new(socket), UdpSessionTable(UdpSessions::default()));
    let mut bytes = vec![0; MAX_DATAGRAM_BYTES];
    loop {
        let Ok((length, client)) = door.recv_from(&mut bytes).await else { continue };
        let choice = places(client);
        let is_there = |session: &&UdpSession| choice.endpoints.contains(&session.to);
        let known = table.0.borrow().get(&client).filter(is_there).map(UdpSession::touch);
        let socket = match known {
            Some(socket) => Some(socket),
            None => open_flow(&door, &table.0, client, choice, &affinity).await.ok(),
        };
        if let Some(socket) = socket {
            let _ = socket.send(&bytes[..length]).await;
        }
    }
}

impl UdpSession {
    fn touch(&self) -> Rc<UdpSocket> {
        self.used.set(Instant::now());
        self.socket.clone()
    }
}

/// Connects a client to an endpoint, in place of its previous one.
async fn open_flow(
    door: &Rc<UdpSocket>,
    table: &UdpSessions,
    client: SocketAddr,
    choice: EndpointChoice,
    affinity: &SessionAffinity,
) -> io::Result<Rc<UdpSocket>> {
    let to = *choice.endpoints.first().ok_or(io::ErrorKind::ConnectionRefused)?;
    // The server sees the client's address.
    let from = match client.ip() {
        IpAddr::V4(ip) if ip.is_loopback() && to.ip().is_loopback() => ip,
        _ => Ipv4Addr::UNSPECIFIED,
    };
    let socket = Rc::new(UdpSocket::bind((from, 0)).await?);
    socket.connect(low_ports::moved_address(to)).await?;
    choice.taken(affinity, to);
    let used = Rc::new(Cell::new(Instant::now()));
    let task =
        spawn_local(answer(Rc::downgrade(door), table.clone(), client, socket.clone(), used.clone())).abort_handle();
    let mut sessions = table.borrow_mut();
    let known = sessions.remove(&client);
    let evicted = make_room(&mut sessions, MAX_CLIENTS, |session| session.used.get());
    known.into_iter().chain(evicted).for_each(|session| session.task.abort());
    sessions.insert(client, UdpSession { to, socket: socket.clone(), used, task });
    Ok(socket)
}

/// Forwards replies until the client is idle for [`IDLE`] or the endpoint is gone. It does not keep the listener open.
async fn answer(
    door: Weak<UdpSocket>,
    table: UdpSessions,
    client: SocketAddr,
    socket: Rc<UdpSocket>,
    used: Rc<Cell<Instant>>,
) {
    let mut bytes = vec![0; MAX_DATAGRAM_BYTES];
    loop {
        match timeout(IDLE, socket.recv(&mut bytes)).await {
            Ok(Ok(length)) => {
                used.set(Instant::now());
                let Some(door) = door.upgrade() else { break };
                let _ = door.send_to(&bytes[..length], client).await;
            }
            Err(_) if used.get().elapsed() < IDLE => {}
            Ok(Err(_)) | Err(_) => break,
        }
    }
    let mut sessions = table.borrow_mut();
    if sessions.get(&client).is_some_and(|session| Rc::ptr_eq(&session.socket, &socket)) {
        sessions.remove(&client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::LocalSet;

    #[test]
    fn new_client_is_served_when_the_table_is_full() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, async {
            let any = (Ipv4Addr::LOCALHOST, 0);
            let (echo, door, client) = (
                UdpSocket::bind(any).await.unwrap(),
                UdpSocket::bind(any).await.unwrap(),
                UdpSocket::bind(any).await.unwrap(),
            );
            let SocketAddr::V4(to) = echo.local_addr().unwrap() else { panic!("IPv4") };
            let table = UdpSessions::default();
            let task = spawn_local(std::future::pending::<()>());
            let idle = Rc::new(Cell::new(Instant::now() - Duration::from_secs(1)));
            let socket = Rc::new(UdpSocket::bind(any).await.unwrap());
            for port in 0..MAX_CLIENTS as u16 {
                let session = UdpSession { to, socket: socket.clone(), used: idle.clone(), task: task.abort_handle() };
                table.borrow_mut().insert((Ipv4Addr::new(10, 0, 0, 1), port).into(), session);
            }
            let (door, affinity) = (Rc::new(door), SessionAffinity::default());
            let choice = EndpointChoice::pick_endpoint(vec![to], 0);
            let address = client.local_addr().unwrap();
            let opened = open_flow(&door, &table, address, choice, &affinity).await.expect("there is room");
            opened.send(b"x").await.unwrap();
            let mut byte = [0];
            let (length, from) = echo.recv_from(&mut byte).await.unwrap();
            echo.send_to(&byte[..length], from).await.unwrap();
            assert_eq!(client.recv(&mut byte).await.unwrap(), 1);
            assert_eq!((table.borrow().len(), table.borrow().contains_key(&address)), (MAX_CLIENTS, true));
        });
    }
}
