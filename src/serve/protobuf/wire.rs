//! Protobuf's wire format: keys, lengths and varints. Errors are those of Kubernetes' generated decoders.
//!
//! Never: knows a message or a field. Start reading at [`WireReader`] and [`write_bytes`].

use integer_encoding::VarInt;

/// Error for bytes that end within a value.
const END: &str = "unexpected EOF";
/// Maximum length of a varint, in bytes.
const MAX_VARINT_BYTES: usize = 10;
/// Maximum nesting of skipped groups; Kubernetes has none.
const MAX_GROUPS: usize = 16;

/// Encoding of a field on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireType {
    /// Integers and booleans.
    Varint,
    /// Eight bytes.
    Fixed64,
    /// Text, bytes and messages.
    Length,
    /// The start of a group.
    StartGroup,
    /// The end of a group.
    EndGroup,
    /// Four bytes.
    Fixed32,
    /// An undefined encoding.
    Undefined(u8),
}

impl WireType {
    fn from_key(key: u64) -> WireType {
        match key & 7 {
            0 => WireType::Varint,
            1 => WireType::Fixed64,
            2 => WireType::Length,
            3 => WireType::StartGroup,
            4 => WireType::EndGroup,
            5 => WireType::Fixed32,
            other => WireType::Undefined(other as u8),
        }
    }

    fn number(self) -> u8 {
        match self {
            WireType::Varint => 0,
            WireType::Fixed64 => 1,
            WireType::Length => 2,
            WireType::StartGroup => 3,
            WireType::EndGroup => 4,
            WireType::Fixed32 => 5,
            WireType::Undefined(number) => number,
        }
    }
}

/// Reads the fields of one message.
pub struct WireReader<'a> {
    rest: &'a [u8],
    message: &'a str,
}

impl<'a> WireReader<'a> {
    /// Makes a reader of a message with this name.
    pub fn new(bytes: &'a [u8], message: &'a str) -> WireReader<'a> {
        WireReader { rest: bytes, message }
    }

    /// Whether all bytes were read.
    pub fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the number and encoding of the next field; `None` at the end.
    pub fn next_key(&mut self) -> Result<Option<(u32, WireType)>, String> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let key = self.read_varint()?;
        let wire = WireType::from_key(key);
        // As in Go, the number is a signed 32-bit integer.
        let number = (key >> 3) as u32 as i32;
        match wire {
            WireType::EndGroup => Err(format!("proto: {}: wiretype end group for non-group", self.message)),
            _ if number <= 0 => {
                Err(format!("proto: {}: illegal tag {number} (wire type {})", self.message, wire.number()))
            }
            _ => Ok(Some((number as u32, wire))),
        }
    }

    /// Reads an integer.
    pub fn read_varint(&mut self) -> Result<u64, String> {
        match u64::decode_var(self.rest) {
            Some((value, length)) => {
                self.rest = &self.rest[length..];
                Ok(value)
            }
            None if self.rest.len() >= MAX_VARINT_BYTES => Err("proto: integer overflow".into()),
            None => Err(END.into()),
        }
    }

    /// Reads this many bytes; an error when there are fewer.
    pub fn read_exact(&mut self, length: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(END)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Reads bytes with a length prefix.
    pub fn read_bytes(&mut self) -> Result<&'a [u8], String> {
        let length = self.read_varint()?;
        match i64::try_from(length) {
            Ok(length) => self.read_exact(usize::try_from(length).map_err(|_| END)?),
            Err(_) => Err("proto: negative length found during unmarshaling".into()),
        }
    }

    /// Reads the bytes of a field with this encoding.
    pub fn expect_bytes(&mut self, wire: WireType, field: &str) -> Result<&'a [u8], String> {
        expect_wire_type(wire, WireType::Length, field)?;
        self.read_bytes()
    }

    /// Reads the integer of a field with this encoding.
    pub fn expect_varint(&mut self, wire: WireType, field: &str) -> Result<u64, String> {
        expect_wire_type(wire, WireType::Varint, field)?;
        self.read_varint()
    }

    /// Skips the value of an unknown field.
    pub fn skip(&mut self, wire: WireType) -> Result<(), String> {
        self.skip_within(wire, MAX_GROUPS)
    }

    fn skip_within(&mut self, wire: WireType, groups: usize) -> Result<(), String> {
        match wire {
            WireType::Varint => drop(self.read_varint()?),
            WireType::Fixed64 => drop(self.read_exact(8)?),
            WireType::Fixed32 => drop(self.read_exact(4)?),
            WireType::Length => drop(self.read_bytes()?),
            WireType::StartGroup if groups > 0 => loop {
                match WireType::from_key(self.read_varint()?) {
                    WireType::EndGroup => break,
                    inner => self.skip_within(inner, groups - 1)?,
                }
            },
            WireType::StartGroup | WireType::EndGroup => return Err("proto: unexpected end of group".into()),
            WireType::Undefined(number) => return Err(format!("proto: illegal wireType {number}")),
        }
        Ok(())
    }
}

/// Refuses a field in another encoding.
pub fn expect_wire_type(wire: WireType, own: WireType, field: &str) -> Result<(), String> {
    if wire == own {
        return Ok(());
    }
    let mut letters = field.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase()).unwrap_or_default();
    Err(format!("proto: wrong wireType = {} for field {first}{}", wire.number(), letters.as_str()))
}

/// Appends an integer.
pub fn write_varint(bytes: &mut Vec<u8>, value: u64) {
    if value < 0x80 {
        bytes.push(value as u8);
        return;
    }
    let mut encoded = [0; MAX_VARINT_BYTES];
    let length = value.encode_var(&mut encoded);
    bytes.extend_from_slice(&encoded[..length]);
}

/// Appends the number and the encoding of a field.
pub fn write_key(bytes: &mut Vec<u8>, number: u32, wire: WireType) {
    write_varint(bytes, u64::from(number) << 3 | u64::from(wire.number()));
}

/// Appends a field with text or bytes.
pub fn write_bytes(bytes: &mut Vec<u8>, number: u32, value: &[u8]) {
    write_key(bytes, number, WireType::Length);
    write_varint(bytes, value.len() as u64);
    bytes.extend_from_slice(value);
}

/// Appends a field with an integer; a negative one takes ten bytes.
pub fn write_integer(bytes: &mut Vec<u8>, number: u32, value: i64) {
    write_key(bytes, number, WireType::Varint);
    write_varint(bytes, value as u64);
}

/// Begins a field with a length prefix: returns the position for [`end_length`].
pub fn start_length(bytes: &mut Vec<u8>, number: u32) -> usize {
    write_key(bytes, number, WireType::Length);
    // Room for a length of one byte, which is enough for most.
    bytes.push(0);
    bytes.len()
}

/// Ends a field that began at this position.
pub fn end_length(bytes: &mut Vec<u8>, start: usize) {
    let length = bytes.len() - start;
    if length < 0x80 {
        bytes[start - 1] = length as u8;
        return;
    }
    let mut encoded = [0; MAX_VARINT_BYTES];
    let width = (length as u64).encode_var(&mut encoded);
    bytes.extend_from_slice(&encoded[1..width]);
    bytes.copy_within(start..start + length, start - 1 + width);
    bytes[start - 1..start - 1 + width].copy_from_slice(&encoded[..width]);
}
