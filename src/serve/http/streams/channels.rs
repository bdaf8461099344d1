//! The channels of a session: `v5.channel.k8s.io` and `v4.channel.k8s.io` (`apimachinery/pkg/util/remotecommand`).
//!
//! Over WebSocket each message begins with the number of its channel; over SPDY each channel is a stream ([`super::spdy_session`]).

use super::client_message::{ClientMessage, ERROR, read_message};
use super::socket::MessageSocket;
use super::spdy_session::{SessionEvent, SpdySession};
use crate::runtime::session::RequestedStreams;
use bytes::BytesMut;
use serde_json::Value;
use std::collections::VecDeque;
use std::io;
use std::time::Duration;
use tokio::time::timeout;

/// Time limit for a client to open all streams of a session over SPDY (kubelet: `streamCreationTimeout`).
const STREAM_CREATION: Duration = Duration::from_secs(30);

/// Protocols of sessions, the best first.
pub const PROTOCOLS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];

/// The channels of one session.
pub struct SessionChannels {
    socket: MessageSocket,
    form: ChannelForm,
    /// Messages that were read and not received yet.
    pending: VecDeque<ClientMessage>,
}

enum ChannelForm {
    /// Numbered messages; whether the client can end one channel alone (v5).
    Numbered { has_close: bool },
    /// A stream for each channel.
    Streams(SpdySession),
}

impl SessionChannels {
    /// The channels of a WebSocket connection that speaks this protocol.
    pub fn numbered(socket: MessageSocket, protocol: &str) -> SessionChannels {
        let form = ChannelForm::Numbered { has_close: protocol == PROTOCOLS[0] };
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
            ChannelForm::Numbered { has_close } => {
                self.pending.push_back(read_message(bytes, *has_close));
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
            ChannelForm::Numbered { .. } => Some([&[channel], bytes].concat().into()),
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
        let status = status.to_string();
        let sent = match &self.form {
            ChannelForm::Numbered { .. } => self.send(ERROR, status.as_bytes()).await,
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
