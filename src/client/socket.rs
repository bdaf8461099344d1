//! WebSockets of an API server: the streams of exec, attach and port-forward, each message beginning with its channel's number.
//!
//! Knows: the handshake, and the server's error where it refuses one. Never: interprets messages. Start reading at [`ChannelSocket`].

use super::connection::{ClientStream, ServerConnections, use_origin_form};
use super::error::{ClientError, ClientResult};
use super::request::read_body;
use super::transfer::TransferThread;
use super::websocket::{UpgradedSocket, accepted_key, send_message};
use crate::object::Status;
use crate::runtime::https::answer::http_error;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures_core::Stream;
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper::header::{
    CONNECTION, HeaderMap, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION,
    UPGRADE,
};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_websockets::{ClientBuilder, Limits, Message};

/// Time limit of the handshake.
const HANDSHAKE: Duration = Duration::from_secs(30);
/// Interval between pings, which keep proxies from closing the connection.
const PING: Duration = Duration::from_secs(20);
/// Maximum number of bytes of a received message, and of an error.
const MAX_MESSAGE: usize = 4 << 20;
const MAX_ERROR: usize = 1 << 20;
/// Maximum number of messages that wait in each direction.
const MAX_MESSAGES: usize = 32;
/// Time limit for the last message.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// A message: the number of its channel, and bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketMessage {
    /// The number of the channel.
    pub channel: u8,
    /// The bytes.
    pub bytes: Bytes,
}

/// A connection to a container or to ports, for use by blocking threads. It closes when all its parts are dropped.
pub struct ChannelSocket {
    /// The subprotocol that the server chose.
    pub protocol: String,
    outgoing: Sender<Bytes>,
    incoming: Arc<Mutex<Receiver<ClientResult<Bytes>>>>,
    transfers: Arc<TransferThread>,
}

/// Sends messages of a [`ChannelSocket`], from any thread.
#[derive(Clone)]
pub struct SocketSender {
    outgoing: Sender<Bytes>,
}

impl SocketSender {
    /// Sends bytes on a channel; waits while the server takes none. Returns whether the connection is open.
    pub fn send(&self, channel: u8, bytes: &[u8]) -> bool {
        self.outgoing.blocking_send([&[channel], bytes].concat().into()).is_ok()
    }
}

impl ChannelSocket {
    /// Returns a sender for another thread.
    pub fn sender(&self) -> SocketSender {
        SocketSender { outgoing: self.outgoing.clone() }
    }

    /// Waits for the next message; `Ok(None)` when the time is over, `Err(None)` when the server has closed the connection.
    pub fn receive(&self, limit: Duration) -> Result<Option<SocketMessage>, Option<ClientError>> {
        let incoming = self.incoming.clone();
        let received = self.transfers.wait(async move {
            let mut incoming = incoming.lock().await;
            timeout(limit, incoming.recv()).await
        });
        match received.map_err(Some)? {
            Err(_) => Ok(None),
            Ok(None) => Err(None),
            Ok(Some(message)) => {
                let mut bytes = message.map_err(Some)?;
                let channel = if bytes.is_empty() { 0 } else { bytes.split_to(1)[0] };
                Ok(Some(SocketMessage { channel, bytes }))
            }
        }
    }
}

/// A WebSocket after its handshake.
pub struct OpenSocket {
    server: String,
    protocol: String,
    stream: UpgradedSocket,
}

/// Opens a WebSocket.
pub async fn open(connections: &ServerConnections, path: &str, protocols: Vec<String>) -> ClientResult<OpenSocket> {
    let opened = timeout(HANDSHAKE, shake_hands(connections, path, &protocols)).await;
    opened.unwrap_or_else(|_| Err(ClientError::Late { server: connections.authority() }))
}

