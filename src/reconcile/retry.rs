//! Attempts that are repeated while the store cannot be written for a while.
//!
//! Never: repeats after any other error. Start reading at [`retry_while_busy`].

use crate::object::Status;
use crate::store::{CommitError, OpenError, StoreError};
use std::time::Duration;

/// Repeats an attempt as long as another process holds the write lock, or a shared log cannot be reached.
pub fn retry_while_busy<T>(mut attempt: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    loop {
        match attempt() {
            Err(error) if is_busy(&error) => {}
            done => return done,
        }
    }
}

/// Whether another process held the write lock for too long, or another machine wrote first, or a shared log could not be reached.
pub fn is_busy(error: &anyhow::Error) -> bool {
    let busy = StoreError::Busy { holder_pid: None, waited: Duration::ZERO };
    error.chain().any(|cause| {
        let code = cause.downcast_ref::<StoreError>().map(StoreError::exit_code);
        let code = code.or_else(|| cause.downcast_ref::<OpenError>().map(OpenError::exit_code));
        let refused = |error: &CommitError| match error {
            CommitError::Refused(error) => Some(error.exit_code()),
            CommitError::Unknown { .. } => None,
        };
        let code = code.or_else(|| cause.downcast_ref::<CommitError>().and_then(refused));
        let code = code.or_else(|| cause.downcast_ref::<Status>().and_then(|status| status.exit_code));
        code == Some(busy.exit_code())
    })
}
