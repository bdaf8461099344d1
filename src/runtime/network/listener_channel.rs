//! Passes the listener of a filter from the child that installs it to the shim that serves it.

use super::super::trial;
use super::{FilterListener, SessionAffinity, filter, seccomp_notify};
use crate::object::io_error_text;
use crate::world::start::DnsTarget;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;

/// A socket pair from a child to its parent.
pub struct ListenerChannel {
    ours: OwnedFd,
    theirs: OwnedFd,
}

/// The word after `kloop shim` with which this binary tries whether the filter can be installed.
pub const TRY: &str = "try-network";

/// Whether pods can have their own network on this machine. Not possible on old kernels, nor in a sandbox that forbids the filter or uses
/// one of this kind itself. `program` is this binary.
pub fn is_possible(program: &Path) -> bool {
    trial::is_possible(program, TRY)
}

/// Body of the process that [`is_possible`] starts.
pub fn attempt() -> ExitCode {
    let filter = || {
        // Like the processes of an ordinary user.
        if !rustix::process::geteuid().is_root() {
            rustix::thread::set_no_new_privs(true)?;
        }
        seccomp_notify::try_access_to_child()?;
        filter::install().map(drop)
    };
    trial::exit_code(filter().map_err(Into::into))
}

impl ListenerChannel {
    /// Makes a channel for a child that is about to be forked.
    pub fn new() -> rustix::io::Result<ListenerChannel> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        Ok(ListenerChannel { ours, theirs })
    }

    /// Called in the child: installs the filter and sends its listener. After an error the child must not continue, because it would be on
    /// the machine's network.
    pub fn enter(&self) -> Result<(), String> {
        let failed = |error: Errno| format!("cannot join the pod's network: {error}", error = io_error_text(error));
        let listener = filter::install().map_err(failed)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds = [listener.as_fd()];
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        // Never blocks: the queue of a new socket is empty.
        sendmsg(&self.theirs, &[IoSlice::new(b"!")], &mut ancillary, SendFlags::NOSIGNAL).map(drop).map_err(failed)
    }

    /// Called in the parent once the child runs its program: returns the filter's server for the pod with this address, in the cluster with
    /// this folder; `affinity` is the pod's. `None` when there is no filter.
    pub fn into_filter_server(
        self,
        own: Ipv4Addr,
        state: &Path,
        names: DnsTarget,
        affinity: Rc<SessionAffinity>,
    ) -> Option<FilterListener> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        recvmsg(&self.ours, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC).ok()?;
        let listener = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        })?;
        Some(FilterListener::new(listener, own, state, names, affinity))
    }
}
