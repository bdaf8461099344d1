//! Syncs of commits by several threads: one sync makes all commits before it durable.

use super::{CommitError, Store};
use crate::object::IgnorePoison;
use rustix::fs::fdatasync;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tracing::debug_span;

/// The syncs of one connection's commits.
pub(super) struct GroupSync {
    /// The WAL; `None` when syncs are left out.
    wal: Option<Arc<File>>,
    path: PathBuf,
    /// Number of commits.
    committed: AtomicU64,
    progress: Mutex<SyncProgress>,
}

#[derive(Default)]
struct SyncProgress {
    /// Number of commits that are durable.
    durable: u64,
    /// The error of a failed sync: no later one counts, because the kernel drops pages that it could not write.
    failed: Option<String>,
}

/// A commit that a power loss could still undo, until [`PendingSync::wait`].
pub struct PendingSync {
    group: Arc<GroupSync>,
    number: u64,
}

impl GroupSync {
    /// Makes the syncs of a WAL.
    pub fn new(wal: Option<Arc<File>>, path: PathBuf) -> GroupSync {
        GroupSync { wal, path, committed: AtomicU64::new(0), progress: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, SyncProgress> {
        self.progress.lock().ignore_poison()
    }
}

impl PendingSync {
    /// Makes the commit durable. Returns without a sync when one of a later commit has included it. After an error every call fails for
    /// commits of this connection.
    pub fn wait(self) -> Result<(), CommitError> {
        let _span = debug_span!("sync_group").entered();
        let mut progress = self.group.lock();
        if progress.durable < self.number && progress.failed.is_none() {
            let included = self.group.committed.load(Ordering::SeqCst);
            match self.group.wal.as_ref().map_or(Ok(()), fdatasync) {
                Ok(()) => progress.durable = included,
                Err(error) => progress.failed = Some(error.to_string()),
            }
        }
        match &progress.failed {
            Some(what) if progress.durable < self.number => {
                Err(CommitError::Unknown { path: self.group.path.clone(), what: what.clone() })
            }
            _ => Ok(()),
        }
    }
}

impl Store {
    /// Hands the sync of the commits so far to the caller, who waits for it without the store. When it fails, the store has to be reopened
    /// before its next commit.
    pub fn defer_sync(&mut self) -> Result<PendingSync, CommitError> {
        let group = self.sync_group()?;
        let number = group.committed.fetch_add(1, Ordering::SeqCst) + 1;
        Ok(PendingSync { group, number })
    }

    /// Whether a commit has an unknown outcome, so that the store has to be reopened before the next one.
    pub fn needs_reopen(&self) -> bool {
        self.uncertain || self.durable.group.as_ref().is_some_and(|group| group.lock().failed.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::WRITE_LOCK_TIMEOUT;
    use super::*;
    use crate::store::OpenMode;

    fn commit(store: &mut Store, value: &str) -> PendingSync {
        let mut txn = store.write(WRITE_LOCK_TIMEOUT).unwrap();
        txn.set_meta("word", value).unwrap();
        txn.commit_unsynced().unwrap();
        store.defer_sync().unwrap()
    }

    #[test]
    fn one_sync_makes_all_commits_before_it_durable() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(&folder.path().join("state.db"), OpenMode::Create).unwrap();
        let (first, second) = (commit(&mut store, "one"), commit(&mut store, "two"));
        let group = second.group.clone();
        second.wait().unwrap();
        assert_eq!(group.progress.lock().unwrap().durable, 2);
        let third = commit(&mut store, "three");
        first.wait().unwrap();
        assert_eq!(group.progress.lock().unwrap().durable, 2, "a durable commit needs no sync");
        third.wait().unwrap();
        assert_eq!(group.progress.lock().unwrap().durable, 3);
        assert_eq!(store.unsynced_since(), None);
    }
}
