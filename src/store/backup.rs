//! Copying the store to another file while it is in use.

use super::{Store, StoreError, StoreResult};
use rusqlite::Connection;
use rustix::fs::{Mode, OFlags};
use std::path::Path;

impl Store {
    /// Writes a copy of the latest revision to a new file that only its owner can read. Refuses to overwrite.
    pub fn backup(&self, to: &Path) -> StoreResult<()> {
        let to = std::path::absolute(to).map_err(|error| StoreError::io(to, error))?;
        // VACUUM INTO accepts an empty file: made here, it has our mode and was certainly not there before.
        let mode = Mode::RUSR | Mode::WUSR;
        let file = rustix::fs::open(&to, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC, mode)
            .and_then(|file| rustix::fs::fchmod(&file, mode).map(|()| file))
            .map_err(|error| StoreError::io(&to, error))?;
        drop(file);
        let copied = self.copy_into(&to);
        if copied.is_err() {
            let _ = std::fs::remove_file(&to);
        }
        copied
    }

    fn copy_into(&self, to: &Path) -> StoreResult<()> {
        let Some(name) = to.to_str() else {
            let what = "SQLite can only write to a path in UTF-8".into();
            return Err(StoreError::Io { path: to.into(), what });
        };
        self.query(|connection| connection.execute("VACUUM INTO ?1", [name]))?;
        // A copy is in WAL mode like every store. Otherwise the first process to open it would convert it, with a
        // rollback journal beside it that other processes would refuse.
        let made = Connection::open(to).and_then(|copy| copy.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())));
        made.map_err(|error| StoreError::from_sqlite(to, error))?;
        std::fs::File::open(to).and_then(|file| file.sync_all()).map_err(|error| StoreError::io(to, error))
    }
}
