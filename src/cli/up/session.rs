//! One run of `kloop up`: waits for the applied objects, then follows logs and changes until it is interrupted.
//!
//! Knows: the objects of the manifests, their progress, and the events that it waits for.
//! Never: decides what is ready or why something is not (`diagnosis` does). Start reading at [`Session::wait_until_ready`].

use super::planes::OwnPlane;
use super::report::{ReportedObject, UpReport, explain_plainly};
use super::view::ProgressView;
use crate::apiserver::rules::names::key_of;
use crate::cli::address::{self, FoundAddress};
use crate::cli::apply::follow::Following;
use crate::cli::cluster::one_pod::PodContainers;
use crate::cli::cluster::world_follower::WorldFollower;
use crate::cli::logs::lines::LineStyle;
use crate::cli::logs::streams::{LogPlace, LogStreams, PrefixForm};
use crate::cli::{CliResult, CommandContext, Failure, apply, why};
use crate::diagnosis::convergence;
use crate::diagnosis::progress::{self, Stage, WorkloadProgress};
use crate::diagnosis::why::owners;
use crate::object::{Key, Object, Time};
use crate::reconcile::run_end::Unmet;
use crate::runtime::logs::LogOptions;
use crate::show::escape;
use crate::world::World;
use colored::Colorize;
use std::collections::{HashMap, HashSet};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// Longest wait for an event, because hints can be lost.
const MAX_EVENT_WAIT: Duration = Duration::from_millis(500);

/// Time after which logs are followed although something is not ready.
const FOLLOW_LOGS_AFTER: Duration = Duration::from_secs(10);

/// Longest wait for a change of the manifests.
const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The most logs that are followed at once.
const MAX_LOGS: usize = 100;

/// Events that a run waits for.
pub enum UpEvent {
    /// The state has changed.
    Store,
    /// A manifest has changed.
    Manifests,
    /// The user wants it to end.
    Interrupt,
}

/// Result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitEnd {
    /// Everything is ready.
    Ready,
    /// Something is not ready, and its time is over.
    NotReady,
    /// The user wants it to end.
    Interrupted,
}

/// Sources of one run.
pub struct UpSources {
    /// The arguments with which manifests are applied.
    pub apply: apply::Args,
    /// The manifests that are followed; `None` when they are applied once.
    pub following: Option<Following>,
    /// The control plane of this process, if it has one.
    pub plane: Option<OwnPlane>,
    /// The events.
    pub events: Receiver<UpEvent>,
    /// Sends them.
    pub sender: Sender<UpEvent>,
}

/// A run of `kloop up`.
pub struct Session<'a> {
    pub context: &'a mut CommandContext,
    sources: UpSources,
    follower: WorldFollower,
    world: World,
    keys: HashSet<Key>,
    progress: Vec<WorkloadProgress>,
    unmet: Vec<Unmet>,
    pub view: ProgressView,
    /// Failures that were explained, by workload.
    explained: HashMap<Key, String>,
    /// Time from the start until each workload was ready.
    ready_after: HashMap<Key, Duration>,
    started: Instant,
    started_at: Time,
    /// Whether everything has been ready at any time.
    pub was_ready: bool,
}