async fn shake_hands(connections: &ServerConnections, path: &str, protocols: &[String]) -> ClientResult<OpenSocket> {
    let (stream, presented) = connections.open_own().await?;
    let key = new_key().map_err(ClientError::Local)?;
    let head = Request::builder()
        .method(Method::GET)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header(SEC_WEBSOCKET_VERSION, "13")
        .header(SEC_WEBSOCKET_KEY, &key)
        .header(SEC_WEBSOCKET_PROTOCOL, protocols.join(", "));
    let mut request = connections.complete(head, path, &presented)?.map(|()| Empty::<Bytes>::new());
    use_origin_form(&mut request, connections.config());
    let failed = |error: hyper::Error| connections.unreachable(http_error(&error));
    let (mut sender, connection) =
        http1::handshake::<TokioIo<Box<dyn ClientStream>>, _>(TokioIo::new(stream)).await.map_err(failed)?;
    tokio::spawn(connection.with_upgrades());
    let response = sender.send_request(request).await.map_err(failed)?;
    let code = response.status();
    if code != StatusCode::SWITCHING_PROTOCOLS {
        let body = read_body(connections, response, MAX_ERROR).await?;
        return Err(Status::from_answer(code.as_u16(), &body).into());
    }
    let malformed = |why: &str| ClientError::Malformed { server: connections.authority(), why: why.to_owned() };
    if header(response.headers(), SEC_WEBSOCKET_ACCEPT.as_str()) != accepted_key(&key) {
        return Err(malformed("it accepted another WebSocket"));
    }
    let protocol = header(response.headers(), SEC_WEBSOCKET_PROTOCOL.as_str()).to_owned();
    if !protocols.is_empty() && !protocols.contains(&protocol) {
        return Err(malformed(&format!("it speaks none of the protocols {}", protocols.join(", "))));
    }
    let upgraded = hyper::upgrade::on(response).await.map_err(failed)?;
    let limits = Limits::default().max_payload_len(Some(MAX_MESSAGE));
    let stream = ClientBuilder::new().limits(limits).take_over(TokioIo::new(upgraded));
    Ok(OpenSocket { server: connections.authority(), protocol, stream })
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn new_key() -> Result<String, String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| error.to_string())?;
    Ok(BASE64_STANDARD.encode(bytes))
}

impl OpenSocket {
    /// Passes messages to and from blocking threads.
    pub fn start(self, transfers: &Arc<TransferThread>) -> ChannelSocket {
        let (outgoing, unsent) = channel(MAX_MESSAGES);
        let (received, incoming) = channel(MAX_MESSAGES);
        let protocol = self.protocol.clone();
        transfers.spawn(pass_messages(self, unsent, received));
        ChannelSocket { protocol, outgoing, incoming: Arc::new(Mutex::new(incoming)), transfers: transfers.clone() }
    }

    async fn receive(&mut self) -> Option<ClientResult<Bytes>> {
        loop {
            let message = match poll_fn(|context| Pin::new(&mut self.stream).poll_next(context)).await? {
                Ok(message) => message,
                Err(error) => {
                    return Some(Err(ClientError::Unreachable { server: self.server.clone(), why: error.to_string() }));
                }
            };
            if message.is_close() {
                return None;
            }
            if message.is_binary() || message.is_text() {
                return Some(Ok(message.into_payload().into()));
            }
        }
    }
}

/// A step of [`pass_messages`].
enum SocketStep {
    Sent,
    Received(Option<ClientResult<Bytes>>),
    Ended,
}

/// Passes messages until one side has ended.
async fn pass_messages(mut socket: OpenSocket, mut unsent: Receiver<Bytes>, received: Sender<ClientResult<Bytes>>) {
    let mut pings = interval(PING);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut has_senders = true;
    loop {
        // Nothing is read while the reader has enough to do.
        let has_room = received.capacity() > 0;
        let step = tokio::select! {
            bytes = unsent.recv(), if has_senders => match bytes {
                Some(bytes) => send_step(&mut socket, Message::binary(bytes)).await,
                None => {
                    has_senders = false;
                    SocketStep::Sent
                }
            },
            _ = pings.tick() => send_step(&mut socket, Message::ping(Bytes::new())).await,
            next = socket.receive(), if has_room => SocketStep::Received(next),
            // Room: the next round reads.
            permit = received.reserve(), if !has_room => match permit {
                Ok(_) => SocketStep::Sent,
                Err(_) => SocketStep::Ended,
            },
            () = received.closed() => SocketStep::Ended,
        };
        match step {
            SocketStep::Sent => {}
            SocketStep::Received(Some(message)) => {
                if received.send(message).await.is_err() {
                    break;
                }
            }
            SocketStep::Ended => break,
            SocketStep::Received(None) => return,
        }
    }
    // The server may be gone already.
    let _ = timeout(CLOSE_TIMEOUT, send_message(&mut socket.stream, Message::close(None, ""))).await;
}

async fn send_step(socket: &mut OpenSocket, message: Message) -> SocketStep {
    match send_message(&mut socket.stream, message).await {
        Ok(()) => SocketStep::Sent,
        Err(_) => SocketStep::Ended,
    }
}
