//! Write transactions: atomic, and one at a time over all processes.

use super::log_batch::{BatchChange, Outgoing};
use super::record::{Counter, LogRow, micros, object_sum, unsigned};
use super::snapshot::{counter, source::SnapshotSource};
use super::turnstile::WriteTurn;
use super::{
    ChangeKind, CommitError, ContainerAttempt, InjectedFault, Store, StoreError, StoreRead, StoreResult, StoredObject,
    schema,
};
use crate::object::{Key, Str, Time};
use rusqlite::{ErrorCode, OptionalExtension, Params, params};
use std::time::{Duration, Instant};
use tracing::debug_span;

/// Time that a reader waits for rare, short operations of SQLite: recovery of the WAL, the last connection's
/// checkpoint.
pub(super) const SQLITE_BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Length of the WAL above which it is truncated explicitly, since continuous readers prevent SQLite from doing it.
pub(super) const LONG_WAL: u64 = 32 << 20;

/// Time after which a waiting writer reports that it waits.
const NOTICE_AFTER: Duration = Duration::from_secs(2);

/// A write transaction. Its writes are visible to itself at once, and to others after [`Txn::commit`]. Dropping it
/// without a commit rolls it back.
pub struct Txn<'a> {
    pub(super) store: &'a mut Store,
    /// `None` in memory. Released after the end of the transaction.
    pub(super) turn: Option<WriteTurn>,
    /// The counter to commit.
    pub(super) counter: Counter,
    /// The counter in the file.
    pub(super) begun: Counter,
    pub(super) open: bool,
    /// The error of a failed change, after which the transaction may be incomplete and is never committed.
    pub(super) failed: Option<StoreError>,
    /// The changes for the log of a replica.
    pub(super) outgoing: Option<Outgoing>,
    /// Whether it may use the reserve when the disk is full.
    pub(super) allows_reserve: bool,
}

impl Store {
    /// Begins a write transaction; waits for other writers at most for `patience`.
    pub fn write(&mut self, patience: Duration) -> StoreResult<Txn<'_>> {
        let turn = self.begin(patience)?;
        self.transaction(turn)
    }

    /// Like [`Store::write`], but calls `notify` once with [`StoreError::Busy`] after waiting for [`NOTICE_AFTER`].
    pub fn write_with_notice(&mut self, patience: Duration, notify: fn(&StoreError)) -> StoreResult<Txn<'_>> {
        let turn = match self.begin(NOTICE_AFTER) {
            Err(busy @ StoreError::Busy { .. }) => {
                notify(&busy);
                self.begin(patience.saturating_sub(NOTICE_AFTER))?
            }
            turn => turn?,
        };
        self.transaction(turn)
    }

    /// Waits for the write lock and acquires it; returns the turn among kloop's writers.
    fn begin(&mut self, patience: Duration) -> StoreResult<Option<WriteTurn>> {
        let _span = debug_span!("wait_for_write_lock").entered();
        if let Some(revision) = self.past {
            return Err(StoreError::Bug { what: format!("a store that reads revision {revision} cannot be written") });
        }
        if let Some(file) = &self.read_only {
            return Err(file.refusal.clone());
        }
        let start = Instant::now();
        if self.fault.take_if(|fault| *fault == InjectedFault::Busy).is_some() {
            return Err(StoreError::Busy { holder_pid: None, waited: patience });
        }
        let turn = self.turnstile.as_ref().map(|turnstile| turnstile.acquire(patience)).transpose();
        let turn = turn.map_err(|error| match error {
            // The process with the turn may itself wait for another program: SQLite's lock shows the writer.
            StoreError::Busy { holder_pid, waited } => {
                StoreError::Busy { holder_pid: self.holder_of_wal().or(holder_pid), waited }
            }
            other => other,
        })?;
        // kloop's writers wait at the turnstile; this waits for another program such as `sqlite3`.
        let left = patience.saturating_sub(start.elapsed());
        let beginning = self.query(|connection| {
            connection.busy_timeout(left)?;
            let beginning = connection.prepare_cached("BEGIN IMMEDIATE").and_then(|mut begin| begin.execute([]));
            connection.busy_timeout(SQLITE_BUSY_TIMEOUT)?;
            beginning
        });
        match beginning {
            Err(StoreError::Busy { .. }) => {
                let holder_pid = self.holder_of_wal();
                return Err(StoreError::Busy { holder_pid, waited: start.elapsed() });
            }
            beginning => beginning?,
        };
        Ok(turn)
    }

    /// Creates the transaction after [`Store::begin`].
    fn transaction(&mut self, turn: Option<WriteTurn>) -> StoreResult<Txn<'_>> {
        let mut txn = Txn {
            allows_reserve: self.allows_reserve,
            store: self,
            turn,
            counter: NOTHING,
            begun: NOTHING,
            open: true,
            failed: None,
            outgoing: None,
        };
        let found = txn.store.query(schema::version)?;
        if found > schema::VERSION {
            return Err(StoreError::Newer { path: txn.store.path().into(), found, known: schema::VERSION });
        }
        if found == schema::VERSION {
            txn.begun = counter(txn.store)?;
            txn.counter = txn.begun;
            txn.follow()?;
        }
        Ok(txn)
    }

    /// The process with SQLite's write lock, if known.
    fn holder_of_wal(&self) -> Option<u32> {
        super::holder::find_wal_writer(&self.place.neighbour("-shm"))
    }
}

