//! Everything a loop may want done: writes, effects, events, reasons, and when to plan again.

use super::facts::{FilePatterns, ProbeKind};
use super::ingress_routes::{HostPort, IngressRoute};
use super::limits::{Limits, StorageLimit};
use super::loop_memory::Memory;
use super::node_links::{LinkEnd, NodeLink};
use super::pod_term::PodTerm;
use super::policy::NetworkPolicyRules;
use super::start::{Start, StartImage};
use super::volume::Volume;
use crate::kinds::shared::probe_handler::ProbeHandler;
use crate::object::{Key, Object, Str, Time};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The answer of a loop about one key.
#[derive(Default, Debug, Clone, PartialEq)]
pub struct Plan {
    /// Writes, in order; committed in one transaction with the writes of other plans.
    pub writes: Vec<Write>,
    /// Effects that the machine carries out after the commit; each is idempotent.
    pub effects: Vec<Effect>,
    /// Memory that the World keeps after the commit, so that no later plan repeats an effect or event.
    pub memory: Vec<Memory>,
    /// Recorded as Event objects, aggregated.
    pub events: Vec<PlannedEvent>,
    /// Why nothing (more) is done yet, for `why` and dry runs.
    pub waits: Vec<String>,
    /// When to plan this key again even if nothing changes.
    pub wake: Option<Time>,
    /// For an unschedulable pod: the changes of other objects that could make it schedulable.
    pub scheduling_wait: Option<SchedulingWait>,
    /// Whether another plan of this key after these writes would be empty and have the same wake: then they do not make it due.
    pub is_settled: bool,
    /// Whether its writes are independent: when some are refused, the others are still made.
    pub is_divisible: bool,
}

/// Reasons why no node accepts a pod, used to decide which changes wake it.
#[derive(Clone, Debug, Default)]
pub struct SchedulingWait {
    /// The plugins of the scheduler that refused nodes.
    pub causes: BTreeSet<&'static str>,
    /// A text that is equal for all pods that the same changes help.
    pub alike: Str,
    /// Pods that it must be near (required affinity).
    pub affinity: Arc<[PodTerm]>,
    /// Pods that it must not be near (required anti-affinity).
    pub anti_affinity: Arc<[PodTerm]>,
    /// Pods that its topology spread constraints count.
    pub spread: Arc<[PodTerm]>,
}

impl PartialEq for SchedulingWait {
    fn eq(&self, other: &SchedulingWait) -> bool {
        self.alike == other.alike
    }
}

/// One write, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// The write.
    pub verb: WriteVerb,
    /// A reason for people, in one line.
    pub why: String,
}

