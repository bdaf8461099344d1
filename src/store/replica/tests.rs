//! Replicas over a log in memory, which can fail in every way that a network does.

use super::super::log_batch::read_id;
use super::super::shared_log::SnapshotManifest;
use super::*;
use crate::object::{Key, Resource};
use crate::store::{OVERTAKEN, Retention};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

const WAIT: Duration = Duration::from_secs(60);

/// A failure of the next append, or of all calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogFault {
    /// No call is answered.
    NoQuorum,
    /// The next append is lost with its answer.
    LostAppend,
    /// The next append is made, and its answer lost.
    LostAnswer,
}

#[derive(Default)]
struct LogContent {
    cluster: Option<String>,
    head: u64,
    batches: BTreeMap<u64, Vec<u8>>,
    manifest: Option<SnapshotManifest>,
    chunks: BTreeMap<(u64, u64), Vec<u8>>,
    claim: Vec<u8>,
    fault: Option<LogFault>,
}

/// A log that replicas of one process share.
#[derive(Clone, Default)]
struct MemoryLog(Arc<Mutex<LogContent>>);

impl MemoryLog {
    fn content(&self) -> Result<std::sync::MutexGuard<'_, LogContent>, LogError> {
        let content = self.0.lock().unwrap();
        match content.fault {
            Some(LogFault::NoQuorum) => Err(LogError::Unreachable("no quorum".into())),
            _ => Ok(content),
        }
    }

    fn fail(&self, fault: Option<LogFault>) {
        self.0.lock().unwrap().fault = fault;
    }

    fn open(&self, folder: &Path) -> Store {
        self.try_open(folder).unwrap()
    }

    fn try_open(&self, folder: &Path) -> Result<Store, OpenError> {
        let place = StorePath::from_path(&folder.join("state.db"))?;
        Store::open_replica(place, crate::store::OpenMode::Create, Some(Replica::new(self.handle())))
    }
}

impl SharedLog for MemoryLog {
    fn create(
        &mut self,
        cluster: &str,
        snapshot: Option<SnapshotManifest>,
        _patience: Duration,
    ) -> Result<(), LogError> {
        let mut content = self.content()?;
        if content.cluster.is_none() {
            content.cluster = Some(cluster.to_owned());
            content.head = snapshot.map_or(0, |snapshot| snapshot.position);
            content.manifest = snapshot;
        }
        Ok(())
    }

    fn read_tail(&mut self, after: u64, _patience: Duration) -> Result<SharedTail, LogError> {
        let content = self.content()?;
        let next = content.batches.range(after + 1..).take(3);
        let batches = next.map(|(number, batch)| (*number, batch.clone())).collect();
        let oldest = content.batches.keys().next().copied().unwrap_or(content.head + 1);
        Ok(SharedTail { cluster: content.cluster.clone(), head: content.head, oldest, batches })
    }

    fn append(&mut self, after: u64, id: u64, batch: &[u8], _patience: Duration) -> Result<AppendOutcome, LogError> {
        assert_eq!(read_id(batch), id);
        let mut content = self.content()?;
        let fault = content.fault.take();
        let lost = || Err(LogError::Unknown("the answer was lost".into()));
        if fault == Some(LogFault::LostAppend) {
            return lost();
        }
        let outcome = match content.head == after {
            true => {
                content.head += 1;
                content.batches.insert(after + 1, batch.to_vec());
                AppendOutcome::Appended
            }
            false => AppendOutcome::Overtaken,
        };
        if fault == Some(LogFault::LostAnswer) { lost() } else { Ok(outcome) }
    }

    fn watch(&self, _moved: Box<dyn Fn(Option<u64>) + Send>) -> Box<dyn Any + Send> {
        Box::new(())
    }

    fn put_chunk(&mut self, position: u64, number: u64, chunk: &[u8], _patience: Duration) -> Result<(), LogError> {
        self.content()?.chunks.insert((position, number), chunk.to_vec());
        Ok(())
    }

    fn publish(
        &mut self,
        snapshot: SnapshotManifest,
        seen: Option<SnapshotManifest>,
        keep: u64,
        _patience: Duration,
    ) -> Result<bool, LogError> {
        let mut content = self.content()?;
        if content.manifest != seen {
            return Ok(false);
        }
        content.manifest = Some(snapshot);
        content.chunks.retain(|(position, _), _| *position >= snapshot.position);
        content.batches.retain(|number, _| *number >= keep);
        Ok(true)
    }

    fn read_manifest(&mut self, _patience: Duration) -> Result<Option<SnapshotManifest>, LogError> {
        Ok(self.content()?.manifest)
    }

