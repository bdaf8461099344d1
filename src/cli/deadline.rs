//! Waiting until the state has changed: woken by hints, looking again by itself from time to time, up to a deadline.

use super::{CliResult, CommandContext};
use crate::reconcile::leader;
use crate::store::{WakeHint, watch_hint};
use std::cell::Cell;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The longest wait for one hint: hints can be lost.
const LONGEST: Duration = Duration::from_millis(500);
/// The pause between two looks where there are no hints.
const PAUSE: Duration = Duration::from_millis(50);
/// Time that a control plane started by the same script may need.
const ARRIVAL: Duration = Duration::from_secs(1);

/// Waits for news, not longer than it is told to.
pub struct Deadline {
    hint: Option<WakeHint>,
    since: Instant,
    until: Option<Instant>,
    /// The cluster's folder, until its missing control plane was reported; none where there is no cluster yet.
    untold: Cell<Option<PathBuf>>,
}

impl Deadline {
    /// Watches from now on; no timeout waits without end. Make it before the first look, so that no news falls between.
    pub fn new(context: &mut CommandContext, timeout: Option<Duration>) -> CliResult<Deadline> {
        // A path in a folder that does not exist is refused; anywhere else a cluster may be made while this waits.
        context.read_view(|_| Ok(()))?;
        let hint = context.existing()?.and_then(|api| watch_hint(api.store()));
        Ok(Deadline {
            hint,
            untold: Cell::default(),
            since: Instant::now(),
            until: timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
        })
    }

    /// The same for what only a control plane brings about: when none has come after a moment, or by the end, it is said once.
    pub fn with_control_plane(context: &mut CommandContext, timeout: Option<Duration>) -> CliResult<Deadline> {
        let deadline = Deadline::new(context, timeout)?;
        let home = context.existing()?.map(|api| api.store().home().to_owned());
        Ok(Deadline { untold: Cell::new(home), ..deadline })
    }

    /// Waits until there may be news; false when the time is over.
    pub fn wait(&self) -> bool {
        let left = self.until.map_or(LONGEST, |until| until.saturating_duration_since(Instant::now()));
        if (left.is_zero() || self.since.elapsed() >= ARRIVAL)
            && self.untold.take().is_some_and(|home| leader::read_leader(&home).is_none())
        {
            eprintln!("hint: no control plane runs: nothing changes until one does (kloop reconcile --watch)");
        }
        if left.is_zero() {
            return false;
        }
        match &self.hint {
            Some(hint) => drop(hint.wait(left.min(LONGEST))),
            None => std::thread::sleep(left.min(PAUSE)),
        }
        true
    }
}
