//! Facts: the last report of the machine. The runtime keeps them across restarts of the control plane; the kubelet
//! turns them into status.

use super::ingress_routes::{BindReport, BlockedListener, IngressListeners};
use super::limits::{Limits, StorageKind};
use super::policy::DeniedConnection;
use super::pressure::NodePressure;
use super::usage::{Throttling, Usage, UsageSample};
use crate::object::{Key, Object, Resource, Str, Time};
use hashbrown::HashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// All reports of the machine, or of its simulated substitute.
#[derive(Default, Clone)]
pub struct Facts {
    /// Pods by uid, as their shims report them. A uid without a pod in the store is a pod to sweep away.
    pub pods: Pods,
    /// Nodes by name.
    pub nodes: HashMap<Str, NodeFacts>,
    /// Addresses at which no listener could be opened, by Service or pod; an empty list once all are open again.
    pub blocked: BTreeMap<Key, Vec<BlockedListener>>,
    /// Errors of broken links, by node; the empty name is the key for the links that this machine accepts.
    pub broken_links: BTreeMap<Str, Str>,
    /// Addresses on which the Ingress proxy listens.
    pub ingress_listeners: IngressListeners,
    /// Digests of the files that an Image object watches, by the object's name, with their patterns.
    pub sources: BTreeMap<Str, (FilePatterns, SourceDigests)>,
    /// The last builds of images, by the name of the Image object.
    pub builds: BTreeMap<Str, LastBuild>,
    /// Static pods from the kubelet's manifest folder, by the key of their mirror pod.
    pub statics: BTreeMap<Key, StaticPod>,
    /// Remaining amounts of the resources that pods share.
    pub pressure: NodePressure,
    /// Whether the machine has said which pods it has from the previous control plane. No start is planned before that.
    pub inventory_complete: bool,
}

impl Facts {
    /// Whether this control plane runs a node, be it simulated.
    pub fn runs_node(&self, name: &str) -> bool {
        self.nodes.get(name).is_some_and(|node| node.ours)
    }

    /// Whether a node is one of this control plane, on a real machine.
    pub fn runs_real_node(&self, name: &str) -> bool {
        self.nodes.get(name).is_some_and(NodeFacts::is_real)
    }

    /// The nodes of this control plane on real machines.
    pub fn real_nodes(&self) -> impl Iterator<Item = &Str> {
        self.nodes.iter().filter(|(_, node)| node.is_real()).map(|(name, _)| name)
    }
}

/// Facts about pods by uid. Also indexes the uids by name (a pod that was deleted and created again has two for a while), and counts the
/// pods at each address, because every start needs a free one.
#[derive(Default, Clone, Debug)]
pub struct Pods {
    by_uid: HashMap<Str, PodFacts>,
    by_key: HashMap<Key, BTreeSet<Str>>,
    addresses: HashMap<Str, usize>,
}

impl Pods {
    /// Returns the facts about a pod.
    pub fn get(&self, uid: &str) -> Option<&PodFacts> {
        self.by_uid.get(uid)
    }

    /// Returns the facts about a pod for changes; its namespace, name and address must stay the same.
    pub fn get_mut(&mut self, uid: &str) -> Option<&mut PodFacts> {
        self.by_uid.get_mut(uid)
    }

    /// Adds the facts that a shim reports of its pod.
    pub fn insert(&mut self, uid: Str, pod: PodFacts) {
        self.remove(&uid);
        self.by_key.entry(pod.key()).or_default().insert(uid.clone());
        *self.addresses.entry(pod.ip.clone()).or_default() += 1;
        self.by_uid.insert(uid, pod);
    }

    /// Forgets a pod.
    pub fn remove(&mut self, uid: &str) -> Option<PodFacts> {
        let pod = self.by_uid.remove(uid)?;
        let key = pod.key();
        if let Some(uids) = self.by_key.get_mut(&key) {
            uids.remove(uid);
            if uids.is_empty() {
                self.by_key.remove(&key);
            }
        }
        if let Some(count) = self.addresses.get_mut(&pod.ip) {
            *count -= 1;
            if *count == 0 {
                self.addresses.remove(&pod.ip);
            }
        }
        Some(pod)
    }

    /// Whether any pod has this address.
    pub fn have_address(&self, ip: &str) -> bool {
        self.addresses.contains_key(ip)
    }

    /// Every pod, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&Str, &PodFacts)> {
        self.by_uid.iter()
    }

    /// The pods that have, or had, this namespace and name.
    pub fn named(&self, key: &Key) -> impl Iterator<Item = (&Str, &PodFacts)> {
        self.by_key.get(key).into_iter().flatten().filter_map(|uid| self.by_uid.get_key_value(uid))
    }
}

