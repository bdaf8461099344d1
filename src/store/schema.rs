//! The tables, as numbered migrations: a file at version N has run the first N steps.
//!
//! A released step is never edited; a change is a new step at the end.

use super::StoreError;
use rusqlite::Connection;
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Identifies a kloop database (`PRAGMA application_id`): "kloo" in ASCII.
pub(super) const APPLICATION_ID: i32 = 0x6b6c_6f6f;

/// The offset of the application id in an SQLite file (sqlite.org/fileformat.html).
const ID_OFFSET: u64 = 68;

/// Whether a file's header has the id of a kloop database. Unlike SQLite, this creates no files.
pub(super) fn is_database_of_kloop(path: &Path) -> Result<bool, StoreError> {
    let mut id = [0; 4];
    // Stays open: closing it would end the locks that SQLite has on the file in this process.
    let file = ManuallyDrop::new(File::open(path).map_err(|error| StoreError::io(path, error))?);
    // A shorter file is not a database.
    Ok(file.read_exact_at(&mut id, ID_OFFSET).is_ok() && i32::from_be_bytes(id) == APPLICATION_ID)
}

/// The steps that create the schema.
pub(super) const STEPS: &[&str] = &[
    // 1: objects and their log, the counter, the side tables.
    "
    -- One row: the last revision given out, the revision up to which the log has been compacted, and how many objects
    -- live. Here and below, `sum` guards a row's content against a disk that changes bits; 0 is the sum of zeros.
    CREATE TABLE counter (
        only INTEGER PRIMARY KEY CHECK (only = 1),
        revision INTEGER NOT NULL,
        floor INTEGER NOT NULL,
        objects INTEGER NOT NULL,
        sum INTEGER NOT NULL
    ) STRICT;
    INSERT INTO counter VALUES (1, 0, 0, 0, 0);

    -- Everything that happened, one row a revision. `previous` is the revision of the same key's entry before, 0 for
    -- none: that no two entries share one is the proof that no update was lost.
    CREATE TABLE log (
        revision INTEGER PRIMARY KEY,
        resource TEXT NOT NULL,
        namespace TEXT NOT NULL,
        name TEXT NOT NULL,
        uid TEXT NOT NULL,
        change TEXT NOT NULL CHECK (change IN ('put', 'removed')),
        previous INTEGER NOT NULL,
        actor TEXT NOT NULL,
        at INTEGER NOT NULL,
        sum INTEGER NOT NULL,
        body TEXT NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX log_key ON log (resource, namespace, name, previous);

    -- One row for each live object; its body stands in the log, at `revision`. `created` is its first revision.
    CREATE TABLE object (
        id INTEGER PRIMARY KEY,
        resource TEXT NOT NULL,
        namespace TEXT NOT NULL,
        name TEXT NOT NULL,
        uid TEXT NOT NULL,
        revision INTEGER NOT NULL,
        created INTEGER NOT NULL,
        sum INTEGER NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX object_key ON object (resource, namespace, name);

    -- For people with `sqlite3`: the live objects with their bodies.
    CREATE VIEW live AS
        SELECT o.resource, o.namespace, o.name, o.uid, o.revision, l.actor, l.at, l.body
        FROM object o JOIN log l ON l.revision = o.revision;

    -- Outside the log, as none of it is API: settings of the control plane, ...
    CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
    -- ... which attempt at a container was the last, under which leader's epoch, ...
    CREATE TABLE attempt (
        pod_uid TEXT NOT NULL,
        container TEXT NOT NULL,
        attempt INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        PRIMARY KEY (pod_uid, container)
    ) STRICT, WITHOUT ROWID;
    -- ... and what was last seen or went wrong, so that it can be told when nothing runs.
    CREATE TABLE note (
        scope TEXT NOT NULL,
        name TEXT NOT NULL,
        text TEXT NOT NULL,
        at INTEGER NOT NULL,
        PRIMARY KEY (scope, name)
    ) STRICT, WITHOUT ROWID;
    ",
    // 2: no command has ever written notes.
    "DROP TABLE note;",
];

/// The schema version of this program.
pub(super) const VERSION: u32 = STEPS.len() as u32;

/// The oldest schema version that this program reads without migrating the file.
pub(super) const OLDEST_READABLE: u32 = 1;

/// Settings before the first table, which cannot change later without rewriting the file. A body of a few kB fits a
/// page of 16 KiB, which was smallest and fastest in measurements. Incremental vacuum allows compaction to return space
/// without rewriting the file.
pub(super) const BEFORE_TABLES: &str = "PRAGMA page_size = 16384; PRAGMA auto_vacuum = INCREMENTAL;";

/// The schema version of a file.
pub(super) fn version(connection: &Connection) -> rusqlite::Result<u32> {
    connection.prepare_cached("PRAGMA user_version")?.query_row([], |row| row.get(0))
}

/// Runs the missing steps. The caller must have begun a write transaction.
pub(super) fn migrate(connection: &Connection, steps: &[&str]) -> rusqlite::Result<()> {
    let done = version(connection)? as usize;
    for (number, step) in steps.iter().enumerate().skip(done) {
        connection.execute_batch(step)?;
        connection.pragma_update(None, "user_version", number as u32 + 1)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_missing_steps_run() {
        let connection = Connection::open_in_memory().unwrap();
        let steps = ["CREATE TABLE a (x)", "ALTER TABLE a ADD COLUMN y", "CREATE TABLE b (z)"];
        migrate(&connection, &steps[..1]).unwrap();
        connection.execute("INSERT INTO a VALUES (7)", []).unwrap();
        migrate(&connection, &steps).unwrap();
        migrate(&connection, &steps).unwrap();
        assert_eq!(version(&connection).unwrap(), 3);
        let row: (i64, Option<i64>) =
            connection.query_row("SELECT x, y FROM a", [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        assert_eq!(row, (7, None));
    }
}
