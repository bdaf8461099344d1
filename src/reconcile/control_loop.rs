//! The loop around the ticks: one thread that waits for a hint, a report, a signal or a due moment, and then ticks.

mod startup;

use super::control_plane::{ControlPlane, TickInput};
use super::disk_reserve::DiskReserve;
use super::leader::{Leadership, LocalLock};
use super::queue::Item;
use super::retry::{FULL_DISK_RETRY, retry_until_writable};
use super::run_end::{Idle, RunEnd, RunUntil};
pub use super::settings::ControlSettings;
use super::start_code::StartCode;
use super::store_files::{StoreFiles, wal_path};
use super::tick::{self, TickBudget, TickError};
use super::{LogLine, LogSink, RECONCILE, node_lease, plane_notes};
use crate::apiserver::outside::{Answer, QuestionId};
use crate::apiserver::{Api, api};
use crate::kubelet::manifests;
use crate::object::time::Shift;
use crate::object::{Str, Time, format_count};
use crate::runtime::https::trust::LinkCertificates;
use crate::runtime::machine::{Host, Machine};
use crate::runtime::{contain::contain, manifests::ManifestWatch, pressure_stats};
use crate::store::{HintWatch, OpenMode, Retention, StoreError, name_holder};
use crate::world::{Effect, Report, World};
use hashbrown::HashSet;
use jiff::SignedDuration;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};
use tracing::debug_span;

/// Log entries that are passed at once when the log is compacted: that takes about a millisecond.
const MAX_COMPACTED_ENTRIES: usize = 200;

/// Longest time that commits of a busy control plane stay unsynced. A power loss can undo them; the loops would then repeat them.
const MAX_UNSYNCED_TIME: Duration = Duration::from_millis(20);

/// Longest time for which the next tick waits for a container that restarts.
const MAX_RESTART_WAIT: Duration = Duration::from_millis(1);

/// Pause after a panic that belongs to no object, so that a panic in every tick does not use all CPU time.
const AFTER_PANIC: Duration = Duration::from_secs(1);

/// Longest time for which the start waits for other writers, to reserve disk space before any pod runs.
const MAX_RESERVE_WAIT: Duration = Duration::from_secs(1);

/// Wake-ups of the control loop.
pub enum WakeUp {
    /// Another process wrote to the store.
    Store,
    /// The machine reports.
    Report(Report),
    /// The manifests of static pods have changed.
    Manifests(Vec<manifests::ManifestFile>),
    /// The certificates for links to other machines have arrived.
    LinkCertificates(Box<LinkCertificates>),
    /// A webhook has answered a question of a plan.
    Answer(Item, QuestionId, Answer),
    /// The user wants it to end.
    Stop,
    /// The candidate of this process leads now. The loop, which runs the node only, has to end.
    Elected,
}

/// A control plane that leads.
pub struct ControlLoop {
    api: Api,
    settings: ControlSettings,
    leadership: Leadership,
    plane: ControlPlane,
    /// This machine; none with `--no-local-node`.
    machine: Option<Machine>,
    inbox: Receiver<WakeUp>,
    outbox: Sender<WakeUp>,
    _hint: Option<HintWatch>,
    _manifests: Option<ManifestWatch>,
    /// The user wants it to end.
    stopping: bool,
    /// The candidate of this process leads now.
    is_elected: bool,
    /// Whether others may have written since the last tick.
    log_may_have_changed: bool,
    /// The last check of the log found more entries than are kept, so compaction continues.
    compacting: bool,
    /// The files of the store.
    files: StoreFiles,
    /// Since when the write lock was held by others, and the holder that was logged.
    blocked: Option<(Instant, Option<Option<u32>>)>,
    start_code: StartCode,
    reserve: DiskReserve,
}

impl ControlLoop {
    /// Returns a sender for wake-ups, mostly signals.
    pub fn outbox(&self) -> Sender<WakeUp> {
        self.outbox.clone()
    }

