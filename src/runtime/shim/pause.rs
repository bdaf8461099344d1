//! Chooses the process namespace of a container, and runs the pause: the first process of the one that a pod's containers share.
//!
//! Elsewhere the first process is the container's own program, as in Kubernetes, and the namespace ends with it. A pause has nothing of
//! its own, no files, no rights; it reaps orphans, and ends with its shim. Start reading at [`Shim::pid_namespace`].

use super::super::pid_namespace::PidNamespace;
use super::super::process::{self, ProcessIdentity};
use super::super::spawn::close_other_descriptors;
use super::super::view;
use super::{LiveContainer, Shim};
use crate::object::io_error_text;
use crate::world::ProcessNamespace;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions, set_parent_process_death_signal, wait, waitpid};
use std::os::fd::{AsFd, OwnedFd};
use std::ptr;

/// The first process of a namespace that several share.
pub struct PauseProcess {
    process: ProcessIdentity,
    /// Receives a byte when the process has reaped a child.
    reaped: OwnedFd,
}

impl PauseProcess {
    /// Starts the process; `None` without pidfds, because the shim could not end processes that it adopts and that are not the shim's
    /// children.
    fn spawn() -> Result<Option<PauseProcess>, String> {
        if !process::has_pidfds() {
            return Ok(None);
        }
        let failed = |error| format!("cannot start the pod's pause process: {error}", error = io_error_text(error));
        let (reaped, report) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(failed)?;
        let pid = match PidNamespace::New.fork().map_err(failed)? {
            0 => {
                drop(reaped);
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| serve(&report)));
                // SAFETY: ends the child without running anything that belongs to the parent.
                unsafe { libc::_exit(0) }
            }
            pid => pid,
        };
        let process = ProcessIdentity::from_pid(pid).ok_or("the pod's pause process cannot be seen in /proc")?;
        Ok(Some(PauseProcess { process, reaped }))
    }

    /// Its process.
    pub fn pid(&self) -> i32 {
        self.process.pid
    }

    /// Returns the descriptor that becomes readable when it signals.
    pub fn status_pipe(&self) -> &OwnedFd {
        &self.reaped
    }

    /// Reads and drops its pending signals.
    pub fn drain_signal(&self) {
        let _ = rustix::io::read(&self.reaped, &mut [0; 64][..]);
    }

    /// Ends it, once nothing else is in its namespace.
    pub fn end(self) {
        if self.process.kill() {
            let _ = waitpid(Pid::from_raw(self.pid()), WaitOptions::empty());
        }
    }
}

/// Main loop of the pause process. It must not run code of its parent: it only makes system calls.
fn serve(report: &OwnedFd) {
    let _ = rustix::thread::set_name(c"pause");
    view::drop_files_and_rights();
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    close_other_descriptors([report.as_fd()].iter());
    // SAFETY: the set is initialised by the call, and both calls only read it.
    let all = unsafe {
        let mut all = std::mem::zeroed::<libc::sigset_t>();
        libc::sigfillset(&mut all);
        // Blocked signals stay pending, also for the first process of a namespace, until they are waited for.
        libc::sigprocmask(libc::SIG_SETMASK, &all, ptr::null_mut());
        all
    };
    // The write fails when the shim has died before the parent death signal was set.
    while rustix::io::write(report, &[0]) != Err(rustix::io::Errno::PIPE) {
        // SAFETY: the set is initialised; no information is asked for.
        unsafe { libc::sigwaitinfo(&all, ptr::null_mut()) };
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
    }
}

impl Shim {
    /// The process namespace that a container is to begin in; none for the machine's, and where none can ever be had.
    pub(super) fn pid_namespace(&mut self, processes: &ProcessNamespace) -> Result<Option<PidNamespace>, String> {
        match processes {
            ProcessNamespace::Machine => Ok(None),
            ProcessNamespace::Own => Ok(self.base_mounts.enter_user_namespace()?.then_some(PidNamespace::New)),
            ProcessNamespace::Shared => {
                if self.pause.is_none() && self.base_mounts.enter_user_namespace()? {
                    self.pause = PauseProcess::spawn()?;
                }
                self.pause.as_ref().map_or(Ok(None), |pause| PidNamespace::from_process(pause.pid()))
            }
            ProcessNamespace::Of(other) => {
                let other_runs = |live: &&LiveContainer| live.end.is_none() && *live.name == **other;
                let missing = || format!("target container {other:?} does not run");
                PidNamespace::from_process(self.live.iter().find(other_runs).ok_or_else(missing)?.process.pid)
            }
        }
    }
}