impl SnapshotSource for Txn<'_> {
    fn store(&self) -> &Store {
        self.store
    }

    fn counter(&self) -> StoreResult<Counter> {
        Ok(self.counter)
    }
}

impl StoreRead for Txn<'_> {}

/// Counter of a file without tables.
const NOTHING: Counter = Counter { revision: 0, floor: 0, objects: 0 };

impl Txn<'_> {
    /// Writes an object's new state. `body` gets the revision, which the text contains as `resourceVersion`. The uid of
    /// an object is immutable: another uid under an existing key is refused.
    pub fn put<Text: Into<Str>>(
        &mut self,
        key: &Key,
        uid: &str,
        body: impl FnOnce(u64) -> Text,
        actor: &str,
        at: Time,
    ) -> StoreResult<u64> {
        let living = self.living(key)?;
        if let Some(living) = &living
            && living.uid != uid
        {
            let what = format!("{key} has the uid {}, and {uid} cannot replace it", living.uid);
            return Err(self.fail(StoreError::Bug { what }));
        }
        let previous = match &living {
            Some(living) => living.revision,
            None => self.last_entry(key)?,
        };
        let revision = self.counter.revision + 1;
        let stored = StoredObject { key: key.clone(), uid: uid.into(), revision, body: body(revision).into() };
        self.append(LogRow { change: ChangeKind::Put(stored), previous, actor: actor.into(), at: micros(at) })?;
        let created = living.as_ref().map_or(revision, |living| living.created);
        match living {
            Some(living) => {
                let sum = object_sum(key, uid, revision, created);
                let row = params![living.id, revision as i64, sum];
                self.run("UPDATE object SET revision = ?2, sum = ?3 WHERE id = ?1", row)?;
            }
            None => self.insert_object(key, uid, revision, created)?,
        }
        Ok(revision)
    }

    /// Adds the row of a new object.
    pub(super) fn insert_object(&mut self, key: &Key, uid: &str, revision: u64, created: u64) -> StoreResult<()> {
        let sum = object_sum(key, uid, revision, created);
        self.run(
            "INSERT INTO object (resource, namespace, name, uid, revision, created, sum)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![key.resource.0, &*key.namespace, &*key.name, uid, revision as i64, created as i64, sum],
        )?;
        self.counter.objects += 1;
        Ok(())
    }

    /// Removes an object. `body` gets the removal's revision and returns the last state.
    pub fn remove(&mut self, key: &Key, body: impl FnOnce(u64) -> String, actor: &str, at: Time) -> StoreResult<u64> {
        let Some(living) = self.living(key)? else {
            return Err(self.fail(StoreError::Absent { key: key.clone() }));
        };
        if key.resource == "pods" {
            self.delete_attempts(&living.uid)?;
        }
        let revision = self.counter.revision + 1;
        let stored = StoredObject { key: key.clone(), uid: living.uid.into(), revision, body: body(revision).into() };
        let change = ChangeKind::Removed(stored);
        self.append(LogRow { change, previous: living.revision, actor: actor.into(), at: micros(at) })?;
        self.run("DELETE FROM object WHERE id = ?1", [living.id])?;
        self.counter.objects = self.counter.objects.saturating_sub(1);
        Ok(revision)
    }

    /// Sets a setting of the control plane.
    pub fn set_meta(&mut self, name: &str, value: &str) -> StoreResult<()> {
        if let Some(outgoing) = &mut self.outgoing {
            outgoing.batch.push(&BatchChange::SetMeta(name.into(), value.into()));
        }
        self.set_local_meta(name, value)
    }

    /// Sets a setting that the log of a replica does not get.
    pub(super) fn set_local_meta(&mut self, name: &str, value: &str) -> StoreResult<()> {
        self.run("INSERT INTO meta VALUES (?1, ?2) ON CONFLICT DO UPDATE SET value = excluded.value", [name, value])
    }

    /// Records an attempt of a container. Refuses a lower attempt or epoch than before.
    pub fn record_attempt(&mut self, attempt: &ContainerAttempt) -> StoreResult<()> {
        let ContainerAttempt { pod_uid, container, attempt, epoch } = attempt;
        let changed = self.change(
            "INSERT INTO attempt VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO UPDATE
             SET attempt = excluded.attempt, epoch = excluded.epoch
             WHERE excluded.attempt >= attempt AND excluded.epoch >= epoch",
            params![pod_uid, container, attempt, *epoch as i64],
        )?;
        if changed == 0 {
            let what = format!("attempt {attempt} in epoch {epoch} at {container} of pod {pod_uid} is a step back");
            return Err(self.fail(StoreError::Bug { what }));
        }
        Ok(())
    }

    /// Deletes the attempts of a removed pod.
    fn delete_attempts(&mut self, pod_uid: &str) -> StoreResult<()> {
        self.run("DELETE FROM attempt WHERE pod_uid = ?1", [pod_uid])
    }

    /// Makes the transaction durable and visible, and returns the new revision. Wakes the processes that watch the
    /// file.
    ///
    /// After [`CommitError::Unknown`] every call fails until [`Store::reopen`].
    pub fn commit(mut self) -> std::result::Result<u64, CommitError> {
        let revision = self.finish()?;
        self.store.wake_watchers();
        // Other processes may write while this one waits for the disk.
        self.turn = None;
        self.store.sync()?;
        Ok(revision)
    }

    /// Like [`Txn::commit`], but a power loss may undo it until the next [`Store::sync`]; a killed process cannot.
    /// Watchers are not woken before [`Store::wake_watchers`].
    pub fn commit_unsynced(mut self) -> std::result::Result<u64, CommitError> {
        self.finish()
    }

    fn finish(&mut self) -> std::result::Result<u64, CommitError> {
        if let Some(error) = self.failed.clone() {
            return Err(CommitError::Refused(error));
        }
        self.write_counter().map_err(CommitError::Refused)?;
        self.prepare_space();
        self.share()?;
        if let Some(fault @ (InjectedFault::LostCommit | InjectedFault::UnknownCommit)) = self.store.fault.take() {
            return Err(self.apply_fault(fault));
        }
        let _span = debug_span!("sqlite_commit", revision = self.counter.revision).entered();
        let done = self.store.connection.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([]));
        if let Err(error) = done {
            return Err(self.not_committed(error));
        }
        self.open = false;
        if self.turn.is_some() {
            // The changes of a replica are durable in its log on etcd: after a power loss the replica applies that log again.
            if !self.store.is_replica() {
                self.store.durable.committed();
            }
            self.store.shorten_wal();
            self.store.has_unnotified_commit = true;
        }
        Ok(self.counter.revision)
    }

    /// Writes the counter to the file, if it has changed.
    pub(super) fn write_counter(&mut self) -> StoreResult<()> {
        if self.counter == self.begun {
            return Ok(());
        }
        let Counter { revision, floor, objects } = self.counter;
        let params = params![revision as i64, floor as i64, objects as i64, self.counter.sum()];
        self.run("UPDATE counter SET revision = ?1, floor = ?2, objects = ?3, sum = ?4", params)
    }

    /// Migrates the schema.
    pub(super) fn migrate(&self) -> StoreResult<()> {
        self.store.query(|connection| schema::migrate(connection, schema::STEPS))
    }

    /// Returns the error of an injected fault.
    fn apply_fault(&mut self, fault: InjectedFault) -> CommitError {
        let end = if fault == InjectedFault::LostCommit { "ROLLBACK" } else { "COMMIT" };
        self.open = self.store.connection.execute_batch(end).is_err();
        CommitError::Unknown { path: self.store.path().into(), what: "injected fault".into() }
    }

    /// Classifies a failed commit. After an error of a full disk nothing is stored, since SQLite reports it before the
    /// commit frame is complete. After any other failure, the outcome is unknown.
    fn not_committed(&mut self, error: rusqlite::Error) -> CommitError {
        // The log of a replica has the changes already.
        if let Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy) = error.sqlite_error_code()
            && !self.store.is_replica()
        {
            let error = StoreError::from_sqlite(self.store.path(), error);
            return CommitError::Refused(self.fail(error));
        }
        self.store.uncertain = true;
        CommitError::Unknown { path: self.store.path().into(), what: error.to_string() }
    }

    fn append(&mut self, row: LogRow) -> StoreResult<()> {
        if let Some(outgoing) = &mut self.outgoing {
            outgoing.push_row(&row);
        }
        self.insert_log_row(&row)?;
        self.counter.revision = row.change.stored().revision;
        Ok(())
    }

    /// Adds a row to the log.
    pub(super) fn insert_log_row(&mut self, row: &LogRow) -> StoreResult<()> {
        let StoredObject { key, uid, revision, body } = row.change.stored();
        let (sum, word) = (row.sum(), row.word());
        let LogRow { previous, actor, at, .. } = row;
        self.run(
            "INSERT INTO log (revision, resource, namespace, name, uid, change, previous, actor, at, sum, body)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            params![
                *revision as i64,
                key.resource.0,
                &*key.namespace,
                &*key.name,
                &**uid,
                word,
                *previous as i64,
                &**actor,
                at,
                sum,
                &**body
            ],
        )
    }

    fn living(&self, key: &Key) -> StoreResult<Option<LiveRow>> {
        let found = self.store.query(|connection| {
            let question = "SELECT id, uid, revision, created, sum FROM object
                            WHERE resource = ?1 AND namespace = ?2 AND name = ?3";
            connection
                .prepare_cached(question)?
                .query_row(params![key.resource.0, &*key.namespace, &*key.name], |row| {
                    let (revision, created) = (unsigned(row, 2)?, unsigned(row, 3)?);
                    Ok((LiveRow { id: row.get(0)?, uid: row.get(1)?, revision, created }, row.get::<_, i64>(4)?))
                })
                .optional()
        })?;
        match found {
            Some((living, sum)) if object_sum(key, &living.uid, living.revision, living.created) != sum => {
                Err(StoreError::damaged(self.store.path(), format!("the row of {key} has a wrong checksum")))
            }
            found => Ok(found.map(|(living, _)| living)),
        }
    }

    /// The revision of the last log entry of a key without an object; 0 without an entry.
    fn last_entry(&self, key: &Key) -> StoreResult<u64> {
        let found = self.store.query(|connection| {
            let question = "SELECT revision FROM log WHERE resource = ?1 AND namespace = ?2 AND name = ?3
                            ORDER BY previous DESC LIMIT 1";
            connection
                .prepare_cached(question)?
                .query_row(params![key.resource.0, &*key.namespace, &*key.name], |row| unsigned(row, 0))
                .optional()
        })?;
        Ok(found.unwrap_or(0))
    }

    pub(super) fn run(&mut self, statement: &str, params: impl Params) -> StoreResult<()> {
        self.change(statement, params).map(|_| ())
    }

    fn change(&mut self, statement: &str, params: impl Params) -> StoreResult<usize> {
        // After some errors SQLite ends the transaction, and later statements would commit separately.
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.store.connection.is_autocommit() {
            return Err(self.fail(StoreError::Bug { what: "the transaction has ended already".into() }));
        }
        let done = self.store.query(|connection| connection.prepare_cached(statement)?.execute(params));
        done.map_err(|error| self.fail(error))
    }

    fn fail(&mut self, error: StoreError) -> StoreError {
        self.failed = Some(error.clone());
        error
    }
}

