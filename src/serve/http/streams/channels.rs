//! The channels of a session: `channel.k8s.io` and its relatives (`apimachinery/pkg/util/remotecommand`, `httpstream/wsstream`).
//!
//! Over WebSocket each message begins with the number of its channel; over SPDY each channel is a stream ([`super::spdy_session`]).

use super::client_message::{ClientMessage, ERROR, read_message};
use super::socket::MessageSocket;
use super::spdy_session::{SessionEvent, SpdySession};
use crate::runtime::session::RequestedStreams;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::{Bytes, BytesMut};
use serde_json::Value;
use std::collections::VecDeque;
use std::io;
use std::time::Duration;
use tokio::time::timeout;

/// Time limit for a client to open all streams of a session over SPDY (kubelet: `streamCreationTimeout`).
const STREAM_CREATION: Duration = Duration::from_secs(30);

/// Protocols of sessions over WebSocket, the best first. The last two report a failure as text, and do not report success.
pub const PROTOCOLS: [&str; 5] =
    ["v5.channel.k8s.io", "v4.channel.k8s.io", "v4.base64.channel.k8s.io", "channel.k8s.io", "base64.channel.k8s.io"];
/// Protocols of sessions over SPDY.
pub const STREAM_PROTOCOLS: [&str; 1] = ["v4.channel.k8s.io"];

/// The channels of one session.
pub struct SessionChannels {
    socket: MessageSocket,
    form: ChannelForm,
    /// Messages that were read and not received yet.
    pending: VecDeque<ClientMessage>,
}

enum ChannelForm {
    /// Numbered messages.
    Numbered(NumberedForm),
    /// A stream for each channel.
    Streams(SpdySession),
}

/// The form of numbered messages.
#[derive(Clone, Copy)]
struct NumberedForm {
    /// Whether the client can end one channel alone.
    has_close: bool,
    /// Whether messages are text: a digit, and bytes in base64.
    is_base64: bool,
    /// Whether the session ends with a `Status`.
    has_status: bool,
}

impl NumberedForm {
    /// The form of a protocol; without a name it is the oldest one.
    fn new(protocol: &str) -> NumberedForm {
        NumberedForm {
            has_close: protocol.starts_with("v5."),
            is_base64: protocol.contains("base64."),
            has_status: protocol.starts_with('v'),
        }
    }

    /// Returns a message with the number of its channel as a byte; `None` when it is not in this form.
    fn decode(self, message: Bytes) -> Option<Bytes> {
        match message.split_first() {
            Some((digit, text)) if self.is_base64 => {
                let bytes = BASE64_STANDARD.decode(text).ok()?;
                Some([&[digit.checked_sub(b'0')?], &bytes[..]].concat().into())
            }
            _ => Some(message),
        }
    }

    /// Returns the text of a message on a channel; `None` where messages are bytes.
    fn encode_text(self, channel: u8, bytes: &[u8]) -> Option<String> {
        self.is_base64.then(|| format!("{channel}{}", BASE64_STANDARD.encode(bytes)))
    }
}

impl SessionChannels {
    /// The channels of a WebSocket connection that speaks this protocol.
    pub fn numbered(socket: MessageSocket, protocol: &str) -> SessionChannels {
        let form = ChannelForm::Numbered(NumberedForm::new(protocol));
        SessionChannels { socket, form, pending: VecDeque::new() }
    }

    /// The channels of a SPDY connection, once the client has opened all of these streams; `None` when it does not.
    pub async fn streams(socket: MessageSocket, wanted: RequestedStreams) -> Option<SessionChannels> {
        let form = ChannelForm::Streams(SpdySession::default());
        let mut channels = SessionChannels { socket, form, pending: VecDeque::new() };
        let open = async {
            while matches!(&channels.form, ChannelForm::Streams(session) if !session.is_complete(wanted)) {
                channels.read().await?;
            }
            Some(())
        };
        timeout(STREAM_CREATION, open).await.ok().flatten()?;
        Some(channels)
    }

    /// Returns the next message; `None` when the client has gone.
    pub async fn receive(&mut self) -> Option<ClientMessage> {
        loop {
            if let Some(message) = self.pending.pop_front() {
                return Some(message);
            }
            self.read().await?;
        }
    }

    /// Reads from the connection, and answers frames that are not for the session.
    async fn read(&mut self) -> Option<()> {
        let bytes = self.socket.receive().await?;
        let session = match &mut self.form {
            ChannelForm::Numbered(form) => {
                self.pending.push_back(read_message(form.decode(bytes)?, form.has_close));
                return Some(());
            }
            ChannelForm::Streams(session) => session,
        };
        let mut answers = BytesMut::new();
        for event in session.decode(&bytes).ok()? {
            match event {
                SessionEvent::Message(message) => self.pending.push_back(message),
                SessionEvent::Answer(answer) => answers.extend_from_slice(&answer),
            }
        }
        match answers.is_empty() {
            true => Some(()),
            false => self.socket.send(answers.freeze()).await.ok(),
        }
    }

    /// Sends bytes on a channel.
    pub async fn send(&mut self, channel: u8, bytes: &[u8]) -> io::Result<()> {
        let message = match &self.form {
            ChannelForm::Numbered(form) => match form.encode_text(channel, bytes) {
                Some(text) => return self.socket.send_text(text).await,
                None => Some([&[channel], bytes].concat().into()),
            },
            ChannelForm::Streams(session) => session.encode(channel, bytes),
        };
        match message {
            Some(message) => self.socket.send(message).await,
            None => Ok(()),
        }
    }

    /// Sends a ping, which fails when the client is gone.
    pub async fn ping(&mut self) -> io::Result<()> {
        self.socket.ping().await
    }

    /// Sends the result of the session, and closes the connection.
    pub async fn finish(mut self, status: &Value) {
        let is_success = status["status"] == "Success";
        let message = status["message"].as_str().unwrap_or_default();
        let status = status.to_string();
        let sent = match &self.form {
            ChannelForm::Numbered(form) if !form.has_status => match is_success {
                true => Ok(()),
                false => self.send(ERROR, message.as_bytes()).await,
            },
            ChannelForm::Numbered(_) => self.send(ERROR, status.as_bytes()).await,
            ChannelForm::Streams(session) => {
                let end = session.encode_end(status.as_bytes());
                self.socket.send(end.into()).await
            }
        };
        if sent.is_ok() {
            self.socket.close().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_messages_are_text_with_a_digit() {
        let form = NumberedForm::new("v4.base64.channel.k8s.io");
        assert_eq!(form.encode_text(1, b"hi\n").as_deref(), Some("1aGkK"));
        assert_eq!(form.encode_text(1, b"").as_deref(), Some("1"));
        let decode = |text: &'static str| form.decode(Bytes::from_static(text.as_bytes()));
        assert_eq!(decode("0aGkK").as_deref(), Some(&b"\0hi\n"[..]));
        assert_eq!(decode("").as_deref(), Some(&b""[..]));
        for wrong in ["0a", "!aGkK"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
        let binary = NumberedForm::new("channel.k8s.io");
        assert_eq!((binary.encode_text(1, b"x"), binary.has_status, form.has_status), (None, false, true));
    }
}
