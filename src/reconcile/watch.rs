//! The loop around the beats: one thread that waits for a hint, a report, a signal or a due moment, and then beats.

use super::beat::{Beat, Failed};
use super::convergence::{self, Unmet};
use super::events::Recorder;
use super::leader::Leadership;
use super::node;
use super::queue::Queue;
use super::{Line, Narrator, loops, tail};
use crate::apiserver::{Api, front};
use crate::object::{Key, Str, Time};
use crate::runtime::capacity::Capacity;
use crate::runtime::machine::{Host, Machine};
use crate::store::{Access, Hint, Read, Retention, StoreError, Watch};
use crate::world::{ContainerState, Effect, Loop, Report, World};
use anyhow::Context;
use jiff::SignedDuration;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// How often nodes send a heartbeat (kubelet: a quarter of the lease's 40 s).
const HEARTBEAT: SignedDuration = SignedDuration::from_secs(10);

/// How often every key is looked at, whatever was heard.
const RESYNC: SignedDuration = SignedDuration::from_mins(10);

/// Log entries that one resync passes at most when it compacts.
const COMPACTED: usize = 5000;

/// The meta entry that holds the last heartbeat of a control plane.
pub const HEARD: &str = "heartbeat";

/// How a control plane is to run.
#[derive(Clone)]
pub struct Settings {
    /// The cluster's file.
    pub state: PathBuf,
    /// This machine as a node; none with `--no-local-node`.
    pub node: Option<Capacity>,
    /// The binary that is run as the shim; none for this one.
    pub shim: Option<PathBuf>,
    /// First pause of the restart backoff, in seconds.
    pub backoff_seconds: i64,
    /// Is told each time when nothing is left to do for now.
    pub on_idle: Option<fn(Idle)>,
}

/// Nothing is left to do.
#[derive(Clone, Copy, Debug)]
pub struct Idle {
    /// Everything up to this revision was looked at.
    pub revision: u64,
    /// When a loop wants to look again without being told of anything.
    pub next: Option<Time>,
}

/// What wakes the loop.
pub enum Wake {
    /// Somebody wrote.
    Store,
    /// The machine reports.
    Report(Report),
    /// The user wants it to end.
    Stop,
}

/// How a run ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ending {
    /// Nothing is left to do, and the world is as asked for.
    Converged,
    /// The time is over, and this is missing.
    TimedOut(Vec<Unmet>),
    /// The user ended it.
    Stopped,
    /// Another control plane took over.
    Deposed,
}

/// When a run ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Never: `--watch`.
    Stopped,
    /// Once converged, or after so long.
    Converged(SignedDuration),
}

/// A control plane that leads.
pub struct Control {
    api: Api,
    settings: Settings,
    leadership: Leadership,
    world: World,
    queue: Queue,
    loops: Vec<&'static Loop>,
    recorder: Recorder,
    /// This machine; none with `--no-local-node`.
    machine: Option<Machine>,
    inbox: Receiver<Wake>,
    outbox: Sender<Wake>,
    _hint: Option<Watch>,
    next_heartbeat: Time,
    next_resync: Time,
    nodes_seen: (usize, u64),
    /// The user wants it to end.
    stopping: bool,
}

impl Control {
    /// Takes over: takes stock of the machine, then of the store, and makes everything due.
    pub fn start(mut api: Api, leadership: Leadership, settings: Settings) -> anyhow::Result<Control> {
        let (outbox, inbox) = channel();
        let local = match &settings.node {
            Some(capacity) => {
                node::register(&mut api, capacity).context("cannot register this machine as a node")?;
                let reports = outbox.clone();
                let report = Box::new(move |report| drop(reports.send(Wake::Report(report))));
                let (dir, epoch) = (api.store().dir(), leadership.epoch);
                Some(match &settings.shim {
                    Some(program) => Machine::open_with(dir, epoch, program, report)?,
                    None => Machine::open(dir, epoch, report)?,
                })
            }
            None => None,
        };
        let knock = outbox.clone();
        let hint = Hint::spawn(api.store().path(), move || drop(knock.send(Wake::Store)));
        let now = Time::now();
        let mut control = Control {
            world: World::new(now),
            queue: Queue::default(),
            loops: loops::all(),
            recorder: Recorder::default(),
            machine: local,
            inbox,
            outbox,
            _hint: hint,
            next_heartbeat: now,
            next_resync: now + RESYNC,
            nodes_seen: (0, 0),
            stopping: false,
            api,
            settings,
            leadership,
        };
        control.load()?;
        Ok(control)
    }

    /// Where wake-ups are sent to: signals, mostly.
    pub fn outbox(&self) -> Sender<Wake> {
        self.outbox.clone()
    }

    /// The picture as it stands.
    pub fn world(&self) -> &World {
        &self.world
    }

