//! Attempts that are repeated while the store cannot be written for a while.
//!
//! Never: repeats after any other error. Start reading at [`retry_until_writable`].

use crate::object::Status;
use crate::store::{CommitError, OpenError, StoreError};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Pause before the next attempt to write to a full disk.
pub const FULL_DISK_RETRY: Duration = Duration::from_millis(200);

/// Repeats an attempt as long as another process holds the write lock, a shared log cannot be reached, or the disk is full.
pub fn retry_until_writable<T>(mut attempt: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    loop {
        match attempt() {
            Err(error) if is_temporary(&error) => pause_when_full(&error),
            done => return done,
        }
    }
}

/// Whether another process held the write lock for too long, or another machine wrote first, or a shared log could not be reached, or the
/// disk is full.
pub fn is_temporary(error: &anyhow::Error) -> bool {
    let busy = StoreError::Busy { holder_pid: None, waited: Duration::ZERO };
    is_full(error) || has_exit_code(error, &busy)
}

/// Whether the disk is full.
pub fn is_full(error: &anyhow::Error) -> bool {
    let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
    let is_kind = |cause: &io::Error| full.contains(&cause.kind());
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    causes.any(is_kind) || has_exit_code(error, &StoreError::Full { path: PathBuf::new() })
}

/// Waits briefly after the error of a full disk, which returns immediately; other errors have waited already.
pub fn pause_when_full(error: &anyhow::Error) {
    if is_full(error) {
        std::thread::sleep(FULL_DISK_RETRY);
    }
}

/// Whether a cause of an error has the exit code of this one.
fn has_exit_code(error: &anyhow::Error, wanted: &StoreError) -> bool {
    error.chain().any(|cause| {
        let code = cause.downcast_ref::<StoreError>().map(StoreError::exit_code);
        let code = code.or_else(|| cause.downcast_ref::<OpenError>().map(OpenError::exit_code));
        let refused = |error: &CommitError| match error {
            CommitError::Refused(error) => Some(error.exit_code()),
            CommitError::Unknown { .. } => None,
        };
        let code = code.or_else(|| cause.downcast_ref::<CommitError>().and_then(refused));
        let code = code.or_else(|| cause.downcast_ref::<Status>().and_then(|status| status.exit_code));
        code == Some(wanted.exit_code())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_disk_and_busy_store_are_temporary() {
        let full = || StoreError::Full { path: "state.db".into() };
        let table = [
            (anyhow::Error::from(full()), true),
            (anyhow::Error::from(CommitError::Refused(full())).context("cannot note the settings"), true),
            (anyhow::Error::from(OpenError::Store(full())), true),
            (anyhow::Error::from(crate::apiserver::refused(&full())), true),
            (anyhow::Error::from(io::Error::from(io::ErrorKind::StorageFull)).context("cannot write epoch"), true),
            (anyhow::Error::from(StoreError::Overtaken), true),
            (anyhow::Error::from(io::Error::from(io::ErrorKind::PermissionDenied)), false),
            (anyhow::Error::from(StoreError::Bug { what: "no".into() }), false),
        ];
        for (error, expected) in table {
            assert_eq!(is_temporary(&error), expected, "{error:?}");
        }
    }
}
