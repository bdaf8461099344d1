//! Forwarding of a pod's ports to a client, over the client's one connection.
//!
//! The connections are tasks that end with the client. Start reading at [`serve`].

use super::forwarding::{ForwardingCodec, ForwardingEvent, Outgoing};
use super::socket::MessageSocket;
use crate::runtime::relay;
use crate::serve::target::PortTarget;
use bytes::Bytes;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::select;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, interval, sleep_until};

/// Maximum bytes per read from a pod.
const MAX_READ_BYTES: usize = 32 << 10;
/// Maximum number of buffered pieces, for a connection and for the client.
const MAX_BUFFERED_PIECES: usize = 16;
/// Interval of pings to the client.
const PING: Duration = Duration::from_secs(10);
/// Idle time after which a client is disconnected.
const IDLE: Duration = Duration::from_secs(4 * 60 * 60);

/// A connection to a port of the pod.
struct ForwardedConnection {
    /// Bytes from the client; `None` after their end.
    input: Option<Sender<Bytes>>,
    task: AbortHandle,
}

/// The connections of one client to one pod.
struct Connections {
    target: PortTarget,
    permits: Arc<Semaphore>,
    to_client: Sender<Outgoing>,
    by_id: HashMap<u32, ForwardedConnection>,
    /// Dropping it aborts all tasks.
    tasks: JoinSet<()>,
    /// Bytes that wait until their connection has room.
    held: Option<(Sender<Bytes>, Bytes)>,
}

impl Connections {
    /// Starts a connection, or returns its failure when the server has too many.
    fn open(&mut self, data: u32, error: u32, port: u16) -> Result<(), Outgoing> {
        let Ok(permit) = self.permits.clone().try_acquire_owned() else {
            let why = format!("error forwarding port {port} to pod {}: too many open streams", self.target.pod);
            return Err(Outgoing::Failed { data, error, why });
        };
        let (input, from_client) = channel(MAX_BUFFERED_PIECES);
        let (target, to_client) = (self.target.clone(), self.to_client.clone());
        let task = self.tasks.spawn(async move {
            carry(target, port, data, error, from_client, to_client).await;
            drop(permit);
        });
        self.by_id.insert(data, ForwardedConnection { input: Some(input), task });
        Ok(())
    }

    /// Holds bytes of the client for their connection. The last ones close its input.
    fn hold(&mut self, id: u32, bytes: Bytes, is_last: bool) {
        let Some(connection) = self.by_id.get_mut(&id) else { return };
        let input = if is_last { connection.input.take() } else { connection.input.clone() };
        self.held = input.filter(|_| !bytes.is_empty()).map(|input| (input, bytes));
    }

    fn abort(&mut self, id: u32) {
        if let Some(connection) = self.by_id.remove(&id) {
            connection.task.abort();
        }
    }
}

/// Forwards until the client disconnects.
pub async fn serve(target: PortTarget, codec: ForwardingCodec, mut socket: MessageSocket, permits: Arc<Semaphore>) {
    if forward(target, codec, &mut socket, permits).await.is_ok() {
        socket.close().await;
    }
}

async fn forward(
    target: PortTarget,
    mut codec: ForwardingCodec,
    socket: &mut MessageSocket,
    permits: Arc<Semaphore>,
) -> io::Result<()> {
    let (to_client, mut from_pod) = channel::<Outgoing>(MAX_BUFFERED_PIECES);
    let (by_id, tasks) = (HashMap::new(), JoinSet::new());
    let mut connections = Connections { target, permits, to_client, by_id, tasks, held: None };
    let mut events: VecDeque<ForwardingEvent> = codec.first_events().into();
    let mut pings = interval(PING);
    let mut idle_until = Instant::now() + IDLE;
    send_all(socket, &codec, codec.greeting()).await?;
    loop {
        while let Some(event) = connections.held.is_none().then(|| events.pop_front()).flatten() {
            match event {
                ForwardingEvent::Open { data, error, port } => {
                    if let Err(failure) = connections.open(data, error, port) {
                        send_all(socket, &codec, codec.encode(failure)?).await?;
                    }
                }
                ForwardingEvent::Data { id, bytes, is_last } => connections.hold(id, bytes, is_last),
                ForwardingEvent::Reset(id) => connections.abort(id),
                ForwardingEvent::Answer(message) => socket.send(message).await?,
            }
        }
        select! {
            // Sends the waiting bytes once the connection has room; drops them when it has ended.
            permit = reserve(&connections.held) => {
                if let (true, Some((input, bytes))) = (permit, connections.held.take()) {
                    let _ = input.try_send(bytes);
                }
            }
            message = socket.receive(), if connections.held.is_none() => match message {
                Some(message) => {
                    idle_until = Instant::now() + IDLE;
                    events.extend(codec.decode(message)?);
                }
                None => return Err(io::ErrorKind::BrokenPipe.into()),
            },
            Some(outgoing) = from_pod.recv() => {
                idle_until = Instant::now() + IDLE;
                if let Outgoing::Failed { data, .. } | Outgoing::Done { data, .. } = &outgoing {
                    connections.by_id.remove(data);
                }
                send_all(socket, &codec, codec.encode(outgoing)?).await?;
                if codec.is_fixed() && connections.by_id.is_empty() {
                    return Ok(());
                }
            }
            Some(_) = connections.tasks.join_next(), if !connections.tasks.is_empty() => {}
            _ = pings.tick() => socket.ping().await?,
            () = sleep_until(idle_until) => return Ok(()),
        }
    }
}

async fn send_all(socket: &mut MessageSocket, codec: &ForwardingCodec, messages: Vec<Bytes>) -> io::Result<()> {
    for message in messages {
        match codec.to_text(&message) {
            Some(text) => socket.send_text(text).await?,
            None => socket.send(message).await?,
        }
    }
    Ok(())
}

/// Waits until a connection has room for the waiting bytes. Returns false when it has ended.
async fn reserve(held: &Option<(Sender<Bytes>, Bytes)>) -> bool {
    match held {
        Some((input, _)) => input.reserve().await.is_ok(),
        None => std::future::pending().await,
    }
}

/// Copies one connection until both directions have ended, or the pod's side has.
async fn carry(
    target: PortTarget,
    port: u16,
    data: u32,
    error: u32,
    mut from_client: Receiver<Bytes>,
    to_client: Sender<Outgoing>,
) {
    let connected = match target.address {
        Some(address) => relay::connect(SocketAddr::new(address, port)).await,
        None => Err("the pod has no address yet".to_owned()),
    };
    let stream = match connected {
        Ok(stream) => stream,
        Err(why) => {
            let why = format!("error forwarding port {port} to pod {}, uid {}: {why}", target.pod, target.uid);
            let _ = to_client.send(Outgoing::Failed { data, error, why }).await;
            return;
        }
    };
    let _ = stream.set_nodelay(true);
    let (mut read, mut write) = stream.into_split();
    let there = async move {
        while let Some(bytes) = from_client.recv().await {
            if write.write_all(&bytes).await.is_err() {
                return;
            }
        }
        let _ = write.shutdown().await;
    };
    let back = async {
        let mut block = vec![0; MAX_READ_BYTES];
        while let Ok(length @ 1..) = read.read(&mut block).await {
            let bytes = Bytes::copy_from_slice(&block[..length]);
            if to_client.send(Outgoing::Data { data, bytes }).await.is_err() {
                return;
            }
        }
        // This also ends the direction from the client: clients take the end of the pod's side for the end of the connection.
        let _ = to_client.send(Outgoing::Done { data, error }).await;
    };
    tokio::join!(there, back);
}
