//! Predicts whether a signal that is sent to a process reaches it.
//!
//! The kernel drops signals to the first process of a pid namespace unless that process has a handler for them (pid_namespaces(7)). It
//! decides twice: when the signal is sent, unless it is blocked then, and when a blocked one is unblocked. C libraries block every signal
//! for a moment while they start a thread or a process, so a signal can be accepted and be dropped a millisecond later.
//!
//! Code of our own reads the status: the crate `procfs` takes ten times as long, and meanwhile a process may become another program.

use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::FileExt;

/// Maximum number of threads of a process that are checked.
const MAX_THREADS: usize = 1024;
/// Signals that do not end a process which has no handler for them.
const HARMLESS: [Signal; 8] =
    [Signal::CHILD, Signal::CONT, Signal::STOP, Signal::TSTP, Signal::TTIN, Signal::TTOU, Signal::URG, Signal::WINCH];

/// The effect of a signal that would end a process without a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The signal has its usual effect: the process handles it, ignores it on purpose, or ends.
    Normal,
    /// It waits until the process takes it up or unblocks it. In the second case the kernel drops it.
    Blocked,
    /// The kernel drops the signal, or a running thread begins or ends a wait for it at this moment. Another check is needed.
    Unclear,
    /// The kernel drops it.
    Dropped,
}

/// Predicts the effect of a signal to a process now. Returns [`Delivery::Normal`] if the state of the process cannot be read.
pub fn delivery(pid: i32, signal: Signal) -> Delivery {
    let now = || parse(&fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default(), signal);
    match now() {
        // While a process waits for a signal by name, the kernel shows it as not blocked. That wait may have ended since.
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
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| {
        let set = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"));
        set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).is_some_and(|set| contains(set, signal))
    })
}

/// Reads `/proc/PID/status`.
fn parse(status: &str, signal: Signal) -> Delivery {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    let holds = |name: &str| u64::from_str_radix(field(name).trim(), 16).is_ok_and(|set| contains(set, signal));
    let numbers: Vec<&str> = field("NSpid:").split_whitespace().collect();
    let is_first = numbers.len() > 1 && numbers.last() == Some(&"1");
    if !is_first || HARMLESS.contains(&signal) || holds("SigIgn:") || holds("SigCgt:") {
        Delivery::Normal
    } else if holds("SigBlk:") {
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
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten().take(MAX_THREADS);
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
    fn signal_without_a_handler_is_dropped_by_the_first_process_of_a_namespace_alone() {
        let status = |numbers: &str, blocked: u64, ignored: u64, caught: u64| {
            format!(
                "Name:\tx\nNSpid:\t{numbers}\nSigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}\n"
            )
        };
        let term = 1 << 14;
        let table = [
            (status("71\t1", 0, 0, 0), Delivery::Dropped),
            (status("71\t1", !term, !term, !term), Delivery::Dropped),
            (status("71\t1", term, 0, 0), Delivery::Blocked),
            (status("71\t1", term, term, 0), Delivery::Normal),
            (status("71\t1", term, 0, term), Delivery::Normal),
            (status("71\t12", 0, 0, 0), Delivery::Normal),
            (status("1", 0, 0, 0), Delivery::Normal),
            (String::new(), Delivery::Normal),
        ];
        for (status, expected) in table {
            assert_eq!(parse(&status, Signal::TERM), expected, "{status}");
        }
        assert_eq!(parse(&status("71\t1", 0, 0, 0), Signal::WINCH), Delivery::Normal);
    }
}
