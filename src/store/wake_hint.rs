//! Wake-ups: notifies other processes of a write.
//!
//! Every commit opens a sidecar file for writing and closes it, and `notify` watches that file. Events of the
//! database's own files come too early (the WAL is written before its commit is readable) or not at all. The sidecar's
//! content and times do not change, because the next commit would have to wait for the disk. Hints may be late,
//! repeated or lost, so a watcher always reads the log.

use super::follower::Follower;
use super::state_path::StorePath;
use super::{OpenMode, Store};
use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use rustix::fs::{Mode, OFlags, open};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// The suffix of the file that is opened and closed after each commit.
pub(super) const SIDECAR: &str = ".wake";

/// Maximum polling interval when the file cannot be watched; the interval starts at 1 ms.
const MAX_PAUSE: Duration = Duration::from_millis(50);

/// Receives hints of new commits in a store.
pub struct WakeHint {
    touched: Receiver<()>,
    _watch: HintWatch,
}

/// Calls a function at each hint until it is dropped.
pub struct HintWatch {
    _eyes: HintWatcher,
    /// Brings changes of other machines to a replica.
    _follower: Option<Arc<Follower>>,
}

enum HintWatcher {
    Notify { _watcher: RecommendedWatcher },
    Poll { _poll: DataVersionPoll },
}

/// Wakes the processes that watch the file.
pub(super) fn touch_sidecar(place: &StorePath) {
    // Without the sidecar file there is no watcher.
    drop(open(place.neighbour(SIDECAR), OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()));
}

/// Watches a store's file. `None` for an in-memory store, or when its file cannot be opened a second time.
pub fn watch_hint(store: &Store) -> Option<WakeHint> {
    store.turnstile.as_ref()?;
    // Capacity one is enough: pending hints are equivalent.
    let (touch, touched) = sync_channel(1);
    let watch = WakeHint::spawn(store.path(), move || {
        let _ = touch.try_send(());
    })?;
    Some(WakeHint { touched, _watch: watch })
}

impl WakeHint {
    /// Waits for a hint, at most for `timeout`. Returns whether there was one.
    pub fn wait(&self, timeout: Duration) -> bool {
        self.touched.recv_timeout(timeout).is_ok()
    }

    /// Calls `wake` from a thread at each hint about the store at `path`. This includes the process's own commits,
    /// unless the file cannot be watched (a common limit is 128 watches per user) and is polled instead, every 1 to 50
    /// ms.
    pub fn spawn(path: &Path, wake: impl Fn() + Send + 'static) -> Option<HintWatch> {
        let place = StorePath::from_path(path).ok()?;
        let wake = Arc::new(Mutex::new(wake));
        let eyes = match watch(&place, wake.clone()) {
            Some(watcher) => HintWatcher::Notify { _watcher: watcher },
            None => HintWatcher::Poll { _poll: DataVersionPoll::start(path, wake)? },
        };
        Some(HintWatch { _eyes: eyes, _follower: Follower::start(path) })
    }
}

type WakeCallback<F> = Arc<Mutex<F>>;

fn call<F: Fn()>(wake: &WakeCallback<F>) {
    if let Ok(wake) = wake.lock() {
        wake();
    }
}

fn watch<F: Fn() + Send + 'static>(place: &StorePath, wake: WakeCallback<F>) -> Option<RecommendedWatcher> {
    drop(place.open_sibling(SIDECAR).ok()?);
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // An open event is not a hint; all others are, including lost events.
        let closed = AccessKind::Close(AccessMode::Write);
        if event.map_or(true, |event| !matches!(event.kind, EventKind::Access(kind) if kind != closed)) {
            call(&wake);
        }
    })
    .ok()?;
    watcher.watch(&place.neighbour(SIDECAR), RecursiveMode::NonRecursive).ok()?;
    Some(watcher)
}

/// Polls the data version, on its own connection and thread.
struct DataVersionPoll {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl DataVersionPoll {
    fn start<F: Fn() + Send + 'static>(path: &Path, wake: WakeCallback<F>) -> Option<DataVersionPoll> {
        let store = Store::open(path, OpenMode::Existing).ok()?;
        let mut seen = store.data_version().ok()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name("store-poll".into()).spawn(move || {
            let mut pause = Duration::from_millis(1);
            while !stopped.load(Ordering::Relaxed) {
                std::thread::park_timeout(pause);
                pause = (pause * 2).min(MAX_PAUSE);
                // An unreadable store also wakes the watcher, which then gets the error itself.
                let now = store.data_version().unwrap_or(seen + 1);
                if now != seen {
                    seen = now;
                    pause = Duration::from_millis(1);
                    call(&wake);
                }
            }
        });
        Some(DataVersionPoll { stop, thread: Some(thread.ok()?) })
    }
}

impl Drop for DataVersionPoll {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn file_is_polled_where_it_cannot_be_watched() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.db");
        let mut store = Store::open(&path, OpenMode::Create).unwrap();
        let (send, woken) = channel();
        let wake = move || {
            let _ = send.send(());
        };
        let poll = DataVersionPoll::start(&path, Arc::new(Mutex::new(wake))).unwrap();
        for value in ["one", "two"] {
            let mut txn = store.write(Duration::from_secs(60)).unwrap();
            txn.set_meta("key", value).unwrap();
            txn.commit().unwrap();
            woken.recv_timeout(Duration::from_secs(60)).unwrap();
        }
        drop(poll);
        assert!(woken.recv().is_err(), "the thread has ended");
    }
}
