//! Frames of SPDY/3.1, as far as Kubernetes' clients use them (`moby/spdystream`).
//!
//! The header blocks of each direction are one zlib stream. The client's uses the dictionary of SPDY/3; ours uses none, which readers
//! recognize by its first bytes.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};
use std::io;

/// Maximum length of a received frame, in bytes.
const MAX_FRAME_LENGTH: usize = 1 << 20;
/// Maximum length of an unpacked header block.
const MAX_HEADERS: usize = 64 << 10;
/// Flag of the last frame of a sender on a stream.
const FIN: u8 = 1;
const CONTROL: u16 = 1 << 15;
const VERSION: u16 = 3;
const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;
/// Flag in the first two bytes of a zlib stream with a dictionary.
const HAS_DICTIONARY: u8 = 0x20;

/// Words at the beginning of the dictionary, each preceded by its length.
const WORDS: &str = "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow \
authorization cache-control connection content-base content-encoding content-language content-length content-location content-md5 \
content-range content-type date etag expect expires from host if-match if-modified-since if-none-match if-range if-unmodified-since \
last-modified location max-forwards pragma proxy-authenticate proxy-authorization range referer retry-after server te trailer \
transfer-encoding upgrade user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie \
keep-alive origin";
/// Rest of the dictionary.
const TEXT: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505\
203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not Found\
500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 \
Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,\
text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";

/// A frame from a client.
#[derive(Debug, PartialEq)]
pub enum Frame {
    /// A new stream.
    Open {
        /// Its number.
        id: u32,
        /// Its headers.
        headers: Vec<(String, String)>,
    },
    /// Bytes of a stream.
    Data {
        /// Its number.
        id: u32,
        /// The bytes.
        bytes: Bytes,
        /// Whether these are the last bytes of the stream.
        is_last: bool,
    },
    /// A stream was reset.
    Reset(u32),
    /// A ping, to be sent back.
    Ping(u32),
    /// The client will open no further streams.
    GoAway,
    /// An unknown frame.
    Other,
}

/// Reads the frames of a client.
#[derive(Default)]
pub struct FrameReader {
    pending: BytesMut,
    headers: Option<Decompress>,
}

/// Encodes frames for a client.
pub struct FrameWriter {
    headers: Compress,
}

fn malformed(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("malformed SPDY frame: {why}"))
}

fn dictionary() -> Vec<u8> {
    let mut dictionary = Vec::new();
    for word in WORDS.split(' ').map(|word| word.replace('_', " ")) {
        dictionary.extend((word.len() as u32).to_be_bytes());
        dictionary.extend(word.as_bytes());
    }
    dictionary.extend(TEXT.as_bytes());
    dictionary
}

/// Makes an unpacker for a stream without its zlib header, which names the dictionary. The dictionary is unpacked first, as a stored block.
fn with_dictionary() -> io::Result<Decompress> {
    let dictionary = dictionary();
    let length = dictionary.len() as u16;
    let mut block = vec![0];
    block.extend(length.to_le_bytes());
    block.extend((!length).to_le_bytes());
    block.extend(&dictionary);
    let mut inflater = Decompress::new(false);
    let mut unpacked = vec![0; dictionary.len() + 1];
    inflater.decompress(&block, &mut unpacked, FlushDecompress::Sync).map_err(io::Error::other)?;
    Ok(inflater)
}

