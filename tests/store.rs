//! Guarantees of the store, tested through its public API.

#[path = "store/basics.rs"]
mod basics;
#[path = "store/crash.rs"]
mod crash;
#[path = "store/model.rs"]
mod model;
#[path = "store/refusals.rs"]
mod refusals;
#[path = "store/watch.rs"]
mod watch;

use kloop::object::{Key, Resource, Time};
use kloop::store::{OpenMode, Store};
use std::time::Duration;

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

fn pod(name: &str) -> Key {
    Key::new(Resource("pods"), "default", name)
}

fn at(second: i64) -> Time {
    Time::from_second(second).unwrap()
}

/// A body that contains its revision, as real ones do.
fn body(text: &str) -> impl FnOnce(u64) -> String + use<> {
    let text = text.to_owned();
    move |revision| format!(r#"{{"metadata":{{"resourceVersion":"{revision}"}},"text":"{text}"}}"#)
}

/// Makes a store in a folder that is deleted after the test.
fn scratch() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("state.db"), OpenMode::Create).unwrap();
    (dir, store)
}

fn put(store: &mut Store, name: &str, text: &str) -> u64 {
    let mut txn = store.write(WAIT_TIMEOUT).unwrap();
    txn.put(&pod(name), &format!("uid-{name}"), body(text), "test", at(1)).unwrap();
    txn.commit().unwrap()
}
