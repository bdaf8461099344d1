//! Everything a loop may want done: writes, effects, events, reasons, and when to look again.

use super::crowd::Term;
use super::entrance::{Entrance, HostPort};
use super::facts::{Autoscaler, ProbeKind};
use super::limits::{Bound, Limits};
use super::policy::Policy;
use super::volume::{Files, Volume};
use crate::object::{Key, Object, Str, Time};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The answer of a loop about one key.
#[derive(Default, Debug, Clone, PartialEq)]
pub struct Plan {
    /// Committed together with other plans in one transaction, in this order.
    pub writes: Vec<Write>,
    /// Carried out after the commit; each is idempotent.
    pub effects: Vec<Effect>,
    /// Recorded as Event objects, aggregated.
    pub events: Vec<Event>,
    /// Why nothing (more) is done yet, for `why` and dry runs.
    pub waits: Vec<String>,
    /// The next moment to look at this key even if nothing changes.
    pub wake: Option<Time>,
    /// Which changes of other objects could help a pod that no node can take.
    pub hold: Option<Hold>,
}

/// What a pod waits for that no node can take.
#[derive(Clone, Debug, Default)]
pub struct Hold {
    /// The plugins of the scheduler that refused nodes.
    pub causes: BTreeSet<&'static str>,
    /// The same for pods that the same changes help.
    pub alike: Str,
    /// Which pods it has to be near.
    pub near: Arc<[Term]>,
    /// Which pods it must not be near.
    pub far: Arc<[Term]>,
    /// Which pods its constraints count.
    pub spread: Arc<[Term]>,
}

impl PartialEq for Hold {
    fn eq(&self, other: &Hold) -> bool {
        self.alike == other.alike
    }
}

/// One write, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// What to write.
    pub verb: Verb,
    /// A reason for people, in one line.
    pub why: String,
}

/// What to write. Every one passes the API server's whole pipeline.
#[derive(Debug, Clone, PartialEq)]
pub enum Verb {
    /// Creates the object; a taken name is an error unless the same owner made it.
    Create(Object),
    /// Replaces spec and metadata; `metadata.resourceVersion` in the object is the revision relied on.
    Update(Object),
    /// Replaces the status alone.
    Status(Object),
    /// Deletes, if the uid still is the same.
    Delete {
        /// Which.
        key: Key,
        /// The uid relied on.
        uid: Str,
        /// Seconds of grace; none for the object's own.
        grace: Option<i64>,
        /// What happens to dependents.
        propagation: Propagation,
    },
    /// Binds a pod to a node (`pods/binding`).
    Bind {
        /// The pod.
        pod: Key,
        /// The uid relied on.
        uid: Str,
        /// The node's name.
        node: Str,
    },
    /// Records that this attempt of a container is about to be started; committed before the start is carried out.
    Attempt {
        /// The pod's uid.
        pod_uid: Str,
        /// The container.
        container: Str,
        /// The number of the attempt, from 0.
        attempt: u32,
    },
}

/// What a deletion does to dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Propagation {
    /// The object goes at once, dependents follow.
    #[default]
    Background,
    /// Dependents that block go first.
    Foreground,
    /// Dependents stay, without this owner.
    Orphan,
}

