//! What the machine last reported. Facts are kept by the runtime across restarts of the control plane; kubelet turns them into status.

use crate::object::{Str, Time};
use std::collections::{BTreeMap, HashMap};

/// Everything that the machine (or its simulated twin) has reported.
#[derive(Default, Clone)]
pub struct Facts {
    /// Pods by uid, as their shims report them. A uid without a pod in the store is a pod to sweep away.
    pub pods: HashMap<Str, PodFacts>,
    /// Nodes by name.
    pub nodes: HashMap<Str, NodeFacts>,
    /// Whether every shim that the last control plane left has been asked: no start is planned before.
    pub inventory_complete: bool,
}

/// What is known of a node of ours.
#[derive(Default, Clone, Debug)]
pub struct NodeFacts {
    /// Whether this process runs that node's pods: the local one, or a simulated one.
    pub ours: bool,
    /// Whether it only pretends (annotation `kloop.dev/runtime: simulated`).
    pub simulated: bool,
    /// When it last sent a heartbeat.
    pub heartbeat: Option<Time>,
}

/// What is known of a pod on the machine.
#[derive(Default, Clone, Debug)]
pub struct PodFacts {
    /// The pod's namespace and name, for messages about pods that the store no longer has.
    pub namespace: Str,
    /// See `namespace`.
    pub name: Str,
    /// The node it was started on.
    pub node: Str,
    /// Its address.
    pub ip: Str,
    /// Its containers, init containers included, by name.
    pub containers: BTreeMap<Str, ContainerFacts>,
    /// Its processes are being ended for good, since when.
    pub removing: Option<Time>,
}

/// What is known of one container's newest attempt.
#[derive(Clone, Debug)]
pub struct ContainerFacts {
    /// Number of the attempt, from 0; the restart count is this number.
    pub attempt: u32,
    /// Where the attempt stands.
    pub state: ContainerState,
    /// A stop was asked for, and when the signal went out.
    pub stopping: Option<Time>,
    /// How the attempt before this one ended.
    pub last: Option<Ended>,
    /// Results of probes of this attempt.
    pub probes: BTreeMap<ProbeKind, ProbeFacts>,
}

/// Where an attempt stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// The start was ordered and is not answered yet.
    Starting {
        /// When it was ordered.
        since: Time,
    },
    /// It could not be started: the image cannot be resolved, the program cannot be executed.
    Refused {
        /// `ErrImagePull`, `InvalidImageName`, `ErrImageNeverPull`, `CreateContainerError`, `StartError`.
        reason: String,
        /// What to write instead.
        message: String,
        /// When.
        at: Time,
    },
    /// A process runs.
    Running {
        /// Its pid, for people and tests; never used to signal.
        pid: u32,
        /// When it started.
        since: Time,
    },
    /// The process has ended.
    Ended(Ended),
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Exit code; 128 + signal when a signal ended it; 137 when nobody knows.
    pub code: i32,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// `OOMKilled`, `ContainerStatusUnknown`, `StartError`; none for the usual Completed or Error.
    pub reason: Option<String>,
    /// The termination message.
    pub message: String,
    /// When it started.
    pub started: Option<Time>,
    /// When it ended.
    pub finished: Time,
}

/// Which of a container's probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProbeKind {
    /// Holds the other two back until it succeeds.
    Startup,
    /// Its failure restarts the container.
    Liveness,
    /// Its result is the container's readiness.
    Readiness,
}

/// Results of one probe of one attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeFacts {
    /// A probe is under way since then.
    pub in_flight: Option<Time>,
    /// When the last one was answered.
    pub last: Option<Time>,
    /// Successes in a row.
    pub successes: i32,
    /// Failures in a row.
    pub failures: i32,
    /// What the last failure said, at most 10 KiB.
    pub message: String,
}
