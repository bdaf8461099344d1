//! Opening: every refusal stands here or in [`state_path`], and nothing is written before all have passed.

use super::durable::DurableRevision;
use super::state_path::{self, StorePath};
use super::turnstile::Turnstile;
use super::{CommitError, OpenError, Store, StoreError, schema};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use rustix::fs::{Mode, OFlags};
use std::cell::Cell;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Whether to create a missing file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Makes the folder and the file when they are not there.
    Create,
    /// Fails when there is none.
    Existing,
}

/// The first SQLite without the WAL-reset race, by which two writers can corrupt a database (sqlite.org/wal.html).
const OLDEST_SQLITE: i32 = 3_051_003;

/// Time that a reader waits for rare, short work of SQLite: recovery of the WAL, the last connection's checkpoint.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// The WAL is emptied by force when it grew past this because some reader was always there.
pub(super) const LONG_WAL: u64 = 32 << 20;

/// Settings of a connection. NORMAL: commits are synced by [`Store::sync`] (by it alone a power loss took up to 919 acknowledged
/// rows). The WAL is copied back every 16 MiB, and cut to that after it was longer. Pages of 32 MiB are
/// kept in memory, where a cluster has as many: keys come in no order, and those of the indexes would be read again and again.
const SETTINGS: &str = "
    PRAGMA synchronous = NORMAL;
    PRAGMA mmap_size = 0;
    PRAGMA wal_autocheckpoint = 1024;
    PRAGMA cache_size = -32768;
    PRAGMA journal_size_limit = 16777216;
    PRAGMA cell_size_check = ON;
    PRAGMA trusted_schema = OFF;
";

impl Store {
    /// Opens the file at `path`, or refuses it and leaves it as it is.
    pub fn open(path: &Path, access: OpenMode) -> Result<Store, OpenError> {
        check_sqlite()?;
        let place = StorePath::from_path(path)?;
        if access == OpenMode::Create {
            place.make_dir()?;
        }
        place.check_dir()?;
        if !place.check_file()? {
            match access {
                OpenMode::Create => create(&place)?,
                OpenMode::Existing => return Err(OpenError::Absent { path: place.file().into() }),
            }
        }
        let connection = connect(&place)?;
        let turnstile = Some(Arc::new(Turnstile::open(&place)?));
        let mut store = Store::from_connection(connection, place, turnstile);
        store.migrate()?;
        Ok(store)
    }

    /// A store without a file, for tests and simulation: the same schema, no locks.
    pub fn in_memory() -> Result<Store, OpenError> {
        let place = StorePath::nowhere();
        let connection = Connection::open_in_memory()
            .and_then(|connection| {
                connection.execute_batch(schema::BEFORE_TABLES)?;
                schema::migrate(&connection, schema::STEPS)?;
                keep_plans(&connection)?;
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
            readers,
            long_wal,
            durable: DurableRevision::default(),
            untold: false,
            uncertain: false,
            trouble: None,
        }
    }

    /// Opens the file again after a commit with an unknown outcome, and settles that outcome: from now on the
    /// transaction is either there or will never be.
    ///
    /// Looking alone would not do: frames that SQLite gave up lie in the WAL until the next commit overwrites them, and
    /// a crash before that commit would bring them back. So this commits something first. Before that it empties the WAL: after a failed
    /// sync it may have a hole on the disk, behind which nothing would be found again.
    pub fn reopen(&mut self, patience: Duration) -> Result<(), OpenError> {
        let path = self.path().to_owned();
        *self = Store::open(&path, OpenMode::Existing)?;
        self.connection.busy_timeout(patience).map_err(|error| StoreError::from_sqlite(&path, error))?;
        let is_empty = self.empty_wal().map_err(|error| StoreError::from_sqlite(&path, error))?;
        if !is_empty {
            return Err(StoreError::Busy { holder_pid: None, waited: patience }.into());
        }
        let mut txn = self.write(patience)?;
        txn.set_meta("reopened-by", &std::process::id().to_string())?;
        txn.commit().map(|_| ()).map_err(|error| StoreError::from(error).into())
    }

    /// Brings an older file's schema up to ours.
    fn migrate(&mut self) -> Result<(), OpenError> {
        if self.query(schema::version)? == schema::VERSION {
            return Ok(());
        }
        let txn = self.write(PATIENCE)?;
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

/// Connects to a file that is there, and checks that it is ours before anything could be written to it.
fn connect(place: &StorePath) -> Result<Connection, OpenError> {
    let path = place.file();
    // Without the URI flag: a path is a path.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let had_wal = state_path::stat_path(&place.neighbour("-wal"))?.is_some();
    let say = |error| StoreError::from_sqlite(path, error);
    let connection = Connection::open_with_flags(path, flags).map_err(say)?;
    // Closing the last connection copies the WAL back; a foreign WAL must not be copied.
    let keep_wal = |keep| connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keep).map_err(say);
    if had_wal {
        keep_wal(true)?;
    }
    connection.busy_timeout(PATIENCE).map_err(say)?;
    check_ours(place, &connection)?;
    if had_wal {
        keep_wal(false)?;
    }
    connection.execute_batch(SETTINGS).map_err(say)?;
    keep_plans(&connection).map_err(say)?;
    Ok(connection)
}

/// Keeps prepared statements with their plans, whatever values are bound; otherwise SQLite prepares them again for each
/// new value.
fn keep_plans(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(())
}

fn check_ours(place: &StorePath, connection: &Connection) -> Result<(), OpenError> {
    let path = place.file();
    let say = |error| StoreError::from_sqlite(path, error);
    let id: rusqlite::Result<i32> = connection.query_row("PRAGMA application_id", [], |row| row.get(0));
    let id = match id.map_err(say) {
        Err(StoreError::Damaged { path, what }) if what.contains("not a database") => {
            return Err(OpenError::Foreign { path, what: "it does not begin as an SQLite file does".into() });
        }
        id => id?,
    };
    if id != schema::APPLICATION_ID {
        return Err(OpenError::Foreign { path: path.into(), what: "it is another program's SQLite database".into() });
    }
    let found = schema::version(connection).map_err(say)?;
    if found > schema::VERSION {
        return Err(OpenError::Newer { path: path.into(), found, known: schema::VERSION });
    }
    // A copy made with VACUUM INTO comes without WAL.
    let mode: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0)).map_err(say)?;
    if mode != "wal" {
        connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).map_err(say)?;
    }
    Ok(())
}

/// Creates the file under a temporary name and renames it when it is complete, so that no process ever opens a partial
/// file.
fn create(place: &StorePath) -> Result<(), OpenError> {
    let turnstile = Arc::new(Turnstile::open(place)?);
    let _turn = turnstile.acquire(PATIENCE)?;
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

/// Removes what an earlier try left.
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
