//! Sessions of a client in a container: a command in it (`exec`), or its main process (`attach`), and commands that build on these.
//!
//! The pod's shim runs them; no control plane is needed. The client's files, pipes and sockets become the command's standard input, output
//! and error directly, without copying. A terminal of the client never does: with [`SessionStreams::terminal`] the command gets a new
//! terminal, made among the container's files, whose master side the client copies; otherwise it gets pipes. When attaching, the shim reads
//! and logs the container's outputs, and passes them on through pipes.
//! Start reading at [`run`] and [`attach`].

mod connection;
mod copying;
mod detach_keys;
mod remote;
mod terminal;

pub use super::wire::TerminalSize;
use super::wire::{self, AttachRequest, ShimAnswer, ShimRequest};
use super::{pty, spawn};
use connection::{ShimConnection, ended, incompatible_shim, send};
use copying::CopyDirection;
pub use detach_keys::{DEFAULT_DETACH_KEYS, DetachKeys};
pub use remote::{RemoteSession, RequestedStreams, SessionStream, open_attachment, open_command};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::stdio::{stderr, stdin, stdout};
use rustix::termios::isatty;
use signal_hook::consts::SIGPIPE;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
pub use terminal::Terminal;

/// The client's streams that the command gets.
#[derive(Clone, Copy)]
pub struct SessionStreams {
    /// The client's standard input; otherwise empty input.
    pub stdin: bool,
    /// Whether the command gets a new terminal; the client's standard input then has to be a terminal, too.
    pub terminal: bool,
}

/// End of a session.
#[derive(Debug, PartialEq)]
pub enum SessionEnd {
    /// The command exited with this code.
    Exited(i32),
    /// The attached container has ended, or the client's input has.
    Detached,
    /// The container does not run.
    Missing,
    /// The command was not started, or the shim has exited.
    Failed(String),
    /// A signal ended the client.
    Signaled(i32),
}

/// The error for a container that does not run.
pub fn container_not_found(container: &str) -> String {
    format!("container not found ({container:?})")
}

/// The error of a session in a container that does not run.
pub fn session_not_possible(container: &str) -> String {
    format!("unable to upgrade connection: {}", container_not_found(container))
}

/// Whether our standard input is a terminal.
pub fn is_terminal() -> bool {
    isatty(stdin())
}

/// Runs a command in a running container of a pod, with our standard input, output and error.
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
        return copy_until_end(&mut shim, copies, None);
    }
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    shim.send_request(session, [theirs])?;
    // Without a terminal the command was not started, and the shim's answer has the reason.
    let Ok(screen) = pty::receive(&ours) else { return copy_until_end(&mut shim, Vec::new(), None) };
    rustix::io::ioctl_fionbio(&screen, true)?;
    let copies = vec![
        CopyDirection::new(duplicate(stdin())?, screen.try_clone()?, false),
        CopyDirection::new(screen.try_clone()?, duplicate(stdout())?, true),
    ];
    let terminal = Terminal::raw()?;
    let fit = |_: &OwnedFd, size: TerminalSize| Ok(pty::resize(&screen, size)?);
    fit(&shim.socket, Terminal::size())?;
    copy_until_end(&mut shim, copies, Some((&terminal, &fit)))
}

/// Settings for attaching to a container.
#[derive(Clone, Copy)]
pub struct AttachMode {
    /// The attached streams.
    pub streams: SessionStreams,
    /// Whether the client gets earlier output first.
    pub replay: bool,
    /// For a container with a terminal: the end of our standard input is typed as Ctrl-D, and the outputs are shown until the container
    /// ends. Otherwise the session ends with our standard input.
    pub types_end: bool,
    /// The keys that end the session, in a terminal.
    pub detach: DetachKeys,
}

