//! Process namespaces: how a process comes to begin in one.
//!
//! The kernel lets a process choose the namespace of what it forks, and root choose its own again afterwards. Anybody else could not go
//! back, so there a process that is forked for just this goes, and what it starts is a child of its parent's all the same.
//! Only for processes of one thread.

use crate::object::io_error_text;
use rustix::fs::{CWD, Mode, OFlags, fstat, openat};
use rustix::io::{Errno, read, write};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitOptions, geteuid, waitpid};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::os::fd::{AsFd, OwnedFd};

/// A process namespace to start something in.
pub enum PidNamespace {
    /// One that is there.
    Known(OwnedFd),
    /// One whose first process that will be.
    New,
}

/// The process namespace of a process.
fn of_processes(whose: &str) -> rustix::io::Result<OwnedFd> {
    openat(CWD, format!("/proc/{whose}/ns/pid"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// Has what this process forks from now on begin in a process namespace.
fn enter_processes(space: &OwnedFd) -> rustix::io::Result<()> {
    move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::ProcessID))
}

impl PidNamespace {
    /// Another one's; none when it is in ours.
    pub fn from_process(process: i32) -> Result<Option<PidNamespace>, String> {
        let open = || {
            let (theirs, ours) = (of_processes(&process.to_string())?, of_processes("self")?);
            Ok((fstat(&theirs)?.st_ino != fstat(&ours)?.st_ino).then_some(PidNamespace::Known(theirs)))
        };
        open()
            .map_err(|error: Errno| format!("cannot open its process namespace: {error}", error = io_error_text(error)))
    }

    /// Whether what begins there is its first process.
    pub fn is_new(&self) -> bool {
        matches!(self, PidNamespace::New)
    }

    /// Forks this process into the namespace: gives 0 in the child, its number in the parent.
    pub fn fork(&self) -> rustix::io::Result<i32> {
        let own = of_processes("self")?;
        // Also root may not go back to a namespace that belongs to users above its own.
        let may_return = geteuid().is_root() && enter_processes(&own).is_ok();
        if may_return { self.by_ourselves(&own) } else { self.by_another() }
    }

    /// Has what this process forks from now on begin there.
    fn choose(&self) -> rustix::io::Result<()> {
        match self {
            PidNamespace::Known(space) => enter_processes(space),
            // SAFETY: the flag does not touch the table of descriptors, which is what makes this call unsafe.
            PidNamespace::New => unsafe { unshare_unsafe(UnshareFlags::NEWPID) },
        }
    }

    fn by_ourselves(&self, own: &OwnedFd) -> rustix::io::Result<i32> {
        self.choose()?;
        let forked = fork(0);
        if forked != Ok(0) {
            enter_processes(own)?;
        }
        forked
    }

    fn by_another(&self) -> rustix::io::Result<i32> {
        let (told, tell) = pipe_with(PipeFlags::CLOEXEC)?;
        let go_between = match fork(0)? {
            0 => {
                drop(told);
                // As a child of our parent's.
                let forked = self.choose().and_then(|()| fork(libc::CLONE_PARENT));
                if forked == Ok(0) {
                    return forked;
                }
                let _ = write(&tell, &forked.unwrap_or_else(|error| -error.raw_os_error()).to_ne_bytes());
                // SAFETY: ends the process without running anything that belongs to its parent.
                unsafe { libc::_exit(0) }
            }
            pid => pid,
        };
        drop(tell);
        let mut number = [0; 4];
        let count = read(&told, &mut number);
        let _ = waitpid(Pid::from_raw(go_between), WaitOptions::empty());
        match count {
            Ok(4) => match i32::from_ne_bytes(number) {
                pid @ 1.. => Ok(pid),
                error => Err(Errno::from_raw_os_error(-error)),
            },
            _ => Err(Errno::CHILD),
        }
    }
}

/// As `fork` of the C library for a process of one thread, with more flags.
fn fork(flags: libc::c_int) -> rustix::io::Result<i32> {
    let flags = libc::c_long::from(flags | libc::SIGCHLD);
    // SAFETY: the child has whatever this process of one thread has, in a whole state, on a copy of its stack.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    match i32::try_from(pid) {
        Ok(pid @ 0..) => Ok(pid),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::AGAIN)),
    }
}
