//! Says when something in folders has changed, once for each burst of changes; what has changed is for the asker to see.

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// A burst is over when nothing has changed for so long,
const QUIET: Duration = Duration::from_millis(300);
/// or has gone on for so long.
const LONGEST_BURST: Duration = Duration::from_secs(5);
/// Between two looks where nothing can be watched.
const PAUSE: Duration = Duration::from_secs(1);

/// Folders that are watched until this is dropped.
pub struct DebouncedWatch {
    told: Receiver<()>,
    /// None where the machine cannot watch (no more inotify instances, say).
    watcher: Option<RecommendedWatcher>,
}

impl DebouncedWatch {
    /// Watches folders from now on, those below them too where it is said.
    pub fn watch(folders: &[PathBuf], recursive: bool) -> DebouncedWatch {
        let (tell, told) = channel();
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            if !event.is_ok_and(|event| matches!(event.kind, EventKind::Access(_))) {
                let _ = tell.send(());
            }
        });
        let mode = if recursive { RecursiveMode::Recursive } else { RecursiveMode::NonRecursive };
        let watcher = watcher.ok().and_then(|mut watcher| {
            folders.iter().try_for_each(|folder| watcher.watch(folder, mode)).ok().map(|()| watcher)
        });
        DebouncedWatch { told, watcher }
    }

    /// Waits for the end of the next burst, at most for so long; where nothing can be watched, for a moment.
    pub fn wait(&self, most: Duration) {
        if self.watcher.is_none() {
            return std::thread::sleep(PAUSE.min(most));
        }
        if self.told.recv_timeout(most).is_err() {
            return;
        }
        let end = Instant::now() + LONGEST_BURST;
        while Instant::now() < end && self.told.recv_timeout(QUIET).is_ok() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_is_told_and_silence_is_not() {
        let home = tempfile::tempdir().unwrap();
        let below = home.path().join("below");
        std::fs::create_dir(&below).unwrap();
        let touched = DebouncedWatch::watch(&[home.path().to_owned()], true);
        std::fs::write(below.join("a.yaml"), "a").unwrap();
        let start = Instant::now();
        touched.wait(Duration::from_secs(600));
        assert!(start.elapsed() < Duration::from_secs(600));
        assert!(touched.told.try_recv().is_err(), "the burst is over");
    }
}
