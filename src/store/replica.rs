//! A replica: the file of a cluster whose state is a log that several machines share.
//!
//! The file follows the log. A write transaction first applies the batches that it lacks, does its work, appends its own changes to the log
//! as one batch, and only then commits. When another machine appends first, the transaction is refused as a whole. Attempts of containers
//! are about this machine's processes and stay local, as does compaction.
//! Never: changes the log except by appending. Start reading at [`Txn::follow`] and [`Txn::share`].

use super::etcd::address::EtcdAddress;
use super::etcd::log::EtcdLog;
use super::log_batch::{BatchChange, BatchError, LogBatch, Outgoing, SharedRow, decode};
use super::meta_keys::{REPLICA_CLUSTER, REPLICA_POSITION};
use super::record::moment;
use super::shared_log::{AppendOutcome, LogError, SharedLog, SharedTail};
use super::state_path::StorePath;
use super::{CommitError, OpenError, Store, StoreError, StoreRead, StoreResult, Txn};
use crate::object::Time;
use std::any::Any;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tracing::debug_span;

/// The suffix of the file that has the address of the log.
const DESCRIPTION: &str = ".etcd";

/// The suffix of the file that identifies this machine's replica.
const MACHINE: &str = ".machine";

/// Maximum length of these files in bytes.
const MAX_FILE_BYTES: u64 = 4096;

/// Time that opening and writing wait for the log.
const LOG_TIMEOUT: Duration = Duration::from_secs(5);

/// Number of checks whether this machine has committed a batch itself, with the pause before each. After them a reader waits for the
/// write lock.
const MAX_OWN_COMMIT_CHECKS: u32 = 4;
const OWN_COMMIT_PAUSE: Duration = Duration::from_millis(1);

/// The log of a replica.
pub(super) struct Replica {
    pub log: Box<dyn SharedLog>,
    pub address: String,
    /// Identifies this machine and its replica.
    pub machine: String,
    /// Bytes that this process has appended since the last snapshot.
    pub appended: usize,
    /// Time of the last snapshot, or of the first check of the length of the log.
    pub trimmed_at: Option<Instant>,
}

/// Returns the state file of an address of etcd: the replica of this user on this machine. Creates its folder and notes the address there.
pub fn prepare_replica(text: &str) -> Result<PathBuf, OpenError> {
    let address = parse_with_variables(text)?;
    let path = super::state_path::replica_path(&address.folder_name());
    let place = StorePath::from_path(&path)?;
    place.make_dir()?;
    place.check_dir()?;
    place.write_sibling(DESCRIPTION, &address.to_text())?;
    Ok(path)
}

/// Returns an address with the parts that etcdctl's variables add.
pub fn resolve_address(text: &str) -> Result<String, OpenError> {
    parse_with_variables(text).map(|address| address.to_text())
}

fn parse_with_variables(text: &str) -> Result<EtcdAddress, OpenError> {
    EtcdAddress::parse(text, |name| std::env::var(name).ok()).map_err(|what| OpenError::Address { what })
}

/// Returns the address of the state whose replica a file is; `None` for a file of its own.
pub fn read_replica_address(path: &Path) -> Option<String> {
    let place = StorePath::from_path(path).ok()?;
    place.read_sibling(DESCRIPTION, MAX_FILE_BYTES).ok().flatten()
}

/// Whether a file is the replica of a log.
pub(super) fn is_replica_at(place: &StorePath) -> bool {
    place.read_sibling(DESCRIPTION, MAX_FILE_BYTES).is_ok_and(|text| text.is_some())
}

impl Replica {
    /// Finds the log of a file, if it is a replica.
    pub fn find(place: &StorePath) -> Result<Option<Replica>, OpenError> {
        let Some(text) = place.read_sibling(DESCRIPTION, MAX_FILE_BYTES)? else { return Ok(None) };
        let replica = Replica::connect(text.trim())?;
        Ok(Some(Replica { machine: identify_machine(place)?, ..replica }))
    }

    /// Makes the client's side of a log on etcd, which connects at the first call.
    pub fn connect(text: &str) -> Result<Replica, OpenError> {
        let address = EtcdAddress::parse(text, |_| None).map_err(|what| OpenError::Address { what })?;
        let text = address.to_text();
        let log = EtcdLog::connect(&address).map_err(|error| store_error(&text, error))?;
        Ok(Replica::new(Box::new(log)))
    }

    /// Makes the replica's side of a log.
    pub fn new(log: Box<dyn SharedLog>) -> Replica {
        let address = log.address();
        Replica { log, address, machine: String::new(), appended: 0, trimmed_at: None }
    }

    /// Returns another handle of the same log.
    pub fn handle(&self) -> Replica {
        let Replica { log, address, machine, appended, trimmed_at } = self;
        let (address, machine) = (address.clone(), machine.clone());
        Replica { log: log.handle(), address, machine, appended: *appended, trimmed_at: *trimmed_at }
    }