/// A static pod from a manifest in the kubelet's folder.
#[derive(Clone, Debug, PartialEq)]
pub struct StaticPod {
    /// The file.
    pub file: String,
    /// The hash of the manifest, by which the node identifies the pod.
    pub hash: Str,
    /// The pod, with all defaults.
    pub object: Arc<Object>,
}

/// The last build of an image's program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastBuild {
    /// Digest of the build's inputs ([`Build::inputs`](super::start::BuildCommand)).
    pub inputs: String,
    /// Progress of the build.
    pub stage: BuildStage,
}

impl LastBuild {
    /// Whether the build succeeded for these inputs.
    pub fn succeeded_with(&self, inputs: &str) -> bool {
        self.inputs == inputs && matches!(self.stage, BuildStage::Ended { error: None, .. })
    }
}

/// Progress of a build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildStage {
    /// The build was ordered.
    Ordered,
    /// The command of the build runs.
    Running {
        /// Start of the build.
        since: Time,
    },
    /// The build has ended.
    Ended {
        /// Start of the build; `None` when its result was there already.
        since: Option<Time>,
        /// End of the build.
        at: Time,
        /// Last lines of the build's output.
        output: String,
        /// Error of a failed build.
        error: Option<String>,
    },
}

/// The content of files.
#[derive(Default, Clone, Debug, PartialEq, Eq)]
pub struct SourceDigests {
    /// A digest of the files' content.
    pub digest: Str,
    /// Number of files.
    pub files: usize,
    /// The problem with the files; empty when there is none.
    pub message: String,
}

/// Facts about a node that this control plane runs.
#[derive(Default, Clone, Debug)]
pub struct NodeFacts {
    /// Whether this process runs the node's pods: the local node or a simulated one.
    pub ours: bool,
    /// Whether the node is simulated (annotation `kloop.dev/runtime: simulated`).
    pub is_simulated: bool,
    /// Time of the last heartbeat.
    pub heartbeat: Option<Time>,
}

impl NodeFacts {
    fn is_real(&self) -> bool {
        self.ours && !self.is_simulated
    }
}

/// Facts about a pod on the machine.
#[derive(Default, Clone, Debug)]
pub struct PodFacts {
    /// The pod's namespace and name, for messages about pods that the store no longer has.
    pub namespace: Str,
    /// See `namespace`.
    pub name: Str,
    /// The node that runs the pod.
    pub node: Str,
    /// The pod's address.
    pub ip: Str,
    /// The pod's containers, including init containers, by name.
    pub containers: BTreeMap<Str, ContainerFacts>,
    /// Time of the last order to end the pod's processes and remove its folder.
    pub removing: Option<Time>,
    /// Whether the pod's disk usage is being measured.
    pub watched: bool,
    /// The storage that exceeded its limit.
    pub over: Option<StorageKind>,
    /// Last measured usage of each container.
    pub usage: BTreeMap<Str, ContainerUsage>,
    /// Time of the last usage sample.
    pub measured: Option<Time>,
    /// Error of the last attempt to remove the pod's folder.
    pub not_removed: Option<String>,
    /// Connections that network policies denied and that no event has reported yet.
    pub denied: Vec<DeniedConnection>,
    /// Ports that the pod's programs could not bind, or bound elsewhere, and that no event has reported yet.
    pub binds: Vec<BindReport>,
    /// The content that its volumes were last ordered to have ([`fingerprint`](super::volume::fingerprint)).
    pub volumes: Option<u64>,
    /// Time and error of the last order, if some volumes did not get their content.
    pub not_refreshed: Option<(Time, String)>,
}

impl PodFacts {
    /// Whether any process of the pod runs.
    pub fn runs(&self) -> bool {
        self.containers.values().any(|one| matches!(one.state, ContainerState::Running { .. }))
    }

    /// Whether a container is throttled by its CPU limit and no event has reported it yet.
    pub fn needs_throttling_report(&self) -> bool {
        self.containers.values().any(|known| known.throttled == ThrottlingState::Unreported)
    }

    /// Notes the state of an attempt, unless a later one is known. Returns whether anything changed. An unknown attempt is taken as it is
    /// reported: its shim could not record it for a new control plane because the disk was full.
    pub(super) fn record_state(&mut self, container: &Str, attempt: u32, state: ContainerState) -> bool {
        let known = self.containers.get_mut(container);
        if let Some(known) = known.filter(|known| known.attempt >= attempt) {
            return known.attempt == attempt && known.record_state(state);
        }
        let last = self.containers.remove(container).and_then(|known| known.ended().cloned().or(known.last));
        self.containers.insert(container.clone(), ContainerFacts { last, ..ContainerFacts::new(attempt, state) });
        true
    }

    /// The pod's key.
    pub fn key(&self) -> Key {
        Key::new(Resource("pods"), &self.namespace, &self.name)
    }
}

