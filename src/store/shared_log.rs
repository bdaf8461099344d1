//! The log that the machines of a cluster share: batches of changes in one order, each a transaction.
//!
//! Knows: the interface; etcd implements it, and tests do in memory. Never: reads a batch. Start reading at [`SharedLog`].

use std::any::Any;
use std::time::Duration;

/// A log that several machines append to. Batches are numbered from 1.
pub(super) trait SharedLog: Send {
    /// Creates the log of a new cluster, unless there is one. `cluster` identifies it. With a snapshot, whose chunks are written already,
    /// the log begins after that.
    fn create(&mut self, cluster: &str, snapshot: Option<SnapshotManifest>, patience: Duration)
    -> Result<(), LogError>;

    /// Reads the head and the next batches after a number. The answer is as new as the call.
    fn read_tail(&mut self, after: u64, patience: Duration) -> Result<SharedTail, LogError>;

    /// Appends a batch, if the last one has the number `after`. `id` identifies the batch, so that it is recognised when an answer is lost.
    fn append(&mut self, after: u64, id: u64, batch: &[u8], patience: Duration) -> Result<AppendOutcome, LogError>;

    /// Calls a function with the new head when it has moved, and without it when that may have been missed, until the returned value is
    /// dropped.
    fn watch(&self, moved: Box<dyn Fn(Option<u64>) + Send>) -> Box<dyn Any + Send>;

    /// Writes a chunk of a snapshot. Readers see the snapshot only after [`SharedLog::publish`].
    fn put_chunk(&mut self, position: u64, number: u64, chunk: &[u8], patience: Duration) -> Result<(), LogError>;

    /// Makes a snapshot the newest one in place of `seen`, and removes the chunks of older ones and the batches before the number `keep`.
    /// Returns false, and changes nothing, when another one is the newest meanwhile.
    fn publish(
        &mut self,
        snapshot: SnapshotManifest,
        seen: Option<SnapshotManifest>,
        keep: u64,
        patience: Duration,
    ) -> Result<bool, LogError>;

    /// Reads the newest snapshot's description, if there is one.
    fn read_manifest(&mut self, patience: Duration) -> Result<Option<SnapshotManifest>, LogError>;

    /// Reads a chunk of a snapshot; `None` when a newer snapshot has replaced it.
    fn read_chunk(&mut self, position: u64, number: u64, patience: Duration) -> Result<Option<Vec<u8>>, LogError>;

    /// Removes the chunks of a snapshot that was not published.
    fn discard_chunks(&mut self, position: u64, patience: Duration) -> Result<(), LogError>;

    /// Reads the claim of the leader; empty without a leader.
    fn read_claim(&mut self, patience: Duration) -> Result<Vec<u8>, LogError>;

    /// Replaces the claim of the leader if it still equals `seen`; an empty claim means no leader. Returns whether it was replaced.
    fn replace_claim(&mut self, seen: &[u8], claim: &[u8], patience: Duration) -> Result<bool, LogError>;

    /// Returns another handle of the same log.
    fn handle(&self) -> Box<dyn SharedLog>;

    /// The address of the log, for messages.
    fn address(&self) -> String;
}

/// The end of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SharedTail {
    /// The cluster; `None` when there is no log.
    pub cluster: Option<String>,
    /// Number of the last batch.
    pub head: u64,
    /// Number of the oldest batch that the log still has, or of the next one.
    pub oldest: u64,
    /// The next batches with their numbers. They may end before the head, and the first ones may have been removed.
    pub batches: Vec<(u64, Vec<u8>)>,
}

/// The description of a snapshot: the whole state after a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SnapshotManifest {
    /// Number of the batch.
    pub position: u64,
    /// The revision of the state.
    pub revision: u64,
    /// Number of its chunks.
    pub chunks: u64,
}

/// Outcome of an attempt to append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AppendOutcome {
    /// The batch is in the log.
    Appended,
    /// Another machine appended first: the batch is not in the log, and never will be.
    Overtaken,
}

/// Failure of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LogError {
    /// The log could not be reached, so nothing was changed.
    Unreachable(String),
    /// The log may have the batch or not.
    Unknown(String),
    /// The log refuses the call; another attempt would fail in the same way.
    Refused(String),
    /// A newer kloop wrote the log, in this format.
    Newer(u64),
}