impl FrameReader {
    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// Returns the next complete frame.
    pub fn next_frame(&mut self) -> io::Result<Option<Frame>> {
        let Some(head) = self.pending.first_chunk::<8>() else { return Ok(None) };
        let (mut first, length) = (&head[..4], u32::from_be_bytes([0, head[5], head[6], head[7]]) as usize);
        let flags = head[4];
        let (start, low) = (u16::from_be_bytes([first[0], first[1]]), u16::from_be_bytes([first[2], first[3]]));
        if length > MAX_FRAME_LENGTH {
            return Err(malformed("too long"));
        }
        let word = first.get_u32();
        if self.pending.len() < 8 + length {
            return Ok(None);
        }
        let mut body = self.pending.split_to(8 + length).split_off(8).freeze();
        if start & CONTROL == 0 {
            return Ok(Some(Frame::Data { id: word, bytes: body, is_last: flags & FIN != 0 }));
        }
        if start != CONTROL | VERSION {
            return Err(malformed("another version"));
        }
        let mut number = || body.try_get_u32().map(|number| number & !(1 << 31)).map_err(|_| malformed("too short"));
        Ok(Some(match low {
            SYN_STREAM => {
                let (id, _associated) = (number()?, number()?);
                // Priority and slot.
                let _ = body.try_get_u16().map_err(|_| malformed("too short"))?;
                Frame::Open { id, headers: self.read_headers(&body)? }
            }
            // All header blocks are one zlib stream, so these must be unpacked too.
            SYN_REPLY | HEADERS => {
                number()?;
                self.read_headers(&body)?;
                Frame::Other
            }
            RST_STREAM => Frame::Reset(number()?),
            PING => Frame::Ping(number()?),
            GOAWAY => Frame::GoAway,
            _ => Frame::Other,
        }))
    }

    fn read_headers(&mut self, mut packed: &[u8]) -> io::Result<Vec<(String, String)>> {
        if self.headers.is_none() {
            let [_, flags, ..] = packed else { return Err(malformed("no headers")) };
            let has_dictionary = flags & HAS_DICTIONARY != 0;
            packed = packed.get(if has_dictionary { 6 } else { 2 }..).ok_or_else(|| malformed("no headers"))?;
            self.headers = Some(if has_dictionary { with_dictionary()? } else { Decompress::new(false) });
        }
        let Some(inflater) = &mut self.headers else { return Err(malformed("no headers")) };
        let mut plain = Vec::with_capacity(MAX_HEADERS);
        let before = inflater.total_in();
        inflater.decompress_vec(packed, &mut plain, FlushDecompress::Sync).map_err(io::Error::other)?;
        if inflater.total_in() - before < packed.len() as u64 || plain.len() == plain.capacity() {
            return Err(malformed("headers too long"));
        }
        parse_headers(&plain).ok_or_else(|| malformed("headers"))
    }
}

fn parse_headers(mut plain: &[u8]) -> Option<Vec<(String, String)>> {
    let text = |plain: &mut &[u8]| -> Option<String> {
        let length = plain.try_get_u32().ok()? as usize;
        let text = String::from_utf8_lossy(plain.get(..length)?).into_owned();
        plain.advance(length);
        Some(text)
    };
    let count = plain.try_get_u32().ok()?;
    (0..count).map(|_| Some((text(&mut plain)?, text(&mut plain)?))).collect()
}

impl Default for FrameWriter {
    fn default() -> FrameWriter {
        FrameWriter { headers: Compress::new(Compression::fast(), true) }
    }
}

impl FrameWriter {
    /// Accepts a stream.
    pub fn encode_reply(&mut self, id: u32) -> io::Result<Bytes> {
        // No headers.
        let mut packed = Vec::with_capacity(64);
        self.headers.compress_vec(&[0; 4], &mut packed, FlushCompress::Sync).map_err(io::Error::other)?;
        Ok(encode_control(SYN_REPLY, &[&id.to_be_bytes(), &packed]))
    }

    /// Encodes data of a stream.
    pub fn encode_data(id: u32, bytes: &[u8], is_last: bool) -> Bytes {
        let mut frame = BytesMut::with_capacity(8 + bytes.len());
        frame.put_u32(id);
        put_length(&mut frame, if is_last { FIN } else { 0 }, bytes.len());
        frame.extend_from_slice(bytes);
        frame.freeze()
    }

