//! Watches folders for changes, and waits for the end of a burst of changes. Callers read the changed files themselves.

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Interval between reads of files that cannot be watched.
pub const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// End of a burst for a [`DebouncedWatch`].
const BURST: BurstLimits = BurstLimits { quiet: Duration::from_millis(100), longest: Duration::from_secs(5) };

/// Limits that end a burst of changes.
pub struct BurstLimits {
    /// Time without any change.
    pub quiet: Duration,
    /// Maximum length of the burst.
    pub longest: Duration,
}

impl BurstLimits {
    /// Waits for the end of the burst, and passes each message to `handle`. Returns false when `handle` does, or when the sender is
    /// dropped.
    pub fn wait_for_end<M>(&self, messages: &Receiver<M>, mut handle: impl FnMut(M) -> bool) -> bool {
        let end = Instant::now() + self.longest;
        while Instant::now() < end {
            match messages.recv_timeout(self.quiet) {
                Ok(message) => {
                    if !handle(message) {
                        return false;
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return false,
                Err(RecvTimeoutError::Timeout) => return true,
            }
        }
        true
    }
}

/// Makes a watcher without folders, which calls `on_change` for each change of a file that `concerns` is true for, but not for reads.
/// Returns `None` where the machine cannot watch, for example without free inotify instances.
pub fn create_watcher(
    concerns: impl Fn(&Path) -> bool + Send + 'static,
    on_change: impl Fn() + Send + 'static,
) -> Option<RecommendedWatcher> {
    let is_change = move |event: &notify::Event| {
        let is_read = matches!(event.kind, EventKind::Access(_));
        // Events without a path say that others were lost.
        !is_read && (event.paths.is_empty() || event.paths.iter().any(|path| concerns(path)))
    };
    let handle = move |event: notify::Result<notify::Event>| {
        if event.as_ref().map_or(true, &is_change) {
            on_change();
        }
    };
    notify::recommended_watcher(handle).ok()
}

/// A folder to watch.
#[derive(Clone)]
pub struct WatchedFolder {
    /// Its path.
    pub path: PathBuf,
    /// Whether the folders below it are watched, too.
    pub recursive: bool,
}

/// Folders that are watched until this is dropped.
pub struct DebouncedWatch {
    changes: Receiver<()>,
    /// `None` where the machine cannot watch.
    watcher: Option<RecommendedWatcher>,
}

impl DebouncedWatch {
    /// Starts watching the files in folders that `concerns` is true for.
    pub fn watch(folders: &[WatchedFolder], concerns: impl Fn(&Path) -> bool + Send + 'static) -> DebouncedWatch {
        let (sender, changes) = channel();
        let watcher = create_watcher(concerns, move || {
            let _ = sender.send(());
        });
        let mode = |recursive| if recursive { RecursiveMode::Recursive } else { RecursiveMode::NonRecursive };
        let watcher = watcher.and_then(|mut watcher| {
            let mut watch = |folder: &WatchedFolder| watcher.watch(&folder.path, mode(folder.recursive));
            folders.iter().try_for_each(&mut watch).ok().map(|()| watcher)
        });
        DebouncedWatch { changes, watcher }
    }

    /// Waits for the end of the next burst, at most for `timeout`; for the poll interval where nothing can be watched.
    pub fn wait(&self, timeout: Duration) {
        if self.watcher.is_none() {
            return std::thread::sleep(POLL_INTERVAL.min(timeout));
        }
        if self.changes.recv_timeout(timeout).is_ok() {
            BURST.wait_for_end(&self.changes, |()| true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_ends_after_a_burst_of_changes() {
        let home = tempfile::tempdir().unwrap();
        let below = home.path().join("below");
        std::fs::create_dir(&below).unwrap();
        let watch = DebouncedWatch::watch(&[WatchedFolder { path: home.path().to_owned(), recursive: true }], |_| true);
        std::fs::write(below.join("a.yaml"), "a").unwrap();
        let start = Instant::now();
        watch.wait(Duration::from_secs(600));
        assert!(start.elapsed() < Duration::from_secs(600));
        assert!(watch.changes.try_recv().is_err(), "the burst is over");
    }

    #[test]
    fn files_that_are_of_no_concern_are_no_changes() {
        let home = tempfile::tempdir().unwrap();
        let (seen, concerned) = channel();
        let concerns = move |path: &Path| {
            let is_manifest = path.ends_with("b.yaml");
            // The watcher's thread passes on one event after the other: those of the log were before.
            is_manifest && seen.send(()).is_ok()
        };
        let (changed, changes) = channel();
        let mut watcher = create_watcher(concerns, move || changed.send(()).unwrap_or_default()).unwrap();
        watcher.watch(home.path(), RecursiveMode::NonRecursive).unwrap();
        std::fs::write(home.path().join("a.log"), "a").unwrap();
        std::fs::write(home.path().join("b.yaml"), "b").unwrap();
        changes.recv().unwrap();
        assert!(concerned.try_recv().is_ok(), "the log was a change");
    }

    #[test]
    fn burst_ends_when_its_messages_do_or_the_handler_says_so() {
        let burst = BurstLimits { quiet: Duration::from_millis(1), longest: Duration::from_secs(600) };
        let (sender, messages) = channel();
        (0..3).for_each(|number| sender.send(number).unwrap());
        let mut handled = Vec::new();
        assert!(burst.wait_for_end(&messages, |number| {
            handled.push(number);
            true
        }));
        assert_eq!(handled, [0, 1, 2]);
        sender.send(3).unwrap();
        assert!(!burst.wait_for_end(&messages, |_| false));
        drop(sender);
        assert!(!burst.wait_for_end(&messages, |_| true));
    }
}
