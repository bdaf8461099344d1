//! A command beside a container for whoever sits in front of it: `exec`, and what stands on it.
//!
//! The pod's shim starts it and tells its exit code; nothing else needs to run. Files, pipes and sockets of ours become the command's
//! own standard input, output and error, so that nothing of them is copied. A terminal of ours never does: with [`Streams::terminal`]
//! the command gets a new one, whose other side we hold, and else pipes.
//! Start reading at [`run`].

mod copying;
mod terminal;

use super::wire::{self, Answer, Envelope, ExecOutcome, Request};
use super::{folder, spawn};
use copying::Copy;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::termios::isatty;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use terminal::Terminal;

/// Which of our streams the command gets.
#[derive(Clone, Copy)]
pub struct Streams {
    /// Our standard input, or nothing to read.
    pub stdin: bool,
    /// A terminal of its own, which ours shows; ours has to be one.
    pub terminal: bool,
}

/// How a session ended.
#[derive(Debug, PartialEq)]
pub enum Ended {
    /// The command, with this code.
    Exited(i32),
    /// The container does not run.
    Missing,
    /// It was not started, or its shim has gone.
    Failed(String),
    /// We were told to end, by this signal.
    Told(i32),
}

/// Whether our standard input is a terminal.
pub fn is_terminal() -> bool {
    isatty(rustix::stdio::stdin())
}

/// Runs a command beside a running container of a pod, with our standard input, output and error.
pub fn run(state: &Path, uid: &str, container: &str, argv: &[String], streams: Streams) -> io::Result<Ended> {
    let record = folder::read_record(&folder::pod(state, uid)).filter(|_| folder::is_plain_name(uid));
    if record.is_none_or(|record| record.containers.get(container).and_then(|known| known.process()).is_none()) {
        return Ok(Ended::Missing);
    }
    let socket = match folder::dial(&folder::pod(state, uid)) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Ok(Ended::Missing);
        }
        socket => socket?,
    };
    let (stdio, copies, terminal) = if streams.terminal { on_terminal()? } else { on_pipes(streams.stdin)? };
    let (container, argv) = (container.to_owned(), argv.to_vec());
    let session = wire::Session { container, argv, terminal: streams.terminal };
    ask(&socket, Request::Session(session), &stdio)?;
    // From here on the command alone has them: when it closes them they end.
    drop(stdio);
    attend(&socket, copies, terminal.as_ref())
}

type Laid = ([OwnedFd; 3], Vec<Copy>, Option<Terminal>);

fn on_terminal() -> io::Result<Laid> {
    let (terminal, theirs) = Terminal::open()?;
    let copies = vec![
        Copy::new(duplicate(rustix::stdio::stdin())?, terminal.ours.try_clone()?, false),
        Copy::new(terminal.ours.try_clone()?, duplicate(rustix::stdio::stdout())?, true),
    ];
    let stdio = [theirs.try_clone()?, theirs.try_clone()?, theirs];
    Ok((stdio, copies, Some(terminal)))
}

fn on_pipes(stdin: bool) -> io::Result<Laid> {
    let mut copies = Vec::new();
    let input = rustix::stdio::stdin();
    let input = match (stdin, isatty(input)) {
        (false, _) => spawn::nothing()?,
        (true, false) => duplicate(input)?,
        (true, true) => {
            let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
            rustix::io::ioctl_fionbio(&ours, true)?;
            copies.push(Copy::new(duplicate(input)?, ours, false));
            theirs
        }
    };
    let mut output = |own: BorrowedFd| -> io::Result<OwnedFd> {
        if !isatty(own) {
            return duplicate(own);
        }
        let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&ours, true)?;
        copies.push(Copy::new(ours, duplicate(own)?, true));
        Ok(theirs)
    };
    let stdio = [input, output(rustix::stdio::stdout())?, output(rustix::stdio::stderr())?];
    Ok((stdio, copies, None))
}

fn duplicate(fd: BorrowedFd) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, 3)?)
}

/// Sends a request with descriptors. It is small: a fresh socket takes it whole, or hardly less.
fn ask(socket: &OwnedFd, request: Request, stdio: &[OwnedFd; 3]) -> io::Result<()> {
    let line = wire::line(&Envelope { epoch: 0, request });
    let fds = stdio.each_ref().map(|fd| fd.as_fd());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    rustix::io::ioctl_fionbio(socket, false)?;
    let mut sent = sendmsg(socket, &[IoSlice::new(&line)], &mut ancillary, SendFlags::NOSIGNAL)?;
    while sent < line.len() {
        sent += rustix::net::send(socket, &line[sent..], SendFlags::NOSIGNAL)?;
    }
    Ok(())
}

/// Copies what is to be copied until the shim says how the command ended.
fn attend(socket: &OwnedFd, mut copies: Vec<Copy>, terminal: Option<&Terminal>) -> io::Result<Ended> {
    let mut inbox = Vec::new();
    loop {
        let mut fds = vec![PollFd::new(socket, PollFlags::IN)];
        fds.extend(terminal.map(|terminal| PollFd::new(&terminal.signals, PollFlags::IN)));
        let first = fds.len();
        fds.extend(copies.iter().map(Copy::wanted));
        match poll(&mut fds, None) {
            Err(Errno::INTR) => continue,
            found => found?,
        };
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        for (copy, _) in copies.iter_mut().zip(&ready[first..]).filter(|(_, ready)| **ready) {
            copy.step();
        }
        copies.retain(|copy| !copy.over);
        if let Some(signal) = terminal.filter(|_| ready[1]).and_then(Terminal::heed) {
            return Ok(Ended::Told(signal));
        }
        if ready[0]
            && let Some(ended) = hear(socket, &mut inbox)?
        {
            // What it has written is all there; who else holds its output is not waited for.
            copies.iter_mut().filter(|copy| copy.is_output).for_each(Copy::drain);
            return Ok(ended);
        }
    }
}

fn hear(socket: &OwnedFd, inbox: &mut Vec<u8>) -> io::Result<Option<Ended>> {
    let mut block = [0; 4096];
    match rustix::net::recv(socket, &mut block[..], RecvFlags::DONTWAIT) {
        Ok((0, _)) | Err(Errno::CONNRESET) => return Ok(Some(Ended::Failed("the pod's shim has gone".into()))),
        Ok((read, _)) => inbox.extend_from_slice(&block[..read]),
        Err(Errno::AGAIN | Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let Some(end) = memchr::memchr(b'\n', inbox) else { return Ok(None) };
    Ok(Some(match serde_json::from_slice(&inbox[..end]) {
        Ok(Answer::ExecDone { outcome: ExecOutcome::Exited(code), .. }) => Ended::Exited(code),
        Ok(Answer::ExecDone { outcome: ExecOutcome::Failed(why), .. } | Answer::Refused { why, .. }) => {
            Ended::Failed(why)
        }
        _ => Ended::Failed("its shim speaks another language: delete the pod, a new one gets a new shim".into()),
    }))
}
