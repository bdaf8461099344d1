//! Faults that tests and the simulator inject into a store. No command does.

use super::{Store, StoreResult};

/// A fault to inject at the next transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// Another writer holds the lock for too long.
    Busy,
    /// The commit fails with an unknown outcome, and is lost.
    LostCommit,
    /// The commit fails with an unknown outcome, but is stored.
    UnknownCommit,
}

impl Store {
    /// Simulates a full disk, or free space again.
    pub fn pretend_full(&self, full: bool) -> StoreResult<()> {
        self.query(|connection| {
            let pages: i64 = connection.query_row("PRAGMA page_count", [], |row| row.get(0))?;
            let most = if full { pages } else { i64::from(u32::MAX - 1) };
            connection.query_row(&format!("PRAGMA max_page_count = {most}"), [], |_| Ok(()))
        })
    }

    /// Injects a fault into the next transaction, or none.
    pub fn inject_fault(&mut self, fault: Option<InjectedFault>) {
        self.fault = fault;
    }
}
