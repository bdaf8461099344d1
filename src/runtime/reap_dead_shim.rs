//! Cleans up after a shim that died: kills the remaining processes of its pod, and corrects its record.

use super::folder::{self, TERMINATION_LOG};
use super::process::{self, ProcessIdentity, ProcessStat};
use super::wire::{ContainerRecord, RecordedEnd, RecordedState, ShimRecord, VERSION};
use crate::world::AttemptEnd;
use rustix::process::Signal;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The attempt that a process belongs to by the environment it was started with: the path of the termination message.
pub fn mark(pid: i32) -> Option<PathBuf> {
    process::environment(pid, TERMINATION_LOG).map(PathBuf::from)
}

/// Kills the remaining processes of a dead shim, and completes its record. Returns whether the record changed.
///
/// Only the holder of the folder's lock may call this. Ignores records of an earlier boot, whose processes no longer exist.
pub fn end_processes(pod: &Path, record: &mut ShimRecord) -> bool {
    settle_all(&mut [(pod.to_owned(), record)])
}

/// Like [`end_processes`] for many pods, with one scan of the machine's processes.
pub fn settle_all(pods: &mut [(PathBuf, &mut ShimRecord)]) -> bool {
    let boot = process::boot_id();
    let of_this_boot = |record: &ShimRecord| record.boot == boot && !record.left;
    let dead: Vec<(&Path, &ShimRecord)> =
        pods.iter().filter(|(_, record)| of_this_boot(record)).map(|(pod, record)| (&**pod, &**record)).collect();
    if !dead.is_empty() {
        sweep(&dead);
    }
    let mut changed = false;
    for (pod, record) in pods.iter_mut() {
        changed |= note_begun(pod, record);
        let why = why_unknown(record, &boot);
        for container in record.containers.values_mut().filter(|container| is_running(container)) {
            container.state = RecordedState::Ended(unknown(container, &why));
            changed = true;
        }
        record.boot.clone_from(&boot);
        record.left = true;
        record.version = VERSION;
    }
    changed
}

/// Records attempts that have a log but no record: they may have run. Their end counts as unknown, so that a container that must not
/// restart runs at most once.
fn note_begun(pod: &Path, record: &mut ShimRecord) -> bool {
    let attempts = folder::newest_attempts(pod);
    let unrecorded = attempts
        .into_iter()
        .filter(|(name, attempt)| record.containers.get(name).is_none_or(|known| known.attempt < *attempt));
    let mut changed = false;
    for (name, attempt) in unrecorded.collect::<Vec<_>>() {
        let before = record.containers.remove(&name);
        let last = before.and_then(|before| before.ended().cloned().or(before.last));
        let state = RecordedState::Ended(RecordedEnd::unknown(AttemptEnd::SHIM_EXITED, None));
        record.containers.insert(name, ContainerRecord { attempt, state, stopping: None, last });
        changed = true;
    }
    changed
}

fn is_running(container: &ContainerRecord) -> bool {
    container.process().is_some()
}

fn why_unknown(record: &ShimRecord, boot: &str) -> String {
    match record.version {
        version if version != VERSION && record.boot == boot => format!(
            "The container ran under another version of kloop (its shim speaks version {version}, this one {VERSION}) \
             and was ended with it"
        ),
        _ => AttemptEnd::SHIM_EXITED.to_owned(),
    }
}

/// Makes the unknown end of a container, with the time at which it started.
fn unknown(container: &ContainerRecord, message: &str) -> RecordedEnd {
    let started = match container.state {
        RecordedState::Running { since, .. } => Some(since),
        _ => None,
    };
    RecordedEnd::unknown(message, started)
}

