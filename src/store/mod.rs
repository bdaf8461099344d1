//! The store: one SQLite file, and the only code that touches it.
//!
//! Knows: objects as rows (key, uid, revision, body text), the log of everything that happened to them, a few side
//! tables, who may write when, and how a file is made, checked, migrated, compacted and copied.
//! Never: looks into a body, knows a kind, decides anything.
//!
//! The promises, each with a test in `tests/store.rs`:
//! - Every write gets the next revision of one counter; a revision is never reused (but that a loss of power takes back what was not
//!   yet synced, [`Txn::commit_unsynced`]) and is seen only after its commit.
//! - The objects are always the fold of the log, also after compaction.
//! - What [`Txn::commit`] acknowledged survives a kill and a power loss. A commit whose outcome is not known says so.
//! - Reading the log from a kept revision gives every later entry once, in order; from before the floor it is refused.
//! - A file that is not safely ours is refused and left as it was, byte for byte.
//!
//! Start reading at [`Store`], then [`StoreRead`] for what can be asked and [`Txn`] for what can be changed.

mod backup;
mod check;
mod compact;
mod durable;
mod error;
mod holder;
mod open;
mod record;
mod schema;
mod snapshot;
mod state_path;
mod turnstile;
mod txn;
mod wake_hint;

pub use compact::Retention;
pub use error::{CommitError, OpenError, StoreError, name_holder};
pub use open::OpenMode;
pub use record::{ChangeKind, ContainerAttempt, LogEntry, SideNote, StoredObject};
pub use snapshot::{Snapshot, StoreRead};
pub use state_path::default_path;
pub use txn::Txn;
pub use wake_hint::{HintWatch, WakeHint, watch_hint};

use durable::DurableRevision;
use rusqlite::Connection;
use state_path::StorePath;
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use turnstile::Turnstile;

/// Result of reading the store.
pub type StoreResult<T> = std::result::Result<T, StoreError>;

/// One connection to one cluster's file. It can be sent to another thread, not shared between threads.
pub struct Store {
    connection: Connection,
    place: StorePath,
    /// `None` for an in-memory store, which has a single writer.
    turnstile: Option<Arc<Turnstile>>,
    /// Number of live snapshots; they share one read transaction.
    readers: Cell<usize>,
    /// The length of the WAL at which it is next shortened by force.
    long_wal: Cell<u64>,
    /// Durable part of its commits.
    durable: DurableRevision,
    /// Whether watchers have not been woken since the last commit.
    untold: bool,
    /// Set when a commit failed in a way that leaves its outcome open: nothing more is believed until a reopen.
    uncertain: bool,
    trouble: Option<InjectedFault>,
}

/// A fault to inject at the next transaction, for tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// Another writer holds the lock for too long.
    Busy,
    /// The commit fails, its outcome is not known, and it is not there.
    LostCommit,
    /// The commit fails, its outcome is not known, and it is there.
    UnknownCommit,
}

impl Store {
    /// The database file.
    pub fn path(&self) -> &Path {
        self.place.file()
    }

    /// The folder of the database file.
    pub fn dir(&self) -> &Path {
        self.place.dir()
    }

    /// The folder of what belongs to the cluster beside its file: pods, locks, the epoch. That of the file when it is called
    /// `state.db`, else one named after it.
    pub fn home(&self) -> &Path {
        self.place.home()
    }

    /// A number that changes whenever another connection has committed; one's own commits do not change it.
    pub fn data_version(&self) -> StoreResult<u64> {
        self.query(|connection| connection.query_row("PRAGMA data_version", [], |row| row.get::<_, i64>(0)))
            .map(|version| version as u64)
    }

    /// Simulates a full disk, or free space again, for tests.
    pub fn pretend_full(&self, full: bool) -> StoreResult<()> {
        self.query(|connection| {
            let pages: i64 = connection.query_row("PRAGMA page_count", [], |row| row.get(0))?;
            let most = if full { pages } else { i64::from(u32::MAX - 1) };
            connection.query_row(&format!("PRAGMA max_page_count = {most}"), [], |_| Ok(()))
        })
    }

    /// As if the next transaction met a trouble, or none any more: for rehearsals.
    pub fn pretend(&mut self, trouble: Option<InjectedFault>) {
        self.trouble = trouble;
    }

    /// Wakes the processes that watch the file, when there was a commit.
    pub fn wake_watchers(&mut self) {
        if std::mem::take(&mut self.untold) {
            wake_hint::touch_sidecar(&self.place);
        }
    }

    fn query<T>(&self, question: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> StoreResult<T> {
        if self.uncertain {
            return Err(StoreError::Uncertain { path: self.path().into() });
        }
        question(&self.connection).map_err(|error| StoreError::from_sqlite(self.path(), error))
    }
}
