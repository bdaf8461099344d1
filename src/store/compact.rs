//! Compaction: raises the floor of the log, in small steps.
//!
//! Below the floor the log keeps exactly one entry for each object that lived at the floor. So the objects are always
//! the fold of the log, and every entry above the floor can report the body before it. Raising the floor past an entry
//! therefore drops the previous entry of the same key, and the entry itself when it is a deletion. The entry of an
//! object's present body has no successor and is never dropped.

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
    /// So many of the latest revisions stay, however old.
    pub at_least: u64,
    /// Maximum number of entries to keep, however new, even where `at_least` asks for more.
    pub at_most: u64,
    /// Between the two, what was written since stays.
    pub since: Time,
    /// Maximum size of the bodies that stay, latest first, in bytes; the last revision always stays.
    pub bytes: u64,
}

impl Retention {
    /// The retention of a cluster: an hour, at least the last 10,000 and at most the last 100,000 writes, in at most 64 MiB.
    pub fn usual(now: Time) -> Retention {
        Retention { at_least: 10_000, at_most: 100_000, since: now - SignedDuration::from_hours(1), bytes: 64 << 20 }
    }
}

/// Rows in one transaction: a commit of a millisecond or two, so that writers hardly notice.
const STEP: usize = 200;

/// Pages given back in one transaction, and the fewest free pages that are worth it: 2 MiB.
const GIVEN_BACK: i64 = 128;

/// Compaction can wait for another time; writers cannot.
const PATIENCE: Duration = Duration::from_millis(100);

impl Store {
    /// Raises the floor past at most `budget_rows` entries and returns how many: fewer than the budget when nothing is
    /// left to do. Also returns free pages to the file system.
    pub fn compact(&mut self, keep: &Retention, budget_rows: usize) -> StoreResult<usize> {
        let mut passed = 0;
        let too_old = self.revision_beyond(keep.bytes)?;
        while passed < budget_rows {
            let want = STEP.min(budget_rows - passed);
            let mut txn = self.write(PATIENCE)?;
            let step = txn.raise_floor(keep, too_old, want)?;
            if txn.give_back()? || step > 0 {
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

    /// The last revision after which the log has more than so many bytes; 0 where all of it has fewer. Only lengths are read, from the end.
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
        let below = self.passing(floor, head, (keep, too_old), want)?;
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

    /// Returns the next entries above the floor that need not be kept.
    fn passing(
        &self,
        floor: u64,
        head: u64,
        (keep, too_old): (&Retention, u64),
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

    /// Gives free pages back to the file system, as far as there are more of them than pages in use; says whether it did.
    fn give_back(&self) -> StoreResult<bool> {
        self.store().query(|connection| {
            let pages: i64 = connection.query_row("PRAGMA page_count", [], |row| row.get(0))?;
            let free: i64 = connection.query_row("PRAGMA freelist_count", [], |row| row.get(0))?;
            let spare = (2 * free - pages).min(GIVEN_BACK);
            if free < GIVEN_BACK || spare <= 0 {
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
