//! Durability: which commits survive a power loss.
//!
//! SQLite leaves the WAL unsynced at commits (`synchronous = NORMAL`; it still syncs around checkpoints), and the store
//! syncs it: at once for a writer that acknowledges something to a user, a moment later for a writer that would compute
//! the same result again. One sync makes all earlier commits durable, whoever made them. A writer that continues in the
//! meantime syncs on a separate thread ([`Store::sync_behind`]).

use super::{CommitError, Store};
use rustix::fs::{CWD, Mode, OFlags, fdatasync, openat};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Instant;
use tracing::debug_span;

/// Durable part of a store's commits.
#[derive(Default)]
pub(super) struct DurableRevision {
    /// The WAL. It stays the same file as long as anybody has the database open.
    wal: Option<Arc<File>>,
    /// Since when something is not, and no sync is under way for it.
    unsynced: Option<Instant>,
    /// Sync in progress on another thread.
    under_way: Option<RunningSync>,
}

/// A sync on a separate thread.
struct RunningSync {
    /// Since when there is what it makes durable.
    since: Instant,
    /// Delivers its result.
    done: Receiver<io::Result<()>>,
}

impl DurableRevision {
    /// Something was committed.
    pub fn committed(&mut self) {
        self.unsynced.get_or_insert_with(Instant::now);
    }
}

impl Store {
    /// Since when something is committed that a loss of power could still take back.
    pub fn unsynced_since(&self) -> Option<Instant> {
        self.durable.under_way.as_ref().map(|under_way| under_way.since).or(self.durable.unsynced)
    }

    /// Makes durable what was committed.
    ///
    /// After an error this store answers nothing until [`Store::reopen`]: the kernel forgets what it could not write, and a second try
    /// would succeed in vain.
    pub fn sync(&mut self) -> Result<(), CommitError> {
        self.check_certain()?;
        if let Some(under_way) = self.durable.under_way.take() {
            let _span = debug_span!("wait_for_sync").entered();
            let result = under_way.done.recv().unwrap_or_else(|_| Err(io::Error::other("its thread has ended")));
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

    /// Begins to make durable what was committed, and does not wait for it. While that is under way, nothing new is begun: this asks what
    /// has become of it. Errors are those of [`Store::sync`].
    pub fn sync_behind(&mut self) -> Result<(), CommitError> {
        self.check_certain()?;
        if let Some(under_way) = &self.durable.under_way {
            let result = match under_way.done.try_recv() {
                Err(TryRecvError::Empty) => return Ok(()),
                Ok(result) => result,
                Err(TryRecvError::Disconnected) => Err(io::Error::other("its thread has ended")),
            };
            self.durable.under_way = None;
            return self.finish_sync(result);
        }
        let Some(since) = self.durable.unsynced else { return Ok(()) };
        let wal = self.wal().cloned();
        let (tell, done) = channel();
        let work = move || drop(tell.send(wal.and_then(|wal| Ok(fdatasync(&*wal)?))));
        // Without a thread to be had it is done here.
        match std::thread::Builder::new().name("sync".into()).spawn(work) {
            Err(_) => self.sync(),
            Ok(_) => {
                self.durable.unsynced = None;
                self.durable.under_way = Some(RunningSync { since, done });
                Ok(())
            }
        }
    }

    fn check_certain(&self) -> Result<(), CommitError> {
        let what = "an earlier write is not known to be durable";
        if self.uncertain { Err(self.unknown(what.into())) } else { Ok(()) }
    }

    fn unknown(&self, what: String) -> CommitError {
        CommitError::Unknown { path: self.path().into(), what }
    }

    /// After a failed sync nothing may be appended, because the WAL may have a hole. The outcome of the unsynced commits
    /// stays unknown.
    fn finish_sync(&mut self, result: io::Result<()>) -> Result<(), CommitError> {
        let Err(error) = result else { return Ok(()) };
        let _ = self.empty_wal();
        self.uncertain = true;
        Err(self.unknown(error.to_string()))
    }

    /// Copies the WAL into the database, which is synced, and cuts it to nothing. False when a reader is in the way.
    pub(super) fn empty_wal(&self) -> rusqlite::Result<bool> {
        self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).map(|busy: i64| busy == 0)
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
    use super::super::{CommitError, OpenMode, Store, StoreRead};
    use std::sync::Arc;
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn a_commit_is_synced_and_one_that_need_not_be_is_by_the_next_sync() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.db");
        let mut store = Store::open(&path, OpenMode::Create).unwrap();
        let mut write = |value: &str, is_synced: bool| {
            let mut txn = store.write(PATIENCE).unwrap();
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
    fn failed_sync_is_not_acknowledged_nor_repeated() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(&folder.path().join("state.db"), OpenMode::Create).unwrap();
        // A pipe cannot be synced.
        let pipe = || Some(Arc::new(rustix::pipe::pipe().unwrap().0.into()));
        store.durable.wal = pipe();
        let mut txn = store.write(PATIENCE).unwrap();
        txn.set_meta("word", "one").unwrap();
        assert!(matches!(txn.commit(), Err(CommitError::Unknown { .. })));
        assert!(matches!(store.sync(), Err(CommitError::Unknown { .. })));
        assert!(store.write(PATIENCE).is_err(), "nothing is believed any more");
        store.reopen(PATIENCE).unwrap();
        assert_eq!(store.read().unwrap().meta("word").unwrap().as_deref(), Some("one"));
        store.sync().unwrap();
        // Nor is one that was synced behind its writer.
        store.durable.wal = pipe();
        let mut txn = store.write(PATIENCE).unwrap();
        txn.set_meta("word", "two").unwrap();
        txn.commit_unsynced().unwrap();
        store.sync_behind().unwrap();
        assert!(matches!(store.sync(), Err(CommitError::Unknown { .. })));
        assert!(store.write(PATIENCE).is_err());
    }

    #[test]
    fn sync_on_another_thread_makes_commits_durable() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(&folder.path().join("state.db"), OpenMode::Create).unwrap();
        let commit = |store: &mut Store, value: &str| {
            let mut txn = store.write(PATIENCE).unwrap();
            txn.set_meta("word", value).unwrap();
            txn.commit_unsynced().unwrap();
        };
        commit(&mut store, "one");
        let since = store.unsynced_since();
        store.sync_behind().unwrap();
        assert_eq!(store.unsynced_since(), since, "until it is heard of");
        commit(&mut store, "two");
        let first = store.durable.under_way.take().unwrap();
        first.done.recv().unwrap().unwrap();
        assert!(store.unsynced_since() > since, "what came later waits for the next one");
        store.sync_behind().unwrap();
        store.sync().unwrap();
        assert_eq!(store.unsynced_since(), None);
    }
}
