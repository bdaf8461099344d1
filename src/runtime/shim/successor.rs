//! Successors: processes that wait to become the next attempt of a container.
//!
//! Making a container's view of files costs more than the rest of its start, and most crashed containers restart at once with the same
//! request. So the shim prepares the next attempt of a container that has run for a while, up to executing its program. If the container
//! ends earlier, the shim prepares it while the control plane plans the restart. The standby process is killed, without having executed
//! the program, when a different start is ordered, when the machine's files that it depends on have changed, or when no start comes soon.

use super::super::process::ProcessIdentity;
use super::super::wire::LaunchRequest;
use super::launch::PreparedAttempt;
use super::start_inputs::StartInputs;
use super::{LiveContainer, Shim};
use crate::world::volume::{self, Volume, VolumeContent};
use crate::world::{ProcessNamespace, RestartDecision};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time for which a standby process is kept after the exit of the attempt before it. A longer backoff leaves time for a
/// normal start.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time that a container runs before its standby is prepared: many live shorter, and during bursts starts come first.
const RIPE: Duration = Duration::from_secs(10);

/// The start that will most likely follow another.
#[derive(PartialEq)]
pub struct ExpectedStart {
    /// As it will be asked for, but for what is in its volumes.
    launch: LaunchRequest,
    /// Digest of their content.
    contents: u64,
}

/// A prepared attempt.
pub struct StandbyAttempt {
    expected: Box<ExpectedStart>,
    /// None once it was dismissed.
    prepared: Option<PreparedAttempt>,
    process: ProcessIdentity,
    /// The machine's files that it depends on, and the version of its base mounts.
    seen: (StartInputs, u64),
    /// None while the attempt before it runs.
    until: Option<Instant>,
}

impl ExpectedStart {
    /// Returns the expected next start; `None` when there is none, when only the moment of the start can tell what it needs (a terminal, an input, a
    /// variable from a file, a volume that is mounted in memory), when preparing it takes long (a group for all of its files), or when it would have to share
    /// the memory of what has just ended.
    pub fn following(launch: &LaunchRequest) -> Option<Box<ExpectedStart>> {
        let has_group = launch.user.as_ref().is_some_and(|user| user.files.is_some());
        let reads = !launch.file_keys.is_empty();
        let is_simple =
            !(launch.tty || launch.stdin || launch.has_memory() || has_group || launch.has_memory_bound() || reads);
        (is_simple && launch.again != RestartDecision::Never)
            .then(|| Box::new(ExpectedStart::for_attempt(launch, launch.attempt.saturating_add(1))))
    }

    fn for_attempt(launch: &LaunchRequest, attempt: u32) -> ExpectedStart {
        let hollow = |volume: &Volume| match &volume.source {
            VolumeContent::Files(_) => Volume { name: volume.name.clone(), source: VolumeContent::Files(Vec::new()) },
            _ => volume.clone(),
        };
        let volumes = launch.volumes.iter().map(hollow).collect();
        let contents = volume::fingerprint(&launch.volumes);
        ExpectedStart { launch: LaunchRequest { attempt, volumes, ..launch.clone() }, contents }
    }

    /// When it is prepared although the attempt before it, which starts now, still runs; none where others would see it wait.
    pub fn ripe(&self) -> Option<Instant> {
        (self.launch.processes != ProcessNamespace::Shared).then(|| Instant::now() + RIPE)
    }
}

impl StandbyAttempt {
    /// Its process.
    pub fn pid(&self) -> i32 {
        self.process.pid
    }

    /// Whether it waits to become an attempt of this container.
    fn is_of(&self, container: &str) -> bool {
        self.prepared.is_some() && self.expected.launch.container == container
    }

    /// When it has waited for long enough; none while the attempt before it runs.
    pub fn until(&self) -> Option<Instant> {
        self.until
    }

    /// It will never run; it is known until it has ended.
    fn dismiss(&mut self) {
        self.prepared = None;
        self.process.kill();
        self.until = Some(Instant::now() + PATIENCE);
    }
}