    fn read_chunk(&mut self, position: u64, number: u64, _patience: Duration) -> Result<Option<Vec<u8>>, LogError> {
        Ok(self.content()?.chunks.get(&(position, number)).cloned())
    }

    fn discard_chunks(&mut self, position: u64, _patience: Duration) -> Result<(), LogError> {
        self.content()?.chunks.retain(|(found, _), _| *found != position);
        Ok(())
    }

    fn read_claim(&mut self, _patience: Duration) -> Result<Vec<u8>, LogError> {
        Ok(self.content()?.claim.clone())
    }

    fn replace_claim(&mut self, seen: &[u8], claim: &[u8], _patience: Duration) -> Result<bool, LogError> {
        let mut content = self.content()?;
        let is_seen = content.claim == seen;
        if is_seen {
            content.claim = claim.to_vec();
        }
        Ok(is_seen)
    }

    fn handle(&self) -> Box<dyn SharedLog> {
        Box::new(self.clone())
    }

    fn address(&self) -> String {
        "memory".into()
    }
}

fn key(name: &str) -> Key {
    Key::new(Resource("pods"), "default", name)
}

fn put(txn: &mut Txn<'_>, name: &str, body: &str) -> StoreResult<u64> {
    txn.put(&key(name), name, |revision| format!("{body}@{revision}"), "test", Time::UNIX_EPOCH)
}

fn write(store: &mut Store, name: &str, body: &str) -> Result<u64, CommitError> {
    let mut txn = store.write(WAIT).map_err(CommitError::Refused)?;
    put(&mut txn, name, body).map_err(CommitError::Refused)?;
    txn.commit()
}

/// The revision, the objects and a setting of a store.
fn state(store: &mut Store) -> (u64, Vec<(String, String)>, Option<String>) {
    store.follow().unwrap();
    assert_eq!(store.check().unwrap(), Vec::<String>::new());
    let snapshot = store.read().unwrap();
    let objects = snapshot.list_all().unwrap();
    let objects = objects.iter().map(|stored| (stored.key.name.to_string(), stored.body.to_string())).collect();
    (snapshot.revision().unwrap(), objects, snapshot.meta("setting").unwrap())
}

fn two_replicas() -> (MemoryLog, tempfile::TempDir, Store, Store) {
    let (log, folder) = (MemoryLog::default(), tempfile::tempdir().unwrap());
    let [a, b] = ["a", "b"].map(|name| log.open(&folder.path().join(name)));
    (log, folder, a, b)
}

#[test]
fn replicas_see_each_other_with_the_same_revisions() {
    let (_log, _folder, mut a, mut b) = two_replicas();
    assert_eq!(write(&mut a, "x", "1"), Ok(1));
    assert_eq!(write(&mut b, "y", "2"), Ok(2));
    let mut txn = a.write(WAIT).unwrap();
    txn.remove(&key("x"), |_| "{}".into(), "test", Time::UNIX_EPOCH).unwrap();
    txn.set_meta("setting", "on").unwrap();
    txn.commit().unwrap();
    assert_eq!(state(&mut b), (3, vec![("y".into(), "2@2".into())], Some("on".into())));
    assert_eq!(state(&mut a), state(&mut b));
    let changes = b.read().unwrap().log_after(0, 10).unwrap();
    assert_eq!(changes, a.read().unwrap().log_after(0, 10).unwrap());
}

#[test]
fn transaction_that_is_overtaken_changes_nothing() {
    let (_log, _folder, mut a, mut b) = two_replicas();
    write(&mut a, "x", "1").unwrap();
    let mut txn = a.write(WAIT).unwrap();
    put(&mut txn, "x", "slow").unwrap();
    write(&mut b, "x", "quick").unwrap();
    assert_eq!(txn.commit(), Err(OVERTAKEN));
    assert_eq!(state(&mut a), (2, vec![("x".into(), "quick@2".into())], None));
    assert_eq!(write(&mut a, "x", "again"), Ok(3));
    assert_eq!(state(&mut a), state(&mut b));
}

#[test]
fn parts_that_were_undone_are_not_shared() {
    let (_log, _folder, mut a, mut b) = two_replicas();
    let mut txn = a.write(WAIT).unwrap();
    for (name, is_kept) in [("x", true), ("y", false), ("z", true)] {
        let part = txn.begin_part().unwrap();
        put(&mut txn, name, "1").unwrap();
        txn.set_meta("setting", name).unwrap();
        txn.end_part(part, is_kept).unwrap();
    }
    let parked = txn.park();
    a.resume(parked).commit().unwrap();
    let objects = vec![("x".into(), "1@1".into()), ("z".into(), "1@2".into())];
    assert_eq!(state(&mut b), (2, objects, Some("z".into())));
    assert_eq!(state(&mut a), state(&mut b));
}

