//! How the end of a filter comes from the child that installs it to the shim that serves it.

use super::{Affinity, Guard, filter, notice};
use crate::world::start::Names;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::rc::Rc;

/// A way from a child to its parent.
pub struct Gate {
    ours: OwnedFd,
    theirs: OwnedFd,
}

/// The word after `kloop shim` by which this binary tries whether a filter can be had.
pub const TRY: &str = "try-network";

/// Whether pods can have a network of their own here: not where the kernel is too old for it, nor where a sandbox around us forbids it
/// or has a filter of this kind itself. `program` is this binary.
pub fn is_possible(program: &Path) -> bool {
    let mut command = Command::new(program);
    command.args(["shim", TRY]).env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The process that [`is_possible`] starts.
pub fn attempt() -> ExitCode {
    // As the processes of an ordinary user have it.
    let promised = rustix::process::geteuid().is_root() || rustix::thread::set_no_new_privs(true).is_ok();
    if promised && notice::may_look_into_others() && filter::install().is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

impl Gate {
    /// One for a child that is about to be forked.
    pub fn new() -> rustix::io::Result<Gate> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        Ok(Gate { ours, theirs })
    }

    /// In the child: from here on its calls are told of. Where that is not to be had, it stays on the host's network.
    pub fn enter(&self) {
        let Ok(listener) = filter::install() else { return };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds = [listener.as_fd()];
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        // Into an empty queue of our own it always goes.
        let _ = sendmsg(&self.theirs, &[IoSlice::new(b"!")], &mut ancillary, SendFlags::NOSIGNAL);
    }

    /// In the parent, once the child runs its program: the guard of a pod of this address, in a cluster with this folder; `affinity` is the pod's. None when there is no filter.
    pub fn guard(self, own: Ipv4Addr, state: &Path, names: Names, affinity: Rc<Affinity>) -> Option<Guard> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        recvmsg(&self.ours, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC).ok()?;
        let listener = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        })?;
        Some(Guard::new(listener, own, state, names, affinity))
    }
}
