//! Sends a container's stop signal, and sees to it that the kernel does not drop it.
//!
//! A main process for which the kernel drops the signal is ended at once, as the signal would have ended it anywhere else. One that has
//! the signal blocked may wait for it on purpose, or be in the middle of starting a thread or a process: it is looked at again until one or
//! the other is known. Start reading at [`LiveContainer::ask_to_end`].

use super::super::process::signal_from;
use super::super::signal_delivery::{Delivery, delivery};
use super::{LiveContainer, Shim};
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// Between the first two looks; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// Between two looks at most: who waits for signals on purpose is looked at until the end of its grace period.
const LONGEST_PAUSE: Duration = Duration::from_millis(256);

/// A stop signal that the main process had blocked when it was sent.
pub struct BlockedStop {
    signal: Signal,
    pause: Duration,
    next_look: Instant,
}

impl BlockedStop {
    fn sent(signal: Signal) -> BlockedStop {
        BlockedStop { signal, pause: FIRST_PAUSE, next_look: Instant::now() + FIRST_PAUSE }
    }

    /// When the process is looked at again.
    pub fn next_look(&self) -> Instant {
        self.next_look
    }
}

impl LiveContainer {
    /// Sends the stop signal.
    pub(super) fn ask_to_end(&mut self) {
        let signal = signal_from(self.launch.stop_signal).unwrap_or(Signal::TERM);
        match delivery(self.process.pid, signal) {
            Delivery::Dropped => self.end_for(signal),
            before => {
                self.process.signal(signal);
                self.blocked_stop = (before == Delivery::Blocked).then(|| BlockedStop::sent(signal));
            }
        }
    }

    /// Ends the main process as the signal would have.
    fn end_for(&mut self, signal: Signal) {
        self.ended_for = Some(signal);
        self.process.kill();
    }

    fn look_at_blocked_stop(&mut self, now: Instant) {
        let Some(stop) = self.blocked_stop.take_if(|stop| stop.next_look <= now || self.end.is_some()) else { return };
        if self.end.is_some() {
            return;
        }
        match delivery(self.process.pid, stop.signal) {
            Delivery::Normal => {}
            Delivery::Dropped => self.end_for(stop.signal),
            Delivery::Blocked => {
                let pause = LONGEST_PAUSE.min(stop.pause * 2);
                self.blocked_stop = Some(BlockedStop { pause, next_look: now + pause, ..stop });
            }
        }
    }
}

impl Shim {
    /// Looks again at processes that had their stop signal blocked.
    pub(super) fn look_at_blocked_stops(&mut self) {
        let now = Instant::now();
        self.live.iter_mut().for_each(|live| live.look_at_blocked_stop(now));
    }
}
