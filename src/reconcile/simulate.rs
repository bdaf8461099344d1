//! A simulated cluster: the real API server over a store in memory, the real loops and ticks, a simulated machine, and a clock that the
//! caller moves. The same seed and the same calls give the same result, byte for byte.
//!
//! A tick can crash between its commit and its effects, and reports arrive in the order that the caller chooses. [`faults`] has further
//! faults for tests.
//! Start reading at [`Simulation::tick`].

mod faults;

use super::control_plane::{ControlPlane, TickInput};
use super::tick::{TickBudget, TickError, TickResult};
use super::{LogLine, leader, node};
use crate::apiserver::{Api, ApiResult, Env, Transaction};
use crate::object::{Str, Time};
use crate::runtime::capacity::MachineCapacity;
use crate::runtime::simulated::SimulatedMachine;
use crate::store::{Store, StoreError};
use crate::world::{Loop, Report, World};
use jiff::SignedDuration;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// Settings of a simulated cluster.
#[derive(Clone)]
pub struct SimulationConfig {
    /// Seed of all randomness.
    pub seed: u64,
    /// When it begins.
    pub begin: Time,
    /// The machine as a node; none for a cluster without one.
    pub node: Option<MachineCapacity>,
    /// First pause of the restart backoff, in seconds.
    pub backoff_seconds: i64,
    /// The loops that run.
    pub loops: Vec<&'static Loop>,
}

impl SimulationConfig {
    /// Returns the simulated clock and random numbers, one sequence for each salt.
    pub fn env(&self, salt: u64) -> Env {
        Env::Simulated { now: self.begin, seed: self.seed.wrapping_mul(3) + salt }
    }
}

/// The simulated cluster.
pub struct Simulation {
    /// The control plane.
    pub plane: ControlPlane,
    /// The machine.
    pub machine: SimulatedMachine,
    /// Reports on their way to the control plane, oldest first.
    pub mail: VecDeque<Report>,
    /// Limits of a tick, by rows only: limits by time would make runs differ.
    pub budget: TickBudget,
    api: Api,
    /// The machine's clock, which only goes forward.
    clock: Time,
    random: Env,
    epoch: u64,
    plan: SimulationConfig,
    /// Pods of which a report was lost.
    lost: BTreeSet<Str>,
}

/// Result of one simulated tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimulatedTick {
    /// Rows were written or effects ordered, or there may be more to do at once.
    Busy,
    /// No loop has anything to do at this time.
    Quiet,
    /// The control plane crashed after the commit, and has started again.
    Crashed,
    /// The store could not take the writes.
    Refused,
}

impl Simulation {
    /// A new cluster whose control plane has just started.
    pub fn new(plan: SimulationConfig) -> anyhow::Result<Simulation> {
        let api = Api::in_memory_with("user", plan.env(1))?;
        Simulation::with_cluster(api, SimulatedMachine::new(), plan)
    }

    /// Starts a control plane over an existing cluster and machine.
    pub fn with_cluster(api: Api, machine: SimulatedMachine, plan: SimulationConfig) -> anyhow::Result<Simulation> {
        let mut simulation = Simulation {
            plane: ControlPlane::new(None, plan.begin),
            machine,
            mail: VecDeque::new(),
            budget: TickBudget { hold: Duration::MAX, rows: 500 },
            api,
            clock: plan.begin,
            random: plan.env(2),
            epoch: 0,
            plan,
            lost: BTreeSet::new(),
        };
        simulation.restart()?;
        Ok(simulation)
    }

    /// Returns the simulated wall clock time, which objects and plans use.
    pub fn now(&self) -> Time {
        self.clock + self.machine.skew
    }

    /// The World of the control plane.
    pub fn world(&self) -> &World {
        &self.plane.world
    }

    /// Number of control planes that have led so far.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The store.
    pub fn store(&self) -> &Store {
        self.api.store()
    }

    /// The store, so that a test can inject faults.
    pub fn store_mut(&mut self) -> &mut Store {
        self.api.store_mut()
    }

