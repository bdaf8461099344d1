//! Queries, in a [`Snapshot`] or inside a [`Txn`](super::Txn).

use super::record::{Counter, LOG_COLUMNS, LogRow, moment, object_sum, text, unsigned};
use super::{ChangeKind, ContainerAttempt, LogEntry, Store, StoreError, StoreResult, StoredObject};
use crate::object::{Key, Resource, Str};
use rusqlite::{OptionalExtension, Params, Row, params};
use std::ops::ControlFlow;

/// The store at one revision, unaffected by concurrent writes.
///
/// Drop it soon: the WAL cannot be truncated while a snapshot exists.
pub struct Snapshot<'a> {
    store: &'a Store,
}

impl Store {
    /// Takes a consistent snapshot of the latest revision. Concurrent snapshots of one store share a read transaction.
    pub fn read(&self) -> StoreResult<Snapshot<'_>> {
        if self.readers.get() == 0 {
            self.check_unwritten()?;
            // The transaction is deferred, so its first query determines its revision.
            self.query(|connection| {
                connection.prepare_cached("BEGIN DEFERRED")?.execute([])?;
                connection.prepare_cached("SELECT revision FROM counter")?.query_row([], |_| Ok(())).inspect_err(|_| {
                    let _ = connection.execute_batch("ROLLBACK");
                })
            })?;
        }
        self.readers.set(self.readers.get() + 1);
        Ok(Snapshot { store: self })
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        let left = self.store.readers.get() - 1;
        self.store.readers.set(left);
        if left == 0 {
            let _ = self.store.connection.prepare_cached("COMMIT").and_then(|mut end| end.execute([]));
        }
    }
}

impl Store {
    /// Returns one object at the latest revision, or at that of the snapshots that exist. The one query is a transaction of its own, which
    /// takes half the time of a snapshot.
    pub fn get_latest(&self, key: &Key) -> StoreResult<Option<StoredObject>> {
        get_object(self, key)
    }

    /// Returns the revision of an object and the checksum of its row, as [`Store::get_latest`] would find it now. The checksum is not
    /// verified; a row of an older version has none, and is not found.
    pub fn get_latest_mark(&self, key: &Key) -> StoreResult<Option<(u64, i64)>> {
        let question =
            "SELECT revision, sum FROM object WHERE resource = ?1 AND namespace = ?2 AND name = ?3 AND sum IS NOT NULL";
        self.query(|connection| {
            let mut question = connection.prepare_cached(question)?;
            let read = |row: &Row<'_>| Ok((unsigned(row, 0)?, row.get(1)?));
            question.query_row(params![key.resource.0, &*key.namespace, &*key.name], read).optional()
        })
    }
}

/// Most bytes of SQLite's cache during a scan. A scan in the order of writing reads each page once, and a large cache costs it only the
/// time to allocate the memory. A scan in another order returns to pages, and reads them too often with a smaller cache.
const SCAN_CACHE: usize = 8 << 20;

/// A smaller cache of a connection, until it is dropped.
struct CacheLimit<'s> {
    store: &'s Store,
    /// The usual size in KiB, with a minus sign as SQLite has it; `None` when it is small enough.
    usual: Option<i64>,
}

impl<'s> CacheLimit<'s> {
    fn begin(store: &'s Store, bytes: usize) -> StoreResult<CacheLimit<'s>> {
        let usual: i64 = query_row(store, "PRAGMA cache_size", [], |row| row.get(0))?;
        let usual = Some(usual).filter(|usual| *usual < -((bytes >> 10) as i64));
        if usual.is_some() {
            store.limit_cache(bytes)?;
        }
        Ok(CacheLimit { store, usual })
    }
}

impl Drop for CacheLimit<'_> {
    fn drop(&mut self) {
        if let Some(usual) = self.usual {
            // With a connection that fails, the size of its cache does not matter.
            let _ = self.store.connection.pragma_update(None, "cache_size", usual);
        }
    }
}

/// Receives one object after another. Returns whether to continue.
pub type StoredVisitor<'a> = dyn FnMut(StoredObject) -> ControlFlow<()> + 'a;

