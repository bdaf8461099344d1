//! Opens the file. All checks are here or in [`state_path`], and nothing is written before all have passed.

use super::durable::{DurableRevision, leaves_out_syncs};
use super::replica::Replica;
use super::reserve::release_small_part;
use super::state_path::{self, StorePath};
use super::turnstile::Turnstile;
use super::txn::{LONG_WAL, SQLITE_BUSY_TIMEOUT};
use super::{CommitError, OpenError, ReadOnlyFile, Store, StoreError, meta_keys, schema};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use rustix::fs::{Mode, OFlags};
use std::cell::Cell;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Whether to create a missing file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Creates a missing folder and file.
    Create,
    /// Fails without a file.
    Existing,
    /// Like [`OpenMode::Existing`], for a backup that nothing else writes: creates no lock files.
    Backup,
}

/// The first SQLite version without the WAL-reset race, in which two writers can corrupt a database
/// (sqlite.org/wal.html).
const OLDEST_SQLITE: i32 = 3_051_003;

/// Settings of a connection. `synchronous = NORMAL`: [`Store::sync`] syncs commits (without it, a power loss undid up
/// to 919 acknowledged rows). The WAL is copied back every 16 MiB, and truncated to that length. The cache of 32 MiB
/// avoids reading pages of indexes repeatedly, since keys are accessed in random order. The pages that a part of a transaction changes are
/// kept in memory, and not in a temporary file, until the part ends.
const SETTINGS: &str = "
    PRAGMA synchronous = NORMAL;
    PRAGMA mmap_size = 0;
    PRAGMA wal_autocheckpoint = 1024;
    PRAGMA cache_size = -32768;
    PRAGMA journal_size_limit = 16777216;
    PRAGMA cell_size_check = ON;
    PRAGMA trusted_schema = OFF;
    PRAGMA temp_store = MEMORY;
";

impl Store {
    /// Opens the file at `path`. A refused file stays unchanged.
    pub fn open(path: &Path, access: OpenMode) -> Result<Store, OpenError> {
        let place = StorePath::from_path(path)?;
        let replica = Replica::find(&place)?;
        Store::open_replica(place, access, replica)
    }

    /// Opens a file, which may be the replica of a log.
    pub(super) fn open_replica(
        place: StorePath,
        access: OpenMode,
        mut replica: Option<Replica>,
    ) -> Result<Store, OpenError> {
        check_sqlite()?;
        if access == OpenMode::Create {
            place.make_dir()?;
        }
        place.check_dir()?;
        if let Some(replica) = &mut replica {
            replica.check_log(access == OpenMode::Create, place.file())?;
        }
        if !place.check_file()? {
            match access {
                _ if replica.is_some() => create(&place)?,
                OpenMode::Create => create(&place)?,
                OpenMode::Existing | OpenMode::Backup => return Err(OpenError::Absent { path: place.file().into() }),
            }
        }
        let mut store = match Store::open_for_writing(&place, access) {
            Ok(store) => store,
            Err(OpenError::Store(error)) => Store::open_for_reading(place, error)?,
            Err(error) => return Err(error),
        };
        store.replica = replica;
        store.migrate()?;
        store.follow()?;
        Ok(store)
    }

    fn open_for_writing(place: &StorePath, access: OpenMode) -> Result<Store, OpenError> {
        let connection = connect_with_reserve(place)?;
        let turnstile = match access {
            OpenMode::Backup => None,
            _ => Some(Arc::new(Turnstile::open(place)?)),
        };
        Ok(Store::from_connection(connection, place.clone(), turnstile))
    }

    /// Opens an existing file in a folder where SQLite cannot create its own files; `error` is SQLite's. The file must be one that no other
    /// process writes, so it must have no WAL. Later writes are refused with the error.
    fn open_for_reading(place: StorePath, error: StoreError) -> Result<Store, OpenError> {
        let is_read_only = place.is_in_read_only_folder();
        let error = match is_read_only {
            true => StoreError::read_only_folder(place.file(), place.dir()),
            false => error,
        };
        let has_wal = state_path::stat_path(&place.neighbour("-wal"))?.is_some_and(|wal| wal.st_size > 0);
        if has_wal || !(is_read_only || matches!(error, StoreError::Full { .. })) {
            return Err(error.into());
        }
        let read_only = ReadOnlyFile { refusal: error, modified: modified(place.file()) };
        let connection = connect_immutable(&place)?;
        let mut store = Store::from_connection(connection, place, None);
        store.read_only = Some(read_only);
        Ok(store)
    }