impl Drop for Txn<'_> {
    fn drop(&mut self) {
        if self.open && !self.store.connection.is_autocommit() {
            let _ = self.store.connection.execute_batch("ROLLBACK");
        }
        if self.turn.is_some() && matches!(self.failed, Some(StoreError::Full { .. })) {
            if self.allows_reserve {
                // The next attempt overwrites the WAL, and has a part of the reserve behind it.
                let _ = self.store.copy_wal_back();
                self.use_reserve();
            } else {
                // The WAL may take most of the full disk: the next write gets that space.
                let _ = self.store.empty_wal_briefly();
            }
        }
    }
}

struct LiveRow {
    id: i64,
    uid: String,
    revision: u64,
    created: u64,
}

impl Store {
    /// Truncates a WAL that grew long because some reader was always active. Does not wait for an active reader.
    fn shorten_wal(&self) {
        let length = std::fs::metadata(self.place.neighbour("-wal")).map_or(0, |wal| wal.len());
        if length <= self.long_wal.get() {
            return;
        }
        // If this failed, it is retried only after the WAL has grown by the same length again.
        self.long_wal.set(if self.empty_wal_briefly() == Ok(true) { LONG_WAL } else { length + LONG_WAL });
    }

    /// Truncates the WAL; waits for active readers at most for 20 ms.
    fn empty_wal_briefly(&self) -> rusqlite::Result<bool> {
        let _ = self.connection.busy_timeout(Duration::from_millis(20));
        let is_empty = self.empty_wal();
        let _ = self.connection.busy_timeout(SQLITE_BUSY_TIMEOUT);
        is_empty
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{WRITE_LOCK_TIMEOUT, scratch};
    use super::*;
    use crate::object::Resource;
    use crate::store::OpenMode;
    use rusqlite::ffi;

    fn put(txn: &mut Txn<'_>, name: &str, length: usize) -> StoreResult<u64> {
        txn.put(&Key::new(Resource("pods"), "default", name), name, |_| "x".repeat(length), "test", Time::UNIX_EPOCH)
    }

    #[test]
    fn part_is_rolled_back_separately() {
        let (_dir, mut store) = scratch();
        let mut txn = store.write(WRITE_LOCK_TIMEOUT).unwrap();
        for (name, is_kept) in [("a", true), ("b", false), ("c", true)] {
            let part = txn.begin_part().unwrap();
            put(&mut txn, name, 10).unwrap();
            txn.end_part(part, is_kept).unwrap();
        }
        assert_eq!(txn.commit(), Ok(2));
        let found = store.read().unwrap().list(Resource("pods"), None).unwrap();
        assert_eq!(
            found.iter().map(|stored| (&*stored.key.name, stored.revision)).collect::<Vec<_>>(),
            [("a", 1), ("c", 2)]
        );
        assert_eq!(store.check().unwrap(), Vec::<String>::new());
    }

    #[test]
    fn full_disk_refuses_the_commit() {
        let (_dir, mut store) = scratch();
        let wal = store.place.neighbour("-wal");
        let wal_length = || std::fs::metadata(&wal).unwrap().len();
        let mut txn = store.write(WRITE_LOCK_TIMEOUT).unwrap();
        txn.set_meta("word", "in the WAL").unwrap();
        assert_eq!(txn.commit(), Ok(0));
        assert!(wal_length() > 0);
        let pages: i64 = store.connection.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
        store.connection.pragma_update(None, "max_page_count", pages + 1).unwrap();
        let mut txn = store.write(WRITE_LOCK_TIMEOUT).unwrap();
        put(&mut txn, "small", 10).unwrap();
        assert!(matches!(put(&mut txn, "large", 1 << 20), Err(StoreError::Full { .. })));
        let after = put(&mut txn, "after", 10);
        assert!(matches!(after, Err(StoreError::Full { .. })), "later statements must not commit separately");
        assert!(matches!(txn.commit(), Err(CommitError::Refused(StoreError::Full { .. }))));
        assert_eq!(wal_length(), 0, "its space is needed");
        assert_eq!(store.read().unwrap().revision().unwrap(), 0);
        let mut txn = store.write(WRITE_LOCK_TIMEOUT).unwrap();
        assert_eq!(put(&mut txn, "small", 10), Ok(1));
        assert_eq!(txn.commit(), Ok(1));
        assert_eq!(store.check().unwrap(), Vec::<String>::new());
    }

    #[test]
    fn commit_with_an_unknown_outcome_fails_all_calls_until_a_reopen() {
        let (_dir, mut store) = scratch();
        let mut txn = store.write(WRITE_LOCK_TIMEOUT).unwrap();
        put(&mut txn, "a", 10).unwrap();
        let sync_failed = rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_IOERR_FSYNC), None);
        assert!(matches!(txn.not_committed(sync_failed), CommitError::Unknown { .. }));
        drop(txn);
        assert!(matches!(store.read().err(), Some(StoreError::Uncertain { .. })));
        assert!(matches!(store.write(WRITE_LOCK_TIMEOUT).err(), Some(StoreError::Uncertain { .. })));
        store.reopen(WRITE_LOCK_TIMEOUT).unwrap();
        assert_eq!(store.read().unwrap().revision().unwrap(), 0);
    }

    #[test]
    fn file_migrated_by_a_newer_kloop_is_not_written() {
        let (_dir, mut store) = scratch();
        let newer = Store::open(store.path(), OpenMode::Existing).unwrap();
        newer.connection.pragma_update(None, "user_version", schema::VERSION + 1).unwrap();
        assert!(matches!(store.write(WRITE_LOCK_TIMEOUT).err(), Some(StoreError::Newer { .. })));
    }
}
