//! A candidate: tries to lead the machines of a shared log, while this machine's control plane only runs its node.
//!
//! Never: runs a loop. Start reading at [`Candidate::start`].

use super::control_loop::WakeUp;
use super::leader::{Leadership, LocalLock, Standby};
use crate::store::{OpenMode, Store};
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Interval of its attempts.
pub const ATTEMPT_INTERVAL: Duration = Duration::from_millis(100);

/// A candidate on a thread of its own.
pub struct Candidate {
    stop: Sender<()>,
    thread: JoinHandle<Option<Leadership>>,
}

impl Candidate {
    /// Starts to try with the lock of this machine. Ends the control loop behind `outbox` when it leads.
    pub fn start(state: PathBuf, lock: LocalLock, outbox: Sender<WakeUp>) -> std::io::Result<Candidate> {
        let (stop, stopped) = channel();
        let run = move || {
            let (mut standby, mut store) = (Standby::default(), None);
            while stopped.recv_timeout(ATTEMPT_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                // An error, such as a log without a quorum, is tried again.
                let Some(open) = store.take().or_else(|| Store::open(&state, OpenMode::Existing).ok()) else {
                    continue;
                };
                let open = store.insert(open);
                if open.needs_reopen() && open.reopen(ATTEMPT_INTERVAL).is_err() {
                    continue;
                }
                if let Ok(Some(leadership)) = standby.try_lead_with(open, &lock) {
                    // The loop may have ended by itself.
                    let _ = outbox.send(WakeUp::Elected);
                    return Some(leadership);
                }
            }
            None
        };
        let thread = std::thread::Builder::new().name("candidate".into()).spawn(run)?;
        Ok(Candidate { stop, thread })
    }

    /// Ends the attempts; returns the leadership if it has become the leader.
    pub fn finish(self) -> Option<Leadership> {
        drop(self.stop);
        self.thread.join().ok().flatten()
    }
}
