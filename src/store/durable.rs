//! When a commit also outlives a loss of power.
//!
//! SQLite is told to leave the WAL unsynced at commits (`synchronous = NORMAL`; it still syncs around checkpoints), and the store syncs it:
//! at once for whoever is to be told that something is saved, a moment later for a writer that would come to the same conclusion again.
//! One sync makes everything durable that was committed before, whoever did.

use super::{CommitError, Store};
use rustix::fs::{CWD, Mode, OFlags, fdatasync, openat};
use std::fs::File;
use std::io;
use std::time::Instant;

/// What of a store's commits is durable.
#[derive(Default)]
pub(super) struct Durable {
    /// The WAL. It stays the same file as long as anybody has the database open.
    wal: Option<File>,
    /// Since when something is not.
    unsynced: Option<Instant>,
}

impl Durable {
    /// Something was committed.
    pub fn committed(&mut self) {
        self.unsynced.get_or_insert_with(Instant::now);
    }
}

impl Store {
    /// Since when something is committed that a loss of power could still take back.
    pub fn unsynced_since(&self) -> Option<Instant> {
        self.durable.unsynced
    }

    /// Makes durable what was committed.
    ///
    /// After an error this store answers nothing until [`Store::reopen`]: the kernel forgets what it could not write, and a second try
    /// would succeed in vain.
    pub fn sync(&mut self) -> Result<(), CommitError> {
        let unknown = |what: String| CommitError::Unknown { path: self.path().into(), what };
        if self.uncertain {
            return Err(unknown("an earlier write is not known to be durable".into()));
        }
        if self.durable.unsynced.is_none() {
            return Ok(());
        }
        if let Err(error) = self.sync_wal() {
            let error = CommitError::Unknown { path: self.path().into(), what: error.to_string() };
            // Nobody is to add to a WAL with a hole, though what becomes of this commit stays open.
            let _ = self.empty_wal();
            self.uncertain = true;
            return Err(error);
        }
        self.durable.unsynced = None;
        Ok(())
    }

    /// Copies the WAL into the database, which is synced, and cuts it to nothing. False when a reader is in the way.
    pub(super) fn empty_wal(&self) -> rusqlite::Result<bool> {
        self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).map(|busy: i64| busy == 0)
    }

    fn sync_wal(&mut self) -> io::Result<()> {
        let wal = match &mut self.durable.wal {
            Some(wal) => wal,
            none => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                none.insert(openat(CWD, self.place.beside("-wal"), flags, Mode::empty())?.into())
            }
        };
        Ok(fdatasync(wal)?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Access, CommitError, Read, Store};
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn a_commit_is_synced_and_one_that_need_not_be_is_by_the_next_sync() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.db");
        let mut store = Store::open(&path, Access::Create).unwrap();
        let mut write = |value: &str, is_synced: bool| {
            let mut txn = store.write(PATIENCE).unwrap();
            txn.set_meta("word", value).unwrap();
            if is_synced {
                txn.commit().unwrap()
            } else {
                txn.commit_unsynced().unwrap()
            };
            // Whoever looks sees it at once.
            let other = Store::open(&path, Access::Existing).unwrap();
            assert_eq!(other.read().unwrap().meta("word").unwrap().as_deref(), Some(value));
            let is_unsynced = store.unsynced_since().is_some();
            store.sync().unwrap();
            (is_unsynced, store.unsynced_since().is_some())
        };
        assert_eq!(write("one", true), (false, false));
        assert_eq!(write("two", false), (true, false));
    }

    #[test]
    fn what_could_not_be_synced_is_not_acknowledged_and_a_second_try_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(&folder.path().join("state.db"), Access::Create).unwrap();
        // A pipe cannot be synced.
        store.durable.wal = Some(rustix::pipe::pipe().unwrap().0.into());
        let mut txn = store.write(PATIENCE).unwrap();
        txn.set_meta("word", "one").unwrap();
        assert!(matches!(txn.commit(), Err(CommitError::Unknown { .. })));
        assert!(matches!(store.sync(), Err(CommitError::Unknown { .. })));
        assert!(store.write(PATIENCE).is_err(), "nothing is believed any more");
        store.reopen(PATIENCE).unwrap();
        assert_eq!(store.read().unwrap().meta("word").unwrap().as_deref(), Some("one"));
        store.sync().unwrap();
    }
}
