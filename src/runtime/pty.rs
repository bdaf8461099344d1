//! New terminals, made among the files that a container sees, so that their names are valid there.
//!
//! The process makes the terminal before exec, because only then is it in the container's view of `/dev/pts`. The master side goes to the
//! client over a socket. Start reading at [`open`].

use super::send_descriptors::{receive_one, send_with};
use super::user;
use super::wire::TerminalSize;
use crate::object::io_error_text;
use crate::world::ContainerUser;
use rustix::fs::{Uid, fchown};
use rustix::net::SendFlags;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// A request for a terminal.
#[derive(Clone, Copy)]
pub struct PtyRequest<'a> {
    /// Destination of its master side.
    pub to: &'a OwnedFd,
    /// Its size.
    pub size: TerminalSize,
}

/// Makes a terminal and sends its master side. It belongs to `user` when that differs from ours. Returns the program's side.
pub fn open(asked: PtyRequest, user: Option<&ContainerUser>) -> Result<OwnedFd, String> {
    open_pty(asked, user).map_err(|error| format!("cannot make a terminal: {error}", error = io_error_text(error)))
}

fn open_pty(asked: PtyRequest, user: Option<&ContainerUser>) -> rustix::io::Result<OwnedFd> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = openpt(flags)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let theirs = ioctl_tiocgptpeer(&ours, flags)?;
    if let Some(user) = user {
        fchown(&theirs, Some(Uid::from_raw(user::identity(user).user)), None)?;
    }
    resize(&ours, asked.size)?;
    send_with(asked.to, b"t", &[ours.as_fd()], SendFlags::empty())?;
    Ok(theirs)
}

/// Receives the master side of a new terminal; waits for it unless the socket is nonblocking.
pub fn receive(from: &OwnedFd) -> io::Result<OwnedFd> {
    receive_one(from)?.ok_or_else(|| io::Error::other("the shim sent no terminal"))
}

/// Sets the size of a terminal, which the kernel reports to its programs. An unknown size changes nothing.
pub fn resize(terminal: impl AsFd, size: TerminalSize) -> rustix::io::Result<()> {
    if size == TerminalSize::default() {
        return Ok(());
    }
    tcsetwinsize(terminal, Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 })
}
