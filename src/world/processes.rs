//! Whose processes a container sees.

use crate::object::Str;
use serde::{Deserialize, Serialize};

/// Whose processes a container sees, besides what it starts itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Processes {
    /// The machine's (`hostPID`, and wherever it sees the machine's files).
    #[default]
    Machine,
    /// Nobody's.
    Own,
    /// Those of the pod's other containers that share theirs (`shareProcessNamespace`).
    Shared,
    /// Those of another container (`targetContainerName` of an ephemeral one).
    Of(Str),
}