/// Maximum bytes of bodies that are read from the log at once, 16 MiB; one entry is always read.
const AT_ONCE: u64 = 16 << 20;

/// Origin of a snapshot. Private, so that no other module can implement [`StoreRead`].
pub(super) mod source {
    /// Access to a store with an open transaction.
    pub trait SnapshotSource {
        fn store(&self) -> &super::Store;
        fn counter(&self) -> super::StoreResult<super::Counter>;
    }
}

impl source::SnapshotSource for Snapshot<'_> {
    fn store(&self) -> &Store {
        self.store
    }

    fn counter(&self) -> StoreResult<Counter> {
        counter(self.store)
    }
}

impl StoreRead for Snapshot<'_> {}

/// Queries over one consistent state.
pub trait StoreRead: source::SnapshotSource {
    /// The latest revision.
    fn revision(&self) -> StoreResult<u64> {
        self.counter().map(|counter| counter.revision)
    }

    /// The revision up to which the log was compacted: the log can be resumed from here or later.
    fn floor(&self) -> StoreResult<u64> {
        self.counter().map(|counter| counter.floor)
    }

    /// One object.
    fn get(&self, key: &Key) -> StoreResult<Option<StoredObject>> {
        get_object(self.store(), key)
    }

    /// The objects of a resource, in one namespace or all; ordered by namespace and name.
    fn list(&self, resource: Resource, namespace: Option<&str>) -> StoreResult<Vec<StoredObject>> {
        self.page_within(resource, namespace, None, usize::MAX, usize::MAX)
    }

    /// Passes the objects of a resource, in one namespace or all, to `visit` until it breaks; ordered by namespace and name. One text is in
    /// memory at a time.
    fn scan(&self, resource: Resource, namespace: Option<&str>, visit: &mut StoredVisitor<'_>) -> StoreResult<()> {
        let _limit = CacheLimit::begin(self.store(), SCAN_CACHE)?;
        match namespace {
            Some(namespace) => {
                let rest = "WHERE o.resource = ?1 AND o.namespace = ?2 ORDER BY o.name";
                scan_objects(self.store(), rest, params![resource.0, namespace], visit)
            }
            None => {
                let rest = "WHERE o.resource = ?1 ORDER BY o.namespace, o.name";
                scan_objects(self.store(), rest, [resource.0], visit)
            }
        }
    }

    /// Every object, ordered by resource, namespace and name.
    fn list_all(&self) -> StoreResult<Vec<StoredObject>> {
        let found = objects(self.store(), "ORDER BY o.resource, o.namespace, o.name", [], usize::MAX)?;
        let live = self.counter()?.objects;
        if found.len() as u64 != live && self.store().past.is_none() {
            let what = format!("{} objects were found where {live} live", found.len());
            return Err(StoreError::damaged(self.store().path(), what));
        }
        Ok(found)
    }

    /// The next objects after a namespace and name, at most `limit`; fewer when their bodies reach a number of bytes.
    fn page_within(
        &self,
        resource: Resource,
        namespace: Option<&str>,
        after: Option<(&str, &str)>,
        limit: usize,
        bytes: usize,
    ) -> StoreResult<Vec<StoredObject>> {
        let (after_namespace, after_name) = after.unwrap_or_default();
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        match namespace {
            Some(namespace) if after.is_some() && namespace < after_namespace => Ok(Vec::new()),
            Some(namespace) => {
                let after_name = if namespace == after_namespace { after_name } else { "" };
                let rest = "WHERE o.resource = ?1 AND o.namespace = ?2 AND o.name > ?3 ORDER BY o.name LIMIT ?4";
                objects(self.store(), rest, params![resource.0, namespace, after_name, limit], bytes)
            }
            None => {
                let rest = "WHERE o.resource = ?1 AND (o.namespace, o.name) > (?2, ?3) \
                            ORDER BY o.namespace, o.name LIMIT ?4";
                objects(self.store(), rest, params![resource.0, after_namespace, after_name, limit], bytes)
            }
        }
    }

