//! Keeps the store's reserve for a full disk.
//!
//! Start reading at [`DiskReserve::keep`].

use crate::store::{Store, StoreError};

/// The upkeep of the reserve.
#[derive(Default)]
pub struct DiskReserve {
    /// The problem that was logged last.
    logged: Option<StoreError>,
}

impl DiskReserve {
    /// Completes the reserve when the disk has room. Returns a text for the log when that fails, once for each problem.
    pub fn keep(&mut self, store: &Store) -> Option<String> {
        let problem = store.keep_reserve().err();
        if problem == self.logged {
            return None;
        }
        self.logged = problem;
        let problem = self.logged.as_ref()?;
        Some(format!("no disk space is reserved for deletions on a full disk: {problem}"))
    }
}