impl ContainerFacts {
    /// An attempt without further facts.
    pub fn new(attempt: u32, state: ContainerState) -> ContainerFacts {
        ContainerFacts {
            attempt,
            state,
            stopping: None,
            last: None,
            image: None,
            refusals: 0,
            findable: false,
            limits: None,
            resizing: None,
            resize_error: None,
            probes: Default::default(),
            throttled: ThrottlingState::No,
        }
    }

    /// Returns the end of the attempt, if it has ended.
    pub fn ended(&self) -> Option<&AttemptEnd> {
        match &self.state {
            ContainerState::Ended(ended) => Some(ended),
            _ => None,
        }
    }

    /// Whether the attempt is over, because it ended or because it was refused.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, ContainerState::Ended(_) | ContainerState::Refused { .. })
    }
}

/// Usage of a container over an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerUsage {
    /// Start of the interval.
    pub since: Time,
    /// End of the interval.
    pub at: Time,
    /// Cumulative counters at the end of the interval.
    pub sample: UsageSample,
    /// Usage during the interval.
    pub usage: Usage,
    /// CPU throttling during the interval.
    pub throttling: Throttling,
}

/// Facts about the newest attempt of a container.
#[derive(Clone, Debug)]
pub struct ContainerFacts {
    /// Number of the attempt, from 0; the restart count is this number.
    pub attempt: u32,
    /// State of the attempt.
    pub state: ContainerState,
    /// A stop was ordered.
    pub stopping: Option<OrderedStop>,
    /// End of the previous attempt.
    pub last: Option<AttemptEnd>,
    /// State of the Image object that the last try used, empty without one. `None` when another control plane made that try.
    pub image: Option<String>,
    /// Number of refusals of this attempt; the image pull backoff is derived from it.
    pub refusals: u32,
    /// Whether the missing program of a refused attempt has been installed since the refusal.
    pub findable: bool,
    /// Last confirmed limits; `None` for an attempt older than this control plane.
    pub limits: Option<Limits>,
    /// Time of the last order to resize.
    pub resizing: Option<Time>,
    /// Error of the last resize.
    pub resize_error: Option<String>,
    /// Results of probes of this attempt.
    pub probes: BTreeMap<ProbeKind, ProbeFacts>,
    /// Whether the CPU limit throttled this attempt.
    pub throttled: ThrottlingState,
}

/// Whether a CPU limit throttled an attempt heavily, and whether that was reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThrottlingState {
    /// Not throttled.
    #[default]
    No,
    /// Throttled; no event has reported it yet.
    Unreported,
    /// Throttled; an event has reported it.
    Reported,
}

/// An ordered stop of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderedStop {
    /// Time of the first order, when the stop signal was sent.
    pub since: Time,
    /// Time of the last order.
    pub asked: Time,
    /// Time at which SIGKILL is sent; a later order may only shorten it.
    pub kill_at: Time,
}

/// State of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// The start was ordered and is not answered yet.
    Starting {
        /// Time of the last order.
        since: Time,
    },
    /// The attempt could not be started: the image cannot be resolved, or the program cannot be executed.
    Refused {
        /// `ErrImagePull`, `InvalidImageName`, `ErrImageNeverPull`, `CreateContainerError`, `StartError`.
        reason: String,
        /// Explains the refusal and the remedy.
        message: String,
        /// Time of the refusal.
        at: Time,
    },
    /// A process runs.
    Running {
        /// Its pid, for people and tests; never used to signal.
        pid: u32,
        /// Start of the process.
        since: Time,
    },
    /// The process has ended.
    Ended(AttemptEnd),
}

/// The end of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptEnd {
    /// Exit code; 128 + signal when a signal ended the process; 137 when unknown.
    pub code: i32,
    /// The signal that ended the process.
    pub signal: Option<i32>,
    /// `OOMKilled`, `ContainerStatusUnknown`, `StartError`; none for the usual Completed or Error.
    pub reason: Option<String>,
    /// The termination message.
    pub message: String,
    /// Start of the process.
    pub started: Option<Time>,
    /// End of the process.
    pub finished: Time,
}

impl AttemptEnd {
    /// Reason of an end that nothing observed.
    pub const UNKNOWN: &str = "ContainerStatusUnknown";
    /// The reason of an end by the kernel, because the container had no memory left.
    pub const OOM_KILLED: &str = "OOMKilled";
    /// The reason of an end before the beginning: the program was found and could not be run.
    pub const START_ERROR: &str = "StartError";

    /// The exit code of an end that nothing observed; it never counts as success.
    pub const UNKNOWN_CODE: i32 = 137;
    /// The message of an end that the container's shim did not live to record.
    pub const SHIM_EXITED: &str = "The container's shim exited first; the exit code is unknown.";

