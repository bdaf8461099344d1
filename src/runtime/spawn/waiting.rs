//! A child that prepares itself and waits, until its parent orders it to execute its program.

use super::super::pid_namespace::PidNamespace;
use super::super::process;
use super::{
    SpawnProgram, apply_settings, close_other_descriptors, end_with_parent, forked_pid, pointers, release_program_pages,
};
use crate::object::io_error_text;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, getpid};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};

/// Message of a child right before it executes its program.
const STARTING: &[u8] = b"!";

/// Forks this process, into a PID namespace if one is given. The child runs `prepare`, which returns the program, and then waits for
/// [`PreparedChild::start`] before it executes the program. `start` also returns the errors of the child. Only for processes with one
/// thread and little memory, such as shims.
pub fn fork<'a>(
    pid_namespace: Option<&PidNamespace>,
    prepare: impl FnOnce() -> Result<SpawnProgram<'a>, String>,
    explain: impl FnOnce(&SpawnProgram, &io::Error) -> String,
) -> Result<PreparedChild, String> {
    let pipe = || {
        pipe_with(PipeFlags::CLOEXEC)
            .map_err(|error| format!("cannot make a pipe: {error}", error = io_error_text(error)))
    };
    let ((error_read, error_write), (gate_read, gate_write)) = (pipe()?, pipe()?);
    let parent = getpid();
    let forked = match pid_namespace {
        Some(namespace) => {
            namespace.fork().map_err(|error| format!("cannot fork into a PID namespace: {}", io_error_text(error)))?
        }
        // SAFETY: a shim has one thread, so the child's memory is consistent.
        None => unsafe { libc::fork() },
    };
    match forked {
        0 => {
            drop((error_read, gate_write));
            // The first process of a PID namespace ends with its parent. So does any process without pidfds: only the parent can signal it.
            let ends_with_parent = pid_namespace.is_some_and(PidNamespace::is_new) || !process::has_pidfds();
            run_child(&ChildSide { parent, ends_with_parent, gate_read, error_write }, prepare, explain)
        }
        pid => {
            let pid = forked_pid(pid).ok_or("cannot fork")?;
            Ok(PreparedChild { pid, gate_write, error_read })
        }
    }
}

/// A child's side of its pipes, and its parent.
struct ChildSide {
    parent: Pid,
    /// Whether the process is killed with its parent after the start, too.
    ends_with_parent: bool,
    gate_read: OwnedFd,
    error_write: OwnedFd,
}

/// Runs the child until it executes its program, or reports an error to its parent and exits.
fn run_child<'a>(
    child: &ChildSide,
    prepare: impl FnOnce() -> Result<SpawnProgram<'a>, String>,
    explain: impl FnOnce(&SpawnProgram, &io::Error) -> String,
) -> ! {
    if end_with_parent(child.parent) {
        let execute = || prepare_and_execute(child, prepare, explain);
        // A panic must not unwind into code of the parent.
        let why = std::panic::catch_unwind(std::panic::AssertUnwindSafe(execute));
        let why = why.unwrap_or_else(|_| "preparing it panicked".into());
        let _ = rustix::io::write(&child.error_write, why.as_bytes());
    }
    // SAFETY: ends the child without running anything that belongs to the parent.
    unsafe { libc::_exit(127) }
}

/// Prepares and executes the program once the parent orders it. Returns why the program does not run; nothing when the parent has died.
fn prepare_and_execute<'a>(
    child: &ChildSide,
    prepare: impl FnOnce() -> Result<SpawnProgram<'a>, String>,
    explain: impl FnOnce(&SpawnProgram, &io::Error) -> String,
) -> String {
    let program = match prepare() {
        Ok(program) => program,
        Err(why) => return why,
    };
    if let Err(error) = apply_settings(&program) {
        return explain(&program, &error);
    }
    let (argv, envp) = (pointers(&program.argv), pointers(&program.env));
    let stdio = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
    close_other_descriptors(stdio.iter().chain(&[&child.gate_read, &child.error_write].map(AsFd::as_fd)));
    // Otherwise exec would release them while the pod's start waits.
    release_program_pages();
    let may_start = wait_for_start(child);
    if !may_start || rustix::io::write(&child.error_write, STARTING) != Ok(1) {
        return String::new();
    }
    // SAFETY: every pointer is to a live, nul-terminated string; both arrays end with a null pointer.
    unsafe { libc::execve(program.path.as_ptr(), argv.as_ptr().cast(), envp.as_ptr().cast()) };
    explain(&program, &io::Error::last_os_error())
}

/// Waits until the parent orders the start. Returns false when the parent has died.
fn wait_for_start(child: &ChildSide) -> bool {
    // Set again, because a change of namespaces or credentials may have cleared the signal.
    if !end_with_parent(child.parent) {
        return false;
    }
    let is_ordered = loop {
        match rustix::io::read(&child.gate_read, &mut [0; 1]) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other == Ok(1),
        }
    };
    is_ordered && (child.ends_with_parent || rustix::process::set_parent_process_death_signal(None).is_ok())
}

/// A child that waits to execute its program.
pub struct PreparedChild {
    pid: Pid,
    gate_write: OwnedFd,
    error_read: OwnedFd,
}

impl PreparedChild {
    /// Returns its pid.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Executes the program; on an error, which the child reports, the program has not run.
    pub fn start(self) -> Result<Pid, String> {
        // The write fails when the preparation has failed: then the child has written the error and exited.
        let _ = rustix::io::write(&self.gate_write, b"!");
        let mut message = Vec::new();
        let _ = std::fs::File::from(self.error_read).read_to_end(&mut message);
        let why = match message.strip_prefix(STARTING) {
            Some([]) => return Ok(self.pid),
            Some(why) => why,
            None if message.is_empty() => b"it was killed before it could be executed",
            None => &message,
        };
        let _ = rustix::process::waitpid(Some(self.pid), rustix::process::WaitOptions::empty());
        Err(String::from_utf8_lossy(why).into_owned())
    }
}
