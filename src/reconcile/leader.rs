//! Leadership: one `reconcile` per cluster, by a lock and an epoch in the store.
//!
//! The kernel releases the lock when the process ends in any way. If several machines share a state, the leader's claim in the shared
//! log replaces the lock. Each leader increments the epoch; every transaction checks it and every effect carries it, so that a leader that
//! was paused and replaced can do nothing.

use super::tick::{WRITE_LOCK_TIMEOUT, read_epoch};
use crate::object::Time;
use crate::runtime::folder;
use crate::store::meta_keys::{EPOCH, HEARD};
use crate::store::{CLAIM_LEASE, ClaimRenewal, LeaderClaim, OVERTAKEN, Store, StoreRead, StoreResult};
use anyhow::Context;
use rustix::fs::{FlockOperation, flock};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The lock of the leader, held while this lives.
pub struct Leadership {
    /// Dropped first, so that a standby of another machine need not wait.
    _claim: Option<ClaimRenewal>,
    lock: LocalLock,
    /// Its epoch, or that of the leader on another machine.
    pub epoch: u64,
    /// Whether this process leads. Otherwise a control plane on another machine does, and this one runs its own machine's node only.
    pub leads: bool,
}

/// The lock among the control planes of one machine, held until the last copy is dropped.
#[derive(Clone)]
pub struct LocalLock {
    _file: Arc<File>,
}

impl Leadership {
    /// Returns the lock of this machine.
    pub fn local_lock(&self) -> LocalLock {
        self.lock.clone()
    }
}

/// A leader whose heartbeat has not changed for this time counts as stopped (SIGSTOP, a debugger, a frozen control group). It sends one
/// every 10 s.
const LEASE_DURATION: Duration = Duration::from_secs(30);

/// Part of the lease that every standby waits, however old the heartbeat is when the standby first sees it: after a suspend of the machine
/// the leader needs up to 10 s for its next heartbeat.
const MIN_STANDBY_WAIT: Duration = Duration::from_secs(12);

/// Waits for its turn to lead.
#[derive(Default)]
pub struct Standby {
    /// The leader's heartbeat, and when it was first seen: a lease is measured by this process' own clock, as client-go does.
    heartbeat: Option<(Option<String>, Instant)>,
    /// The claim of a leader on another machine, and when it was first seen.
    claim: Option<(LeaderClaim, Instant)>,
}

/// Outcome of an attempt to lead.
pub enum Election {
    /// This process leads.
    Leads(Leadership),
    /// Another process leads.
    Waits(CurrentLeader),
}

/// The process that leads.
pub struct CurrentLeader {
    /// Its process id; 0 when it is not known.
    pub pid: u32,
    /// The machine of the leader, if it is another one.
    pub host: Option<String>,
}

impl fmt::Display for CurrentLeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            None => write!(f, "the control plane with pid {}", self.pid),
            Some(host) => write!(f, "the control plane with pid {} on the machine {host}", self.pid),
        }
    }
}

impl Standby {
    /// Tries to become the leader: when the lock is free, or when its holder has not sent a heartbeat for a lease.
    pub fn try_lead(&mut self, store: &mut Store) -> anyhow::Result<Election> {
        let claim = self.read_claim(store)?;
        if let Some(leader) = self.leader_elsewhere(store, &claim, Instant::now()) {
            return Ok(Election::Waits(leader));
        }
        let lock = match self.try_lock(store)? {
            Ok(lock) => lock,
            Err(leader) => return Ok(Election::Waits(leader)),
        };
        Ok(match claim_and_raise(store, &claim, lock)? {
            Some(leadership) => Election::Leads(leadership),
            None => Election::Waits(CurrentLeader { pid: 0, host: None }),
        })
    }

    /// Like [`Standby::try_lead`], for a process that has the lock of its machine already. `None` while another machine leads.
    pub fn try_lead_with(&mut self, store: &mut Store, lock: &LocalLock) -> anyhow::Result<Option<Leadership>> {
        let claim = self.read_claim(store)?;
        match self.leader_elsewhere(store, &claim, Instant::now()) {
            Some(_) => Ok(None),
            None => claim_and_raise(store, &claim, lock.clone()),
        }
    }

    /// Begins to run this machine's node while another machine leads; `None` if another process of this machine does.
    pub fn try_run_node(&mut self, store: &mut Store) -> anyhow::Result<Option<Leadership>> {
        let Ok(lock) = self.try_lock(store)? else { return Ok(None) };
        let epoch = read_epoch(&store.read()?)?.unwrap_or(0);
        Ok(Some(Leadership { _claim: None, lock, epoch, leads: false }))
    }