    /// Refuses to read a file without locks once another process has written it.
    pub(super) fn check_unwritten(&self) -> Result<(), StoreError> {
        match &self.read_only {
            Some(file) if file.modified != modified(self.path()) => {
                let what = "it was written after it had been opened without room for locks: try again".into();
                Err(StoreError::Io { path: self.path().into(), what })
            }
            _ => Ok(()),
        }
    }

    /// Creates a store without a file, for tests and simulation: the same schema, no locks.
    pub fn in_memory() -> Result<Store, OpenError> {
        let place = StorePath::in_memory();
        let connection = Connection::open_in_memory()
            .and_then(|connection| {
                connection.execute_batch(schema::BEFORE_TABLES)?;
                schema::migrate(&connection, schema::STEPS)?;
                keep_query_plans(&connection)?;
                Ok(connection)
            })
            .map_err(|error| StoreError::from_sqlite(place.file(), error))?;
        Ok(Store::from_connection(connection, place, None))
    }

    fn from_connection(connection: Connection, place: StorePath, turnstile: Option<Arc<Turnstile>>) -> Store {
        let (readers, long_wal) = (Cell::new(0), Cell::new(LONG_WAL));
        Store {
            connection,
            place,
            turnstile,
            read_only: None,
            readers,
            long_wal,
            durable: DurableRevision::new(leaves_out_syncs()),
            has_unnotified_commit: false,
            uncertain: false,
            fault: None,
            past: None,
            replica: None,
            allows_reserve: false,
        }
    }

    /// Reopens the file after a commit with an unknown outcome, and makes that outcome final: afterwards the
    /// transaction is either stored or never will be.
    ///
    /// Reading is not enough: frames of a failed commit stay in the WAL until the next commit overwrites them, and a
    /// crash before that would restore them. So this makes a commit. Before that it truncates the WAL, since after a
    /// failed sync the WAL on the disk may have a gap, which would hide later frames.
    pub fn reopen(&mut self, patience: Duration) -> Result<(), OpenError> {
        let path = self.path().to_owned();
        let replica = self.replica.as_ref().map(Replica::handle);
        let allows_reserve = self.allows_reserve;
        *self = Store::open_replica(self.place.clone(), OpenMode::Existing, replica)?;
        self.allows_reserve = allows_reserve;
        self.connection.busy_timeout(patience).map_err(|error| StoreError::from_sqlite(&path, error))?;
        let is_empty = self.empty_wal().map_err(|error| StoreError::from_sqlite(&path, error))?;
        if !is_empty {
            return Err(StoreError::Busy { holder_pid: None, waited: patience }.into());
        }
        let mut txn = self.write(patience)?;
        txn.allow_reserve();
        txn.set_meta(meta_keys::REOPENED_BY, &std::process::id().to_string())?;
        txn.commit().map(|_| ()).map_err(|error| StoreError::from(error).into())
    }

    /// Migrates an older file's schema. A file that can only be read keeps it.
    fn migrate(&mut self) -> Result<(), OpenError> {
        let found = self.query(schema::version)?;
        if found == schema::VERSION || self.read_only.is_some() && found >= schema::OLDEST_READABLE {
            return Ok(());
        }
        let mut txn = self.write(SQLITE_BUSY_TIMEOUT)?;
        txn.allow_reserve();
        txn.migrate()?;
        txn.commit().map(|_| ()).map_err(|error: CommitError| StoreError::from(error).into())
    }
}

/// Number of prepared statements that a connection caches.
const STATEMENTS: usize = 64;

fn check_sqlite() -> Result<(), OpenError> {
    if rusqlite::version_number() < OLDEST_SQLITE {
        return Err(OpenError::OldSqlite { found: rusqlite::version().into() });
    }
    Ok(())
}

