//! The bytes of a connection that was HTTP, both ways.
//!
//! Start reading at [`ByteSocket`]. Waits may be given up at any moment: nothing is lost or sent twice then.

use bytes::{Bytes, BytesMut};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Bytes that are read at once.
const AT_ONCE: usize = 32 << 10;

/// A connection over which bytes are exchanged.
pub struct ByteSocket {
    connection: TokioIo<Upgraded>,
    received: BytesMut,
    /// Bytes that the connection has not taken yet.
    unsent: BytesMut,
}

impl ByteSocket {
    /// Takes over a connection after its protocol has changed.
    pub fn new(connection: Upgraded) -> ByteSocket {
        ByteSocket { connection: TokioIo::new(connection), received: BytesMut::new(), unsent: BytesMut::new() }
    }

    /// Returns the next bytes; `None` when the client has gone.
    pub async fn receive(&mut self) -> Option<Bytes> {
        self.flush().await.ok()?;
        self.received.reserve(AT_ONCE);
        match self.connection.read_buf(&mut self.received).await {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(self.received.split().freeze()),
        }
    }

    /// Sends bytes, and waits until the connection has taken them.
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.unsent.extend_from_slice(bytes);
        self.flush().await
    }

    async fn flush(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            if self.connection.write_buf(&mut self.unsent).await? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        self.connection.flush().await
    }

    /// Ends the connection after everything that was sent, and waits until the client has ended it, too.
    pub async fn close(mut self) {
        if self.flush().await.is_ok() && self.connection.shutdown().await.is_ok() {
            while self.receive_rest().await {}
        }
    }

    async fn receive_rest(&mut self) -> bool {
        self.received.clear();
        self.received.reserve(AT_ONCE);
        self.connection.read_buf(&mut self.received).await.is_ok_and(|read| read > 0)
    }
}