/// What to do on the machine. Names say which attempt, so that repeating one does no harm.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Starts an attempt of a container, with the pod's shim when there is none yet.
    Start(Box<Start>),
    /// Ends a running attempt: the stop signal now, SIGKILL after the grace. Always answered with how the attempt ended: one that
    /// the machine does not know (its start was lost on the way) ended with code 137, and is never started after that.
    Stop {
        /// The pod.
        pod_uid: Str,
        /// The container.
        container: Str,
        /// The attempt.
        attempt: u32,
        /// Seconds until SIGKILL; 0 kills at once. May only shorten an earlier stop.
        grace_seconds: i64,
    },
    /// Ends whatever is left of a pod's processes and forgets the pod: shim, folder, facts.
    Remove {
        /// The pod.
        pod_uid: Str,
    },
    /// Runs one probe; the answer becomes a fact.
    Probe(Box<Probe>),
    /// Sets where a Service leads.
    Route {
        /// The Service.
        service: Key,
        /// All of it.
        route: Route,
    },
    /// Sets what an Ingress lets in.
    Admit {
        /// The Ingress.
        ingress: Key,
        /// All of it; none when it lets nothing in any more.
        entrance: Option<std::sync::Arc<Entrance>>,
    },
    /// Sets which ports of the machine lead to a pod.
    Expose {
        /// The pod.
        pod: Key,
        /// All of them.
        ports: Vec<HostPort>,
    },
    /// Events of the same plan tell where nobody can listen for a Service or a pod. Nothing is to be done on the machine.
    ToldBlocked {
        /// The Service, or the pod.
        about: Key,
    },
    /// Sets what a NetworkPolicy says.
    Police {
        /// The policy.
        policy: Key,
        /// All of it; none when it says nothing any more.
        rules: Option<std::sync::Arc<Policy>>,
    },
    /// Events of the same plan tell of all connections that were denied to a pod, and of all ports that its programs could not bind. Nothing is to be done on the machine.
    ToldDenied {
        /// The pod.
        pod_uid: Str,
    },
    /// An event of the same plan tells of a probe's last failure. Nothing is to be done on the machine: that it was told is the fact.
    Told {
        /// The pod.
        pod_uid: Str,
        /// The container.
        container: Str,
        /// The attempt that was probed.
        attempt: u32,
        /// Which probe.
        kind: ProbeKind,
    },
    /// An event of the same plan tells that its CPU limit holds an attempt back. Nothing is to be done on the machine.
    ToldThrottled {
        /// The pod.
        pod_uid: Str,
        /// The container.
        container: Str,
        /// The attempt that was measured.
        attempt: u32,
    },
    /// Measures what pods use; the answers become facts.
    Measure {
        /// The pods.
        pods: Vec<Str>,
    },
    /// Lets a running container use something else.
    Resize {
        /// The pod.
        pod_uid: Str,
        /// The container.
        container: Str,
        /// The attempt.
        attempt: u32,
        /// What it may use.
        limits: Box<Limits>,
    },
    /// From now on watches how much room a pod takes; what is over its bound is reported.
    Confine {
        /// The pod.
        pod_uid: Str,
        /// How much there is.
        bounds: Vec<Bound>,
    },
    /// What an autoscaler remembers. Nothing is to be done on the machine: it is a fact from now on.
    Remember {
        /// Its uid.
        autoscaler: Str,
        /// All that it remembers.
        memory: Box<Autoscaler>,
    },
    /// Deletes the folder of a persistent volume of the cluster.
    Discard {
        /// The PersistentVolume's name.
        volume: Str,
    },
    /// Watches the files of an image: their content is reported now and whenever it changes. Without globs nothing is watched any more.
    Watch {
        /// The Image object's name.
        image: Str,
        /// Which files.
        files: Globs,
    },
    /// Builds an image's program while what was built before still runs.
    Build {
        /// The image, and how it is built.
        image: Box<Image>,
    },
    /// Brings the content of a running pod's volumes up to date.
    Refresh {
        /// The pod.
        pod_uid: Str,
        /// Its volumes.
        volumes: std::sync::Arc<[Volume]>,
    },
}

/// Files of a folder, by patterns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Globs {
    /// The folder that they are relative to.
    pub folder: String,
    /// The patterns: `*` is any text within a name, `**` any folders.
    pub globs: Vec<String>,
}

/// Where a Service leads: the whole of it. Addresses alone lead nowhere any more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The Service's address; empty when it has none.
    pub address: Str,
    /// Its further addresses: those of its load balancer.
    pub balancers: Vec<Str>,
    /// `spec.externalName`.
    pub alias: Str,
    /// Whoever its name means, when it has no address.
    pub members: Vec<Member>,
    /// Its ports.
    pub ports: Vec<RoutePort>,
}

impl Route {
    /// Every address of it.
    pub fn addresses(&self) -> impl Iterator<Item = &Str> {
        std::iter::once(&self.address).chain(&self.balancers).filter(|address| !address.is_empty())
    }

