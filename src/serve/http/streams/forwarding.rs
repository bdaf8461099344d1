//! The protocols for port forwarding: SPDY streams inside WebSocket messages, or channels with one port for each pair.

use super::spdy::{Frame, FrameReader, FrameWriter};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::{BufMut, Bytes, BytesMut};
use std::collections::HashMap;
use std::io;

/// SPDY inside WebSocket messages, as in kubectl since 1.31.
pub const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";
/// SPDY without WebSocket, as older clients speak it.
pub const STREAMS: &str = "portforward.k8s.io";
/// Channels in pairs, one pair for each port in the request.
pub const CHANNELS: &str = "v4.channel.k8s.io";
/// The same channels, as text: a digit, and bytes in base64.
pub const TEXT_CHANNELS: &str = "v4.base64.channel.k8s.io";
/// Maximum number of error streams whose data stream has not arrived yet.
const MAX_HALF_OPEN: usize = 1024;

/// An event from a client.
#[derive(Debug, PartialEq)]
pub enum ForwardingEvent {
    /// A connection to a port.
    Open {
        /// Its stream.
        data: u32,
        /// Its error stream.
        error: u32,
        /// The port.
        port: u16,
    },
    /// Bytes for a connection.
    Data {
        /// Its stream.
        id: u32,
        /// The bytes.
        bytes: Bytes,
        /// Whether these are the last bytes of the stream.
        is_last: bool,
    },
    /// A connection was reset.
    Reset(u32),
    /// A message to send back.
    Answer(Bytes),
}

/// A message for a client.
#[derive(Debug)]
pub enum Outgoing {
    /// Bytes from a connection.
    Data {
        /// Its stream.
        data: u32,
        /// The bytes.
        bytes: Bytes,
    },
    /// The end of a connection.
    Done {
        /// Its stream.
        data: u32,
        /// Its error stream.
        error: u32,
    },
    /// The connection failed.
    Failed {
        /// Its stream.
        data: u32,
        /// Its error stream.
        error: u32,
        /// The error.
        why: String,
    },
}

/// One of the protocols.
pub enum ForwardingCodec {
    /// [`TUNNEL`] or [`STREAMS`].
    Tunnel(Tunnel),
    /// [`CHANNELS`] or [`TEXT_CHANNELS`].
    Channels {
        /// The ports of the request.
        ports: Vec<u16>,
        /// Whether messages are text.
        is_base64: bool,
    },
}

/// State of [`TUNNEL`] or [`STREAMS`].
pub struct Tunnel {
    reader: FrameReader,
    writer: FrameWriter,
    /// Error streams by request id, until its data stream arrives.
    errors: HashMap<String, u32>,
}

impl ForwardingCodec {
    /// Makes the codec of a negotiated protocol, with the ports of the request.
    pub fn new(protocol: &str, ports: Vec<u16>) -> ForwardingCodec {
        if [CHANNELS, TEXT_CHANNELS].contains(&protocol) {
            return ForwardingCodec::Channels { ports, is_base64: protocol == TEXT_CHANNELS };
        }
        let (reader, writer, errors) = (FrameReader::default(), FrameWriter::default(), HashMap::new());
        ForwardingCodec::Tunnel(Tunnel { reader, writer, errors })
    }

    /// Whether all connections exist from the beginning.
    pub fn is_fixed(&self) -> bool {
        matches!(self, ForwardingCodec::Channels { .. })
    }

    /// Returns the initial messages: each channel names its port.
    pub fn greeting(&self) -> Vec<Bytes> {
        let ForwardingCodec::Channels { ports, .. } = self else { return Vec::new() };
        let name = |(index, port): (usize, &u16)| {
            let [low, high] = port.to_le_bytes();
            let first = channel_of(index);
            [first, first + 1].map(|channel| Bytes::from(vec![channel, low, high]))
        };
        ports.iter().enumerate().flat_map(name).collect()
    }

