//! Standbys: processes that wait to become the next attempt of a container.
//!
//! Making a container's view of files costs more than the rest of its start, and most crashed containers restart at once with the same
//! request. So the shim prepares the next attempt of a container that has run for a while, up to executing its program. If the container
//! ends earlier, the shim prepares it while the control plane plans the restart. The standby process is killed, without having executed
//! the program, when a different start is ordered, when the machine's files that it depends on have changed, or when no start comes soon.

use super::super::process::ProcessIdentity;
use super::super::spawn::release_program_pages;
use super::super::wire::LaunchRequest;
use super::launch::{ExecTime, PreparedAttempt};
use super::start_inputs::{self, StartInputs};
use super::{LiveContainer, Shim};
use crate::world::volume::{self, Volume, VolumeContent};
use crate::world::{ProcessNamespace, RestartDecision};
use std::time::{Duration, Instant};

/// Time for which a standby process is kept after the exit of the attempt before it. A longer backoff leaves time for a
/// normal start.
const STANDBY_LIFETIME: Duration = Duration::from_secs(5);
/// Time for which the inputs of a standby count as unchanged after they were compared.
pub const COMPARISON_HOLDS: Duration = Duration::from_millis(20);
/// Time that a container runs before its standby is prepared: many containers end earlier, and starts have priority during bursts.
const PREPARE_AFTER: Duration = Duration::from_secs(10);

/// The start that will most likely follow another.
#[derive(PartialEq)]
pub struct ExpectedStart {
    /// The expected request, without the content of volumes.
    launch: LaunchRequest,
    /// Digest of the content of the volumes.
    contents: u64,
}

/// A prepared attempt.
pub struct StandbyAttempt {
    expected: Box<ExpectedStart>,
    /// `None` after it was dismissed.
    prepared: Option<PreparedAttempt>,
    process: ProcessIdentity,
    /// The files of the machine that it depends on, and the version of its base mounts.
    inputs: (StartInputs, u64),
    /// When these were last compared, and found unchanged, after the exit of the attempt before it.
    compared: Option<Instant>,
    /// Time at which it is dismissed; `None` while the previous attempt runs.
    until: Option<Instant>,
}

impl ExpectedStart {
    /// Returns the expected next start. Returns `None` when no restart is expected, when the start needs resources that do not exist
    /// earlier (a terminal, an input, a variable from a file, a volume in memory), when preparing takes long (fsGroup), and when the
    /// container has a memory limit, which it would share with the previous attempt.
    pub fn following(launch: &LaunchRequest) -> Option<Box<ExpectedStart>> {
        let has_group = launch.user.as_ref().is_some_and(|user| user.files.is_some());
        let reads = !launch.file_keys.is_empty();
        let is_simple =
            !(launch.tty || launch.stdin || launch.has_memory() || has_group || launch.has_memory_bound() || reads);
        (is_simple && launch.again != RestartDecision::Never)
            .then(|| Box::new(ExpectedStart::for_attempt(launch, launch.attempt.saturating_add(1))))
    }

    fn for_attempt(launch: &LaunchRequest, attempt: u32) -> ExpectedStart {
        let without_content = |volume: &Volume| match &volume.source {
            VolumeContent::Files(_) => Volume { name: volume.name.clone(), source: VolumeContent::Files(Vec::new()) },
            _ => volume.clone(),
        };
        let volumes = launch.volumes.iter().map(without_content).collect();
        let contents = volume::fingerprint(&launch.volumes, &[]);
        ExpectedStart { launch: LaunchRequest { attempt, volumes, ..launch.clone() }, contents }
    }

    /// Returns the time at which the standby is prepared while the attempt that starts now still runs; `None` in a shared PID namespace,
    /// where other containers would see the waiting process.
    pub fn prepare_at(&self) -> Option<Instant> {
        (self.launch.processes != ProcessNamespace::Shared).then(|| Instant::now() + PREPARE_AFTER)
    }
}

impl StandbyAttempt {
    /// Returns the pid of its process.
    pub fn pid(&self) -> i32 {
        self.process.pid
    }

    /// Whether it waits to become an attempt of this container.
    fn belongs_to(&self, container: &str) -> bool {
        self.prepared.is_some() && self.expected.launch.container == container
    }

    /// Returns the time at which it is dismissed; `None` while the previous attempt runs.
    pub fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Whether its inputs were compared just now.
    fn is_compared(&self) -> bool {
        self.compared.is_some_and(|at| at.elapsed() < COMPARISON_HOLDS)
    }

    /// Kills the process. The attempt stays known until the process has exited.
    fn dismiss(&mut self) {
        self.prepared = None;
        self.process.kill();
        self.until = Some(Instant::now() + STANDBY_LIFETIME);
    }
}

impl Shim {
    /// Prepares the next attempts of containers that have run for a while.
    pub(super) fn prepare_due_standbys(&mut self) {
        let now = Instant::now();
        let is_due = |live: &LiveContainer| live.prepare_at.is_some_and(|at| at <= now);
        if !self.live.iter().any(is_due) {
            return;
        }
        // The code of a start is not needed for a while. The kernel maps each page of it with its neighbours, 14 MB in all. Preparing an
        // attempt maps a part of it again right away, and a restart needs most of that part.
        release_program_pages();
        while let Some(live) = self.live.iter_mut().find(|live| is_due(live)) {
            live.prepare_at = None;
            if let Some(expected) = live.next.take() {
                self.add_standby(expected, None);
            }
        }
    }

