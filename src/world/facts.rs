//! What the machine last reported. Facts are kept by the runtime across restarts of the control plane; kubelet turns them into status.

use super::entrance::{Blocked, Doors, Entrance, HostPort, Unbound};
use super::limits::{Limits, Storage};
use super::plan::{Globs, Route};
use super::policy::{Denial, Policy};
use super::pressure::Pressure;
use super::refusals::Refusal;
use super::usage::{Sample, Throttling, Usage};
use crate::object::{Key, Object, Resource, Str, Time};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Everything that the machine (or its simulated twin) has reported.
#[derive(Default, Clone)]
pub struct Facts {
    /// Pods by uid, as their shims report them. A uid without a pod in the store is a pod to sweep away.
    pub pods: Pods,
    /// Nodes by name.
    pub nodes: HashMap<Str, NodeFacts>,
    /// Plans that the API server refused, by loop and key: what the loop shows as a condition or an event.
    pub refusals: HashMap<(&'static str, Key), Refusal>,
    /// Where the addresses of Services lead, by Service, as it was last ordered.
    pub routes: BTreeMap<Key, Route>,
    /// What Ingresses let in, as it was last ordered.
    pub entrances: BTreeMap<Key, Arc<Entrance>>,
    /// The ports of the machine that lead to pods, as was last ordered.
    pub exposed: BTreeMap<Key, Vec<HostPort>>,
    /// Where nobody can listen for a Service or a pod, and whether that was told.
    pub blocked: BTreeMap<Key, (Vec<Blocked>, bool)>,
    /// What NetworkPolicies say, as it was last ordered.
    pub policies: BTreeMap<Key, Arc<Policy>>,
    /// Where the proxy for Ingresses listens.
    pub doors: Doors,
    /// The files that are watched, by the name of the Image object.
    pub watched: BTreeMap<Str, Watched>,
    /// The last builds of images, by the name of the Image object.
    pub builds: BTreeMap<Str, Built>,
    /// What autoscalers remember, by uid.
    pub autoscalers: HashMap<Str, Autoscaler>,
    /// What the manifests of the kubelet's folder ask for, by the key of its mirror pod.
    pub statics: BTreeMap<Key, StaticPod>,
    /// How much is left of what pods share.
    pub pressure: Pressure,
    /// Whether every shim that the last control plane left has been asked: no start is planned before.
    pub inventory_complete: bool,
}

/// Facts about pods by uid, with the uids of each name beside them: a pod that was deleted and made again has two for a while.
#[derive(Default, Clone, Debug)]
pub struct Pods {
    by_uid: HashMap<Str, PodFacts>,
    by_key: HashMap<Key, BTreeSet<Str>>,
}

impl Pods {
    /// What is known of a pod.
    pub fn get(&self, uid: &str) -> Option<&PodFacts> {
        self.by_uid.get(uid)
    }

    /// The same, to change it; its namespace and name stay as they are.
    pub fn get_mut(&mut self, uid: &str) -> Option<&mut PodFacts> {
        self.by_uid.get_mut(uid)
    }

    /// Takes in what a shim says of its pod.
    pub fn insert(&mut self, uid: Str, pod: PodFacts) {
        self.remove(&uid);
        self.by_key.entry(pod.key()).or_default().insert(uid.clone());
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
        Some(pod)
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&Str, &PodFacts)> {
        self.by_uid.iter()
    }

    /// Those that carry, or carried, this name.
    pub fn named(&self, key: &Key) -> impl Iterator<Item = (&Str, &PodFacts)> {
        self.by_key.get(key).into_iter().flatten().filter_map(|uid| self.by_uid.get_key_value(uid))
    }
}

/// A pod that a manifest of the kubelet's folder asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct StaticPod {
    /// The file.
    pub file: String,
    /// The hash of the manifest: what its node knows the pod by.
    pub hash: Str,
    /// The pod, with all defaults.
    pub object: Arc<Object>,
}

/// Watched files of an image.
#[derive(Default, Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// Which files, as was last ordered.
    pub files: Globs,
    /// Their content, once it was reported.
    pub seen: Option<Sources>,
}

/// The last build of an image's program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Built {
    /// What it is made of ([`Build::inputs`](super::start::Build)).
    pub inputs: String,
    /// How far it is.
    pub stage: BuildStage,
}

impl Built {
    /// Whether the program is made of this.
    pub fn went_well(&self, inputs: &str) -> bool {
        self.inputs == inputs && matches!(self.stage, BuildStage::Ended { error: None, .. })
    }
}

/// How far a build is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildStage {
    /// It was ordered.
    Ordered,
    /// Its command runs.
    Running {
        /// Since then.
        since: Time,
    },
    /// It is over.
    Ended {
        /// When it began; none when what is wanted was there already.
        since: Option<Time>,
        /// When it ended.
        at: Time,
        /// The last lines that it has written.
        output: String,
        /// Why it failed, if it did.
        error: Option<String>,
    },
}

/// The content of files.
#[derive(Default, Clone, Debug, PartialEq, Eq)]
pub struct Sources {
    /// Differs when their content does.
    pub digest: Str,
    /// How many there are.
    pub files: usize,
    /// What is wrong with them; empty when nothing is.
    pub message: String,
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
    /// When it was last ordered that its processes end for good.
    pub removing: Option<Time>,
    /// Whether the room that it takes is watched.
    pub watched: bool,
    /// What took more room than it may.
    pub over: Option<Storage>,
    /// What its containers used when they were last measured.
    pub usage: BTreeMap<Str, Measured>,
    /// When that was.
    pub measured: Option<Time>,
    /// Connections that policies denied to its processes, and that no event has told of yet.
    pub denied: Vec<Denial>,
    /// Ports that its programs could not bind, and that no event has told of yet.
    pub unbound: Vec<Unbound>,
    /// The content that its volumes were last ordered to have ([`fingerprint`](super::volume::fingerprint)).
    pub volumes: Option<u64>,
}

