//! State of a control plane between ticks, without clock, threads and machine: the World, the due keys, and the time of
//! the next look. [`control_loop`](super::control_loop) drives it by the real clock, [`simulate`](super::simulate) by a simulated
//! one.

use super::events::{EventRecorder, EventReporter};
use super::node::MissingCapability;
use super::queue::{Item, WorkQueue};
use super::store_tail::LoadProblems;
use super::tick::{INTERNAL_ERROR, Tick, TickBudget, TickError, TickResult};
use super::waiting_plans::WaitingPlans;
use super::{LogLevel, LogLine, LogSink, activity_log, loops, node, store_tail};
use crate::apiserver::outside::{Answer, QuestionId};
use crate::kubelet::manifests;
use crate::object::{Key, Resource, Str, Time};
use crate::runtime::Host;
use crate::runtime::contain::contain;
use crate::store::{Store, StoreError, StoreRead, meta_keys};
use crate::world::pressure::ResourceLevels;
use crate::world::{
    AppliedReport, ClusterSettings, ContainerState, Effect, EventType, Loop, NodeFacts, PlannedEvent, PodFacts, Report,
    Row, World,
};
use jiff::SignedDuration;
use tracing::debug_span;

/// Interval of node heartbeats (kubelet: a quarter of the lease's 40 s).
const HEARTBEAT: SignedDuration = SignedDuration::from_secs(10);

/// Interval at which every key is planned again.
const RESYNC: SignedDuration = SignedDuration::from_mins(10);

/// The state of a control plane between ticks.
pub struct ControlPlane {
    /// The World.
    pub world: World,
    /// Keys that are due.
    pub queue: WorkQueue,
    /// The loops.
    pub loops: Vec<&'static Loop>,
    /// Events that wait to be written.
    pub recorder: EventRecorder,
    /// The Node of this machine.
    local: Option<Str>,
    next_heartbeat: Time,
    next_resync: Time,
    /// Log lines about the machine's reports since the last tick.
    news: Vec<LogLine>,
    warnings: activity_log::LastWarnings,
    /// Plans that wait for webhooks.
    pub waiting_plans: WaitingPlans,
    /// Problems of static pod manifests that were logged.
    logged_problems: Vec<String>,
}

/// Surroundings of a tick.
pub struct TickInput<'a> {
    /// The time.
    pub now: Time,
    /// The epoch of this leader.
    pub epoch: u64,
    /// Limits of a tick.
    pub budget: TickBudget,
    /// Source of random numbers.
    pub random: &'a mut dyn FnMut() -> u64,
    /// Whether others may have written since the previous tick. Then the tick reads the log even when nothing is due.
    pub log_may_have_changed: bool,
}

impl ControlPlane {
    /// A control plane that knows nothing yet; `local` is the node that this machine is.
    pub fn new(local: Option<Str>, now: Time) -> ControlPlane {
        ControlPlane::with_loops(loops::all_loops(), local, now)
    }

    /// Creates a control plane that runs only these loops.
    pub fn with_loops(loops: Vec<&'static Loop>, local: Option<Str>, now: Time) -> ControlPlane {
        ControlPlane {
            world: World::new(now),
            queue: WorkQueue::default(),
            loops,
            recorder: EventRecorder::default(),
            local,
            next_heartbeat: now,
            next_resync: now + RESYNC,
            news: Vec::new(),
            warnings: activity_log::LastWarnings::new(),
            waiting_plans: WaitingPlans::default(),
            logged_problems: Vec::new(),
        }
    }

    /// Loads everything again from the store and from the machine's inventory, which is asked for after the store was read, and makes every
    /// key due.
    pub fn load<I: IntoIterator<Item = (Str, PodFacts)>>(
        &mut self,
        read: &dyn StoreRead,
        inventory: impl FnOnce() -> I,
        backoff_seconds: i64,
        now: Time,
    ) -> Result<(), StoreError> {
        let mut world = World::new(now);
        world.pack_texts();
        let network = read.meta(meta_keys::NETWORK)?;
        let network = network.and_then(|text| text.parse().ok()).unwrap_or(world.settings.network);
        let root_ca = read.meta(meta_keys::AUTHORITY)?.unwrap_or_default().into();
        world.settings = ClusterSettings { network, backoff_seconds, root_ca, ..self.world.settings.clone() };
        world.facts.statics = std::mem::take(&mut self.world.facts.statics);
        let LoadProblems { profiles, faults } = store_tail::load(read, &mut world)?;
        if let Some(why) = profiles {
            self.log_text(
                now,
                &format!("the stored profiles of the scheduler cannot be read, so that it uses its own: {why}"),
            );
        }
        for (uid, pod) in inventory() {
            world.facts.pods.insert(uid, pod);
        }
        world.facts.inventory_complete = true;
        self.news.extend(activity_log::inventory_lines(&world));
        self.world = world;
        self.refresh_nodes();
        self.queue = WorkQueue::default();
        faults.into_iter().for_each(|fault| self.queue.note_fault(fault));
        self.queue_everything(now);
        Ok(())
    }