    /// Namespaces and names of the objects of a resource, in one namespace or all; in their order. Does not read their bodies.
    fn names(&self, resource: Resource, namespace: Option<&str>) -> StoreResult<Vec<(String, String)>> {
        let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
        match namespace {
            Some(namespace) => {
                let question =
                    "SELECT namespace, name FROM object WHERE resource = ?1 AND namespace = ?2 ORDER BY name";
                query_rows(self.store(), question, params![resource.0, namespace], read)
            }
            None => {
                let question = "SELECT namespace, name FROM object WHERE resource = ?1 ORDER BY namespace, name";
                query_rows(self.store(), question, [resource.0], read)
            }
        }
    }

    /// Number of objects of a resource, in one namespace or all.
    fn count(&self, resource: Resource, namespace: Option<&str>) -> StoreResult<usize> {
        let count = match namespace {
            Some(namespace) => {
                let question = "SELECT count(*) FROM object WHERE resource = ?1 AND namespace = ?2";
                query_row(self.store(), question, params![resource.0, namespace], |row| unsigned(row, 0))
            }
            None => {
                let question = "SELECT count(*) FROM object WHERE resource = ?1";
                query_row(self.store(), question, [resource.0], |row| unsigned(row, 0))
            }
        };
        count.map(|count| count as usize)
    }

    /// Number of objects of a resource after a namespace and name, in one namespace or all.
    fn count_after(&self, resource: Resource, namespace: Option<&str>, after: (&str, &str)) -> StoreResult<usize> {
        let rest = match namespace {
            Some(_) => "namespace = ?2 AND name > ?3",
            None => "(namespace, name) > (?2, ?3)",
        };
        let question = format!("SELECT count(*) FROM object WHERE resource = ?1 AND {rest}");
        let place = params![resource.0, namespace.unwrap_or(after.0), after.1];
        query_row(self.store(), &question, place, |row| unsigned(row, 0)).map(|count| count as usize)
    }

    /// Returns the log entries after a revision, in order, at most `limit`. Entries of one transaction are adjacent;
    /// only the limit can separate them.
    ///
    /// Refuses a revision below the floor ([`StoreError::Expired`]) and one that does not exist yet
    /// ([`StoreError::Future`]).
    fn log_after(&self, revision: u64, limit: usize) -> StoreResult<Vec<LogEntry>> {
        let Counter { floor, revision: head, .. } = self.counter()?;
        if revision < floor {
            return Err(StoreError::Expired { floor });
        }
        if revision > head {
            return Err(StoreError::Future { revision, head });
        }
        let limit = u64::try_from(limit).unwrap_or(u64::MAX);
        let last = self.end_of_batch(revision, head.min(revision.saturating_add(limit)))?;
        let rest = "WHERE l.revision > ?1 AND l.revision <= ?2 ORDER BY l.revision";
        let entries = log(self.store(), rest, params![revision as i64, last as i64])?;
        // One writer at a time assigns revisions, so there are no gaps above the floor.
        if !entries.iter().map(|entry| entry.revision).eq(revision + 1..=last) {
            return Err(StoreError::damaged(self.store().path(), format!("the log has a gap after {revision}")));
        }
        Ok(entries)
    }

    /// Whether an object of one of these resources was written or removed after a revision; true for every revision below the floor.
    fn has_changed_after(&self, revision: u64, resources: &[&str; 4]) -> StoreResult<bool> {
        if revision < self.counter()?.floor {
            return Ok(true);
        }
        // By revision: few writes are newer, while the index by resource has all that the log keeps.
        let question = "SELECT EXISTS (SELECT 1 FROM log WHERE revision > ?1 AND +resource IN (?2, ?3, ?4, ?5))";
        let [a, b, c, d] = resources;
        query_row(self.store(), question, params![revision as i64, a, b, c, d], |row| row.get(0))
    }

