//! Starting a pod's shim.

use super::super::{folder, spawn};
use super::Context;
use anyhow::{Context as _, Result};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::Pid;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// Starts a shim in the pod's folder with one end of a socket pair as its standard input: it can be spoken to at once.
pub fn spawn(context: &Context, uid: &str) -> Result<(OwnedFd, Pid)> {
    let path = folder::pod(&context.state, uid);
    folder::private_folder(&path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let nothing = openat(CWD, "/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let program = spawn::Program {
        path: CString::new(context.program.as_os_str().as_bytes())?,
        argv: vec![c"kloop".to_owned(), c"shim".to_owned(), CString::new(uid)?],
        env: Vec::new(),
        cwd: CString::new(path.as_os_str().as_bytes())?,
        stdio: [theirs.as_fd(), nothing.as_fd(), nothing.as_fd()],
    };
    let child = spawn::spawn(&program).with_context(|| format!("cannot execute {}", context.program.display()))?;
    Ok((ours, child))
}
