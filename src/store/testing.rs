//! A store for tests.

use super::{OpenMode, Store};
use std::time::Duration;

/// Maximum wait for the write lock.
pub const WRITE_LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// Makes a store in a folder that is deleted after the test.
pub fn scratch() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("state.db"), OpenMode::Create).unwrap();
    (dir, store)
}
