//! Reads the manifests of static pods from a folder, at the start and after each change (Kubernetes: `--pod-manifest-path`).
//!
//! A watcher triggers the reads. Where the folder cannot be watched, or does not exist, a thread reads it every second. Only changed
//! content is reported.

use super::debounced_watch::{BurstLimits, POLL_INTERVAL, create_watcher};
use crate::kubelet::manifests::ManifestFile;
use crate::object::{io_error_text, yaml};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// End of a burst of changes.
const BURST: BurstLimits = BurstLimits { quiet: Duration::from_millis(50), longest: Duration::from_secs(5) };
/// Interval between reads of a watched folder without changes (kubelet: fileCheckFrequency).
const CHECK: Duration = Duration::from_secs(20);
/// Maximum size of a manifest in bytes (Kubernetes: maxConfigLength).
const MAX_MANIFEST_BYTES: u64 = 10 << 20;

/// A command to the thread.
enum ManifestCommand {
    Changed,
    Quit,
}

/// A folder that is watched until this is dropped.
pub struct ManifestWatch(Sender<ManifestCommand>);

impl ManifestWatch {
    /// Watches a folder. Returns its current content; later changes are passed to `report`.
    pub fn watch(
        folder: &Path,
        report: impl Fn(Vec<ManifestFile>) + Send + 'static,
    ) -> std::io::Result<(ManifestWatch, Vec<ManifestFile>)> {
        let folder = std::path::absolute(folder)?;
        let (sender, commands) = channel();
        let changes = sender.clone();
        let watcher = create_watcher(|_| true, move || drop(changes.send(ManifestCommand::Changed)));
        let mut watcher = ManifestWatcher { folder, watcher, watches: false };
        let first = watcher.read_manifests();
        let known = first.clone();
        std::thread::Builder::new().name("manifests".into()).spawn(move || watcher.follow(&commands, known, report))?;
        Ok((ManifestWatch(sender), first))
    }
}

impl Drop for ManifestWatch {
    fn drop(&mut self) {
        let _ = self.0.send(ManifestCommand::Quit);
    }
}

struct ManifestWatcher {
    folder: PathBuf,
    watcher: Option<RecommendedWatcher>,
    /// Whether the folder is watched.
    watches: bool,
}

impl ManifestWatcher {
    fn follow(
        mut self,
        commands: &Receiver<ManifestCommand>,
        mut known: Vec<ManifestFile>,
        report: impl Fn(Vec<ManifestFile>),
    ) {
        loop {
            let is_change = |command| matches!(command, ManifestCommand::Changed);
            match commands.recv_timeout(if self.watches { CHECK } else { POLL_INTERVAL }) {
                Ok(ManifestCommand::Changed) if BURST.wait_for_end(commands, is_change) => {}
                Err(RecvTimeoutError::Timeout) => {}
                Ok(_) | Err(RecvTimeoutError::Disconnected) => return,
            }
            let found = self.read_manifests();
            if found != known {
                known = found.clone();
                report(found);
            }
        }
    }

    /// Returns the files in the order of their names. Starts watching first, so that no later change is missed.
    fn read_manifests(&mut self) -> Vec<ManifestFile> {
        let is_there = self.folder.is_dir();
        if is_there && !self.watches {
            let watched = self.watcher.as_mut().map(|watcher| watcher.watch(&self.folder, RecursiveMode::NonRecursive));
            self.watches = watched.is_some_and(|result| result.is_ok());
        } else if !is_there && std::mem::take(&mut self.watches) {
            let _ = self.watcher.as_mut().map(|watcher| watcher.unwatch(&self.folder));
        }
        let entries = match std::fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) => {
                return vec![(
                    self.folder.display().to_string(),
                    Err(format!("cannot be read: {error}", error = io_error_text(error))),
                )];
            }
        };
        let mut paths: Vec<PathBuf> =
            entries.flatten().map(|entry| entry.path()).filter(|path| is_manifest(path)).collect();
        paths.sort();
        paths.iter().map(|path| (path.display().to_string(), text(path))).collect()
    }
}

/// Whether a path can be a manifest: any file or link to a file with a name that is not hidden.
fn is_manifest(path: &Path) -> bool {
    let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    !hidden && !path.is_dir()
}

fn text(path: &Path) -> Result<String, String> {
    let meta =
        std::fs::metadata(path).map_err(|error| format!("cannot be read: {error}", error = io_error_text(error)))?;
    if !meta.is_file() {
        return Err("is not a regular file".into());
    }
    let mut bytes = Vec::new();
    let file =
        std::fs::File::open(path).map_err(|error| format!("cannot be read: {error}", error = io_error_text(error)))?;
    file.take(MAX_MANIFEST_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("cannot be read: {error}", error = io_error_text(error)))?;
    if bytes.len() as u64 > MAX_MANIFEST_BYTES {
        return Err(format!("is larger than {MAX_MANIFEST_BYTES} bytes"));
    }
    yaml::decode_bytes(&bytes).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_are_reported_now_and_after_each_change() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("manifests");
        let (send, reports) = channel();
        let (watching, first) = ManifestWatch::watch(&folder, move |files| drop(send.send(files))).unwrap();
        assert!(first[0].1.as_ref().is_err_and(|error| error.contains("cannot be read")), "{first:?}");
        let names = |files: Vec<ManifestFile>| -> Vec<String> {
            files
                .into_iter()
                .map(|(path, text)| format!("{}={}", path.rsplit('/').next().unwrap(), text.unwrap()))
                .collect()
        };
        let until = |wanted: &[&str]| {
            while names(reports.recv_timeout(Duration::from_secs(30)).unwrap()) != wanted {}
        };
        std::fs::create_dir(&folder).unwrap();
        until(&[]);
        std::fs::write(folder.join(".hidden"), "h").unwrap();
        std::fs::write(folder.join("b"), "1").unwrap();
        std::fs::create_dir(folder.join("below")).unwrap();
        until(&["b=1"]);
        std::fs::write(folder.join("a.yaml"), "2").unwrap();
        until(&["a.yaml=2", "b=1"]);
        std::fs::remove_file(folder.join("b")).unwrap();
        until(&["a.yaml=2"]);
        drop(watching);
    }
}
