//! The engine of the control loops: reads what changed, asks the loops for plans, commits them, carries out their effects, and waits.
//!
//! Knows: which loops there are ([`loops`]), which keys are due ([`queue`]), how many plans become one transaction ([`tick`]), and which
//! process leads ([`leader`]). Wake-ups are hints; what counts is the store's log and the resync.
//! Never: decides what should be (the loops do), writes an object except through the API server's pipeline,
//! never prints (it passes lines to a [`LogSink`]).
//! Start reading at [`ControlLoop`], then [`control_plane`], then [`tick`]. The same loops run on a simulated machine in
//! [`simulate`]; [`crate::diagnosis`] explains what is missing and why.

pub mod activity_log;
pub mod candidate;
pub mod control_loop;
pub mod control_plane;
mod disk_reserve;
pub mod events;
pub mod leader;
pub mod link_certificates;
pub mod loops;
mod machine_setup;
pub mod metrics;
pub mod node;
mod node_lease;
pub mod overlay;
pub mod plane_notes;
pub mod queue;
pub mod retention;
pub mod retry;
pub mod run_end;
mod settings;
pub mod simulate;
pub mod stage_write;
mod start_code;
pub mod store_files;
pub mod store_tail;
pub mod tick;
pub mod unschedulable;
mod waiting_plans;

use crate::object::{Key, Time};

/// The name under which `reconcile` itself writes and logs.
pub const RECONCILE: &str = "reconcile";

/// One action or event, as a log line for users.
#[derive(Clone, Debug)]
pub struct LogLine {
    /// Time of the action or event.
    pub at: Time,
    /// The loop, or `reconcile` itself.
    pub by: &'static str,
    /// The object.
    pub about: Option<Key>,
    /// The action and its reason.
    pub text: String,
    /// Its importance.
    pub level: LogLevel,
}

impl LogLine {
    /// A line of `reconcile` itself about an action.
    pub fn own_action(at: Time, text: String) -> LogLine {
        LogLine { at, by: RECONCILE, about: None, text, level: LogLevel::Action }
    }
}

/// Importance of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// A problem.
    Problem,
    /// An action.
    Action,
    /// Bookkeeping, shown on request.
    Detail,
}

/// Receives log lines.
pub type LogSink<'a> = dyn FnMut(&LogLine) + 'a;

pub use control_loop::{ControlLoop, ControlSettings};
pub use run_end::{Idle, RunEnd};
