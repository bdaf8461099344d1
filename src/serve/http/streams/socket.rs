//! WebSocket messages in both directions.

use bytes::Bytes;
use futures_core::Stream;
use futures_sink::Sink;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::timeout;
use tokio_websockets::{CloseCode, Config, Limits, Message, ServerBuilder, WebSocketStream};

/// Maximum length of a received message, in bytes.
const LARGEST_MESSAGE: usize = 1 << 20;
/// Time limit for a client to confirm the closing.
const FAREWELL: Duration = Duration::from_secs(5);

/// A connection for messages.
pub struct MessageSocket {
    stream: WebSocketStream<TokioIo<Upgraded>>,
}

impl MessageSocket {
    /// Takes over a connection after its handshake.
    pub fn new(connection: Upgraded) -> MessageSocket {
        let limits = Limits::default().max_payload_len(Some(LARGEST_MESSAGE));
        // Each message is one frame, so that clients need not join frames.
        let config = Config::default().frame_size(usize::MAX);
        let stream = ServerBuilder::new().config(config).limits(limits).serve(TokioIo::new(connection));
        MessageSocket { stream }
    }

    /// Returns the next message; `None` when the client has disconnected.
    pub async fn receive(&mut self) -> Option<Bytes> {
        loop {
            let message = poll_fn(|context| Pin::new(&mut self.stream).poll_next(context)).await?.ok()?;
            if message.is_close() {
                return None;
            }
            if message.is_binary() || message.is_text() {
                return Some(message.into_payload().into());
            }
        }
    }

    /// Sends a binary message, and waits until the connection has accepted it.
    pub async fn send(&mut self, payload: Bytes) -> io::Result<()> {
        self.send_message(Message::binary(payload)).await
    }

    /// Sends a ping, which fails when the client is gone.
    pub async fn ping(&mut self) -> io::Result<()> {
        self.send_message(Message::ping(Bytes::new())).await
    }

    async fn send_message(&mut self, message: Message) -> io::Result<()> {
        poll_fn(|context| Pin::new(&mut self.stream).poll_ready(context)).await.map_err(io::Error::other)?;
        Pin::new(&mut self.stream).start_send(message).map_err(io::Error::other)?;
        poll_fn(|context| Pin::new(&mut self.stream).poll_flush(context)).await.map_err(io::Error::other)
    }

    /// Closes the connection after everything was sent.
    pub async fn close(mut self) {
        let goodbye = async {
            let message = Message::close(Some(CloseCode::NORMAL_CLOSURE), "");
            if self.send_message(message).await.is_ok() {
                while poll_fn(|context| Pin::new(&mut self.stream).poll_next(context)).await.is_some_and(|m| m.is_ok())
                {
                }
            }
        };
        let _ = timeout(FAREWELL, goodbye).await;
    }
}
