//! The store: one SQLite file, which only this module accesses; it may follow a log on etcd.
//!
//! Stores objects as rows (key, uid, revision, body text), the log of their changes, and a few side tables. Coordinates
//! writers, and creates, checks, migrates, compacts and copies the file.
//! Never: decodes a body, depends on a kind, or makes decisions.
//!
//! Guarantees, each with a test in `tests/store.rs`:
//! - Every write gets the next revision of one counter. A revision is visible only after its commit, and never reused
//!   (except that a power loss undoes unsynced commits, [`Txn::commit_unsynced`]).
//! - Replaying the log yields exactly the stored objects, also after compaction.
//! - A successful [`Txn::commit`] survives a kill and a power loss. A commit with an unknown outcome returns an error
//!   that says so.
//! - Reading the log from a retained revision returns every later entry once, in order; from before the floor it is
//!   refused.
//! - A file that is not a safe kloop database is refused and stays unchanged, byte for byte.
//! - A file may be the replica of a log on etcd that several machines share. A successful commit is then in that log, and each transaction
//!   begins at the log's head.
//!
//! Start reading at [`Store`], then [`StoreRead`] for queries and [`Txn`] for changes.

mod backup;
mod check;
mod compact;
mod durable;
mod error;
mod etcd;
mod follower;
mod group_sync;
mod holder;
mod injected_faults;
mod leader_claim;
mod log_batch;
pub mod meta_keys;
mod open;
mod part;
pub mod past;
mod properties;
mod protobuf;
mod record;
mod replica;
mod reserve;
mod schema;
mod shared_log;
mod shared_snapshot;
mod snapshot;
mod state_path;
#[cfg(test)]
mod testing;
mod turnstile;
mod txn;
mod wake_hint;

pub use compact::Retention;
pub use durable::leave_out_syncs;
pub use error::{CommitError, OVERTAKEN, OpenError, StoreError, name_holder};
pub use etcd::address::is_etcd;
pub use group_sync::PendingSync;
pub use injected_faults::InjectedFault;
pub use leader_claim::{CLAIM_LEASE, ClaimRenewal, LeaderClaim};
pub use open::OpenMode;
pub use part::ParkedTxn;
pub use record::{ChangeKind, ContainerAttempt, LogEntry, StoredObject};
pub use replica::{prepare_replica, read_replica_address, resolve_address};
pub use snapshot::{Snapshot, StoreRead, StoredVisitor};
pub use state_path::default_path;
pub use txn::Txn;
pub use wake_hint::{HintWatch, WakeHint, watch_hint};

use durable::DurableRevision;
use replica::Replica;
use rusqlite::Connection;
use state_path::StorePath;
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;
use turnstile::Turnstile;

/// Result of reading the store.
pub type StoreResult<T> = std::result::Result<T, StoreError>;

/// One connection to one cluster's file. It can be sent to another thread, but not shared between threads.
pub struct Store {
    connection: Connection,
    place: StorePath,
    /// `None` for an in-memory store, which has a single writer.
    turnstile: Option<Arc<Turnstile>>,
    /// Set where the file can only be read: its folder is read-only, or the disk is full.
    read_only: Option<ReadOnlyFile>,
    /// Number of live snapshots; they share one read transaction.
    readers: Cell<usize>,
    /// The length of the WAL at which it is truncated next.
    long_wal: Cell<u64>,
    /// State of its syncs.
    durable: DurableRevision,
    /// Whether watchers have to be woken for the last commit.
    has_unnotified_commit: bool,
    /// Set after a commit with an unknown outcome; every call fails until a reopen.
    uncertain: bool,
    fault: Option<InjectedFault>,
    /// The earlier revision that the store reads; `None` for the newest one.
    past: Option<u64>,
    /// The log of a replica; `None` for a file that is the state itself.
    replica: Option<Replica>,
    /// Whether all transactions may use the reserve.
    allows_reserve: bool,
}

/// A file that is read without locks, since SQLite cannot create its own files in the same folder.
struct ReadOnlyFile {
    /// The error of every write.
    refusal: StoreError,
    /// Modification time of the file at the start. Once another process writes the file, it can no longer be read without locks.
    modified: Option<SystemTime>,
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

    /// The folder for the cluster's other files: pods, locks, the epoch. The folder of a file with the name `state.db`,
    /// else a folder named after the file.
    pub fn home(&self) -> &Path {
        self.place.home()
    }

    /// A number that changes with each commit of another connection, but not of this one.
    pub fn data_version(&self) -> StoreResult<u64> {
        self.query(|connection| connection.query_row("PRAGMA data_version", [], |row| row.get::<_, i64>(0)))
            .map(|version| version as u64)
    }

    /// Limits the size of this connection's cache, in bytes.
    pub fn limit_cache(&self, bytes: usize) -> StoreResult<()> {
        self.query(|connection| connection.pragma_update(None, "cache_size", -((bytes >> 10) as i64)))
    }

    /// Wakes the processes that watch the file, if there was a commit.
    pub fn wake_watchers(&mut self) {
        if std::mem::take(&mut self.has_unnotified_commit) {
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
