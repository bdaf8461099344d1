//! Fields of protobuf messages: writes them, and reads them from bytes that others wrote.
//!
//! Knows: varints and length-delimited fields; it skips fixed-width ones. Never: knows a message. Start reading at [`FieldWriter`].

use integer_encoding::VarInt;

/// A message under construction.
#[derive(Clone, Debug, Default)]
pub(super) struct FieldWriter {
    bytes: Vec<u8>,
}

impl FieldWriter {
    /// Adds a number, unless it is zero, which readers assume.
    pub fn number(&mut self, field: u32, value: u64) -> &mut FieldWriter {
        if value != 0 {
            self.varint(u64::from(field) << 3);
            self.varint(value);
        }
        self
    }

    /// Adds bytes or a text, unless it is empty, which readers assume.
    pub fn bytes(&mut self, field: u32, value: &[u8]) -> &mut FieldWriter {
        if value.is_empty() { self } else { self.message(field, value) }
    }

    /// Adds a message, even an empty one.
    pub fn message(&mut self, field: u32, value: &[u8]) -> &mut FieldWriter {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(value.len() as u64);
        self.bytes.extend_from_slice(value);
        self
    }

    /// Number of bytes so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Removes the fields after a length.
    pub fn truncate(&mut self, length: usize) {
        self.bytes.truncate(length);
    }

    /// The bytes so far.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Ends the message.
    pub fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    fn varint(&mut self, value: u64) {
        let mut buffer = [0; 10];
        let length = value.encode_var(&mut buffer);
        self.bytes.extend_from_slice(&buffer[..length]);
    }
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldValue<'a> {
    /// A number.
    Number(u64),
    /// Bytes, a text, or a message.
    Bytes(&'a [u8]),
}

impl<'a> FieldValue<'a> {
    /// The number; zero for other values.
    pub fn as_number(self) -> u64 {
        match self {
            FieldValue::Number(value) => value,
            FieldValue::Bytes(_) => 0,
        }
    }

    /// The bytes; none for a number.
    pub fn as_bytes(self) -> &'a [u8] {
        match self {
            FieldValue::Bytes(value) => value,
            FieldValue::Number(_) => &[],
        }
    }
}

/// Reads the fields of a message in their order; ends after the first that is malformed, as an error.
pub(super) fn read_fields(message: &[u8]) -> impl Iterator<Item = Result<(u32, FieldValue<'_>), MalformedMessage>> {
    let mut rest = message;
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            match read_field(rest) {
                Some((Some(field), after)) => {
                    rest = after;
                    return Some(Ok(field));
                }
                Some((None, after)) => rest = after,
                None => {
                    rest = &[];
                    return Some(Err(MalformedMessage));
                }
            }
        }
        None
    })
}

/// A message that ends within a field, or has a field of an unknown form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MalformedMessage;

type ReadField<'a> = (Option<(u32, FieldValue<'a>)>, &'a [u8]);

/// Reads one field and returns the rest; the field is `None` where it has a fixed width.
fn read_field(bytes: &[u8]) -> Option<ReadField<'_>> {
    let (tag, length) = u64::decode_var(bytes)?;
    let rest = bytes.get(length..)?;
    let field = u32::try_from(tag >> 3).ok()?;
    match tag & 7 {
        0 => {
            let (value, length) = u64::decode_var(rest)?;
            Some((Some((field, FieldValue::Number(value))), rest.get(length..)?))
        }
        1 => Some((None, rest.get(8..)?)),
        2 => {
            let (length, size) = u64::decode_var(rest)?;
            let rest = rest.get(size..)?;
            let length = usize::try_from(length).ok()?;
            Some((Some((field, FieldValue::Bytes(rest.get(..length)?))), rest.get(length..)?))
        }
        5 => Some((None, rest.get(4..)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_they_were_written() {
        let mut message = FieldWriter::default();
        message.number(1, 0).number(2, 300).bytes(3, b"").bytes(4, b"text").message(5, b"");
        let fields: Result<Vec<_>, _> = read_fields(message.as_bytes()).collect();
        let expected = [(2, FieldValue::Number(300)), (4, FieldValue::Bytes(b"text")), (5, FieldValue::Bytes(b""))];
        assert_eq!(fields, Ok(expected.to_vec()));
    }

    #[test]
    fn fixed_fields_are_skipped_and_short_messages_refused() {
        let with_fixed = [0x09, 1, 2, 3, 4, 5, 6, 7, 8, 0x15, 1, 2, 3, 4, 0x18, 7];
        assert_eq!(read_fields(&with_fixed).collect::<Vec<_>>(), [Ok((3, FieldValue::Number(7)))]);
        for short in [&[0x08][..], &[0x0a, 5, 1], &[0x09, 1], &[0x0b], &[0x80]] {
            assert_eq!(read_fields(short).collect::<Vec<_>>(), [Err(MalformedMessage)], "{short:?}");
        }
    }
}
