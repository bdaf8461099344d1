//! The log as a watch: ordered, complete, without duplicates, and resumable.

use super::*;
use kloop::store::{ChangeKind, Retention, StoreError, StoreRead, WakeHint, watch_hint};
use std::sync::mpsc::channel;

const KEEP_NOTHING: Retention = Retention { at_least: 0, at_most: 0, since: Time::UNIX_EPOCH, bytes: u64::MAX };

#[test]
fn watcher_sees_each_entry_once_in_order() {
    let (_dir, store) = scratch();
    let path = store.path();
    std::thread::scope(|scope| {
        let writers = [0, 1, 2].map(|writer| {
            scope.spawn(move || {
                let mut store = Store::open(path, OpenMode::Existing).unwrap();
                for round in 0..40 {
                    let mut txn = store.write(WAIT_TIMEOUT).unwrap();
                    // Two entries per transaction, which must appear together.
                    for half in ["x", "y"] {
                        let key = pod(&format!("{writer}-{half}"));
                        txn.put(&key, "uid", body(&round.to_string()), "test", at(1)).unwrap();
                    }
                    txn.commit().unwrap();
                }
            })
        });
        let hint = watch_hint(&store).unwrap();
        let mut seen = 0;
        loop {
            let done = writers.iter().all(|writer| writer.is_finished());
            let entries = store.read().unwrap().log_after(seen, usize::MAX).unwrap();
            assert_eq!(entries.len() % 2, 0, "a partial transaction was visible");
            for entry in entries {
                seen += 1;
                assert_eq!(entry.revision, seen);
            }
            if done {
                break;
            }
            hint.wait(Duration::from_millis(20));
        }
        assert_eq!(seen, 240);
    });
}

#[test]
fn every_kept_revision_can_be_resumed() {
    let (_dir, mut store) = scratch();
    for round in 0..10 {
        put(&mut store, ["a", "b", "c"][round % 3], &round.to_string());
    }
    store.compact(&Retention { at_most: 6, ..KEEP_NOTHING }, 100).unwrap();
    let snapshot = store.read().unwrap();
    let tail = snapshot.log_after(4, usize::MAX).unwrap();
    assert_eq!(tail.len(), 6);
    assert!(tail.iter().all(|entry| entry.previous.is_some()), "each entry has its previous body");
    for from in 4..=10 {
        assert_eq!(snapshot.log_after(from, usize::MAX).unwrap(), tail[from as usize - 4..]);
        assert_eq!(
            snapshot.log_after(from, 1).unwrap(),
            tail[from as usize - 4..].iter().take(1).cloned().collect::<Vec<_>>()
        );
    }
    assert_eq!(snapshot.log_after(3, 1), Err(StoreError::Expired { floor: 4 }));
    assert_eq!(snapshot.log_after(11, 1), Err(StoreError::Future { revision: 11, head: 10 }));
}

#[test]
fn removal_has_the_last_state_and_a_new_object_has_no_previous_one() {
    let (_dir, mut store) = scratch();
    put(&mut store, "a", "one");
    let mut txn = store.write(WAIT_TIMEOUT).unwrap();
    txn.remove(&pod("a"), body("last"), "gc", at(5)).unwrap();
    txn.put(&pod("a"), "another uid", body("new"), "test", at(6)).unwrap();
    txn.commit().unwrap();
    let snapshot = store.read().unwrap();
    let history = snapshot.history(&pod("a")).unwrap();
    assert_eq!(history, snapshot.log_after(0, 10).unwrap());
    let [created, removed, again] = &history[..] else { panic!("{history:?}") };
    assert_eq!(created.previous, None);
    let ChangeKind::Removed(last) = &removed.change else { panic!("{removed:?}") };
    assert_eq!((&*last.uid, last.revision, &*removed.actor, removed.at), ("uid-a", 2, "gc", at(5)));
    assert!(last.body.contains("last") && last.body.contains("\"2\""));
    assert_eq!(removed.previous.as_deref(), Some(&*created.change.stored().body));
    assert_eq!(again.previous, None);
    assert_eq!(&*again.change.stored().uid, "another uid");
}

#[test]
fn revisions_continue_after_complete_compaction() {
    let (_dir, mut store) = scratch();
    put(&mut store, "a", "one");
    let mut txn = store.write(WAIT_TIMEOUT).unwrap();
    txn.remove(&pod("a"), body("last"), "test", at(1)).unwrap();
    txn.commit().unwrap();
    assert_eq!(store.compact(&KEEP_NOTHING, 100).unwrap(), 2);
    let path = store.path().to_owned();
    drop(store);
    let mut store = Store::open(&path, OpenMode::Existing).unwrap();
    assert_eq!(store.read().unwrap().history(&pod("a")).unwrap(), []);
    assert_eq!(put(&mut store, "a", "two"), 3);
    assert!(store.check().unwrap().is_empty());
}

