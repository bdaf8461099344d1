//! Messages of the client of a session, and the numbers of their channels.
//!
//! Start reading at [`ClientMessage`].

use crate::runtime::session::TerminalSize;
use bytes::Bytes;
use serde::Deserialize;

/// Standard input.
pub const STDIN: u8 = 0;
/// Standard output; standard error is the next one.
pub const STDOUT: u8 = 1;
/// The status with which the session ends.
pub const ERROR: u8 = 3;
/// Sizes of the client's terminal.
pub const RESIZE: u8 = 4;
/// Followed by the number of the channel that its sender is done with.
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

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ClientSize {
    width: u16,
    height: u16,
}

/// Reads the size of a terminal.
pub fn read_size(text: &[u8]) -> Option<TerminalSize> {
    let size: ClientSize = serde_json::from_slice(text).ok()?;
    Some(TerminalSize { rows: size.height, columns: size.width })
}

/// Reads a message that begins with the number of its channel.
pub fn read_message(message: Bytes, has_close: bool) -> ClientMessage {
    match message.first() {
        Some(&STDIN) => ClientMessage::Input(message.slice(1..)),
        Some(&RESIZE) => read_size(&message[1..]).map_or(ClientMessage::Other, ClientMessage::Resize),
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