/// Kills until nothing of these pods is left. What cannot be killed (it waits in the kernel) is left after two seconds.
fn sweep(dead: &[(&Path, &ShimRecord)]) {
    let deadline = Instant::now() + Duration::from_secs(2);
    let mut sessions = HashSet::new();
    loop {
        let victims = leftovers(dead, &mut sessions);
        for victim in &victims {
            victim.kill();
        }
        if victims.is_empty() || Instant::now() > deadline {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The recorded main processes, the members of their sessions, processes with the mark of their pods, and the descendants of all of them.
///
/// A session belongs to the container only if its leader was verified to be the recorded process: the pid may have been reused.
fn leftovers(dead: &[(&Path, &ShimRecord)], sessions: &mut HashSet<i32>) -> Vec<ProcessIdentity> {
    let processes: Vec<ProcessStat> = process::all_processes().filter(|stat| !stat.zombie).collect();
    let mains = dead.iter().flat_map(|(_, record)| record.containers.values().filter_map(ContainerRecord::process));
    let mains: Vec<ProcessIdentity> =
        mains.filter(|main| processes.iter().any(|stat| stat.identity == *main)).collect();
    sessions.extend(mains.iter().map(|main| main.pid));
    let is_marked = |pid: i32| mark(pid).is_some_and(|mark| dead.iter().any(|(pod, _)| mark.starts_with(pod)));
    let is_root = |stat: &ProcessStat| sessions.contains(&stat.session) || is_marked(stat.identity.pid);
    let own = std::process::id() as i32;
    let others = processes.iter().filter(|stat| stat.identity.pid != own);
    let mut victims: Vec<ProcessIdentity> = others.filter(|stat| is_root(stat)).map(|stat| stat.identity).collect();
    let mut seen: HashSet<i32> = victims.iter().map(|victim| victim.pid).collect();
    let mut below: HashMap<i32, Vec<ProcessIdentity>> = HashMap::new();
    for stat in &processes {
        below.entry(stat.parent).or_default().push(stat.identity);
    }
    let mut next = 0;
    while let Some(parent) = victims.get(next).copied() {
        let children = below.get(&parent.pid).into_iter().flatten();
        victims.extend(children.filter(|child| child.pid != own && seen.insert(child.pid)));
        next += 1;
    }
    victims
}

/// Ends a shim that does not answer, with all its descendants. Stops the shim first, so that it neither starts a process nor reports the
/// killed ones as ended by themselves.
pub fn end_shim(shim: ProcessIdentity) {
    shim.signal(Signal::STOP);
    // The next iteration meets new forks; processes stuck in the kernel are left to the sweep that follows.
    for _ in 0..64 {
        let below = process::descendants(shim.pid);
        if below.iter().filter(|stat| !stat.zombie && stat.identity.kill()).count() == 0 {
            break;
        }
    }
    shim.kill();
}

/// Takes over the folders of pods whose shims are gone, holding each folder's lock: kills their remaining processes, completes their
/// records and sets our epoch in them. Does nothing if there is a later leader.
pub fn take_over(pods: &[PathBuf], epoch: u64) -> Vec<(PathBuf, ShimRecord)> {
    if pods.first().is_some_and(|pod| folder::read_epoch_above(pod) > epoch) {
        return Vec::new();
    }
    let held = pods.iter().filter_map(|pod| Some((pod.clone(), folder::lock(pod).ok()??)));
    let mut found: Vec<(PathBuf, rustix::fd::OwnedFd, ShimRecord)> = held
        .map(|(pod, lock)| {
            // Without a record its shim may have died between a start and the record of it.
            let unrecorded = || ShimRecord { boot: process::boot_id(), ..ShimRecord::empty() };
            let record = folder::read_record(&pod).unwrap_or_else(unrecorded);
            (pod, lock, record)
        })
        .filter(|(_, _, record)| record.epoch <= epoch)
        .collect();
    let mut records: Vec<(PathBuf, &mut ShimRecord)> =
        found.iter_mut().map(|(pod, _, record)| (pod.clone(), record)).collect();
    settle_all(&mut records);
    for (pod, record) in records {
        record.epoch = epoch;
        let _ = folder::write_record(&pod, record);
    }
    found.into_iter().map(|(pod, _lock, record)| (pod, record)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_left_to_a_later_leader() {
        let state = tempfile::tempdir().unwrap();
        let pod = state.path().join("pods").join("u");
        std::fs::create_dir_all(&pod).unwrap();
        folder::write_record(&pod, &ShimRecord { epoch: 3, ..ShimRecord::empty() }).unwrap();
        // A later leader has opened the state folder, and this pod's shim has not written since.
        folder::write_epoch(state.path(), 5).unwrap();
        assert_eq!(take_over(std::slice::from_ref(&pod), 4), []);
        assert_eq!(folder::read_record(&pod).unwrap().epoch, 3);
        assert_eq!(take_over(std::slice::from_ref(&pod), 5).len(), 1);
        assert_eq!(folder::read_record(&pod).unwrap().epoch, 5);
    }
}
