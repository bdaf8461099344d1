//! Identity of processes, their descendants, and signals that cannot reach another process.
//!
//! The kernel reuses pids, so a process is identified by pid and start time within one boot, and is only signalled through a pidfd that was
//! opened before its identity was checked. Where a sandbox refuses pidfds, a process can still signal its own children: their pids are not
//! reused before it has reaped them. A descendant becomes its child when all processes between them have ended; other processes are not
//! signalled there.
//!
//! The module reads `/proc` itself: checking a pod needs four fields of `stat` of each of its processes, where the crate `procfs` reads all
//! 52.

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Read;
use std::sync::OnceLock;

/// A process of this boot: pid and start time (field 22 of `/proc/pid/stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// The pid.
    pub pid: i32,
    /// When it started, in clock ticks since boot.
    pub start: u64,
}

/// The fields of `/proc/pid/stat` that the runtime needs.
#[derive(Clone, Copy, Debug)]
pub struct ProcessStat {
    /// Identity of the process.
    pub identity: ProcessIdentity,
    /// Its parent.
    pub parent: i32,
    /// Its session.
    pub session: i32,
    /// Whether it has ended and waits to be reaped.
    pub zombie: bool,
}

/// Returns the id of this boot; pids that were recorded in another boot are void. It is read once, and known in forked processes.
pub fn boot_id() -> String {
    static BOOT: OnceLock<String> = OnceLock::new();
    if let Some(known) = BOOT.get() {
        return known.clone();
    }
    match fs::read_to_string("/proc/sys/kernel/random/boot_id") {
        Ok(text) => BOOT.get_or_init(|| text.trim().to_owned()).clone(),
        Err(_) => String::new(),
    }
}

/// Maximum length of `/proc/pid/stat`: 52 numbers and a name.
const MAX_STAT_LENGTH: usize = 2048;

/// Reads `/proc/pid/stat`.
pub fn stat(pid: i32) -> Option<ProcessStat> {
    let mut line = [0; MAX_STAT_LENGTH];
    let read = File::open(format!("/proc/{pid}/stat")).and_then(|mut file| file.read(&mut line)).ok()?;
    parse_stat(pid, &line[..read])
}

/// Whether a signal or a debugger has stopped a process.
pub fn is_stopped(pid: i32) -> bool {
    matches!(state_letter(pid), Some(b'T' | b't'))
}

/// Whether a signal such as SIGSTOP has stopped a process, so that SIGCONT continues it.
pub fn awaits_continue(pid: i32) -> bool {
    state_letter(pid) == Some(b'T')
}

/// Returns the letter for the state of a process in `/proc/pid/stat`.
fn state_letter(pid: i32) -> Option<u8> {
    let line = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let end = line.iter().rposition(|byte| *byte == b')')?;
    line.get(end + 2).copied()
}

/// Parses `stat`. The program's name is in parentheses and may itself contain blanks and parentheses, so the fields follow the last one.
fn parse_stat(pid: i32, line: &[u8]) -> Option<ProcessStat> {
    let rest = &line[line.iter().rposition(|byte| *byte == b')')? + 1..];
    let mut fields = std::str::from_utf8(rest).ok()?.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    let start = fields.nth(15)?.parse().ok()?;
    Some(ProcessStat { identity: ProcessIdentity { pid, start }, parent, session, zombie: matches!(state, "Z" | "X") })
}

impl ProcessIdentity {
    /// Returns the process that has this pid now.
    pub fn from_pid(pid: i32) -> Option<ProcessIdentity> {
        stat(pid).map(|stat| stat.identity)
    }

    /// Whether it still runs.
    pub fn lives(self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.identity == self && !stat.zombie)
    }

    /// Sends a signal to exactly this process. Returns false when it is gone, or when it is not a child and pidfds are not available.
    pub fn signal(self, signal: Signal) -> bool {
        let Some(pid) = Pid::from_raw(self.pid) else { return false };
        let held = pidfd_open(pid, PidfdFlags::empty());
        let is_it = || ProcessIdentity::from_pid(self.pid) == Some(self);
        match held.and_then(|fd| if is_it() { pidfd_send_signal(fd, signal) } else { Err(Errno::SRCH) }) {
            Err(error) if is_refusal(error) && self.is_child() => kill_process(pid, signal).is_ok(),
            sent => sent.is_ok(),
        }
    }

    /// Whether it is a child of this process that has not been reaped.
    fn is_child(self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.identity == self && stat.parent == getpid().as_raw_nonzero().get())
    }

    /// Sends SIGKILL to exactly this process.
    pub fn kill(self) -> bool {
        self.signal(Signal::KILL)
    }
}

/// Whether an error means that a sandbox does not implement or permit a system call.
fn is_refusal(error: Errno) -> bool {
    matches!(error, Errno::NOSYS | Errno::PERM)
}

/// Whether pidfds are available, so that a signal reaches exactly the intended process, whichever its parent.
pub fn has_pidfds() -> bool {
    // SIGCONT has no effect on a running process.
    let sent = pidfd_open(getpid(), PidfdFlags::empty()).and_then(|own| pidfd_send_signal(own, Signal::CONT));
    sent.is_ok()
}

/// Returns the direct children of this process, which has one thread.
pub fn own_children() -> Vec<i32> {
    match fs::read_to_string("/proc/thread-self/children") {
        Ok(list) => list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect(),
        Err(_) => children(std::process::id() as i32),
    }
}

