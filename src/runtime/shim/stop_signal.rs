//! Sends a container's stop signal, and makes sure that the signal has an effect.
//!
//! If the kernel drops the signal for the main process of a PID namespace, the shim kills the process, because the signal would have ended
//! any other process. A process that has the signal blocked may wait for it on purpose, or may be starting a thread or a process: the shim
//! checks it again until it knows. The kernel may have dropped the signal before the process set its handler, and a script may have
//! received it just before it executed the program: then the shim sends the signal once more. Start reading at
//! [`LiveContainer::ask_to_end`].

use super::super::process::signal_from;
use super::super::signal_delivery::{Delivery, delivery, is_pending};
use super::{LiveContainer, Shim};
use rustix::process::Signal;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

/// Pause between the first two checks; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// Longest pause between two checks: a process that waits for signals on purpose is checked until the end of its grace period.
const MAX_PAUSE: Duration = Duration::from_millis(256);

/// Number of checks for which a running thread counts as one that may wait for the signal. They take a quarter of a second; after that, a
/// process that never sleeps is killed.
const DOUBTS: u32 = 8;

/// A stop signal that was sent and may not have reached the program.
pub struct SentStop {
    signal: Signal,
    /// Whether the process had it blocked.
    is_blocked: bool,
    /// The program that the process ran when the signal was sent.
    program: Option<RunningProgram>,
    /// Number of further checks in which a running thread may hide a wait for the signal ([`Delivery::Unclear`]).
    doubts: u32,
    pause: Duration,
    next_look: Instant,
}

impl SentStop {
    /// Time of the next check of the process.
    pub fn next_look(&self) -> Instant {
        self.next_look
    }
}

/// One execution of a program by a process. It differs after each `exec`, also of the same file: the kernel places the stack at a random
/// address then (proc_pid_stat(5), `startstack`).
#[derive(PartialEq, Eq)]
struct RunningProgram {
    device: u64,
    inode: u64,
    stack: u64,
}

/// Returns the program that a process runs.
fn running_program(pid: i32) -> Option<RunningProgram> {
    let file = std::fs::metadata(format!("/proc/{pid}/exe")).ok()?;
    let stack = procfs::process::Process::new(pid).and_then(|process| process.stat()).map_or(0, |stat| stat.startstack);
    Some(RunningProgram { device: file.dev(), inode: file.ino(), stack })
}

impl LiveContainer {
    /// Sends the stop signal.
    pub(super) fn ask_to_end(&mut self) {
        let signal = signal_from(self.launch.stop_signal).unwrap_or(Signal::TERM);
        self.send_stop(signal, FIRST_PAUSE);
    }

    fn send_stop(&mut self, signal: Signal, pause: Duration) {
        let program = running_program(self.process.pid);
        match delivery(self.process.pid, signal) {
            Delivery::Dropped => self.end_for(signal),
            before => {
                self.process.signal(signal);
                let is_blocked = before != Delivery::Normal;
                let next_look = Instant::now() + pause;
                self.sent_stop = Some(SentStop { signal, is_blocked, program, doubts: DOUBTS, pause, next_look });
            }
        }
    }

    /// Ends the main process as the signal would have.
    fn end_for(&mut self, signal: Signal) {
        self.ended_for = Some(signal);
        self.process.kill();
    }

    fn look_at_stop(&mut self, now: Instant) {
        let Some(stop) = self.sent_stop.take_if(|stop| stop.next_look <= now || self.end.is_some()) else { return };
        if self.end.is_some() {
            return;
        }
        let pid = self.process.pid;
        let pause = MAX_PAUSE.min(stop.pause * 2);
        // A program that caught the signal may take its handler away and clean up: only another program is a new case.
        let is_open = stop.is_blocked || running_program(pid) != stop.program;
        match delivery(pid, stop.signal) {
            Delivery::Dropped if is_open => self.end_for(stop.signal),
            Delivery::Unclear if is_open && stop.doubts == 0 => self.end_for(stop.signal),
            Delivery::Normal if is_open && !is_pending(pid, stop.signal) => self.send_stop(stop.signal, pause),
            // After half a second without a change the program has the signal.
            found if is_open || stop.pause < MAX_PAUSE => {
                let doubts = stop.doubts - u32::from(found == Delivery::Unclear && stop.doubts > 0);
                self.sent_stop = Some(SentStop { is_blocked: is_open, doubts, pause, next_look: now + pause, ..stop });
            }
            _ => {}
        }
    }
}

impl Shim {
    /// Looks again at processes whose stop signal may not have reached their program.
    pub(super) fn check_stops(&mut self) {
        let now = Instant::now();
        self.live.iter_mut().for_each(|live| live.look_at_stop(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};

    #[test]
    fn exec_of_the_same_file_is_another_program() {
        let script = "echo first; read line; exec sh -c 'echo second; read line'";
        let mut shell =
            Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let pid = shell.id() as i32;
        let (mut input, mut output) =
            (shell.stdin.take().unwrap(), BufReader::new(shell.stdout.take().unwrap()).lines());
        assert_eq!(output.next().unwrap().unwrap(), "first");
        let first = running_program(pid);
        assert!(first.is_some() && first == running_program(pid));
        input.write_all(b"\n").unwrap();
        assert_eq!(output.next().unwrap().unwrap(), "second");
        assert!(first != running_program(pid));
        drop(input);
        shell.wait().unwrap();
    }
}