    /// Whether nothing of the Service is to be found any more.
    pub fn leads_nowhere(&self) -> bool {
        self.alias.is_empty() && self.members.is_empty() && self.ports.is_empty()
    }
}

/// One pod behind a Service without an address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Member {
    /// Its address.
    pub address: Str,
    /// Its name within the Service; empty when it has none.
    pub hostname: Str,
}

/// One port of a Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoutePort {
    /// Its name; empty when it has none.
    pub name: Str,
    /// `TCP` or `UDP`.
    pub protocol: Str,
    /// The port.
    pub port: u16,
    /// The port on every node, for Services that have one.
    pub node_port: Option<u16>,
    /// Whether a client comes to the same endpoint each time (`sessionAffinity: ClientIP`).
    pub sticky: bool,
    /// `address:port` of all that may be connected to, ordered.
    pub endpoints: Vec<Str>,
}

/// Who a container runs as. What is not said is as the machine knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// `runAsUser`.
    pub user: Option<u32>,
    /// `runAsGroup`.
    pub group: Option<u32>,
    /// `supplementalGroups`, and `fsGroup`.
    pub groups: Vec<u32>,
    /// `fsGroup`: the group of what is in its volumes.
    pub files: Option<u32>,
    /// Whether it has no other groups than these (`supplementalGroupsPolicy: Strict`).
    #[serde(default)]
    pub strict: bool,
}

/// What an Image object says of a start's image. Its variables and its view of files are in the start already.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Image {
    /// The object's name.
    pub name: Str,
    /// Differs when the object does.
    pub state: String,
    /// The program and its first arguments; none when it does not say, empty when there is no program.
    pub entrypoint: Option<Vec<String>>,
    /// The arguments for want of the container's own.
    pub command: Vec<String>,
    /// The folder of the object's manifest, which relative paths are relative to.
    pub folder: Option<String>,
    /// Who the container runs as, when it does not say itself.
    pub user: Option<String>,
    /// The content of its watched files; empty when it watches none.
    pub sources: Str,
    /// What has to be run once before the first start.
    pub build: Option<Build>,
}

impl Image {
    /// The state of the object and of its watched files, in one.
    pub fn tried(&self) -> String {
        format!("{} {}", self.state, self.sources)
    }
}

/// How the program of an image is made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Build {
    /// Program and arguments.
    pub command: Vec<String>,
    /// The folder to run it in.
    pub folder: Option<String>,
    /// Declared variables.
    pub env: Vec<(String, String)>,
    /// What it is made of: while this is the same, it need not be run again.
    pub inputs: String,
}

/// What a container may do beyond what its user may.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rights {
    /// The capabilities that are left to it, one bit each by the kernel's numbers; all that kloop has when nothing is said.
    pub capabilities: Option<u64>,
    /// Whether nothing that it executes may have more rights than it (`allowPrivilegeEscalation: false`).
    pub no_more: bool,
}

/// Whether a container that ends is started again, by its policy alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Again {
    /// It is not.
    #[default]
    Never,
    /// When its exit code is not 0.
    OnFailure,
    /// However it ended.
    Always,
}

impl Again {
    /// Whether it is after this exit code.
    pub fn follows(self, code: i32) -> bool {
        match self {
            Again::Never => false,
            Again::OnFailure => code != 0,
            Again::Always => true,
        }
    }
}