/// Returns the direct children of a process, of all its threads.
pub fn children(pid: i32) -> Vec<i32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = threads.flatten().map(|thread| fs::read_to_string(thread.path().join("children")));
    let mut found = Vec::new();
    for list in lists {
        match list {
            Ok(list) => found.extend(list.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok())),
            // Kernels without CONFIG_PROC_CHILDREN: compares the parent of every process.
            Err(_) => return all_processes().filter(|stat| stat.parent == pid).map(|stat| stat.identity.pid).collect(),
        }
    }
    found
}

/// Returns all descendants of a process, parents before their children.
pub fn descendants(pid: i32) -> Vec<ProcessStat> {
    let mut found: Vec<ProcessStat> = children(pid).into_iter().filter_map(stat).collect();
    let mut next = 0;
    while let Some(parent) = found.get(next) {
        let below = children(parent.identity.pid).into_iter().filter_map(stat);
        found.extend(below.collect::<Vec<_>>());
        next += 1;
    }
    found
}

/// Returns every visible process.
pub fn all_processes() -> impl Iterator<Item = ProcessStat> {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter_map(stat)
}

/// Returns the value of a variable in a process's initial environment; `None` when it cannot be read.
pub fn environment(pid: i32, name: &str) -> Option<String> {
    find_variable(&fs::read(format!("/proc/{pid}/environ")).ok()?, name)
}

/// Returns whether a variable has a value in a process's initial environment; `None` while the process replaces its program (`execve`),
/// when neither its arguments nor its environment can be read.
pub fn has_variable(pid: i32, name: &str, value: &str) -> Option<bool> {
    let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let mut block = read("environ");
    if block.is_empty() {
        if read("cmdline").is_empty() {
            return None;
        }
        block = read("environ");
    }
    Some(find_variable(&block, name).as_deref() == Some(value))
}

fn find_variable(block: &[u8], name: &str) -> Option<String> {
    let entry = block.split(|byte| *byte == 0).find_map(|entry| {
        let rest = entry.strip_prefix(name.as_bytes())?;
        rest.strip_prefix(b"=")
    })?;
    String::from_utf8(entry.to_vec()).ok()
}

/// Returns a signal by its number, real-time signals included.
pub fn signal_from(number: i32) -> Option<Signal> {
    Signal::from_named_raw(number).or_else(|| {
        // SAFETY: 35 to 64 are real-time signals that the C library leaves to programs, and kloop only sends them.
        (35..=64).contains(&number).then(|| unsafe { Signal::from_raw_unchecked(number) })
    })
}

/// Returns the number of a signal by its name in `lifecycle.stopSignal`, such as `SIGUSR1` or `SIGRTMIN+3`.
pub fn signal_number(name: &str) -> Option<i32> {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM",
        "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF",
        "WINCH", "IO", "PWR", "SYS",
    ];
    let name = name.strip_prefix("SIG").unwrap_or(name);
    let plain = NAMES.iter().position(|known| *known == name).map(|at| at as i32 + 1);
    let offset = |text: &str, sign: i32| text.parse::<i32>().ok().map(|by| sign * by);
    plain.or_else(|| match name {
        "RTMIN" => Some(34),
        "RTMAX" => Some(64),
        _ => {
            let above = name.strip_prefix("RTMIN+").and_then(|by| offset(by, 1)).map(|by| 34 + by);
            let below = name.strip_prefix("RTMAX-").and_then(|by| offset(by, -1)).map(|by| 64 + by);
            above.or(below).filter(|number| (34..=64).contains(number))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_parsed_with_parentheses_in_the_name() {
        let line = b"7 (a) b) (c) S 3 7 5 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 99";
        let stat = parse_stat(7, line).expect("a whole line");
        assert_eq!((stat.parent, stat.session, stat.identity.start, stat.zombie), (3, 5, 4242, false));
        assert!(parse_stat(7, b"7 (cut").is_none());
    }

    #[test]
    fn identity_includes_the_start_time() {
        let me = ProcessIdentity::from_pid(std::process::id() as i32).expect("this process runs");
        assert!(me.lives());
        let stranger = ProcessIdentity { start: me.start + 1, ..me };
        assert!(!stranger.lives());
        assert!(!stranger.kill(), "a recycled pid is never signalled");
    }

    #[test]
    fn signal_numbers_are_found_by_name() {
        let table = [("SIGTERM", Some(15)), ("USR1", Some(10)), ("SIGSYS", Some(31)), ("SIGRTMIN+3", Some(37))];
        let odd = [("SIGRTMAX-1", Some(63)), ("SIGRTMIN+40", None), ("SIGNOPE", None), ("", None)];
        for (name, number) in table.into_iter().chain(odd) {
            assert_eq!(signal_number(name), number, "{name}");
        }
    }

    #[test]
    fn variable_is_clear_of_a_process_that_runs_even_without_an_environment() {
        let start = |environment: &[(&str, &str)]| {
            let mut sleep = std::process::Command::new("/bin/sleep");
            sleep.arg("1000").env_clear().envs(environment.iter().copied()).spawn().expect("started")
        };
        for (environment, expected) in [(&[("MARK", "1")][..], true), (&[("MARK", "12")], false), (&[], false)] {
            let mut child = start(environment);
            let clear = std::iter::repeat_with(|| has_variable(child.id() as i32, "MARK", "1")).find_map(|found| found);
            child.kill().expect("killed");
            child.wait().expect("ended");
            assert_eq!(clear, Some(expected), "{environment:?}");
            assert_eq!(has_variable(child.id() as i32, "MARK", "1"), None, "it is gone");
        }
    }
}
