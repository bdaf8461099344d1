//! Snapshots of a replica in its log: new replicas begin with the newest one, and older batches are removed.
//!
//! Knows: the format of a chunk. A snapshot has the live objects and the settings, and not the history before it.
//! Never: holds the write lock while it writes a snapshot. Start reading at [`Store::trim_log`].

use super::log_batch::{BatchError, SharedRow, compress, decompress, read_row, write_row};
use super::meta_keys::{REPLICA_CLUSTER, REPLICA_POSITION};
use super::protobuf::{FieldWriter, read_fields};
use super::record::{Counter, LOG_COLUMNS, LogRow, unsigned};
use super::replica::{Replica, store_error};
use super::shared_log::{LogError, SnapshotManifest};
use super::{ChangeKind, Snapshot, Store, StoreError, StoreRead, StoreResult, StoredObject, Txn};
use rusqlite::Row;
use std::path::Path;
use std::time::{Duration, Instant};
use tracing::debug_span;

/// The version of a chunk's format.
const CHUNK_FORMAT: u64 = 1;

/// Length of a chunk before compression. etcd takes values of 1.5 MiB.
const CHUNK_BYTES: usize = 1 << 20;

/// Rows that are read at once.
const ROWS: i64 = 200;

/// Batches before a snapshot that stay in the log, for replicas that are a little behind.
const KEPT_BATCHES: u64 = 500;

/// A snapshot is written after this number of batches, or of bytes in this process's batches, or after this time.
const MAX_BATCHES: u64 = 5_000;
const MAX_BYTES: usize = 64 << 20;
const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(3600);

/// Time for one chunk.
const CHUNK_TIMEOUT: Duration = Duration::from_secs(10);

/// Number of attempts to read a snapshot that others replace meanwhile.
const READ_ATTEMPTS: u32 = 5;

/// Numbers of the fields of a chunk, and of a row beyond those of a batch.
const FORMAT: u32 = 1;
const ROW: u32 = 2;
const SETTING: u32 = 3;
const REVISION: u32 = 8;
const CREATED: u32 = 9;

/// A live object with its revisions.
struct SnapshotRow {
    row: SharedRow,
    revision: u64,
    created: u64,
}

impl Store {
    /// Writes a snapshot and removes older batches, when there are many, on a thread of its own. Does nothing for other files.
    pub fn trim_log(&mut self) -> StoreResult<()> {
        let Some(replica) = &mut self.replica else { return Ok(()) };
        let tail = replica.read_tail(u64::MAX - 1)?;
        let is_old = replica.trimmed_at.is_some_and(|at| at.elapsed() >= SNAPSHOT_INTERVAL);
        let batches = tail.head.saturating_sub(tail.oldest.saturating_sub(1));
        if batches < MAX_BATCHES && replica.appended < MAX_BYTES && !is_old {
            replica.trimmed_at.get_or_insert_with(Instant::now);
            return Ok(());
        }
        (replica.trimmed_at, replica.appended) = (Some(Instant::now()), 0);
        let path = self.path().to_owned();
        let work = move || {
            // The next one is written later, from the beginning.
            if let Err(error) = Store::open(&path, super::OpenMode::Existing).map(|mut store| store.share_snapshot()) {
                tracing::warn!(%error, "no snapshot was written");
            }
        };
        // Without a thread the next heartbeat tries again.
        let _ = std::thread::Builder::new().name("snapshot".into()).spawn(work);
        Ok(())
    }

    /// Writes a snapshot of the replica to its log, makes it the newest one, and removes older batches.
    pub fn share_snapshot(&mut self) -> StoreResult<()> {
        self.follow()?;
        let Some(mut replica) = self.replica.take() else { return Ok(()) };
        let shared = self.write_snapshot(&mut replica);
        self.replica = Some(replica);
        shared
    }

    fn write_snapshot(&self, replica: &mut Replica) -> StoreResult<()> {
        let _span = debug_span!("write_shared_snapshot").entered();
        let address = replica.address.clone();
        let failed = |error| store_error(&address, error);
        let seen = replica.log.read_manifest(CHUNK_TIMEOUT).map_err(failed)?;
        let snapshot = self.read()?;
        let position = snapshot.meta(REPLICA_POSITION)?.and_then(|text| text.parse().ok()).unwrap_or(0);
        if seen.is_some_and(|seen| seen.position >= position) {
            return Ok(());
        }
        let manifest = write_chunks(&snapshot, replica, position)?;
        let keep = position.saturating_sub(KEPT_BATCHES) + 1;
        // The chunks may be those of another machine's snapshot of the same batch, which are equal: they stay until the next snapshot.
        replica.log.publish(manifest, seen, keep, CHUNK_TIMEOUT).map(drop).map_err(failed)
    }

