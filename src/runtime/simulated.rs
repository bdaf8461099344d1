//! A simulated machine: it runs no processes, has any size, and has no clock of its own.
//!
//! Takes the same effects as the real machine, and gives the same reports when they are [`SimulatedMachine::due`]. Its behaviour depends
//! only on the effects, the times that callers pass, and its [`SimulatedSettings`].

use super::Host;
use crate::object::{Str, Time};
use crate::world::plan::ProbeRun;
use crate::world::start::Start;
use crate::world::{
    AttemptEnd, ContainerFacts, ContainerState, Effect, OrderedStop, PodFacts, ProbeKind, ProbeResult, Report,
    SourceDigests,
};
use jiff::SignedDuration;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::mem::discriminant;

/// Returns why an attempt cannot be started, as reason and message; `None` if it can.
pub type StartCheck = fn(&Start) -> Option<(String, String)>;

/// Behaviour of the simulated machine.
#[derive(Clone, Debug, Default)]
pub struct SimulatedSettings {
    /// Time between the order to start and Running.
    pub start_delay: SignedDuration,
    /// Time between the stop signal and the end of a container that does not ignore it.
    pub stop_delay: SignedDuration,
    /// Time between the order to remove a pod and its removal.
    pub remove_delay: SignedDuration,
    /// Time between a probe and its answer.
    pub probe_delay: SignedDuration,
    /// Images that cannot be resolved: reason and message.
    pub refused_images: HashMap<String, (String, String)>,
    /// Decides which attempts cannot start, as a real machine would: reason and message.
    pub start_check: Option<StartCheck>,
    /// Containers, by image, that end by themselves after a number of seconds with a code.
    pub exits: HashMap<String, (i64, i32)>,
    /// Containers, by name, that ignore the stop signal, so that only SIGKILL ends them.
    pub ignores_stop_signal: HashSet<Str>,
    /// Probes that fail, by container.
    pub failing_probes: HashMap<(Str, ProbeKind), String>,
}

/// One container's newest attempt. `None` as state: it is about to start.
struct SimulatedContainer {
    attempt: u32,
    state: Option<ContainerState>,
    stopping: Option<OrderedStop>,
    /// By the machine's own clock.
    kill_at: Option<Time>,
    /// End of the previous attempt.
    last: Option<AttemptEnd>,
}

impl SimulatedContainer {
    fn new(attempt: u32, last: Option<AttemptEnd>) -> SimulatedContainer {
        SimulatedContainer { attempt, state: None, stopping: None, kill_at: None, last }
    }

    fn runs(&self) -> bool {
        matches!(self.state, Some(ContainerState::Running { .. }))
    }

    fn ended(&self) -> Option<&AttemptEnd> {
        match &self.state {
            Some(ContainerState::Ended(ended)) => Some(ended),
            _ => None,
        }
    }

    fn started(&self) -> Option<Time> {
        match self.state {
            Some(ContainerState::Running { since, .. }) => Some(since),
            _ => None,
        }
    }

    /// Whether this attempt was refused: it runs only if it is ordered again.
    fn is_refused(&self) -> bool {
        matches!(self.state, Some(ContainerState::Refused { .. }))
    }
}

/// The state of a pod, as its shim would know it.
#[derive(Default)]
struct SimulatedPod {
    facts: PodFacts,
    containers: BTreeMap<Str, SimulatedContainer>,
}

/// A future event.
enum SimulatedEvent {
    Run,
    Refuse { reason: String, message: String },
    End { code: i32, signal: Option<i32> },
}

enum UpcomingEvent {
    Container { pod_uid: Str, container: Str, attempt: u32, event: SimulatedEvent },
    Report(Report),
}

/// The machine.
#[derive(Default)]
pub struct SimulatedMachine {
    /// Its behaviour; may be changed at any time.
    pub settings: SimulatedSettings,
    /// Offset from the machine's monotonic clock to its wall clock, which may be set.
    pub skew: SignedDuration,
    /// Starts that were ordered while an earlier attempt of the container still ran: pod, container, attempt.
    pub clashes: Vec<(Str, Str, u32)>,
    pods: BTreeMap<Str, SimulatedPod>,
    coming: BTreeMap<(Time, u64), UpcomingEvent>,
    sequence: u64,
    pids: u32,
}