    /// Returns the lock of this machine, for a candidate, while another machine leads.
    pub fn candidate_lock(&self) -> Option<LocalLock> {
        (!self.leadership.leads).then(|| self.leadership.local_lock())
    }

    /// Returns the current World.
    pub fn world(&self) -> &World {
        &self.plane.world
    }

    /// Runs until the user stops it, or until it has converged.
    pub fn run(&mut self, until: RunUntil, log_sink: &mut LogSink<'_>) -> anyhow::Result<RunEnd> {
        let adopted = self.machine.as_mut().map(Machine::connect_to_shims);
        if let (RunUntil::Converged(_), Some(adopted)) = (until, adopted) {
            // It ends as soon as nothing is left to do.
            adopted.wait();
        }
        let ending = self.run_unsynced(until, log_sink)?;
        self.api.store_mut().sync()?;
        Ok(ending)
    }

    /// Does the periodic work that is due, then one tick. A panic that belongs to no single object is handled like a commit of unknown
    /// outcome: the World is loaded again.
    fn try_tick(&mut self, log_sink: &mut LogSink<'_>) -> Result<bool, TickError> {
        let ticked = contain(|| {
            self.check_place()?;
            self.do_periodic_work()?;
            self.run_tick(log_sink)
        });
        ticked.unwrap_or_else(|panic| Err(TickError::Panicked(panic)))
    }

    /// Notes the settings of a leader.
    fn note_settings(&mut self) -> anyhow::Result<()> {
        if !self.leadership.leads {
            return Ok(());
        }
        let ControlSettings { scheduler, loops, .. } = &self.settings;
        retry_until_writable(|| plane_notes::note_settings(self.api.store_mut(), scheduler, loops))
    }

    /// Returns the end of the run that the user or a candidate asks for.
    fn requested_end(&self) -> Option<RunEnd> {
        match (self.stopping, self.is_elected) {
            (true, _) => Some(RunEnd::Stopped),
            (false, true) => Some(RunEnd::Elected),
            (false, false) => None,
        }
    }

    fn run_unsynced(&mut self, until: RunUntil, log_sink: &mut LogSink<'_>) -> anyhow::Result<RunEnd> {
        let started = Time::now();
        loop {
            self.apply_reports();
            if let Some(ending) = self.requested_end() {
                return Ok(ending);
            }
            let ticked = self.try_tick(log_sink);
            self.log_may_have_changed |= ticked.is_err();
            let busy = match ticked {
                Ok(busy) => {
                    self.note_unblocked(log_sink);
                    busy
                }
                Err(TickError::Panicked(panic)) => {
                    log_text(log_sink, format!("{panic}; reading all objects again"));
                    std::thread::sleep(AFTER_PANIC);
                    self.reopen()?;
                    true
                }
                Err(TickError::Deposed) => return Ok(RunEnd::Deposed),
                Err(TickError::Store(error)) => self.handle_store_error(&error, log_sink)?,
                Err(TickError::Unknown(error)) => {
                    log_text(log_sink, format!("{error}; reading all objects again"));
                    self.reopen()?;
                    true
                }
            };
            let mut next_proof = None;
            if let RunUntil::Converged(patience) = until {
                // A key that is retried again and again can keep the loop busy forever, so the time limit also applies then.
                let is_late = Time::now().duration_since(started) >= patience;
                if is_late || !busy {
                    match self.check_end(is_late) {
                        ControlFlow::Break(ending) => return Ok(ending),
                        ControlFlow::Continue(proven) => next_proof = proven,
                    }
                }
            }
            if let RunUntil::Closed(patience) = until {
                let is_late = Time::now().duration_since(started) >= patience;
                if is_late || (!busy && !self.plane.anything_runs()) {
                    return Ok(RunEnd::Stopped);
                }
            }
            if !busy && !self.compacting {
                self.settings.metrics.publish(self.api.store().home());
                let deadline = match until {
                    RunUntil::Converged(patience) => Some(next_proof.unwrap_or(Time::MAX).min(started.later(patience))),
                    RunUntil::Closed(patience) => Some(started.later(patience)),
                    RunUntil::Stopped => None,
                };
                if let Some(tell) = self.settings.on_idle {
                    tell(Idle { revision: self.plane.world.revision, next: self.plane.queue.next_due() });
                }
                self.wait(deadline);
            }
        }
    }

