//! One tick: reads the tail of the store's log under the write lock, plans the due keys, and commits all their writes at once.
//!
//! A plan is never stale, because the tick holds the write lock. It sees the writes of earlier plans, which are staged in the World. Unless
//! the plan is divisible, all its writes are undone when one is refused.

use super::activity_log::{ActivityLog, LastWarnings};
use super::events::{EventRecorder, EventReporter};
use super::overlay::Overlay;
use super::queue::{DueFilter, Fault, Item, QueuePriority, WorkQueue};
use super::stage_write::{StagingContext, stage_write};
use super::waiting_plans::{PlanInputs, WaitingPlans};
use super::{LogLevel, LogLine, LogSink, RECONCILE, retention, store_tail};
use crate::apiserver::create::PodTemplateCache;
use crate::apiserver::outside::WriteInputs;
use crate::apiserver::rules::{freed_space, metadata};
use crate::apiserver::user::User;
use crate::object::{Key, Object, Status, Str, Time};
use crate::runtime::contain::contain;
use crate::store::{CommitError, ContainerAttempt, Store, StoreError, StoreRead, Txn, meta_keys};
use crate::world::{Effect, EventType, Loop, Memory, Plan, PlannedEvent, Row, World, WriteVerb};
use hashbrown::{HashMap, HashSet};
use jiff::SignedDuration;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::field::Empty;
use tracing::{debug_span, trace_span};

/// Time that a tick waits for the write lock. After that the control plane logs the holder of the lock, applies reports, and tries again.
pub const WRITE_LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// Minimum pause before the next plan of a loop that had no writes and asks to plan again at once, so that no loop spins.
const MIN_REPLAN_INTERVAL: SignedDuration = SignedDuration::from_millis(10);

/// Number of times that a tick gives the lock back to compile expressions which were written while it waited for the lock.
const COMPILE_ROUNDS: u8 = 2;

/// Number of requests to webhooks after which a plan's further writes are not tried in this attempt.
const MAX_QUESTIONS: usize = 64;

/// Limits of one tick.
#[derive(Clone, Copy, Debug)]
pub struct TickBudget {
    /// Time after which the tick, which holds the write lock, starts no new work. Pods that it has begun to write are still processed.
    pub hold: Duration,
    /// Maximum number of plans, and of rows to write.
    pub rows: usize,
}

impl Default for TickBudget {
    fn default() -> TickBudget {
        TickBudget { hold: Duration::from_millis(5), rows: 500 }
    }
}

/// Everything a tick works on.
pub struct Tick<'a> {
    /// The World.
    pub world: &'a mut World,
    /// Keys that are due.
    pub queue: &'a mut WorkQueue,
    /// The loops.
    pub loops: &'a [&'static Loop],
    /// Events to record, now or in a later tick.
    pub recorder: &'a mut EventRecorder,
    /// Plans that wait for webhooks.
    pub waiting: &'a mut WaitingPlans,
    /// Random numbers.
    pub random: &'a mut dyn FnMut() -> u64,
    /// The epoch of this leader.
    pub epoch: u64,
    /// Limits of the tick.
    pub budget: TickBudget,
    /// Whether other processes may have written since the last tick.
    pub log_may_have_changed: bool,
    /// Warnings logged before.
    pub warnings: &'a mut LastWarnings,
    /// Receives the log lines.
    pub log_sink: &'a mut LogSink<'a>,
}

/// Result of a tick.
#[derive(Default)]
pub struct TickResult {
    /// Effects to carry out.
    pub effects: Vec<Effect>,
    /// Number of rows written.
    pub rows: usize,
}

/// Uncommitted plans of a tick.
#[derive(Default)]
struct TickPlans {
    attempts: Vec<ContainerAttempt>,
    effects: Vec<Effect>,
    /// Changes of the World's memory, applied after the commit.
    memory: Vec<Memory>,
    /// The last states of removed objects.
    last: HashMap<Key, Arc<Object>>,
    /// Planned keys.
    planned: Vec<Item>,
    /// Planned keys with effects or memory. Both are applied only after the commit, so a second plan before it would repeat them.
    acting: HashSet<Item>,
    /// Whether any plan restarts a process.
    restarts: bool,
    /// Log lines to write after the commit.
    activity: ActivityLog,
    /// The loop that created each staged row, or wrote it last.
    writers: HashMap<Key, &'static str>,
}