impl SimulatedMachine {
    /// An empty machine on which everything works at once.
    pub fn new() -> SimulatedMachine {
        SimulatedMachine::default()
    }

    /// Adds a running pod of a real machine, with the facts that its shim reported.
    pub fn adopt(&mut self, uid: Str, facts: PodFacts) {
        let sim = |(name, known): (&Str, &ContainerFacts)| {
            let sim = SimulatedContainer::new(known.attempt, known.last.clone());
            (name.clone(), SimulatedContainer { state: Some(known.state.clone()), ..sim })
        };
        let containers = facts.containers.iter().map(sim).collect();
        self.pods.insert(uid, SimulatedPod { facts: PodFacts { containers: BTreeMap::new(), ..facts }, containers });
    }

    /// The earliest moment at which something will be due.
    pub fn next_event_time(&self) -> Option<Time> {
        self.coming.keys().next().map(|(at, _)| *at)
    }

    /// The reports of everything that has happened up to now, in order.
    pub fn due(&mut self, now: Time) -> Vec<Report> {
        let mut reports = Vec::new();
        while let Some(first) = self.coming.first_entry().filter(|first| first.key().0 <= now) {
            let at = first.key().0;
            match first.remove() {
                UpcomingEvent::Report(report) => reports.push(report),
                UpcomingEvent::Container { pod_uid, container, attempt, event } => {
                    let state = self.apply_event(at, &pod_uid, &container, attempt, event);
                    reports.extend(state.map(|state| Report::Container { pod_uid, container, attempt, state }));
                }
            }
        }
        reports
    }

    /// Lets a running container end, as if by itself.
    pub fn end(&mut self, now: Time, pod_uid: &str, container: &str, code: i32) {
        let known = self.pods.get(pod_uid).and_then(|pod| pod.containers.get(container));
        if let Some(attempt) = known.map(|known| known.attempt) {
            self.plan(now, pod_uid, container, attempt, SimulatedEvent::End { code, signal: None });
        }
    }

    /// Pods that something is known of, for checks that nothing is left.
    pub fn pods(&self) -> impl Iterator<Item = &Str> {
        self.pods.keys()
    }

    /// Attempts that run now: pod, container, attempt.
    pub fn running(&self) -> impl Iterator<Item = (&Str, &Str, u32)> {
        self.pods.iter().flat_map(|(uid, pod)| {
            let running = pod.containers.iter().filter(|(_, sim)| sim.runs());
            running.map(move |(name, sim)| (uid, name, sim.attempt))
        })
    }

    /// All containers that run or have run, as the shims would report them to a new leader. Later reports show the orders of the previous
    /// leader that were not carried out yet.
    pub fn inventory(&self) -> BTreeMap<Str, PodFacts> {
        let container = |(name, sim): (&Str, &SimulatedContainer)| {
            let facts = ContainerFacts::new(sim.attempt, sim.state.clone()?);
            Some((name.clone(), ContainerFacts { stopping: sim.stopping, last: sim.last.clone(), ..facts }))
        };
        let pod = |(uid, pod): (&Str, &SimulatedPod)| {
            let containers = pod.containers.iter().filter_map(container).collect();
            (uid.clone(), PodFacts { containers, ..pod.facts.clone() })
        };
        self.pods.iter().map(pod).collect()
    }

    /// Ends the leader: drops the reports that only it was waiting for, and with `orders_too` also the orders that were not carried
    /// out yet.
    pub fn lose_leader(&mut self, orders_too: bool) {
        self.coming.retain(|_, coming| match coming {
            UpcomingEvent::Report(_) => false,
            UpcomingEvent::Container { event: SimulatedEvent::Run | SimulatedEvent::Refuse { .. }, .. } => !orders_too,
            UpcomingEvent::Container { .. } => true,
        });
        for pod in self.pods.values_mut() {
            // Refusals were known only to the last leader, not to a shim.
            pod.containers.retain(|_, sim| if sim.state.is_none() { !orders_too } else { !sim.is_refused() });
        }
    }

