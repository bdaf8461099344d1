//! Keeps the store's reserve for a full disk.
//!
//! Start reading at [`DiskReserve::keep`].

use crate::store::{Store, StoreError};
use std::time::Duration;

/// The upkeep of the reserve.
#[derive(Default)]
pub struct DiskReserve {
    /// The problem that was logged last.
    logged: Option<StoreError>,
}

impl DiskReserve {
    /// Completes the reserve when the disk has room; waits for other writers at most for `patience`. Returns a text for the log when that
    /// fails, once for each problem.
    pub fn keep(&mut self, store: &Store, patience: Duration) -> Option<String> {
        let problem = store.keep_reserve(patience).err();
        if problem == self.logged {
            return None;
        }
        self.logged = problem;
        let problem = self.logged.as_ref()?;
        Some(format!("no disk space is reserved for deletions on a full disk: {problem}"))
    }
}
