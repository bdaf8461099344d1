//! Datagrams over a link: each client and destination have a stream of their own, on which a length of two bytes precedes each datagram.
//!
//! Knows: a flow ends when nothing has passed for [`IDLE`]. Never: waits for room: datagrams that find none are dropped, as in any network.
//! Start reading at [`serve`], then [`relay_socket`].

use super::super::longest_idle::make_room;
use super::dialer::Carried;
use super::{LinkTable, pod_source};
use crate::object::IgnorePoison;
use hyper_util::rt::TokioIo;
use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::net::UdpSocket;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{Instant, sleep_until};

/// Idle time after which a flow is forgotten (conntrack: 30 s, 120 s for streams).
const IDLE: Duration = Duration::from_secs(60);
/// Maximum number of flows of one socket: a new one then takes the place of the one that has been idle longest.
const MAX_FLOWS: usize = 1024;
/// Datagrams of a flow that wait for its stream.
const MAX_WAITING_DATAGRAMS: usize = 64;
/// The largest datagram.
const MAX_DATAGRAM_BYTES: usize = 65_535;

/// The datagrams of one client; its task ends when the sender is dropped.
struct Flow {
    sender: Sender<Vec<u8>>,
    used: Instant,
}

/// Serves a socket at the address of another machine's pod until its task is aborted. Each datagram updates `used`.
pub async fn serve(socket: UdpSocket, to: SocketAddrV4, table: Arc<LinkTable>, used: Arc<UseClock>) {
    let socket = Arc::new(socket);
    let mut flows: HashMap<SocketAddr, Flow> = HashMap::new();
    let mut bytes = vec![0; MAX_DATAGRAM_BYTES];
    loop {
        let Ok((length, client)) = socket.recv_from(&mut bytes).await else { continue };
        used.touch();
        let datagram = bytes[..length].to_vec();
        if let Some(flow) = flows.get_mut(&client).filter(|flow| !flow.sender.is_closed()) {
            flow.used = Instant::now();
            let _ = flow.sender.try_send(datagram);
            continue;
        }
        flows.retain(|_, flow| !flow.sender.is_closed());
        drop(make_room(&mut flows, MAX_FLOWS, |flow| flow.used));
        let (sender, datagrams) = channel(MAX_WAITING_DATAGRAMS);
        let _ = sender.try_send(datagram);
        flows.insert(client, Flow { sender, used: Instant::now() });
        tokio::spawn(carry_flow(socket.clone(), client, to, datagrams, table.clone()));
    }
}

/// Carries the datagrams of one client.
async fn carry_flow(
    socket: Arc<UdpSocket>,
    client: SocketAddr,
    to: SocketAddrV4,
    mut datagrams: Receiver<Vec<u8>>,
    table: Arc<LinkTable>,
) {
    let Some(peer) = table.peer_of(*to.ip()) else { return };
    let Ok(stream) = peer.open(to, pod_source(&table, client), Carried::Datagrams).await else { return };
    let (mut reader, mut writer) = split(TokioIo::new(stream));
    let clock = UseClock::start();
    let there = async {
        while let Some(datagram) = datagrams.recv().await {
            clock.touch();
            if write_frame(&mut writer, &datagram).await.is_err() {
                return;
            }
        }
    };
    let back = async {
        let mut bytes = vec![0; MAX_DATAGRAM_BYTES];
        while let Ok(length) = read_frame(&mut reader, &mut bytes).await {
            clock.touch();
            let _ = socket.send_to(&bytes[..length], client).await;
        }
    };
    end_with_first(there, back, &clock).await;
}

/// Carries datagrams between a stream and a connected socket.
pub async fn relay_socket(stream: impl AsyncRead + AsyncWrite, socket: UdpSocket) {
    let (mut reader, mut writer) = split(stream);
    let clock = UseClock::start();
    let there = async {
        let mut bytes = vec![0; MAX_DATAGRAM_BYTES];
        while let Ok(length) = read_frame(&mut reader, &mut bytes).await {
            clock.touch();
            // Ignores errors: the server may start later.
            let _ = socket.send(&bytes[..length]).await;
        }
    };
    let back = async {
        let mut bytes = vec![0; MAX_DATAGRAM_BYTES];
        loop {
            // An error means that no server was listening at the last datagram.
            let Ok(length) = socket.recv(&mut bytes).await else { continue };
            clock.touch();
            if write_frame(&mut writer, &bytes[..length]).await.is_err() {
                return;
            }
        }
    };
    end_with_first(there, back, &clock).await;
}

/// Runs both directions until one ends, or both are idle.
async fn end_with_first(there: impl Future<Output = ()>, back: impl Future<Output = ()>, clock: &UseClock) {
    tokio::select! {
        () = there => {}
        () = back => {}
        () = clock.wait_until_idle(IDLE) => {}
    }
}

/// The time at which something was last used.
pub struct UseClock(Mutex<Instant>);

impl UseClock {
    /// Starts now.
    pub fn start() -> UseClock {
        UseClock(Mutex::new(Instant::now()))
    }

    /// Notes a use.
    pub fn touch(&self) {
        *self.0.lock().ignore_poison() = Instant::now();
    }

    /// Returns the time of the last use.
    pub fn last(&self) -> Instant {
        *self.0.lock().ignore_poison()
    }

    /// Returns when there was no use for this time.
    pub async fn wait_until_idle(&self, span: Duration) {
        loop {
            let end = self.last() + span;
            if Instant::now() >= end {
                return;
            }
            sleep_until(end).await;
        }
    }
}

async fn write_frame(writer: &mut (impl AsyncWrite + Unpin), datagram: &[u8]) -> io::Result<()> {
    let length = u16::try_from(datagram.len()).map_err(io::Error::other)?;
    writer.write_all(&[&length.to_be_bytes()[..], datagram].concat()).await?;
    writer.flush().await
}

async fn read_frame(reader: &mut (impl AsyncRead + Unpin), bytes: &mut [u8]) -> io::Result<usize> {
    let length = usize::from(reader.read_u16().await?);
    reader.read_exact(&mut bytes[..length]).await?;
    Ok(length)
}
