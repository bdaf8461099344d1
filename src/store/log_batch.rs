//! A batch of the shared log: everything that one transaction changes for all machines, as bytes.
//!
//! Knows: the format and its version. Never: touches the database or a network. Start reading at [`LogBatch`].

use super::protobuf::{FieldValue, FieldWriter, MalformedMessage, read_fields};
use super::record::LogRow;
use crate::object::{Key, Resource, Str};

/// The version of the format. A reader refuses batches of later versions.
pub(super) const BATCH_FORMAT: u64 = 1;

/// Length of a batch from which on it is compressed: that takes a few milliseconds for each megabyte.
const COMPRESSED_FROM: usize = 96 << 10;

/// Maximum length of a batch after decompression.
const MAX_BYTES: u64 = 256 << 20;

/// Changes of one transaction under construction.
#[derive(Clone, Debug, Default)]
pub(super) struct LogBatch {
    fields: FieldWriter,
}

/// One change of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BatchChange {
    /// An object was created or changed.
    Put(SharedRow),
    /// An object was removed; the row has its last state.
    Remove(SharedRow),
    /// A setting of the control plane was set.
    SetMeta(String, String),
}

/// The object of a change, and the circumstances of the change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SharedRow {
    pub key: Key,
    pub uid: Str,
    pub actor: Str,
    /// Microseconds since 1970.
    pub at: i64,
    pub body: Str,
}

/// A batch as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReceivedBatch {
    /// The revision before its first change.
    pub after: u64,
    pub changes: Vec<BatchChange>,
}

/// Reason why a batch cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BatchError {
    /// A newer kloop wrote it; its format.
    Newer(u64),
    /// The bytes are not a batch of kloop.
    Malformed,
}

impl From<MalformedMessage> for BatchError {
    fn from(_: MalformedMessage) -> BatchError {
        BatchError::Malformed
    }
}

/// The changes of a transaction for the log.
#[derive(Clone, Debug, Default)]
pub(super) struct Outgoing {
    pub batch: LogBatch,
    /// Number of the batch before it.
    pub after: u64,
}

impl Outgoing {
    /// Adds an object's change.
    pub fn push_row(&mut self, row: &LogRow) {
        let stored = row.change.stored();
        let shared = SharedRow {
            key: stored.key.clone(),
            uid: stored.uid.clone(),
            actor: row.actor.clone(),
            at: row.at,
            body: stored.body.clone(),
        };
        let is_live = row.change.live().is_some();
        self.batch.push(&if is_live { BatchChange::Put(shared) } else { BatchChange::Remove(shared) });
    }
}

/// Numbers of the fields of a batch.
const FORMAT: u32 = 1;
const ID: u32 = 2;
const AFTER: u32 = 3;
const PUT: u32 = 4;
const REMOVE: u32 = 5;
const SET_META: u32 = 6;
const COMPRESSED: u32 = 7;

impl LogBatch {
    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.fields.len() == 0
    }

    /// Its present length, for [`LogBatch::undo_to`].
    pub fn mark(&self) -> usize {
        self.fields.len()
    }

    /// Removes the changes since a mark.
    pub fn undo_to(&mut self, mark: usize) {
        self.fields.truncate(mark);
    }

    /// Adds a change.
    pub fn push(&mut self, change: &BatchChange) {
        let mut message = FieldWriter::default();
        let field = match change {
            BatchChange::Put(row) | BatchChange::Remove(row) => {
                write_row(&mut message, row);
                if matches!(change, BatchChange::Put(_)) { PUT } else { REMOVE }
            }
            BatchChange::SetMeta(name, value) => {
                message.bytes(1, name.as_bytes()).bytes(2, value.as_bytes());
                SET_META
            }
        };
        self.fields.message(field, message.as_bytes());
    }

    /// Ends the batch. `id` makes it unique; `after` is the revision before its first change.
    pub fn encode(&self, id: u64, after: u64) -> Vec<u8> {
        let mut batch = FieldWriter::default();
        batch.number(FORMAT, BATCH_FORMAT).number(ID, id).number(AFTER, after);
        let changes = self.fields.as_bytes();
        if changes.len() < COMPRESSED_FROM {
            let mut bytes = batch.finish();
            bytes.extend_from_slice(changes);
            return bytes;
        }
        batch.bytes(COMPRESSED, &compress(changes));
        batch.finish()
    }
}

/// Returns the id of an encoded batch; zero for one that is malformed.
pub(super) fn read_id(batch: &[u8]) -> u64 {
    let id = read_fields(batch).flatten().find(|(field, _)| *field == ID);
    id.map_or(0, |(_, value)| value.as_number())
}

