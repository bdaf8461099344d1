//! Sessions of a client on another machine: its streams are descriptors for an asynchronous runtime.
//!
//! The shim gets pipes, or makes a terminal for the command, as in local sessions. When a [`RemoteSession`] is dropped, the shim ends the
//! command or the attachment.

use super::SessionEnd;
use super::connection::{ShimConnection, ended, incompatible_shim, send};
use crate::object::io_error_text;
use crate::runtime::wire::{AttachRequest, SessionRequest, ShimAnswer, ShimRequest, TerminalSize};
use crate::runtime::{pty, spawn};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use tokio::io::unix::AsyncFd;

/// The streams that a client asks for.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestedStreams {
    /// Standard input.
    pub stdin: bool,
    /// Standard output.
    pub stdout: bool,
    /// Standard error; not available with a terminal.
    pub stderr: bool,
    /// A terminal.
    pub tty: bool,
}

/// A session that was opened and is not registered with a runtime yet; can be sent to another thread.
pub struct OpenedSession {
    shim: ShimConnection,
    input: Option<OwnedFd>,
    outputs: [Option<OwnedFd>; 2],
    /// The master side of the command's terminal.
    screen: Option<OwnedFd>,
}

/// Starts a command in a running container. Blocks until the shim answers, so call it on a thread that may block.
pub fn open_command(
    state: &Path,
    uid: &str,
    container: &str,
    argv: Vec<String>,
    streams: RequestedStreams,
) -> io::Result<Result<OpenedSession, SessionEnd>> {
    let Some(mut shim) = ShimConnection::connect(state, uid, container)? else { return Ok(Err(SessionEnd::Missing)) };
    let (terminal, size) = (streams.tty, TerminalSize::default());
    let session = ShimRequest::Session(SessionRequest { container: container.to_owned(), argv, terminal, size });
    if !terminal {
        let (theirs, input, outputs) = lay_pipes(streams)?;
        shim.send_request(session, theirs)?;
        return Ok(Ok(OpenedSession { shim, input, outputs, screen: None }));
    }
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    shim.send_request(session, [theirs])?;
    let Ok(screen) = pty::receive(&ours) else {
        // The shim's answer has the reason why the command was not started.
        let answer = shim.next_answer()?;
        return Ok(Err(ended(&answer).unwrap_or_else(incompatible_shim)));
    };
    rustix::io::ioctl_fionbio(&screen, true)?;
    let input = streams.stdin.then(|| screen.try_clone()).transpose()?;
    let output = streams.stdout.then(|| screen.try_clone()).transpose()?;
    Ok(Ok(OpenedSession { shim, input, outputs: [output, None], screen: Some(screen) }))
}

/// Attaches to a running container. Blocks, as [`open_command`] does.
pub fn open_attachment(
    state: &Path,
    uid: &str,
    container: &str,
    streams: RequestedStreams,
) -> io::Result<Result<OpenedSession, SessionEnd>> {
    let Some(mut shim) = ShimConnection::connect(state, uid, container)? else { return Ok(Err(SessionEnd::Missing)) };
    let (theirs, input, outputs) = lay_pipes(streams)?;
    let attach = AttachRequest { container: container.to_owned(), stdin: streams.stdin, replay: false };
    shim.send_request(ShimRequest::Attach(attach), theirs)?;
    match shim.next_answer()? {
        ShimAnswer::Attached => Ok(Ok(OpenedSession { shim, input, outputs, screen: None })),
        other => Ok(Err(ended(&other).unwrap_or_else(incompatible_shim))),
    }
}

type LaidPipes = ([OwnedFd; 3], Option<OwnedFd>, [Option<OwnedFd>; 2]);

