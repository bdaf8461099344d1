//! A pod as its node sees it: spec, last status and facts, put together for each container.

use crate::object::{Object, Str, Time};
use crate::world::volume::Volume;
use crate::world::{AttemptEnd, ContainerFacts, ContainerState, Phase, PodFacts, ProbeFacts, ProbeKind, Row, World};
use k8s_openapi::api::core::v1::{
    Container, ContainerStateTerminated, ContainerStatus, LifecycleHandler, PodCondition, PodSpec, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as ApiTime;
use std::borrow::Cow;
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// The reason of a container's end when the control plane has taken its processes with it.
pub const CLOSED: &str = "Stopped";

/// One pod on a node of this control plane.
pub struct LocalPod<'a> {
    /// The World.
    pub world: &'a World,
    /// The pod's row.
    pub row: &'a Row,
    /// The pod as it is stored, without its spec and status.
    pub object: Object,
    /// Its spec.
    pub spec: PodSpec,
    /// Its status as last written.
    pub status: PodStatus,
    /// Facts of the machine.
    pub facts: Option<Cow<'a, PodFacts>>,
    /// Init containers, then containers, then ephemeral ones, each in the order of the spec.
    pub members: Vec<PodContainer>,
    /// Whether its node is simulated: the kubelet computes the state of its machine, and sends it no orders.
    pub is_simulated: bool,
    /// Bytes that the variables, commands and arguments of its starts may still take in this plan.
    pub start_bytes: Cell<usize>,
    /// Why its node does not admit it, as reason and message, once that was asked.
    pub rejection: OnceCell<Option<(String, String)>>,
    /// Its volumes, once a container or a refresh needed them.
    pub volumes: RefCell<Option<Rc<ResolvedVolumes>>>,
}

/// The volumes of a pod at one address. All of its containers share them in a plan, because their files can be large.
pub struct ResolvedVolumes {
    /// The pod's address, which `/etc/hosts` has.
    pub ip: String,
    /// The volumes whose sources exist.
    pub volumes: Arc<[Volume]>,
    /// The other ones that the pod asked for itself, by name, and Kubernetes' message about each.
    pub failures: Vec<(Str, String)>,
}

/// Role of a container in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerRole {
    /// Runs to its end before the next one starts.
    Init,
    /// An init container with restartPolicy Always: continues while the containers run.
    Sidecar,
    /// A container.
    Main,
    /// Added to a running pod. It is started once, and never restarted or probed.
    Ephemeral,
}

impl ContainerRole {
    /// Whether it is listed in `initContainers`.
    pub fn is_init(self) -> bool {
        matches!(self, ContainerRole::Init | ContainerRole::Sidecar)
    }
}

/// One container: spec, last status, and the state of its newest attempt.
pub struct PodContainer {
    /// Its role.
    pub role: ContainerRole,
    /// Its spec.
    pub spec: Container,
    /// Its status as last written.
    pub old: Option<ContainerStatus>,
    /// The number of the attempt that `state` is about; it is the restart count.
    pub attempt: u32,
    /// State of that attempt.
    pub state: AttemptState,
    /// End of the previous attempt.
    pub last: Option<AttemptEnd>,
    /// Facts of the machine.
    pub facts: Option<ContainerFacts>,
}

/// State of an attempt, from facts and status together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptState {
    /// Nothing of this attempt has run.
    New,
    /// The start was ordered.
    Starting {
        /// Time of the order to start.
        since: Time,
    },
    /// Nothing of this attempt ran, because it could not be started.
    Refused {
        /// Kubernetes' reason for the refusal.
        reason: String,
        /// Explains the refusal and the remedy.
        message: String,
        /// Time of the refusal.
        at: Time,
    },
    /// The attempt runs.
    Running {
        /// Start of the attempt.
        since: Time,
    },
    /// The attempt has ended.
    Ended(AttemptEnd),
}

impl LocalPod<'_> {
    /// Whether the phase as last written is final.
    pub fn has_ended(&self) -> bool {
        Phase::parse(self.status.phase.as_deref().unwrap_or_default()).is_terminal()
    }

    /// `spec.terminationGracePeriodSeconds`.
    pub fn grace_seconds(&self) -> i64 {
        self.spec.termination_grace_period_seconds.unwrap_or(30)
    }

    /// Members of one role, in the order of the spec.
    pub fn with_role(&self, role: ContainerRole) -> impl DoubleEndedIterator<Item = &PodContainer> {
        self.members.iter().filter(move |member| member.role == role)
    }

    /// A condition of the pod as last written.
    pub fn condition(&self, kind: &str) -> Option<&PodCondition> {
        self.status.conditions.iter().flatten().find(|condition| condition.type_ == kind)
    }

    /// Whether any process of it may run.
    pub fn is_alive(&self) -> bool {
        self.members.iter().any(PodContainer::is_alive)
    }

    /// Whether the control plane ends, and takes the pod's processes with it.
    pub fn is_closing(&self) -> bool {
        self.world.settings.closing && !self.is_simulated
    }

    /// Whether its row was staged in this tick: the effects planned with it are not carried out yet.
    pub fn is_staged(&self) -> bool {
        let (before, now) = (self.world.row_before_stage(&self.row.key), self.world.get(&self.row.key));
        !before.zip(now).is_some_and(|(before, now)| std::sync::Arc::ptr_eq(before, now))
    }

    /// Its name for messages: `name_namespace(uid)`.
    pub fn full_name(&self) -> String {
        format!("{}_{}({})", self.row.key.name, self.row.key.namespace, self.row.uid)
    }
}