#[test]
fn commit_without_an_answer_is_decided_by_the_reopening() {
    for (fault, expected) in [(LogFault::LostAppend, "before"), (LogFault::LostAnswer, "after")] {
        let (log, _folder, mut a, mut b) = two_replicas();
        write(&mut a, "x", "before").unwrap();
        log.fail(Some(fault));
        assert!(matches!(write(&mut a, "x", "after"), Err(CommitError::Unknown { .. })));
        assert!(a.needs_reopen());
        assert!(matches!(a.read().err(), Some(StoreError::Uncertain { .. })));
        a.reopen(WAIT).unwrap();
        assert!(state(&mut a).1[0].1.starts_with(expected), "{fault:?}");
        assert_eq!(write(&mut a, "y", "1"), Ok(state(&mut b).0));
        assert_eq!(state(&mut a), state(&mut b));
    }
}

#[test]
fn without_a_quorum_nothing_is_written_and_the_copy_can_be_read() {
    let (log, folder, mut a, _b) = two_replicas();
    write(&mut a, "x", "1").unwrap();
    log.fail(Some(LogFault::NoQuorum));
    assert!(matches!(write(&mut a, "x", "2"), Err(CommitError::Refused(StoreError::Unreachable { .. }))));
    assert!(matches!(a.follow(), Err(StoreError::Unreachable { .. })));
    assert_eq!(a.read().unwrap().get(&key("x")).unwrap().unwrap().body, "1@1".into());
    assert!(log.try_open(&folder.path().join("c")).is_err());
    log.fail(None);
    assert_eq!(write(&mut a, "x", "2"), Ok(2));
}

#[test]
fn attempts_and_compaction_stay_local() {
    let (log, _folder, mut a, mut b) = two_replicas();
    write(&mut a, "x", "1").unwrap();
    for _ in 0..3 {
        write(&mut a, "x", "2").unwrap();
    }
    let head = log.0.lock().unwrap().head;
    let mut txn = a.write(WAIT).unwrap();
    let attempt = crate::store::ContainerAttempt { pod_uid: "x".into(), container: "c".into(), attempt: 1, epoch: 1 };
    txn.record_attempt(&attempt).unwrap();
    txn.commit().unwrap();
    let keep = Retention { at_least: 0, at_most: 1, since: Time::MAX, bytes: u64::MAX };
    assert_eq!(a.compact(&keep, 100), Ok(4));
    assert_eq!(log.0.lock().unwrap().head, head);
    assert_eq!(b.read().unwrap().attempts().unwrap(), []);
    // The name is used again: the two logs have different earlier entries of it.
    let mut txn = a.write(WAIT).unwrap();
    txn.remove(&key("x"), |_| "{}".into(), "test", Time::UNIX_EPOCH).unwrap();
    txn.commit().unwrap();
    a.compact(&keep, 100).unwrap();
    write(&mut a, "x", "new").unwrap();
    write(&mut b, "x", "newer").unwrap();
    assert_eq!(state(&mut a), state(&mut b));
}

#[test]
fn late_replica_begins_with_the_snapshot() {
    let (log, folder, mut a, mut b) = two_replicas();
    for name in ["x", "y", "z"] {
        write(&mut a, name, &"1".repeat(600_000)).unwrap();
    }
    let mut txn = a.write(WAIT).unwrap();
    txn.remove(&key("y"), |_| "{}".into(), "test", Time::UNIX_EPOCH).unwrap();
    txn.set_meta("setting", "on").unwrap();
    txn.commit().unwrap();
    a.share_snapshot().unwrap();
    assert!(log.0.lock().unwrap().chunks.len() > 1);
    log.0.lock().unwrap().batches.clear();
    write(&mut a, "w", "after").unwrap();
    let mut c = log.open(&folder.path().join("c"));
    assert_eq!(state(&mut c), state(&mut a));
    assert_eq!(state(&mut b), state(&mut a), "a replica that was too late");
    assert_eq!(c.read().unwrap().floor().unwrap(), 4);
    write(&mut c, "y", "again").unwrap();
    write(&mut b, "x", "changed").unwrap();
    assert_eq!([state(&mut a), state(&mut b)], [state(&mut c), state(&mut c)]);
    // Without the snapshot, the missing batches are an error.
    log.0.lock().unwrap().manifest = None;
    let error = log.try_open(&folder.path().join("d")).err().unwrap().to_string();
    assert!(error.contains("neither the batch 1 nor a snapshot after it"), "{error}");
}