/// Makes pipes for the streams: the command's ends, and our nonblocking ends.
fn lay_pipes(streams: RequestedStreams) -> io::Result<LaidPipes> {
    let make = |is_wanted: bool, is_output: bool| -> io::Result<(OwnedFd, Option<OwnedFd>)> {
        if !is_wanted {
            return Ok((spawn::open_dev_null()?, None));
        }
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        let (ours, theirs) = if is_output { (read, write) } else { (write, read) };
        rustix::io::ioctl_fionbio(&ours, true)?;
        Ok((theirs, Some(ours)))
    };
    let (stdin, input) = make(streams.stdin, false)?;
    let (stdout, output) = make(streams.stdout, true)?;
    let (stderr, error) = make(streams.stderr, true)?;
    Ok(([stdin, stdout, stderr], input, [output, error]))
}

/// Registers a descriptor with this thread's runtime.
fn register(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor belongs to the result alone, is open as long as that is, and its number does not change.
    Ok(unsafe { AsyncFd::register(fd) }?)
}

/// One stream of a session.
pub struct SessionStream(AsyncFd<OwnedFd>);

impl SessionStream {
    /// Waits for data and reads it; 0 at the end.
    pub async fn read(&self, block: &mut [u8]) -> usize {
        loop {
            let Ok(mut ready) = self.0.readable().await else { return 0 };
            match rustix::io::read(&self.0, &mut *block) {
                Ok(read) => return read,
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                // Reading a terminal whose other side is closed everywhere fails.
                Err(_) => return 0,
            }
        }
    }

    /// Reads without waiting; 0 when there is no data.
    pub fn read_available(&self, block: &mut [u8]) -> usize {
        loop {
            match rustix::io::read(&self.0, &mut *block) {
                Err(Errno::INTR) => {}
                read => return read.unwrap_or(0),
            }
        }
    }

    /// Waits for room and writes as much as fits.
    pub async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.0.writable().await?;
            match rustix::io::write(&self.0, bytes) {
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                written => return Ok(written?),
            }
        }
    }
}

/// A session of a client on another machine.
pub struct RemoteSession {
    /// Input of the command, which reads its end when this is dropped.
    pub input: Option<SessionStream>,
    /// Standard output and standard error.
    pub outputs: [Option<SessionStream>; 2],
    /// Connection to the shim.
    pub control: SessionControl,
}

/// Connection of a session to its shim.
pub struct SessionControl {
    shim: ShimConnection,
    answers: AsyncFd<OwnedFd>,
    screen: Option<OwnedFd>,
}

impl RemoteSession {
    /// Registers a session with this thread's runtime.
    pub fn new(opened: OpenedSession) -> io::Result<RemoteSession> {
        let OpenedSession { shim, input, outputs, screen } = opened;
        let stream = |fd: Option<OwnedFd>| fd.map(|fd| register(fd).map(SessionStream)).transpose();
        let [output, error] = outputs;
        rustix::io::ioctl_fionbio(&shim.socket, true)?;
        let answers = register(shim.socket.try_clone()?)?;
        let control = SessionControl { shim, answers, screen };
        Ok(RemoteSession { input: stream(input)?, outputs: [stream(output)?, stream(error)?], control })
    }
}

impl SessionControl {
    /// Waits for the end of the session.
    pub async fn wait_for_end(&mut self) -> SessionEnd {
        let failed = |error: io::Error| SessionEnd::Failed(io_error_text(error));
        loop {
            let mut ready = match self.answers.readable().await {
                Ok(ready) => ready,
                Err(error) => return failed(error),
            };
            match self.shim.read_answer() {
                Ok(Some(answer)) => {
                    if let Some(end) = ended(&answer) {
                        return end;
                    }
                }
                Ok(None) => ready.clear_ready(),
                Err(error) => return failed(error),
            }
        }
    }

    /// Passes on the size of the client's terminal. Without effect once the command has ended.
    pub fn resize(&self, size: TerminalSize) -> io::Result<()> {
        let resized = match &self.screen {
            Some(screen) => pty::resize(screen.as_fd(), size).map_err(io::Error::from),
            None => send(&self.shim.socket, ShimRequest::Resize(size), &[]),
        };
        match resized {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Ok(()),
            resized => resized,
        }
    }
}
