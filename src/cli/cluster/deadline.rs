//! Waits for changes of the state up to a deadline. Wake hints from the store end a wait early;
//! because hints can be lost, each wait is also bounded.

use super::control_plane::NOTHING_CHANGES;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::client::standard_error;
use crate::kinds::Kind;
use crate::reconcile::leader;
use crate::store::{WakeHint, watch_hint};
use std::cell::Cell;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The longest wait for one hint, because hints can be lost.
const MAX_HINT_WAIT: Duration = Duration::from_millis(500);
/// The wait between two reads if there is no source of hints.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The wait between two reads from a server.
const REMOTE_POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Time for a control plane that the same script has just started to become ready.
const ARRIVAL: Duration = Duration::from_secs(1);

const TIMED_OUT: &str = "timed out waiting for the condition";

/// Returns the error of a wait for an object that took too long.
pub fn timed_out_on(kind: &Kind, name: &str) -> Failure {
    Failure::plain(format!("{TIMED_OUT} on {}/{name}", kind.resource.plural()))
}

/// Waits for changes of the state, up to a deadline.
pub struct Deadline {
    hint: Option<WakeHint>,
    pause: Duration,
    since: Instant,
    until: Option<Instant>,
    /// The cluster's folder, until the missing control plane was reported; `None` if there is
    /// nothing to report.
    unreported: Cell<Option<PathBuf>>,
}

impl Deadline {
    /// Starts to watch; without a timeout, waits forever. Create it before the first read, so that
    /// no change is missed in between.
    pub fn new(context: &mut CommandContext, timeout: Option<Duration>) -> CliResult<Deadline> {
        // This fails for a path in a missing folder. Elsewhere a cluster may be created during the
        // wait.
        context.read_view(|_| Ok(()))?;
        let is_remote = context.client().is_some();
        let hint = context.existing()?.filter(|_| !is_remote).and_then(|api| watch_hint(api.store()));
        Ok(Deadline {
            hint,
            pause: if is_remote { REMOTE_POLL_INTERVAL } else { POLL_INTERVAL },
            unreported: Cell::default(),
            since: Instant::now(),
            until: timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
        })
    }

    /// Like [`Deadline::new`], for a change that only a control plane can make. Prints one hint if
    /// no control plane runs after a second, or at the deadline.
    pub fn with_control_plane(context: &mut CommandContext, timeout: Option<Duration>) -> CliResult<Deadline> {
        let deadline = Deadline::new(context, timeout)?;
        let home = context.home()?;
        Ok(Deadline { unreported: Cell::new(home), ..deadline })
    }

    /// The moment when the deadline passes; `None` if it never does.
    pub fn end(&self) -> Option<Instant> {
        self.until
    }

    /// Waits for a possible change; fails once the deadline has passed.
    pub fn wait_or_fail(&self) -> CliResult {
        if self.wait() { Ok(()) } else { Err(Failure::plain(TIMED_OUT)) }
    }

    /// Waits for a possible change; false once the deadline has passed.
    pub fn wait(&self) -> bool {
        let remaining = self.until.map_or(MAX_HINT_WAIT, |until| until.saturating_duration_since(Instant::now()));
        if (remaining.is_zero() || self.since.elapsed() >= ARRIVAL)
            && self.unreported.take().is_some_and(|home| leader::read_leader(&home).is_none())
        {
            standard_error::print_line(format_args!("{NOTHING_CHANGES}"));
        }
        if remaining.is_zero() {
            return false;
        }
        match &self.hint {
            Some(hint) => drop(hint.wait(remaining.min(MAX_HINT_WAIT))),
            None => std::thread::sleep(remaining.min(self.pause)),
        }
        true
    }
}