impl<'a> Session<'a> {
    /// Starts to observe the objects that were applied.
    pub fn start(
        context: &'a mut CommandContext,
        sources: UpSources,
        applied: &[Object],
        view: ProgressView,
        started: Instant,
        started_at: Time,
    ) -> CliResult<Session<'a>> {
        let sender = sources.sender.clone();
        let follower = WorldFollower::start(context, move || drop(sender.send(UpEvent::Store)))?;
        let world = follower.load(context)?;
        let mut session = Session {
            context,
            sources,
            follower,
            world,
            keys: HashSet::new(),
            progress: Vec::new(),
            unmet: Vec::new(),
            view,
            explained: HashMap::new(),
            ready_after: HashMap::new(),
            started,
            started_at,
            was_ready: false,
        };
        session.set_keys(applied);
        Ok(session)
    }

    fn set_keys(&mut self, applied: &[Object]) {
        let key =
            |object: &Object| Some(key_of(self.context.kinds().by_kind(object.api_version(), object.kind())?, object));
        self.keys = applied.iter().filter_map(key).collect();
    }

    /// Reads the changes of the state, and measures progress.
    fn refresh(&mut self) -> CliResult {
        self.follower.catch_up(self.context, &mut self.world)?;
        if let Some(failure) = self.follower.take_failure() {
            self.context.print_notice(&failure);
        }
        self.progress = progress::measure(&self.world, &self.keys);
        self.unmet = progress::unmet(&self.world, &self.keys);
        self.was_ready |= self.is_ready();
        for progress in &self.progress {
            if progress.stage.is_settled() {
                self.ready_after.entry(progress.key.clone()).or_insert_with(|| self.started.elapsed());
                self.explained.remove(&progress.key);
            } else {
                self.ready_after.remove(&progress.key);
            }
        }
        Ok(())
    }

    /// Whether everything is ready, and pods of Jobs have run for long enough to count.
    fn is_ready(&self) -> bool {
        let is_proven = || convergence::check(&self.world).proven.is_none_or(|at| at <= Time::now());
        let has_jobs = self.progress.iter().any(|progress| progress.key.resource.0 == "jobs.batch");
        self.unmet.is_empty()
            && self.progress.iter().all(|progress| progress.stage.is_settled())
            && (!has_jobs || is_proven())
    }

    /// Waits until everything is ready, with progress on the screen, but no longer than the timeout. Without a timeout it waits for a fixed
    /// time, after which logs are more useful than progress.
    pub fn wait_until_ready(&mut self, timeout: Option<Duration>, is_quiet: bool) -> CliResult<WaitEnd> {
        loop {
            self.refresh()?;
            let is_ready = self.is_ready();
            if !is_quiet {
                let namespace = self.context.namespace().to_owned();
                self.view.show(self.context, &self.progress, self.started.elapsed(), &namespace)?;
                self.explain_failures()?;
            }
            if is_ready {
                return Ok(WaitEnd::Ready);
            }
            let elapsed = self.started.elapsed();
            let is_over = match timeout {
                Some(timeout) => elapsed >= timeout || self.has_failed_finally(),
                None => elapsed >= FOLLOW_LOGS_AFTER && !self.progress.iter().any(|one| one.stage == Stage::Building),
            };
            if is_over {
                return Ok(WaitEnd::NotReady);
            }
            let left = timeout.map_or(MAX_EVENT_WAIT, |timeout| timeout.saturating_sub(elapsed));
            if self.handle_event(left.min(MAX_EVENT_WAIT))? {
                return Ok(WaitEnd::Interrupted);
            }
        }
    }

    /// Whether every unready object has failed permanently.
    fn has_failed_finally(&self) -> bool {
        !self.unmet.is_empty() && self.unmet.iter().all(|unmet| unmet.is_final)
    }

    /// Waits for events and handles them; true when the user wants it to end.
    fn handle_event(&mut self, longest: Duration) -> CliResult<bool> {
        if self.sources.plane.as_ref().is_some_and(OwnPlane::has_ended)
            && let Some(plane) = self.sources.plane.take()
        {
            plane.join()?;
            return Err(Failure::plain("another control plane took over, and this one has ended"));
        }
        let mut next = match self.sources.events.recv_timeout(longest) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => return Ok(false),
            Err(RecvTimeoutError::Disconnected) => return Ok(true),
        };
        while let Some(event) = next {
            match event {
                UpEvent::Interrupt => return Ok(true),
                UpEvent::Manifests => self.apply_again()?,
                UpEvent::Store => {}
            }
            next = self.sources.events.try_recv().ok();
        }
        Ok(false)
    }

    /// Starts to watch the manifests for their next change. Call it before they are applied.
    pub fn watch_manifests(sources: &mut UpSources) {
        let Some(following) = &mut sources.following else { return };
        let (watch, sender) = (following.watch(&sources.apply), sources.sender.clone());
        std::thread::spawn(move || {
            watch.wait(NEVER);
            // The receiver is gone when the command ends.
            drop(sender.send(UpEvent::Manifests));
        });
    }

    fn apply_again(&mut self) -> CliResult {
        self.view.clear(self.context)?;
        self.context.reopen()?;
        Self::watch_manifests(&mut self.sources);
        let Some(following) = &mut self.sources.following else { return Ok(()) };
        following.apply(&self.sources.apply, self.context)?;
        let applied = following.applied().to_vec();
        if !applied.is_empty() {
            self.set_keys(&applied);
        }
        Ok(())
    }

    /// Prints why workloads fail, once for each reason.
    fn explain_failures(&mut self) -> CliResult {
        let failing = self.progress.iter().filter(|progress| progress.stage == Stage::Failing);
        let new_reasons: Vec<(Key, String)> = failing
            .map(|progress| (progress.key.clone(), progress.reason.clone()))
            .filter(|(key, reason)| self.explained.get(key) != Some(reason))
            .collect();
        for (key, reason) in new_reasons {
            let Some(chain) = why::explain_object(self.context.api()?.store(), &key)? else { continue };
            if let Some(lines) = why::root_cause_lines(&chain, Time::now()) {
                let name = format!("{} is failing:\n", escape::text(&chain.about));
                self.view.print_above(self.context, &format!("{}{lines}", name.red()))?;
                self.explained.insert(key, reason);
            }
        }
        Ok(())
    }

    /// Follows the logs of all pods, and prints how workloads change, until the user wants it to end.
    pub fn follow(&mut self) -> CliResult {
        self.view = ProgressView::for_changes("kloop | ");
        let namespace = self.context.namespace().to_owned();
        self.view.mark_shown(&self.progress, &namespace);
        let place = LogPlace::from_context(self.context)?;
        let options = LogOptions { follow: true, since: Some(self.started_at), ..LogOptions::default() };
        let mut streams = LogStreams::new(place, options, LineStyle::default(), PrefixForm::Column, MAX_LOGS);
        let mut seen: HashMap<Key, u64> = HashMap::new();
        loop {
            self.refresh()?;
            self.follow_new_pods(&mut streams, &mut seen);
            for failure in streams.take_ended() {
                match failure {
                    Failure::BrokenPipe => return Err(failure),
                    failure => self.context.print_notice(&failure.to_string()),
                }
            }
            self.view.show(self.context, &self.progress, self.started.elapsed(), &namespace)?;
            self.explain_failures()?;
            if self.handle_event(MAX_EVENT_WAIT)? {
                return Ok(());
            }
        }
    }

    /// Follows the logs of pods that have changed since the last call.
    fn follow_new_pods(&self, streams: &mut LogStreams, seen: &mut HashMap<Key, u64>) {
        for row in self.keys.iter().filter_map(|key| self.world.get(key)) {
            for pod in progress::pods(&self.world, row) {
                if seen.get(&pod.key) == Some(&pod.revision) {
                    continue;
                }
                let all = |pod: &Object| {
                    let containers = PodContainers::from_pod(pod);
                    [containers.init, containers.main].concat()
                };
                if streams.follow_pods([&pod.object()], all) == 0 {
                    seen.insert(pod.key.clone(), pod.revision);
                }
            }
        }
        seen.retain(|key, _| self.world.get(key).is_some());
    }

    /// Returns the addresses of the Services and Ingresses among the objects, as `service/web http://...`.
    pub fn addresses(&self) -> Vec<(String, FoundAddress)> {
        let mut rows: Vec<_> = self.keys.iter().filter_map(|key| self.world.get(key)).collect();
        rows.sort_by(|one, other| one.key.cmp(&other.key));
        let name = |object: &Object| format!("{}/{}", object.kind().to_lowercase(), object.name());
        let objects = rows.into_iter().map(|row| row.object()).filter(|object| object.kind() != "Pod");
        let found = objects.map(|object| (name(&object), FoundAddress::from_object(&object, None)));
        found.filter(|(_, found)| !found.urls.is_empty()).collect()
    }

    /// Returns the result for programs; `sources` has file and line of each object.
    pub fn report(&mut self, sources: &HashMap<Key, (String, usize)>) -> CliResult<UpReport> {
        let mut objects = Vec::new();
        let mut keys: Vec<Key> = self.keys.iter().cloned().collect();
        keys.sort();
        for key in keys {
            let Some(row) = self.world.get(&key).cloned() else { continue };
            let progress = self.progress.iter().find(|progress| progress.key == key).cloned();
            let missing = self.missing_below(&key);
            let object = row.object();
            let urls = if object.kind() == "Pod" { Vec::new() } else { address::find_urls(&object, None) };
            if progress.is_none() && missing.is_none() && urls.is_empty() {
                continue;
            }
            let chain = match &missing {
                Some(_) => why::explain_object(self.context.api()?.store(), &key)?,
                None => None,
            };
            objects.push(ReportedObject {
                name: format!("{}/{}", object.kind().to_lowercase(), key.name),
                namespace: key.namespace.to_string(),
                ready_after: self.ready_after.get(&key).copied(),
                explanation: chain.as_ref().map(explain_plainly).unwrap_or_default(),
                source: sources.get(&key).cloned(),
                progress,
                missing,
                urls,
            });
        }
        Ok(UpReport { objects, elapsed: self.started.elapsed() })
    }

    /// Returns the missing state of an object or of an object that it owns.
    fn missing_below(&self, key: &Key) -> Option<String> {
        let is_below = |unmet: &&Unmet| {
            unmet.key == *key
                || self
                    .world
                    .get(&unmet.key)
                    .is_some_and(|row| owners(&self.world, row).iter().any(|owner| owner.key == *key))
        };
        let own = self.unmet.iter().find(|unmet| unmet.key == *key);
        own.or_else(|| self.unmet.iter().find(is_below)).map(|unmet| unmet.why.clone())
    }

    /// Returns the time since the start.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Ends the control plane of this process with the processes of its pods, if it has one; shows the pods that are left
    /// meanwhile. A second interrupt kills the processes. Returns the number of pods.
    pub fn stop(&mut self) -> CliResult<Option<usize>> {
        let Some(plane) = self.sources.plane.take() else { return Ok(None) };
        plane.stop();
        let mut shown_count = usize::MAX;
        while !plane.has_ended() {
            if let Ok(UpEvent::Interrupt) = self.sources.events.recv_timeout(Duration::from_millis(50)) {
                self.context.print_notice("killing the processes that are left");
                if !plane.stop() {
                    return Err(Failure::Code(130));
                }
            }
            let left = self.running_pods()?;
            if left.len() != shown_count && !left.is_empty() {
                shown_count = left.len();
                let names = left.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
                let more = left.len().checked_sub(3).filter(|more| *more > 0);
                let more = more.map(|more| format!(" and {more} more")).unwrap_or_default();
                self.context.print_notice(&format!("stopping {names}{more}"));
            }
        }
        plane.join().map(Some)
    }

    /// Returns the names of pods with running containers.
    fn running_pods(&mut self) -> CliResult<Vec<String>> {
        self.refresh()?;
        let is_running = |object: &Object| {
            object.items(&["status", "containerStatuses"]).iter().any(|status| status["state"]["running"].is_object())
        };
        let pods = self.world.list("pods").filter(|row| is_running(&row.body()));
        Ok(pods.map(|row| format!("pod/{}", row.key.name)).collect())
    }
}