/// Connects to an existing file. On a full disk SQLite gets its shared memory out of the reserve, so that the cluster can be read.
fn connect_with_reserve(place: &StorePath) -> Result<Connection, OpenError> {
    loop {
        match connect(place) {
            Err(OpenError::Store(StoreError::Full { .. })) if release_small_part(place) => {}
            connected => return connected,
        }
    }
}

/// Connects to an existing file, and checks that it is a kloop database before any write.
fn connect(place: &StorePath) -> Result<Connection, OpenError> {
    let path = place.file();
    // Without the URI flag, so that a path is never parsed as a URI.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let had_wal = state_path::stat_path(&place.neighbour("-wal"))?.is_some();
    let to_store_error = |error| StoreError::from_sqlite(path, error);
    let connection = Connection::open_with_flags(path, flags).map_err(to_store_error)?;
    // Closing the last connection copies the WAL into the database, which must not happen with a foreign WAL.
    let keep_wal =
        |keep| connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keep).map_err(to_store_error);
    if had_wal {
        keep_wal(true)?;
    }
    connection.busy_timeout(SQLITE_BUSY_TIMEOUT).map_err(to_store_error)?;
    check_ours(place, &connection)?;
    if had_wal {
        keep_wal(false)?;
    }
    connection.execute_batch(SETTINGS).map_err(to_store_error)?;
    if leaves_out_syncs() {
        connection.execute_batch("PRAGMA synchronous = OFF").map_err(to_store_error)?;
    }
    keep_query_plans(&connection).map_err(to_store_error)?;
    Ok(connection)
}

fn modified(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|found| found.modified()).ok()
}

/// Letters of a path that a URI may contain as they are.
const PLAIN_IN_URI: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_');

/// Connects to a file that no process writes, without locks and without further files.
fn connect_immutable(place: &StorePath) -> Result<Connection, OpenError> {
    let to_store_error = |error| StoreError::from_sqlite(place.file(), error);
    let path = percent_encode(place.file().as_os_str().as_bytes(), PLAIN_IN_URI);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(format!("file:{path}?immutable=1"), flags).map_err(to_store_error)?;
    check_ours(place, &connection)?;
    connection.execute_batch(SETTINGS).map_err(to_store_error)?;
    keep_query_plans(&connection).map_err(to_store_error)?;
    Ok(connection)
}

/// Makes query plans independent of bound values; otherwise SQLite prepares a cached statement again for each new
/// value.
fn keep_query_plans(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(())
}

fn check_ours(place: &StorePath, connection: &Connection) -> Result<(), OpenError> {
    let path = place.file();
    let to_store_error = |error| StoreError::from_sqlite(path, error);
    let id: rusqlite::Result<i32> = connection.query_row("PRAGMA application_id", [], |row| row.get(0));
    let id = match id.map_err(to_store_error) {
        Err(StoreError::Damaged { path, what }) if what.contains("not a database") => {
            return Err(OpenError::Foreign { path, what: "it does not begin as an SQLite file does".into() });
        }
        id => id?,
    };
    if id != schema::APPLICATION_ID {
        return Err(OpenError::Foreign { path: path.into(), what: "it is another program's SQLite database".into() });
    }
    let found = schema::version(connection).map_err(to_store_error)?;
    if found > schema::VERSION {
        return Err(OpenError::Newer { path: path.into(), found, known: schema::VERSION });
    }
    // A copy from VACUUM INTO is not in WAL mode.
    let mode: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0)).map_err(to_store_error)?;
    if mode != "wal" {
        connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).map_err(to_store_error)?;
    }
    Ok(())
}

/// Creates the file under a temporary name and renames it when it is complete, so that no process opens a partial file.
fn create(place: &StorePath) -> Result<(), OpenError> {
    let turnstile = Arc::new(Turnstile::open(place)?);
    let _turn = turnstile.acquire(SQLITE_BUSY_TIMEOUT)?;
    if place.check_file()? {
        return Ok(());
    }
    let new = place.neighbour(".new");
    clear(&new)?;
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::open(&new, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC, mode)
        .and_then(|file| rustix::fs::fchmod(&file, mode))
        .map_err(|error| StoreError::io(&new, error))?;
    fill(&new).map_err(|error| {
        let error = StoreError::from_sqlite(&new, error);
        let _ = clear(&new);
        error
    })?;
    std::fs::rename(&new, place.file()).map_err(|error| StoreError::io(place.file(), error))?;
    Ok(place.sync_dir()?)
}

