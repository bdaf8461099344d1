//! Reports from the machine.
//!
//! Never: changes anything; `super::recording` does. Start reading at [`Report`].

use super::facts::{ContainerState, FilePatterns, LastBuild, ProbeKind, ProbeResult, SourceDigests};
use super::ingress_routes::{BindReport, BlockedListener, IngressListeners};
use super::limits::{Limits, StorageKind};
use super::policy::DeniedConnection;
use super::usage::UsageSample;
use crate::object::{Key, Str, Time};

/// A report of the machine, real or simulated. Late and repeated reports do no harm.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// State of a container's attempt.
    Container {
        /// The pod.
        pod_uid: Str,
        /// The container.
        container: Str,
        /// The attempt.
        attempt: u32,
        /// `Running`, `Ended` or `Refused`.
        state: ContainerState,
    },
    /// The missing program of a refused attempt has been installed.
    Findable {
        /// The pod.
        pod_uid: Str,
        /// The container.
        container: Str,
        /// The attempt.
        attempt: u32,
    },
    /// A probe was answered.
    Probe {
        /// The pod.
        pod_uid: Str,
        /// The container.
        container: Str,
        /// The attempt that was probed.
        attempt: u32,
        /// The probe.
        kind: ProbeKind,
        /// Result of the probe.
        verdict: ProbeResult,
        /// Message of the probe when the result is not a plain success.
        message: String,
        /// Time of the answer.
        at: Time,
    },
    /// The content of an image's watched files.
    Sources {
        /// The Image object's name.
        image: Str,
        /// The file patterns that were read.
        files: FilePatterns,
        /// Digest of the files' content.
        sources: SourceDigests,
    },
    /// Progress of the build of an image.
    Build {
        /// The Image object's name.
        image: Str,
        /// Inputs and progress.
        built: LastBuild,
    },
    /// New limits of a container were applied, or could not be.
    Resized {
        /// The pod.
        pod_uid: Str,
        /// The container.
        container: Str,
        /// The attempt.
        attempt: u32,
        /// The limits that were ordered.
        limits: Box<Limits>,
        /// Error, if the limits could not be applied.
        error: Option<String>,
    },
    /// The content of some volumes of a pod could not be updated.
    NotRefreshed {
        /// The pod.
        pod_uid: Str,
        /// Time of the attempt.
        at: Time,
        /// The first volume that failed, and the error.
        why: String,
    },
    /// Part of a pod exceeds its storage limit.
    Over {
        /// The pod.
        pod_uid: Str,
        /// The part of the pod.
        of: StorageKind,
    },
    /// Cumulative usage of a pod's containers.
    Usage {
        /// The pod.
        pod_uid: Str,
        /// Time of the sample.
        at: Time,
        /// Usage of the running containers.
        samples: Vec<(Str, UsageSample)>,
    },
    /// The listeners that could not be opened for a Service or a pod have changed.
    Blocked {
        /// The Service, or the pod.
        about: Key,
        /// All listeners of this Service or pod that could not be opened.
        listeners: Vec<BlockedListener>,
    },
    /// A connection was denied to a pod.
    Denied {
        /// The pod.
        pod_uid: Str,
        /// The connection, and the policy side that denied it.
        denial: DeniedConnection,
    },
    /// A program of a pod could not bind a port, or bound another in its place.
    Bind {
        /// The pod.
        pod_uid: Str,
        /// The port, and the reason or the other port.
        bind: BindReport,
    },
    /// Another cluster that runs on this machine has the same addresses 127.N.0.0/16.
    SharedNetwork(u8),
    /// A link to another machine broke, or works again.
    LinkState {
        /// The node; empty for the links that this machine accepts.
        node: Str,
        /// Error of the broken link; `None` when it works again.
        problem: Option<String>,
    },
    /// The addresses on which the Ingress proxy listens have changed.
    IngressListeners(IngressListeners),
    /// No process or file of a pod is left.
    Removed {
        /// The pod.
        pod_uid: Str,
    },
    /// No process of a pod is left, but its folder could not be removed.
    NotRemoved {
        /// The pod.
        pod_uid: Str,
        /// The file that could not be removed, and the error.
        why: String,
    },
    /// The files of a deleted persistent volume could not be removed; the machine tries again.
    NotDiscarded {
        /// The volume, the file that could not be removed, and the error.
        why: String,
    },
}

impl Report {
    /// The Service or the pod that a report about its listeners names.
    pub fn blocked_object(&self) -> Option<Key> {
        if let Report::Blocked { about, .. } = self { Some(about.clone()) } else { None }
    }

    /// The pod that the report names, if any.
    pub fn pod_uid(&self) -> Option<&Str> {
        match self {
            Report::Container { pod_uid, .. }
            | Report::Findable { pod_uid, .. }
            | Report::Probe { pod_uid, .. }
            | Report::Resized { pod_uid, .. }
            | Report::Over { pod_uid, .. }
            | Report::NotRefreshed { pod_uid, .. }
            | Report::Usage { pod_uid, .. }
            | Report::Denied { pod_uid, .. }
            | Report::Bind { pod_uid, .. }
            | Report::Removed { pod_uid }
            | Report::NotRemoved { pod_uid, .. } => Some(pod_uid),
            Report::Sources { .. }
            | Report::Build { .. }
            | Report::Blocked { .. }
            | Report::SharedNetwork(_)
            | Report::LinkState { .. }
            | Report::IngressListeners(_)
            | Report::NotDiscarded { .. } => None,
        }
    }
}