    /// One tick and its effects. True when there may be more to do at once.
    fn run_tick(&mut self, log_sink: &mut LogSink<'_>) -> Result<bool, TickError> {
        let mut random = api::random;
        let (now, epoch) = (Time::now(), self.leadership.epoch);
        let log_may_have_changed = std::mem::take(&mut self.log_may_have_changed);
        let started = Instant::now();
        let input = TickInput { now, epoch, budget: TickBudget::default(), random: &mut random, log_may_have_changed };
        let (done, busy) = self.plane.tick(self.api.store_mut(), input, log_sink)?;
        let queue = &self.plane.queue;
        let depths = self.plane.loops.iter().enumerate().map(|(place, each)| (each.name, queue.depth(place)));
        self.settings.metrics.record_tick(started.elapsed(), done.rows, self.plane.world.revision, depths);
        // Restarted containers may run before the commit is durable: a power loss would end them too. Other effects
        // wait for the disk.
        let goes_ahead = |effect: &Effect| tick::restarts(effect) || matches!(effect, Effect::SetNetworkPolicy { .. });
        let (first, then): (Vec<Effect>, Vec<Effect>) = done.effects.into_iter().partition(goes_ahead);
        self.carry_out(first);
        self.api.store_mut().wake_watchers();
        self.make_durable(!busy || !then.is_empty())?;
        self.carry_out(then);
        // The first tick has planned the routes of Services.
        let network = self.plane.world.settings.network;
        self.machine.iter_mut().for_each(|machine| machine.answer_names(network));
        if !busy {
            self.machine.iter_mut().for_each(Machine::drop_stale_network);
        }
        Ok(busy)
    }

    /// Syncs commits to disk: at once, or in parallel with the next ticks when they have stayed unsynced for [`MAX_UNSYNCED_TIME`].
    fn make_durable(&mut self, at_once: bool) -> Result<(), TickError> {
        let store = self.api.store_mut();
        match store.unsynced_since() {
            Some(_) if at_once => store.sync().map_err(TickError::Unknown),
            Some(since) if since.elapsed() >= MAX_UNSYNCED_TIME => store.sync_behind().map_err(TickError::Unknown),
            _ => Ok(()),
        }
    }

    /// Passes effects to the machine, and records in the World's facts that they were ordered.
    fn carry_out(&mut self, mut effects: Vec<Effect>) {
        let Some(machine) = &mut self.machine else { return };
        if effects.is_empty() {
            return;
        }
        let _span = debug_span!("carry_out", effects = effects.len()).entered();
        self.start_code.note_work(Instant::now());
        // Network policies are in force before a pod's first process runs.
        effects.sort_by_key(|effect| !matches!(effect, Effect::SetNetworkPolicy { .. }));
        for effect in &effects {
            let now = self.plane.world.now;
            self.plane.carry_out(machine, now, effect);
        }
        // The kernel wakes the shim on this thread's processor. This thread waits for the next report, so that the shim runs first.
        let restarts = effects.iter().any(tick::restarts);
        if restarts && let Ok(wake) = self.inbox.recv_timeout(MAX_RESTART_WAIT) {
            self.handle_wake(wake, Time::now());
        }
    }

    /// Applies pending reports of the machine to the facts, and makes pods due.
    fn apply_reports(&mut self) {
        let now = Time::now();
        while let Ok(wake) = self.inbox.try_recv() {
            self.handle_wake(wake, now);
        }
    }

    /// Takes in one wake-up.
    fn handle_wake(&mut self, wake: WakeUp, now: Time) {
        match wake {
            WakeUp::Report(report) => self.plane.handle_report(report, now),
            WakeUp::Manifests(files) => self.plane.read_static_manifests(&files, now),
            WakeUp::LinkCertificates(new) => {
                self.machine.iter_mut().for_each(|machine| machine.set_link_certificates((*new).clone()));
            }
            WakeUp::Store => self.log_may_have_changed = true,
            WakeUp::Answer(item, id, answer) => self.plane.handle_answer(&item, id, answer, now),
            WakeUp::Stop => self.stopping = true,
            WakeUp::Elected => self.is_elected = true,
        }
    }

