//! The descendants of the pod's processes, and how they are ended.

use super::super::limits::group;
use super::super::process::{self, ProcessIdentity, ProcessStat};
use super::super::{file_tree, folder, reap_dead_shim};
use super::pause::PauseProcess;
use super::{LiveContainer, Shim};
use crate::world::ProcessNamespace;
use rustix::fs::{CWD, fstat};
use std::path::Path;
use std::time::Duration;

/// Kills a process and everything below it.
pub fn kill_from(top: ProcessIdentity) {
    let below = process::descendants(top.pid);
    top.kill();
    kill(&below);
}

/// Kills everything below this process. A child that is forked meanwhile is killed in the next pass.
pub fn kill_all() {
    kill(&process::descendants(std::process::id() as i32));
}

/// Maximum number of searches for processes that a command has left.
const SWEEPS: usize = 64;

/// Kills the remaining processes of an ended command: descendants of the shim that began after the command and have its mark or its
/// session.
/// A process that has removed the mark and left the session ends with its container.
pub fn kill_marked(command: ProcessIdentity, mark: &str) {
    let mut killed: Vec<ProcessIdentity> = Vec::new();
    for _ in 0..SWEEPS {
        let mut found = process::descendants(std::process::id() as i32);
        found.retain(|stat| stat.identity.start >= command.start && !stat.zombie && !killed.contains(&stat.identity));
        let mut is_unclear = false;
        found.retain(|stat| {
            let is_its = process::has_variable(stat.identity.pid, folder::EXEC, mark);
            is_unclear |= is_its.is_none();
            stat.session == command.pid || is_its == Some(true)
        });
        // A killed process can no longer fork, so this ends once a search finds none.
        if found.is_empty() && !is_unclear {
            return;
        }
        if found.is_empty() {
            // The kernel is starting a program in a process, whose mark can be read right after.
            std::thread::sleep(Duration::from_millis(1));
        }
        kill(&found);
        killed.extend(found.iter().map(|stat| stat.identity));
    }
}

fn kill(found: &[ProcessStat]) {
    for stat in found.iter().filter(|stat| !stat.zombie) {
        stat.identity.kill();
    }
}

impl Shim {
    /// Kills the remaining processes of an ended attempt, and returns how many of them still exist.
    ///
    /// When the main process of a container ends, its children become children of the shim. A child of the shim that is neither a main
    /// process nor a command in a container is such a process, of this container or another one.
    pub(super) fn kill_leftovers(&self, at: usize) -> usize {
        let mut left = 0;
        for orphan in self.orphans(&self.live[at]) {
            left += 1;
            if !orphan.zombie {
                kill_from(orphan.identity);
            }
        }
        left
    }

    /// Returns the orphans of a container that this process inherited, and the commands that run in it.
    fn orphans(&self, live: &LiveContainer) -> Vec<ProcessStat> {
        let is_known = |pid: i32| {
            let is_main = self.live.iter().any(|other| other.end.is_none() && other.process.pid == pid);
            let is_exec = self.execs.iter().any(|exec| exec.pid() == pid && !exec.runs_in(&live.name));
            is_main || is_exec || self.standbys.iter().any(|standby| standby.pid() == pid)
        };
        let pause = self.pause.as_ref().map(PauseProcess::pid);
        let reaped = pause.filter(|_| live.launch.processes == ProcessNamespace::Shared).map(process::children);
        let alone = self.live.iter().all(|other| other.end.is_some() || other.name == live.name);
        let strangers = process::own_children()
            .into_iter()
            .filter(|pid| !is_known(*pid) && Some(*pid) != pause)
            .chain(reaped.unwrap_or_default())
            .filter_map(process::stat);
        strangers.filter(|stat| alone || self.belongs(stat, live)).collect()
    }

    /// Every process of a running container.
    pub(super) fn processes(&self, live: &LiveContainer) -> Vec<ProcessIdentity> {
        let tops = [live.process].into_iter().chain(self.orphans(live).into_iter().map(|stat| stat.identity));
        let with_all = |top: ProcessIdentity| {
            let below = process::descendants(top.pid).into_iter().map(|stat| stat.identity);
            [top].into_iter().chain(below)
        };
        tops.flat_map(with_all).collect()
    }

    /// Whether a process belongs to a container, by its session, control group or environment. A process that leaves all three ends only
    /// with the pod.
    fn belongs(&self, stat: &ProcessStat, live: &LiveContainer) -> bool {
        let is_exec = self.execs.iter().any(|exec| exec.pid() == stat.identity.pid && exec.runs_in(&live.name));
        let mark = self.pod.join(folder::message_path(&live.name, live.launch.attempt));
        let in_group = group::holds(&live.launch.groups, &live.name, stat.identity.pid);
        is_exec
            || in_group
            || stat.session == live.process.pid
            || reap_dead_shim::mark(stat.identity.pid).as_deref() == Some(&*mark)
    }
}

/// The beginning of a small file that the container wrote, if `is_its` accepts the opened file; empty if it is not a regular file.
pub fn read_capped(path: &Path, limit: usize, is_its: impl Fn(&rustix::fs::Stat) -> bool) -> String {
    let Ok(file) = file_tree::open_file(CWD, path) else { return String::new() };
    if !fstat(&file).is_ok_and(|found| is_its(&found)) {
        return String::new();
    }
    let mut bytes = vec![0; limit];
    let read = rustix::io::read(file, &mut bytes[..]).unwrap_or(0);
    String::from_utf8_lossy(&bytes[..read]).into_owned()
}
