//! Disk usage of pods with limits, measured every ten seconds.

use super::super::file_tree::{self, Mounts, WalkEvent, walk};
use super::super::{folder, volumes};
use crate::object::Str;
use crate::world::Report;
use crate::world::limits::{StorageKind, StorageLimit};
use rustix::fs::{AtFlags, CWD, Stat, fstat, statat};
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Pause between measurements (Kubernetes: the eviction manager's monitoring interval).
const MEASURE_INTERVAL: Duration = Duration::from_secs(10);
/// Delay before the first measurement of a pod.
const SOON: Duration = Duration::from_secs(1);

/// Handle of the measuring thread, which ends when this is dropped and sleeps while there are no limits.
#[derive(Default)]
pub struct StorageWatcher(Option<Sender<(Str, Vec<StorageLimit>)>>);

impl StorageWatcher {
    /// Starts the thread, which reports pods over their limits.
    pub fn start(&mut self, state: PathBuf, tell: impl Fn(Report) + Send + 'static) {
        let (sender, orders) = channel();
        let thread = std::thread::Builder::new().name("room".into());
        // Without a thread there are no reports, as on a machine without quotas.
        self.0 = thread.spawn(move || watch(&state, &orders, tell)).ok().map(|_| sender);
    }

    /// Watches a pod from now on, until its folder is gone.
    pub fn watch(&self, uid: Str, bounds: Vec<StorageLimit>) {
        if let Some(orders) = &self.0 {
            let _ = orders.send((uid, bounds));
        }
    }
}

fn watch(state: &Path, orders: &Receiver<(Str, Vec<StorageLimit>)>, tell: impl Fn(Report)) {
    let mut pods: HashMap<Str, Vec<StorageLimit>> = HashMap::new();
    let mut next = Instant::now();
    loop {
        let order = match pods.is_empty() {
            true => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => orders.recv_timeout(next.saturating_duration_since(Instant::now())),
        };
        match order {
            Ok((uid, bounds)) => {
                pods.insert(uid, bounds);
                next = next.clamp(Instant::now(), Instant::now() + SOON);
                if next <= Instant::now() {
                    next = Instant::now() + SOON;
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                pods.retain(|uid, bounds| check_pod(state, uid, bounds, &tell));
                next = Instant::now() + MEASURE_INTERVAL;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Whether a pod has to be measured again: it still exists and was within its limits.
fn check_pod(state: &Path, uid: &Str, bounds: &[StorageLimit], tell: &impl Fn(Report)) -> bool {
    let pod = folder::pod_path(state, uid);
    if !pod.exists() {
        return false;
    }
    let over = bounds.iter().find(|bound| used_bytes(&pod, &bound.of) > bound.most.unsigned_abs());
    if let Some(bound) = over {
        tell(Report::Over { pod_uid: uid.clone(), of: bound.of.clone() });
    }
    over.is_none()
}

fn used_bytes(pod: &Path, what: &StorageKind) -> u64 {
    match what {
        StorageKind::Volume(name) => bytes_below(&pod.join(volumes::FOLDER).join(&**name)),
        StorageKind::Container(name) => bytes_below(&pod.join(&**name)) + layer(pod, name),
        StorageKind::Pod => {
            let record = folder::read_record(pod).unwrap_or_default();
            bytes_below(pod) + record.containers.keys().map(|name| layer(pod, name)).sum::<u64>()
        }
    }
}

/// Size of the files that a container wrote in its private layer: its root is a file system of its own then.
fn layer(pod: &Path, container: &str) -> u64 {
    let used = || {
        let main = folder::read_record(pod)?.containers.get(container)?.process()?;
        let root = format!("/proc/{}/root", main.pid);
        let is_own = fs::metadata(&root).ok()?.dev() != fs::metadata("/").ok()?.dev();
        let space = rustix::fs::statvfs(root).ok().filter(|_| is_own)?;
        Some((space.f_blocks.saturating_sub(space.f_bfree)).saturating_mul(space.f_frsize))
    };
    used().unwrap_or(0)
}

/// Returns the bytes on disk of the files below a folder. Follows no links and enters no mounts. If the walk is disturbed, the bytes found
/// so far count.
fn bytes_below(folder: &Path) -> u64 {
    let Ok(top) = file_tree::open_folder(CWD, folder) else { return 0 };
    let bytes = |found: Stat| u64::try_from(found.st_blocks).unwrap_or(0).saturating_mul(512);
    let mut sum: u64 = 0;
    let _ = walk(top, Mounts::Skipped, &mut |found| {
        let bytes = match found {
            WalkEvent::Folder { folder, .. } => fstat(folder).map_or(0, bytes),
            WalkEvent::Other { folder, name, .. } => statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).map_or(0, bytes),
            WalkEvent::Closed { .. } | WalkEvent::Left => 0,
        };
        sum = sum.saturating_add(bytes);
        Ok(())
    });
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn disk_usage_counts_files_below_the_folder_only() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir_all(one.path().join("a/b")).unwrap();
        let before = bytes_below(one.path());
        fs::write(one.path().join("a/b/file"), vec![7; 100_000]).unwrap();
        fs::write(other.path().join("far"), vec![7; 1_000_000]).unwrap();
        symlink(other.path(), one.path().join("link")).unwrap();
        let grown = bytes_below(one.path()) - before;
        assert!((100_000..500_000).contains(&grown), "{grown}");
        assert_eq!(bytes_below(&one.path().join("nowhere")), 0);
    }
}
