//! Explains why an object has not converged: the chain over its owners and children down to its containers. Each link has the wanted and
//! the observed state, the responsible loop, its last refused write, its next plan, and a remedy.
//!
//! Knows: how each kind leads to the next ([`explain`]), and asks the loops themselves for their next writes and waits ([`dry_run`]). That
//! needs no control plane, because loops are pure.
//! Never: writes, reads a file, or asks a machine: its inputs are a World and a [`ControlPlaneState`] that the caller has read. Start
//! reading at [`explain`].

mod api_service;
mod autoscaler;
mod chain;
mod container;
mod disruption;
mod dry_run;
mod ended;
mod everything;
mod image;
mod ingress;
mod last_activity;
mod needs;
mod node;
mod placement;
mod pod;
mod relations;
mod remedy;
mod service;
mod signing_request;
mod workload;

#[cfg(test)]
mod tests;

use crate::kinds;
use crate::object::{Key, Str, Time, time};
use crate::world::Row;
use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;

pub use chain::explain;
pub use everything::{UnavailablePort, explain_unconverged, unavailable_ports};
pub use last_activity::LastActivity;
pub use relations::owners;

/// Distance of an object from its desired state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum ConvergenceState {
    /// The object matches its spec.
    #[default]
    Converged,
    /// The object makes progress, or waits for an object that does.
    Converging,
    /// The object does not converge unless a user does something.
    Stuck,
}

impl ConvergenceState {
    /// In one word.
    pub fn word(self) -> &'static str {
        match self {
            ConvergenceState::Converged => "converged",
            ConvergenceState::Converging => "converging",
            ConvergenceState::Stuck => "stuck",
        }
    }
}

/// State of the control plane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControlPlaneState {
    /// Whether a control plane runs.
    pub runs: bool,
    /// Whether it runs, but has not written for longer than it ever should: it is stopped, or cannot write.
    pub is_silent: bool,
    /// Process id of the control plane, when a signal such as SIGSTOP has stopped it.
    pub stopped: Option<i32>,
    /// The controllers that it does not run, by name.
    pub disabled_controllers: Vec<String>,
    /// The last heartbeat of a control plane.
    pub heard: Option<Time>,
    /// Pods, by uid, with processes that have ended although their status, which no control plane updates, says that they run.
    pub lost: HashMap<Str, UnreportedExit>,
    /// Pods, by uid, with a process on this machine that a signal has stopped.
    pub halted: HashMap<Str, StoppedProcess>,
    /// Whether the gateway does not run although there are Ingresses.
    pub is_closed: bool,
    /// Whether pods are simulated, as in `kloop plan`, so that their usage is not known.
    pub is_preview: bool,
    /// Whether the nodes are unknown: those of a server that does not let the user list them.
    pub hides_nodes: bool,
}

/// A pod's exits since its status was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnreportedExit {
    /// All containers, with unknown exit codes.
    All,
    /// These containers, by name, as the pod's shim recorded.
    Some(BTreeMap<Str, ContainerExit>),
}

/// A process of a pod that a signal such as SIGSTOP has stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoppedProcess {
    /// The pod's shim, with this pid.
    Shim(i32),
    /// The main processes of these containers, by name, with their pids.
    Containers(BTreeMap<Str, i32>),
}

/// Exit of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerExit {
    /// Exit code of the container.
    pub code: i32,
    /// Time of the exit.
    pub at: Time,
}

/// One link of the chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CauseLink {
    /// `deployment/web`, `container app`, `control plane`.
    pub what: String,
    /// Its state.
    pub state: ConvergenceState,
    /// The desired state.
    pub wanted: String,
    /// The observed state.
    pub seen: String,
    /// The loop that is responsible for it.
    pub by: &'static str,
    /// The last refused write of that loop, or one that would be refused now.
    pub error: Option<String>,
    /// Time at which the loop plans again even if nothing changes.
    pub wake: Option<Time>,
    /// The remedy.
    pub next: Option<String>,
    /// For a pod's node, claim, ConfigMap or Secret: its key. Other causes are the same when their texts are.
    pub prerequisite: Option<Key>,
    /// The object whose events show the last activity.
    about: Option<last_activity::EventSubject>,
    /// The last activity.
    pub last: Option<LastActivity>,
    /// More lines: nodes that were refused, the last lines of a log.
    pub more: Vec<String>,
    /// The log with further details: the uid of the pod, and the container.
    pub log: Option<(Str, String)>,
    /// The declared ports of a container in a crash loop: another process may have them.
    pub ports: Vec<u16>,
    /// The numbers in the command of such a container: one of them may be a port.
    pub numbers: Vec<u16>,
    /// The address of a container's pod.
    pub address: Option<Ipv4Addr>,
    /// The other containers of its pod, which have the same address.
    pub neighbours: Vec<String>,
    /// For a container on the machine's network: the node ports there, and whose each is.
    pub node_ports: Option<Vec<(u16, String)>>,
    /// The running container that a CPU limit may hold back.
    pub limited: Option<CpuLimitedContainer>,
}

/// A running container with a CPU limit: a caller that can ask the machine checks whether it is throttled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuLimitedContainer {
    /// The uid of the pod, as its node knows it.
    pub pod_uid: Str,
    /// The container.
    pub container: String,
    /// The limit.
    pub cpu: String,
}

impl CauseLink {
    /// A link about an object, by the loop that is responsible for its kind, converged until something is found.
    fn from_row(row: &Row) -> CauseLink {
        let about = Some(last_activity::EventSubject::from_row(row));
        CauseLink { what: row_name(row), by: dry_run::responsible_loop(row), about, ..CauseLink::default() }
    }