    /// Fails when the state file was removed or replaced, because further writes would be lost; that ends the run. The processes
    /// stay: the user may be restoring a backup, and the next control plane adopts the processes that it finds.
    fn check_place(&self) -> Result<(), StoreError> {
        let path = self.api.store().path();
        let now = StoreFiles::identify(path);
        if now == self.files {
            return Ok(());
        }
        let path = if now.state == self.files.state { wal_path(path) } else { path.to_owned() };
        let pods = match self.running_pods() {
            0 => String::new(),
            pods => format!("; the processes of {} keep running", format_count(pods, "pod")),
        };
        let what = format!("it was removed or replaced while this control plane ran{pods}");
        Err(StoreError::Io { path, what })
    }

    fn keep_reserve(&mut self, patience: Duration, now: Time) {
        if let Some(problem) = self.reserve.keep(self.api.store(), patience) {
            self.plane.log_text(now, &problem);
        }
    }

    /// Does the periodic work that is due: heartbeats, the resync, measurements, the disk reserve, and a step of the log's compaction.
    fn do_periodic_work(&mut self) -> Result<(), StoreError> {
        let now = Time::now();
        let is_heartbeat_due = self.plane.keep_time(now);
        if is_heartbeat_due {
            self.keep_reserve(Duration::ZERO, now);
            self.start_code.release_when_quiet(Instant::now());
            if self.machine.is_some() {
                let wanted = self.settings.eviction.signals();
                self.plane.measured(pressure_stats::measure(self.api.store().home(), wanted), now);
            }
            if self.leadership.leads {
                plane_notes::note_heartbeat(self.api.store_mut(), self.leadership.epoch, now)?;
                self.api.store_mut().trim_log()?;
            }
            if let Some(node) = self.settings.node.as_ref().filter(|_| self.api.store().is_replica()) {
                // A lost renewal does no harm; the next tick finds out whether the store can be written.
                drop(node_lease::renew_lease(&mut self.api, &node.name, now));
            }
        }
        // Compacts in small steps between ticks.
        if is_heartbeat_due || std::mem::take(&mut self.compacting) {
            self.compacting =
                self.api.store_mut().compact(&Retention::usual(now), MAX_COMPACTED_ENTRIES)? == MAX_COMPACTED_ENTRIES;
        }
        Ok(())
    }

    /// Ends a one-shot run that is over. Continues with the moment at which the pods of Jobs will have run for long enough to
    /// count, where they have not yet.
    fn check_end(&self, out_of_time: bool) -> ControlFlow<RunEnd, Option<Time>> {
        let now = Time::now();
        let convergence = (self.settings.convergence)(&self.plane.world);
        let unproven = convergence.proven.filter(|at| *at > now);
        let is_settled = self.plane.is_quiet(now) && (out_of_time || unproven.is_none());
        if is_settled && convergence.unmet.is_empty() {
            return ControlFlow::Break(RunEnd::Converged);
        }
        match out_of_time || (is_settled && convergence.is_final()) {
            true => ControlFlow::Break(RunEnd::Unmet(convergence.unmet)),
            false => ControlFlow::Continue(unproven),
        }
    }

    /// Waits for the next wake-up or due moment.
    fn wait(&mut self, deadline: Option<Time>) {
        let next = deadline.map_or(self.plane.next_due(), |deadline| deadline.min(self.plane.next_due()));
        let pause = next.duration_since(Time::now()).max(SignedDuration::ZERO).unsigned_abs();
        match self.inbox.recv_timeout(pause) {
            Ok(wake) => self.handle_wake(wake, Time::now()),
            // Hints can be lost.
            Err(_) => self.log_may_have_changed = true,
        }
    }

