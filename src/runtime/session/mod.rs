//! A command beside a container, or the container itself, for whoever sits in front of it: `exec`, `attach`, and what stands on them.
//!
//! The pod's shim does it; nothing else needs to run. Files, pipes and sockets of ours become a command's own standard input, output
//! and error, so that nothing of them is copied. A terminal of ours never does: with [`SessionStreams::terminal`] the command gets a new
//! one, made where the container's files are, whose other side comes to us, and else pipes. Of a container itself the shim reads and
//! logs the outputs, and passes them on through pipes.
//! Start reading at [`run`] and [`attach`].

mod copying;
mod terminal;

use super::process::{self, ProcessIdentity};
use super::wire::{
    self, AttachRequest, ExecOutcome, RequestEnvelope, ShimAnswer, ShimRecord, ShimRequest, TerminalSize,
};
use super::{folder, pty, spawn};
use copying::CopyDirection;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sendmsg,
    socketpair,
};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::stdio::{stderr, stdin, stdout};
use rustix::termios::isatty;
use signal_hook::consts::SIGPIPE;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};
use terminal::Terminal;

/// A shim that has not read a request after this was stopped or frozen.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks whether it has, at most.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// The client's streams that the command gets.
#[derive(Clone, Copy)]
pub struct SessionStreams {
    /// Our standard input, or nothing to read.
    pub stdin: bool,
    /// A terminal of its own, which ours shows; ours has to be one.
    pub terminal: bool,
}

/// End of a session.
#[derive(Debug, PartialEq)]
pub enum SessionEnd {
    /// The command, with this code.
    Exited(i32),
    /// The container that we were attached to has ended, or there is nothing more to type.
    Detached,
    /// The container does not run.
    Missing,
    /// It was not started, or its shim has gone.
    Failed(String),
    /// We were told to end, by this signal.
    Told(i32),
}

/// Whether our standard input is a terminal.
pub fn is_terminal() -> bool {
    isatty(stdin())
}

/// Runs a command beside a running container of a pod, with our standard input, output and error.
pub fn run(
    state: &Path,
    uid: &str,
    container: &str,
    argv: &[String],
    streams: SessionStreams,
) -> io::Result<SessionEnd> {
    let Some(mut shim) = ShimConnection::connect(state, uid, container)? else { return Ok(SessionEnd::Missing) };
    let size = if streams.terminal { Terminal::size() } else { TerminalSize::default() };
    let (container, argv) = (container.to_owned(), argv.to_vec());
    let session = ShimRequest::Session(wire::SessionRequest { container, argv, terminal: streams.terminal, size });
    if !streams.terminal {
        let (stdio, copies) = on_pipes(streams.stdin)?;
        shim.send_request(session, stdio)?;
        return shim.attend(copies, None);
    }
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    shim.send_request(session, [theirs])?;
    // Without one the command was not started, and the shim tells why.
    let Ok(screen) = pty::receive(&ours) else { return shim.attend(Vec::new(), None) };
    rustix::io::ioctl_fionbio(&screen, true)?;
    let copies = vec![
        CopyDirection::new(duplicate(stdin())?, screen.try_clone()?, false),
        CopyDirection::new(screen.try_clone()?, duplicate(stdout())?, true),
    ];
    let terminal = Terminal::raw()?;
    let fit = |_: &OwnedFd, size: TerminalSize| Ok(pty::resize(&screen, size)?);
    fit(&shim.socket, Terminal::size())?;
    shim.attend(copies, Some((&terminal, &fit)))
}

/// Settings for attaching to a container.
#[derive(Clone, Copy)]
pub struct AttachMode {
    /// The attached streams.
    pub streams: SessionStreams,
    /// Whether what it has written before comes first.
    pub replay: bool,
    /// For a container with a terminal: the end of our standard input is typed as Ctrl-D, and the outputs are shown until the container
    /// ends. Otherwise the session ends with our standard input.
    pub types_end: bool,
}