/// Failure to stage a plan's writes.
enum StageFailure {
    /// The API server panicked, with this message.
    Panicked(String),
    /// The API server refused a write.
    Refused(RefusedWrite),
    /// Answers of webhooks are missing.
    Deferred,
}

/// A write that the API server refused.
struct RefusedWrite {
    /// The reason of the write.
    why: String,
    /// The refusal.
    status: Box<Status>,
}

/// A plan whose writes are staged.
struct StagedPlan {
    plan: Plan,
    writes: StagedWrites,
}

/// The staged writes of a plan.
#[derive(Default)]
struct StagedWrites {
    /// The attempts of containers to record with them.
    attempts: Vec<ContainerAttempt>,
    /// The first refused write of a divisible plan.
    refused: Option<RefusedWrite>,
}

/// Reason why a tick failed.
#[derive(Debug)]
pub enum TickError {
    /// The store has another epoch, which a new leader began.
    Deposed,
    /// The store refused; nothing was written.
    Store(StoreError),
    /// A panic outside of any plan, with its message. The store has to be reopened, and the World loaded again.
    Panicked(String),
    /// The outcome of the commit is not known. The store has to be reopened, and the World loaded again.
    Unknown(CommitError),
}

impl From<StoreError> for TickError {
    fn from(error: StoreError) -> TickError {
        TickError::Store(error)
    }
}

/// Reads the epoch of the leading control plane from the store.
pub fn read_epoch(read: &dyn StoreRead) -> Result<Option<u64>, StoreError> {
    Ok(read.meta(meta_keys::EPOCH)?.and_then(|text| text.parse().ok()))
}

/// Reason of the event for a panic while planning an object.
pub const INTERNAL_ERROR: &str = "InternalError";

