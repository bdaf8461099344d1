//! Durability: which commits survive a power loss.
//!
//! SQLite does not sync the WAL at commits (`synchronous = NORMAL`; it syncs only around checkpoints). The store syncs
//! it: at once for a writer that acknowledges a request, later for a writer that would compute the same result again.
//! One sync makes all earlier commits of all processes durable. A writer that continues meanwhile syncs on a separate
//! thread ([`Store::sync_behind`]). A process whose state is not needed after a power loss leaves the syncs out
//! ([`leave_out_syncs`]).

use super::group_sync::GroupSync;
use super::{CommitError, Store};
use rustix::fs::{CWD, Mode, OFlags, fdatasync, openat};
use std::fs::File;
use std::io;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tracing::debug_span;

/// Set in a process that leaves out the syncs.
static LEFT_OUT: OnceLock<()> = OnceLock::new();

/// Leaves out the syncs of all stores that this process opens from now on: a power loss can damage their files.
pub fn leave_out_syncs() {
    // A second call finds the decision of the same process.
    let _ = LEFT_OUT.set(());
}

/// Whether this process leaves out the syncs.
pub(super) fn leaves_out_syncs() -> bool {
    LEFT_OUT.get().is_some()
}

/// State of the syncs of a store's commits.
pub(super) struct DurableRevision {
    /// Whether the syncs are left out.
    is_left_out: bool,
    /// The WAL. It stays the same file while any process has the database open.
    wal: Option<Arc<File>>,
    /// Time of the first unsynced commit that no running sync includes.
    unsynced: Option<Instant>,
    /// Sync in progress on another thread.
    running: Option<RunningSync>,
    /// Syncs that callers wait for without the store.
    pub group: Option<Arc<GroupSync>>,
}

/// A sync on a separate thread.
struct RunningSync {
    /// Time of the first commit that it makes durable.
    since: Instant,
    /// Delivers its result.
    done: Receiver<io::Result<()>>,
}

impl DurableRevision {
    /// Starts without a commit.
    pub fn new(is_left_out: bool) -> DurableRevision {
        DurableRevision { is_left_out, wal: None, unsynced: None, running: None, group: None }
    }

    /// Records a commit.
    pub fn committed(&mut self) {
        if !self.is_left_out {
            self.unsynced.get_or_insert_with(Instant::now);
        }
    }
}

impl Store {
    /// Time of the first commit that a power loss could still undo.
    pub fn unsynced_since(&self) -> Option<Instant> {
        self.durable.running.as_ref().map(|running| running.since).or(self.durable.unsynced)
    }

    /// Makes all commits durable.
    ///
    /// After an error every call fails until [`Store::reopen`]: the kernel drops pages that it could not write, so a
    /// second sync would succeed without effect.
    pub fn sync(&mut self) -> Result<(), CommitError> {
        self.check_certain()?;
        if let Some(running) = self.durable.running.take() {
            let _span = debug_span!("wait_for_sync").entered();
            let result = running.done.recv().unwrap_or_else(|_| Err(io::Error::other("its thread has ended")));
            self.finish_sync(result)?;
        }
        if self.durable.unsynced.is_some() {
            let _span = debug_span!("sync").entered();
            let result = self.wal().and_then(|wal| Ok(fdatasync(wal)?));
            self.finish_sync(result)?;
            self.durable.unsynced = None;
        }
        Ok(())
    }

    /// Starts a sync on a separate thread without waiting. While one is running, only checks its result. Errors are
    /// those of [`Store::sync`].
    pub fn sync_behind(&mut self) -> Result<(), CommitError> {
        self.check_certain()?;
        if let Some(running) = &self.durable.running {
            let result = match running.done.try_recv() {
                Err(TryRecvError::Empty) => return Ok(()),
                Ok(result) => result,
                Err(TryRecvError::Disconnected) => Err(io::Error::other("its thread has ended")),
            };
            self.durable.running = None;
            return self.finish_sync(result);
        }
        let Some(since) = self.durable.unsynced else { return Ok(()) };
        let wal = self.wal().cloned();
        let (sender, done) = channel();
        let work = move || drop(sender.send(wal.and_then(|wal| Ok(fdatasync(&*wal)?))));
        // If no thread can be started, this thread syncs.
        match std::thread::Builder::new().name("sync".into()).spawn(work) {
            Err(_) => self.sync(),
            Ok(_) => {
                self.durable.unsynced = None;
                self.durable.running = Some(RunningSync { since, done });
                Ok(())
            }
        }
    }