    /// Waits for a store that is busy or full, and logs that once; any other error ends the run.
    fn handle_store_error(&mut self, error: &StoreError, log_sink: &mut LogSink<'_>) -> anyhow::Result<bool> {
        match error {
            StoreError::Expired { .. } | StoreError::Uncertain { .. } => self.reopen().map(|()| true),
            // Another machine wrote first: the next tick begins with that.
            StoreError::Overtaken => Ok(true),
            StoreError::Unreachable { .. } | StoreError::Full { .. } => {
                if self.blocked.is_none() {
                    log_text(log_sink, error.to_string());
                }
                self.blocked.get_or_insert((Instant::now(), None));
                if matches!(error, StoreError::Full { .. }) {
                    std::thread::sleep(FULL_DISK_RETRY);
                }
                Ok(false)
            }
            StoreError::Busy { holder_pid, .. } => {
                self.note_blocked(*holder_pid, log_sink);
                Ok(false)
            }
            _ => Err(error.clone().into()),
        }
    }

    /// Logs which process holds the write lock, once for each holder. The control plane waits for the lock without a timeout.
    fn note_blocked(&mut self, holder: Option<u32>, log_sink: &mut LogSink<'_>) {
        let (since, known) = *self.blocked.get_or_insert((Instant::now(), None));
        if known != Some(holder) {
            let path = self.api.store().path().display().to_string();
            log_text(log_sink, format!("waiting to write to {path}: {} holds its write lock", name_holder(holder)));
        }
        self.blocked = Some((since, Some(holder)));
    }

    /// Logs that the write lock is free again, when it was waited for.
    fn note_unblocked(&mut self, log_sink: &mut LogSink<'_>) {
        if let Some((since, _)) = self.blocked.take() {
            log_text(log_sink, format!("the state can be written again, after {} s", since.elapsed().as_secs().max(1)));
        }
    }

    fn reopen(&mut self) -> anyhow::Result<()> {
        retry_until_writable(|| {
            self.api = Api::open(&self.settings.state, OpenMode::Existing, RECONCILE)?;
            Ok(self.api.store_mut().reopen(Duration::from_secs(10))?)
        })?;
        self.files = StoreFiles::identify(self.api.store().path());
        self.load()?;
        self.machine.as_mut().map(Machine::connect_to_shims);
        Ok(())
    }

    /// Number of pods with processes on this machine.
    pub fn running_pods(&self) -> usize {
        self.plane.world.facts.pods.iter().filter(|(_, pod)| self.machine.is_some() && pod.runs()).count()
    }

    /// Ends every pod of this machine: sends the stop signal, and SIGKILL after the pod's grace period. The pods stay in the store, and
    /// their status says that they were stopped. A second request to stop kills the processes that still run.
    pub fn stop_pods(&mut self, log_sink: &mut LogSink<'_>) -> anyhow::Result<usize> {
        self.stopping = false;
        if self.machine.is_some() {
            let patience = self.plane.close(Time::now()).saturating_add(SignedDuration::from_secs(10));
            self.run(RunUntil::Closed(patience), log_sink)?;
        }
        let Some(local) = &mut self.machine else { return Ok(0) };
        let now = Time::now();
        let mut left: HashSet<Str> = self.plane.world.facts.pods.iter().map(|(uid, _)| uid.clone()).collect();
        let count = left.len();
        for pod_uid in &left {
            local.carry_out(now, &Effect::Remove { pod_uid: pod_uid.clone() });
        }
        let until = now.later(SignedDuration::from_secs(30));
        while !left.is_empty() && Time::now() < until {
            if let Ok(WakeUp::Report(Report::Removed { pod_uid })) = self.inbox.recv_timeout(Duration::from_millis(100))
            {
                left.remove(&pod_uid);
            }
        }
        anyhow::ensure!(left.is_empty(), "{} pods did not end within 30 s", left.len());
        Ok(count)
    }
}

fn log_text(log_sink: &mut LogSink<'_>, text: String) {
    log_sink(&LogLine::own_action(Time::now(), text));
}
