//! The newest entries of the log, read once for all watches.
//!
//! One thread waits for changes of the store and keeps the newest entries. It wakes all watches, which take the entries that they have not
//! sent yet. A watch that is further behind reads the log itself.

use crate::apiserver::Api;
use crate::object::IgnorePoison;
use crate::reconcile::store_files::identity;
use crate::store::{LogEntry, OpenMode, watch_hint};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::sync::watch::{Receiver, Sender, channel};

/// Maximum number of kept entries,
const MAX_ENTRIES: usize = 4096;
/// and maximum size of their bodies together: 32 MiB.
const MAX_ENTRY_BYTES: usize = 32 << 20;
/// Maximum number of entries per read.
const BATCH: usize = 1000;
/// Longest wait for a notification, because notifications can be lost.
const MAX_WAIT: Duration = Duration::from_millis(500);
/// Pause between reads where there are no notifications.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The newest entries of the log.
pub struct LogTail {
    recent: Mutex<Recent>,
    head: Sender<u64>,
}

/// The newest entries, and the size of their bodies.
#[derive(Default)]
struct Recent {
    entries: VecDeque<Arc<LogEntry>>,
    bytes: usize,
}

impl Recent {
    fn add(&mut self, entry: LogEntry) {
        self.bytes += entry.bytes();
        self.entries.push_back(Arc::new(entry));
        while self.entries.len() > MAX_ENTRIES || self.bytes > MAX_ENTRY_BYTES && self.entries.len() > 1 {
            self.bytes -= self.entries.pop_front().map_or(0, |entry| entry.bytes());
        }
    }
}

impl LogTail {
    /// Starts reading, while the state file is this one; ends when it is dropped.
    pub fn start(state: &Path, place: Option<(u64, u64)>) -> anyhow::Result<Arc<LogTail>> {
        let api = Api::open(state, OpenMode::Existing, "serve")?;
        let head = api.read(|snapshot| snapshot.revision())?;
        let tail = Arc::new(LogTail { recent: Mutex::default(), head: channel(head).0 });
        let kept = Arc::downgrade(&tail);
        std::thread::Builder::new().name("tail".into()).spawn(move || follow(&api, &kept, head, place))?;
        Ok(tail)
    }

    /// Returns a receiver that is notified of new entries.
    pub fn news(&self) -> Receiver<u64> {
        self.head.subscribe()
    }

    /// Returns the entries after a revision; `None` when they are no longer kept here.
    pub fn entries_after(&self, revision: u64) -> Option<Vec<Arc<LogEntry>>> {
        let recent = self.recent.lock().ignore_poison();
        if revision >= *self.head.borrow() {
            return Some(Vec::new());
        }
        let first = recent.entries.front()?.revision;
        // Revisions have no gaps.
        let at = (revision + 1).checked_sub(first)?;
        Some(recent.entries.iter().skip(at as usize).take(BATCH).cloned().collect())
    }

    fn add(&self, entries: Vec<LogEntry>) {
        let Some(head) = entries.last().map(|entry| entry.revision) else { return };
        let mut recent = self.recent.lock().ignore_poison();
        entries.into_iter().for_each(|entry| recent.add(entry));
        self.head.send_replace(head);
    }

    /// Continues from this revision; earlier entries are unknown.
    fn skip_to(&self, head: u64) {
        let mut recent = self.recent.lock().ignore_poison();
        *recent = Recent::default();
        self.head.send_replace(head);
    }
}

fn follow(api: &Api, tail: &Weak<LogTail>, mut last: u64, place: Option<(u64, u64)>) {
    let hint = watch_hint(api.store());
    loop {
        let Some(tail) = tail.upgrade() else { return };
        if identity(api.store().path()) != place {
            // No more entries follow; the watches meet the error themselves.
            return tail.skip_to(u64::MAX);
        }
        match api.read(|snapshot| snapshot.log_after(last, BATCH)) {
            Ok(entries) => {
                let is_more = !entries.is_empty();
                last = entries.last().map_or(last, |entry| entry.revision);
                tail.add(entries);
                if is_more {
                    continue;
                }
            }
            // The log was compacted or cannot be read: the watches read it themselves and meet the error.
            Err(_) => {
                last = api.read(|snapshot| snapshot.revision()).unwrap_or(last);
                tail.skip_to(last);
            }
        }
        drop(tail);
        match &hint {
            Some(hint) => drop(hint.wait(MAX_WAIT)),
            None => std::thread::sleep(POLL_INTERVAL),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Key, Resource, Time};
    use crate::store::{ChangeKind, StoredObject};

    #[test]
    fn log_tail_gives_kept_entries_only() {
        let sized = |revision: u64, size: usize| {
            let key = Key::new(Resource("pods"), "default", "a");
            let stored = StoredObject { key, uid: "u".into(), revision, body: "x".repeat(size).into() };
            LogEntry {
                revision,
                change: ChangeKind::Put(stored),
                previous: None,
                actor: "t".into(),
                at: Time::UNIX_EPOCH,
            }
        };
        let entry = |revision: u64| sized(revision, 2);
        let tail = LogTail { recent: Mutex::default(), head: channel(10).0 };
        assert_eq!(tail.entries_after(10).map(|entries| entries.len()), Some(0));
        assert!(tail.entries_after(9).is_none(), "the entry is no longer kept");
        tail.add((11..=13).map(entry).collect());
        let given =
            |revision| Some(tail.entries_after(revision)?.iter().map(|entry| entry.revision).collect::<Vec<_>>());
        assert_eq!(given(10), Some(vec![11, 12, 13]));
        assert_eq!(given(12), Some(vec![13]));
        assert_eq!(given(13), Some(vec![]));
        assert_eq!(given(9), None);
        tail.add((14..=14 + MAX_ENTRIES as u64).map(entry).collect());
        assert_eq!(given(12), None);
        tail.skip_to(9000);
        assert_eq!((given(8999), given(9000)), (None, Some(vec![])));
        // Large entries are kept up to the size limit, and the newest one always.
        tail.add((9001..=9040).map(|revision| sized(revision, 1 << 20)).collect());
        assert_eq!((given(9007), given(9009).map(|kept| kept.len())), (None, Some(31)));
        tail.add(vec![sized(9041, MAX_ENTRY_BYTES + 1)]);
        assert_eq!((given(9039), given(9040)), (None, Some(vec![9041])));
    }
}