    /// Writes as a user does, through the API server.
    pub fn write<T>(&mut self, write: impl FnMut(&mut dyn Transaction) -> ApiResult<T>) -> ApiResult<T> {
        let now = self.now();
        self.api.env().set(now);
        self.api.write(false, write)
    }

    /// Runs one tick and its effects. With `crash_after` the control plane crashes after that many effects, and starts again.
    pub fn tick(
        &mut self,
        crash_after: Option<usize>,
        mut tell: impl FnMut(&LogLine),
    ) -> anyhow::Result<SimulatedTick> {
        let now = self.now();
        self.api.env().set(now);
        self.plane.keep_time(now);
        let random = &mut || self.random.random();
        let input = TickInput { now, epoch: self.epoch, budget: self.budget, random, log_may_have_changed: true };
        let ticked = self.plane.tick(self.api.store_mut(), input, &mut |line: &LogLine| tell(line));
        self.api.store_mut().inject_fault(None);
        let (done, busy) = match ticked {
            Ok(ticked) => ticked,
            Err(TickError::Store(StoreError::Busy { .. } | StoreError::Full { .. })) => {
                return Ok(SimulatedTick::Refused);
            }
            Err(TickError::Store(error)) => return Err(error.into()),
            Err(TickError::Unknown(_)) => {
                // The control plane drops all of its state, as if it had died there.
                self.restart()?;
                return Ok(SimulatedTick::Crashed);
            }
            Err(TickError::Panicked(panic)) => anyhow::bail!("{panic}"),
            Err(TickError::Deposed) => anyhow::bail!("another epoch than {} is in the store", self.epoch),
        };
        self.carry_out(done, crash_after.unwrap_or(usize::MAX));
        if crash_after.is_some() {
            self.restart()?;
            return Ok(SimulatedTick::Crashed);
        }
        self.collect();
        Ok(if busy { SimulatedTick::Busy } else { SimulatedTick::Quiet })
    }

    fn carry_out(&mut self, done: TickResult, at_most: usize) {
        for effect in done.effects.iter().take(at_most) {
            self.plane.carry_out(&mut self.machine, self.clock, effect);
        }
    }

    /// Replaces the control plane by a new one, which knows only the store and the machine's inventory.
    pub fn restart(&mut self) -> anyhow::Result<()> {
        self.mail.clear();
        self.lost.clear();
        let orders_too = self.random.random().is_multiple_of(2);
        self.machine.lose_leader(orders_too);
        let now = self.now();
        self.api.env().set(now);
        if let Some(capacity) = &self.plan.node {
            node::register(&mut self.api, capacity, &[]).map_err(|status| anyhow::anyhow!(status.message))?;
        }
        self.epoch = leader::raise_epoch(self.api.store_mut(), 0)?;
        let name = self.plan.node.as_ref().map(|node| node.name.as_str().into());
        self.plane = ControlPlane::new(name, now);
        self.plane.loops = self.plan.loops.clone();
        let inventory = self.machine.inventory();
        self.plane.load(&self.api.store().read()?, || inventory, self.plan.backoff_seconds, now)?;
        Ok(())
    }

    /// Time passes, on the machine and on the wall.
    pub fn pass(&mut self, time: SignedDuration) {
        self.clock += time;
        self.collect();
    }

    /// Delivers reports of past machine events to the control plane.
    fn collect(&mut self) {
        self.mail.extend(self.machine.due(self.clock));
    }

    /// Delivers the report at this place before earlier ones.
    pub fn deliver(&mut self, place: usize) {
        if let Some(report) = self.mail.remove(place) {
            let now = self.now();
            self.plane.handle_report(report, now);
        }
    }

    /// A container's process ends by itself.
    pub fn end(&mut self, pod_uid: &str, container: &str, code: i32) {
        self.machine.end(self.clock, pod_uid, container, code);
        self.collect();
    }

    /// Time until the machine or a loop has work; `None` when there is none.
    pub fn pause(&self) -> Option<SignedDuration> {
        let machine = self.machine.next_event_time().map(|at| at.duration_since(self.clock));
        let queue = self.plane.queue.next_due().map(|at| at.duration_since(self.now()));
        [machine, queue].into_iter().flatten().min().map(|pause| pause.max(SignedDuration::ZERO))
    }
}