/// The fields that a controller applies, as one that Kubernetes has.
#[derive(Debug, PartialEq, Eq)]
pub struct AppliedFields {
    /// The name under which the controller manages them.
    pub manager: &'static str,
    /// Whether they belong to the status, and are applied through `/status`.
    pub is_status: bool,
    /// The path of each.
    pub paths: &'static [&'static [&'static str]],
}

/// A write. Each one passes the API server's whole pipeline.
#[derive(Debug, Clone, PartialEq)]
pub enum WriteVerb {
    /// Creates the object; a taken name is an error unless the same owner made it.
    Create(Object),
    /// Replaces spec and metadata; `metadata.resourceVersion` in the object is the revision relied on.
    Update(Object),
    /// Replaces only the annotations, as a change of the status: Kubernetes' controller writes a Deployment's revision through `/status`.
    AnnotateStatus(Object),
    /// Applies some fields of the object (server-side apply).
    Apply {
        /// The object with the new values.
        object: Object,
        /// These fields, and their manager.
        fields: &'static AppliedFields,
    },
    /// Replaces only the number of replicas, through `/scale`: the object with another number.
    Scale(Object),
    /// Replaces only the status.
    Status(Object),
    /// Deletes, if the uid still is the same.
    Delete {
        /// The object.
        key: Key,
        /// The uid relied on.
        uid: Str,
        /// Seconds of grace; none for the object's own.
        grace: Option<i64>,
        /// Effect on dependents.
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

/// Effect of a deletion on dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Propagation {
    /// Removes the object immediately, and its dependents afterwards.
    #[default]
    Background,
    /// Dependents that block go first.
    Foreground,
    /// Dependents stay, without this owner.
    Orphan,
}

impl Propagation {
    /// The name in `propagationPolicy`: `Background`.
    pub fn name(self) -> &'static str {
        match self {
            Propagation::Background => "Background",
            Propagation::Foreground => "Foreground",
            Propagation::Orphan => "Orphan",
        }
    }
}

/// An action on the machine. Effects name the attempt, so that repeating one is harmless.
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
    /// Kills the remaining processes of a pod and removes its shim, folder and facts.
    Remove {
        /// The pod.
        pod_uid: Str,
    },
    /// Runs one probe; the answer becomes a fact.
    Probe(Box<ProbeRun>),
    /// Sets the route of a Service.
    Route {
        /// The Service.
        service: Key,
        /// The whole route.
        route: Route,
    },
    /// Sets the routes of an Ingress.
    SetIngress {
        /// The Ingress.
        ingress: Key,
        /// All of its routes; `None` removes them.
        ingress_route: Option<std::sync::Arc<IngressRoute>>,
    },
    /// Sets which ports of the machine are forwarded to a pod.
    Expose {
        /// The pod.
        pod: Key,
        /// All forwarded ports of the pod.
        ports: Vec<HostPort>,
    },
    /// Sets the rules of a NetworkPolicy.
    SetNetworkPolicy {
        /// The policy.
        policy: Key,
        /// All of its rules; `None` removes them.
        rules: Option<std::sync::Arc<NetworkPolicyRules>>,
    },
    /// Sets this machine's own end of the links to other machines; `None` when it has none.
    AcceptLinks(Option<LinkEnd>),
    /// Sets the link to another machine.
    SetNodeLink {
        /// The node.
        node: Str,
        /// The link; `None` removes it.
        link: Option<NodeLink>,
    },
    /// Measures the usage of pods; the results become facts.
    Measure {
        /// The pods.
        pods: Vec<Str>,
    },
    /// Changes the limits of a running container.
    Resize {
        /// The pod.
        pod_uid: Str,
        /// The container.
        container: Str,
        /// The attempt.
        attempt: u32,
        /// The limits to set.
        limits: Box<Limits>,
    },
    /// Starts measuring the disk usage of a pod; usage above a limit is reported.
    WatchStorage {
        /// The pod.
        pod_uid: Str,
        /// The limits.
        bounds: Vec<StorageLimit>,
    },
    /// Deletes the folder of a persistent volume of the cluster.
    DeleteVolume {
        /// The PersistentVolume's name.
        volume: Str,
    },
    /// Watches the files of an image: their content is reported now and after each change. Without globs the watch ends.
    Watch {
        /// The Image object's name.
        image: Str,
        /// The file patterns to watch.
        files: FilePatterns,
    },
    /// Builds an image's program while containers of the previous build still run.
    Build {
        /// The image, and how it is built.
        image: Box<StartImage>,
    },
    /// Brings the content of a running pod's volumes up to date.
    Refresh {
        /// The pod.
        pod_uid: Str,
        /// Its volumes whose sources exist.
        volumes: std::sync::Arc<[Volume]>,
        /// Names of the volumes whose source is missing: they keep their content.
        missing: Vec<Str>,
    },
}

/// The complete route of a Service. Addresses without endpoints refuse connections.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The Service's address; empty when it has none.
    pub address: Str,
    /// Addresses of the Service's load balancer.
    pub balancers: Vec<Str>,
    /// `spec.externalName`.
    pub alias: Str,
    /// Endpoints of a headless Service.
    pub members: Vec<HeadlessEndpoint>,
    /// Its ports.
    pub ports: Vec<RoutePort>,
}

impl Route {
    /// Every address of it.
    pub fn addresses(&self) -> impl Iterator<Item = &Str> {
        std::iter::once(&self.address).chain(&self.balancers).filter(|address| !address.is_empty())
    }

    /// Whether the Service has no address, no endpoint and no name left.
    pub fn is_empty(&self) -> bool {
        self.address.is_empty() && self.alias.is_empty() && self.members.is_empty() && self.ports.is_empty()
    }
}

