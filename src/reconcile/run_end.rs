//! Conditions that end a run of the control loop.
//!
//! Knows: the ends of a run, and the result of a convergence check that the loop needs to detect one of them.
//! Never: decides what convergence is: the caller hands in a [`ConvergenceCheck`]. Start reading at [`RunUntil`].

use crate::object::{Key, Time};
use crate::world::World;
use jiff::SignedDuration;

/// A state in which no loop has anything to do.
#[derive(Clone, Copy, Debug)]
pub struct Idle {
    /// The revision up to which every change was handled.
    pub revision: u64,
    /// Time at which a loop plans again even if nothing changes.
    pub next: Option<Time>,
}

/// Result of a run.
#[derive(Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// Nothing is left to do, and the World has converged.
    Converged,
    /// Unmet conditions: the time limit has passed, or all of them have failed permanently.
    Unmet(Vec<Unmet>),
    /// The user stopped the run.
    Stopped,
    /// The candidate of this process leads now.
    Elected,
    /// The store has another epoch than this loop: a new leader began one.
    Deposed,
}

/// Condition under which a run ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunUntil {
    /// Never: `--watch`.
    Stopped,
    /// The cluster has converged, or this time has passed.
    Converged(SignedDuration),
    /// No pod has a process on this machine, or this time has passed.
    Closed(SignedDuration),
}

/// An object that does not match its spec, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmet {
    /// The object.
    pub key: Key,
    /// The missing state, as a sentence.
    pub why: String,
    /// Whether only a user can change it: a failed Job, or a failed pod without a controller.
    pub is_final: bool,
}

/// Distance of a cluster from its specs.
#[derive(Clone, Debug, Default)]
pub struct Convergence {
    /// The objects that have not converged; empty means converged.
    pub unmet: Vec<Unmet>,
    /// When the newest of the running pods of Jobs has run for long enough to count as running; `None` when no Job has one.
    pub proven: Option<Time>,
}

impl Convergence {
    /// Whether waiting longer is useless: every unmet object has failed permanently.
    pub fn is_final(&self) -> bool {
        self.unmet.iter().all(|one| one.is_final)
    }
}

/// Computes the distance of a World from its specs.
pub type ConvergenceCheck = fn(&World) -> Convergence;