    /// One tick. Gives its effects, and whether there may be more to do at once.
    pub fn tick(
        &mut self,
        store: &mut Store,
        input: TickInput<'_>,
        log_sink: &mut LogSink<'_>,
    ) -> Result<(TickResult, bool), TickError> {
        let now = input.now;
        self.news.drain(..).for_each(|line| log_sink(&line));
        let mut tick = Tick {
            world: &mut self.world,
            queue: &mut self.queue,
            loops: &self.loops,
            recorder: &mut self.recorder,
            waiting: &mut self.waiting_plans,
            random: input.random,
            epoch: input.epoch,
            budget: input.budget,
            log_may_have_changed: input.log_may_have_changed,
            warnings: &mut self.warnings,
            log_sink,
        };
        let done = tick.run(store, now)?;
        self.refresh_nodes();
        let busy = done.rows > 0 || !done.effects.is_empty() || self.queue.is_due(now) || self.recorder.is_due(now);
        Ok((done, busy))
    }

    /// Takes the answer of a webhook; the key is due again when it was the last that it waits for.
    pub fn handle_answer(&mut self, item: &Item, id: QuestionId, answer: Answer, now: Time) {
        if self.waiting_plans.put(item, id, answer) {
            self.queue.add(item.clone(), now);
        }
    }

    /// Hands an effect to the machine, whose clock shows `clock`, and notes that it was ordered. One that panics is logged, and is
    /// planned again later; a start of it counts as refused.
    pub fn carry_out(&mut self, host: &mut dyn Host, clock: Time, effect: &Effect) {
        let now = self.world.now;
        let done = contain(|| {
            self.world.note_order(effect);
            host.carry_out(clock, effect);
        });
        let Err(panic) = done else { return };
        if let Effect::Start(start) = effect {
            let state = ContainerState::Refused { reason: INTERNAL_ERROR.into(), message: panic.clone(), at: now };
            let (pod_uid, container) = (start.pod_uid.clone(), start.container.clone());
            self.handle_report(Report::Container { pod_uid, container, attempt: start.attempt, state }, now);
        }
        let pod = effect.pod_uid().and_then(|uid| Some(self.world.facts.pods.get(uid)?.key()));
        self.note_failure(pod, panic, now);
    }

    /// Logs a panic about a pod, and queues the pod again, later with each failure.
    fn note_failure(&mut self, pod: Option<Key>, text: String, now: Time) {
        let by = crate::kubelet::LOOP.name;
        self.news.push(LogLine { at: now, by, about: pod.clone(), text, level: LogLevel::Problem });
        let place = self.loops.iter().position(|each| each.name == by);
        if let (Some(place), Some(pod)) = (place, pod) {
            self.queue.add_failed((place, pod), now);
        }
    }

    /// Logs a text for users with the next tick.
    pub fn log_text(&mut self, now: Time, text: &str) {
        self.news.push(LogLine::own_action(now, text.to_owned()));
    }

    /// Adds an event to this machine's Node for each missing capability.
    pub fn log_missing_capabilities(&mut self, missing_capabilities: &[&MissingCapability], now: Time) {
        let place = self.local.iter().map(|name| Key::new(Resource("nodes"), "", name));
        let Some(row) = place.filter_map(|key| self.world.get(&key)).next() else { return };
        let event = |lack: &&MissingCapability| PlannedEvent {
            about: row.key.clone(),
            uid: row.uid.clone(),
            field_path: String::new(),
            kind: EventType::Warning,
            reason: lack.reason.into(),
            message: lack.message.to_owned(),
            until: None,
        };
        let events = missing_capabilities.iter().map(event).collect();
        self.recorder.extend(&EventReporter { by: crate::kubelet::LOOP.name, profile: None }, events, now);
    }