    fn load(&mut self) -> anyhow::Result<()> {
        let now = Time::now();
        let mut world = World::new(now);
        {
            let snapshot = self.api.store().read()?;
            let network = snapshot.meta(front::NETWORK)?;
            world.settings.network = network.and_then(|text| text.parse().ok()).unwrap_or(world.settings.network);
            world.settings.backoff_seconds = self.settings.backoff_seconds;
            tail::load(&snapshot, &mut world)?;
        }
        if let Some(local) = &mut self.machine {
            for (uid, pod) in local.inventory() {
                world.facts.pods.insert(uid, pod);
            }
        }
        world.facts.inventory_complete = true;
        self.world = world;
        self.see_nodes();
        self.queue = Queue::default();
        tail::everything(&self.world, &self.loops, &mut self.queue, now);
        let known: Vec<Key> = self.world.facts.pods.iter().map(|(_, pod)| pod.key()).collect();
        for key in known {
            self.queue_pod(key, now);
        }
        Ok(())
    }

    /// Runs until the user stops it, or until it has converged.
    pub fn run(&mut self, until: Until, narrator: &mut Narrator<'_>) -> anyhow::Result<Ending> {
        let started = Time::now();
        loop {
            self.take_reports();
            if self.stopping {
                return Ok(Ending::Stopped);
            }
            self.keep_time()?;
            let busy = match self.beat(narrator) {
                Ok(busy) => busy,
                Err(Failed::Deposed) => return Ok(Ending::Deposed),
                Err(Failed::Store(error)) => self.bear(&error, narrator)?,
                Err(Failed::Unknown(error)) => {
                    say(narrator, format!("{error}; reading everything anew"));
                    self.reopen()?;
                    true
                }
            };
            if let Until::Converged(patience) = until {
                // Something that is tried again and again keeps it busy for ever; the time is over all the same.
                let is_late = Time::now().duration_since(started) >= patience;
                if (is_late || !busy)
                    && let Some(ending) = self.judge(is_late)
                {
                    return Ok(ending);
                }
            }
            if !busy {
                let deadline = match until {
                    Until::Converged(patience) => Some(started + patience),
                    Until::Stopped => None,
                };
                if let Some(tell) = self.settings.on_idle {
                    tell(Idle { revision: self.world.revision, next: self.queue.next() });
                }
                self.wait(deadline);
            }
        }
    }

    /// One beat and its effects. True when there may be more to do at once.
    fn beat(&mut self, narrator: &mut Narrator<'_>) -> Result<bool, Failed> {
        let now = Time::now();
        let mut chance = front::random;
        let mut beat = Beat {
            world: &mut self.world,
            queue: &mut self.queue,
            loops: &self.loops,
            recorder: &mut self.recorder,
            chance: &mut chance,
            epoch: self.leadership.epoch,
            narrator,
        };
        let done = beat.run(self.api.store_mut(), now)?;
        self.see_nodes();
        let acted = !done.effects.is_empty();
        self.carry_out(done.effects);
        Ok(done.rows > 0 || acted || self.queue.is_due(now) || self.recorder.is_due(now))
    }

    /// Hands effects over, and notes in the World's facts that they are under way.
    fn carry_out(&mut self, effects: Vec<Effect>) {
        let now = self.world.now;
        let Some(machine) = &mut self.machine else { return };
        for effect in effects {
            self.world.facts.ordered(&effect, now);
            machine.carry_out(now, &effect);
        }
    }

    /// What the machine reports becomes facts, and makes pods due.
    fn take_reports(&mut self) {
        let now = Time::now();
        while let Ok(wake) = self.inbox.try_recv() {
            self.hear(wake, now);
        }
    }

    /// Takes in one wake-up.
    fn hear(&mut self, wake: Wake, now: Time) {
        match wake {
            Wake::Report(report) => self.take(report, now),
            Wake::Store => {}
            Wake::Stop => self.stopping = true,
        }
    }

    fn take(&mut self, report: Report, now: Time) {
        if let Some(key) = self.world.facts.take(report) {
            self.queue_pod(key, now);
        }
    }

    fn queue_pod(&mut self, key: Key, now: Time) {
        if let Some(place) = self.loops.iter().position(|each| each.name == crate::kubelet::LOOP.name) {
            self.queue.add((place, key), now);
        }
    }

    /// Heartbeats and the resync.
    fn keep_time(&mut self) -> anyhow::Result<()> {
        let now = Time::now();
        if now >= self.next_heartbeat {
            self.next_heartbeat = now + HEARTBEAT;
            self.world.now = now;
            node::beat(&mut self.world, self.settings.node.as_ref().map(|node| node.name.as_str()));
            self.note_heartbeat(now)?;
        }
        if now >= self.next_resync {
            self.next_resync = now + RESYNC;
            tail::everything(&self.world, &self.loops, &mut self.queue, now);
            self.api.store_mut().compact(&retention(now), COMPACTED)?;
        }
        Ok(())
    }

    fn note_heartbeat(&mut self, now: Time) -> anyhow::Result<()> {
        let mut txn = self.api.store_mut().write(Duration::from_secs(10))?;
        txn.set_meta(HEARD, &now.to_string())?;
        txn.commit().map(|_| ()).or_else(|error| {
            // A lost heartbeat is no harm; the next beat sees whether the store is.
            drop(error);
            Ok(())
        })
    }