    /// Encodes the answer to a ping.
    pub fn encode_ping(id: u32) -> Bytes {
        encode_control(PING, &[&id.to_be_bytes()])
    }

    /// Encodes the refusal of a stream.
    pub fn encode_refusal(id: u32) -> Bytes {
        const REFUSED_STREAM: u32 = 3;
        encode_control(RST_STREAM, &[&id.to_be_bytes(), &REFUSED_STREAM.to_be_bytes()])
    }
}

fn encode_control(kind: u16, parts: &[&[u8]]) -> Bytes {
    let body = parts.concat();
    let mut frame = BytesMut::with_capacity(8 + body.len());
    frame.put_u16(CONTROL | VERSION);
    frame.put_u16(kind);
    put_length(&mut frame, 0, body.len());
    frame.extend_from_slice(&body);
    frame.freeze()
}

fn put_length(frame: &mut BytesMut, flags: u8, length: usize) {
    frame.put_u32(u32::from(flags) << 24 | length as u32);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two header blocks as Python's zlib packs them with the dictionary: `streamtype: error, port: 80`, and the same with `data`.
    const FIRST: &str = "78bbe3c6a7c202e50e703a2b294a4dcc851625aca9a0808614cb45a024cc646100000000ffff";
    const SECOND: &str = "c2aa1054e624a2aa03000000ffff";

    fn bytes_from_hex(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.chars().map(|digit| digit.to_digit(16).unwrap() as u8).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    fn open(id: u32, block: &str) -> Bytes {
        encode_control(SYN_STREAM, &[&id.to_be_bytes(), &[0; 6], &bytes_from_hex(block)])
    }

    #[test]
    fn headers_are_unpacked_with_the_dictionary() {
        let mut reader = FrameReader::default();
        let all = [open(1, FIRST), open(3, SECOND)].concat();
        let (start, rest) = all.split_at(20);
        reader.push(start);
        assert_eq!(reader.next_frame().unwrap(), None, "the frame is incomplete");
        reader.push(rest);
        for (id, kind) in [(1, "error"), (3, "data")] {
            let headers = vec![("streamtype".into(), kind.into()), ("port".into(), "80".into())];
            assert_eq!(reader.next_frame().unwrap(), Some(Frame::Open { id, headers }));
        }
    }

    #[test]
    fn frames_are_read_as_they_are_written() {
        let mut reader = FrameReader::default();
        reader.push(&FrameWriter::encode_data(5, b"abc", true));
        reader.push(&FrameWriter::encode_ping(7));
        reader.push(&FrameWriter::encode_refusal(9));
        let bytes = Bytes::from_static(b"abc");
        let expected = [Frame::Data { id: 5, bytes, is_last: true }, Frame::Ping(7), Frame::Reset(9)];
        for frame in expected {
            assert_eq!(reader.next_frame().unwrap(), Some(frame));
        }
        assert_eq!(reader.next_frame().unwrap(), None);
    }

    #[test]
    fn replies_have_readable_headers() {
        let (mut writer, mut reader) = (FrameWriter::default(), FrameReader::default());
        for id in [1, 3] {
            reader.push(&writer.encode_reply(id).unwrap());
            assert_eq!(reader.next_frame().unwrap(), Some(Frame::Other));
        }
    }

    #[test]
    fn malformed_frames_are_refused() {
        for (frame, what) in [
            (&b"\x80\x02\0\x01\0\0\0\0"[..], "another version"),
            (b"\0\0\0\x01\0\xff\xff\xff", "too long"),
            (b"\x80\x03\0\x01\0\0\0\x02\0\0", "too short"),
            (b"\x80\x03\0\x01\0\0\0\x0c\0\0\0\x01\0\0\0\0\0\0\x78\x9c", "no block"),
        ] {
            let mut reader = FrameReader::default();
            reader.push(frame);
            assert!(reader.next_frame().is_err(), "{what}");
        }
    }
}