/// Attaches our standard input, output and error to a running container. Calls `ready` once attached.
pub fn attach(
    state: &Path,
    uid: &str,
    container: &str,
    joining: AttachMode,
    ready: impl FnOnce(),
) -> io::Result<SessionEnd> {
    let Some(mut shim) = ShimConnection::connect(state, uid, container)? else { return Ok(SessionEnd::Missing) };
    let AttachMode { streams, replay, types_end, detach } = joining;
    let mut copies = Vec::new();
    let mut create_pipe = |own: BorrowedFd, is_output: bool| -> io::Result<OwnedFd> {
        let (theirs, copy) = stream_pipe(own, is_output)?;
        copies.push(copy);
        Ok(theirs)
    };
    let input = if streams.stdin { create_pipe(stdin(), false)? } else { spawn::open_dev_null()? };
    let pipes = [input, create_pipe(stdout(), true)?, create_pipe(stderr(), true)?];
    if types_end {
        copies.iter_mut().filter(|copy| !copy.is_output).for_each(|copy| copy.types_end = true);
    }
    if streams.terminal {
        copies.iter_mut().filter(|copy| !copy.is_output).for_each(|copy| copy.detach = Some(detach));
    }
    let attach = AttachRequest { container: container.to_owned(), stdin: streams.stdin, replay };
    shim.send_request(ShimRequest::Attach(attach), pipes)?;
    match shim.next_answer()? {
        ShimAnswer::Attached => ready(),
        other => return Ok(ended(&other).unwrap_or_else(incompatible_shim)),
    }
    if !streams.terminal {
        return copy_until_end(&mut shim, copies, None);
    }
    let terminal = Terminal::raw()?;
    let fit = |socket: &OwnedFd, size| send(socket, ShimRequest::Resize(size), &[]);
    let size = Terminal::size();
    // Resizes by one line and back, as kubectl does, so that full-screen programs redraw.
    fit(&shim.socket, TerminalSize { rows: size.rows.saturating_add(1), columns: size.columns.saturating_add(1) })?;
    fit(&shim.socket, size)?;
    copy_until_end(&mut shim, copies, Some((&terminal, &fit)))
}

fn on_pipes(with_input: bool) -> io::Result<([OwnedFd; 3], Vec<CopyDirection>)> {
    let mut copies = Vec::new();
    let mut shared = |own: BorrowedFd, is_output: bool| -> io::Result<OwnedFd> {
        if !isatty(own) {
            return duplicate(own);
        }
        let (theirs, copy) = stream_pipe(own, is_output)?;
        copies.push(copy);
        Ok(theirs)
    };
    let input = if with_input { shared(stdin(), false)? } else { spawn::open_dev_null()? };
    let stdio = [input, shared(stdout(), true)?, shared(stderr(), true)?];
    Ok((stdio, copies))
}

/// Makes a pipe for one of our streams: returns the shim's end, and the direction to copy.
fn stream_pipe(own: BorrowedFd, is_output: bool) -> io::Result<(OwnedFd, CopyDirection)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    let (ours, theirs) = if is_output { (read, write) } else { (write, read) };
    rustix::io::ioctl_fionbio(&ours, true)?;
    let own = duplicate(own)?;
    Ok((theirs, if is_output { CopyDirection::new(ours, own, true) } else { CopyDirection::new(own, ours, false) }))
}

fn duplicate(fd: BorrowedFd) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, 3)?)
}

/// Callback that passes the size of the client's terminal.
type ResizeCallback<'a> = &'a dyn Fn(&OwnedFd, TerminalSize) -> io::Result<()>;

/// Copies data until the shim reports the end of the session.
fn copy_until_end(
    shim: &mut ShimConnection,
    mut copies: Vec<CopyDirection>,
    terminal: Option<(&Terminal, ResizeCallback)>,
) -> io::Result<SessionEnd> {
    // Kept open: a shim ends an attachment to a terminal when its input is closed.
    let mut held = Vec::new();
    loop {
        while let Some(answer) = shim.read_answer()? {
            if let Some(ended) = ended(&answer) {
                // All output is buffered by now; other processes that keep the outputs open are not waited for.
                copies.iter_mut().filter(|copy| copy.is_output).for_each(CopyDirection::drain);
                return Ok(ended);
            }
        }
        let mut fds = vec![PollFd::new(&shim.socket, PollFlags::IN)];
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
        // The session ends when the client's output is closed, so that the container is not blocked.
        if copies.iter().any(|copy| copy.is_output && copy.broken) {
            return Ok(SessionEnd::Signaled(SIGPIPE));
        }
        let (over, left): (Vec<_>, Vec<_>) = copies.into_iter().partition(|copy| copy.over);
        copies = left;
        held.extend(over.into_iter().filter(|copy| copy.types_end && !copy.broken));
        if let Some((terminal, fit)) = terminal.filter(|_| ready[1]) {
            if let Some(signal) = terminal.take_end_signal() {
                return Ok(SessionEnd::Signaled(signal));
            }
            // The shim of a container that has ended meanwhile reports the end itself.
            let _ = fit(&shim.socket, Terminal::size());
        }
    }
}
