//! Standard input, output and error of a container: a terminal, or pipes and `/dev/null`.

use super::super::pty::{self, PtyRequest};
use super::super::spawn::{UserAndGroups, open_dev_null};
use super::super::wire::TerminalSize;
use super::attach::StdinPipe;
use super::log::OutputStream;
use rustix::fs::{Gid, Uid, fchown};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use std::io;
use std::os::fd::OwnedFd;

/// Both ends of the standard streams, created before the start.
pub enum StdioPipes {
    /// A terminal. The process that becomes the container opens it, and sends the master side to the shim over a socket.
    Terminal {
        /// `/dev/null` for the three streams, until the terminal replaces them.
        dev_null: OwnedFd,
        /// The shim's end of the socket.
        from: OwnedFd,
        /// The container's end of the socket.
        to: OwnedFd,
    },
    /// Pipes, one for each output.
    Pipes {
        /// The container's ends of the pipes.
        theirs: [OwnedFd; 3],
        /// The shim's ends of the outputs.
        outputs: [OwnedFd; 2],
        /// The shim's end of the input; `None` when the input is `/dev/null`.
        input: Option<OwnedFd>,
    },
}

impl StdioPipes {
    /// Creates the pipes, or the socket for the terminal.
    pub fn create(tty: bool, stdin: bool) -> io::Result<StdioPipes> {
        if tty {
            let (from, to) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
            return Ok(StdioPipes::Terminal { dev_null: open_dev_null()?, from, to });
        }
        let (out, stdout) = pipe_with(PipeFlags::CLOEXEC)?;
        let (err, stderr) = pipe_with(PipeFlags::CLOEXEC)?;
        let (input, ours) = match stdin {
            true => pipe_with(PipeFlags::CLOEXEC).map(|(read, write)| (read, Some(write)))?,
            false => (open_dev_null()?, None),
        };
        Ok(StdioPipes::Pipes { theirs: [input, stdout, stderr], outputs: [out, err], input: ours })
    }

    /// Returns the container's ends.
    pub fn container_ends(&self) -> [&OwnedFd; 3] {
        match self {
            StdioPipes::Terminal { dev_null, .. } => [dev_null; 3],
            StdioPipes::Pipes { theirs, .. } => theirs.each_ref(),
        }
    }

    /// Changes the owner of the pipes to the container's user, who can then reopen them by path (`/proc/1/fd/1`). Only root can do that, so
    /// errors are ignored. The owner of `/dev/null` stays.
    pub fn change_owner(&self, owner: &UserAndGroups) {
        if let StdioPipes::Pipes { theirs: [input, out, err], input: ours, .. } = self {
            let pipes = ours.is_some().then_some(input).into_iter().chain([out, err]);
            for pipe in pipes {
                let _ = fchown(pipe, Some(Uid::from_raw(owner.user)), Some(Gid::from_raw(owner.group)));
            }
        }
    }

    /// Returns the request for a terminal; `None` for pipes. Clients that attach set its size.
    pub fn terminal(&self) -> Option<PtyRequest<'_>> {
        match self {
            StdioPipes::Terminal { to, .. } => Some(PtyRequest { to, size: TerminalSize::default() }),
            StdioPipes::Pipes { .. } => None,
        }
    }

    /// Returns the shim's ends: the outputs, and the input when it stays open.
    pub fn into_own_ends(self, stdin: bool) -> io::Result<(Vec<OutputStream>, Option<StdinPipe>)> {
        let (streams, input) = match self {
            StdioPipes::Terminal { from, .. } => {
                let terminal = pty::receive(&from)?;
                let input = if stdin { Some(terminal.try_clone()?) } else { None };
                (vec![OutputStream::new(terminal, "stdout")], input)
            }
            StdioPipes::Pipes { outputs: [out, err], input, .. } => {
                (vec![OutputStream::new(out, "stdout"), OutputStream::new(err, "stderr")], input)
            }
        };
        for stream in &streams {
            rustix::io::ioctl_fionbio(&stream.fd, true)?;
        }
        Ok((streams, input.map(StdinPipe::new).transpose()?))
    }
}