    /// Returns the last revision of the batch after a revision: `last`, or an earlier one if the bodies are large.
    fn end_of_batch(&self, revision: u64, last: u64) -> StoreResult<u64> {
        self.store().query(|connection| {
            let mut question = connection.prepare_cached(
                "SELECT revision, coalesce(octet_length(body), 0) FROM log WHERE revision > ?1 AND revision <= ?2 ORDER BY revision",
            )?;
            let mut rows = question.query([revision as i64, last as i64])?;
            let (mut bytes, mut fits) = (0, revision);
            while let Some(row) = rows.next()? {
                bytes += unsigned(row, 1)?;
                if bytes > AT_ONCE && fits > revision {
                    return Ok(fits);
                }
                fits = unsigned(row, 0)?;
            }
            Ok(last)
        })
    }

    /// Returns the retained log entries of a key, oldest first, across all objects that had the name.
    fn history(&self, key: &Key) -> StoreResult<Vec<LogEntry>> {
        let rest = "WHERE l.resource = ?1 AND l.namespace = ?2 AND l.name = ?3 ORDER BY l.previous";
        log(self.store(), rest, params![key.resource.0, &*key.namespace, &*key.name])
    }

    /// A setting of the control plane.
    fn meta(&self, name: &str) -> StoreResult<Option<String>> {
        self.store().query(|connection| {
            let mut question = connection.prepare_cached("SELECT value FROM meta WHERE name = ?1")?;
            question.query_row([name], |row| row.get(0)).optional()
        })
    }

    /// The last attempt of every container.
    fn attempts(&self) -> StoreResult<Vec<ContainerAttempt>> {
        let question = "SELECT pod_uid, container, attempt, epoch FROM attempt ORDER BY pod_uid, container";
        query_rows(self.store(), question, [], |row| {
            Ok(ContainerAttempt {
                pod_uid: row.get(0)?,
                container: row.get(1)?,
                attempt: row.get(2)?,
                epoch: unsigned(row, 3)?,
            })
        })
    }
}