impl PodContainer {
    /// Whether a process of it runs or is starting.
    pub fn is_alive(&self) -> bool {
        matches!(self.state, AttemptState::Starting { .. } | AttemptState::Running { .. })
    }

    /// Drops the facts and takes the state from the status, because the machine has no record of it.
    pub fn reset(&mut self, now: Time) {
        self.facts = None;
        (self.attempt, self.state, self.last) = from_status(now, self.old.as_ref());
    }

    /// Returns the end of its attempt.
    pub fn ended(&self) -> Option<&AttemptEnd> {
        match &self.state {
            AttemptState::Ended(ended) => Some(ended),
            _ => None,
        }
    }

    /// Whether an init container has succeeded on this machine. Without facts of the machine it runs again, because its results may be lost
    /// (Kubernetes: a new sandbox).
    pub fn is_done(&self) -> bool {
        self.ended().is_some_and(|ended| ended.code == 0) && self.facts.is_some()
    }

    /// Whether this attempt was stopped with the control plane, by its status. That is not a failure, and the container is started again.
    pub fn was_closed(&self) -> bool {
        let old = self.old.as_ref().filter(|old| restart_count(Some(old)) == self.attempt);
        let ended = old.and_then(|old| old.state.as_ref()?.terminated.as_ref());
        self.ended().is_some() && ended.is_some_and(|ended| ended.reason.as_deref() == Some(CLOSED))
    }

    /// Returns its CPU limit, as the spec writes it.
    pub fn cpu_limit(&self) -> Option<&str> {
        let limits = self.spec.resources.as_ref()?.limits.as_ref()?;
        limits.get("cpu").map(|limit| limit.0.as_str())
    }

    /// Returns its hook of a kind.
    pub fn hook(&self, kind: ProbeKind) -> Option<&LifecycleHandler> {
        hook_of_kind(&self.spec, kind)
    }

    /// Whether it runs and its postStart hook has not succeeded yet.
    pub fn is_starting(&self) -> bool {
        let runs = matches!(self.state, AttemptState::Running { .. });
        let done = || self.probe(ProbeKind::PostStart).is_some_and(|hook| hook.successes > 0);
        runs && self.hook(ProbeKind::PostStart).is_some() && self.old_while_running().is_none() && !done()
    }

    /// The part of the spec that an event about it is about.
    pub fn field_path(&self) -> String {
        let list = match self.role {
            ContainerRole::Init | ContainerRole::Sidecar => "initContainers",
            ContainerRole::Main => "containers",
            ContainerRole::Ephemeral => "ephemeralContainers",
        };
        format!("spec.{list}{{{}}}", self.spec.name)
    }

    /// Returns the results of a probe of this attempt.
    pub fn probe(&self, kind: ProbeKind) -> Option<&ProbeFacts> {
        self.facts.as_ref()?.probes.get(&kind)
    }

    /// The last written status, if it shows this same attempt running.
    pub fn old_while_running(&self) -> Option<&ContainerStatus> {
        let old = self.old.as_ref()?;
        let runs = old.state.as_ref().is_some_and(|state| state.running.is_some());
        (runs && restart_count(Some(old)) == self.attempt).then_some(old)
    }

    /// Whether it has a status that is not `CreateContainerConfigError`.
    pub fn was_configured(&self) -> bool {
        let Some(old) = &self.old else { return false };
        let waiting = old.state.as_ref().and_then(|state| state.waiting.as_ref());
        waiting.is_none_or(|waiting| waiting.reason.as_deref() != Some("CreateContainerConfigError"))
    }

    /// The image of this attempt, once the status shows that it runs or has run.
    pub fn image_that_ran(&self) -> Option<&str> {
        let old = self.old.as_ref().filter(|old| restart_count(Some(old)) == self.attempt)?;
        let waits = old.state.as_ref().is_none_or(|state| state.waiting.is_some());
        (!waits && self.facts.is_some()).then_some(old.image.as_str())
    }
}

