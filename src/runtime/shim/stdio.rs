//! Standard input, output and error of a container: a terminal, or pipes and `/dev/null`.

use super::super::pty::{self, PtyRequest};
use super::super::spawn::{UserAndGroups, nothing};
use super::super::wire::TerminalSize;
use super::attach::StdinPipe;
use super::log::OutputStream;
use rustix::fs::{Gid, Uid, fchown};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use std::io;
use std::os::fd::OwnedFd;

/// Both ends, laid before the start.
pub enum StdioPipes {
    /// The terminal is made by the process that becomes the container; our side of it comes back over a socket.
    Terminal {
        /// For all that the terminal takes the place of.
        nothing: OwnedFd,
        /// Reading end.
        from: OwnedFd,
        /// Writing end.
        to: OwnedFd,
    },
    /// Pipes, one for each output.
    Pipes {
        /// The container's ends.
        theirs: [OwnedFd; 3],
        /// The other ends of its outputs.
        outputs: [OwnedFd; 2],
        /// The other end of its input, unless that is nothing.
        input: Option<OwnedFd>,
    },
}

impl StdioPipes {
    /// Lays them.
    pub fn lay(tty: bool, stdin: bool) -> io::Result<StdioPipes> {
        if tty {
            let (from, to) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
            return Ok(StdioPipes::Terminal { nothing: nothing()?, from, to });
        }
        let (out, stdout) = pipe_with(PipeFlags::CLOEXEC)?;
        let (err, stderr) = pipe_with(PipeFlags::CLOEXEC)?;
        let (input, ours) = match stdin {
            true => pipe_with(PipeFlags::CLOEXEC).map(|(read, write)| (read, Some(write)))?,
            false => (nothing()?, None),
        };
        Ok(StdioPipes::Pipes { theirs: [input, stdout, stderr], outputs: [out, err], input: ours })
    }

    /// Returns the container's ends.
    pub fn container_ends(&self) -> [&OwnedFd; 3] {
        match self {
            StdioPipes::Terminal { nothing, .. } => [nothing; 3],
            StdioPipes::Pipes { theirs, .. } => theirs.each_ref(),
        }
    }

    /// Makes its pipes the container's user's, who may then open them again by their names, as in `/proc/1/fd/1`. Nobody but root can,
    /// and what is not a pipe is nobody's to give.
    pub fn give_to(&self, who: &UserAndGroups) {
        if let StdioPipes::Pipes { theirs: [input, out, err], input: ours, .. } = self {
            let pipes = ours.is_some().then_some(input).into_iter().chain([out, err]);
            for pipe in pipes {
                let _ = fchown(pipe, Some(Uid::from_raw(who.user)), Some(Gid::from_raw(who.group)));
            }
        }
    }

    /// The terminal that is to be made. Its size is told by those who attach.
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
