//! Copies the store to another file while it is in use.

use super::{Store, StoreError, StoreResult};
use rusqlite::Connection;
use rustix::fs::{Mode, OFlags};
use std::path::Path;

impl Store {
    /// Writes a copy of the latest revision to a new file with mode 0600. Refuses to overwrite a file.
    pub fn backup(&self, to: &Path) -> StoreResult<()> {
        let to = std::path::absolute(to).map_err(|error| StoreError::io(to, error))?;
        // VACUUM INTO accepts an empty file. Creating it here sets the mode and ensures that it did not exist.
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
        // The copy must be in WAL mode. Otherwise, the first process to open it would convert it, and create a rollback
        // journal that other processes refuse.
        let made = Connection::open(to).and_then(|copy| copy.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())));
        made.map_err(|error| StoreError::from_sqlite(to, error))?;
        std::fs::File::open(to).and_then(|file| file.sync_all()).map_err(|error| StoreError::io(to, error))
    }
}
