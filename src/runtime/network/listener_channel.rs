//! Passes the listener of a filter from the child that installs it to the shim that serves it.

use super::super::send_descriptors::{receive_one, send_with};
use super::super::trial;
use super::{FilterListener, SessionAffinity, filter, seccomp_notify};
use crate::object::io_error_text;
use crate::world::start::DnsTarget;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair};
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
        // Never blocks: the queue of a new socket is empty.
        send_with(&self.theirs, b"!", &[listener.as_fd()], SendFlags::empty()).map(drop).map_err(failed)
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
        let listener = receive_one(&self.ours).ok()??;
        Some(FilterListener::new(listener, own, state, names, affinity))
    }
}
