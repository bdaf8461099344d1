//! WebSocket messages, both ways.

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

/// The largest message that is taken, in bytes.
const LARGEST_MESSAGE: usize = 1 << 20;
/// Time limit for a client to answer that a connection is closed.
const FAREWELL: Duration = Duration::from_secs(5);

/// A connection over which messages are exchanged.
pub struct MessageSocket {
    stream: WebSocketStream<TokioIo<Upgraded>>,
}

impl MessageSocket {
    /// Takes over a connection after its handshake.
    pub fn new(connection: Upgraded) -> MessageSocket {
        let limits = Limits::default().max_payload_len(Some(LARGEST_MESSAGE));
        // A message is one frame, which clients need not put together.
        let config = Config::default().frame_size(usize::MAX);
        let stream = ServerBuilder::new().config(config).limits(limits).serve(TokioIo::new(connection));
        MessageSocket { stream }
    }

    /// The next message; none when the client has gone.
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

    /// Sends a binary message, and waits until the connection has taken it.
    pub async fn send(&mut self, payload: Bytes) -> io::Result<()> {
        self.send_message(Message::binary(payload)).await
    }

    /// Sends what shows that a client is gone.
    pub async fn ping(&mut self) -> io::Result<()> {
        self.send_message(Message::ping(Bytes::new())).await
    }

    async fn send_message(&mut self, message: Message) -> io::Result<()> {
        poll_fn(|context| Pin::new(&mut self.stream).poll_ready(context)).await.map_err(io::Error::other)?;
        Pin::new(&mut self.stream).start_send(message).map_err(io::Error::other)?;
        poll_fn(|context| Pin::new(&mut self.stream).poll_flush(context)).await.map_err(io::Error::other)
    }

    /// Ends the connection after everything that was sent.
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