    /// Kills a pod's shim. Its processes end with it, with unknown exit codes.
    pub fn lose_shim(&mut self, now: Time, pod_uid: &str) {
        let wall = now + self.skew;
        let Some(pod) = self.pods.get_mut(pod_uid) else { return };
        pod.containers.retain(|_, sim| sim.state.is_some());
        let mut ended = Vec::new();
        for (name, sim) in pod.containers.iter_mut().filter(|(_, sim)| sim.runs()) {
            let end = AttemptEnd::unknown(AttemptEnd::SHIM_EXITED, sim.started(), wall);
            sim.state = Some(ContainerState::Ended(end));
            ended.push(name.clone());
        }
        for name in ended {
            self.report_again(now, &pod_uid.into(), &name);
        }
    }

    /// Repeats a container's state for a control plane that seems not to know it.
    fn report_again(&mut self, now: Time, uid: &Str, container: &Str) {
        let known = self.pods.get(uid).and_then(|pod| pod.containers.get(container));
        let Some((attempt, Some(state))) = known.map(|sim| (sim.attempt, sim.state.clone())) else { return };
        let report = Report::Container { pod_uid: uid.clone(), container: container.clone(), attempt, state };
        self.put(now, UpcomingEvent::Report(report));
    }

    fn apply_event(
        &mut self,
        at: Time,
        uid: &Str,
        container: &Str,
        attempt: u32,
        event: SimulatedEvent,
    ) -> Option<ContainerState> {
        let wall = at + self.skew;
        let sim = self.pods.get_mut(uid)?.containers.get_mut(container)?;
        if sim.attempt != attempt || sim.ended().is_some() || sim.is_refused() {
            return None;
        }
        let state = match event {
            SimulatedEvent::Run => {
                self.pids += 1;
                ContainerState::Running { pid: self.pids, since: wall }
            }
            SimulatedEvent::Refuse { reason, message } => ContainerState::Refused { reason, message, at: wall },
            SimulatedEvent::End { code, signal } => {
                let (reason, message) = (None, String::new());
                ContainerState::Ended(AttemptEnd {
                    code,
                    signal,
                    reason,
                    message,
                    started: sim.started(),
                    finished: wall,
                })
            }
        };
        if sim.state.as_ref().map(discriminant) == Some(discriminant(&state)) {
            return None;
        }
        sim.state = Some(state.clone());
        Some(state)
    }

    fn plan(&mut self, at: Time, pod_uid: &str, container: &str, attempt: u32, event: SimulatedEvent) {
        let coming = UpcomingEvent::Container { pod_uid: pod_uid.into(), container: container.into(), attempt, event };
        self.put(at, coming);
    }

    fn put(&mut self, at: Time, coming: UpcomingEvent) {
        self.sequence += 1;
        self.coming.insert((at, self.sequence), coming);
    }

    fn start(&mut self, now: Time, start: &Start) {
        let (uid, container, attempt) = (&start.pod_uid, &start.container, start.attempt);
        let pod = self.pods.entry(uid.clone()).or_default();
        pod.facts = PodFacts {
            namespace: start.namespace.clone(),
            name: start.pod.clone(),
            node: start.node.clone(),
            ip: start.ip.clone(),
            ..PodFacts::default()
        };
        let known = pod.containers.get(container);
        if known.is_some_and(|known| known.attempt > attempt || known.attempt == attempt && !known.is_refused()) {
            return self.report_again(now, uid, container);
        }
        if known.is_some_and(SimulatedContainer::runs) {
            return self.clashes.push((uid.clone(), container.clone(), attempt));
        }
        let last = known.and_then(|known| known.ended().cloned().or_else(|| known.last.clone()));
        pod.containers.insert(container.clone(), SimulatedContainer::new(attempt, last));
        let checked = || self.settings.start_check.and_then(|check| check(start));
        if let Some((reason, message)) = self.settings.refused_images.get(&start.image).cloned().or_else(checked) {
            return self.plan(now, uid, container, attempt, SimulatedEvent::Refuse { reason, message });
        }
        let runs = now + self.settings.start_delay;
        self.plan(runs, uid, container, attempt, SimulatedEvent::Run);
        let script = start.script.as_ref().and_then(|script| script.exit);
        if let Some((seconds, code)) = self.settings.exits.get(&start.image).copied().or(script) {
            let at = runs + SignedDuration::from_secs(seconds.max(0));
            self.plan(at, uid, container, attempt, SimulatedEvent::End { code, signal: None });
        }
    }

