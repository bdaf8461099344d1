//! Starts processes in a PID namespace (pid_namespaces(7)).
//!
//! A new namespace begins with the fork of its first process. For an existing one, a process chooses the namespace of its children with
//! `setns`. Root then returns to its own namespace. An ordinary user cannot return, so an intermediate process enters the namespace and
//! forks with `CLONE_PARENT`: the new process is a child of the caller.
//! Only for processes with a single thread.

use crate::object::io_error_text;
use rustix::fs::{CWD, Mode, OFlags, fstat, openat};
use rustix::io::{Errno, read, write};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitOptions, geteuid, waitpid};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::os::fd::{AsFd, OwnedFd};

/// A PID namespace for a new process.
pub enum PidNamespace {
    /// An existing namespace.
    Known(OwnedFd),
    /// A new namespace, whose first process (pid 1) will be the new one.
    New,
}

/// Opens the PID namespace of a process.
fn open_pid_namespace(whose: &str) -> rustix::io::Result<OwnedFd> {
    openat(CWD, format!("/proc/{whose}/ns/pid"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// Makes later children of this process start in a PID namespace.
fn set_child_namespace(space: &OwnedFd) -> rustix::io::Result<()> {
    move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::ProcessID))
}

impl PidNamespace {
    /// Opens the PID namespace of a process; `None` when it is the caller's own.
    pub fn from_process(process: i32) -> Result<Option<PidNamespace>, String> {
        let open = || {
            let (theirs, ours) = (open_pid_namespace(&process.to_string())?, open_pid_namespace("self")?);
            Ok((fstat(&theirs)?.st_ino != fstat(&ours)?.st_ino).then_some(PidNamespace::Known(theirs)))
        };
        open().map_err(|error: Errno| format!("cannot open its PID namespace: {error}", error = io_error_text(error)))
    }

    /// Whether the next process is the first one of the namespace.
    pub fn is_new(&self) -> bool {
        matches!(self, PidNamespace::New)
    }

    /// Forks this process into the namespace. Returns 0 in the child and the child's pid in the parent.
    pub fn fork(&self) -> rustix::io::Result<i32> {
        let PidNamespace::Known(space) = self else { return fork(libc::CLONE_NEWPID) };
        let own = open_pid_namespace("self")?;
        // Even root cannot return to a namespace that is owned by a parent user namespace.
        let may_return = geteuid().is_root() && set_child_namespace(&own).is_ok();
        if !may_return {
            return fork_through_child(space);
        }
        set_child_namespace(space)?;
        let forked = fork(0);
        if forked != Ok(0) {
            set_child_namespace(&own)?;
        }
        forked
    }
}

fn fork_through_child(space: &OwnedFd) -> rustix::io::Result<i32> {
    let (pid_read, pid_write) = pipe_with(PipeFlags::CLOEXEC)?;
    let intermediate = match fork(0)? {
        0 => {
            drop(pid_read);
            // The new process becomes a child of this one's parent.
            let forked = set_child_namespace(space).and_then(|()| fork(libc::CLONE_PARENT));
            if forked == Ok(0) {
                return forked;
            }
            let _ = write(&pid_write, &forked.unwrap_or_else(|error| -error.raw_os_error()).to_ne_bytes());
            // SAFETY: ends the process without running anything that belongs to its parent.
            unsafe { libc::_exit(0) }
        }
        pid => pid,
    };
    drop(pid_write);
    let mut number = [0; 4];
    let count = read(&pid_read, &mut number);
    let _ = waitpid(Pid::from_raw(intermediate), WaitOptions::empty());
    match count {
        Ok(4) => match i32::from_ne_bytes(number) {
            pid @ 1.. => Ok(pid),
            error => Err(Errno::from_raw_os_error(-error)),
        },
        _ => Err(Errno::CHILD),
    }
}

/// Same as `fork` of the C library, with more flags. Only for a process with one thread.
fn fork(flags: libc::c_int) -> rustix::io::Result<i32> {
    let flags = libc::c_long::from(flags | libc::SIGCHLD);
    // SAFETY: this process has one thread, so the child's memory is consistent; the child uses a copy of the stack.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    match i32::try_from(pid) {
        Ok(pid @ 0..) => Ok(pid),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::AGAIN)),
    }
}