    /// Makes the state of this store that of a new cluster on etcd. Refuses an address that has one.
    pub fn copy_to_etcd(&self, address: &str) -> Result<u64, super::OpenError> {
        let mut replica = Replica::connect(address)?;
        let failed = |error| store_error(address, error);
        let tail = replica.read_tail(u64::MAX - 1)?;
        if tail.cluster.is_some() {
            let what = "there is a cluster already: name another prefix, or remove its keys".to_owned();
            return Err(StoreError::Denied { address: address.to_owned(), what }.into());
        }
        let cluster = super::replica::new_cluster_id()?;
        // A position that no other copy uses, because two may run at the same time.
        let position = 1 + super::replica::random()? % (1 << 40);
        let snapshot = self.read()?;
        let copied = write_chunks(&snapshot, &mut replica, position).and_then(|manifest| {
            replica.log.create(&cluster, Some(manifest), CHUNK_TIMEOUT).map_err(failed)?;
            let tail = replica.read_tail(u64::MAX - 1)?;
            match tail.cluster.as_deref() == Some(cluster.as_str()) {
                true => Ok(manifest.revision),
                false => Err(StoreError::Denied {
                    address: address.to_owned(),
                    what: "another cluster was made there at the same time".to_owned(),
                }),
            }
        });
        if copied.is_err() {
            let _ = replica.log.discard_chunks(position, CHUNK_TIMEOUT);
        }
        Ok(copied?)
    }

    /// Writes the state of this store to a new file, which is the state of a cluster itself. Refuses to overwrite a file.
    pub fn copy_to_file(&self, to: &Path) -> StoreResult<u64> {
        let revision = self.read()?.revision()?;
        self.backup(to)?;
        let copy = rusqlite::Connection::open(to).and_then(|copy| {
            copy.execute("DELETE FROM meta WHERE name IN (?1, ?2)", [REPLICA_CLUSTER, REPLICA_POSITION])
        });
        copy.map_err(|error| StoreError::from_sqlite(to, error))?;
        Ok(revision)
    }
}

/// Writes the chunks of a snapshot; returns its description.
fn write_chunks(snapshot: &Snapshot<'_>, replica: &mut Replica, position: u64) -> StoreResult<SnapshotManifest> {
    let mut number = 0;
    let mut chunk = new_chunk();
    let mut send = |chunk: &mut FieldWriter| {
        let bytes = compress(&std::mem::replace(chunk, new_chunk()).finish());
        let sent = replica.log.put_chunk(position, number, &bytes, CHUNK_TIMEOUT);
        number += 1;
        sent.map_err(|error| store_error(&replica.address, error))
    };
    for (name, value) in read_settings(snapshot)? {
        let mut setting = FieldWriter::default();
        setting.bytes(1, name.as_bytes()).bytes(2, value.as_bytes());
        chunk.message(SETTING, setting.as_bytes());
    }
    let mut after = 0;
    loop {
        let (rows, last) = read_rows(snapshot, after)?;
        let Some(last) = last else { break };
        for SnapshotRow { row, revision, created } in rows {
            let mut message = FieldWriter::default();
            write_row(&mut message, &row);
            message.number(REVISION, revision).number(CREATED, created);
            if chunk.len() + message.len() > CHUNK_BYTES {
                send(&mut chunk)?;
            }
            chunk.message(ROW, message.as_bytes());
        }
        after = last;
    }
    send(&mut chunk)?;
    Ok(SnapshotManifest { position, revision: snapshot.revision()?, chunks: number })
}

fn new_chunk() -> FieldWriter {
    let mut chunk = FieldWriter::default();
    chunk.number(FORMAT, CHUNK_FORMAT);
    chunk
}

