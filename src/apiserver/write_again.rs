//! A write of a batch that is made again, because another machine wrote to the shared log before the batch was committed.
//!
//! Never: makes a batch. Start reading at [`Api::write_again`].

use super::Api;
use super::transaction::Transaction;
use crate::object::{Reason, Status};

impl Api {
    /// Makes a write of [`Api::write_next`] in a transaction of its own.
    pub(super) fn write_again<I, T, E: From<Status>>(
        &mut self,
        item: I,
        write: &mut impl FnMut(&mut dyn Transaction, &I) -> Result<T, E>,
    ) -> (I, Result<T, E>) {
        let mut refusal = None;
        let outcome = self.write(false, |txn| {
            refusal = None;
            write(txn, &item).map_err(|error| {
                refusal = Some(error);
                Status::new(Reason::InternalError, "the write was refused")
            })
        });
        let outcome = outcome.map_err(|status| refusal.unwrap_or_else(|| status.into()));
        (item, outcome)
    }
}
