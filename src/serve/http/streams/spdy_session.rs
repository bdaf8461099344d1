//! The streams of a session over SPDY/3.1: `v4.channel.k8s.io` as clients before kubectl 1.31 speak it.
//!
//! The client opens one stream for each channel and names it in the header `streamtype`. Start reading at [`SpdySession::decode`].

use super::client_message::{ClientMessage, ERROR, RESIZE, STDIN, STDOUT, read_size};
use super::spdy::{Frame, FrameReader, FrameWriter};
use crate::runtime::session::RequestedStreams;
use bytes::Bytes;
use std::io;

/// Values of the header `streamtype`, by the number of the channel.
const CHANNELS: [&str; 5] = ["stdin", "stdout", "stderr", "error", "resize"];

/// The open streams of one session.
#[derive(Default)]
pub struct SpdySession {
    reader: FrameReader,
    writer: FrameWriter,
    /// The stream of each channel, by the number of the channel.
    streams: [Option<u32>; CHANNELS.len()],
}

/// Result of a frame.
#[derive(Debug, PartialEq)]
pub enum SessionEvent {
    /// A message for the session.
    Message(ClientMessage),
    /// Bytes to send to the client.
    Answer(Bytes),
}

impl SpdySession {
    /// Whether the client has opened all streams that it has asked for.
    pub fn is_complete(&self, wanted: RequestedStreams) -> bool {
        let needed = [wanted.stdin, wanted.stdout, wanted.stderr, true, wanted.tty];
        needed.iter().zip(self.streams).all(|(needed, stream)| !needed || stream.is_some())
    }

    /// Reads bytes of the connection.
    pub fn decode(&mut self, bytes: &[u8]) -> io::Result<Vec<SessionEvent>> {
        self.reader.push(bytes);
        let mut events = Vec::new();
        while let Some(frame) = self.reader.next_frame()? {
            match frame {
                Frame::Open { id, headers } => events.push(SessionEvent::Answer(self.open(id, &headers)?)),
                Frame::Data { id, bytes, is_last } => self.read_data(id, bytes, is_last, &mut events),
                Frame::Reset(id) => self.read_data(id, Bytes::new(), true, &mut events),
                // Even numbers answer pings of ours.
                Frame::Ping(id) if id % 2 == 1 => events.push(SessionEvent::Answer(FrameWriter::encode_ping(id))),
                Frame::Ping(_) | Frame::GoAway | Frame::Other => {}
            }
        }
        Ok(events)
    }

    fn open(&mut self, id: u32, headers: &[(String, String)]) -> io::Result<Bytes> {
        let kind = headers.iter().find(|(name, _)| name == "streamtype").map(|(_, value)| value.as_str());
        let channel = CHANNELS.iter().position(|known| Some(*known) == kind);
        match channel.and_then(|channel| self.streams.get_mut(channel)) {
            Some(stream) if stream.is_none() => {
                *stream = Some(id);
                self.writer.encode_reply(id)
            }
            _ => Ok(FrameWriter::encode_refusal(id)),
        }
    }

    fn read_data(&self, id: u32, bytes: Bytes, is_last: bool, events: &mut Vec<SessionEvent>) {
        let channel = self.streams.iter().position(|stream| *stream == Some(id));
        let mut add = |message| events.push(SessionEvent::Message(message));
        if channel == Some(RESIZE.into()) {
            read_size(&bytes).into_iter().for_each(|size| add(ClientMessage::Resize(size)));
        }
        if channel == Some(STDIN.into()) {
            if !bytes.is_empty() {
                add(ClientMessage::Input(bytes));
            }
            if is_last {
                add(ClientMessage::InputEnd);
            }
        }
    }

    /// Encodes bytes for a channel; nothing when the client has not opened it.
    pub fn encode(&self, channel: u8, bytes: &[u8]) -> Option<Bytes> {
        let stream = self.streams.get(usize::from(channel)).copied().flatten()?;
        Some(FrameWriter::encode_data(stream, bytes, false))
    }

    /// Encodes the end of the session: the status, and the end of all streams of the server.
    pub fn encode_end(&self, status: &[u8]) -> Vec<u8> {
        let mut end = Vec::new();
        for channel in [STDOUT, STDOUT + 1, ERROR] {
            let bytes = if channel == ERROR { status } else { b"" };
            if let Some(stream) = self.streams[usize::from(channel)] {
                end.extend_from_slice(&FrameWriter::encode_data(stream, bytes, true));
            }
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::session::TerminalSize;

    fn opened(kinds: &[&str]) -> SpdySession {
        let mut session = SpdySession::default();
        for (index, kind) in kinds.iter().enumerate() {
            session.open(index as u32 * 2 + 1, &[("streamtype".into(), (*kind).into())]).unwrap();
        }
        session
    }

    #[test]
    fn session_is_complete_with_the_streams_that_were_asked_for() {
        let wanted = RequestedStreams { stdin: true, stdout: true, stderr: false, tty: true };
        assert!(!opened(&["error", "stdin", "stdout"]).is_complete(wanted));
        assert!(opened(&["error", "stdin", "stdout", "resize"]).is_complete(wanted));
        assert!(!opened(&["stdin", "stdout", "resize"]).is_complete(wanted), "the error stream is always needed");
    }

    #[test]
    fn streams_are_opened_once_and_by_known_names() {
        let mut session = opened(&["stdin"]);
        for kind in ["stdin", "other"] {
            let refusal = FrameWriter::encode_refusal(9);
            assert_eq!(session.open(9, &[("streamtype".into(), kind.into())]).unwrap(), refusal);
        }
        assert_eq!(session.open(9, &[]).unwrap(), FrameWriter::encode_refusal(9));
    }

    #[test]
    fn data_is_read_by_its_stream() {
        let mut session = opened(&["stdin", "resize", "stdout"]);
        let frames = [
            FrameWriter::encode_data(1, b"abc", true),
            FrameWriter::encode_data(3, br#"{"Width":80,"Height":24}"#, false),
            FrameWriter::encode_data(5, b"not for the server", false),
            FrameWriter::encode_ping(7),
        ];
        let size = TerminalSize { rows: 24, columns: 80 };
        let expected = [
            SessionEvent::Message(ClientMessage::Input(Bytes::from_static(b"abc"))),
            SessionEvent::Message(ClientMessage::InputEnd),
            SessionEvent::Message(ClientMessage::Resize(size)),
            SessionEvent::Answer(FrameWriter::encode_ping(7)),
        ];
        assert_eq!(session.decode(&frames.concat()).unwrap(), expected);
        assert_eq!(session.encode(STDOUT, b"x"), Some(FrameWriter::encode_data(5, b"x", false)));
        assert_eq!(session.encode(STDOUT + 1, b"x"), None);
    }
}