/// Reads the settings of the control plane, without those of the replica itself.
fn read_settings(snapshot: &Snapshot<'_>) -> StoreResult<Vec<(String, String)>> {
    use super::snapshot::source::SnapshotSource;
    snapshot.store().query(|connection| {
        let mut query = connection.prepare("SELECT name, value FROM meta WHERE name NOT IN (?1, ?2) ORDER BY name")?;
        let rows = query.query_map([REPLICA_CLUSTER, REPLICA_POSITION], |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.collect()
    })
}

/// Reads the next live objects after a row, and the number of the last row.
fn read_rows(snapshot: &Snapshot<'_>, after: i64) -> StoreResult<(Vec<SnapshotRow>, Option<i64>)> {
    use super::snapshot::source::SnapshotSource;
    let question = format!(
        "SELECT {LOG_COLUMNS}, o.id, o.created FROM object o JOIN log l ON l.revision = o.revision
         WHERE o.id > ?1 ORDER BY o.id LIMIT {ROWS}"
    );
    let read = |row: &Row<'_>| Ok((LogRow::read(row)?, row.get::<_, i64>(11)?, unsigned(row, 12)?));
    let found: Vec<_> = snapshot.store().query(|connection| {
        let mut question = connection.prepare_cached(&question)?;
        question.query_map([after], read)?.collect()
    })?;
    let last = found.last().map(|(_, id, _)| *id);
    let mut rows = Vec::new();
    for (log_row, _, created) in found {
        let log_row = log_row.map_err(|what| StoreError::damaged(snapshot.store().path(), what))?;
        let LogRow { actor, at, change, .. } = log_row;
        let StoredObject { key, uid, revision, body } = change.stored().clone();
        rows.push(SnapshotRow { row: SharedRow { key, uid, actor, at, body }, revision, created });
    }
    Ok((rows, last))
}

impl Txn<'_> {
    /// Replaces the content of a replica with the newest snapshot of its log. Returns the number of the snapshot's batch.
    pub(super) fn load_snapshot(&mut self, replica: &mut Replica, position: u64) -> StoreResult<u64> {
        let _span = debug_span!("load_shared_snapshot").entered();
        let (manifest, chunks) = read_snapshot(replica, position)?;
        for statement in ["DELETE FROM object", "DELETE FROM log"] {
            self.run(statement, [])?;
        }
        self.run("DELETE FROM meta WHERE name NOT IN (?1, ?2)", [REPLICA_CLUSTER, REPLICA_POSITION])?;
        self.counter = Counter { revision: manifest.revision, floor: manifest.revision, objects: 0 };
        for chunk in chunks {
            self.load_chunk(&chunk).map_err(|error| match error {
                ChunkError::Store(error) => error,
                ChunkError::Batch(BatchError::Newer(found)) => store_error(&replica.address, LogError::Newer(found)),
                ChunkError::Batch(BatchError::Malformed) => {
                    StoreError::Denied { address: replica.address.clone(), what: "its snapshot is damaged".to_owned() }
                }
            })?;
        }
        // Attempts of this machine's pods stay as long as the pods do.
        self.run("DELETE FROM attempt WHERE pod_uid NOT IN (SELECT uid FROM object WHERE resource = 'pods')", [])?;
        Ok(manifest.position)
    }

    fn load_chunk(&mut self, chunk: &[u8]) -> Result<(), ChunkError> {
        let chunk = decompress(chunk).ok_or(ChunkError::Batch(BatchError::Malformed))?;
        for field in read_fields(&chunk) {
            match field.map_err(BatchError::from)? {
                (FORMAT, format) if format.as_number() > CHUNK_FORMAT => {
                    return Err(BatchError::Newer(format.as_number()).into());
                }
                (ROW, message) => self.load_row(message.as_bytes())?,
                (SETTING, message) => {
                    let [mut name, mut value] = ["", ""];
                    for field in read_fields(message.as_bytes()) {
                        let (number, text) = field.map_err(BatchError::from)?;
                        let text = std::str::from_utf8(text.as_bytes()).map_err(|_| BatchError::Malformed)?;
                        *(if number == 1 { &mut name } else { &mut value }) = text;
                    }
                    self.set_meta(name, value)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn load_row(&mut self, message: &[u8]) -> Result<(), ChunkError> {
        let SharedRow { key, uid, actor, at, body } = read_row(message)?;
        let (mut revision, mut created) = (0, 0);
        for field in read_fields(message) {
            match field.map_err(BatchError::from)? {
                (REVISION, value) => revision = value.as_number(),
                (CREATED, value) => created = value.as_number(),
                _ => {}
            }
        }
        self.insert_object(&key, &uid, revision, created)?;
        let change = ChangeKind::Put(StoredObject { key, uid, revision, body });
        self.insert_log_row(&LogRow { change, previous: 0, actor, at }).map_err(ChunkError::from)
    }
}

/// Reads the newest snapshot, which has to be newer than a position.
fn read_snapshot(replica: &mut Replica, position: u64) -> StoreResult<(SnapshotManifest, Vec<Vec<u8>>)> {
    let failed = |address: &str, error| store_error(address, error);
    for _ in 0..READ_ATTEMPTS {
        let manifest = replica.log.read_manifest(CHUNK_TIMEOUT).map_err(|error| failed(&replica.address, error))?;
        let Some(manifest) = manifest.filter(|manifest| manifest.position > position) else { break };
        let mut chunks = Vec::new();
        for number in 0..manifest.chunks {
            let chunk = replica.log.read_chunk(manifest.position, number, CHUNK_TIMEOUT);
            chunks.extend(chunk.map_err(|error| failed(&replica.address, error))?);
        }
        // A newer snapshot may have replaced this one meanwhile.
        if chunks.len() as u64 == manifest.chunks {
            return Ok((manifest, chunks));
        }
    }
    let what = format!("its log has neither the batch {} nor a snapshot after it", position + 1);
    Err(StoreError::Denied { address: replica.address.clone(), what })
}

/// Failure to load a chunk.
enum ChunkError {
    Store(StoreError),
    Batch(BatchError),
}

impl From<StoreError> for ChunkError {
    fn from(error: StoreError) -> ChunkError {
        ChunkError::Store(error)
    }
}

impl From<BatchError> for ChunkError {
    fn from(error: BatchError) -> ChunkError {
        ChunkError::Batch(error)
    }
}
