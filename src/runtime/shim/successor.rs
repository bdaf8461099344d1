//! Successors: processes that wait to become the next attempt of a container that has just ended.
//!
//! To lay out what a container sees costs more than all the rest of its start, and most who crash are started again at once, by the same
//! words. So while the control plane hears of the end and thinks about it, the next attempt is prepared, up to the word that lets it run.
//! When the start that comes is not the expected one, or none comes soon, nothing of it has ever run.

use super::super::process::Identity;
use super::super::wire::Launch;
use super::launch::Prepared;
use super::{Live, Shim};
use crate::world::Again;
use crate::world::volume::{self, Source, Volume};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long one waits. A container that is to wait longer before it starts again has time then.
const PATIENCE: Duration = Duration::from_secs(5);

/// The start that will most likely follow another.
#[derive(PartialEq)]
pub struct Expected {
    /// As it will be asked for, but for what is in its volumes.
    launch: Launch,
    /// What is in them.
    contents: u64,
}

/// A prepared attempt.
pub struct Successor {
    expected: Expected,
    /// None once it was dismissed.
    prepared: Option<Prepared>,
    process: Identity,
    until: Instant,
}

impl Expected {
    /// What follows a launch; none when nothing does, when only the moment of the start can tell what it needs (a terminal, an input, a
    /// volume that is mounted in memory), when preparing it takes long (a group for all of its files), or when it would have to share
    /// the memory of what has just ended.
    pub fn after(launch: &Launch) -> Option<Box<Expected>> {
        let has_group = launch.user.as_ref().is_some_and(|user| user.files.is_some());
        let is_simple = !(launch.tty || launch.stdin || launch.has_memory() || has_group || launch.has_memory_bound());
        (is_simple && launch.again != Again::Never)
            .then(|| Box::new(Expected::of(launch, launch.attempt.saturating_add(1))))
    }

    fn of(launch: &Launch, attempt: u32) -> Expected {
        let hollow = |volume: &Volume| match &volume.source {
            Source::Files(_) => Volume { name: volume.name.clone(), source: Source::Files(Vec::new()) },
            _ => volume.clone(),
        };
        let volumes = launch.volumes.iter().map(hollow).collect();
        let contents = volume::fingerprint(&launch.volumes);
        Expected { launch: Launch { attempt, volumes, ..launch.clone() }, contents }
    }
}

impl Successor {
    /// Its process.
    pub fn pid(&self) -> i32 {
        self.process.pid
    }

    /// Whether it waits to become an attempt of this container.
    fn is_of(&self, container: &str) -> bool {
        self.prepared.is_some() && self.expected.launch.container == container
    }

    /// When it has waited for long enough.
    pub fn until(&self) -> Instant {
        self.until
    }

    /// It will never run; it is known until it has ended.
    fn dismiss(&mut self) {
        self.prepared = None;
        self.process.kill();
        self.until = Instant::now() + PATIENCE;
    }
}

impl Shim {
    /// Prepares the next attempt of a container that has ended by itself, when its policy wants one. Whether there is one now.
    pub(super) fn prepare_successor(&mut self, ended: &mut Live, code: i32) -> bool {
        let is_stopped = self.record.containers.get(&ended.name).is_none_or(|known| known.stopping.is_some());
        let is_likely = !self.is_leaving() && !is_stopped && ended.launch.again.follows(code);
        let Some(expected) = ended.next.take().filter(|_| is_likely) else { return false };
        let gate = self.gate();
        // What fails now will fail again when the start comes, and is told then.
        let prepared = self.prepare(expected.launch.clone(), gate).ok();
        let process = |prepared: &Prepared| prepared.pid().and_then(Identity::of);
        let Some((prepared, process)) = prepared.and_then(|one| process(&one).map(|process| (one, process))) else {
            return false;
        };
        self.successors.push(Successor {
            expected: *expected,
            prepared: Some(prepared),
            process,
            until: Instant::now() + PATIENCE,
        });
        true
    }

    /// The prepared attempt that is just what is asked for. One that is something else ends.
    pub(super) fn take_successor(&mut self, launch: &Launch) -> Option<Prepared> {
        let one = self.successors.iter_mut().find(|one| one.is_of(&launch.container))?;
        if one.expected != Expected::of(launch, launch.attempt) {
            one.dismiss();
        }
        let prepared = one.prepared.take()?;
        let pid = one.pid();
        self.successors.retain(|one| one.pid() != pid);
        Some(prepared)
    }

    /// Ends those that have waited long enough, and all of them when the pod goes.
    pub(super) fn dismiss_successors(&mut self) {
        let (is_leaving, now) = (self.is_leaving(), Instant::now());
        for one in self.successors.iter_mut().filter(|one| is_leaving || one.until <= now) {
            one.dismiss();
        }
    }

    /// The starts to come will be others than those that were expected.
    pub(super) fn expect_nothing(&mut self) {
        self.live.iter_mut().for_each(|live| live.next = None);
        self.successors.iter_mut().for_each(Successor::dismiss);
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