/// Reads one row that always exists.
pub(super) fn query_row<T>(
    store: &Store,
    question: &str,
    params: impl Params,
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> StoreResult<T> {
    store.query(|connection| connection.prepare_cached(question)?.query_row(params, read))
}

/// Reads the counter from the file.
pub(super) fn counter(store: &Store) -> StoreResult<Counter> {
    let question = "SELECT revision, floor, objects, sum FROM counter";
    query_row(store, question, [], Counter::read)?.map_err(|what| StoreError::damaged(store.path(), what))
}

/// Reads all rows of a query.
fn query_rows<T>(
    store: &Store,
    question: &str,
    params: impl Params,
    read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
) -> StoreResult<Vec<T>> {
    store.query(|connection| connection.prepare_cached(question)?.query_map(params, read)?.collect())
}

fn get_object(store: &Store, key: &Key) -> StoreResult<Option<StoredObject>> {
    let rest = "WHERE o.resource = ?1 AND o.namespace = ?2 AND o.name = ?3";
    Ok(objects(store, rest, params![key.resource.0, &*key.namespace, &*key.name], usize::MAX)?.pop())
}

/// Reads live objects until their bodies reach a number of bytes; `rest` follows FROM.
fn objects(store: &Store, rest: &str, params: impl Params, bytes: usize) -> StoreResult<Vec<StoredObject>> {
    let (mut found, mut length) = (Vec::new(), 0);
    scan_objects(store, rest, params, &mut |stored| {
        length += stored.body.len();
        found.push(stored);
        if length < bytes { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(found)
}

/// Passes live objects to `visit` until it breaks; `rest` follows FROM. Reports damage for an object whose log row is missing or belongs to
/// another object.
fn scan_objects(store: &Store, rest: &str, params: impl Params, visit: &mut StoredVisitor<'_>) -> StoreResult<()> {
    // The left join includes objects without a body, and prevents SQLite from reversing the join.
    let question = format!(
        "SELECT {LOG_COLUMNS}, o.namespace, o.name, o.revision, o.created, o.sum
         FROM object o LEFT JOIN log l ON l.revision = o.revision {rest}"
    );
    let damage = store.query(|connection| {
        let mut statement = connection.prepare_cached(&question)?;
        let mut rows = statement.query(params)?;
        while let Some(row) = rows.next()? {
            match read_object(row)? {
                Ok(stored) => {
                    if visit(stored).is_break() {
                        break;
                    }
                }
                Err(damage) => return Ok(Some(damage)),
            }
        }
        Ok(None)
    })?;
    damage.map_or(Ok(()), |what| Err(StoreError::damaged(store.path(), what)))
}

/// Reads a row of the query in [`scan_objects`]; the inner `Err` reports damage.
fn read_object(row: &Row<'_>) -> rusqlite::Result<std::result::Result<StoredObject, String>> {
    if row.get_ref(0)? == rusqlite::types::ValueRef::Null {
        return Ok(Err(format!("{} has no body at revision {}", text(row, 12)?, unsigned(row, 13)?)));
    }
    let same = text(row, 2)? == text(row, 11)? && text(row, 3)? == text(row, 12)?;
    let (revision, created, sum) = (unsigned(row, 13)?, unsigned(row, 14)?, row.get::<_, Option<i64>>(15)?);
    Ok(LogRow::read(row)?.and_then(|found| match found.change {
        ChangeKind::Put(stored)
            if same && sum.is_none_or(|sum| object_sum(&stored.key, &stored.uid, revision, created) == sum) =>
        {
            Ok(stored)
        }
        other => Err(format!("revision {} is not the body of its object", other.stored().revision)),
    }))
}

/// Reads entries of the log; `rest` follows FROM.
pub(super) fn log(store: &Store, rest: &str, params: impl Params) -> StoreResult<Vec<LogEntry>> {
    let question = format!("SELECT {LOG_COLUMNS} FROM log l {rest}");
    let rows = check_damage(store, query_rows(store, &question, params, LogRow::read)?)?;
    rows.into_iter().map(|row| entry(store, row)).collect()
}

fn entry(store: &Store, row: LogRow) -> StoreResult<LogEntry> {
    let at = moment(row.at).map_err(|what| StoreError::damaged(store.path(), what))?;
    let previous = body_before(store, &row)?;
    Ok(LogEntry { revision: row.change.stored().revision, change: row.change, previous, actor: row.actor, at })
}

/// Returns the body before an entry. `None` after a deletion, and if it was compacted, which happens only below the
/// floor.
fn body_before(store: &Store, row: &LogRow) -> StoreResult<Option<Str>> {
    if row.previous == 0 {
        return Ok(None);
    }
    let question = format!("SELECT {LOG_COLUMNS} FROM log l WHERE l.revision = ?1");
    let before = check_damage(store, query_rows(store, &question, [row.previous as i64], LogRow::read)?)?.pop();
    match before.map(|before| before.change) {
        Some(ChangeKind::Put(before)) if before.key == row.change.stored().key => Ok(Some(before.body)),
        Some(ChangeKind::Put(before)) => {
            let what = format!("revision {} follows another object's", before.revision);
            Err(StoreError::damaged(store.path(), what))
        }
        Some(ChangeKind::Removed(_)) | None => Ok(None),
    }
}

/// Returns all rows, or the first damage as an error.
fn check_damage<T>(store: &Store, rows: Vec<std::result::Result<T, String>>) -> StoreResult<Vec<T>> {
    rows.into_iter().collect::<std::result::Result<_, String>>().map_err(|what| StoreError::damaged(store.path(), what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scan_lowers_the_cache_and_never_raises_it() {
        let store = Store::in_memory().unwrap();
        let size = || query_row(&store, "PRAGMA cache_size", [], |row| row.get::<_, i64>(0)).unwrap();
        for (usual, during) in [(32 << 20, -8192), (2 << 20, -2048)] {
            store.limit_cache(usual).unwrap();
            let limit = CacheLimit::begin(&store, SCAN_CACHE).unwrap();
            assert_eq!(size(), during);
            drop(limit);
            assert_eq!(size(), -(usual as i64 >> 10));
        }
    }
}
