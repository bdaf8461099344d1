//! Keeps a replica at the head of its log while processes wait for changes.
//!
//! Knows: changes of other machines arrive by a watch; a periodic check finds those that a watch has lost. Never: writes to the log.
//! Start reading at [`Follower::start`].

use super::replica::is_replica_at;
use super::state_path::StorePath;
use super::{OpenMode, Store};
use crate::object::IgnorePoison;
use std::any::Any;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, LazyLock, Mutex, Weak};
use std::time::Duration;

/// Interval at which the head is checked when no event arrives.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Time for a process of this machine to commit a change that it has just appended to the log.
const OWN_COMMIT: Duration = Duration::from_millis(3);

/// The value of the newest head for one that is not known.
const UNKNOWN: u64 = u64::MAX;

/// Follows the log of a replica until it is dropped. Waiters of one process share one.
pub(super) struct Follower {
    _watch: Box<dyn Any + Send + Sync>,
}

impl Follower {
    /// Starts to follow; `None` for a file that is not a replica, or when it cannot be opened a second time.
    pub fn start(path: &Path) -> Option<Arc<Follower>> {
        static FOLLOWERS: LazyLock<Mutex<BTreeMap<PathBuf, Weak<Follower>>>> = LazyLock::new(Mutex::default);
        if !is_replica_at(&StorePath::from_path(path).ok()?) {
            return None;
        }
        let mut followers = FOLLOWERS.lock().ignore_poison();
        if let Some(follower) = followers.get(path).and_then(Weak::upgrade) {
            return Some(follower);
        }
        let follower = Arc::new(Follower::spawn(path)?);
        followers.insert(path.to_owned(), Arc::downgrade(&follower));
        Some(follower)
    }

    fn spawn(path: &Path) -> Option<Follower> {
        let store = Store::open(path, OpenMode::Existing).ok()?;
        // A capacity of one is enough: the newest head is stored separately.
        let (wake, woken) = sync_channel(1);
        let head = Arc::new(AtomicU64::new(UNKNOWN));
        let newest = head.clone();
        // The thread ends when the watch, and with it the sender, is dropped.
        let watch = store.watch_log(Box::new(move |moved| notify(&wake, &newest, moved)))?;
        let work = move || follow(store, &woken, &head);
        std::thread::Builder::new().name("follower".into()).spawn(work).ok()?;
        Some(Follower { _watch: Box::new(Mutex::new(watch)) })
    }
}

fn notify(wake: &SyncSender<()>, newest: &AtomicU64, moved: Option<u64>) {
    newest.store(moved.unwrap_or(UNKNOWN), Ordering::SeqCst);
    let _ = wake.try_send(());
}

/// Follows until the watch has ended.
fn follow(mut store: Store, woken: &Receiver<()>, head: &AtomicU64) {
    let mut is_behind = false;
    loop {
        let is_look = match woken.recv_timeout(CHECK_INTERVAL) {
            Ok(()) => false,
            Err(RecvTimeoutError::Timeout) => true,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let newest = if is_look { UNKNOWN } else { head.load(Ordering::SeqCst) };
        if store.needs_reopen() && store.reopen(CHECK_INTERVAL).is_err() {
            continue;
        }
        if newest != UNKNOWN && has_batch(&store, newest) {
            continue;
        }
        // The log is read again at the next event or check.
        let followed = store.follow();
        if let Err(error) = &followed
            && !is_behind
        {
            tracing::warn!(%error, "this copy of the state does not follow its log");
        }
        is_behind = followed.is_err();
    }
}

/// Whether the replica has a batch. Most batches come from processes of this machine, which commit them soon after they append them.
fn has_batch(store: &Store, number: u64) -> bool {
    let is_there = || store.position().is_ok_and(|position| position >= number);
    is_there() || {
        std::thread::sleep(OWN_COMMIT);
        is_there()
    }
}