/// Removes the files of an earlier failed attempt.
fn clear(new: &Path) -> Result<(), StoreError> {
    for suffix in ["", "-journal", "-wal", "-shm"] {
        let mut path = OsString::from(new);
        path.push(suffix);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(StoreError::io(Path::new(&path), error)),
            _ => {}
        }
    }
    Ok(())
}

fn fill(path: &Path) -> rusqlite::Result<()> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.execute_batch(schema::BEFORE_TABLES)?;
    connection.execute_batch("PRAGMA synchronous = FULL; BEGIN IMMEDIATE")?;
    connection.pragma_update(None, "application_id", schema::APPLICATION_ID)?;
    schema::migrate(&connection, schema::STEPS)?;
    connection.execute_batch("COMMIT")?;
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    connection.close().map_err(|(_, error)| error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Key, Resource, Time};
    use crate::store::StoreRead;

    #[test]
    fn file_on_a_full_disk_is_read_and_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a b%20?.db");
        let key = Key::new(Resource("configmaps"), "default", "a");
        let mut store = Store::open(&file, OpenMode::Create).unwrap();
        let mut txn = store.write(SQLITE_BUSY_TIMEOUT).unwrap();
        txn.put(&key, "u", |_| "{}", "test", Time::UNIX_EPOCH).unwrap();
        txn.commit().unwrap();
        let place = StorePath::from_path(&file).unwrap();
        let full = StoreError::Full { path: file.clone() };
        let is_refused = |error: StoreError| Store::open_for_reading(place.clone(), error).is_err();
        assert!(is_refused(full.clone()), "its WAL is in use");
        drop(store);
        for suffix in [".queue", ".write"] {
            std::fs::remove_file(place.neighbour(suffix)).unwrap();
        }
        assert!(is_refused(StoreError::damaged(&file, "x")), "another error");
        let mut store = Store::open_for_reading(place.clone(), full.clone()).unwrap();
        assert!(store.read().unwrap().get(&key).unwrap().is_some());
        assert_eq!(store.write(SQLITE_BUSY_TIMEOUT).err(), Some(full));
        assert_eq!(store.check().unwrap(), [""; 0]);
        let copy = folder.path().join("copy.db");
        store.backup(&copy).unwrap();
        assert!(Store::open(&copy, OpenMode::Backup).unwrap().read().unwrap().get(&key).unwrap().is_some());
        let beside = ["-wal", "-shm", ".queue", ".write"].map(|suffix| place.neighbour(suffix).exists());
        assert_eq!(beside, [false; 4]);
        let written = std::fs::File::options().append(true).open(&file).unwrap();
        written.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert!(store.read().is_err(), "another process has written it");
    }

    #[test]
    fn first_schema_is_read_as_it_is_and_migrated_by_a_writer() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state.db");
        let key = Key::new(Resource("configmaps"), "default", "a");
        let mut store = Store::open(&file, OpenMode::Create).unwrap();
        let mut txn = store.write(SQLITE_BUSY_TIMEOUT).unwrap();
        txn.put(&key, "u", |_| "{}", "test", Time::UNIX_EPOCH).unwrap();
        txn.commit().unwrap();
        let first = "CREATE TABLE note (scope TEXT); PRAGMA user_version = 1";
        store.connection.execute_batch(first).unwrap();
        drop(store);
        let place = StorePath::from_path(&file).unwrap();
        let mut store = Store::open_for_reading(place, StoreError::Full { path: file.clone() }).unwrap();
        store.migrate().unwrap();
        assert_eq!(store.query(schema::version), Ok(1));
        assert!(store.read().unwrap().get(&key).unwrap().is_some());
        drop(store);
        let store = Store::open(&file, OpenMode::Existing).unwrap();
        assert_eq!(store.query(schema::version), Ok(schema::VERSION));
        assert!(store.connection.prepare("SELECT * FROM note").is_err(), "the table is gone");
        assert!(store.read().unwrap().get(&key).unwrap().is_some());
    }
}
