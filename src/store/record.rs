//! Types of the rows, and their checksum.

use crate::object::{Key, Resource, Str, Time};
use rusqlite::Row;
use rusqlite::types::Type;

/// A live object, or the last state of a removed one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredObject {
    /// Its name.
    pub key: Key,
    /// Its uid.
    pub uid: Str,
    /// The revision of this state, which is its `resourceVersion`.
    pub revision: u64,
    /// The JSON text.
    pub body: Str,
}

/// The change of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// The object was created or changed to this state.
    Put(StoredObject),
    /// The object was removed; its last state, with the revision of the removal.
    Removed(StoredObject),
}

impl ChangeKind {
    /// The object's state after the change; its last state after a deletion.
    pub fn stored(&self) -> &StoredObject {
        match self {
            ChangeKind::Put(stored) | ChangeKind::Removed(stored) => stored,
        }
    }

    /// The object's state, unless it was removed.
    pub fn live(&self) -> Option<&StoredObject> {
        match self {
            ChangeKind::Put(stored) => Some(stored),
            ChangeKind::Removed(_) => None,
        }
    }

    fn word(&self) -> &'static str {
        match self {
            ChangeKind::Put(_) => "put",
            ChangeKind::Removed(_) => "removed",
        }
    }
}

/// One entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// The revision, its position in the order of all writes.
    pub revision: u64,
    /// The change.
    pub change: ChangeKind,
    /// The previous body, if the object existed: distinguishes a creation from an update, and transitions into and out
    /// of a selector.
    pub previous: Option<Str>,
    /// The writer.
    pub actor: Str,
    /// The time by the writer's clock.
    pub at: Time,
}

impl LogEntry {
    /// The size of its bodies in bytes.
    pub fn bytes(&self) -> usize {
        self.change.stored().body.len() + self.previous.as_ref().map_or(0, |body| body.len())
    }
}

/// The last attempt at running a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerAttempt {
    /// The pod.
    pub pod_uid: String,
    /// The container's name in it.
    pub container: String,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// The epoch of the leader that recorded it.
    pub epoch: u64,
}

/// The columns of a log row in the order that [`LogRow::read`] expects.
pub(super) const LOG_COLUMNS: &str =
    "l.revision, l.resource, l.namespace, l.name, l.uid, l.change, l.previous, l.actor, l.at, l.sum, l.body";

/// A complete log row.
pub(super) struct LogRow {
    pub change: ChangeKind,
    pub previous: u64,
    pub actor: Str,
    /// Microseconds since 1970.
    pub at: i64,
}

impl LogRow {
    /// Reads [`LOG_COLUMNS`]; the inner `Err` reports a wrong checksum.
    pub fn read(row: &Row<'_>) -> rusqlite::Result<Result<LogRow, String>> {
        let revision = unsigned(row, 0)?;
        let stored = StoredObject {
            key: Key::new(Resource::intern(text(row, 1)?), text(row, 2)?, text(row, 3)?),
            uid: text(row, 4)?.into(),
            revision,
            body: text(row, 10)?.into(),
        };
        let change = match text(row, 5)? {
            "put" => ChangeKind::Put(stored),
            "removed" => ChangeKind::Removed(stored),
            other => return Ok(Err(format!("revision {revision}: unknown change {other:?}"))),
        };
        let entry = LogRow { change, previous: unsigned(row, 6)?, actor: text(row, 7)?.into(), at: row.get(8)? };
        if entry.sum() != row.get::<_, i64>(9)? {
            return Ok(Err(format!("revision {revision}: wrong checksum")));
        }
        Ok(Ok(entry))
    }

    /// The checksum of the row.
    pub fn sum(&self) -> i64 {
        let stored = self.change.stored();
        let mut sum = Checksum(0);
        sum.word(stored.revision);
        sum.word(self.previous);
        sum.word(self.at as u64);
        let key = &stored.key;
        for part in [key.resource.0, &key.namespace, &key.name, &stored.uid, self.change.word(), &self.actor] {
            sum.text(part);
        }
        sum.text(&stored.body);
        sum.0 as i64
    }