impl Tick<'_> {
    /// Plans and commits the due keys. Returns the effects to carry out. The commit survives a crash of this process; to survive a power
    /// loss it needs a [`Store::sync`].
    pub fn run(&mut self, store: &mut Store, now: Time) -> Result<TickResult, TickError> {
        self.world.now = now;
        if self.log_may_have_changed {
            // Most of the log is read before the lock is taken.
            let changed = store_tail::catch_up(&store.read()?, self.world, self.loops, self.queue, now)?;
            store_tail::compile(self.world, self.loops, &changed);
        }
        if !self.queue.is_due(now) && !self.recorder.is_due(now) {
            return Ok(TickResult::default());
        }
        let span = debug_span!("tick", revision = self.world.revision, keys = Empty, rows = Empty).entered();
        let mut rounds = 0..COMPILE_ROUNDS;
        let txn = loop {
            let txn = store.write(WRITE_LOCK_TIMEOUT)?;
            if read_epoch(&txn)? != Some(self.epoch) {
                return Err(TickError::Deposed);
            }
            let changed = store_tail::catch_up(&txn, self.world, self.loops, self.queue, now)?;
            if changed.is_empty() || rounds.next().is_none() {
                break txn;
            }
            drop(txn);
            store_tail::compile(self.world, self.loops, &changed);
        };
        self.log_faults();
        let mut plans = TickPlans::default();
        self.plan_due_keys(&mut plans);
        span.record("keys", plans.planned.len());
        // Events are recorded after the other work, unless they are urgent.
        if !self.queue.is_due(now) || self.recorder.is_pressing(now) {
            self.record_events(&mut plans);
        }
        match self.commit(txn, &mut plans) {
            Ok(rows) => {
                span.record("rows", rows);
                plans.memory.iter().for_each(|memory| self.world.remember(memory));
                Ok(TickResult { effects: plans.effects, rows })
            }
            Err(error) => {
                self.world.drop_staged();
                // Keys of a failed tick stay due.
                plans.planned.into_iter().for_each(|item| self.queue.add(item, now));
                Err(error)
            }
        }
    }

    /// Logs the panics that the queue has recorded.
    fn log_faults(&mut self) {
        for Fault { by, about, text } in self.queue.take_faults() {
            (self.log_sink)(&LogLine { at: self.world.now, by, about: Some(about), text, level: LogLevel::Problem });
        }
    }

    fn plan_due_keys(&mut self, plans: &mut TickPlans) {
        let _span = debug_span!("plan_due_keys").entered();
        let start = Instant::now();
        let mut planned = 0;
        let mut later = Vec::new();
        let mark = self.queue.mark();
        while planned < self.budget.rows {
            let world = &*self.world;
            // Finishes pods that this tick has begun: a pod created, bound and started in one tick is one row of the log instead of three.
            let rank = |key: &Key| {
                let pod = world.get(key).and_then(|row| row.pod());
                QueuePriority {
                    priority: pod.map_or(0, |pod| pod.priority),
                    begun: pod.is_some() && world.is_staged(key),
                }
            };
            let filter = DueFilter {
                // After a restart the tick ends early: keys that became due during it wait for the next one.
                mark: plans.restarts.then_some(mark),
                begun: start.elapsed() >= self.budget.hold,
            };
            let Some(item) = self.queue.pop(world.now, filter, rank) else { break };
            if plans.acting.contains(&item) {
                later.push(item);
                continue;
            }
            planned += self.plan_one(item.clone(), plans).max(1);
            plans.planned.push(item);
        }
        later.into_iter().for_each(|item| self.queue.add(item, self.world.now));
        self.log_faults();
    }

    /// Asks one loop for a plan of one key and stages it. Returns the number of writes.
    fn plan_one(&mut self, item: Item, plans: &mut TickPlans) -> usize {
        let now = self.world.now;
        let (mut inputs, first) = match self.waiting.begin(&item, self.world.revision, now) {
            PlanInputs::Waits => return 0,
            PlanInputs::Inputs(inputs, first) => (Some(inputs), first),
            PlanInputs::Unavailable => (None, self.world.revision),
        };
        self.world.seed = match &mut inputs {
            Some(inputs) => inputs.number(&mut *self.random),
            None => (self.random)(),
        };
        // A retry after the answer of a webhook plans with the time of the first attempt.
        self.world.now = inputs.as_ref().map_or(now, |inputs| inputs.time(now));
        let stage = self.world.stage_mark();
        let staged = self.plan_and_stage(&item, first, &mut inputs, &mut plans.last);
        self.world.now = now;
        match staged {
            Ok(StagedPlan { plan, writes }) => {
                plans.attempts.extend(writes.attempts);
                let Some(refused) = &writes.refused else {
                    self.world.forget_refusal(self.loops[item.0].name, &item.1);
                    self.queue.forget_failures(&item);
                    return self.accept_plan(item, plan, stage, plans);
                };
                let count = self.accept_plan(item.clone(), plan, stage, plans);
                self.plan_refused(item, refused);
                count
            }
            Err(failure) => {
                // A plan that is not divisible is applied whole or not at all.
                self.world.undo_to(stage);
                match failure {
                    StageFailure::Panicked(panic) => self.plan_failed(item, panic),
                    StageFailure::Refused(refused) => self.plan_refused(item, &refused),
                    StageFailure::Deferred => {
                        if !inputs.is_some_and(|inputs| self.waiting.set_aside(&item, inputs, first)) {
                            self.queue.add_failed(item, now);
                        }
                    }
                }
                0
            }
        }
    }

    /// Asks a loop for its plan of a key, and stages the writes.
    fn plan_and_stage(
        &mut self,
        item: &Item,
        revision: u64,
        inputs: &mut Option<WriteInputs>,
        last: &mut HashMap<Key, Arc<Object>>,
    ) -> Result<StagedPlan, StageFailure> {
        let each = self.loops[item.0];
        // Names in the plan follow from the revision.
        let present = std::mem::replace(&mut self.world.revision, revision);
        let world = &*self.world;
        let planning = trace_span!("plan", by = each.name, key = %item.1).entered();
        let plan = contain(|| (each.plan)(world, &item.1));
        self.world.revision = present;
        drop(planning);
        let plan = plan.map_err(StageFailure::Panicked)?;
        let _staging = trace_span!("stage", by = each.name, key = %item.1, writes = plan.writes.len()).entered();
        let writes = self.stage_writes(each.name, &plan, inputs, last)?;
        Ok(StagedPlan { plan, writes })
    }

    /// Stages the writes of a plan until one is refused; of a divisible plan, stages all that are not refused.
    fn stage_writes(
        &mut self,
        by: &str,
        plan: &Plan,
        inputs: &mut Option<WriteInputs>,
        last: &mut HashMap<Key, Arc<Object>>,
    ) -> Result<StagedWrites, StageFailure> {
        let mut staged = StagedWrites::default();
        if plan.writes.is_empty() {
            return Ok(staged);
        }
        let user = Arc::new(User::component(by));
        // A copy would differ from the pod that a webhook was asked about.
        let has_asked = inputs.as_ref().is_some_and(WriteInputs::has_asked);
        let mut template_cache = (plan.writes.len() > 1 && !has_asked).then(PodTemplateCache::default);
        for (index, write) in plan.writes.iter().enumerate() {
            if let Some(inputs) = inputs.as_mut() {
                inputs.begin_part(index + 1);
            }
            if let WriteVerb::Attempt { pod_uid, container, attempt } = &write.verb {
                staged.attempts.push(ContainerAttempt {
                    pod_uid: pod_uid.to_string(),
                    container: container.to_string(),
                    attempt: *attempt,
                    epoch: self.epoch,
                });
            }
            let (mark, world) = (self.world.stage_mark(), &mut *self.world);
            let context = StagingContext {
                user: &user,
                inputs: inputs.as_mut(),
                last,
                template_cache: template_cache.as_mut(),
                random: self.random,
            };
            match contain(|| stage_write(world, &write.verb, context)) {
                Ok(Ok(())) => {}
                // The questions of further writes are asked at the same time.
                Ok(Err(_)) if missing(inputs) > 0 && missing(inputs) < MAX_QUESTIONS => {}
                Ok(Err(_)) if missing(inputs) > 0 => break,
                Ok(Err(status)) => {
                    let refused = RefusedWrite { why: write.why.to_string(), status: status.into() };
                    if !plan.is_divisible {
                        return Err(StageFailure::Refused(refused));
                    }
                    self.world.undo_to(mark);
                    staged.refused.get_or_insert(refused);
                }
                Err(panic) => return Err(StageFailure::Panicked(panic)),
            }
        }
        if missing(inputs) > 0 { Err(StageFailure::Deferred) } else { Ok(staged) }
    }

    /// Takes a plan whose writes are staged into the tick: queues the keys that it concerns, and keeps its effects, events and memory for
    /// the commit.
    fn accept_plan(&mut self, item: Item, plan: Plan, stage: usize, plans: &mut TickPlans) -> usize {
        let (by, now) = (self.loops[item.0].name, self.world.now);
        // Registers the wait before the changes of this plan, because one of them may end it.
        if let Some(wait) = plan.scheduling_wait.clone() {
            self.queue.waiting.park(&item.1, wait, now);
        }
        for key in self.world.staged_since(stage) {
            let before = self.world.row_before_stage(&key).cloned();
            let settled = Some(&item).filter(|_| plan.is_settled);
            store_tail::queue_concerned(self.world, self.loops, self.queue, (before.as_ref(), &key), settled, now);
            match before {
                // The loop that creates an object is named, although others complete it in the same tick.
                None => _ = plans.writers.entry(key).or_insert(by),
                Some(_) => _ = plans.writers.insert(key, by),
            }
        }
        self.world.accept_staged();
        plans.activity.record_plan(by, &item.1, &plan);
        let profile = self.world.get(&item.1).and_then(|row| row.pod()).map(|pod| pod.scheduler.clone());
        self.recorder.extend(&EventReporter { by, profile }, plan.events, now);
        let is_passive = plan.effects.is_empty() && plan.memory.is_empty();
        if !is_passive {
            plans.acting.insert(item.clone());
        }
        plans.restarts |= plan.effects.iter().any(restarts);
        plans.effects.extend(plan.effects);
        plans.memory.extend(plan.memory);
        let writes = plan.writes.len();
        if let Some(at) = plan.wake {
            let soonest = if writes == 0 && is_passive { now + MIN_REPLAN_INTERVAL } else { now };
            self.queue.add(item, at.max(soonest));
        }
        writes
    }

    /// Handles the refusal of a plan's write: the key is tried again with backoff, and once at once after its first refusal.
    fn plan_refused(&mut self, item: Item, RefusedWrite { why, status }: &RefusedWrite) {
        let (by, now) = (self.loops[item.0].name, self.world.now);
        let is_first = self.world.refuse(by, &item.1, &status.message);
        let level = if is_first { LogLevel::Problem } else { LogLevel::Detail };
        let text = format!("{why}: refused: {status}");
        (self.log_sink)(&LogLine { at: now, by, about: Some(item.1.clone()), text, level });
        self.queue.add_failed(item.clone(), now);
        if is_first {
            self.queue.add(item, now);
        }
    }

    /// Handles a panic of a plan: the key is tried again with backoff, and its object gets an event. The panic is logged once until a
    /// plan of the key succeeds.
    fn plan_failed(&mut self, item: Item, panic: String) {
        let (by, now) = (self.loops[item.0].name, self.world.now);
        let is_first = self.queue.add_failed(item.clone(), now);
        let level = if is_first { LogLevel::Problem } else { LogLevel::Detail };
        (self.log_sink)(&LogLine { at: now, by, about: Some(item.1.clone()), text: panic.clone(), level });
        if let Some(row) = self.world.get(&item.1).filter(|_| is_first) {
            let event = PlannedEvent {
                about: row.key.clone(),
                uid: row.uid.clone(),
                field_path: String::new(),
                kind: EventType::Warning,
                reason: INTERNAL_ERROR.into(),
                message: panic,
                until: None,
            };
            self.recorder.extend(&EventReporter { by, profile: None }, vec![event], now);
        }
    }

    fn record_events(&mut self, plans: &mut TickPlans) {
        let _span = debug_span!("record_events").entered();
        let revision = self.world.revision + self.world.staged_count() as u64;
        let now = self.world.now;
        let last = &mut plans.last;
        let user = Arc::new(User::component("event-recorder"));
        let (world, random) = (&mut *self.world, &mut *self.random);
        let mut txn = Overlay { world, revision, last, user: &user, inputs: None, random };
        self.recorder.flush(&mut txn, now);
        if retention::is_crowded(self.world) {
            self.recorder.prune(self.world);
        }
        self.world.accept_staged();
    }

    /// Whether a staged write ends processes or removes an object, so that the disk gets space.
    fn frees_space(&self) -> bool {
        self.world.staged().iter().any(|key| {
            let before = self.world.row_before_stage(key);
            match self.world.get(key) {
                Some(after) => freed_space::frees_space(before.map(|before| before.body()).as_deref(), &after.body()),
                None => before.is_some(),
            }
        })
    }

    /// Writes the last state of every staged row, in order of their first change.
    fn commit(&mut self, mut txn: Txn<'_>, plans: &mut TickPlans) -> Result<usize, TickError> {
        let _span = debug_span!("commit").entered();
        let mut written: Vec<(Key, Str, u64)> = Vec::new();
        let (begin, now) = (self.world.revision, self.world.now);
        let mut revision = begin;
        let (again, mut undone) = (self.world.staged_again(), HashSet::new());
        if txn.is_short_of_space() && self.frees_space() {
            txn.allow_reserve();
        }
        for key in self.world.staged() {
            let actor = plans.writers.get(&key).copied().unwrap_or(RECONCILE);
            let before = self.world.row_before_stage(&key);
            let after = self.world.get(&key);
            // An object that was deleted and created again within this tick (with another uid) has two rows in the log.
            if let Some(before) = before.filter(|before| after.is_none_or(|after| after.uid != before.uid)) {
                let last = plans.last.get(&key).map_or_else(|| before.body(), |last| Cow::Borrowed(&**last));
                revision = txn.remove(&key, |revision| last.text_at(revision), actor, now)?;
            }
            // An object that was created and deleted within this tick is not written.
            let Some(after) = after else { continue };
            // A change that was undone within this tick is not written.
            let unchanged =
                |before: &&Arc<Row>| again.contains(&key) && metadata::is_unchanged(&before.body(), &after.body());
            if let Some(before) = before.filter(unchanged) {
                undone.insert(key.clone());
                written.push((key, before.body().0.to_string().into(), before.revision));
                continue;
            }
            let mut text = Str::from("");
            let body = |revision: u64| {
                text = after.text_at(revision);
                text.clone()
            };
            revision = txn.put(&key, &after.uid, body, actor, now)?;
            written.push((key, text, revision));
        }
        for attempt in &plans.attempts {
            txn.record_attempt(attempt)?;
        }
        if revision > begin || !plans.attempts.is_empty() {
            txn.commit_unsynced().map_err(|error| match error {
                CommitError::Refused(error) => TickError::Store(error),
                unknown => TickError::Unknown(unknown),
            })?;
        }
        for line in std::mem::take(&mut plans.activity).lines(self.world, &undone, self.warnings) {
            (self.log_sink)(&line);
        }
        self.world.keep_staged(written);
        self.world.revision = revision;
        Ok((revision - begin) as usize)
    }
}

/// Number of answers that the writes so far lack.
fn missing(inputs: &Option<WriteInputs>) -> usize {
    inputs.as_ref().map_or(0, WriteInputs::missing_count)
}

/// Whether an effect restarts a real process. Keys that become due after it wait for the next tick, so that the process starts soon. This
/// does not hold for first starts: there are many at once, and fewer commits finish them earlier.
pub fn restarts(effect: &Effect) -> bool {
    matches!(effect, Effect::Start(start) if start.attempt > 0 && start.script.is_none())
}