    /// Makes sure that there is a log: creates that of a new cluster if it may.
    pub fn check_log(&mut self, may_create: bool, path: &Path) -> Result<(), OpenError> {
        let tail = self.log.read_tail(u64::MAX - 1, LOG_TIMEOUT).map_err(|error| store_error(&self.address, error))?;
        // A file may be the last copy of a cluster that was removed from etcd.
        if tail.cluster.is_some() || path.exists() {
            return Ok(());
        }
        if !may_create {
            return Err(OpenError::Absent { path: PathBuf::from(&self.address) });
        }
        let cluster = new_cluster_id()?;
        Ok(self.log.create(&cluster, None, LOG_TIMEOUT).map_err(|error| store_error(&self.address, error))?)
    }

    /// Reads the end of the log.
    pub fn read_tail(&mut self, position: u64) -> StoreResult<SharedTail> {
        let _span = debug_span!("read_shared_log", position).entered();
        self.log.read_tail(position, LOG_TIMEOUT).map_err(|error| store_error(&self.address, error))
    }
}

/// Returns the identity of this machine's replica: a random number that was made with it, and the machine's present boot.
fn identify_machine(place: &StorePath) -> StoreResult<String> {
    let random = match place.read_sibling(MACHINE, MAX_FILE_BYTES)? {
        Some(text) if !text.is_empty() => text,
        _ => {
            let text = new_cluster_id()?;
            place.write_sibling(MACHINE, &text)?;
            text
        }
    };
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    Ok(format!("{random} {}", boot.trim()))
}

/// Returns an identity for a new cluster.
pub(super) fn new_cluster_id() -> StoreResult<String> {
    Ok(format!("{:016x}{:016x}", random()?, random()?))
}

