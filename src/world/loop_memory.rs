//! Loop memory: facts that a loop needs in its next plan and that neither an object nor the machine keeps.
//!
//! It is lost when the control plane ends. A loop stays correct without it, but may act later or once too often. Start reading at
//! [`World::remember`].

use super::World;
use super::facts::ProbeKind;
use super::ingress_routes::BlockedListener;
use super::rejected_writes::WriteRefusals;
use crate::object::{Key, Str, Time};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The memory of all loops.
#[derive(Default, Clone)]
pub struct LoopMemory {
    /// Plans that the API server refused: a loop shows them as a condition or an event.
    pub refusals: WriteRefusals,
    /// HorizontalPodAutoscalers, by uid.
    pub autoscalers: HashMap<Str, AutoscalerMemory>,
    /// The failures of Jobs since their last success.
    pub job_backoffs: HashMap<Key, JobBackoff>,
    /// The blocked listeners that events have reported, by Service or pod.
    pub reported_listeners: BTreeMap<Key, Vec<BlockedListener>>,
    /// The uids of nodes that were removed, until an event reports it.
    pub removed_nodes: BTreeMap<Key, Str>,
    /// The times since when nodes have NoExecute taints, by node and key, of taints that do not say it themselves.
    pub tainted_since: BTreeMap<Key, BTreeMap<String, Time>>,
}

/// Maximum number of removed nodes that wait for an event.
pub const MAX_REMOVED_NODES: usize = 1000;

/// A fact that a loop needs in its next plan and that no object keeps. It is lost when the control plane ends.
#[derive(Debug, Clone, PartialEq)]
pub enum Memory {
    /// An event of this plan reports the blocked listeners of a Service or pod.
    ListenersReported {
        /// The Service, or the pod.
        about: Key,
    },
    /// Events of this plan report all denied connections of a pod, and all ports that its programs could not bind.
    ConnectionsReported {
        /// The pod.
        pod_uid: Str,
    },
    /// An event of this plan reports that a node was removed.
    NodeRemovalReported {
        /// The node.
        node: Key,
    },
    /// The times since when a node has taints that do not say it themselves, by the taints' keys.
    TaintedSince {
        /// The node.
        node: Key,
        /// The times; none when there is no such taint, or nothing waits for one.
        since: BTreeMap<String, Time>,
    },
    /// An event of this plan reports the last failure of a probe.
    ProbeReported {
        /// The pod.
        pod_uid: Str,
        /// The container.
        container: Str,
        /// The attempt that was probed.
        attempt: u32,
        /// The probe.
        kind: ProbeKind,
    },
    /// An event of this plan reports that the CPU limit holds an attempt back.
    ThrottlingReported {
        /// The pod.
        pod_uid: Str,
        /// The container.
        container: Str,
        /// The attempt that was measured.
        attempt: u32,
    },
    /// Recommendations and scalings of an autoscaler.
    Autoscaler {
        /// The autoscaler's uid.
        uid: Str,
        /// The autoscaler's memory.
        state: Box<AutoscalerMemory>,
    },
    /// Failures of a Job since its last success; none when there are none or the Job needs no more pods.
    JobBackoff {
        /// The Job.
        job: Key,
        /// Its failures.
        backoff: Option<JobBackoff>,
    },
}

/// Failures of a Job since its last success; the failed pods may be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobBackoff {
    /// The Job's uid.
    pub uid: Str,
    /// Number of pods that had succeeded.
    pub succeeded: i64,
    /// Number of pods that had failed at the last success.
    pub failed_before: i64,
    /// Uids of at most 20 pods whose failures the Job's policy ignored since the last success.
    pub ignored: BTreeSet<Str>,
    /// Time of the last failure.
    pub last_failure: Time,
}

/// State that a HorizontalPodAutoscaler keeps between evaluations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AutoscalerMemory {
    /// Time of the last request for the usage of the autoscaler's pods.
    pub asked: Option<Time>,
    /// Time of the last evaluation.
    pub synced: Option<Time>,
    /// Recommended sizes and when they were computed.
    pub recommendations: Vec<(Time, i64)>,
    /// By how much it has changed the size.
    pub scalings: Vec<(Time, i64)>,
}

impl World {
    /// Stores the memory of a committed plan. Marks facts as reported that its events have reported.
    pub fn remember(&mut self, memory: &Memory) {
        match memory {
            Memory::ListenersReported { about } => {
                let listeners = self.facts.blocked.get(about).cloned().unwrap_or_default();
                if listeners.is_empty() {
                    self.facts.blocked.remove(about);
                    self.loop_memory.reported_listeners.remove(about);
                } else {
                    self.loop_memory.reported_listeners.insert(about.clone(), listeners);
                }
            }
            Memory::NodeRemovalReported { node } => {
                self.loop_memory.removed_nodes.remove(node);
            }
            Memory::TaintedSince { node, since } if since.is_empty() => {
                self.loop_memory.tainted_since.remove(node);
            }
            Memory::TaintedSince { node, since } => {
                self.loop_memory.tainted_since.insert(node.clone(), since.clone());
            }
            Memory::Autoscaler { uid, state } => {
                self.loop_memory.autoscalers.insert(uid.clone(), (**state).clone());
            }
            Memory::JobBackoff { job, backoff: Some(backoff) } => {
                self.loop_memory.job_backoffs.insert(job.clone(), backoff.clone());
            }
            Memory::JobBackoff { job, backoff: None } => {
                self.loop_memory.job_backoffs.remove(job);
            }
            Memory::ConnectionsReported { .. } | Memory::ProbeReported { .. } | Memory::ThrottlingReported { .. } => {
                self.facts.clear_news(memory);
            }
        }
    }
}
