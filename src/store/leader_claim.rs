//! The claim of the leader in a log that several machines share: whose control plane leads.
//!
//! A leader renews its claim. A standby whose own clock sees no renewal for a lease replaces it, and then raises the epoch by a
//! transaction, so that a leader that was only slow can commit nothing more. Never: raises the epoch. Start reading at
//! [`Store::claim_lead`].

use super::properties::{encode_properties, read_number, read_property};
use super::replica::store_error;
use super::shared_log::{LogError, SharedLog};
use super::{Store, StoreResult};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Interval of renewals.
const RENEWAL_INTERVAL: Duration = Duration::from_millis(250);

/// Time for one renewal or question.
const CLAIM_TIMEOUT: Duration = Duration::from_millis(800);

/// A leader that has not renewed its claim for this time counts as dead.
pub const CLAIM_LEASE: Duration = Duration::from_millis(1200);

/// The claim of a leader, as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderClaim(Vec<u8>);

/// A claim that is renewed until it is dropped. Others can lead at once then.
pub struct ClaimRenewal {
    stop: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl LeaderClaim {
    /// Whether there is no leader.
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// The process that leads.
    pub fn pid(&self) -> u32 {
        read_number(&self.0, "pid").unwrap_or_default() as u32
    }

    /// The name of the machine whose control plane leads.
    pub fn host(&self) -> String {
        read_property(&self.0, "host").unwrap_or_default().to_owned()
    }
}

impl Store {
    /// Reads the claim of the leader.
    pub fn read_claim(&mut self) -> StoreResult<LeaderClaim> {
        let Some(replica) = &mut self.replica else { return Ok(LeaderClaim::default()) };
        let claim = replica.log.read_claim(CLAIM_TIMEOUT).map_err(|error| store_error(&replica.address, error))?;
        Ok(LeaderClaim(claim))
    }

    /// Whether a process on this machine, with this replica, made a claim.
    pub fn is_claim_of_this_machine(&self, claim: &LeaderClaim) -> bool {
        self.replica
            .as_ref()
            .is_some_and(|replica| Some(replica.machine.as_str()) == read_property(&claim.0, "machine"))
    }

    /// Claims leadership, if the claim in the log is still the one that was read. `host` names this machine for people.
    pub fn claim_lead(&mut self, seen: &LeaderClaim, host: &str) -> StoreResult<Option<ClaimRenewal>> {
        let Some(replica) = &mut self.replica else { return Ok(None) };
        let own = OwnClaim { machine: replica.machine.clone(), host: host.to_owned(), id: super::replica::random()? };
        let claim = own.encode(0);
        let claimed = replica.log.replace_claim(&seen.0, &claim, CLAIM_TIMEOUT);
        if !claimed.map_err(|error| store_error(&replica.address, error))? {
            return Ok(None);
        }
        let (stop, stopped) = channel();
        let log = replica.log.handle();
        let work = move || own.renew(log, claim, &stopped);
        let thread = std::thread::Builder::new().name("leader".into()).spawn(work);
        let failed = |error: std::io::Error| super::StoreError::Io { path: "thread".into(), what: error.to_string() };
        Ok(Some(ClaimRenewal { stop, thread: Some(thread.map_err(failed)?) }))
    }
}

impl Drop for ClaimRenewal {
    fn drop(&mut self) {
        let _ = self.stop.send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The claim of this process.
struct OwnClaim {
    machine: String,
    host: String,
    /// Identifies this claim among those of the process.
    id: u64,
}

impl OwnClaim {
    fn encode(&self, count: u64) -> Vec<u8> {
        let [pid, id, count] = [u64::from(std::process::id()), self.id, count].map(|number| number.to_string());
        let (machine, host) = (self.machine.as_str(), self.host.as_str());
        encode_properties(&[("machine", machine), ("host", host), ("pid", &pid), ("id", &id), ("count", &count)])
    }

    /// Renews the claim until it is to stop, or until another process has replaced it.
    fn renew(&self, mut log: Box<dyn SharedLog>, mut held: Vec<u8>, stopped: &Receiver<()>) {
        let mut count = 0;
        loop {
            if stopped.recv_timeout(RENEWAL_INTERVAL) != Err(RecvTimeoutError::Timeout) {
                // If this fails, the claim ends with its lease.
                let _ = log.replace_claim(&held, &[], CLAIM_TIMEOUT);
                return;
            }
            count += 1;
            let next = self.encode(count);
            match log.replace_claim(&held, &next, CLAIM_TIMEOUT) {
                Ok(true) => held = next,
                Ok(false) | Err(LogError::Unknown(_)) => match log.read_claim(CLAIM_TIMEOUT) {
                    // One of the renewals whose answer was lost.
                    Ok(claim) if read_number(&claim, "id") == Some(self.id) => held = claim,
                    Ok(_) => return,
                    Err(_) => {}
                },
                Err(_) => {}
            }
        }
    }
}