    /// Returns the group that syncs the commits so far. The store itself then no longer syncs them.
    pub(super) fn sync_group(&mut self) -> Result<Arc<GroupSync>, CommitError> {
        self.check_certain()?;
        if self.durable.group.is_none() {
            let wal = if self.durable.is_left_out { Ok(None) } else { self.wal().cloned().map(Some) };
            match wal {
                Ok(wal) => self.durable.group = Some(Arc::new(GroupSync::new(wal, self.path().into()))),
                Err(error) => self.finish_sync(Err(error))?,
            }
        }
        self.durable.unsynced = None;
        self.durable.group.clone().ok_or_else(|| self.unknown("the log of commits is not open".into()))
    }

    fn check_certain(&self) -> Result<(), CommitError> {
        let what = "an earlier write is not known to be durable";
        if self.uncertain { Err(self.unknown(what.into())) } else { Ok(()) }
    }

    fn unknown(&self, what: String) -> CommitError {
        CommitError::Unknown { path: self.path().into(), what }
    }

    /// Handles the result of a sync. After a failure no commit may be appended, because the WAL may have a gap. The
    /// outcome of the unsynced commits stays unknown.
    fn finish_sync(&mut self, result: io::Result<()>) -> Result<(), CommitError> {
        let Err(error) = result else { return Ok(()) };
        let _ = self.empty_wal();
        self.uncertain = true;
        Err(self.unknown(error.to_string()))
    }