    /// Which nodes are ours may have changed: pods that were bound to a node before it became ours are due.
    fn see_nodes(&mut self) {
        let seen =
            (self.world.list("nodes").count(), self.world.list("nodes").map(|row| row.revision).max().unwrap_or(0));
        if seen == self.nodes_seen {
            return;
        }
        self.nodes_seen = seen;
        let before: Vec<Str> = self.world.facts.nodes.keys().cloned().collect();
        node::beat(&mut self.world, self.settings.node.as_ref().map(|node| node.name.as_str()));
        let fresh: Vec<Str> = self.world.facts.nodes.keys().filter(|name| !before.contains(name)).cloned().collect();
        let pods: Vec<Key> =
            fresh.iter().flat_map(|name| self.world.pods_on(name).map(|row| row.key.clone())).collect();
        let now = self.world.now;
        for key in pods {
            self.queue_pod(key, now);
        }
        let nodes: Vec<Key> = self.world.list("nodes").map(|row| row.key.clone()).collect();
        for (place, each) in self.loops.iter().enumerate().filter(|(_, each)| each.root == "nodes") {
            let _ = each;
            for key in &nodes {
                self.queue.add((place, key.clone()), now);
            }
        }
    }

    /// Whether a one-shot run is over.
    fn judge(&self, out_of_time: bool) -> Option<Ending> {
        let unmet = convergence::unmet(&self.world);
        let in_flight = self.world.facts.pods.iter().any(|(_, pod)| {
            let starting = |state: &ContainerState| matches!(state, ContainerState::Starting { .. });
            pod.removing.is_some() || pod.containers.values().any(|one| starting(&one.state))
        });
        if unmet.is_empty() && !in_flight && !self.queue.is_due(Time::now()) {
            return Some(Ending::Converged);
        }
        out_of_time.then_some(Ending::TimedOut(unmet))
    }

    /// Waits for the next wake-up or due moment.
    fn wait(&mut self, deadline: Option<Time>) {
        let moments = [self.queue.next(), Some(self.next_heartbeat), Some(self.next_resync), deadline];
        let next = moments.into_iter().flatten().min().unwrap_or(self.next_heartbeat);
        let pause = next.duration_since(Time::now()).max(SignedDuration::ZERO).unsigned_abs();
        if let Ok(wake) = self.inbox.recv_timeout(pause) {
            self.hear(wake, Time::now());
        }
    }

    /// A store that is busy or full is waited for; anything else ends the run.
    fn bear(&mut self, error: &StoreError, narrator: &mut Narrator<'_>) -> anyhow::Result<bool> {
        match error {
            StoreError::Expired { .. } => {
                self.reopen()?;
                Ok(true)
            }
            StoreError::Busy { .. } | StoreError::Full { .. } => {
                say(narrator, error.to_string());
                std::thread::sleep(Duration::from_millis(200));
                Ok(false)
            }
            _ => anyhow::bail!("{error}"),
        }
    }

    fn reopen(&mut self) -> anyhow::Result<()> {
        self.api = Api::open(&self.settings.state, Access::Existing, "reconcile")?;
        self.load()
    }

    /// How many pods have processes on this machine.
    pub fn running_pods(&self) -> usize {
        self.world.facts.pods.iter().filter(|(_, pod)| self.machine.is_some() && pod.removing.is_none()).count()
    }

    /// Ends every pod of this machine: the stop signal, the pod's grace, SIGKILL. The pods stay in the store.
    pub fn stop_pods(&mut self) -> anyhow::Result<usize> {
        let Some(local) = &mut self.machine else { return Ok(0) };
        let now = Time::now();
        let pods: Vec<Str> = self.world.facts.pods.iter().map(|(uid, _)| uid.clone()).collect();
        for pod_uid in &pods {
            local.carry_out(now, &Effect::Remove { pod_uid: pod_uid.clone() });
        }
        let mut left: std::collections::HashSet<Str> = pods.iter().cloned().collect();
        let until = now + SignedDuration::from_secs(30);
        while !left.is_empty() && Time::now() < until {
            if let Ok(Wake::Report(Report::Removed { pod_uid })) = self.inbox.recv_timeout(Duration::from_millis(100)) {
                left.remove(&pod_uid);
            }
        }
        anyhow::ensure!(left.is_empty(), "{} pods did not end within 30 s", left.len());
        Ok(pods.len())
    }
}

fn say(narrator: &mut Narrator<'_>, text: String) {
    narrator(&Line { at: Time::now(), by: "reconcile", about: None, text });
}

/// How much of the log is kept: an hour, at least the last 10,000 and at most the last 100,000 writes.
fn retention(now: Time) -> Retention {
    Retention { at_least: 10_000, at_most: 100_000, since: now - SignedDuration::from_hours(1) }
}