#[test]
fn retention_keeps_recent_entries_and_the_last() {
    let (_dir, mut store) = scratch();
    for second in 1..=10 {
        let mut txn = store.write(WAIT_TIMEOUT).unwrap();
        txn.put(&pod("a"), "uid", body("x"), "test", at(second)).unwrap();
        txn.commit().unwrap();
    }
    let cases = [
        (Retention { at_least: 10, at_most: 100, since: at(100), bytes: u64::MAX }, 0),
        (Retention { at_least: 0, at_most: 100, since: at(3), bytes: u64::MAX }, 2),
        (Retention { at_least: 6, at_most: 100, since: at(100), bytes: u64::MAX }, 4),
        (Retention { at_least: 0, at_most: 5, since: at(0), bytes: u64::MAX }, 5),
    ];
    for (keep, floor) in cases {
        while store.compact(&keep, 1).unwrap() > 0 {}
        assert_eq!(store.read().unwrap().floor().unwrap(), floor, "{keep:?}");
    }
}

#[test]
fn retention_limits_bytes_too() {
    let (_dir, mut store) = scratch();
    let large = "x".repeat(1 << 20);
    for _ in 0..20 {
        put(&mut store, "a", &large);
    }
    let keep = Retention { at_least: 100, at_most: 100, since: Time::UNIX_EPOCH, bytes: 5 << 20 };
    while store.compact(&keep, 3).unwrap() > 0 {}
    let floor = store.read().unwrap().floor().unwrap();
    assert_eq!(floor, 16, "four entries have less than 5 MiB");
    let nothing = Retention { bytes: 0, ..keep };
    while store.compact(&nothing, 100).unwrap() > 0 {}
    assert_eq!(store.read().unwrap().floor().unwrap(), 19, "the last one stays");
}

#[test]
fn large_entries_are_read_in_small_batches_without_a_gap() {
    let (_dir, mut store) = scratch();
    let large = "x".repeat(3 << 20);
    for _ in 0..9 {
        put(&mut store, "a", &large);
    }
    let snapshot = store.read().unwrap();
    let (mut seen, mut parts) = (0, Vec::new());
    loop {
        let entries = snapshot.log_after(seen, 1000).unwrap();
        let Some(last) = entries.last() else { break };
        assert_eq!(entries[0].revision, seen + 1);
        seen = last.revision;
        parts.push(entries.len());
    }
    assert_eq!((seen, parts), (9, vec![5, 4]));
}

#[test]
fn commit_of_another_process_wakes_the_watcher() {
    let (_dir, store) = scratch();
    let mut other = Store::open(store.path(), OpenMode::Existing).unwrap();
    let version = store.data_version().unwrap();
    let hint = watch_hint(&store).unwrap();
    let (send, woken) = channel();
    let watch = WakeHint::spawn(store.path(), move || {
        let _ = send.send(());
    });
    put(&mut other, "a", "one");
    assert!(hint.wait(WAIT_TIMEOUT));
    woken.recv_timeout(WAIT_TIMEOUT).unwrap();
    assert_ne!(store.data_version().unwrap(), version);
    drop(watch);
    assert!(watch_hint(&Store::in_memory().unwrap()).is_none());
}

#[test]
fn wal_shrinks_after_a_long_reader() {
    let (_dir, mut store) = scratch();
    let wal = store.dir().join("state.db-wal");
    let length = || std::fs::metadata(&wal).unwrap().len();
    let reader = Store::open(store.path(), OpenMode::Existing).unwrap();
    let snapshot = reader.read().unwrap();
    let big = "x".repeat(1 << 20);
    for round in 0..40 {
        put(&mut store, "a", &format!("{big}{round}"));
    }
    assert!(length() > 32 << 20, "{}", length());
    drop(snapshot);
    for round in 0..40 {
        put(&mut store, "a", &format!("{big}{round}"));
    }
    assert!(length() <= 48 << 20, "{}", length());
    store.compact(&KEEP_NOTHING, 100).unwrap();
    put(&mut store, "a", "small");
    assert!(length() <= 32 << 20, "{}", length());
}

#[test]
fn compaction_frees_space() {
    let (_dir, mut store) = scratch();
    let big = "x".repeat(100_000);
    for round in 0..200 {
        put(&mut store, "a", &format!("{big}{round}"));
    }
    while store.compact(&KEEP_NOTHING, 10).unwrap() > 0 {}
    assert!(store.check().unwrap().is_empty());
    let path = store.path().to_owned();
    drop(store);
    assert!(std::fs::metadata(&path).unwrap().len() < 5_000_000);
}

#[test]
fn backup_is_a_complete_store_and_never_overwrites() {
    let (dir, mut store) = scratch();
    put(&mut store, "a", "one");
    let copy = dir.path().join("copy.db");
    store.backup(&copy).unwrap();
    put(&mut store, "a", "two");
    let again = store.backup(&copy).unwrap_err();
    assert!(again.to_string().contains("exists"), "{again}");
    // The copy uses WAL mode, and is one file (sqlite.org/fileformat2.html: the read and write versions).
    assert_eq!(std::fs::read(&copy).unwrap()[18..20], [2, 2]);
    let beside = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(beside.filter(|name| name.starts_with("copy")).collect::<Vec<_>>(), ["copy.db"]);
    let mut restored = Store::open(&copy, OpenMode::Existing).unwrap();
    assert_eq!(restored.read().unwrap().log_after(0, 10).unwrap().len(), 1);
    assert!(restored.check().unwrap().is_empty());
    assert_eq!(put(&mut restored, "b", "one"), 2);
}

#[test]
fn store_can_be_sent_to_a_thread() {
    fn sendable<T: Send>() {}
    sendable::<Store>();
    sendable::<WakeHint>();
}
