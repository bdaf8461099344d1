//! What a pod and each of its containers may use of a machine.

use crate::object::Str;
use serde::{Deserialize, Serialize};

/// The bounds of one container and of the pod around it. What is not said is not bounded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Of all containers of the pod together.
    pub pod: Caps,
    /// Of the container.
    pub container: Caps,
    /// How soon the kernel ends it when the whole machine runs out of memory: 0 to 1000 (`oom_score_adj`).
    pub oom_score: Option<i32>,
}

/// Bounds of one group of processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Caps {
    /// Most CPU, in thousandths of a core.
    pub cpu_milli: Option<i64>,
    /// Its share when cores are short, in thousandths of a core requested.
    pub cpu_request_milli: Option<i64>,
    /// Most memory, in bytes.
    pub memory: Option<i64>,
    /// Most processes and threads.
    pub pids: Option<i64>,
}

impl Caps {
    /// Whether nothing is bounded.
    pub fn is_empty(&self) -> bool {
        *self == Caps::default()
    }
}

impl Limits {
    /// Whether nothing is bounded by anybody but the machine.
    pub fn is_empty(&self) -> bool {
        self.pod.is_empty() && self.container.is_empty()
    }
}

/// What of a pod takes room on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Storage {
    /// An emptyDir of this name.
    Volume(Str),
    /// What a container writes beside its volumes, its logs included.
    Container(Str),
    /// All of it.
    Pod,
}

/// How much room there is for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// For what.
    pub of: Storage,
    /// Bytes.
    pub most: i64,
}