/// Attaches our standard input, output and error to a running container; `ready` is called when we are.
pub fn attach(
    state: &Path,
    uid: &str,
    container: &str,
    joining: AttachMode,
    ready: impl FnOnce(),
) -> io::Result<SessionEnd> {
    let Some(mut shim) = ShimConnection::connect(state, uid, container)? else { return Ok(SessionEnd::Missing) };
    let AttachMode { streams, replay, types_end } = joining;
    let mut copies = Vec::new();
    let mut lay = |own: BorrowedFd, is_output: bool| -> io::Result<OwnedFd> {
        let (theirs, copy) = laid(own, is_output)?;
        copies.push(copy);
        Ok(theirs)
    };
    let input = if streams.stdin { lay(stdin(), false)? } else { spawn::nothing()? };
    let pipes = [input, lay(stdout(), true)?, lay(stderr(), true)?];
    if types_end {
        copies.iter_mut().filter(|copy| !copy.is_output).for_each(|copy| copy.types_end = true);
    }
    let attach = AttachRequest { container: container.to_owned(), stdin: streams.stdin, replay };
    shim.send_request(ShimRequest::Attach(attach), pipes)?;
    match shim.next_answer()? {
        ShimAnswer::Attached => ready(),
        other => return Ok(ended(&other).unwrap_or_else(unheard)),
    }
    if !streams.terminal {
        return shim.attend(copies, None);
    }
    let terminal = Terminal::raw()?;
    let fit = |socket: &OwnedFd, size| send(socket, ShimRequest::Resize(size), &[]);
    let size = Terminal::size();
    // One line more and back again, as kubectl does it: whatever draws on the terminal draws it anew.
    fit(&shim.socket, TerminalSize { rows: size.rows.saturating_add(1), columns: size.columns.saturating_add(1) })?;
    fit(&shim.socket, size)?;
    shim.attend(copies, Some((&terminal, &fit)))
}

fn on_pipes(with_input: bool) -> io::Result<([OwnedFd; 3], Vec<CopyDirection>)> {
    let mut copies = Vec::new();
    let mut shared = |own: BorrowedFd, is_output: bool| -> io::Result<OwnedFd> {
        if !isatty(own) {
            return duplicate(own);
        }
        let (theirs, copy) = laid(own, is_output)?;
        copies.push(copy);
        Ok(theirs)
    };
    let input = if with_input { shared(stdin(), false)? } else { spawn::nothing()? };
    let stdio = [input, shared(stdout(), true)?, shared(stderr(), true)?];
    Ok((stdio, copies))
}

/// A pipe between one of our streams and somebody else: their end, and what is to be copied.
fn laid(own: BorrowedFd, is_output: bool) -> io::Result<(OwnedFd, CopyDirection)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    let (ours, theirs) = if is_output { (read, write) } else { (write, read) };
    rustix::io::ioctl_fionbio(&ours, true)?;
    let own = duplicate(own)?;
    Ok((theirs, if is_output { CopyDirection::new(ours, own, true) } else { CopyDirection::new(own, ours, false) }))
}

fn duplicate(fd: BorrowedFd) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, 3)?)
}

/// A connection to the shim of a pod.
struct ShimConnection {
    socket: OwnedFd,
    process: Option<ProcessIdentity>,
    inbox: Vec<u8>,
}

/// Callback that passes the size of the client's terminal.
type ResizeCallback<'a> = &'a dyn Fn(&OwnedFd, TerminalSize) -> io::Result<()>;