    pub fn word(&self) -> &'static str {
        self.change.word()
    }
}

/// The one row of the counter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Counter {
    /// The last assigned revision.
    pub revision: u64,
    /// The revision up to which the log was compacted.
    pub floor: u64,
    /// Number of live objects.
    pub objects: u64,
}

impl Counter {
    /// Reads `revision, floor, objects, sum`; the inner `Err` reports a wrong checksum.
    pub fn read(row: &Row<'_>) -> rusqlite::Result<Result<Counter, String>> {
        let counter = Counter { revision: unsigned(row, 0)?, floor: unsigned(row, 1)?, objects: unsigned(row, 2)? };
        if counter.sum() != row.get::<_, i64>(3)? {
            return Ok(Err("wrong checksum of the counter".into()));
        }
        Ok(Ok(counter))
    }

    /// The checksum of the row.
    pub fn sum(&self) -> i64 {
        let mut sum = Checksum(0);
        for word in [self.revision, self.floor, self.objects] {
            sum.word(word);
        }
        sum.0 as i64
    }
}

/// The checksum of an object's row.
pub(super) fn object_sum(key: &Key, uid: &str, revision: u64, created: u64) -> i64 {
    let mut sum = Checksum(0);
    sum.word(revision);
    sum.word(created);
    for part in [key.resource.0, &key.namespace, &key.name, uid] {
        sum.text(part);
    }
    sum.0 as i64
}

/// A checksum that detects every change within one eight-byte word, since each step is a bijection of the previous sum.
/// Protects against flipped bits on a disk, not against an attacker. Part of the file format.
struct Checksum(u64);

impl Checksum {
    fn word(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }

    fn text(&mut self, text: &str) {
        self.word(text.len() as u64);
        let (words, rest) = text.as_bytes().as_chunks::<8>();
        for word in words {
            self.word(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.word(u64::from_le_bytes(last));
    }
}

/// The text of a column, borrowed.
pub(super) fn text<'a>(row: &'a Row<'_>, column: usize) -> rusqlite::Result<&'a str> {
    let value = row.get_ref(column)?;
    value.as_str().map_err(|error| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error)))
}

/// The number of a column that is never negative.
pub(super) fn unsigned(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let value: i64 = row.get(column)?;
    u64::try_from(value).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, value))
}

/// The stored form of a time.
pub(super) fn micros(at: Time) -> i64 {
    at.as_microsecond()
}

/// The time of a stored number; the error reports a number out of range.
pub(super) fn moment(micros: i64) -> Result<Time, String> {
    Time::from_microsecond(micros).map_err(|_| format!("{micros} is not a valid time in microseconds"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(body: &str) -> LogRow {
        let key = Key::new(Resource("pods"), "default", "web");
        let stored = StoredObject { key, uid: "u".into(), revision: 7, body: body.into() };
        LogRow { change: ChangeKind::Put(stored), previous: 3, actor: "kubectl".into(), at: 1 }
    }

    #[test]
    fn every_flipped_bit_changes_the_checksum() {
        let body = "{\"kind\":\"Pod\",\"spec\":{}}".to_owned();
        let original = row(&body).sum();
        for at in 0..body.len() {
            for bit in 0..7 {
                let mut bytes = body.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                let flipped = String::from_utf8(bytes).unwrap();
                assert_ne!(row(&flipped).sum(), original, "byte {at} bit {bit}");
            }
        }
    }

    #[test]
    fn checksum_covers_every_part_of_a_row() {
        let original = row("{}").sum();
        let mut other = row("{}");
        other.previous = 4;
        assert_ne!(other.sum(), original);
        let mut other = row("{}");
        other.at = 2;
        assert_ne!(other.sum(), original);
        let mut other = row("{}");
        other.actor = "kubelet".into();
        assert_ne!(other.sum(), original);
        let ChangeKind::Put(stored) = row("{}").change else { unreachable!() };
        let other = LogRow { change: ChangeKind::Removed(stored), ..row("{}") };
        assert_ne!(other.sum(), original);
    }
}