    /// Takes the lock of this machine, or returns its holder.
    fn try_lock(&mut self, store: &Store) -> anyhow::Result<Result<LocalLock, CurrentLeader>> {
        let path = folder::prepare(store.home())?.join("leader.lock");
        let mut lock = folder::open_lock_file(&path).with_context(|| format!("cannot open {}", path.display()))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut pid = String::new();
            lock.read_to_string(&mut pid).ok();
            if !self.is_overdue(store.read()?.meta(HEARD)?, Instant::now()) {
                return Ok(Err(CurrentLeader { pid: pid.trim().parse().unwrap_or(0), host: None }));
            }
            lock = replace(&path).with_context(|| format!("cannot replace {}", path.display()))?;
        } else if !is_at(&lock, &path) {
            // Another standby has replaced the lock file.
            return Ok(Err(CurrentLeader { pid: 0, host: None }));
        }
        // It keeps its length: a full disk would have no block for a file that was emptied.
        let noted = lock.rewind().and_then(|()| writeln!(lock, "{:<10}", std::process::id()));
        noted.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Ok(LocalLock { _file: lock.into() }))
    }

    /// Brings a replica to the head of its log, so that it can take over soon, and reads the leader's claim.
    fn read_claim(&mut self, store: &mut Store) -> anyhow::Result<LeaderClaim> {
        let read = store.follow().and_then(|()| store.read_claim());
        if read.is_err() {
            // A leader cannot renew its claim either while the log does not answer.
            self.claim = None;
        }
        Ok(read?)
    }

    /// Returns the leader on another machine, unless it has not renewed its claim for a lease.
    fn leader_elsewhere(&mut self, store: &Store, claim: &LeaderClaim, now: Instant) -> Option<CurrentLeader> {
        if claim.is_none() || store.is_claim_of_this_machine(claim) {
            self.claim = None;
            return None;
        }
        match &self.claim {
            Some((known, since)) if known == claim && now.duration_since(*since) >= CLAIM_LEASE => return None,
            Some((known, _)) if known == claim => {}
            _ => self.claim = Some((claim.clone(), now)),
        }
        Some(CurrentLeader { pid: claim.pid(), host: Some(claim.host()) })
    }

    /// Whether the leader's heartbeat has not changed for a lease.
    fn is_overdue(&mut self, heartbeat: Option<String>, now: Instant) -> bool {
        match &self.heartbeat {
            Some((known, since)) if *known == heartbeat => now.duration_since(*since) >= LEASE_DURATION,
            known => {
                let age = if known.is_none() { age_of(heartbeat.as_deref(), Time::now()) } else { Duration::ZERO };
                self.heartbeat = Some((heartbeat, now.checked_sub(age).unwrap_or(now)));
                false
            }
        }
    }
}

/// Claims to lead all machines, and begins the next epoch. `None` when another machine was quicker.
fn claim_and_raise(store: &mut Store, claim: &LeaderClaim, lock: LocalLock) -> anyhow::Result<Option<Leadership>> {
    let renewal = if store.is_replica() { store.claim_lead(claim, &host_name())? } else { None };
    if store.is_replica() && renewal.is_none() {
        return Ok(None);
    }
    // The store may be a restored older copy. The new epoch is also above those that the machine has seen since the copy.
    let seen = folder::read_epoch(store.home());
    let epoch = raise_epoch(store, seen)?;
    Ok(Some(Leadership { _claim: renewal, lock, epoch, leads: true }))
}

/// Part of the lease that had passed when a standby first saw this heartbeat, by the heartbeat's own time. The wall clock may be wrong, so
/// at least [`MIN_STANDBY_WAIT`] is left.
fn age_of(heartbeat: Option<&str>, now: Time) -> Duration {
    let sent = heartbeat.and_then(|text| text.parse::<Time>().ok());
    let age = sent.and_then(|sent| Duration::try_from(now.duration_since(sent)).ok()).unwrap_or_default();
    age.min(LEASE_DURATION - MIN_STANDBY_WAIT)
}

/// Replaces the lock file that a stopped process holds by a new one, locked by this process. When the stopped process continues, its
/// epoch is over, and it finds the new file.
fn replace(path: &Path) -> std::io::Result<File> {
    let fresh = path.with_extension(format!("lock.{}", std::process::id()));
    let lock = folder::open_lock_file(&fresh)?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    std::fs::rename(&fresh, path)?;
    Ok(lock)
}