    fn stop(&mut self, now: Time, uid: &Str, container: &Str, attempt: u32, grace_seconds: i64) {
        let kill_at = now + SignedDuration::from_secs(grace_seconds.max(0));
        let (ignores_stop_signal, wall) = (self.settings.ignores_stop_signal.contains(container), now + self.skew);
        let Some(pod) = self.pods.get_mut(uid) else { return };
        let last = pod.containers.get(container).and_then(|known| known.ended().cloned());
        if pod.containers.get(container).is_none_or(|known| known.attempt < attempt) {
            // Its start was lost on the way: it is never started after that.
            let ended = ContainerState::Ended(AttemptEnd::unknown(AttemptEnd::SHIM_EXITED, None, wall));
            pod.containers.insert(
                container.clone(),
                SimulatedContainer { state: Some(ended), ..SimulatedContainer::new(attempt, last) },
            );
        }
        let Some(sim) = pod.containers.get_mut(container) else { return };
        if sim.attempt != attempt || sim.ended().is_some() {
            return self.report_again(now, uid, container);
        }
        if sim.kill_at.is_some_and(|known| known <= kill_at) {
            return;
        }
        let is_first = sim.kill_at.is_none();
        sim.kill_at = Some(kill_at);
        let since = sim.stopping.map_or(wall, |stopping| stopping.since);
        sim.stopping = Some(OrderedStop { since, asked: wall, kill_at: kill_at + self.skew });
        let asked = now + self.settings.stop_delay;
        if is_first && !ignores_stop_signal && asked < kill_at {
            self.plan(asked, uid, container, attempt, SimulatedEvent::End { code: 143, signal: Some(15) });
        } else {
            self.plan(kill_at, uid, container, attempt, SimulatedEvent::End { code: 137, signal: Some(9) });
        }
    }

    fn remove(&mut self, now: Time, uid: &Str) {
        self.pods.remove(uid);
        self.put(now + self.settings.remove_delay, UpcomingEvent::Report(Report::Removed { pod_uid: uid.clone() }));
    }

    fn probe(&mut self, now: Time, probe: &ProbeRun) {
        let at = now + self.settings.probe_delay;
        let runs = self.pods.get(&probe.pod_uid).and_then(|pod| pod.containers.get(&probe.container));
        let runs = runs.is_some_and(|sim| sim.attempt == probe.attempt && sim.runs());
        let failing = self.settings.failing_probes.get(&(probe.container.clone(), probe.kind)).cloned();
        let failing = if runs { failing } else { Some("the container does not run".into()) };
        let report = Report::Probe {
            pod_uid: probe.pod_uid.clone(),
            container: probe.container.clone(),
            attempt: probe.attempt,
            kind: probe.kind,
            verdict: if failing.is_none() { ProbeResult::Success } else { ProbeResult::Failure },
            message: failing.unwrap_or_default(),
            at: at + self.skew,
        };
        self.put(at, UpcomingEvent::Report(report));
    }
}