    /// Returns the connections of the request itself.
    pub fn first_events(&self) -> Vec<ForwardingEvent> {
        let ForwardingCodec::Channels { ports, .. } = self else { return Vec::new() };
        let open = |(index, port): (usize, &u16)| {
            let data = u32::from(channel_of(index));
            ForwardingEvent::Open { data, error: data + 1, port: *port }
        };
        ports.iter().enumerate().map(open).collect()
    }

    /// Reads a message.
    pub fn decode(&mut self, message: Bytes) -> io::Result<Vec<ForwardingEvent>> {
        match self {
            ForwardingCodec::Tunnel(tunnel) => tunnel.decode(&message),
            ForwardingCodec::Channels { is_base64, .. } => Ok(match message.first() {
                Some(digit) if *is_base64 => {
                    let bytes = BASE64_STANDARD.decode(&message[1..]).map_err(io::Error::other)?;
                    let id = digit.wrapping_sub(b'0').into();
                    vec![ForwardingEvent::Data { id, bytes: bytes.into(), is_last: false }]
                }
                Some(channel) => {
                    vec![ForwardingEvent::Data { id: (*channel).into(), bytes: message.slice(1..), is_last: false }]
                }
                None => Vec::new(),
            }),
        }
    }

    /// Returns the text of an encoded message; `None` where messages are bytes.
    pub fn to_text(&self, message: &[u8]) -> Option<String> {
        let (ForwardingCodec::Channels { is_base64: true, .. }, Some((channel, bytes))) = (self, message.split_first())
        else {
            return None;
        };
        Some(format!("{}{}", char::from(b'0'.wrapping_add(*channel)), BASE64_STANDARD.encode(bytes)))
    }

    /// Encodes a message for the client.
    pub fn encode(&self, outgoing: Outgoing) -> io::Result<Vec<Bytes>> {
        let on_channel = |channel: u32, bytes: &[u8]| {
            let mut message = BytesMut::with_capacity(bytes.len() + 1);
            message.put_u8(channel as u8);
            message.extend_from_slice(bytes);
            message.freeze()
        };
        Ok(match (self, outgoing) {
            (ForwardingCodec::Tunnel(_), Outgoing::Data { data, bytes }) => {
                vec![FrameWriter::encode_data(data, &bytes, false)]
            }
            (ForwardingCodec::Tunnel(_), Outgoing::Done { data, error }) => {
                vec![FrameWriter::encode_data(data, b"", true), FrameWriter::encode_data(error, b"", true)]
            }
            (ForwardingCodec::Tunnel(_), Outgoing::Failed { data, error, why }) => {
                vec![FrameWriter::encode_data(error, why.as_bytes(), true), FrameWriter::encode_data(data, b"", true)]
            }
            (ForwardingCodec::Channels { .. }, Outgoing::Data { data, bytes }) => vec![on_channel(data, &bytes)],
            (ForwardingCodec::Channels { .. }, Outgoing::Done { .. }) => Vec::new(),
            (ForwardingCodec::Channels { .. }, Outgoing::Failed { error, why, .. }) => {
                vec![on_channel(error, why.as_bytes())]
            }
        })
    }
}

/// Returns the channel for the data of a port, by its index in the request; the next one is for its errors.
fn channel_of(index: usize) -> u8 {
    (index * 2) as u8
}

impl Tunnel {
    fn decode(&mut self, message: &[u8]) -> io::Result<Vec<ForwardingEvent>> {
        self.reader.push(message);
        let mut events = Vec::new();
        while let Some(frame) = self.reader.next_frame()? {
            match frame {
                Frame::Open { id, headers } => events.extend(self.open(id, &headers)?),
                Frame::Data { id, bytes, is_last } => events.push(ForwardingEvent::Data { id, bytes, is_last }),
                Frame::Reset(id) => events.push(ForwardingEvent::Reset(id)),
                // Even ids answer our own pings.
                Frame::Ping(id) if id % 2 == 1 => events.push(ForwardingEvent::Answer(FrameWriter::encode_ping(id))),
                Frame::Ping(_) | Frame::GoAway | Frame::Other => {}
            }
        }
        Ok(events)
    }