impl PodFacts {
    /// Whether a process of it runs.
    pub fn runs(&self) -> bool {
        self.containers.values().any(|one| matches!(one.state, ContainerState::Running { .. }))
    }

    /// Whether a container is held back by its CPU limit of which no event has told.
    pub fn is_to_be_told_throttled(&self) -> bool {
        self.containers.values().any(|known| known.throttled == Throttled::Untold)
    }

    /// The pod's key.
    pub fn key(&self) -> Key {
        Key::new(Resource("pods"), &self.namespace, &self.name)
    }
}

impl ContainerFacts {
    /// An attempt of which nothing more is known.
    pub fn new(attempt: u32, state: ContainerState) -> ContainerFacts {
        ContainerFacts {
            attempt,
            state,
            stopping: None,
            last: None,
            image: String::new(),
            refusals: 0,
            limits: None,
            resizing: None,
            resize_error: None,
            probes: Default::default(),
            throttled: Throttled::No,
        }
    }

    /// How the attempt ended, if it has.
    pub fn ended(&self) -> Option<&Ended> {
        match &self.state {
            ContainerState::Ended(ended) => Some(ended),
            _ => None,
        }
    }

    /// Whether the attempt is over, by its end or by its refusal.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, ContainerState::Ended(_) | ContainerState::Refused { .. })
    }
}

/// What a container used over a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// From here on.
    pub since: Time,
    /// Up to here.
    pub at: Time,
    /// What it had used so far then.
    pub sample: Sample,
    /// What it used in between.
    pub usage: Usage,
    /// How its CPU limit held it back in between.
    pub throttling: Throttling,
}

/// What a HorizontalPodAutoscaler remembers from one look at its pods to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Autoscaler {
    /// When its pods were last asked what they use.
    pub asked: Option<Time>,
    /// When it last drew its conclusions.
    pub synced: Option<Time>,
    /// What its metrics have asked for.
    pub recommendations: Vec<(Time, i64)>,
    /// By how much it has changed the size.
    pub scalings: Vec<(Time, i64)>,
}

/// What is known of one container's newest attempt.
#[derive(Clone, Debug)]
pub struct ContainerFacts {
    /// Number of the attempt, from 0; the restart count is this number.
    pub attempt: u32,
    /// Where the attempt stands.
    pub state: ContainerState,
    /// A stop was ordered.
    pub stopping: Option<Stopping>,
    /// How the attempt before this one ended.
    pub last: Option<Ended>,
    /// The state of the Image object that it was last tried with; empty without one.
    pub image: String,
    /// How often this attempt was refused; the backoff of image resolution counts by it.
    pub refusals: u32,
    /// What it may use, as was last confirmed; none of an attempt that ran before this control plane did.
    pub limits: Option<Limits>,
    /// When it was last ordered that it may use something else.
    pub resizing: Option<Time>,
    /// Why that was not done.
    pub resize_error: Option<String>,
    /// Results of probes of this attempt.
    pub probes: BTreeMap<ProbeKind, ProbeFacts>,
    /// Whether its CPU limit was seen to hold this attempt back.
    pub throttled: Throttled,
}

/// Whether a CPU limit was seen to hold an attempt back heavily.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Throttled {
    /// It was not.
    #[default]
    No,
    /// It was, and no event has told of it yet.
    Untold,
    /// It was, and an event tells of it.
    Told,
}

/// A stop that was ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopping {
    /// When it was first ordered: the stop signal went out.
    pub since: Time,
    /// When it was last ordered.
    pub asked: Time,
    /// When SIGKILL is due; a later order may only shorten it.
    pub kill_at: Time,
}

/// Where an attempt stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// The start was ordered and is not answered yet.
    Starting {
        /// When it was last ordered.
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

impl Ended {
    /// The reason of an end that nobody saw.
    pub const UNKNOWN: &str = "ContainerStatusUnknown";
    /// The reason of an end by the kernel, because the container had no memory left.
    pub const OOM_KILLED: &str = "OOMKilled";
    /// The reason of an end before the beginning: the program was found and could not be run.
    pub const START_ERROR: &str = "StartError";

    /// Whether the program never ran.
    pub fn is_start_error(&self) -> bool {
        self.reason.as_deref() == Some(Ended::START_ERROR)
    }
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
    /// No probe but a hook: its failure ends the container.
    PostStart,
    /// The hook before the stop.
    PreStop,
}

/// Results of one probe of one attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeFacts {
    /// When the first one was ordered.
    pub since: Option<Time>,
    /// A probe is under way since then.
    pub in_flight: Option<Time>,
    /// When the last one was answered.
    pub last: Option<Time>,
    /// Successes in a row.
    pub successes: i32,
    /// Failures in a row.
    pub failures: i32,
    /// What the last answer said, at most 10 KiB.
    pub message: String,
    /// The last answer, when it was no plain success and no event has told of it yet.
    pub untold: Option<Verdict>,
}

/// What one answer of a probe comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All is well.
    Success,
    /// A success that is worth a word.
    Warning,
    /// It is not well.
    Failure,
    /// The probe itself could not be made: it counts for nothing.
    Unknown,
}
