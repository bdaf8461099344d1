//! Messages of a connection that was HTTP, both ways: those of WebSocket, or the raw bytes of SPDY.

use super::byte_socket::ByteSocket;
use super::spdy::FrameWriter;
use crate::client::websocket::{UpgradedSocket, send_message};
use bytes::Bytes;
use futures_core::Stream;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::timeout;
use tokio_websockets::{CloseCode, Config, Limits, Message, ServerBuilder};

/// Maximum length of a received message, in bytes.
const MAX_MESSAGE: usize = 1 << 20;
/// Time limit for a client to confirm the closing.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Id of the server's pings over SPDY: even, so that clients distinguish them from answers to their own.
const PING: u32 = 2;

/// A connection over which messages are exchanged.
pub enum MessageSocket {
    /// Messages of WebSocket.
    WebSocket(Box<UpgradedSocket>),
    /// Bytes that are frames of SPDY.
    Spdy(ByteSocket),
}

impl MessageSocket {
    /// Takes over a connection after the handshake of WebSocket.
    pub fn web_socket(connection: Upgraded) -> MessageSocket {
        let limits = Limits::default().max_payload_len(Some(MAX_MESSAGE));
        // Each message is one frame, so that clients need not join frames.
        let config = Config::default().frame_size(usize::MAX);
        let stream = ServerBuilder::new().config(config).limits(limits).serve(TokioIo::new(connection));
        MessageSocket::WebSocket(Box::new(stream))
    }

    /// Takes over a connection that speaks SPDY from now on.
    pub fn spdy(connection: Upgraded) -> MessageSocket {
        MessageSocket::Spdy(ByteSocket::new(connection))
    }

    /// Returns the next message, or the next bytes; `None` when the client has gone.
    pub async fn receive(&mut self) -> Option<Bytes> {
        let stream = match self {
            MessageSocket::WebSocket(stream) => stream,
            MessageSocket::Spdy(bytes) => return bytes.receive().await,
        };
        loop {
            let message = poll_fn(|context| Pin::new(&mut *stream).poll_next(context)).await?.ok()?;
            if message.is_close() {
                return None;
            }
            if message.is_binary() || message.is_text() {
                return Some(message.into_payload().into());
            }
        }
    }

    /// Sends a binary message, or bytes, and waits until the connection has taken it.
    pub async fn send(&mut self, payload: Bytes) -> io::Result<()> {
        match self {
            MessageSocket::WebSocket(stream) => {
                send_message(stream, Message::binary(payload)).await.map_err(io::Error::other)
            }
            MessageSocket::Spdy(bytes) => bytes.send(&payload).await,
        }
    }

    /// Sends a message of text; over SPDY, its bytes.
    pub async fn send_text(&mut self, text: String) -> io::Result<()> {
        match self {
            MessageSocket::WebSocket(stream) => {
                send_message(stream, Message::text(text)).await.map_err(io::Error::other)
            }
            MessageSocket::Spdy(bytes) => bytes.send(text.as_bytes()).await,
        }
    }

    /// Sends a ping, which fails when the client is gone.
    pub async fn ping(&mut self) -> io::Result<()> {
        match self {
            MessageSocket::WebSocket(stream) => {
                send_message(stream, Message::ping(Bytes::new())).await.map_err(io::Error::other)
            }
            MessageSocket::Spdy(bytes) => bytes.send(&FrameWriter::encode_ping(PING)).await,
        }
    }

    /// Ends the connection after everything that was sent.
    pub async fn close(self) {
        let goodbye = async {
            match self {
                MessageSocket::WebSocket(stream) => close_web_socket(*stream).await,
                MessageSocket::Spdy(bytes) => bytes.close().await,
            }
        };
        let _ = timeout(SHUTDOWN_TIMEOUT, goodbye).await;
    }
}

async fn close_web_socket(mut stream: UpgradedSocket) {
    let message = Message::close(Some(CloseCode::NORMAL_CLOSURE), "");
    if send_message(&mut stream, message).await.is_ok() {
        while poll_fn(|context| Pin::new(&mut stream).poll_next(context)).await.is_some_and(|read| read.is_ok()) {}
    }
}