/// The hook of a kind, if the container has it.
pub fn hook_of_kind(container: &Container, kind: ProbeKind) -> Option<&LifecycleHandler> {
    let lifecycle = container.lifecycle.as_ref()?;
    if kind == ProbeKind::PostStart { lifecycle.post_start.as_ref() } else { lifecycle.pre_stop.as_ref() }
}

/// Determines the state of a container. Facts take precedence over status, but a committed attempt without facts is
/// still to be started.
pub fn resolve(
    now: Time,
    old: Option<&ContainerStatus>,
    facts: Option<&ContainerFacts>,
) -> (u32, AttemptState, Option<AttemptEnd>) {
    let committed = restart_count(old);
    let Some(facts) = facts else { return from_status(now, old) };
    let last = old.and_then(|old| ended_of(old.last_state.as_ref()?.terminated.as_ref()?));
    if facts.has_ended() && facts.attempt < committed {
        return (committed, AttemptState::New, facts.ended().cloned().or(last));
    }
    let state = match facts.state.clone() {
        ContainerState::Starting { since } => AttemptState::Starting { since },
        ContainerState::Running { since, .. } => AttemptState::Running { since },
        ContainerState::Ended(ended) => AttemptState::Ended(ended),
        // The program was found and could not be run: an end like any other (Kubernetes: StartError, exit code 128).
        ContainerState::Refused { reason, message, at } if reason == AttemptEnd::START_ERROR => {
            AttemptState::Ended(AttemptEnd {
                code: 128,
                signal: None,
                reason: Some(reason),
                message,
                started: None,
                finished: at,
            })
        }
        ContainerState::Refused { reason, message, at } => AttemptState::Refused { reason, message, at },
    };
    // While the next attempt waits, the status shows this attempt's end as the last state.
    let is_this = |last: &AttemptEnd| matches!(&state, AttemptState::Ended(ended) if ended.finished.as_second() == last.finished.as_second());
    let last = latest(facts.last.clone(), last.filter(|last| !is_this(last)));
    (facts.attempt, state, last)
}

/// Reads the state from the status, when the machine has no record of the container: a running attempt is lost, a committed one is still to
/// be started.
fn from_status(now: Time, old: Option<&ContainerStatus>) -> (u32, AttemptState, Option<AttemptEnd>) {
    let attempt = restart_count(old);
    let Some(state) = old.and_then(|old| old.state.as_ref()) else { return (attempt, AttemptState::New, None) };
    let last = old.and_then(|old| ended_of(old.last_state.as_ref()?.terminated.as_ref()?));
    if let Some(running) = &state.running {
        let started = running.started_at.as_ref().map(|time| time.0);
        let end = AttemptEnd::unknown(AttemptEnd::SHIM_EXITED, started, now);
        return (attempt, AttemptState::Ended(end), last);
    }
    if let Some(ended) = state.terminated.as_ref().and_then(ended_of) {
        // It was ended on purpose and nothing is left of it: the attempt is made once more under its number.
        if ended.reason.as_deref() == Some(CLOSED) {
            return (attempt, AttemptState::New, Some(ended));
        }
        return (attempt, AttemptState::Ended(ended), last);
    }
    let reason = state.waiting.as_ref().and_then(|waiting| waiting.reason.as_deref());
    match (reason, last) {
        (Some(reason), Some(last)) if waits_for_next(reason) => (attempt, AttemptState::Ended(last), None),
        (_, last) => (attempt, AttemptState::New, last),
    }
}

/// Whether a container that waits for this reason may have run before, and waits for its next attempt.
pub fn waits_for_next(reason: &str) -> bool {
    matches!(reason, "CrashLoopBackOff" | "CreateContainerConfigError" | "RunContainerError")
}

fn latest(one: Option<AttemptEnd>, other: Option<AttemptEnd>) -> Option<AttemptEnd> {
    match (one, other) {
        // The status has whole seconds only. For the same end, the machine's report is more precise.
        (Some(one), Some(other)) => {
            Some(if other.finished.as_second() > one.finished.as_second() { other } else { one })
        }
        (one, other) => one.or(other),
    }
}

fn ended_of(state: &ContainerStateTerminated) -> Option<AttemptEnd> {
    Some(AttemptEnd {
        code: state.exit_code,
        signal: state.signal,
        reason: state.reason.clone(),
        message: state.message.clone().unwrap_or_default(),
        started: state.started_at.as_ref().map(|time| time.0).filter(|time| *time != Time::UNIX_EPOCH),
        finished: state.finished_at.as_ref().map_or(Time::UNIX_EPOCH, |time| time.0),
    })
}

fn restart_count(old: Option<&ContainerStatus>) -> u32 {
    old.map_or(0, |old| u32::try_from(old.restart_count).unwrap_or(0))
}

/// Returns a time for a status, which has whole seconds only.
pub fn api_time(at: Time) -> ApiTime {
    ApiTime(Time::from_second(at.as_second()).unwrap_or(at))
}