/// Whether the open file is still the file at a path.
fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(there)) = (file.metadata(), std::fs::symlink_metadata(path)) else { return false };
    (open.dev(), open.ino()) == (there.dev(), there.ino())
}

/// Returns the pid of the leader, if there is one. It needs no store: commands call it to see whether a control plane runs.
pub fn read_leader(dir: &Path) -> Option<u32> {
    let mut lock = OpenOptions::new().read(true).open(dir.join("leader.lock")).ok()?;
    if flock(&lock, FlockOperation::NonBlockingLockShared).is_ok() {
        return None;
    }
    let mut pid = String::new();
    lock.read_to_string(&mut pid).ok()?;
    pid.trim().parse().ok()
}

/// Whether a control plane on another machine leads, as far as its claim and its heartbeat, `heard`, show.
pub fn leads_elsewhere(store: &mut Store, heard: Option<Time>, now: Time) -> StoreResult<bool> {
    if !store.is_replica() {
        return Ok(false);
    }
    let is_recent = |heard: Time| now.duration_since(heard).unsigned_abs() < LEASE_DURATION;
    // A new leader has not sent a heartbeat yet.
    let claim = store.read_claim()?;
    Ok(!claim.is_none() && !store.is_claim_of_this_machine(&claim) && heard.is_none_or(is_recent))
}

/// Begins an epoch that is later than the store's and than `seen`. Earlier leaders can then no longer write.
pub fn raise_epoch(store: &mut Store, seen: u64) -> anyhow::Result<u64> {
    loop {
        let mut txn = store.write(WRITE_LOCK_TIMEOUT)?;
        let epoch = txn.meta(EPOCH)?.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0).max(seen) + 1;
        // Without a leader nothing can be deleted.
        txn.allow_reserve();
        txn.set_meta(EPOCH, &epoch.to_string())?;
        match txn.commit() {
            Ok(_) => return Ok(epoch),
            Err(OVERTAKEN) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The name of this machine, for people.
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::OpenMode;

    fn leads(standby: &mut Standby, store: &mut Store) -> Option<Leadership> {
        match standby.try_lead(store).expect("an answer") {
            Election::Leads(leadership) => Some(leadership),
            Election::Waits(_) => None,
        }
    }

    fn tick(store: &mut Store, text: &str) {
        let mut txn = store.write(Duration::from_secs(60)).unwrap();
        txn.set_meta(HEARD, text).unwrap();
        txn.commit().unwrap();
    }

    #[test]
    fn standby_that_starts_late_believes_the_heartbeat_but_for_the_least_wait() {
        let now: Time = "2026-01-01T00:10:00Z".parse().unwrap();
        let age = |text| age_of(text, now).as_secs();
        assert_eq!(age(Some("2026-01-01T00:09:55Z")), 5);
        assert_eq!(age(Some("2026-01-01T00:00:00Z")), 18, "12 s of the lease are left");
        assert_eq!((age(Some("2026-01-01T00:11:00Z")), age(Some("no time")), age(None)), (0, 0, 0));
        let mut standby = Standby::default();
        let old = Some("2026-01-01T00:00:00Z".to_owned());
        let start = Instant::now();
        assert!(!standby.is_overdue(old.clone(), start));
        assert!(!standby.is_overdue(old.clone(), start + Duration::from_secs(11)));
        assert!(standby.is_overdue(old, start + Duration::from_secs(12)));
    }

    #[test]
    fn leader_without_a_heartbeat_for_a_lease_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.db");
        let mut store = Store::open(&path, OpenMode::Create).unwrap();
        let old = leads(&mut Standby::default(), &mut store).expect("nobody else leads");
        tick(&mut store, "1");
        let mut standby = Standby::default();
        assert!(leads(&mut standby, &mut store).is_none());
        // As if a lease had passed.
        let long_ago = |standby: &mut Standby| {
            let (_, since) = standby.heartbeat.as_mut().expect("it was seen");
            *since = since.checked_sub(LEASE_DURATION).expect("the machine runs for longer");
        };
        long_ago(&mut standby);
        tick(&mut store, "2");
        assert!(leads(&mut standby, &mut store).is_none(), "its heart beats");
        long_ago(&mut standby);
        let new = leads(&mut standby, &mut store).expect("the lease has ended");
        assert!(new.epoch > old.epoch);
        assert_eq!(read_leader(dir.path()), Some(std::process::id()));
        drop(old);
        assert!(leads(&mut Standby::default(), &mut store).is_none(), "the new lock is held");
        drop(new);
        assert!(leads(&mut Standby::default(), &mut store).is_some());
    }
}
