//! Writes of several clients of one process: one connection for all, and one commit and sync for writes that wait at the same time.
//!
//! Clients take turns in the order of their arrival. Each adds its write to the open transaction, and is answered when that is durable.
//! Nearly all refused writes are refused before they change anything. When one has changed something, or the commit is refused, the
//! transaction is undone and each of its writes is made again on its own, so that one client's write cannot fail another's.
//! Start reading at [`SharedWriter::write`].

use super::ApiResult;
use super::authorization::cache::AccessCache;
use super::env::Env;
use super::outside::WriteInputs;
use super::store_transaction::{OpenWrite, WriteTxn};
use super::stored::refused;
use super::transaction::AnyWrite;
use super::write_rounds::{WriteAttempt, WriteNeeds};
use crate::kinds::KindRegistry;
use crate::object::{IgnorePoison, Reason, Status};
use crate::store::{CommitError, OVERTAKEN, OpenMode, PendingSync, Store, StoreError};
use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SendError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Time that a write waits for the write lock.
pub(super) const WRITE_LOCK_TIMEOUT: Duration = Duration::from_secs(30);
/// Time after which no further write joins a transaction, so that other processes get the lock.
const MAX_HOLD_TIME: Duration = Duration::from_millis(5);
/// Maximum number of writes in a transaction.
const MAX_WRITES: usize = 64;

/// The writer of a process, shared by its threads.
pub struct SharedWriter {
    path: PathBuf,
    actor: String,
    kinds: KindRegistry,
    /// Roles and bindings by user.
    access_cache: AccessCache,
    queue: Mutex<WriterQueue>,
}

/// The writer while no thread uses it, and the threads that wait for it.
struct WriterQueue {
    idle: Option<Box<Writer>>,
    waiting: VecDeque<Sender<Box<Writer>>>,
}

/// The connection, passed from thread to thread.
#[derive(Default)]
struct Writer {
    /// `None` before the first write.
    store: Option<Store>,
    batch: Option<WriteBatch>,
}

/// An open transaction with the writes of several clients.
struct WriteBatch {
    open: OpenWrite,
    begun: Instant,
    writes: usize,
    /// Whether the undoing of a refused write failed, so that the whole transaction has to be refused.
    cannot_commit: bool,
    outcome: Arc<BatchOutcome>,
}

/// The outcome of a transaction, for which its clients wait.
#[derive(Default)]
struct BatchOutcome {
    ended: Mutex<Option<BatchEnd>>,
    changed: Condvar,
}

/// The end of a transaction.
#[derive(Clone)]
enum BatchEnd {
    Durable,
    /// Nothing was stored.
    Refused(Status),
    /// Nothing was stored, because another machine wrote to the shared log first.
    Overtaken(Status),
    /// The writes may be stored or not.
    Unknown(Status),
}

/// A transaction that ended and may have to be synced.
struct EndedBatch {
    outcome: Arc<BatchOutcome>,
    committed: Result<Option<PendingSync>, CommitError>,
}

/// The result of one write before the end of its transaction.
struct WriteOutcome {
    result: Result<ApiResult<()>, Box<dyn Any + Send>>,
    needed: WriteNeeds,
    /// The transaction that the outcome depends on; `None` if the write changed nothing and the transaction had no earlier changes.
    depends_on: Option<Arc<BatchOutcome>>,
}

impl SharedWriter {
    /// Makes a writer of the file, which is opened at the first write.
    pub fn new(path: &Path, actor: &str, kinds: &KindRegistry, access_cache: &AccessCache) -> SharedWriter {
        let queue = WriterQueue { idle: Some(Box::default()), waiting: VecDeque::new() };
        let (kinds, access_cache) = (kinds.clone(), access_cache.clone());
        SharedWriter { path: path.into(), actor: actor.into(), kinds, access_cache, queue: Mutex::new(queue) }
    }

