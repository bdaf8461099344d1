//! Signals that end the process, for the control loop that runs at the time.
//!
//! Never: ends a control loop by itself, but for the second signal. Start reading at [`SignalRelay`].

use crate::object::IgnorePoison;
use crate::reconcile::control_loop::WakeUp;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

/// Passes signals that end the process on to the present control loop.
pub struct SignalRelay {
    /// `None` once they are passed on.
    signals: Option<Signals>,
    outbox: Arc<Mutex<Option<Sender<WakeUp>>>>,
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

    /// Passes signals on to this control loop from now on.
    pub fn relay_to(&mut self, outbox: Sender<WakeUp>) {
        *self.outbox.lock().ignore_poison() = Some(outbox);
        let Some(mut signals) = self.signals.take() else { return };
        let outbox = self.outbox.clone();
        std::thread::spawn(move || {
            for _ in signals.forever() {
                // While the first signal is being handled, there is no receiver: a second signal
                // ends the process.
                let outbox = outbox.lock().ignore_poison();
                if outbox.as_ref().is_none_or(|outbox| outbox.send(WakeUp::Stop).is_err()) {
                    std::process::exit(130);
                }
            }
        });
    }
}