    /// Copies the WAL into the database, syncs, and truncates the WAL. Returns false when a reader prevents it.
    pub(super) fn empty_wal(&self) -> rusqlite::Result<bool> {
        self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).map(|busy: i64| busy == 0)
    }

    /// Copies the WAL into the database up to the oldest reader's snapshot, and keeps its space.
    pub(super) fn copy_wal_back(&self) -> rusqlite::Result<()> {
        self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
    }

    fn wal(&mut self) -> io::Result<&Arc<File>> {
        match &mut self.durable.wal {
            Some(wal) => Ok(wal),
            none => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let wal: File = openat(CWD, self.place.neighbour("-wal"), flags, Mode::empty())?.into();
                Ok(none.insert(wal.into()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::WRITE_LOCK_TIMEOUT;
    use super::super::{CommitError, OpenMode, Store, StoreRead};
    use super::DurableRevision;
    use std::sync::Arc;

    #[test]
    fn commit_is_synced_at_once_and_unsynced_commit_by_the_next_sync() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.db");
        let mut store = Store::open(&path, OpenMode::Create).unwrap();
        let mut write = |value: &str, is_synced: bool| {
            let mut txn = store.write(WRITE_LOCK_TIMEOUT).unwrap();
            txn.set_meta("word", value).unwrap();
            if is_synced {
                txn.commit().unwrap()
            } else {
                txn.commit_unsynced().unwrap()
            };
            // Another connection sees the commit at once.
            let other = Store::open(&path, OpenMode::Existing).unwrap();
            assert_eq!(other.read().unwrap().meta("word").unwrap().as_deref(), Some(value));
            let is_unsynced = store.unsynced_since().is_some();
            store.sync().unwrap();
            (is_unsynced, store.unsynced_since().is_some())
        };
        assert_eq!(write("one", true), (false, false));
        assert_eq!(write("two", false), (true, false));
    }

    #[test]
    fn syncs_that_are_left_out_are_neither_made_nor_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(&folder.path().join("state.db"), OpenMode::Create).unwrap();
        store.durable = DurableRevision::new(true);
        // A pipe cannot be synced: each sync would fail.
        store.durable.wal = Some(Arc::new(rustix::pipe::pipe().unwrap().0.into()));
        let mut txn = store.write(WRITE_LOCK_TIMEOUT).unwrap();
        txn.set_meta("word", "one").unwrap();
        txn.commit().unwrap();
        let mut txn = store.write(WRITE_LOCK_TIMEOUT).unwrap();
        txn.set_meta("word", "two").unwrap();
        txn.commit_unsynced().unwrap();
        assert_eq!(store.unsynced_since(), None);
        store.defer_sync().unwrap().wait().unwrap();
        store.sync_behind().unwrap();
        store.sync().unwrap();
        assert_eq!(store.read().unwrap().meta("word").unwrap().as_deref(), Some("two"));
    }

    #[test]
    fn failed_sync_is_not_acknowledged_nor_repeated() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(&folder.path().join("state.db"), OpenMode::Create).unwrap();
        // A pipe cannot be synced.
        let pipe = || Some(Arc::new(rustix::pipe::pipe().unwrap().0.into()));
        store.durable.wal = pipe();
        let mut txn = store.write(WRITE_LOCK_TIMEOUT).unwrap();
        txn.set_meta("word", "one").unwrap();
        assert!(matches!(txn.commit(), Err(CommitError::Unknown { .. })));
        assert!(matches!(store.sync(), Err(CommitError::Unknown { .. })));
        assert!(store.write(WRITE_LOCK_TIMEOUT).is_err(), "every call fails until the store is reopened");
        store.reopen(WRITE_LOCK_TIMEOUT).unwrap();
        assert_eq!(store.read().unwrap().meta("word").unwrap().as_deref(), Some("one"));
        store.sync().unwrap();
        // The same for a sync on another thread.
        store.durable.wal = pipe();
        let mut txn = store.write(WRITE_LOCK_TIMEOUT).unwrap();
        txn.set_meta("word", "two").unwrap();
        txn.commit_unsynced().unwrap();
        store.sync_behind().unwrap();
        assert!(matches!(store.sync(), Err(CommitError::Unknown { .. })));
        assert!(store.write(WRITE_LOCK_TIMEOUT).is_err());
    }

    #[test]
    fn failed_sync_of_a_group_fails_all_later_ones_until_the_store_is_reopened() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(&folder.path().join("state.db"), OpenMode::Create).unwrap();
        // A pipe cannot be synced.
        store.durable.wal = Some(Arc::new(rustix::pipe::pipe().unwrap().0.into()));
        let commit = |store: &mut Store, value: &str| {
            let mut txn = store.write(WRITE_LOCK_TIMEOUT).unwrap();
            txn.set_meta("word", value).unwrap();
            txn.commit_unsynced().unwrap();
            store.defer_sync().unwrap()
        };
        let (first, second) = (commit(&mut store, "one"), commit(&mut store, "two"));
        assert!(!store.needs_reopen());
        assert!(matches!(second.wait(), Err(CommitError::Unknown { .. })));
        assert!(matches!(first.wait(), Err(CommitError::Unknown { .. })));
        assert!(store.needs_reopen());
        store.reopen(WRITE_LOCK_TIMEOUT).unwrap();
        assert!(!store.needs_reopen());
        assert_eq!(store.read().unwrap().meta("word").unwrap().as_deref(), Some("two"));
        commit(&mut store, "three").wait().unwrap();
    }

    #[test]
    fn sync_on_another_thread_makes_commits_durable() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(&folder.path().join("state.db"), OpenMode::Create).unwrap();
        let commit = |store: &mut Store, value: &str| {
            let mut txn = store.write(WRITE_LOCK_TIMEOUT).unwrap();
            txn.set_meta("word", value).unwrap();
            txn.commit_unsynced().unwrap();
        };
        commit(&mut store, "one");
        let since = store.unsynced_since();
        store.sync_behind().unwrap();
        assert_eq!(store.unsynced_since(), since, "until its result is read");
        commit(&mut store, "two");
        let first = store.durable.running.take().unwrap();
        first.done.recv().unwrap().unwrap();
        assert!(store.unsynced_since() > since, "later commits need another sync");
        store.sync_behind().unwrap();
        store.sync().unwrap();
        assert_eq!(store.unsynced_since(), None);
    }
}
