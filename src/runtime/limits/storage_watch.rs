//! Disk usage of pods with limits, measured every ten seconds.
//!
//! A pod can have millions of files. One with more than [`MAX_ENTRIES`] is measured by a second thread, so that it delays the limits of
//! other such pods only. Start reading at [`StorageWatcher::start`].

use super::super::file_tree::{self, Mounts, WalkEvent, walk};
use super::super::{folder, volumes};
use crate::object::Str;
use crate::world::Report;
use crate::world::limits::{StorageKind, StorageLimit};
use rustix::fs::{AtFlags, CWD, Stat, fstat, statat};
use rustix::io::Errno;
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

/// Maximum number of files and folders that the first thread visits for a pod in a round.
const MAX_ENTRIES: usize = 50_000;

/// A pod and its limits.
type LimitedPod = (Str, Vec<StorageLimit>);

/// Handle of the measuring thread, which ends when this is dropped and sleeps while there are no limits.
#[derive(Default)]
pub struct StorageWatcher(Option<Sender<LimitedPod>>);

impl StorageWatcher {
    /// Starts the thread, which reports pods over their limits.
    pub fn start(&mut self, state: PathBuf, tell: impl Fn(Report) + Clone + Send + 'static) {
        let (sender, orders) = channel();
        // Without a thread there are no reports, as on a machine without quotas.
        self.0 = spawn("room", move || watch(&state, &orders, MAX_ENTRIES, tell)).then_some(sender);
    }

    /// Watches a pod from now on, until its folder is gone.
    pub fn watch(&self, uid: Str, bounds: Vec<StorageLimit>) {
        if let Some(orders) = &self.0 {
            let _ = orders.send((uid, bounds));
        }
    }
}

/// Starts a thread. Returns whether the machine had one left.
fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> bool {
    std::thread::Builder::new().name(name.into()).spawn(work).is_ok()
}

