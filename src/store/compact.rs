//! Compaction: raises the floor of the log, in small steps.
//!
//! Below the floor, the log has exactly one entry for each object that existed at the floor. So the objects are always
//! the fold of the log, and the previous body of every entry above the floor is available. Raising the floor past an
//! entry therefore deletes the previous entry of the same key, and also the entry itself if it is a deletion. The entry
//! of an object's current body has no successor and is never deleted.

use super::record::unsigned;
use super::snapshot::source::SnapshotSource;
use super::{Store, StoreRead, StoreResult, Txn, record};
use crate::object::Time;
use jiff::SignedDuration;
use rusqlite::params;
use std::time::Duration;

/// The part of the log to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Number of latest revisions to keep, regardless of their age.
    pub at_least: u64,
    /// Maximum number of entries to keep, regardless of their age; takes precedence over `at_least`.
    pub at_most: u64,
    /// Between the two limits, entries since this time are kept.
    pub since: Time,
    /// Maximum size of the bodies to keep, latest first, in bytes; the last revision is always kept.
    pub bytes: u64,
}

impl Retention {
    /// The retention of a cluster: an hour, at least the last 10,000 and at most the last 100,000 writes, in at most 64 MiB.
    pub fn usual(now: Time) -> Retention {
        Retention { at_least: 10_000, at_most: 100_000, since: now - SignedDuration::from_hours(1), bytes: 64 << 20 }
    }
}

/// Maximum rows of one transaction: a commit of a millisecond or two, which hardly delays writers.
const MAX_STEP_ROWS: usize = 200;

/// Pages that one transaction returns to the file system, and the minimum of free pages to do so: 2 MiB.
const FREE_PAGES: i64 = 128;

/// Time to wait for the write lock; if another writer is active, compaction runs later.
const WRITE_LOCK_TIMEOUT: Duration = Duration::from_millis(100);

impl Store {
    /// Raises the floor past at most `budget_rows` entries and returns their number, which is below the budget when
    /// compaction is complete. Also returns free pages to the file system.
    pub fn compact(&mut self, keep: &Retention, budget_rows: usize) -> StoreResult<usize> {
        let mut passed = 0;
        let too_old = self.revision_beyond(keep.bytes)?;
        while passed < budget_rows {
            let want = MAX_STEP_ROWS.min(budget_rows - passed);
            let mut txn = self.write(WRITE_LOCK_TIMEOUT)?;
            let step = txn.raise_floor(keep, too_old, want)?;
            if txn.return_free_pages()? || step > 0 {
                // A power loss may undo this; the next compaction repeats it.
                txn.commit_unsynced()?;
            }
            passed += step;
            if step < want {
                break;
            }
        }
        Ok(passed)
    }

    /// The last revision after which the log has more than `most` bytes; 0 when the complete log has fewer. Reads only
    /// lengths, from the end.
    fn revision_beyond(&self, most: u64) -> StoreResult<u64> {
        let floor = self.read().and_then(|snapshot| snapshot.floor())?;
        self.query(|connection| {
            let mut question = connection.prepare_cached(
                "SELECT revision, coalesce(octet_length(body), 0) FROM log WHERE revision > ?1 ORDER BY revision DESC",
            )?;
            let mut rows = question.query([floor as i64])?;
            let mut bytes = 0;
            let mut is_last = true;
            while let Some(row) = rows.next()? {
                bytes += unsigned(row, 1)?;
                if bytes > most && !is_last {
                    return unsigned(row, 0);
                }
                is_last = false;
            }
            Ok(0)
        })
    }
}

impl Txn<'_> {
    fn raise_floor(&mut self, keep: &Retention, too_old: u64, want: usize) -> StoreResult<usize> {
        let (floor, head) = (self.counter.floor, self.counter.revision);
        let below = self.entries_to_compact(floor, head, keep, too_old, want)?;
        let Some(last) = below.last() else { return Ok(0) };
        for passed in &below {
            self.run("DELETE FROM log WHERE revision = ?1", [passed.previous as i64])?;
            if passed.removed {
                self.run("DELETE FROM log WHERE revision = ?1", [passed.revision as i64])?;
            }
        }
        self.counter.floor = last.revision;
        Ok(below.len())
    }

    /// Returns the next entries above the floor to compact.
    fn entries_to_compact(
        &self,
        floor: u64,
        head: u64,
        keep: &Retention,
        too_old: u64,
        want: usize,
    ) -> StoreResult<Vec<CompactionProgress>> {
        let oldest_due = head.saturating_sub(keep.at_most).max(too_old);
        let newest_free = head.saturating_sub(keep.at_least);
        let since = record::micros(keep.since);
        self.store().query(|connection| {
            let mut question = connection.prepare_cached(
                "SELECT revision, previous, change = 'removed', at FROM log
                 WHERE revision > ?1 AND revision <= ?2 ORDER BY revision LIMIT ?3",
            )?;
            let mut rows = question.query(params![floor as i64, newest_free.max(oldest_due) as i64, want as i64])?;
            let mut passed = Vec::new();
            while let Some(row) = rows.next()? {
                let revision = unsigned(row, 0)?;
                if revision > oldest_due && row.get::<_, i64>(3)? >= since {
                    break;
                }
                passed.push(CompactionProgress { revision, previous: unsigned(row, 1)?, removed: row.get(2)? });
            }
            Ok(passed)
        })
    }

    /// Returns free pages to the file system if there are more of them than used pages. Returns whether it did.
    fn return_free_pages(&self) -> StoreResult<bool> {
        self.store().query(|connection| {
            let pages: i64 = connection.query_row("PRAGMA page_count", [], |row| row.get(0))?;
            let free: i64 = connection.query_row("PRAGMA freelist_count", [], |row| row.get(0))?;
            let spare = (2 * free - pages).min(FREE_PAGES);
            if free < FREE_PAGES || spare <= 0 {
                return Ok(false);
            }
            let mut vacuum = connection.prepare(&format!("PRAGMA incremental_vacuum({spare})"))?;
            let mut rows = vacuum.query([])?;
            while rows.next()?.is_some() {}
            Ok(true)
        })
    }
}

struct CompactionProgress {
    revision: u64,
    previous: u64,
    removed: bool,
}
