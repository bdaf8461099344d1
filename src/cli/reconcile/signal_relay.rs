//! Signals that end the process, for the control loop that runs at the time, also while that starts.
//!
//! Never: ends a control loop by itself, but for a signal that none gets. Start reading at [`SignalRelay`].

use crate::object::IgnorePoison;
use crate::reconcile::control_loop::WakeUp;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Time that a control loop has to start after a signal to end; the start waits for the write lock.
const MAX_START_AFTER_SIGNAL: Duration = Duration::from_secs(5);

/// Passes signals that end the process on to the present control loop.
pub struct SignalRelay {
    /// `None` once they are passed on.
    signals: Option<Signals>,
    outbox: Arc<SignalOutbox>,
}

/// The control loop that gets the signals; `None` before the first one has started.
#[derive(Default)]
struct SignalOutbox {
    sender: Mutex<Option<Sender<WakeUp>>>,
    is_set: Condvar,
}

impl SignalOutbox {
    /// Passes a signal on. Returns whether a control loop gets it: while the first one is being handled, there is no receiver.
    fn pass_on(&self, patience: Duration) -> bool {
        let sender = self.sender.lock().ignore_poison();
        let waited = self.is_set.wait_timeout_while(sender, patience, |sender| sender.is_none());
        let (sender, _) = waited.ignore_poison();
        sender.as_ref().is_some_and(|sender| sender.send(WakeUp::Stop).is_ok())
    }
}

impl SignalRelay {
    /// Catches the signals from now on.
    pub fn new() -> io::Result<SignalRelay> {
        Ok(SignalRelay { signals: Some(Signals::new([SIGINT, SIGTERM, SIGHUP])?), outbox: Arc::default() })
    }

    /// Whether there was a signal before the first control loop.
    pub fn is_pending(&mut self) -> bool {
        self.signals.as_mut().is_some_and(|signals| signals.pending().next().is_some())
    }

    /// Handles signals from now on, while a control loop starts. A signal that no control loop gets ends the process.
    pub fn listen(&mut self) {
        let Some(mut signals) = self.signals.take() else { return };
        let outbox = self.outbox.clone();
        std::thread::spawn(move || {
            for _ in signals.forever() {
                if !outbox.pass_on(MAX_START_AFTER_SIGNAL) {
                    std::process::exit(130);
                }
            }
        });
    }

    /// Passes signals on to this control loop from now on.
    pub fn relay_to(&self, outbox: Sender<WakeUp>) {
        *self.outbox.sender.lock().ignore_poison() = Some(outbox);
        self.outbox.is_set.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn signal_without_a_control_loop_is_given_up() {
        let outbox = SignalOutbox::default();
        assert!(!outbox.pass_on(Duration::ZERO), "it has not started");
        let (sender, inbox) = channel();
        *outbox.sender.lock().unwrap() = Some(sender);
        assert!(outbox.pass_on(Duration::ZERO));
        assert!(matches!(inbox.try_recv(), Ok(WakeUp::Stop)));
        drop(inbox);
        assert!(!outbox.pass_on(Duration::MAX), "it has ended");
    }
}
