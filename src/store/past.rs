//! Time travel: reads the store as it was at an earlier revision, from the log.
//!
//! An object at a revision is its last entry at or below it. Compaction keeps such entries for every revision from the floor
//! on. A store that has traveled hides the table of live objects behind a temporary view of the log, so that all queries work
//! as they are; it refuses writes.
//! Never: changes the file; the view is a temporary one of the connection. Start reading at [`Store::travel_to`].

use super::record::{Counter, micros, moment, unsigned};
use super::snapshot::{self, source::SnapshotSource};
use super::{LogEntry, Store, StoreError, StoreRead, StoreResult};
use crate::object::Time;
use rusqlite::{OptionalExtension, params};

impl Store {
    /// Makes all later reads of this store those of a revision between the floor and the latest one.
    pub fn travel_to(&mut self, revision: u64) -> StoreResult<()> {
        let counter = self.read()?.counter()?;
        if revision < counter.floor {
            return Err(StoreError::Expired { floor: counter.floor });
        }
        if revision > counter.revision {
            return Err(StoreError::Future { revision, head: counter.revision });
        }
        let past = Counter { revision, floor: counter.floor, objects: 0 };
        // An entry is the last one when no other at or below the revision names it as the previous one, which the index of the
        // log finds at once. A row without a sum is not checked against the table of objects.
        let views = format!(
            "CREATE TEMP VIEW object AS
                 SELECT l.revision AS id, l.resource, l.namespace, l.name, l.uid, l.revision, 0 AS created, NULL AS sum
                 FROM main.log l
                 WHERE l.revision <= {revision} AND l.change = 'put' AND NOT EXISTS (
                     SELECT 1 FROM main.log n WHERE n.resource = l.resource AND n.namespace = l.namespace
                     AND n.name = l.name AND n.previous = l.revision AND n.revision <= {revision});
             CREATE TEMP VIEW counter AS
                 SELECT {revision} AS revision, {floor} AS floor, 0 AS objects, {sum} AS sum;",
            floor = past.floor,
            sum = past.sum(),
        );
        self.query(|connection| connection.execute_batch(&views))?;
        self.past = Some(revision);
        Ok(())
    }
}

/// Finds the last revision that was written at or before a time; `None` when that is before the floor. Times in the log are
/// those of the writers' clocks, and are taken to rise.
pub fn find_revision_at(read: &dyn StoreRead, at: Time) -> StoreResult<Option<u64>> {
    let Counter { revision: head, floor, .. } = read.counter()?;
    let wanted = micros(at);
    let is_later = |revision: u64| -> StoreResult<bool> {
        let query = "SELECT at FROM log WHERE revision >= ?1 ORDER BY revision LIMIT 1";
        let at = read.store().query(|connection| {
            connection.prepare_cached(query)?.query_row([revision as i64], |row| row.get::<_, i64>(0)).optional()
        })?;
        Ok(at.is_none_or(|at| at > wanted))
    };
    // The first revision above the floor that is later than the time.
    let (mut low, mut high) = (floor + 1, head + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        if is_later(middle)? { high = middle } else { low = middle + 1 }
    }
    // When all entries above the floor are later than the time, the state at the floor may be older or newer than it: its time is not
    // stored.
    Ok((low > floor + 1).then(|| low - 1))
}

/// Returns the log entries at and below a revision that are above the floor, newest first, at most `limit`.
pub fn read_log_back(read: &dyn StoreRead, revision: u64, limit: usize) -> StoreResult<Vec<LogEntry>> {
    let floor = read.floor()?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rest = "WHERE l.revision <= ?1 AND l.revision > ?2 ORDER BY l.revision DESC LIMIT ?3";
    snapshot::log(read.store(), rest, params![revision as i64, floor as i64, limit])
}

/// Returns the time of the first entry at or above a revision.
pub fn read_time_of(read: &dyn StoreRead, revision: u64) -> StoreResult<Option<Time>> {
    let query = "SELECT at FROM log WHERE revision >= ?1 ORDER BY revision LIMIT 1";
    let at = read.store().query(|connection| {
        connection.prepare_cached(query)?.query_row([revision as i64], |row| row.get::<_, i64>(0)).optional()
    })?;
    at.map(moment).transpose().map_err(|what| StoreError::damaged(read.store().path(), what))
}

/// Sizes of the store's content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreSizes {
    /// Entries of the log, and the bytes of their bodies.
    pub log: (u64, u64),
    /// For each resource: its name, the live objects, and the bytes of their bodies.
    pub objects: Vec<(String, u64, u64)>,
}

/// Counts entries, objects and bytes.
pub fn measure_sizes(read: &dyn StoreRead) -> StoreResult<StoreSizes> {
    read.store().query(|connection| {
        let log = "SELECT count(*), coalesce(sum(octet_length(body)), 0) FROM log";
        let log = connection.query_row(log, [], |row| Ok((unsigned(row, 0)?, unsigned(row, 1)?)))?;
        let mut query = connection.prepare(
            "SELECT o.resource, count(*), coalesce(sum(octet_length(l.body)), 0)
             FROM object o JOIN log l ON l.revision = o.revision GROUP BY o.resource ORDER BY 3 DESC, 1",
        )?;
        let objects = query.query_map([], |row| Ok((row.get(0)?, unsigned(row, 1)?, unsigned(row, 2)?)))?;
        Ok(StoreSizes { log, objects: objects.collect::<rusqlite::Result<_>>()? })
    })
}
