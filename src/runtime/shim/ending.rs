//! The end of an attempt: kills remaining processes, reads the last output, records and reports the exit. Start reading
//! at [`Shim::finish_ended`].

use super::super::folder;
use super::super::limits::group;
use super::super::wire::{ControlGroup, RecordedEnd, RecordedState, now_nanos};
use super::bounds::ExceededBound;
use super::log::ReadMore;
use super::{LiveContainer, Shim, attach, tree};
use crate::world::AttemptEnd;
use rustix::fs::Stat;
use rustix::process::{Signal, WaitStatus};
use std::path::Path;
use std::time::{Duration, Instant};

/// Nanoseconds that the clock of file systems is behind at most: a tick of the slowest kernels.
const TICK: i64 = 10_000_000;
/// Time for which the mounts of an ended container are kept, so that unmounting does not delay restarts.
const MOUNTS_KEPT_FOR: Duration = Duration::from_secs(2);

impl Shim {
    /// An attempt has ended when its main process has and nothing that it started is left, as in a pid namespace.
    pub(super) fn finish_ended(&mut self) {
        while let Some(at) = self.find_ended() {
            let live = self.live.remove(at);
            self.finish(live);
        }
    }

    /// Returns an ended container without leftovers. One whose processes cannot die keeps no other from being reported.
    fn find_ended(&mut self) -> Option<usize> {
        (0..self.live.len()).find(|at| self.live[*at].end.is_some() && !self.has_leftovers(*at))
    }

    /// Kills the remaining processes of a container. Returns whether some still exist.
    fn has_leftovers(&mut self, at: usize) -> bool {
        if self.kill_leftovers(at) == 0 {
            return false;
        }
        self.reap_children();
        self.kill_leftovers(at) > 0
    }

    fn finish(&mut self, mut live: LiveContainer) {
        for mut stream in std::mem::take(&mut live.streams) {
            // Bounded, because a process outside the pod may hold the pipe and keep writing.
            for _ in 0..64 {
                if stream.pump(&mut self.log_buffers, &mut live.log) != ReadMore::More {
                    break;
                }
                attach::send_output_to_all(&mut self.attached, &live, stream.tag(), self.log_buffers.last_output());
            }
            stream.finish(&mut live.log);
        }
        self.detach_all(&live);
        let Some(mut end) = live.end.take() else { return };
        end.message = live.message(&end);
        match live.over.take().filter(|_| end.signal == Some(Signal::KILL.as_raw())) {
            Some(ExceededBound::Processes(why)) if end.message.is_empty() => end.message = why,
            Some(ExceededBound::Memory) => end.reason = Some(AttemptEnd::OOM_KILLED.into()),
            _ if group::oom_kills(&live.launch.groups) > live.oom_kills => {
                end.reason = Some(AttemptEnd::OOM_KILLED.into());
            }
            _ => {}
        }
        if live.launch.again.follows(end.code) {
            self.awaited.insert(live.name.clone());
        }
        // The standby process prepares itself while this shim and the control plane handle the exit.
        let has_standby = self.prepare_standby(&mut live, end.code);
        if let Some(known) = self.record.containers.get_mut(&live.name) {
            known.state = RecordedState::Ended(end);
        }
        self.idle_since = Instant::now();
        self.publish(&live.name);
        self.retired_mounts.extend(live.mounts.take().map(|mounts| (mounts, Instant::now() + MOUNTS_KEPT_FOR)));
        if !has_standby {
            self.leave_groups(&live.launch.groups);
        }
    }

    /// Removes control groups: a container's own with the container, those of the pod with its last container.
    pub(super) fn leave_groups(&self, groups: &[ControlGroup]) {
        let is_shared = |group: &ControlGroup| {
            self.live.iter().any(|other| other.launch.groups.iter().any(|one| one.folder == group.folder))
        };
        let own = groups.iter().rev();
        own.filter(|group| !is_shared(group)).for_each(group::remove);
    }
}

impl LiveContainer {
    pub(super) fn ended(&self, status: WaitStatus) -> RecordedEnd {
        let signal = status.terminating_signal();
        let meant = self.ended_for.map(Signal::as_raw).filter(|_| signal == Some(Signal::KILL.as_raw()));
        let signal = meant.or(signal);
        let code = signal.map_or_else(|| status.exit_status().unwrap_or(137), |signal| 128 + signal);
        RecordedEnd { code, signal, started: Some(self.since), finished: now_nanos(), ..RecordedEnd::default() }
    }

    /// Returns the termination message, or the end of the log when the container failed and its policy asks for that.
    fn message(&self, end: &RecordedEnd) -> String {
        let own = tree::read_capped(&folder::message_path(&self.name, self.launch.attempt), 4096, |_| true);
        let written = if own.is_empty() { self.left_outside() } else { own };
        if written.is_empty() && end.code != 0 && self.launch.message_from_logs { self.log.tail() } else { written }
    }

    /// Reads the termination message of a container without a private view: a file owned by the container's user,
    /// modified while it ran.
    fn left_outside(&self) -> String {
        let path = Path::new(&self.launch.message_path);
        if self.launch.view.is_some() || !path.is_absolute() {
            return String::new();
        }
        let me = self.launch.user.as_ref().and_then(|user| user.user).unwrap_or(rustix::process::geteuid().as_raw());
        let written = |found: &Stat| {
            let (seconds, nanos) = (found.st_mtime, found.st_mtime_nsec as i64);
            seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
        };
        // File systems take timestamps from a clock that advances once per kernel tick, so a file may seem older than it is.
        let is_its = |found: &Stat| found.st_uid == me && written(found) >= self.since - TICK;
        tree::read_capped(path, 4096, is_its)
    }
}
