//! Sockets of the gateway at addresses of other machines' pods, opened when a shim asks for one.
//!
//! Never: listens at an address of this machine's own block. Start reading at [`answer_requests`].

use super::datagrams::UseClock;
use super::dialer::Carried;
use super::request::LISTENS;
use super::{BUFFER_BYTES, LinkTable, datagrams, pod_source};
use crate::object::IgnorePoison;
use crate::runtime::{descriptors, low_ports, relay};
use hyper_util::rt::TokioIo;
use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, copy_bidirectional_with_sizes};
use tokio::net::{TcpListener, TcpStream, UdpSocket, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// Maximum number of sockets, and the part of the descriptors that they may take. When there are too many, the socket whose last request is
/// the oldest is closed, first among sockets that were requested once: so a program that tries all ports does not close the sockets of
/// others.
const MAX_LISTENERS: usize = 4096;
const PART: usize = 4;
/// Time without a request, or a datagram, after which a socket is closed. Shims ask again every few seconds while they connect.
const IDLE: Duration = Duration::from_secs(300);
/// Longest line of a request, and the time for it.
const MAX_REQUEST_BYTES: u64 = 64;
const REQUEST_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum number of requests at once.
const REQUESTS: usize = 256;

/// The open sockets.
#[derive(Default)]
pub struct OpenListeners(Mutex<HashMap<ListenedAddress, OpenListener>>);

/// An address of another machine, and the protocol that is carried from there.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct ListenedAddress {
    to: SocketAddrV4,
    is_udp: bool,
}

struct OpenListener {
    used: Arc<UseClock>,
    is_reused: bool,
    task: AbortHandle,
}

impl Drop for OpenListener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers the requests of shims until the gateway ends.
pub async fn answer_requests(requests: UnixListener, table: Arc<LinkTable>) {
    let limit = Arc::new(Semaphore::new(REQUESTS));
    loop {
        let Ok(permit) = limit.clone().acquire_owned().await else { return };
        match requests.accept().await {
            Ok((stream, _)) => {
                let table = table.clone();
                tokio::spawn(async move {
                    let _ = timeout(REQUEST_TIMEOUT, answer(stream, &table)).await;
                    drop(permit);
                });
            }
            Err(_) => relay::pause_accepting().await,
        }
    }
}

async fn answer(mut stream: UnixStream, table: &Arc<LinkTable>) -> io::Result<()> {
    let mut line = String::new();
    BufReader::new((&mut stream).take(MAX_REQUEST_BYTES)).read_line(&mut line).await?;
    let asked = line.trim_end().split_once(' ').and_then(|(protocol, to)| {
        let is_udp = match protocol {
            "tcp" => false,
            "udp" => true,
            _ => return None,
        };
        Some(ListenedAddress { to: to.parse().ok()?, is_udp })
    });
    let answer = match asked {
        Some(place) => table.listeners.listen(place, table).await.map_or_else(|why| why, |()| LISTENS.to_owned()),
        None => "unknown".to_owned(),
    };
    stream.write_all(format!("{answer}\n").as_bytes()).await
}

impl OpenListeners {
    /// Listens at an address of another machine; the error is a word for the shim.
    async fn listen(&self, place: ListenedAddress, table: &Arc<LinkTable>) -> Result<(), String> {
        let peer = table.peer_of(*place.to.ip()).ok_or("unlinked")?;
        if peer.problem().is_some() {
            return Err("down".to_owned());
        }
        {
            let mut open = self.0.lock().ignore_poison();
            open.retain(|_, listener| !listener.task.is_finished());
            if let Some(known) = open.get_mut(&place) {
                known.used.touch();
                known.is_reused = true;
                return Ok(());
            }
            make_room(&mut open, MAX_LISTENERS.min(descriptors::soft_limit() / PART));
        }
        let used = Arc::new(UseClock::start());
        let task = match place.open(table, used.clone()).await {
            Ok(task) => task,
            // A datagram to a client of the other machine is an answer: the socket of its flow takes it.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && place.is_udp => return Ok(()),
            // Another request has opened it meanwhile.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && self.is_open(place) => return Ok(()),
            Err(_) => return Err("taken".to_owned()),
        };
        let mut open = self.0.lock().ignore_poison();
        open.insert(place, OpenListener { used, is_reused: false, task });
        Ok(())
    }

