//! Guarantees of the store, tested through its public API.

#[path = "store/basics.rs"]
mod basics;
#[path = "store/crash.rs"]
mod crash;
#[path = "store/model.rs"]
mod model;
#[path = "store/refusals.rs"]
mod refusals;
// The unit tests of the store use it, too.
#[path = "../src/store/testing.rs"]
mod testing;
#[path = "store/watch.rs"]
mod watch;

use kloop::object::{Key, Resource, Time};
use kloop::store::{OpenMode, Store};
use std::time::Duration;
use testing::{WRITE_LOCK_TIMEOUT as WAIT_TIMEOUT, scratch};

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

fn put(store: &mut Store, name: &str, text: &str) -> u64 {
    let mut txn = store.write(WAIT_TIMEOUT).unwrap();
    txn.put(&pod(name), &format!("uid-{name}"), body(text), "test", at(1)).unwrap();
    txn.commit().unwrap()
}