    /// Makes an end that nothing observed.
    pub fn unknown(message: &str, started: Option<Time>, finished: Time) -> AttemptEnd {
        AttemptEnd {
            code: AttemptEnd::UNKNOWN_CODE,
            signal: None,
            reason: Some(AttemptEnd::UNKNOWN.into()),
            message: message.into(),
            started,
            finished,
        }
    }

    /// Whether the program never ran.
    pub fn is_start_error(&self) -> bool {
        self.reason.as_deref() == Some(AttemptEnd::START_ERROR)
    }
}

/// Files of a folder, by patterns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FilePatterns {
    /// The folder to which the patterns are relative.
    pub folder: String,
    /// The patterns: `*` is any text within a name, `**` any folders.
    pub globs: Vec<String>,
}

/// The kind of probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProbeKind {
    /// The startup probe: until it succeeds, the other two probes do not run.
    Startup,
    /// The liveness probe: its failure restarts the container.
    Liveness,
    /// The readiness probe: its result is the container's readiness.
    Readiness,
    /// The postStart hook: its failure ends the container.
    PostStart,
    /// The preStop hook.
    PreStop,
}

/// Results of one probe of one attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeFacts {
    /// Time at which the first probe was ordered.
    pub since: Option<Time>,
    /// Start of the probe that runs now.
    pub in_flight: Option<Time>,
    /// Time from which a failure of the probe that runs now counts.
    pub counts_from: Option<Time>,
    /// Time of the last answer, without early failures.
    pub last: Option<Time>,
    /// Time of the last early failure.
    pub last_early: Option<Time>,
    /// Whether any probe has succeeded.
    pub has_succeeded: bool,
    /// Consecutive successes.
    pub successes: i32,
    /// Consecutive failures.
    pub failures: i32,
    /// Message of the last answer, at most 10 KiB.
    pub message: String,
    /// The last answer, when it was not a plain success and no event has reported it yet.
    pub unreported: Option<ProbeResult>,
}

impl ProbeFacts {
    /// Whether a failure of the running probe does not count at that time, because its period has not ended.
    pub fn is_early_at(&self, at: Time) -> bool {
        self.counts_from.is_some_and(|from| at < from)
    }
}

/// Result of one probe run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    /// The probe succeeded.
    Success,
    /// A success that the kubelet reports with a warning event.
    Warning,
    /// The probe failed.
    Failure,
    /// The probe could not be run; the result does not count.
    Unknown,
}

impl PodFacts {
    /// Computes usage rates from new counters and the previous ones, or the start of the container.
    pub(super) fn take_usage(&mut self, at: Time, samples: Vec<(Str, UsageSample)>) {
        let before = std::mem::take(&mut self.usage);
        for (container, sample) in samples {
            let earlier = before.get(&container).map(|known| (known.at, known.sample));
            let started = self.containers.get(&container).and_then(|known| match known.state {
                ContainerState::Running { since, .. } => Some((since, UsageSample::default())),
                _ => None,
            });
            let is_same = earlier.zip(started).is_some_and(|((measured, _), (begun, _))| begun <= measured);
            let sample = earlier.filter(|_| is_same).map_or(sample, |(_, earlier)| sample.not_before(earlier));
            // A restarted container has lower counters than before.
            let rate = |from: (Time, UsageSample)| Some((from.0, Usage::from_samples(from, (at, sample))?));
            let Some((since, usage)) = earlier.and_then(rate).or_else(|| started.and_then(rate)) else { continue };
            let before = earlier.map(|(_, sample)| sample.throttling).unwrap_or_default();
            let throttling = sample.throttling.difference_from(before);
            if let Some(known) = self.containers.get_mut(&container)
                && known.throttled == ThrottlingState::No
                && throttling.is_heavy()
            {
                known.throttled = ThrottlingState::Unreported;
            }
            self.usage.insert(container, ContainerUsage { since, at, sample, usage, throttling });
        }
        self.measured = Some(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_count_unless_a_later_attempt_is_known() {
        let running = |second| ContainerState::Running { pid: 7, since: Time::from_second(second).unwrap() };
        let ended = AttemptEnd {
            code: 3,
            signal: None,
            reason: None,
            message: String::new(),
            started: None,
            finished: Time::UNIX_EPOCH,
        };
        let (container, mut pod) = (Str::from("c"), PodFacts::default());
        assert!(pod.record_state(&container, 4, running(1)), "its record was older than the container");
        assert!(!pod.record_state(&container, 4, running(1)), "nothing new");
        assert!(pod.record_state(&container, 4, ContainerState::Ended(ended.clone())));
        assert!(!pod.record_state(&container, 3, running(2)), "an earlier attempt");
        assert!(pod.record_state(&container, 5, running(3)));
        let known = &pod.containers[&container];
        assert_eq!((known.attempt, &known.state, &known.last), (5, &running(3), &Some(ended)));
    }
}