    /// Closes the sockets at addresses that no longer belong to another machine.
    pub fn close_unlinked(&self, table: &LinkTable) {
        let mut open = self.0.lock().ignore_poison();
        open.retain(|place, _| table.peer_of(*place.to.ip()).is_some());
    }

    fn is_open(&self, place: ListenedAddress) -> bool {
        self.0.lock().ignore_poison().contains_key(&place)
    }
}

/// Closes sockets until there is room for one more.
fn make_room(open: &mut HashMap<ListenedAddress, OpenListener>, most: usize) {
    while open.len() >= most.max(1) {
        let oldest = open.iter().min_by_key(|(_, listener)| (listener.is_reused, listener.used.last()));
        let Some(place) = oldest.map(|(place, _)| *place) else { return };
        open.remove(&place);
    }
}

impl ListenedAddress {
    async fn open(self, table: &Arc<LinkTable>, used: Arc<UseClock>) -> io::Result<AbortHandle> {
        let at = low_ports::moved_address(self.to);
        let table = table.clone();
        let task = match self.is_udp {
            true => {
                let socket = UdpSocket::bind(at).await?;
                let serve = datagrams::serve(socket, self.to, table, used.clone());
                tokio::spawn(async move { tokio::select!(() = serve => {}, () = used.wait_until_idle(IDLE) => {}) })
            }
            false => {
                let serve = serve(TcpListener::bind(at).await?, self.to, table);
                tokio::spawn(async move { tokio::select!(() = serve => {}, () = used.wait_until_idle(IDLE) => {}) })
            }
        };
        Ok(task.abort_handle())
    }
}

/// Accepts clients until its task is aborted.
async fn serve(listener: TcpListener, to: SocketAddrV4, table: Arc<LinkTable>) {
    relay::accept(listener, move |client, from| drop(tokio::spawn(carry(client, from, to, table.clone())))).await;
}

/// Carries a client's connection to the pod; resets it when that cannot be reached.
async fn carry(mut client: TcpStream, from: SocketAddr, to: SocketAddrV4, table: Arc<LinkTable>) {
    let _ = client.set_nodelay(true);
    let source = pod_source(&table, from);
    let opened = match table.peer_of(*to.ip()) {
        Some(peer) => peer.open(to, source, Carried::Connection).await,
        None => Err("the address belongs to no other machine".to_owned()),
    };
    match opened {
        Ok(server) => {
            let mut server = TokioIo::new(server);
            let _ = copy_bidirectional_with_sizes(&mut client, &mut server, BUFFER_BYTES, BUFFER_BYTES).await;
        }
        // The client sees only that its connection broke.
        Err(_) => _ = client.set_zero_linger(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn port_that_is_used_again_outlives_those_that_were_tried_once() {
        let place = |port| ListenedAddress { to: SocketAddrV4::new([127, 9, 64, 1].into(), port), is_udp: false };
        let listener = |port: u16, is_reused| {
            let task = tokio::spawn(std::future::pending::<()>()).abort_handle();
            (place(port), OpenListener { used: Arc::new(UseClock::start()), is_reused, task })
        };
        // Started one after the other.
        let mut open: HashMap<_, _> =
            [(1, true), (2, false), (3, false)].map(|(port, used)| listener(port, used)).into();
        let ports = |open: &HashMap<ListenedAddress, OpenListener>| {
            let mut ports: Vec<u16> = open.keys().map(|place| place.to.port()).collect();
            ports.sort_unstable();
            ports
        };
        make_room(&mut open, 4);
        assert_eq!(ports(&open), [1, 2, 3], "there is room");
        make_room(&mut open, 3);
        assert_eq!(ports(&open), [1, 3], "the oldest of those that were tried once");
        open.insert(place(4), listener(4, false).1);
        open[&place(3)].used.touch();
        make_room(&mut open, 3);
        assert_eq!(ports(&open), [1, 3], "a datagram is a use");
        make_room(&mut open, 1);
        assert!(open.is_empty());
    }
}
