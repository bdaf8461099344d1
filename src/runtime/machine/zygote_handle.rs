//! Starts a pod's shim through a zygote, a small process that shims are forked from.

use super::super::send_descriptors::send_with;
use super::super::{folder, spawn};
use super::MachineContext;
use anyhow::{Context as _, Result};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, WaitOptions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// A zygote that belongs to one thread. It is started when it is first needed, and restarted after it has died.
#[derive(Default)]
pub struct ZygoteHandle(Option<(OwnedFd, Pid)>);

impl ZygoteHandle {
    /// Asks the zygote for a shim and returns the connection to it, which can be used at once; `None` when the zygote is busy.
    pub fn start_shim(&mut self, context: &MachineContext, uid: &str) -> Result<Option<OwnedFd>> {
        let path = folder::pod_path(&context.state, uid);
        folder::private_folder(&path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        for _ in 0..2 {
            let control = self.connection(context)?;
            match send(control, path.as_os_str().as_bytes(), &theirs) {
                Ok(()) => return Ok(Some(ours)),
                Err(Errno::AGAIN | Errno::TOOMANYREFS) => return Ok(None),
                Err(_) => self.reap_zygote(),
            }
        }
        anyhow::bail!("the zygote process exits immediately after its start")
    }

    /// Returns the connection to the zygote, which is started if necessary.
    pub fn connection(&mut self, context: &MachineContext) -> Result<&OwnedFd> {
        if self.0.is_none() {
            let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
            let child = spawn::spawn_helper(&context.program, &[b"shim"], theirs.as_fd(), false)
                .with_context(|| format!("cannot execute {}", context.program.display()))?;
            self.0 = Some((ours, child));
        }
        let (control, _) = self.0.as_ref().context("the zygote is not running")?;
        Ok(control)
    }

    fn reap_zygote(&mut self) {
        if let Some((control, child)) = self.0.take() {
            drop(control);
            let _ = rustix::process::waitpid(Some(child), WaitOptions::empty());
        }
    }
}

impl Drop for ZygoteHandle {
    /// Closes the connection, which ends the zygote. Its shims continue.
    fn drop(&mut self) {
        self.reap_zygote();
    }
}

fn send(control: &OwnedFd, folder: &[u8], theirs: &OwnedFd) -> rustix::io::Result<()> {
    send_with(control, folder, &[theirs.as_fd()], SendFlags::DONTWAIT).map(drop)
}
