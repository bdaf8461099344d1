//! Predicts whether a signal that is sent to a process reaches it.
//!
//! The kernel drops signals to the first process of a pid namespace unless that process has a handler for them (pid_namespaces(7)). It decides
//! twice: when the signal is sent, unless it is blocked then, and when a blocked one is unblocked. C libraries block every signal for a
//! moment while they start a thread or a process, so a signal can be accepted and be dropped a millisecond later.

use procfs::process::{Process, Status};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::FileExt;

/// Threads of a process that are looked at at most.
const THREADS: usize = 1024;
/// Signals that do not end a process which has no handler for them.
const HARMLESS: [Signal; 8] =
    [Signal::CHILD, Signal::CONT, Signal::STOP, Signal::TSTP, Signal::TTIN, Signal::TTOU, Signal::URG, Signal::WINCH];

/// The effect of a signal that would end a process without a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// It has the effect that it has on any process: it is handled, ignored on purpose, or ends it.
    Normal,
    /// It waits until the process takes it up or unblocks it. In the second case the kernel drops it.
    Blocked,
    /// The kernel drops it, or a thread that runs at this moment begins or ends a wait for it: only another look can tell.
    Unclear,
    /// The kernel drops it.
    Dropped,
}

/// Tells what becomes of a signal to a process now. What cannot be read counts as [`Delivery::Normal`].
pub fn delivery(pid: i32, signal: Signal) -> Delivery {
    let now = || read_status(pid).map_or(Delivery::Normal, |status| decide(&status, signal));
    match now() {
        // While a process waits for a signal by name, the kernel shows it as not blocked. It may have come back from that since.
        Delivery::Dropped => match wait_of(pid, signal) {
            Wait::ByName => Delivery::Blocked,
            Wait::Unknown if now() == Delivery::Dropped => Delivery::Unclear,
            Wait::Unknown | Wait::None => now(),
        },
        other => other,
    }
}

/// Whether a signal waits for a process to take it up.
pub fn is_pending(pid: i32, signal: Signal) -> bool {
    read_status(pid).is_some_and(|status| contains(status.sigpnd | status.shdpnd, signal))
}

fn read_status(pid: i32) -> Option<Status> {
    Process::new(pid).and_then(|process| process.status()).ok()
}

fn decide(status: &Status, signal: Signal) -> Delivery {
    let is_first = status.nspid.as_ref().is_some_and(|numbers| numbers.len() > 1 && numbers.last() == Some(&1));
    if !is_first || HARMLESS.contains(&signal) || contains(status.sigign | status.sigcgt, signal) {
        Delivery::Normal
    } else if contains(status.sigblk, signal) {
        Delivery::Blocked
    } else {
        Delivery::Dropped
    }
}

fn contains(set: u64, signal: Signal) -> bool {
    set & (1u64 << (signal.as_raw() - 1)) != 0
}

/// The wait of a process for a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// No thread waits.
    None,
    /// A thread was running, so that the kernel does not show its system call.
    Unknown,
    /// A thread is in sigwait(3) or the like for this signal.
    ByName,
}

/// Looks for a thread that waits for a signal by name.
fn wait_of(pid: i32, signal: Signal) -> Wait {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten().take(THREADS);
    let call = format!("{} ", libc::SYS_rt_sigtimedwait);
    let mut wait = Wait::None;
    for thread in threads {
        let text = fs::read_to_string(thread.path().join("syscall")).unwrap_or_default();
        if text.starts_with("running") {
            wait = Wait::Unknown;
        }
        let Some(set) = text.strip_prefix(&call).and_then(|arguments| arguments.split(' ').next()) else { continue };
        let address = u64::from_str_radix(set.trim_start_matches("0x"), 16).unwrap_or_default();
        let mut set = [0; 8];
        let memory = fs::File::open(thread.path().join("mem")).and_then(|file| file.read_exact_at(&mut set, address));
        if memory.is_err() || contains(u64::from_ne_bytes(set), signal) {
            return Wait::ByName;
        }
    }
    wait
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_without_a_handler_is_dropped_by_the_first_process_of_a_namespace_alone() {
        let own = read_status(std::process::id() as i32).expect("this process");
        let status = |numbers: &[i32], blocked: u64, ignored: u64, caught: u64| {
            let mut status = own.clone();
            status.nspid = (!numbers.is_empty()).then(|| numbers.to_vec());
            (status.sigblk, status.sigign, status.sigcgt) = (blocked, ignored, caught);
            status
        };
        let term = 1 << 14;
        let table = [
            (status(&[71, 1], 0, 0, 0), Delivery::Dropped),
            (status(&[71, 1], !term, !term, !term), Delivery::Dropped),
            (status(&[71, 1], term, 0, 0), Delivery::Blocked),
            (status(&[71, 1], term, term, 0), Delivery::Normal),
            (status(&[71, 1], term, 0, term), Delivery::Normal),
            (status(&[71, 12], 0, 0, 0), Delivery::Normal),
            (status(&[1], 0, 0, 0), Delivery::Normal),
            (status(&[], 0, 0, 0), Delivery::Normal),
        ];
        for (status, expected) in table {
            assert_eq!(decide(&status, Signal::TERM), expected, "{status:?}");
        }
        assert_eq!(decide(&status(&[71, 1], 0, 0, 0), Signal::WINCH), Delivery::Normal);
        assert_eq!(delivery(0, Signal::TERM), Delivery::Normal, "a status that cannot be read");
    }
}