/// One pod behind a Service without an address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HeadlessEndpoint {
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
    /// Whether a hostNetwork pod behind the Service answers at the Service's own address and port directly.
    #[serde(default)]
    pub is_open: bool,
    /// Seconds after a connection in which its client gets the same endpoint (`sessionAffinity: ClientIP`); `None` without affinity.
    pub sticky: Option<u32>,
    /// Whether endpoints speak HTTP/2 with prior knowledge (`appProtocol: kubernetes.io/h2c`, KEP-3726).
    #[serde(default)]
    pub is_h2: bool,
    /// `address:port` of all that may be connected to, ordered.
    pub endpoints: Vec<Str>,
}

/// One probe to run.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeRun {
    /// The pod's uid.
    pub pod_uid: Str,
    /// The container.
    pub container: Str,
    /// The attempt that the answer belongs to.
    pub attempt: u32,
    /// The probe.
    pub kind: ProbeKind,
    /// The handler of the spec, with named ports resolved to numbers; none when the spec has none.
    pub handler: Option<ProbeHandler>,
    /// The address to probe when the handler names none.
    pub ip: Str,
    /// Seconds until it counts as failed.
    pub timeout_seconds: i64,
    /// Set for an early probe: the end of its period. A failure before it does not count.
    pub counts_from: Option<Time>,
}

/// An event to record about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedEvent {
    /// The object that the event is about.
    pub about: Key,
    /// That object's uid.
    pub uid: Str,
    /// `spec.containers{name}`, or empty.
    pub field_path: String,
    /// Normal or Warning.
    pub kind: EventType,
    /// One CamelCase word.
    pub reason: Cow<'static, str>,
    /// The sentence.
    pub message: String,
    /// Time after which the event no longer applies, where known. Not stored.
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
    /// Whether the plan contains nothing to do now.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.effects.is_empty() && self.memory.is_empty()
    }

    /// Adds a write.
    pub fn write(&mut self, verb: WriteVerb, why: impl Into<String>) {
        self.writes.push(Write { verb, why: why.into() });
    }

    /// Adds the deletion of a row, with the object's own grace period and background propagation.
    pub fn delete(&mut self, row: &super::Row, why: impl Into<String>) {
        self.delete_with(row, None, Propagation::Background, why);
    }

    /// Adds the deletion of a row with seconds of grace, or the object's own, and an effect on dependents.
    pub fn delete_with(
        &mut self,
        row: &super::Row,
        grace: Option<i64>,
        propagation: Propagation,
        why: impl Into<String>,
    ) {
        let (key, uid) = (row.key.clone(), row.uid.clone());
        self.write(WriteVerb::Delete { key, uid, grace, propagation }, why);
    }

    /// Adds an event about a row.
    pub fn event(
        &mut self,
        row: &super::Row,
        kind: EventType,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) {
        self.event_about((&row.key, &row.uid), kind, reason, message);
    }

    /// Adds an event about an object that may be gone, by its key and uid.
    pub fn event_about(
        &mut self,
        (key, uid): (&Key, &Str),
        kind: EventType,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) {
        self.events.push(PlannedEvent {
            about: key.clone(),
            uid: uid.clone(),
            field_path: String::new(),
            kind,
            reason: reason.into(),
            message: message.into(),
            until: None,
        });
    }

    /// Records a reason for waiting.
    pub fn wait(&mut self, what: impl Into<String>) {
        self.waits.push(what.into());
    }

    /// Asks for another plan of this key at this moment; the earliest moment asked for counts.
    pub fn wake_at(&mut self, at: Time) {
        self.wake = Some(self.wake.map_or(at, |known| known.min(at)));
    }
}

impl Effect {
    /// The pod that the effect names, if any.
    pub fn pod_uid(&self) -> Option<&Str> {
        match self {
            Effect::Start(start) => Some(&start.pod_uid),
            Effect::Probe(probe) => Some(&probe.pod_uid),
            Effect::Stop { pod_uid, .. }
            | Effect::Remove { pod_uid }
            | Effect::Resize { pod_uid, .. }
            | Effect::Refresh { pod_uid, .. }
            | Effect::WatchStorage { pod_uid, .. } => Some(pod_uid),
            _ => None,
        }
    }
}