/// Everything that a start needs; resolved by kubelet as far as it can without looking at the machine.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Start {
    /// The pod's uid.
    pub pod_uid: Str,
    /// The pod's namespace.
    pub namespace: Str,
    /// The pod's name.
    pub pod: Str,
    /// The node.
    pub node: Str,
    /// The pod's address.
    pub ip: Str,
    /// `spec.hostname`, or the pod's name.
    pub hostname: Str,
    /// Whether the pod is on the machine's own network, and so has its name.
    pub host_network: bool,
    /// The container's name.
    pub container: Str,
    /// The attempt.
    pub attempt: u32,
    /// The image as written.
    pub image: String,
    /// What an Image object says of it, if there is one.
    pub brought: Option<Image>,
    /// The folder that a relative image path is relative to, when the manifest's folder is known.
    pub manifest_dir: Option<String>,
    /// `command`, expanded; empty for the image's own.
    pub command: Vec<String>,
    /// `args`, expanded.
    pub args: Vec<String>,
    /// Declared environment, expanded, in order; the runtime puts its small base before it.
    pub env: Vec<(String, String)>,
    /// Its files and volumes.
    pub files: Files,
    /// Variables that tell where volumes are that are not mounted: the variable, and the volume's name.
    pub volume_paths: Vec<(String, String)>,
    /// `workingDir`.
    pub working_dir: Option<String>,
    /// `imagePullPolicy`.
    pub pull_policy: String,
    /// `terminationMessagePath`.
    pub termination_message_path: String,
    /// Whether the tail of the log stands in for an empty termination message on errors.
    pub termination_from_logs: bool,
    /// `stdin`.
    pub stdin: bool,
    /// `stdinOnce`.
    pub stdin_once: bool,
    /// `tty`.
    pub tty: bool,
    /// What it may use.
    pub limits: Limits,
    /// Who it runs as, when not as whoever runs kloop.
    pub user: Option<User>,
    /// What it may do.
    pub rights: Rights,
    /// Whose processes it sees.
    pub processes: super::Processes,
    /// Whether it is started again when it ends.
    pub again: Again,
    /// The signal that asks the container to end, `SIGTERM` unless `lifecycle.stopSignal` says otherwise.
    pub stop_signal: String,
    /// On a simulated node: how the pretended container behaves.
    pub script: Option<Script>,
}

/// How a container on a simulated node behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// Seconds after which it ends with this code; none for a container that stays.
    pub exit: Option<(i64, i32)>,
}

/// One probe to run.
#[derive(Debug, Clone, PartialEq)]
pub struct Probe {
    /// The pod's uid.
    pub pod_uid: Str,
    /// The container.
    pub container: Str,
    /// The attempt that the answer belongs to.
    pub attempt: u32,
    /// Which probe.
    pub kind: ProbeKind,
    /// The handler as in the spec, with named ports resolved to numbers: one of exec, httpGet, tcpSocket, grpc.
    pub handler: Value,
    /// The address to probe when the handler names none.
    pub ip: Str,
    /// Seconds until it counts as failed.
    pub timeout_seconds: i64,
}

/// An event to record about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What it is about.
    pub about: Key,
    /// That object's uid.
    pub uid: Str,
    /// `spec.containers{name}`, or empty.
    pub field_path: String,
    /// Normal or Warning.
    pub kind: EventType,
    /// One CamelCase word.
    pub reason: &'static str,
    /// The sentence.
    pub message: String,
    /// When what it tells of is over by itself, where that is known: nothing that is stored.
    pub until: Option<Time>,
}

/// `type` of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventType {
    /// Things go their way.
    Normal,
    /// Something needs attention.
    Warning,
}

impl Plan {
    /// Nothing to do.
    pub fn nothing() -> Plan {
        Plan::default()
    }

    /// Whether nothing is to be done now.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.effects.is_empty()
    }

    /// Adds a write.
    pub fn write(&mut self, verb: Verb, why: impl Into<String>) {
        self.writes.push(Write { verb, why: why.into() });
    }

    /// Adds an event about a row.
    pub fn event(&mut self, row: &super::Row, kind: EventType, reason: &'static str, message: impl Into<String>) {
        self.events.push(Event {
            about: row.key.clone(),
            uid: row.uid.clone(),
            field_path: String::new(),
            kind,
            reason,
            message: message.into(),
            until: None,
        });
    }

    /// Says what is waited for.
    pub fn wait(&mut self, what: impl Into<String>) {
        self.waits.push(what.into());
    }

    /// Asks to be looked at again at this moment; the earliest asked for counts.
    pub fn wake_at(&mut self, at: Time) {
        self.wake = Some(self.wake.map_or(at, |known| known.min(at)));
    }
}
