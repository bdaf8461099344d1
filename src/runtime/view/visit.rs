//! A visit of another mount namespace: this process enters it, works there, and returns.
//!
//! Only a process with one thread may visit, and only one that may enter its own namespace again: root can, an ordinary user cannot,
//! because entering the other namespace leaves the user namespace of the machine. Never: forks, which would take longer than the work in
//! the namespace.

use super::{describe_error, space_of_ours};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::fchdir;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::os::fd::{AsFd, OwnedFd};

/// The place to return to.
pub struct Home {
    mounts: OwnedFd,
    folder: OwnedFd,
}

impl Home {
    /// Returns the own mount namespace and working folder of this process; `None` where it could not return.
    pub fn if_may_return() -> Option<Home> {
        let mounts = space_of_ours("mnt").ok()?;
        let folder = openat(CWD, ".", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let home = Home { mounts, folder };
        // Entering the own namespace needs the same permissions as returning to it.
        home.enter().is_ok().then_some(home)
    }

    /// Runs `work`, which enters another mount namespace, and returns.
    pub fn visit<T>(&self, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        let result = work();
        self.enter().map_err(describe_error("return to its mount namespace")).and(result)
    }

    fn enter(&self) -> rustix::io::Result<()> {
        move_into_link_name_space(self.mounts.as_fd(), Some(LinkNameSpaceType::Mount))?;
        // Entering a namespace changes the working folder to its root.
        fchdir(&self.folder)
    }
}