/// Reads a batch.
pub(super) fn decode(batch: &[u8]) -> Result<ReceivedBatch, BatchError> {
    let mut received = ReceivedBatch { after: 0, changes: Vec::new() };
    for field in read_fields(batch) {
        match field? {
            (FORMAT, format) if format.as_number() > BATCH_FORMAT => return Err(BatchError::Newer(format.as_number())),
            (AFTER, after) => received.after = after.as_number(),
            (COMPRESSED, packed) => {
                let unpacked = decompress(packed.as_bytes()).ok_or(BatchError::Malformed)?;
                for field in read_fields(&unpacked) {
                    received.changes.extend(read_change(field?)?);
                }
            }
            field => received.changes.extend(read_change(field)?),
        }
    }
    Ok(received)
}

fn read_change((field, value): (u32, FieldValue<'_>)) -> Result<Option<BatchChange>, BatchError> {
    Ok(match field {
        PUT => Some(BatchChange::Put(read_row(value.as_bytes())?)),
        REMOVE => Some(BatchChange::Remove(read_row(value.as_bytes())?)),
        SET_META => {
            let (mut name, mut text) = (String::new(), String::new());
            for field in read_fields(value.as_bytes()) {
                match field? {
                    (1, value) => name = read_text(value)?.to_owned(),
                    (2, value) => text = read_text(value)?.to_owned(),
                    _ => {}
                }
            }
            Some(BatchChange::SetMeta(name, text))
        }
        _ => None,
    })
}

/// Adds the fields of a row to a message.
pub(super) fn write_row(message: &mut FieldWriter, row: &SharedRow) {
    let key = &row.key;
    message.bytes(1, key.resource.0.as_bytes()).bytes(2, key.namespace.as_bytes()).bytes(3, key.name.as_bytes());
    message.bytes(4, row.uid.as_bytes()).bytes(5, row.actor.as_bytes()).number(6, row.at as u64);
    message.bytes(7, row.body.as_bytes());
}

/// Reads the fields of [`write_row`].
pub(super) fn read_row(message: &[u8]) -> Result<SharedRow, BatchError> {
    let [mut resource, mut namespace, mut name, mut uid, mut actor, mut body] = [""; 6];
    let mut at = 0;
    for field in read_fields(message) {
        match field? {
            (1, value) => resource = read_text(value)?,
            (2, value) => namespace = read_text(value)?,
            (3, value) => name = read_text(value)?,
            (4, value) => uid = read_text(value)?,
            (5, value) => actor = read_text(value)?,
            (6, value) => at = value.as_number() as i64,
            (7, value) => body = read_text(value)?,
            _ => {}
        }
    }
    let key = Key::new(Resource::intern(resource), namespace, name);
    Ok(SharedRow { key, uid: uid.into(), actor: actor.into(), at, body: body.into() })
}

fn read_text<'a>(value: FieldValue<'a>) -> Result<&'a str, BatchError> {
    std::str::from_utf8(value.as_bytes()).map_err(|_| BatchError::Malformed)
}

/// Compresses bytes, quickly rather than well.
pub(super) fn compress(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
    // Writing to memory does not fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

/// Decompresses bytes; `None` for malformed ones, and for those that become too long.
pub(super) fn decompress(bytes: &[u8]) -> Option<Vec<u8>> {
    use std::io::Read;
    let mut unpacked = Vec::new();
    let mut decoder = flate2::read::DeflateDecoder::new(bytes).take(MAX_BYTES + 1);
    let length = decoder.read_to_end(&mut unpacked).ok()?;
    (length as u64 <= MAX_BYTES).then_some(unpacked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, body: &str) -> SharedRow {
        let key = Key::new(Resource("pods"), "default", name);
        SharedRow { key, uid: "u".into(), actor: "kloop".into(), at: -5, body: body.into() }
    }

    #[test]
    fn batch_is_read_as_it_was_written() {
        for length in [10, 3 * COMPRESSED_FROM] {
            let changes = [
                BatchChange::Put(row("a", &"x".repeat(length))),
                BatchChange::Remove(row("b", "{}")),
                BatchChange::SetMeta("epoch".into(), "7".into()),
            ];
            let mut batch = LogBatch::default();
            assert!(batch.is_empty());
            changes.iter().for_each(|change| batch.push(change));
            let mark = batch.mark();
            batch.push(&BatchChange::SetMeta("undone".into(), "1".into()));
            batch.undo_to(mark);
            let bytes = batch.encode(99, 41);
            assert!(bytes.len() < 2 * COMPRESSED_FROM);
            assert_eq!(read_id(&bytes), 99);
            assert_eq!(decode(&bytes), Ok(ReceivedBatch { after: 41, changes: changes.to_vec() }));
        }
    }

    #[test]
    fn batches_of_a_newer_kloop_and_other_bytes_are_refused() {
        let mut newer = FieldWriter::default();
        newer.number(FORMAT, BATCH_FORMAT + 1).number(ID, 1);
        assert_eq!(decode(newer.as_bytes()), Err(BatchError::Newer(BATCH_FORMAT + 1)));
        assert_eq!(decode(b"\xff\xff"), Err(BatchError::Malformed));
        let mut foreign = FieldWriter::default();
        foreign.message(PUT, &[0x0a, 2, 0xff, 0xfe]);
        assert_eq!(decode(foreign.as_bytes()), Err(BatchError::Malformed));
    }
}