    /// Marks the link as stuck, with a remedy.
    fn stuck(self, next: impl Into<String>) -> CauseLink {
        CauseLink { state: ConvergenceState::Stuck, next: Some(next.into()), ..self }
    }

    /// Stuck when this is so.
    fn stuck_if(self, is_so: bool, next: impl FnOnce() -> String) -> CauseLink {
        if is_so { self.stuck(next()) } else { self }
    }
}

/// The whole chain.
#[derive(Clone, Debug, Default)]
pub struct CauseChain {
    /// The object in question.
    pub about: String,
    /// Owners first, then the object, then the objects below it.
    pub links: Vec<CauseLink>,
    /// Index of the object in `links`.
    pub place: usize,
}

impl CauseChain {
    /// State of the object with everything that it depends on, and of the control plane when work is pending.
    pub fn state(&self) -> ConvergenceState {
        let below = self.links.iter().enumerate().filter(|(place, link)| *place >= self.place || is_plane(link));
        below.map(|(_, link)| link.state).max().unwrap_or_default()
    }

    /// The link that is stuck: the last one of the chain, for which the others wait.
    pub fn root_cause(&self) -> Option<&CauseLink> {
        self.links.iter().rev().find(|link| link.state == ConvergenceState::Stuck)
    }

    /// The link about the control plane, where none runs and something waits for one.
    pub fn missing_control_plane(&self) -> Option<&CauseLink> {
        self.links.iter().find(|link| is_plane(link) && link.state == ConvergenceState::Stuck)
    }

    /// The remedy of the whole chain.
    pub fn next(&self) -> String {
        let plane = self.missing_control_plane();
        let cause = self.root_cause().filter(|link| !is_plane(link)).and_then(|link| link.next.clone());
        match (cause, plane.and_then(|plane| plane.next.clone())) {
            (Some(cause), Some(run)) => format!("{cause}; then run: {run}"),
            (Some(cause), None) => cause,
            (None, Some(run)) => format!("run: {run}"),
            (None, None) if self.state() == ConvergenceState::Converged => {
                self.current_links().find_map(|link| link.next.clone()).unwrap_or_else(|| self.nothing())
            }
            (None, None) => {
                // A link of an object in progress may name what it waits for.
                let mut below = self.current_links().filter(|link| link.state == ConvergenceState::Converging);
                below.find_map(|link| link.next.clone()).unwrap_or_else(|| "wait, it is in progress".into())
            }
        }
    }

    /// The links whose remedies count: those of the object and of the objects below it. The exit of a finished container below it is
    /// history.
    fn current_links(&self) -> impl Iterator<Item = &CauseLink> {
        let below = self.links.iter().enumerate().skip(self.place);
        below.filter(|(place, link)| *place == self.place || link.log.is_none()).map(|(_, link)| link)
    }

    /// The text for an object with nothing to do, and since when no control plane runs.
    fn nothing(&self) -> String {
        match self.links.iter().find(|link| is_plane(link)) {
            Some(CauseLink { next: Some(run), .. }) => {
                format!("nothing, it had converged when a control plane last ran; none runs now, to start one: {run}")
            }
            _ => "nothing, it has converged".into(),
        }
    }
}

/// Name of the link about the control plane.
const PLANE: &str = "control plane";

fn is_plane(link: &CauseLink) -> bool {
    link.what == PLANE
}

/// The link about the control plane itself. Without one everything can still have converged; where something is missing,
/// it is the first cause.
fn plane_link(plane: &ControlPlaneState, now: Time, missing: bool) -> CauseLink {
    if let Some(pid) = plane.stopped {
        let seen = format!("running, but a signal has stopped its process {pid}");
        let link =
            CauseLink { what: PLANE.into(), wanted: "running".into(), seen, by: "reconcile", ..CauseLink::default() };
        return link.stuck(format!("kill -CONT {pid}"));
    }
    let ago = plane.heard.map(|heard| time::age((now.as_second() - heard.as_second()).max(0)));
    if let Some(ago) = ago.as_ref().filter(|_| plane.is_silent) {
        let seen = format!("running, but has not written for {ago}");
        let link =
            CauseLink { what: PLANE.into(), wanted: "running".into(), seen, by: "reconcile", ..CauseLink::default() };
        return link.stuck("kloop reconcile --watch, once the running one has ended (see its output: its disk may be full, or it is stopped)");
    }
    let heard = ago.map(|ago| format!("not running; last heard of {ago} ago"));
    let seen = if plane.runs { "running".into() } else { heard.unwrap_or_else(|| "has never run".into()) };
    let link =
        CauseLink { what: PLANE.into(), wanted: "running".into(), seen, by: "reconcile", ..CauseLink::default() };
    let next = (!plane.runs && (missing || plane.heard.is_some())).then(|| "kloop reconcile --watch".to_owned());
    let state = if next.is_some() && missing { ConvergenceState::Stuck } else { ConvergenceState::Converged };
    CauseLink { next, state, ..link }
}

/// `deployment/web`, `boat/ida`: by the kind that the object itself names, which may be a custom one.
fn row_name(row: &Row) -> String {
    format!("{}/{}", row.body().kind().to_lowercase(), row.key.name)
}

/// Returns `kind/name` for a key of a built-in kind.
pub fn name(key: &Key) -> String {
    let kind = kinds::by_resource(key.resource);
    format!("{}/{}", kind.map_or_else(|| key.resource.plural().to_owned(), |kind| kind.singular()), key.name)
}