impl ShimConnection {
    /// None when the container does not run.
    fn connect(state: &Path, uid: &str, container: &str) -> io::Result<Option<ShimConnection>> {
        let record = folder::read_record(&folder::pod(state, uid)).filter(|_| folder::is_plain_name(uid));
        let runs = |record: &ShimRecord| record.containers.get(container).and_then(|known| known.process()).is_some();
        let Some(record) = record.filter(runs) else { return Ok(None) };
        let shim = |socket| ShimConnection { socket, process: record.shim, inbox: Vec::new() };
        let until = Instant::now() + PATIENCE;
        loop {
            match folder::dial(&folder::pod(state, uid)).map(shim) {
                Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                    return Ok(None);
                }
                // As many wait already as may wait.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < until => {
                    std::thread::sleep(LONGEST_PAUSE);
                }
                shim => {
                    let mut shim = shim?;
                    shim.check_alive()?;
                    return Ok(Some(shim));
                }
            }
        }
    }

    /// Waits for a sign of life: a stopped shim would hold descriptors that were sent to it open, and whoever reads their other sides
    /// would wait for it. A shim of an older program refuses the request, which is a sign as well.
    fn check_alive(&mut self) -> io::Result<()> {
        send(&self.socket, ShimRequest::Ping, &[])?;
        let until = Instant::now() + PATIENCE;
        loop {
            match self.read_answer()? {
                Some(ShimAnswer::Refused { why, .. }) if why == GONE => {
                    return Err(io::Error::new(io::ErrorKind::ConnectionReset, GONE));
                }
                Some(_) => return Ok(()),
                None if Instant::now() >= until => {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, self.silence()));
                }
                None => self.wait_readable(until)?,
            }
        }
    }

    /// Waits until there is something to read, or this moment has come.
    fn wait_readable(&self, until: Instant) -> io::Result<()> {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&timeout)) {
            Err(Errno::INTR) => Ok(()),
            found => Ok(found.map(drop)?),
        }
    }

    /// From here on the shim alone has the descriptors: when it closes them they end. `ETIMEDOUT` when it does not take the request.
    fn send_request<const N: usize>(&mut self, request: ShimRequest, descriptors: [OwnedFd; N]) -> io::Result<()> {
        rustix::io::ioctl_fionbio(&self.socket, false)?;
        send(&self.socket, request, &descriptors.each_ref().map(|fd| fd.as_fd()))?;
        let until = Instant::now() + PATIENCE;
        let mut pause = Duration::from_micros(100);
        while is_unread(&self.socket) {
            if Instant::now() >= until {
                return Err(io::Error::new(io::ErrorKind::TimedOut, self.silence()));
            }
            let timeout = Timespec { tv_sec: 0, tv_nsec: pause.subsec_nanos().into() };
            match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&timeout)) {
                Ok(0) | Err(Errno::INTR) => {}
                // It has answered, or gone: that is seen where its answers are.
                found => return found.map(|_| ()).map_err(io::Error::from),
            }
            pause = LONGEST_PAUSE.min(pause * 2);
        }
        Ok(())
    }

    /// Says that the shim does not answer, and why if that can be seen.
    fn silence(&self) -> String {
        let pid = self.process.map_or(String::new(), |process| format!(" (pid {})", process.pid));
        let is_stopped = self.process.is_some_and(|process| process::is_stopped(process.pid));
        let help = match (is_stopped, self.process) {
            (true, Some(process)) => format!(": it is stopped; run `kill -CONT {}`", process.pid),
            _ => ": it is frozen, or the machine is very busy".to_owned(),
        };
        format!("timed out: the pod's shim{pid} has not answered for {} s{help}", PATIENCE.as_secs())
    }

    /// Waits for what it says next; that it has gone is an answer, too.
    fn next_answer(&mut self) -> io::Result<ShimAnswer> {
        loop {
            if let Some(answer) = self.read_answer()? {
                return Ok(answer);
            }
            match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], None) {
                Err(Errno::INTR) => {}
                found => drop(found?),
            }
        }
    }

    /// Copies what is to be copied until the shim says how it ended.
    fn attend(
        &mut self,
        mut copies: Vec<CopyDirection>,
        terminal: Option<(&Terminal, ResizeCallback)>,
    ) -> io::Result<SessionEnd> {
        // A shim ends an attachment to a terminal when its input is closed.
        let mut held = Vec::new();
        loop {
            while let Some(answer) = self.read_answer()? {
                if let Some(ended) = ended(&answer) {
                    // All output is buffered by now; other processes that hold the outputs open are not waited for.
                    copies.iter_mut().filter(|copy| copy.is_output).for_each(CopyDirection::drain);
                    return Ok(ended);
                }
            }
            let mut fds = vec![PollFd::new(&self.socket, PollFlags::IN)];
            fds.extend(terminal.map(|(terminal, _)| PollFd::new(&terminal.signals, PollFlags::IN)));
            let first = fds.len();
            fds.extend(copies.iter().map(CopyDirection::poll_fd));
            match poll(&mut fds, None) {
                Err(Errno::INTR) => continue,
                found => found?,
            };
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            drop(fds);
            for (copy, _) in copies.iter_mut().zip(&ready[first..]).filter(|(_, ready)| **ready) {
                copy.step();
            }
            // A client whose output nobody reads any more leaves, and does not block the container.
            if copies.iter().any(|copy| copy.is_output && copy.broken) {
                return Ok(SessionEnd::Told(SIGPIPE));
            }
            let (over, left): (Vec<_>, Vec<_>) = copies.into_iter().partition(|copy| copy.over);
            copies = left;
            held.extend(over.into_iter().filter(|copy| copy.types_end && !copy.broken));
            if let Some((terminal, fit)) = terminal.filter(|_| ready[1]) {
                if let Some(signal) = terminal.heed() {
                    return Ok(SessionEnd::Told(signal));
                }
                // A process that has ended meanwhile reports that itself.
                let _ = fit(&self.socket, Terminal::size());
            }
        }
    }

    /// Reads the next answer, if there is one.
    fn read_answer(&mut self) -> io::Result<Option<ShimAnswer>> {
        let refused = |why: &str| ShimAnswer::Refused { why: why.into(), start: None };
        let mut block = [0; 4096];
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.inbox) {
                let line: Vec<u8> = self.inbox.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line).unwrap_or_else(|_| refused(FOREIGN))));
            }
            match rustix::net::recv(&self.socket, &mut block[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) | Err(Errno::CONNRESET) => return Ok(Some(refused(GONE))),
                Ok((read, _)) => self.inbox.extend_from_slice(&block[..read]),
                Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Whether the other side has not read all that was sent to it. Where that cannot be asked, it has.
fn is_unread(socket: &OwnedFd) -> bool {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one number into a live variable.
    let asked = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    asked == 0 && bytes > 0
}

/// Sends a request. It is small: a fresh socket takes it whole, or hardly less.
fn send(socket: &OwnedFd, request: ShimRequest, descriptors: &[BorrowedFd]) -> io::Result<()> {
    let line = wire::line(&RequestEnvelope { epoch: 0, request });
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let mut sent = sendmsg(socket, &[IoSlice::new(&line)], &mut ancillary, SendFlags::NOSIGNAL)?;
    while sent < line.len() {
        sent += rustix::net::send(socket, &line[sent..], SendFlags::NOSIGNAL)?;
    }
    Ok(())
}

const GONE: &str = "the pod's shim has gone";
const FOREIGN: &str = "its shim speaks another language: delete the pod, a new one gets a new shim";

fn unheard() -> SessionEnd {
    SessionEnd::Failed(FOREIGN.into())
}

/// The end that an answer tells of, if it does.
fn ended(answer: &ShimAnswer) -> Option<SessionEnd> {
    match answer {
        ShimAnswer::ExecDone { outcome: ExecOutcome::Exited(code), .. } => Some(SessionEnd::Exited(*code)),
        ShimAnswer::ExecDone { outcome: ExecOutcome::Failed(why), .. } | ShimAnswer::Refused { why, .. } => {
            Some(SessionEnd::Failed(why.clone()))
        }
        ShimAnswer::Detached => Some(SessionEnd::Detached),
        ShimAnswer::Attached => None,
        _ => Some(unheard()),
    }
}
