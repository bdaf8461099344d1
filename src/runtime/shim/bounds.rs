//! Limits that no control group enforces: the shim measures usage, and kills a container that exceeds its limit.
//!
//! Memory is that of all processes of a container, without pages of files. It is first estimated in the cheapest way, which is never too
//! low, and measured exactly only when the estimate exceeds the limit. A container over its limit is killed and counts as OOMKilled. In a
//! pod with too many processes the container with the most is killed: killing only the newest process would not stop a fork bomb.
//! A pod without such limits is never measured.

use super::super::limits::processes;
use super::super::process::ProcessIdentity;
use super::super::usage;
use super::{LiveContainer, Shim, tree};
use std::time::{Duration, Instant};

/// Pause between measurements of memory while less than half of the limit is used.
const CALM: Duration = Duration::from_secs(1);
/// Pause between measurements above half of the limit, and before the first measurement.
const CLOSE: Duration = Duration::from_millis(100);
/// Pause between counts of processes while at most a quarter of the limit exists.
const FEW: Duration = Duration::from_secs(10);

/// The exceeded limit.
pub enum ExceededBound {
    Memory,
    /// In words.
    Processes(String),
}

/// Usage of one container.
struct MeasuredContainer {
    at: usize,
    processes: Vec<ProcessIdentity>,
    /// No less than it has in memory.
    memory: u64,
}

impl Shim {
    /// Time of the first measurement; `None` while no container has to be measured.
    pub(super) fn first_look(&self) -> Option<Instant> {
        self.live.iter().any(is_watched).then(|| Instant::now() + CLOSE)
    }

    pub(super) fn check_bounds(&mut self) {
        if self.next_look.is_none_or(|at| at > Instant::now()) {
            return;
        }
        let running = self.live.iter().enumerate().filter(|(_, live)| live.end.is_none() && live.over.is_none());
        let found: Vec<MeasuredContainer> = running.map(|(at, live)| self.find(at, live)).collect();
        let over = self.over_memory(&found).or_else(|| self.over_processes(&found));
        let pauses = found.iter().filter_map(|one| self.pause(one, &found));
        self.next_look = pauses.min().map(|pause| Instant::now() + pause);
        if let Some((at, over)) = over {
            let live = &mut self.live[at];
            live.over = Some(over);
            tree::kill_from(live.process);
        }
    }

    fn find(&self, at: usize, live: &LiveContainer) -> MeasuredContainer {
        let processes = self.processes(live);
        let watched = live.launch.watched;
        let is_bounded = watched.memory.or(watched.pod_memory).is_some();
        let memory = |one: &ProcessIdentity| if is_bounded { usage::resident(one.pid).0 } else { 0 };
        MeasuredContainer { at, memory: processes.iter().map(memory).sum(), processes }
    }

    fn over_memory(&self, found: &[MeasuredContainer]) -> Option<(usize, ExceededBound)> {
        let in_full =
            |one: &MeasuredContainer| one.processes.iter().map(|one| usage::kept_memory(one.pid)).sum::<u64>();
        let own = |one: &&MeasuredContainer| {
            let most = self.live[one.at].launch.watched.memory.map_or(u64::MAX, i64::unsigned_abs);
            one.memory > most && in_full(one) > most
        };
        let of_pod = || {
            let most = found.iter().find_map(|one| self.live[one.at].launch.watched.pod_memory)?.unsigned_abs();
            let is_over =
                found.iter().map(|one| one.memory).sum::<u64>() > most && found.iter().map(in_full).sum::<u64>() > most;
            found.iter().filter(|_| is_over).max_by_key(|one| one.memory)
        };
        found.iter().find(own).or_else(of_pod).map(|one| (one.at, ExceededBound::Memory))
    }

    fn over_processes(&self, found: &[MeasuredContainer]) -> Option<(usize, ExceededBound)> {
        let most = found.iter().find_map(|one| processes_of_pod(&self.live[one.at]))?;
        let all: usize = found.iter().map(|one| one.processes.len()).sum();
        let largest = found.iter().max_by_key(|one| one.processes.len())?;
        let why = format!("The pod had {all} processes, more than the {most} that it may have");
        (all as u64 > most).then_some((largest.at, ExceededBound::Processes(why)))
    }

    /// Time until a container has to be measured again.
    fn pause(&self, one: &MeasuredContainer, all: &[MeasuredContainer]) -> Option<Duration> {
        let live = &self.live[one.at];
        let watched = live.launch.watched;
        let near = |taken: u64, most: i64| if taken > most.unsigned_abs() / 2 { CLOSE } else { CALM };
        let processes = all.iter().map(|one| one.processes.len()).sum::<usize>() as u64;
        let of_processes = processes_of_pod(live).map(|most| if processes > most / 4 { CALM } else { FEW });
        let own = watched.memory.map(|most| near(one.memory, most));
        let of_pod = watched.pod_memory.map(|most| near(all.iter().map(|one| one.memory).sum(), most));
        [own, of_pod, of_processes].into_iter().flatten().min()
    }
}

fn is_watched(live: &LiveContainer) -> bool {
    let watched = live.launch.watched;
    live.end.is_none() && (watched.memory.is_some() || watched.pod_memory.is_some() || processes_of_pod(live).is_some())
}

/// The bound on processes, where no namespace keeps it.
fn processes_of_pod(live: &LiveContainer) -> Option<u64> {
    let is_kept = live.launch.view.is_some() && processes::are_bounded();
    live.launch.watched.pids.filter(|_| !is_kept).map(i64::unsigned_abs)
}
