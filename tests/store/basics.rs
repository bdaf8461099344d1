//! One writer, one reader: committed rows are read back.

use super::*;
use kloop::store::{ContainerAttempt, StoreError, StoreRead};
use std::ops::ControlFlow;

#[test]
fn committed_rows_are_read_by_another_connection() {
    let (_dir, mut store) = scratch();
    assert_eq!(put(&mut store, "a", "one"), 1);
    assert_eq!(put(&mut store, "b", "two"), 2);
    assert_eq!(put(&mut store, "a", "three"), 3);
    let other = Store::open(store.path(), OpenMode::Existing).unwrap();
    let snapshot = other.read().unwrap();
    assert_eq!(snapshot.revision().unwrap(), 3);
    let a = snapshot.get(&pod("a")).unwrap().unwrap();
    assert_eq!((a.revision, &*a.uid), (3, "uid-a"));
    assert_eq!(&*a.body, r#"{"metadata":{"resourceVersion":"3"},"text":"three"}"#);
    let names: Vec<_> = snapshot.list(Resource("pods"), None).unwrap().into_iter().map(|pod| pod.key.name).collect();
    assert_eq!(names, ["a".into(), "b".into()]);
    assert_eq!(snapshot.get(&pod("c")).unwrap(), None);
    assert!(store.check().unwrap().is_empty());
}

#[test]
fn dropped_transaction_changes_nothing_and_uses_no_revision() {
    let (_dir, mut store) = scratch();
    put(&mut store, "a", "one");
    let mut txn = store.write(WAIT_TIMEOUT).unwrap();
    assert_eq!(txn.put(&pod("b"), "u", body("x"), "test", at(1)).unwrap(), 2);
    assert_eq!(txn.revision().unwrap(), 2);
    assert!(txn.get(&pod("b")).unwrap().is_some());
    drop(txn);
    let snapshot = store.read().unwrap();
    assert_eq!(snapshot.revision().unwrap(), 1);
    assert_eq!(snapshot.get(&pod("b")).unwrap(), None);
    drop(snapshot);
    assert_eq!(put(&mut store, "c", "x"), 2);
}

#[test]
fn snapshot_does_not_change() {
    let (_dir, mut store) = scratch();
    put(&mut store, "a", "one");
    let other = Store::open(store.path(), OpenMode::Existing).unwrap();
    let snapshot = other.read().unwrap();
    put(&mut store, "a", "two");
    assert_eq!(snapshot.revision().unwrap(), 1);
    assert_eq!(snapshot.get(&pod("a")).unwrap().unwrap().revision, 1);
    assert_eq!(other.read().unwrap().revision().unwrap(), 1, "concurrent snapshots show the same revision");
    drop(snapshot);
    assert_eq!(other.read().unwrap().revision().unwrap(), 2);
}

#[test]
fn existing_object_keeps_its_uid_and_a_failed_change_aborts() {
    let (_dir, mut store) = scratch();
    put(&mut store, "a", "one");
    let mut txn = store.write(WAIT_TIMEOUT).unwrap();
    txn.put(&pod("b"), "u", body("x"), "test", at(1)).unwrap();
    assert!(matches!(txn.put(&pod("a"), "another", body("x"), "test", at(1)), Err(StoreError::Bug { .. })));
    assert!(txn.commit().is_err());
    let mut txn = store.write(WAIT_TIMEOUT).unwrap();
    let absent = txn.remove(&pod("b"), body("x"), "test", at(1));
    assert_eq!(absent, Err(StoreError::Absent { key: pod("b") }));
    drop(txn);
    assert_eq!(store.read().unwrap().revision().unwrap(), 1);
}

#[test]
fn side_tables_stay_outside_the_log() {
    let (_dir, mut store) = scratch();
    let attempt = |attempt, epoch| ContainerAttempt { pod_uid: "p".into(), container: "c".into(), attempt, epoch };
    let mut txn = store.write(WAIT_TIMEOUT).unwrap();
    txn.set_meta("lease", "a").unwrap();
    txn.set_meta("lease", "b").unwrap();
    txn.record_attempt(&attempt(1, 4)).unwrap();
    txn.record_attempt(&attempt(2, 4)).unwrap();
    assert_eq!(txn.commit().unwrap(), 0);
    let snapshot = store.read().unwrap();
    assert_eq!(snapshot.meta("lease").unwrap().as_deref(), Some("b"));
    assert_eq!(snapshot.meta("other").unwrap(), None);
    assert_eq!(snapshot.attempts().unwrap(), [attempt(2, 4)]);
    drop(snapshot);
    for back in [attempt(1, 4), attempt(3, 3)] {
        let mut txn = store.write(WAIT_TIMEOUT).unwrap();
        assert!(matches!(txn.record_attempt(&back), Err(StoreError::Bug { .. })), "{back:?}");
    }
}

#[test]
fn attempts_are_deleted_with_their_pod() {
    let (_dir, mut store) = scratch();
    let key = pod("web");
    let attempt = |uid: &str| ContainerAttempt { pod_uid: uid.into(), container: "c".into(), attempt: 1, epoch: 4 };
    let mut txn = store.write(WAIT_TIMEOUT).unwrap();
    txn.put(&key, "gone", |_| "{}", "test", at(1)).unwrap();
    ["gone", "stays"].into_iter().for_each(|uid| txn.record_attempt(&attempt(uid)).unwrap());
    txn.remove(&key, |_| "{}".into(), "test", at(2)).unwrap();
    txn.commit().unwrap();
    assert_eq!(store.read().unwrap().attempts().unwrap(), [attempt("stays")]);
}

#[test]
fn memory_store_behaves_like_a_file() {
    let mut store = Store::in_memory().unwrap();
    put(&mut store, "a", "one");
    put(&mut store, "a", "two");
    assert_eq!(store.read().unwrap().log_after(0, 10).unwrap().len(), 2);
    assert!(store.check().unwrap().is_empty());
}

#[test]
fn pages_form_the_complete_list() {
    let mut store = Store::in_memory().unwrap();
    let mut txn = store.write(WAIT_TIMEOUT).unwrap();
    let resource = Resource("configmaps");
    for (namespace, name) in [("a", "x"), ("a", "y"), ("b", "a"), ("b", "z"), ("", "cluster")] {
        txn.put(&Key::new(resource, namespace, name), name, body("x"), "test", at(1)).unwrap();
    }
    txn.put(&pod("other"), "other", body("x"), "test", at(1)).unwrap();
    txn.commit().unwrap();
    let snapshot = store.read().unwrap();
    for namespace in [None, Some("a"), Some("b"), Some("c")] {
        let whole = snapshot.list(resource, namespace).unwrap();
        assert_eq!(whole.len(), snapshot.count(resource, namespace).unwrap());
        for most in [1, usize::MAX] {
            let mut scanned = Vec::new();
            let mut visit = |stored| {
                scanned.push(stored);
                if scanned.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            };
            snapshot.scan(resource, namespace, &mut visit).unwrap();
            assert_eq!(scanned, whole[..most.min(whole.len())]);
        }
        for limit in 1..4 {
            let mut joined: Vec<kloop::store::StoredObject> = Vec::new();
            loop {
                let after = joined.last().map(|last| (last.key.namespace.clone(), last.key.name.clone()));
                let after = after.as_ref().map(|(namespace, name)| (&**namespace, &**name));
                let page = snapshot.page_within(resource, namespace, after, limit, usize::MAX).unwrap();
                if page.is_empty() {
                    break;
                }
                joined.extend(page);
            }
            assert_eq!(joined, whole);
        }
    }
    let all: Vec<_> = snapshot.list_all().unwrap().into_iter().map(|stored| stored.key).collect();
    assert!(all.is_sorted() && all.len() == 6);
}

#[test]
fn scan_shows_what_a_list_shows_at_an_earlier_revision() {
    let (_dir, mut store) = scratch();
    put(&mut store, "a", "one");
    put(&mut store, "b", "two");
    let mut txn = store.write(WAIT_TIMEOUT).unwrap();
    txn.remove(&pod("a"), body("gone"), "test", at(1)).unwrap();
    txn.commit().unwrap();
    let names = |store: &Store| {
        let (snapshot, mut names) = (store.read().unwrap(), Vec::new());
        let mut visit = |stored: kloop::store::StoredObject| {
            // A query may be made during a scan.
            assert_eq!(snapshot.get(&stored.key).unwrap().as_ref(), Some(&stored));
            names.push(stored.key.name.to_string());
            ControlFlow::Continue(())
        };
        snapshot.scan(Resource("pods"), None, &mut visit).unwrap();
        names
    };
    assert_eq!(names(&store), ["b"]);
    store.travel_to(2).unwrap();
    assert_eq!(names(&store), ["a", "b"]);
}
