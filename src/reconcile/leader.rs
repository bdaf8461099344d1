//! Who leads: one `reconcile` a cluster. A lock says who may, an epoch in the store says who may still.
//!
//! The lock is the kernel's (it ends with the process, however that ends). The epoch rises with each leader, stands in every
//! transaction's check and goes with every effect, so that a leader that was paused and replaced can do nothing.

use super::beat::EPOCH;
use crate::runtime::folder;
use crate::store::{Read, Store};
use anyhow::Context;
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

/// The lock of the leader, held while this lives.
pub struct Leadership {
    _lock: File,
    /// The epoch that it leads in.
    pub epoch: u64,
}

/// Tries to become the leader. `Err(pid)` inside means that the process with this pid (0 when unknown) leads.
pub fn try_lead(store: &mut Store) -> anyhow::Result<Result<Leadership, u32>> {
    let path = folder::prepare(store.home())?.join("leader.lock");
    let mut lock = open(&path).with_context(|| format!("cannot open {}", path.display()))?;
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        let mut pid = String::new();
        lock.read_to_string(&mut pid).ok();
        return Ok(Err(pid.trim().parse().unwrap_or(0)));
    }
    let noted = lock.set_len(0).and_then(|()| lock.rewind()).and_then(|()| writeln!(lock, "{}", std::process::id()));
    noted.with_context(|| format!("cannot write {}", path.display()))?;
    // The store may be a copy that is older than what its machine has seen since: whoever led then is not to be heard again.
    let seen = folder::read_epoch(store.home());
    let epoch = raise_epoch(store, seen)?;
    Ok(Ok(Leadership { _lock: lock, epoch }))
}

/// The pid of the leader, when one leads. Needs no store: a command asks it to tell whether anything runs.
pub fn leader_of(dir: &Path) -> Option<u32> {
    let mut lock = OpenOptions::new().read(true).open(dir.join("leader.lock")).ok()?;
    if flock(&lock, FlockOperation::NonBlockingLockShared).is_ok() {
        return None;
    }
    let mut pid = String::new();
    lock.read_to_string(&mut pid).ok()?;
    pid.trim().parse().ok()
}

fn open(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32).open(path)
}

/// Begins an epoch, later than the store's and than one that was seen elsewhere: whoever led before can write nothing any more.
pub fn raise_epoch(store: &mut Store, seen: u64) -> anyhow::Result<u64> {
    let mut txn = store.write(Duration::from_secs(30))?;
    let epoch = txn.meta(EPOCH)?.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0).max(seen) + 1;
    txn.set_meta(EPOCH, &epoch.to_string())?;
    txn.commit()?;
    Ok(epoch)
}
