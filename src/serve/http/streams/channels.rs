//! The channels of a session: `v5.channel.k8s.io` and `v4.channel.k8s.io` (`apimachinery/pkg/util/remotecommand`).
//!
//! Each message begins with the number of its channel.

use super::socket::MessageSocket;
use crate::runtime::session::TerminalSize;
use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde_json::Value;
use std::io;

/// Protocols of sessions, the best first.
pub const PROTOCOLS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];

const STDIN: u8 = 0;
/// Standard output; standard error is the next one.
pub const STDOUT: u8 = 1;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
/// Channel number of a message that closes another channel.
const CLOSE: u8 = 255;

/// A message from the client of a session.
#[derive(Debug, PartialEq)]
pub enum ClientMessage {
    /// Bytes for standard input.
    Input(Bytes),
    /// The end of standard input.
    InputEnd,
    /// The terminal of the client has this size now.
    Resize(TerminalSize),
    /// An unknown message.
    Other,
}

/// The channels of one session.
pub struct SessionChannels {
    socket: MessageSocket,
    has_close: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ClientSize {
    width: u16,
    height: u16,
}

impl SessionChannels {
    /// Makes the channels of a connection with this protocol.
    pub fn new(socket: MessageSocket, protocol: &str) -> SessionChannels {
        SessionChannels { socket, has_close: protocol == PROTOCOLS[0] }
    }

    /// Returns the next message; `None` when the client has disconnected.
    pub async fn receive(&mut self) -> Option<ClientMessage> {
        let message = self.socket.receive().await?;
        Some(read_message(message, self.has_close))
    }

    /// Sends bytes on a channel.
    pub async fn send(&mut self, channel: u8, bytes: &[u8]) -> io::Result<()> {
        let mut message = BytesMut::with_capacity(bytes.len() + 1);
        message.extend_from_slice(&[channel]);
        message.extend_from_slice(bytes);
        self.socket.send(message.freeze()).await
    }

    /// Sends a ping, which fails when the client is gone.
    pub async fn ping(&mut self) -> io::Result<()> {
        self.socket.ping().await
    }

    /// Sends the result of the session, and closes the connection.
    pub async fn finish(mut self, status: &Value) {
        if self.send(ERROR, status.to_string().as_bytes()).await.is_ok() {
            self.socket.close().await;
        }
    }
}

fn read_message(message: Bytes, has_close: bool) -> ClientMessage {
    match message.first() {
        Some(&STDIN) => ClientMessage::Input(message.slice(1..)),
        Some(&RESIZE) => match serde_json::from_slice::<ClientSize>(&message[1..]) {
            Ok(size) => ClientMessage::Resize(TerminalSize { rows: size.height, columns: size.width }),
            Err(_) => ClientMessage::Other,
        },
        Some(&CLOSE) if has_close && message.get(1) == Some(&STDIN) => ClientMessage::InputEnd,
        _ => ClientMessage::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_by_their_channel() {
        let read = |message: &'static [u8], has_close| read_message(Bytes::from_static(message), has_close);
        assert_eq!(read(b"\0abc", true), ClientMessage::Input(Bytes::from_static(b"abc")));
        assert_eq!(read(b"\xff\0", true), ClientMessage::InputEnd);
        let size = TerminalSize { rows: 24, columns: 80 };
        assert_eq!(read(b"\x04{\"Width\":80,\"Height\":24}\n", false), ClientMessage::Resize(size));
        for (message, has_close) in [
            (&b"\xff\0"[..], false),
            (b"\xff\x01", true),
            (b"\xff", true),
            (b"", true),
            (b"\x04nonsense", true),
            (b"\x01x", true),
        ] {
            assert_eq!(read_message(Bytes::from_static(message), has_close), ClientMessage::Other, "{message:?}");
        }
    }
}