    /// Applies a report of the machine to the facts, and makes its pod or image due. A report that panics is logged and dropped.
    pub fn handle_report(&mut self, report: Report, now: Time) {
        let pod = report.pod_uid().and_then(|uid| Some(self.world.facts.pods.get(uid)?.key()));
        let _span = debug_span!("report", pod = pod.as_ref().map(tracing::field::display)).entered();
        if let Err(panic) = contain(|| self.apply_report(report, now)) {
            self.note_failure(pod, panic, now);
        }
    }

    fn apply_report(&mut self, report: Report, now: Time) {
        match &report {
            Report::SharedNetwork(network) => {
                let text = format!(
                    "addresses 127.{network}.0.0/16: another cluster that runs on this machine has them as well, and some of its \
                     pods or Services may have the same address; create one of the two clusters again"
                );
                return self.log_text(now, &text);
            }
            Report::LinkState { node, problem } => {
                self.log_text(now, &activity_log::link_line(node, problem.as_deref()));
            }
            Report::NotDiscarded { why } => return self.log_text(now, &format!("{why}; kloop tries again")),
            _ => {}
        }
        let text = activity_log::report_line(&self.world.facts, &report);
        let level = activity_log::report_level(&report);
        let of_key: fn(Key) -> AppliedReport = match &report {
            Report::Usage { .. } => AppliedReport::Usage,
            Report::Blocked { .. } => AppliedReport::Blocked,
            Report::Sources { .. } | Report::Build { .. } => AppliedReport::Image,
            _ => AppliedReport::Pod,
        };
        let about = report.blocked_object();
        let of_machine = match &report {
            Report::IngressListeners(_) => Some(AppliedReport::IngressListeners),
            Report::LinkState { .. } => Some(AppliedReport::Links),
            _ => None,
        };
        let key = self.world.facts.apply_report(report).or(about);
        let Some(applied) = key.clone().map(of_key).or(of_machine) else { return };
        if let (Some(by), Some(text)) = (self.queue_reported(&applied, now), text) {
            self.news.push(LogLine { at: now, by, about: key, text, level });
        }
    }