    /// Runs one write: kept when it succeeds, is not a dry run and `needed` is empty then; undone otherwise. Returns when it is durable. It
    /// is run again when its transaction with others was undone.
    pub(super) fn write(
        &self,
        attempt: &WriteAttempt<'_>,
        inputs: &mut WriteInputs,
        needed: &mut WriteNeeds,
        write: &mut AnyWrite<'_>,
    ) -> ApiResult<()> {
        let (mut is_alone, begun) = (attempt.dry_run, Instant::now());
        loop {
            let done = self.attempt((attempt, &mut *inputs), is_alone, write)?;
            *needed = done.needed;
            let result = done.result.unwrap_or_else(|panic| resume_unwind(panic));
            if needed.needs_another_attempt() {
                return result;
            }
            match done.depends_on.map_or(BatchEnd::Durable, |outcome| outcome.wait()) {
                BatchEnd::Durable => return result,
                BatchEnd::Refused(_) if !is_alone => is_alone = true,
                BatchEnd::Overtaken(_) if begun.elapsed() < WRITE_LOCK_TIMEOUT => {}
                BatchEnd::Refused(status) | BatchEnd::Overtaken(status) | BatchEnd::Unknown(status) => {
                    return Err(status);
                }
            }
        }
    }

    /// Makes the write as a part of the open transaction or a new one, and passes the connection on. `is_alone`: in a transaction of its
    /// own.
    fn attempt(
        &self,
        attempt: (&WriteAttempt<'_>, &mut WriteInputs),
        is_alone: bool,
        write: &mut AnyWrite<'_>,
    ) -> ApiResult<WriteOutcome> {
        let (mut writer, arrived) = (self.take_writer(), Instant::now());
        let before = if is_alone { writer.end_batch(self) } else { None };
        if let Some(before) = before {
            before.finish();
        }
        let done = writer.write_part(self, attempt, arrived, write);
        self.release(writer, is_alone);
        done
    }

    /// Passes the writer on: with its open transaction when others wait and it may take their writes, otherwise at the end of that.
    fn release(&self, mut writer: Box<Writer>, is_last: bool) {
        if !is_last && writer.is_joinable() {
            match self.lock().pass_writer(writer) {
                None => return,
                Some(returned) => writer = returned,
            }
        }
        let ended = writer.end_batch(self);
        {
            let mut queue = self.lock();
            queue.idle = queue.pass_writer(writer);
        }
        // The next transaction runs while this one waits for the disk.
        if let Some(ended) = ended {
            ended.finish();
        }
    }

    /// Waits for the turn of this thread.
    fn take_writer(&self) -> Box<Writer> {
        let (sender, turn) = channel();
        {
            let mut queue = self.lock();
            if let Some(writer) = queue.idle.take() {
                return writer;
            }
            queue.waiting.push_back(sender);
        }
        // The sender is dropped without a value only when a thread ended with the writer: a new one replaces it.
        turn.recv().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, WriterQueue> {
        self.queue.lock().ignore_poison()
    }
}

impl WriterQueue {
    /// Passes the writer to the next thread; returns it when no thread waits.
    fn pass_writer(&mut self, mut writer: Box<Writer>) -> Option<Box<Writer>> {
        while let Some(next) = self.waiting.pop_front() {
            match next.send(writer) {
                Ok(()) => return None,
                Err(SendError(returned)) => writer = returned,
            }
        }
        Some(writer)
    }
}

impl Writer {
    /// Whether the open transaction may take further writes.
    fn is_joinable(&self) -> bool {
        let has_room = |batch: &WriteBatch| batch.writes < MAX_WRITES && batch.begun.elapsed() < MAX_HOLD_TIME;
        self.batch.as_ref().is_some_and(|batch| !batch.cannot_commit && has_room(batch))
    }

    /// Begins a transaction; opens the file first, again after a commit with an unknown outcome.
    fn begin(&mut self, shared: &SharedWriter, patience: Duration) -> ApiResult<WriteBatch> {
        if self.store.as_mut().is_some_and(|store| store.needs_reopen() && store.reopen(WRITE_LOCK_TIMEOUT).is_err()) {
            self.store = None;
        }
        let store = match self.store.take() {
            Some(store) => store,
            None => Store::open(&shared.path, OpenMode::Existing)
                .map_err(|error| Status::new(Reason::InternalError, error.to_string()))?,
        };
        let txn = self.store.insert(store).write(patience).map_err(|error| refused(&error))?;
        let open = WriteTxn::new(txn, &shared.actor, &mut Env::System, &shared.kinds).park();
        Ok(WriteBatch { open, begun: Instant::now(), writes: 0, cannot_commit: false, outcome: Arc::default() })
    }

    /// Makes a write in the open transaction, or in a new one.
    fn write_part(
        &mut self,
        shared: &SharedWriter,
        (attempt, inputs): (&WriteAttempt<'_>, &mut WriteInputs),
        arrived: Instant,
        write: &mut AnyWrite<'_>,
    ) -> ApiResult<WriteOutcome> {
        let batch = match self.batch.take() {
            Some(batch) => batch,
            None => self.begin(shared, WRITE_LOCK_TIMEOUT.saturating_sub(arrived.elapsed()))?,
        };
        let store = self.store.as_mut().ok_or_else(not_open)?;
        let mut env = Env::System;
        let mut txn = batch.open.resume(store, &shared.actor, &mut env);
        (txn.defers, txn.asks, txn.user) = (attempt.defers, attempt.asks, attempt.user.cloned());
        txn.inputs = std::mem::take(inputs);
        txn.inputs.begin();
        txn.access_cache = shared.access_cache.clone();
        let (kinds_before, others_wrote) = (txn.kinds.clone(), std::mem::take(&mut txn.wrote));
        let result = catch_unwind(AssertUnwindSafe(|| write(&mut txn)));
        *inputs = std::mem::take(&mut txn.inputs);
        let needed = WriteNeeds {
            uncompiled: std::mem::take(&mut txn.uncompiled),
            answers: inputs.is_missing(),
            is_overtaken: false,
        };
        let is_kept = matches!(result, Ok(Ok(_))) && !attempt.dry_run && !needed.needs_another_attempt();
        let cannot_commit = result.is_err() || !is_kept && (txn.wrote || txn.txn.has_failed());
        let depends_on = (others_wrote || is_kept && txn.wrote).then(|| Arc::clone(&batch.outcome));
        txn.wrote |= others_wrote;
        if !is_kept {
            txn.kinds = kinds_before;
        }
        self.batch = Some(WriteBatch { open: txn.park(), writes: batch.writes + 1, cannot_commit, ..batch });
        Ok(WriteOutcome { result, needed, depends_on })
    }

    /// Commits the open transaction, if there is one.
    fn end_batch(&mut self, shared: &SharedWriter) -> Option<EndedBatch> {
        let WriteBatch { open, outcome, cannot_commit, .. } = self.batch.take()?;
        let store = self.store.as_mut()?;
        let mut env = Env::System;
        let txn = open.resume(store, &shared.actor, &mut env);
        let committed = match txn.wrote {
            // Dropping the transaction undoes it.
            _ if cannot_commit => Err(CommitError::Refused(StoreError::Bug { what: "a write was not undone".into() })),
            false => Ok(None),
            true => txn.commit_unsynced().and_then(|()| {
                store.wake_watchers();
                store.defer_sync().map(Some)
            }),
        };
        Some(EndedBatch { outcome, committed })
    }
}

fn not_open() -> Status {
    Status::bug("the state is not open")
}

impl EndedBatch {
    /// Waits until the transaction is durable, then wakes the waiting writers.
    fn finish(self) {
        let ended = match self.committed.and_then(|sync| sync.map_or(Ok(()), PendingSync::wait)) {
            Ok(()) => BatchEnd::Durable,
            Err(error @ OVERTAKEN) => BatchEnd::Overtaken(refused(&error.into())),
            Err(error @ CommitError::Unknown { .. }) => BatchEnd::Unknown(refused(&error.into())),
            Err(error) => BatchEnd::Refused(refused(&error.into())),
        };
        *self.outcome.lock() = Some(ended);
        self.outcome.changed.notify_all();
    }
}

impl BatchOutcome {
    fn lock(&self) -> MutexGuard<'_, Option<BatchEnd>> {
        self.ended.lock().ignore_poison()
    }

    /// Waits for the end of the transaction.
    fn wait(&self) -> BatchEnd {
        let mut ended = self.lock();
        loop {
            match &*ended {
                Some(end) => return end.clone(),
                None => ended = self.changed.wait(ended).ignore_poison(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::create::create;
    use crate::apiserver::{Api, Transaction, WriteOptions};
    use crate::kinds;
    use crate::object::{Key, Object};
    use crate::store::{InjectedFault, StoreRead};
    use serde_json::json;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct Cluster {
        _folder: tempfile::TempDir,
        path: PathBuf,
        writer: SharedWriter,
    }

    fn cluster() -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.db");
        Api::open(&path, OpenMode::Create, "test").unwrap();
        let writer = SharedWriter::new(&path, "test", &KindRegistry::default(), &AccessCache::default());
        Cluster { _folder: folder, path, writer }
    }

    impl Cluster {
        fn holds(&self, name: &str) -> bool {
            let store = Store::open(&self.path, OpenMode::Existing).unwrap();
            store.read().unwrap().get(&key(name)).unwrap().is_some()
        }

        /// Waits until this number of threads wait for the writer.
        fn wait_for_waiting(&self, count: usize) {
            while self.writer.lock().waiting.len() < count {
                std::thread::yield_now();
            }
        }

        fn create(&self, name: &str) -> ApiResult<()> {
            write_with(&self.writer, false, |txn| add(txn, name))
        }
    }

    fn write_with(
        writer: &SharedWriter,
        dry_run: bool,
        mut write: impl FnMut(&mut dyn Transaction) -> ApiResult<()>,
    ) -> ApiResult<()> {
        let attempt = WriteAttempt { user: None, dry_run, defers: true, asks: false };
        writer.write(&attempt, &mut WriteInputs::default(), &mut WriteNeeds::default(), &mut write)
    }

    fn key(name: &str) -> Key {
        Key::new(kinds::by_name("configmaps").unwrap().resource, "default", name)
    }

    fn add(txn: &mut dyn Transaction, name: &str) -> ApiResult<()> {
        let metadata = json!({"name": name, "namespace": "default"});
        let body = Object(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}));
        create(txn, kinds::by_name("configmaps").unwrap(), &body, &WriteOptions::default()).map(|_| ())
    }

    fn conflict() -> Status {
        Status::new(Reason::Conflict, "no")
    }

    /// A write of a test.
    type TestWrite<'a> = &'a (dyn Fn(&mut dyn Transaction) -> ApiResult<()> + Sync);

    /// The number of times that the first write was made, its result, and the results of the others.
    type Outcomes = (usize, ApiResult<()>, Vec<std::thread::Result<ApiResult<()>>>);

    /// Makes a write while others wait, so that they join its transaction.
    fn write_together(cluster: &Cluster, others: &[TestWrite<'_>]) -> Outcomes {
        let made = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let (held, go) = channel();
            let made = &made;
            let first = scope.spawn(move || {
                write_with(&cluster.writer, false, |txn| {
                    if made.fetch_add(1, Ordering::SeqCst) == 0 {
                        held.send(()).unwrap();
                        cluster.wait_for_waiting(others.len());
                    }
                    add(txn, "first")
                })
            });
            go.recv().unwrap();
            let mut threads = Vec::new();
            for (index, write) in others.iter().enumerate() {
                // The first write goes on when all others wait.
                cluster.wait_for_waiting(index);
                threads.push(scope.spawn(move || write_with(&cluster.writer, false, |txn| write(txn))));
            }
            let results = threads.into_iter().map(|thread| thread.join()).collect();
            (made.load(Ordering::SeqCst), first.join().unwrap(), results)
        })
    }

    #[test]
    fn waiting_write_joins_the_open_transaction() {
        let cluster = cluster();
        let second = |txn: &mut dyn Transaction| {
            // On a busy machine the time for joining may be over.
            let is_joined = txn.exists(&key("first"))? && !cluster.holds("first");
            assert!(is_joined || cluster.holds("first"));
            add(txn, "second")
        };
        let (made, first, others) = write_together(&cluster, &[&second]);
        assert_eq!((made, first.is_ok()), (1, true));
        assert!(others.into_iter().all(|other| other.unwrap().is_ok()));
        assert!(cluster.holds("first") && cluster.holds("second"));
    }

    #[test]
    fn refused_write_does_not_touch_the_others_of_its_transaction() {
        let cluster = cluster();
        let refused_at_once = |_: &mut dyn Transaction| Err(conflict());
        let refused_late = |txn: &mut dyn Transaction| add(txn, "refused").and(Err(conflict()));
        let kept = |txn: &mut dyn Transaction| add(txn, "kept");
        let (_, first, others) = write_together(&cluster, &[&refused_at_once, &refused_late, &kept]);
        let others: Vec<bool> = others.into_iter().map(|other| other.unwrap().is_ok()).collect();
        assert_eq!((first.is_ok(), others), (true, vec![false, false, true]));
        assert!(cluster.holds("first") && cluster.holds("kept") && !cluster.holds("refused"));
    }

    #[test]
    fn panic_in_a_write_fails_that_write_alone() {
        let cluster = cluster();
        let panics = |txn: &mut dyn Transaction| -> ApiResult<()> {
            add(txn, "lost")?;
            panic!("a bug in a test")
        };
        let (_, first, others) = write_together(&cluster, &[&panics]);
        assert!(first.is_ok() && others.into_iter().all(|other| other.is_err()));
        assert!(cluster.holds("first") && !cluster.holds("lost"));
        cluster.create("next").unwrap();
        assert!(cluster.holds("next"));
    }

    #[test]
    fn refused_commit_makes_each_write_again_on_its_own() {
        let cluster = cluster();
        let fails_inside = |txn: &mut dyn Transaction| {
            let key = Key::new(kinds::by_name("namespaces").unwrap().resource, "", "default");
            let mut namespace = txn.get(&key)?.unwrap();
            namespace.set(&["metadata", "uid"], "another");
            add(txn, "other")?;
            // The store refuses this change and so the whole transaction, although the closure succeeds.
            assert!(txn.put(&key, namespace).is_err());
            Ok(())
        };
        let (_, first, others) = write_together(&cluster, &[&fails_inside]);
        assert!(first.is_ok(), "{first:?}");
        assert!(others.into_iter().all(|other| other.unwrap().is_err()));
        assert!(cluster.holds("first"));
    }

    #[test]
    fn dry_run_leaves_nothing() {
        let cluster = cluster();
        cluster.create("a").unwrap();
        write_with(&cluster.writer, true, |txn| add(txn, "dry")).unwrap();
        assert!(!cluster.holds("dry"));
        cluster.create("b").unwrap();
        assert!(!cluster.holds("dry") && cluster.holds("b"));
    }

    #[test]
    fn writer_opens_the_state_again_after_an_unknown_commit() {
        let cluster = cluster();
        cluster.create("a").unwrap();
        let inject = |fault| {
            let mut queue = cluster.writer.lock();
            let writer = queue.idle.as_mut().unwrap();
            writer.store.as_mut().unwrap().inject_fault(Some(fault));
        };
        inject(InjectedFault::Busy);
        assert_eq!(cluster.create("b").unwrap_err().reason, Reason::Timeout);
        cluster.create("b").unwrap();
        inject(InjectedFault::UnknownCommit);
        assert!(cluster.create("c").is_err());
        cluster.create("d").unwrap();
        assert!(["a", "b", "d"].iter().all(|name| cluster.holds(name)));
    }
}