fn watch(
    state: &Path,
    orders: &Receiver<LimitedPod>,
    max_entries: usize,
    tell: impl Fn(Report) + Clone + Send + 'static,
) {
    let mut pods: HashMap<Str, Vec<StorageLimit>> = HashMap::new();
    let mut next = Instant::now();
    let mut large: Option<LargePods> = None;
    loop {
        let is_idle = pods.is_empty() && large.as_ref().is_none_or(|large| large.count == 0);
        let order = match is_idle {
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
                large.iter_mut().for_each(|large| large.take_measured(&mut pods));
                pods.retain(|uid, bounds| match check_pod(state, uid, bounds, max_entries, &tell) {
                    PodUsage::Final => false,
                    PodUsage::Within => true,
                    PodUsage::TooManyFiles => {
                        let large = large.get_or_insert_with(|| LargePods::start(state, tell.clone()));
                        !large.measure((uid.clone(), bounds.clone()))
                    }
                });
                next = Instant::now() + MEASURE_INTERVAL;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// The thread that measures pods with many files, one after the other.
struct LargePods {
    orders: Sender<LimitedPod>,
    /// Pods to measure again, and `None` for one that is over its limits or gone.
    measured: Receiver<Option<LimitedPod>>,
    /// Number of pods that the thread has.
    count: usize,
}

impl LargePods {
    fn start(state: &Path, tell: impl Fn(Report) + Send + 'static) -> LargePods {
        let ((orders, new_orders), (done, measured)) = (channel::<LimitedPod>(), channel());
        let state = state.to_owned();
        spawn("room-large", move || {
            for (uid, bounds) in new_orders {
                let started = Instant::now();
                let usage = check_pod(&state, &uid, &bounds, usize::MAX, &tell);
                if done.send((usage == PodUsage::Within).then_some((uid, bounds))).is_err() {
                    return;
                }
                // Leaves half of the time to others that use the disk.
                std::thread::sleep(started.elapsed());
            }
        });
        LargePods { orders, measured, count: 0 }
    }

    /// Passes a pod to the thread. Returns whether there is one.
    fn measure(&mut self, pod: LimitedPod) -> bool {
        let is_sent = self.orders.send(pod).is_ok();
        self.count += usize::from(is_sent);
        is_sent
    }

    /// Takes the measured pods back, apart from those that have new limits meanwhile.
    fn take_measured(&mut self, pods: &mut HashMap<Str, Vec<StorageLimit>>) {
        for measured in self.measured.try_iter() {
            self.count -= 1;
            if let Some((uid, bounds)) = measured {
                pods.entry(uid).or_insert(bounds);
            }
        }
    }
}

/// Result of a measurement.
#[derive(Debug, PartialEq)]
enum PodUsage {
    /// The pod is over a limit or gone: it is not measured again.
    Final,
    Within,
    /// It has more files than were to be visited.
    TooManyFiles,
}

/// Measures a pod; visits at most so many of its files and folders.
fn check_pod(state: &Path, uid: &Str, bounds: &[StorageLimit], max_entries: usize, tell: &impl Fn(Report)) -> PodUsage {
    let pod = folder::pod_path(state, uid);
    if !pod.exists() {
        return PodUsage::Final;
    }
    let mut left = max_entries;
    for bound in bounds {
        let Some(used) = used_bytes(&pod, &bound.of, &mut left) else { return PodUsage::TooManyFiles };
        if used > bound.most.unsigned_abs() {
            tell(Report::Over { pod_uid: uid.clone(), of: bound.of.clone() });
            return PodUsage::Final;
        }
    }
    PodUsage::Within
}

/// Returns the bytes of a kind of storage; `None` when it has more files than are `left` to visit.
fn used_bytes(pod: &Path, what: &StorageKind, left: &mut usize) -> Option<u64> {
    Some(match what {
        StorageKind::Volume(name) => bytes_below(&pod.join(volumes::FOLDER).join(&**name), left)?,
        StorageKind::Container(name) => bytes_below(&pod.join(&**name), left)? + layer(pod, name),
        StorageKind::Pod => {
            let record = folder::read_record(pod).unwrap_or_default();
            bytes_below(pod, left)? + record.containers.keys().map(|name| layer(pod, name)).sum::<u64>()
        }
    })
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

/// Returns the bytes on disk of the files below a folder; `None` when it has more than are `left` to visit. Follows no links and enters no
/// mounts. If the walk is disturbed, the bytes found so far count.
fn bytes_below(folder: &Path, left: &mut usize) -> Option<u64> {
    let Ok(top) = file_tree::open_folder(CWD, folder) else { return Some(0) };
    let bytes = |found: Stat| u64::try_from(found.st_blocks).unwrap_or(0).saturating_mul(512);
    let (mut sum, mut is_complete): (u64, bool) = (0, true);
    let _ = walk(top, Mounts::Skipped, &mut |found| {
        is_complete = *left > 0;
        *left = left.checked_sub(1).ok_or(Errno::CANCELED)?;
        let bytes = match found {
            WalkEvent::Folder { folder, .. } => fstat(folder).map_or(0, bytes),
            WalkEvent::Other { folder, name, .. } => statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).map_or(0, bytes),
            WalkEvent::Closed { .. } | WalkEvent::Left => 0,
        };
        sum = sum.saturating_add(bytes);
        Ok(())
    });
    is_complete.then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn all_bytes_below(folder: &Path) -> u64 {
        bytes_below(folder, &mut usize::MAX.clone()).unwrap()
    }

    #[test]
    fn disk_usage_counts_files_below_the_folder_only() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir_all(one.path().join("a/b")).unwrap();
        let before = all_bytes_below(one.path());
        fs::write(one.path().join("a/b/file"), vec![7; 100_000]).unwrap();
        fs::write(other.path().join("far"), vec![7; 1_000_000]).unwrap();
        symlink(other.path(), one.path().join("link")).unwrap();
        let grown = all_bytes_below(one.path()) - before;
        assert!((100_000..500_000).contains(&grown), "{grown}");
        assert_eq!(all_bytes_below(&one.path().join("nowhere")), 0);
    }

    #[test]
    fn pod_of_many_files_is_measured_apart_from_others() {
        let state = tempfile::tempdir().unwrap();
        let limit = |most| vec![StorageLimit { of: StorageKind::Pod, most }];
        for (uid, files) in [("large", 30), ("small", 3)] {
            let pod = folder::pod_path(state.path(), uid);
            fs::create_dir_all(&pod).unwrap();
            (0..files).for_each(|name| fs::write(pod.join(name.to_string()), "text").unwrap());
        }
        let check = |uid: &str, max: usize| check_pod(state.path(), &uid.into(), &limit(1 << 30), max, &|_| {});
        assert_eq!((check("large", 29), check("large", 30)), (PodUsage::TooManyFiles, PodUsage::Within));
        assert_eq!((check("small", 10), check("gone", 10)), (PodUsage::Within, PodUsage::Final));
        let (sender, orders) = channel();
        let (tell, reports) = channel();
        let path = state.path().to_owned();
        let thread = std::thread::spawn(move || watch(&path, &orders, 10, move |report| tell.send(report).unwrap()));
        for uid in ["large", "small"] {
            sender.send((uid.into(), limit(1))).unwrap();
        }
        let over = |report| match report {
            Report::Over { pod_uid, .. } => pod_uid,
            other => panic!("{other:?}"),
        };
        let mut found = [over(reports.recv().unwrap()), over(reports.recv().unwrap())];
        found.sort();
        assert_eq!(found.map(|uid| uid.to_string()), ["large", "small"]);
        drop(sender);
        thread.join().unwrap();
    }
}