    /// Makes the keys due that an applied report concerns; returns the name of the first loop that has any.
    fn queue_reported(&mut self, applied: &AppliedReport, now: Time) -> Option<&'static str> {
        let mut by = None;
        for (place, each) in self.loops.iter().enumerate() {
            for key in each.reports.map(|keys| keys(&self.world, applied)).unwrap_or_default() {
                by = by.or(Some(each.name));
                self.queue.add((place, key), now);
            }
        }
        by
    }

    /// Reads the manifests of static pods. Each problem with them is logged once.
    pub fn read_static_manifests(&mut self, files: &[manifests::ManifestFile], now: Time) {
        let Some(node) = &self.local else { return };
        let known = &self.world.facts.statics;
        let found = manifests::read(files, node, known);
        let differs = |key: &&Key| known.get(*key) != found.pods.get(*key);
        let changed: Vec<Key> = known.keys().chain(found.pods.keys()).filter(differs).cloned().collect();
        let by = crate::kubelet::LOOP.name;
        let new = found.problems.iter().filter(|problem| !self.logged_problems.contains(problem));
        let lines = new.map(|text| LogLine { at: now, by, about: None, text: text.clone(), level: LogLevel::Problem });
        self.news.extend(lines);
        self.logged_problems = found.problems;
        self.world.facts.statics = found.pods;
        changed.into_iter().for_each(|key| self.queue_pod(key, now));
    }

    /// Sends heartbeats and resyncs when it is time for them. True every 10 s, with the heartbeats: the caller does its own periodic work
    /// then.
    pub fn keep_time(&mut self, now: Time) -> bool {
        if now < self.world.now {
            // The clock was set back: queued keys would wait until it reaches their old times again.
            (self.next_heartbeat, self.next_resync) = (now, now);
            self.queue.expedite(now);
        }
        let is_heartbeat_due = now >= self.next_heartbeat;
        if is_heartbeat_due {
            self.next_heartbeat = now + HEARTBEAT;
            self.world.now = now;
            node::send_heartbeats(&mut self.world, self.local.as_deref());
            self.recorder.prune(&self.world);
            if let Some(place) = self.loops.iter().position(|each| each.wait_filter.is_some()) {
                let late = self.queue.waiting.take_overdue(now);
                late.into_iter().for_each(|key| self.queue.add((place, key), now));
            }
        }
        if now >= self.next_resync {
            self.next_resync = now + RESYNC;
            self.queue_everything(now);
        }
        is_heartbeat_due
    }

    /// Records resource levels of the machine; its nodes become due when a level is too low, or was until now.
    pub fn measured(&mut self, levels: ResourceLevels, now: Time) {
        let lines = self.world.settings.eviction.clone();
        if self.world.facts.pressure.update(levels, &lines, now) {
            self.queue_reported(&AppliedReport::Pressure, now);
        }
    }

    /// The next moment at which something is due by the clock.
    pub fn next_due(&self) -> Time {
        let clock = self.next_heartbeat.min(self.next_resync);
        self.queue.next_due().map_or(clock, |next| next.min(clock))
    }

    /// Whether no work is in progress: no container starts, no pod is removed, and no key is due.
    pub fn is_quiet(&self, now: Time) -> bool {
        let in_flight = self.world.facts.pods.iter().any(|(_, pod)| {
            let starting = |state: &ContainerState| matches!(state, ContainerState::Starting { .. });
            pod.removing.is_some() || pod.containers.values().any(|one| starting(&one.state))
        });
        !in_flight && !self.queue.is_due(now)
    }

    /// From now on pods are stopped and not started. Gives how long the slowest of them may take.
    pub fn close(&mut self, now: Time) -> SignedDuration {
        self.world.settings.closing = true;
        self.queue_everything(now);
        let running = self.world.facts.pods.iter().filter_map(|(_, pod)| self.world.get(&pod.key()));
        let grace = |row: &std::sync::Arc<Row>| row.field("spec")["terminationGracePeriodSeconds"].as_i64();
        SignedDuration::from_secs(running.filter_map(grace).max().unwrap_or(30).max(0))
    }

    /// Whether any process of a pod runs, or is about to.
    pub fn anything_runs(&self) -> bool {
        let lives =
            |state: &ContainerState| matches!(state, ContainerState::Starting { .. } | ContainerState::Running { .. });
        self.world.facts.pods.iter().any(|(_, pod)| pod.containers.values().any(|one| lives(&one.state)))
    }

    fn queue_everything(&mut self, now: Time) {
        store_tail::queue_everything(&self.world, &self.loops, &mut self.queue, now);
        let known = self.world.facts.pods.iter().map(|(_, pod)| pod.key());
        let known: Vec<Key> = known.chain(self.world.facts.statics.keys().cloned()).collect();
        for key in known {
            self.queue_pod(key, now);
        }
    }

    fn queue_pod(&mut self, key: Key, now: Time) {
        self.queue(crate::kubelet::LOOP.name, key, now);
    }

    fn queue(&mut self, by: &str, key: Key, now: Time) {
        if let Some(place) = self.loops.iter().position(|each| each.name == by) {
            self.queue.add((place, key), now);
        }
    }

    /// Updates the set of local nodes: pods that were bound to a node before it became local are due.
    fn refresh_nodes(&mut self) {
        let ownership = |known: Option<&NodeFacts>| known.map(|known| (known.ours, known.is_simulated));
        let mut other: Vec<Str> = Vec::new();
        for name in self.world.take_changed_nodes() {
            let after = node::facts(&self.world, &name, self.local.as_deref());
            let is = ownership(after.as_ref());
            let known = &mut self.world.facts.nodes;
            let before = match after {
                Some(after) => known.insert(name.clone(), after),
                None => known.remove(&name),
            };
            if ownership(before.as_ref()) != is {
                other.push(name);
            }
        }
        let facts = &self.world.facts.nodes;
        let added = other.iter().filter(|name| facts.get(*name).is_some_and(|facts| facts.ours));
        let pods: Vec<Key> = added.flat_map(|name| self.world.pods_on(name).map(|row| row.key.clone())).collect();
        let nodes: Vec<Key> = other.iter().map(|name| Key::new(Resource("nodes"), "", name)).collect();
        let now = self.world.now;
        for key in pods {
            self.queue_pod(key, now);
        }
        for place in (0..self.loops.len()).filter(|place| self.loops[*place].root == "nodes") {
            for key in &nodes {
                self.queue.add((place, key.clone()), now);
            }
        }
    }
}