impl Shim {
    /// Prepares the next attempts of containers that have run for a while.
    pub(super) fn prepare_ripe(&mut self) {
        let now = Instant::now();
        let is_ripe = |live: &&mut LiveContainer| live.ripe.is_some_and(|at| at <= now);
        while let Some(live) = self.live.iter_mut().find(is_ripe) {
            live.ripe = None;
            if let Some(expected) = live.next.take() {
                self.add_successor(expected, None);
            }
        }
    }

    /// Sees to the next attempt of a container that has ended, when its policy wants one. Whether a process for one is there now.
    pub(super) fn prepare_successor(&mut self, ended: &mut LiveContainer, code: i32) -> bool {
        let is_likely = !self.is_leaving() && ended.launch.again.follows(code);
        let until = Instant::now() + PATIENCE;
        if let Some(one) = self.successors.iter_mut().find(|one| one.is_of(&ended.name)) {
            if is_likely {
                one.until = Some(until)
            } else {
                one.dismiss()
            }
            return true;
        }
        ended.next.take().filter(|_| is_likely).is_some_and(|expected| self.add_successor(expected, Some(until)))
    }

    fn add_successor(&mut self, expected: Box<ExpectedStart>, until: Option<Instant>) -> bool {
        let seen = self.current_inputs(&expected);
        // An error now will recur at the real start, and is reported then.
        let Ok(gate) = self.gate() else { return false };
        let prepared = self.prepare(expected.launch.clone(), gate).ok();
        let process = |prepared: &PreparedAttempt| prepared.pid().and_then(ProcessIdentity::from_pid);
        let Some((prepared, process)) = prepared.and_then(|one| process(&one).map(|process| (one, process))) else {
            return false;
        };
        self.successors.push(StandbyAttempt { expected, prepared: Some(prepared), process, seen, until });
        true
    }

    /// Records the inputs of a start as they are now.
    fn current_inputs(&mut self, expected: &ExpectedStart) -> (StartInputs, u64) {
        (StartInputs::record(&self.pod, &expected.launch), self.base_mounts.number())
    }

    /// The prepared attempt that is just what is asked for. One that is something else ends.
    pub(super) fn take_successor(&mut self, launch: &LaunchRequest) -> Option<PreparedAttempt> {
        let at = self.successors.iter().position(|one| one.is_of(&launch.container))?;
        let mut one = self.successors.swap_remove(at);
        if *one.expected == ExpectedStart::for_attempt(launch, launch.attempt)
            && one.seen == self.current_inputs(&one.expected)
        {
            return one.prepared;
        }
        one.dismiss();
        self.successors.push(one);
        None
    }

    /// Ends those that have waited long enough, and all of them when the pod goes.
    pub(super) fn dismiss_successors(&mut self) {
        let (is_leaving, now) = (self.is_leaving(), Instant::now());
        let is_late = |one: &&mut StandbyAttempt| is_leaving || one.until.is_some_and(|until| until <= now);
        self.successors.iter_mut().filter(is_late).for_each(StandbyAttempt::dismiss);
    }

    /// The starts to come will be others than those that were expected.
    pub(super) fn expect_nothing(&mut self) {
        self.live.iter_mut().for_each(|live| (live.next, live.ripe) = (None, None));
        self.successors.iter_mut().for_each(StandbyAttempt::dismiss);
    }

    /// The next start of a container will be another than was expected, or there is none.
    pub(super) fn expect_nothing_of(&mut self, container: &str) {
        let theirs = self.live.iter_mut().filter(|live| live.name == container);
        theirs.for_each(|live| (live.next, live.ripe) = (None, None));
        self.successors.iter_mut().filter(|one| one.is_of(container)).for_each(StandbyAttempt::dismiss);
    }

    fn is_leaving(&self) -> bool {
        self.removing || self.told_to_leave.load(Ordering::Relaxed)
    }

    /// A process has ended that may have been one.
    pub(super) fn forget_successor(&mut self, pid: i32) {
        let Some(at) = self.successors.iter().position(|one| one.pid() == pid) else { return };
        let gone = self.successors.remove(at);
        self.leave_groups(&gone.expected.launch.groups);
    }
}
