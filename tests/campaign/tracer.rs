//! Runs a program under `ptrace` and kills one of its processes before the n-th system call with an effect outside of the process.
//!
//! Knows: threads and children of the program while they execute the same binary; other programs are detached.
//! Never: stops a process for longer than a look at its registers.

use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::HashMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::mpsc::Sender;

/// The process that is killed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Victim {
    /// The program itself.
    Plane,
    /// A shim, or its child before it executes a workload.
    Shim,
    /// The whole process group of the program, at a boundary of the program itself.
    Group,
}

/// The process that was killed, if it made that many calls.
#[derive(Debug)]
pub struct KilledProcess {
    /// The system call before which the process was killed; `None` when the program ended before.
    pub call: Option<&'static str>,
}

macro_rules! calls {
    ($($name:ident)*) => { &[$((libc::$name, stringify!($name))),*] };
}

/// System calls whose effects other processes can see.
const BOUNDARIES: &[(libc::c_long, &str)] = calls! {
    SYS_write SYS_writev SYS_pwrite64 SYS_fsync SYS_fdatasync SYS_ftruncate SYS_unlinkat SYS_renameat2 SYS_symlinkat SYS_mkdirat
    SYS_sendmsg SYS_sendto SYS_clone SYS_clone3 SYS_execve SYS_fcntl SYS_flock SYS_openat SYS_fchmodat SYS_mount SYS_dup3 SYS_setsid
    SYS_kill SYS_pidfd_send_signal SYS_wait4 SYS_waitid SYS_bind SYS_listen SYS_accept4 SYS_recvmsg SYS_unshare SYS_close_range
    SYS_exit_group
};

/// Their older names, on architectures that have them.
#[cfg(target_arch = "x86_64")]
const OLD_BOUNDARIES: &[(libc::c_long, &str)] = calls! {
    SYS_open SYS_unlink SYS_rename SYS_symlink SYS_mkdir SYS_rmdir SYS_fork SYS_vfork SYS_dup2 SYS_chmod
};
#[cfg(not(target_arch = "x86_64"))]
const OLD_BOUNDARIES: &[(libc::c_long, &str)] = &[];

/// The known state of a thread.
struct Seen {
    process: Pid,
    inside: bool,
}

/// Whether a child may be traced here; some sandboxes forbid it.
pub fn is_possible() -> bool {
    let mut child = Command::new("sleep").arg("1000").spawn().expect("sleep starts");
    let seized = ptrace::seize(Pid::from_raw(child.id() as i32), Options::empty());
    child.kill().expect("it lives");
    child.wait().expect("it ends");
    seized.is_ok()
}

/// Starts the command, sends its pid, and kills the victim before its `at`-th boundary. Returns after that or when the command has ended,
/// and detaches the rest.
pub fn kill_at_call(command: &Command, victim: Victim, at: usize, started: &Sender<i32>) -> KilledProcess {
    let plane = start_stopped(command);
    let options = Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEFORK
        | Options::PTRACE_O_TRACEVFORK
        | Options::PTRACE_O_TRACEEXEC;
    ptrace::seize(plane, options).expect("a child may be traced");
    kill(plane, Signal::SIGCONT).expect("it goes on");
    started.send(plane.as_raw()).expect("somebody waits for it");
    let call = Hunt { plane, victim, left: at, caught: None, seen: HashMap::new() }.run();
    KilledProcess { call }
}

/// Starts the command behind a shell that stops itself first, so that no system call is missed.
fn start_stopped(command: &Command) -> Pid {
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"kill -STOP $$; exec "$@""#, "sh"]).arg(command.get_program()).args(command.get_args());
    shell.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    #[expect(clippy::zombie_processes, reason = "it is waited for by its pid, as tracers do")]
    let child = shell.process_group(0).spawn().expect("sh starts");
    let pid = Pid::from_raw(child.id() as i32);
    waitpid(pid, Some(WaitPidFlag::WUNTRACED)).expect("it stops");
    pid
}

struct Hunt {
    plane: Pid,
    victim: Victim,
    left: usize,
    caught: Option<&'static str>,
    seen: HashMap<Pid, Seen>,
}

impl Hunt {
    /// Continues until the program and all its threads have ended; returns the system call before which the victim was killed.
    fn run(mut self) -> Option<&'static str> {
        loop {
            let status = match waitpid(None, Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD)) {
                Ok(status) => status,
                // A signal that the nix crate does not know.
                Err(Errno::EINTR | Errno::EINVAL) => continue,
                Err(_) => return self.caught,
            };
            match status {
                WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..) => {
                    self.seen.remove(&pid);
                    if pid == self.plane {
                        return self.caught;
                    }
                }
                WaitStatus::PtraceSyscall(pid) => {
                    self.boundary(pid);
                    let _ = ptrace::syscall(pid, None);
                }
                WaitStatus::PtraceEvent(pid, _, event) => self.event(pid, event),
                WaitStatus::Stopped(pid, signal) => {
                    let _ = ptrace::syscall(pid, signal);
                }
                WaitStatus::Continued(_) | WaitStatus::StillAlive => {}
            }
        }
    }

    fn event(&mut self, pid: Pid, event: i32) {
        let executes = event == nix::libc::PTRACE_EVENT_EXEC;
        if executes && pid != self.plane && !is_ours(pid) {
            let _ = ptrace::detach(pid, None);
        } else {
            let _ = ptrace::syscall(pid, None);
        }
    }

    /// Counts a boundary of the victim; kills it at the chosen one.
    fn boundary(&mut self, pid: Pid) {
        let seen = self.seen.entry(pid).or_insert_with(|| Seen { process: process_of(pid), inside: false });
        seen.inside = !seen.inside;
        let (inside, process) = (seen.inside, seen.process);
        let is_it = || match self.victim {
            Victim::Plane | Victim::Group => process == self.plane,
            Victim::Shim => process != self.plane && name_of(pid) == "shim",
        };
        if !inside || self.left == 0 {
            return;
        }
        let Some(call) = boundary_of(pid).filter(|_| is_it()) else { return };
        self.left -= 1;
        if self.left == 0 {
            self.caught = Some(call);
            let _ = match self.victim {
                Victim::Group => killpg(process, Signal::SIGKILL),
                Victim::Plane | Victim::Shim => kill(process, Signal::SIGKILL),
            };
        }
    }
}

/// Returns the name of the boundary that a thread is about to enter.
fn boundary_of(pid: Pid) -> Option<&'static str> {
    let number = call_number(pid)?;
    BOUNDARIES.iter().chain(OLD_BOUNDARIES).find(|(boundary, _)| *boundary == number).map(|(_, name)| *name)
}

/// Returns the number of the system call that a thread is about to enter.
fn call_number(pid: Pid) -> Option<libc::c_long> {
    let registers = ptrace::getregs(pid).ok()?;
    #[cfg(target_arch = "x86_64")]
    let number = registers.orig_rax;
    #[cfg(target_arch = "aarch64")]
    let number = registers.regs[8];
    Some(number as libc::c_long)
}

fn is_ours(pid: Pid) -> bool {
    fs::read_link(format!("/proc/{pid}/exe"))
        .is_ok_and(|path| path == std::path::Path::new(env!("CARGO_BIN_EXE_kloop")))
}

fn name_of(pid: Pid) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

fn process_of(thread: Pid) -> Pid {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let group = status.lines().find_map(|line| line.strip_prefix("Tgid:")).and_then(|id| id.trim().parse().ok());
    group.map_or(thread, Pid::from_raw)
}