impl Host for SimulatedMachine {
    fn carry_out(&mut self, now: Time, effect: &Effect) {
        match effect {
            Effect::Start(start) => self.start(now, start),
            Effect::Stop { pod_uid, container, attempt, grace_seconds } => {
                self.stop(now, pod_uid, container, *attempt, *grace_seconds);
            }
            Effect::Remove { pod_uid } => self.remove(now, pod_uid),
            Effect::Probe(probe) => self.probe(now, probe),
            Effect::Watch { files, .. } if files.globs.is_empty() => {}
            // Here nothing ever changes.
            Effect::Watch { image, files } => {
                let sources = SourceDigests { digest: "0".into(), files: 0, message: String::new() };
                self.put(
                    now,
                    UpcomingEvent::Report(Report::Sources { image: image.clone(), files: files.clone(), sources }),
                );
            }
            Effect::Build { .. }
            | Effect::Route { .. }
            | Effect::SetIngress { .. }
            | Effect::AcceptLinks(_)
            | Effect::SetNodeLink { .. }
            | Effect::SetNetworkPolicy { .. }
            | Effect::Expose { .. }
            | Effect::Refresh { .. }
            | Effect::DeleteVolume { .. }
            | Effect::Measure { .. }
            | Effect::WatchStorage { .. }
            | Effect::Resize { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::start_request;
    use super::*;
    use crate::object::testing::time_at;
    use crate::world::start::SimulatedScript;

    /// Returns the reports as short texts with their second.
    fn story(machine: &mut SimulatedMachine, until: i64) -> Vec<String> {
        let word = |report: Report| match report {
            Report::Container { attempt, state, .. } => match state {
                ContainerState::Running { since, .. } => format!("{attempt} runs {}", since.as_second()),
                ContainerState::Ended(end) => format!("{attempt} ends {} with {}", end.finished.as_second(), end.code),
                ContainerState::Refused { reason, .. } => format!("{attempt} {reason}"),
                ContainerState::Starting { .. } => "starting".into(),
            },
            Report::Probe { verdict, .. } => format!("probe {}", verdict == ProbeResult::Success),
            Report::Usage { .. }
            | Report::Over { .. }
            | Report::NotRefreshed { .. }
            | Report::Resized { .. }
            | Report::Denied { .. }
            | Report::Bind { .. }
            | Report::Blocked { .. }
            | Report::NotDiscarded { .. }
            | Report::Findable { .. }
            | Report::LinkState { .. }
            | Report::SharedNetwork(_) => "measured".into(),
            Report::NotRemoved { .. } => "not removed".into(),
            Report::Removed { .. } => "removed".into(),
            Report::Build { .. } | Report::Sources { .. } => "sources".into(),
            Report::IngressListeners(_) => "ingress listeners".into(),
        };
        machine.due(time_at(until)).into_iter().map(word).collect()
    }

    fn start(machine: &mut SimulatedMachine, second: i64, attempt: u32, exit: Option<(i64, i32)>) {
        let start = Start { script: Some(SimulatedScript { exit }), ..start_request("u", "c", attempt) };
        machine.carry_out(time_at(second), &Effect::Start(Box::new(start)));
    }

    fn stop(machine: &mut SimulatedMachine, second: i64, grace_seconds: i64) {
        let effect = Effect::Stop { pod_uid: "u".into(), container: "c".into(), attempt: 0, grace_seconds };
        machine.carry_out(time_at(second), &effect);
    }

    #[test]
    fn script_is_followed_and_repeats_do_nothing() {
        let mut machine = SimulatedMachine::new();
        start(&mut machine, 0, 0, Some((5, 3)));
        start(&mut machine, 1, 0, Some((5, 3)));
        assert_eq!(machine.next_event_time(), Some(time_at(0)));
        assert_eq!(story(&mut machine, 4), ["0 runs 0"]);
        assert_eq!(story(&mut machine, 9), ["0 ends 5 with 3"]);
        // A repeated order is answered with the known state.
        start(&mut machine, 9, 0, None);
        assert_eq!(story(&mut machine, 9), ["0 ends 5 with 3"]);
        assert_eq!(machine.next_event_time(), None);
        start(&mut machine, 9, 1, None);
        assert_eq!(story(&mut machine, 9), ["1 runs 9"]);
    }

    #[test]
    fn stops_ask_and_then_kill_and_only_shorten() {
        let mut machine = SimulatedMachine::new();
        start(&mut machine, 0, 0, Some((100, 0)));
        stop(&mut machine, 1, 30);
        assert_eq!(story(&mut machine, 200), ["0 runs 0", "0 ends 1 with 143"]);

        let mut machine = SimulatedMachine::new();
        machine.settings.ignores_stop_signal.insert("c".into());
        start(&mut machine, 0, 0, None);
        stop(&mut machine, 1, 30);
        stop(&mut machine, 2, 60);
        stop(&mut machine, 3, 4);
        assert_eq!(story(&mut machine, 200), ["0 runs 0", "0 ends 7 with 137"]);
    }

    #[test]
    fn refused_start_may_be_tried_again() {
        let mut machine = SimulatedMachine::new();
        machine.settings.refused_images.insert("busybox".into(), ("ErrImagePull".into(), "no".into()));
        start(&mut machine, 0, 0, None);
        assert_eq!(story(&mut machine, 0), ["0 ErrImagePull"]);
        machine.settings.refused_images.clear();
        start(&mut machine, 1, 0, None);
        assert_eq!(story(&mut machine, 1), ["0 runs 1"]);
        machine.carry_out(time_at(2), &Effect::Remove { pod_uid: "u".into() });
        assert_eq!(story(&mut machine, 2), ["removed"]);
        assert_eq!(machine.pods().count(), 0);
    }
}
