//! The place of the state file: whether another file has replaced it since the server started.
//!
//! Never: opens the database. Start reading at [`StatePlace::was_unchanged_lately`].

use super::fresh_reads::FreshReads;
use crate::reconcile::store_files::identity;
use crate::store::read_replica_address;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The state file of a server.
pub struct StatePlace {
    /// The path.
    pub path: PathBuf,
    /// Device and inode when the server started.
    pub identity: Option<(u64, u64)>,
    /// Whether other machines may write the state, so that it has to be updated before each read.
    pub is_replica: bool,
    /// Brings it up to date.
    pub fresh_reads: FreshReads,
    started: Instant,
    /// The millisecond since the start in which the file was last seen unchanged.
    seen_at: AtomicU64,
}

impl StatePlace {
    /// Remembers the file at a path.
    pub fn new(path: PathBuf) -> StatePlace {
        let (identity, started) = (identity(&path), Instant::now());
        let is_replica = read_replica_address(&path).is_some();
        StatePlace {
            path,
            identity,
            is_replica,
            fresh_reads: FreshReads::default(),
            started,
            seen_at: AtomicU64::new(u64::MAX),
        }
    }

    /// Whether the file is still the same.
    pub fn is_unchanged(&self) -> bool {
        identity(&self.path) == self.identity
    }

    /// Like [`StatePlace::is_unchanged`], but checks at most once per millisecond, for reads that take a few microseconds.
    pub fn was_unchanged_lately(&self) -> bool {
        let now = self.started.elapsed().as_millis() as u64;
        if self.seen_at.load(Ordering::Relaxed) == now {
            return true;
        }
        let is_unchanged = self.is_unchanged();
        self.seen_at.store(if is_unchanged { now } else { u64::MAX }, Ordering::Relaxed);
        is_unchanged
    }
}
