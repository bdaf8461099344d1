//! Resource limits of a pod and its containers.

use crate::object::Str;
use serde::{Deserialize, Serialize};

/// Limits of one container and of its pod. An absent limit means unlimited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Limits of all containers of the pod together.
    pub pod: GroupLimits,
    /// Limits of the container.
    pub container: GroupLimits,
    /// Kernel preference for killing the container when the machine runs out of memory, 0 to 1000 (`oom_score_adj`).
    pub oom_score: Option<i32>,
}

/// Bounds of one group of processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupLimits {
    /// Most CPU, in thousandths of a core.
    pub cpu_milli: Option<i64>,
    /// Its share when cores are short, in thousandths of a core requested.
    pub cpu_request_milli: Option<i64>,
    /// Most memory, in bytes.
    pub memory: Option<i64>,
    /// Most processes and threads.
    pub pids: Option<i64>,
}

impl GroupLimits {
    /// Whether nothing is limited.
    pub fn is_empty(&self) -> bool {
        *self == GroupLimits::default()
    }
}

impl Limits {
    /// Whether nothing is limited.
    pub fn is_empty(&self) -> bool {
        self.pod.is_empty() && self.container.is_empty()
    }
}

/// The parts of a pod that use disk space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageKind {
    /// An emptyDir of this name.
    Volume(Str),
    /// Files that a container writes outside its volumes, including its logs.
    Container(Str),
    /// All disk space of the pod.
    Pod,
}

/// Maximum size of one kind of storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageLimit {
    /// The storage that is limited.
    pub of: StorageKind,
    /// Bytes.
    pub most: i64,
}