    /// Opens a connection: two streams with the same request id, the data stream last.
    fn open(&mut self, id: u32, headers: &[(String, String)]) -> io::Result<Vec<ForwardingEvent>> {
        let header = |name: &str| headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let request = header("requestid").unwrap_or_default();
        let port = header("port").and_then(|port| port.parse().ok()).filter(|port| *port > 0);
        let refused = || Ok(vec![ForwardingEvent::Answer(FrameWriter::encode_refusal(id))]);
        let Some(port) = port else { return refused() };
        let opened = match header("streamtype") {
            Some("error") if self.errors.len() < MAX_HALF_OPEN => {
                self.errors.insert(request.to_owned(), id);
                None
            }
            Some("data") => match self.errors.remove(request) {
                Some(error) => Some(ForwardingEvent::Open { data: id, error, port }),
                None => return refused(),
            },
            _ => return refused(),
        };
        let reply = ForwardingEvent::Answer(self.writer.encode_reply(id)?);
        Ok(std::iter::once(reply).chain(opened).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(words: &str) -> Vec<(String, String)> {
        words
            .split(' ')
            .filter_map(|word| word.split_once('='))
            .map(|(name, value)| (name.into(), value.into()))
            .collect()
    }

    fn tunnel() -> Tunnel {
        match ForwardingCodec::new(TUNNEL, Vec::new()) {
            ForwardingCodec::Tunnel(tunnel) => tunnel,
            ForwardingCodec::Channels { .. } => panic!("another protocol"),
        }
    }

    #[test]
    fn connection_has_an_error_stream_and_a_data_stream() {
        let mut tunnel = tunnel();
        let events = tunnel.open(1, &headers("streamtype=error port=80 requestid=0")).unwrap();
        assert!(matches!(events[..], [ForwardingEvent::Answer(_)]), "{events:?}");
        let events = tunnel.open(3, &headers("streamtype=data port=80 requestid=0")).unwrap();
        assert_eq!(events[1..], [ForwardingEvent::Open { data: 3, error: 1, port: 80 }]);
        for refused in ["streamtype=data port=80 requestid=0", "streamtype=error port=0 requestid=1", "port=80", ""] {
            let events = tunnel.open(5, &headers(refused)).unwrap();
            assert_eq!(events, [ForwardingEvent::Answer(FrameWriter::encode_refusal(5))], "{refused}");
        }
    }

    #[test]
    fn channels_name_their_ports() {
        let codec = ForwardingCodec::new(CHANNELS, vec![80, 8080]);
        let greeting: Vec<Vec<u8>> = codec.greeting().iter().map(|message| message.to_vec()).collect();
        assert_eq!(greeting, [[0, 80, 0], [1, 80, 0], [2, 0x90, 0x1f], [3, 0x90, 0x1f]]);
        let opened = codec.first_events();
        assert_eq!(opened[1], ForwardingEvent::Open { data: 2, error: 3, port: 8080 });
    }

    #[test]
    fn channels_as_text_are_digits_and_base64() {
        let mut codec = ForwardingCodec::new(TEXT_CHANNELS, vec![80]);
        assert_eq!(codec.to_text(&codec.greeting()[1]), Some("1UAA=".into()));
        let sent = codec.encode(Outgoing::Data { data: 0, bytes: Bytes::from_static(b"ab") }).unwrap();
        assert_eq!(codec.to_text(&sent[0]), Some("0YWI=".into()));
        let read = codec.decode(Bytes::from_static(b"0YWI=")).unwrap();
        assert_eq!(read, [ForwardingEvent::Data { id: 0, bytes: Bytes::from_static(b"ab"), is_last: false }]);
        assert!(codec.decode(Bytes::from_static(b"0?")).is_err());
        assert_eq!(ForwardingCodec::new(CHANNELS, vec![80]).to_text(&[0]), None);
    }
}