#[test]
fn another_or_an_older_cluster_is_refused() {
    let (log, _folder, mut a, _b) = two_replicas();
    write(&mut a, "x", "1").unwrap();
    let head = std::mem::take(&mut log.0.lock().unwrap().head);
    assert!(matches!(a.write(WAIT).err(), Some(StoreError::Denied { .. })));
    log.0.lock().unwrap().head = head;
    write(&mut a, "x", "2").unwrap();
    log.0.lock().unwrap().cluster = Some("another".into());
    assert!(matches!(a.write(WAIT).err(), Some(StoreError::Denied { .. })));
    log.0.lock().unwrap().cluster = None;
    assert!(matches!(a.follow(), Err(StoreError::Denied { .. })));
    assert_eq!(a.read().unwrap().get(&key("x")).unwrap().unwrap().body, "2@2".into(), "the copy stays");
}

#[test]
fn claim_is_renewed_and_ends_with_its_holder() {
    let (_log, _folder, mut a, mut b) = two_replicas();
    let nobody = a.read_claim().unwrap();
    assert!(nobody.is_none());
    let renewal = a.claim_lead(&nobody, "one").unwrap().expect("claimed");
    assert!(b.claim_lead(&nobody, "two").unwrap().is_none());
    let first = b.read_claim().unwrap();
    assert_eq!((first.host().as_str(), first.pid()), ("one", std::process::id()));
    let start = Instant::now();
    while b.read_claim().unwrap() == first {
        assert!(start.elapsed() < WAIT, "the claim is renewed");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(renewal);
    assert!(b.read_claim().unwrap().is_none());
    let seen = b.read_claim().unwrap();
    let other = b.claim_lead(&seen, "two").unwrap().expect("claimed");
    assert_eq!(a.read_claim().unwrap().host(), "two");
    drop(other);
}

/// Pseudo-random numbers (a linear congruential generator).
struct Numbers(u64);

impl Numbers {
    fn next_below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// One random step at a replica: a write, a removal, a compaction, a snapshot, or a fault. Adds acknowledged writes to the model.
fn random_step(numbers: &mut Numbers, log: &MemoryLog, store: &mut Store, model: &mut BTreeMap<String, String>) {
    if store.needs_reopen() {
        store.reopen(WAIT).unwrap();
    }
    let name = format!("n{}", numbers.next_below(5));
    match numbers.next_below(12) {
        0 => drop(store.compact(&Retention { at_least: 0, at_most: 2, since: Time::MAX, bytes: u64::MAX }, 100)),
        1 => {
            store.share_snapshot().unwrap();
            let mut content = log.0.lock().unwrap();
            let newest = content.manifest.map_or(0, |manifest| manifest.position);
            content.batches.retain(|number, _| *number > newest);
        }
        2 => log.fail(Some([LogFault::LostAppend, LogFault::LostAnswer][numbers.next_below(2) as usize])),
        step => {
            let mut txn = store.write(WAIT).unwrap();
            let is_removal = step < 5;
            if is_removal && txn.get(&key(&name)).unwrap().is_none() {
                return;
            }
            let body = format!("{}", numbers.0);
            let revision = match is_removal {
                true => txn.remove(&key(&name), |_| "{}".into(), "test", Time::UNIX_EPOCH).unwrap(),
                false => put(&mut txn, &name, &body).unwrap(),
            };
            let committed = txn.commit();
            let is_stored = match committed {
                Ok(_) => true,
                Err(CommitError::Unknown { .. }) => {
                    store.reopen(WAIT).unwrap();
                    let found = store.read().unwrap().get(&key(&name)).unwrap();
                    found.map_or(is_removal, |found| !is_removal && found.revision == revision)
                }
                Err(error) => panic!("{error}"),
            };
            match is_stored {
                true if is_removal => drop(model.remove(&name)),
                true => drop(model.insert(name, format!("{body}@{revision}"))),
                false => {}
            }
        }
    }
}

#[test]
fn no_acknowledged_write_is_lost_by_any_fault() {
    for seed in 0..6 {
        let (log, folder, a, b) = two_replicas();
        let (mut stores, mut model, mut numbers) = (vec![a, b], BTreeMap::new(), Numbers(seed));
        for step in 0..120 {
            let place = numbers.next_below(stores.len() as u64) as usize;
            random_step(&mut numbers, &log, &mut stores[place], &mut model);
            if step % 50 == 40 {
                stores.push(log.open(&folder.path().join(format!("late-{step}"))));
            }
        }
        for store in &mut stores {
            if store.needs_reopen() {
                store.reopen(WAIT).unwrap();
            }
            let objects = state(store).1;
            let expected: Vec<_> = model.iter().map(|(name, body)| (name.clone(), body.clone())).collect();
            assert_eq!(objects, expected, "seed {seed}");
        }
    }
}