    /// Prepares or keeps the standby for a container that has ended, if its restart policy asks for another attempt. Returns whether a
    /// standby process exists.
    pub(super) fn prepare_standby(&mut self, ended: &mut LiveContainer, code: i32) -> bool {
        let is_likely = !self.is_leaving() && ended.launch.again.follows(code);
        let until = Instant::now() + STANDBY_LIFETIME;
        if let Some(standby) = self.standbys.iter_mut().find(|standby| standby.belongs_to(&ended.name)) {
            if is_likely {
                standby.until = Some(until)
            } else {
                standby.dismiss()
            }
            return true;
        }
        ended.next.take().filter(|_| is_likely).is_some_and(|expected| self.add_standby(expected, Some(until)))
    }

    fn add_standby(&mut self, expected: Box<ExpectedStart>, until: Option<Instant>) -> bool {
        if start_inputs::looks_into_volumes(&expected.launch) {
            return false;
        }
        let inputs = self.current_inputs(&expected);
        // An error now will recur at the real start, and is reported then.
        let Ok(channel) = self.open_listener_channel() else { return false };
        let prepared = self.prepare(expected.launch.clone(), channel, ExecTime::AtLaunch).ok();
        let process = |prepared: &PreparedAttempt| prepared.pid().and_then(ProcessIdentity::from_pid);
        let Some((prepared, process)) =
            prepared.and_then(|prepared| process(&prepared).map(|process| (prepared, process)))
        else {
            return false;
        };
        let compared = until.map(|_| Instant::now());
        self.standbys.push(StandbyAttempt { expected, prepared: Some(prepared), process, inputs, compared, until });
        true
    }

    /// Compares the inputs of standbys whose previous attempt has ended, while the control plane plans the restart: looking up the files
    /// takes a tenth of a millisecond, which the start then does not take.
    pub(super) fn compare_standbys(&mut self) {
        let is_next = |standby: &StandbyAttempt| {
            standby.prepared.is_some() && standby.until.is_some() && standby.compared.is_none()
        };
        while let Some(at) = self.standbys.iter().position(is_next) {
            let mut standby = self.standbys.swap_remove(at);
            if standby.inputs == self.current_inputs(&standby.expected) {
                standby.compared = Some(Instant::now());
            } else {
                standby.dismiss();
            }
            self.standbys.push(standby);
        }
    }

    /// Records the inputs of a start as they are now.
    fn current_inputs(&mut self, expected: &ExpectedStart) -> (StartInputs, u64) {
        (StartInputs::record(&self.pod, &expected.launch), self.base_mounts.number())
    }

    /// Returns the standby of the container if it matches the request; otherwise dismisses it.
    pub(super) fn take_standby(&mut self, launch: &LaunchRequest) -> Option<PreparedAttempt> {
        let at = self.standbys.iter().position(|standby| standby.belongs_to(&launch.container))?;
        let mut standby = self.standbys.swap_remove(at);
        if *standby.expected == ExpectedStart::for_attempt(launch, launch.attempt)
            && (standby.is_compared() || standby.inputs == self.current_inputs(&standby.expected))
        {
            return standby.prepared;
        }
        standby.dismiss();
        self.standbys.push(standby);
        None
    }

    /// Dismisses the standbys whose time is over, and all of them when the pod is removed.
    pub(super) fn dismiss_standbys(&mut self) {
        let (is_leaving, now) = (self.is_leaving(), Instant::now());
        let is_overdue = |standby: &&mut StandbyAttempt| is_leaving || standby.until.is_some_and(|until| until <= now);
        self.standbys.iter_mut().filter(is_overdue).for_each(StandbyAttempt::dismiss);
    }

    /// Dismisses all standbys and expected starts, because later starts will differ.
    pub(super) fn dismiss_expected_starts(&mut self) {
        self.live.iter_mut().for_each(|live| (live.next, live.prepare_at) = (None, None));
        self.standbys.iter_mut().for_each(StandbyAttempt::dismiss);
    }

    /// Ends the standby and drops the expected start of a container, because its next start will differ or not happen.
    pub(super) fn dismiss_expected_start(&mut self, container: &str) {
        let of_container = self.live.iter_mut().filter(|live| live.name == container);
        of_container.for_each(|live| (live.next, live.prepare_at) = (None, None));
        self.standbys.iter_mut().filter(|standby| standby.belongs_to(container)).for_each(StandbyAttempt::dismiss);
    }

    fn is_leaving(&self) -> bool {
        self.removing || self.signals.has_sigterm()
    }

    /// Removes the standby whose process has exited, if this was the process of a standby.
    pub(super) fn forget_standby(&mut self, pid: i32) {
        let Some(at) = self.standbys.iter().position(|standby| standby.pid() == pid) else { return };
        let gone = self.standbys.remove(at);
        self.leave_groups(&gone.expected.launch.groups);
    }
}