/// Returns a random number of the system.
pub(super) fn random() -> StoreResult<u64> {
    let mut bytes = [0; 8];
    let failed = |error: getrandom::Error| StoreError::Bug { what: format!("no random numbers: {error}") };
    getrandom::fill(&mut bytes).map_err(failed)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Returns the error of a store for that of its log.
pub(super) fn store_error(address: &str, error: LogError) -> StoreError {
    let address = address.to_owned();
    match error {
        LogError::Unreachable(what) | LogError::Unknown(what) => StoreError::Unreachable { address, what },
        LogError::Refused(what) => StoreError::Denied { address, what },
        LogError::Newer(found) => StoreError::Newer {
            path: address.into(),
            found: u32::try_from(found).unwrap_or(u32::MAX),
            known: super::log_batch::BATCH_FORMAT as u32,
        },
    }
}

impl Store {
    /// Brings a replica to the head of its log as of this call. Other files are always at their head.
    pub fn follow(&mut self) -> StoreResult<()> {
        let Some(mut replica) = self.replica.take() else { return Ok(()) };
        let read = self.read_position().and_then(|known| {
            let tail = replica.read_tail(known.1)?;
            Ok((known, tail))
        });
        self.replica = Some(replica);
        let ((cluster, position), tail) = read?;
        // Most calls find nothing new, and wait for no writer.
        let is_known = tail.cluster.is_some() && tail.cluster == cluster;
        if is_known && (tail.head == position || tail.head > position && self.wait_for_own_commit(tail.head)?) {
            return Ok(());
        }
        self.write(LOG_TIMEOUT).map(drop)
    }

    /// Waits a moment for a batch that a process of this machine has just appended, and is about to commit. Returns whether it is there.
    fn wait_for_own_commit(&self, head: u64) -> StoreResult<bool> {
        for _ in 0..MAX_OWN_COMMIT_CHECKS {
            std::thread::sleep(OWN_COMMIT_PAUSE);
            if self.position()? >= head {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the file is a replica.
    pub fn is_replica(&self) -> bool {
        self.replica.is_some()
    }

    /// Number of the last batch that a replica contains.
    pub(super) fn position(&self) -> StoreResult<u64> {
        self.read_position().map(|(_, position)| position)
    }

    /// Watches the head of a replica's log; `None` for other files.
    pub(super) fn watch_log(&self, moved: Box<dyn Fn(Option<u64>) + Send>) -> Option<Box<dyn Any + Send>> {
        self.replica.as_ref().map(|replica| replica.log.watch(moved))
    }

    /// The cluster of a replica, and the number of the last batch that it contains.
    fn read_position(&self) -> StoreResult<(Option<String>, u64)> {
        let snapshot = self.read()?;
        let position = snapshot.meta(REPLICA_POSITION)?.and_then(|text| text.parse().ok());
        Ok((snapshot.meta(REPLICA_CLUSTER)?, position.unwrap_or(0)))
    }
}

impl Txn<'_> {
    /// Applies the batches that a replica lacks, and commits them. The transaction then begins at the head of the log.
    pub(super) fn follow(&mut self) -> StoreResult<()> {
        let Some(mut replica) = self.store.replica.take() else { return Ok(()) };
        let followed = self.follow_log(&mut replica);
        self.store.replica = Some(replica);
        self.outgoing = Some(Outgoing { batch: LogBatch::default(), after: followed? });
        Ok(())
    }

    /// Returns the number of the last batch.
    fn follow_log(&mut self, replica: &mut Replica) -> StoreResult<u64> {
        let known = self.meta(REPLICA_CLUSTER)?;
        let mut position = self.meta(REPLICA_POSITION)?.and_then(|text| text.parse().ok()).unwrap_or(0);
        loop {
            let tail = replica.read_tail(position)?;
            let denied = |what: String| StoreError::Denied { address: replica.address.clone(), what };
            let found = tail.cluster.as_ref();
            if known.is_some() && found != known.as_ref() || found.is_none() || tail.head < position {
                let file = self.store.path().display();
                return Err(denied(format!(
                    "the state there does not continue the copy in {file}: it is another cluster, or it was reset to an older state. Restore \
                     the newer state there, or move the folder of {file} away to use the state that is there now"
                )));
            }
            if known.is_none() {
                self.set_local_meta(REPLICA_CLUSTER, found.map_or("", |cluster| cluster))?;
                self.keep_followed(position)?;
            }
            if tail.head == position {
                return Ok(position);
            }
            if tail.batches.first().is_none_or(|(number, _)| *number != position + 1) {
                position = self.load_snapshot(replica, position)?;
            } else {
                for (number, batch) in &tail.batches {
                    if *number != position + 1 {
                        return Err(denied(format!("its log has no batch {}", position + 1)));
                    }
                    self.apply(*number, batch, &replica.address)?;
                    position = *number;
                }
            }
            self.keep_followed(position)?;
            if position >= tail.head {
                return Ok(position);
            }
        }
    }

    /// Makes the changes of a batch, as the machine did that wrote it.
    fn apply(&mut self, number: u64, batch: &[u8], address: &str) -> StoreResult<()> {
        let denied = |what: String| StoreError::Denied { address: address.to_owned(), what };
        let received = decode(batch).map_err(|error| match error {
            BatchError::Newer(found) => store_error(address, LogError::Newer(found)),
            BatchError::Malformed => denied(format!("its batch {number} is damaged")),
        })?;
        if received.after != self.counter.revision {
            let (here, there) = (self.counter.revision, received.after);
            return Err(denied(format!("its batch {number} follows revision {there}, and this copy has {here}")));
        }
        for change in received.changes {
            match change {
                BatchChange::Put(row) => {
                    let at = time_of(&row).map_err(denied)?;
                    self.put(&row.key, &row.uid, |_| row.body.clone(), &row.actor, at)?;
                }
                BatchChange::Remove(row) => {
                    let at = time_of(&row).map_err(denied)?;
                    self.remove(&row.key, |_| row.body.to_string(), &row.actor, at)?;
                }
                BatchChange::SetMeta(name, value) => self.set_meta(&name, &value)?,
            }
        }
        Ok(())
    }

    /// Commits the applied batches, wakes the processes that watch the file, and begins a new transaction with the write lock still held.
    fn keep_followed(&mut self, position: u64) -> StoreResult<()> {
        self.set_local_meta(REPLICA_POSITION, &position.to_string())?;
        self.write_counter()?;
        self.store.query(|connection| connection.execute_batch("COMMIT"))?;
        self.open = false;
        self.store.has_unnotified_commit = true;
        self.store.wake_watchers();
        self.store.query(|connection| connection.execute_batch("BEGIN IMMEDIATE"))?;
        self.open = true;
        self.begun = self.counter;
        Ok(())
    }

    /// Appends the changes of the transaction to the log, before its commit. Without changes for others, it does nothing.
    pub(super) fn share(&mut self) -> Result<(), CommitError> {
        let Some(outgoing) = self.outgoing.take_if(|outgoing| !outgoing.batch.is_empty()) else { return Ok(()) };
        let id = random().map_err(CommitError::Refused)?.max(1);
        let batch = outgoing.batch.encode(id, self.begun.revision);
        self.set_local_meta(REPLICA_POSITION, &(outgoing.after + 1).to_string()).map_err(CommitError::Refused)?;
        let Some(replica) = &mut self.store.replica else { return Ok(()) };
        let _span = debug_span!("append_to_shared_log", bytes = batch.len()).entered();
        let error = match replica.log.append(outgoing.after, id, &batch, LOG_TIMEOUT) {
            Ok(AppendOutcome::Appended) => {
                replica.appended += batch.len();
                return Ok(());
            }
            Ok(AppendOutcome::Overtaken) => StoreError::Overtaken,
            Err(LogError::Unknown(what)) => {
                self.store.uncertain = true;
                return Err(CommitError::Unknown { path: self.store.path().into(), what });
            }
            Err(error) => store_error(&replica.address, error),
        };
        self.failed = Some(error.clone());
        Err(CommitError::Refused(error))
    }
}

fn time_of(row: &SharedRow) -> Result<Time, String> {
    moment(row.at)
}

#[cfg(test)]
mod tests;
