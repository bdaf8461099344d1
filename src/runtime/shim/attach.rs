//! Clients that are attached to a running container: they receive its output, and their input is its standard input.
//!
//! As in container runtimes, the end of a client's input closes the container's input with `stdinOnce` and without a terminal; otherwise it
//! ends only the attachment. The container keeps running in any case. A client that does not read blocks the container's output, as a
//! pipe would.

use super::super::pty;
use super::super::session::container_not_found;
use super::super::wire::{AttachRequest, ShimAnswer, TerminalSize};
use super::{LiveContainer, Shim};
use crate::object::io_error_text;
use rustix::event::{PollFd, PollFlags};
use rustix::io::{Errno, read, write};
use std::io;
use std::os::fd::OwnedFd;

/// Maximum output buffered for an attached client before the container must wait.
const HELD: usize = 256 * 1024;

/// A client that is attached to a container.
pub struct AttachedClient {
    client: u64,
    /// The container's main process.
    pid: i32,
    input: Option<OwnedFd>,
    /// For standard output and standard error.
    outlets: [BufferedPipe; 2],
    over: bool,
}

/// The writing end of a pipe, and a buffer for output that the pipe does not accept yet.
#[derive(Default)]
struct BufferedPipe {
    fd: Option<OwnedFd>,
    pending: Vec<u8>,
}

/// The writing end of a container's standard input.
pub struct StdinPipe {
    pipe: BufferedPipe,
    /// Whether the end of the input was requested; it is closed when the buffer is empty.
    ends: bool,
}

/// Reason for watching a descriptor.
pub enum WatchedFor {
    /// The input or outputs of this client.
    Of(u64),
    /// A container's input.
    Input(i32),
}

impl BufferedPipe {
    /// Makes the writing end non-blocking.
    fn new(fd: OwnedFd) -> io::Result<BufferedPipe> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(BufferedPipe { fd: Some(fd), pending: Vec::new() })
    }

    /// Queues bytes and writes as many as the pipe accepts; drops them all when the other end is closed.
    fn put(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        while let Some(fd) = self.fd.as_ref().filter(|_| !self.pending.is_empty()) {
            match write(fd, &self.pending) {
                Ok(written) => drop(self.pending.drain(..written)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => self.fd = None,
            }
        }
        if self.fd.is_none() {
            self.pending.clear();
        }
        self.pending.shrink_to(HELD);
    }

    fn poll_fd(&self) -> Option<PollFd<'_>> {
        let fd = self.fd.as_ref().filter(|_| !self.pending.is_empty())?;
        Some(PollFd::new(fd, PollFlags::OUT))
    }
}

impl StdinPipe {
    /// Wraps a pipe or a terminal.
    pub fn new(fd: OwnedFd) -> io::Result<StdinPipe> {
        Ok(StdinPipe { pipe: BufferedPipe::new(fd)?, ends: false })
    }
}

impl AttachedClient {
    fn send_output(&mut self, tag: &str, bytes: &[u8]) {
        self.outlets[usize::from(tag == "stderr")].put(bytes);
    }

    fn is_buffer_full(&self) -> bool {
        self.outlets.iter().any(|outlet| outlet.pending.len() > HELD)
    }

    fn is_done(&self) -> bool {
        self.over && self.outlets.iter().all(|outlet| outlet.pending.is_empty())
    }
}

/// Sends new output of a container to its attached clients.
pub fn send_output_to_all(all: &mut [AttachedClient], live: &LiveContainer, tag: &str, bytes: &[u8]) {
    all.iter_mut()
        .filter(|attached| attached.pid == live.process.pid)
        .for_each(|attached| attached.send_output(tag, bytes));
}

/// Whether the unread output of an attached client exceeds the limit, so that the container has to wait.
pub fn is_held_up(all: &[AttachedClient], live: &LiveContainer) -> bool {
    all.iter().any(|attached| attached.pid == live.process.pid && attached.is_buffer_full())
}

impl Shim {
    pub(super) fn attach(&mut self, client: u64, attach: &AttachRequest) {
        match self.start_attach(client, attach) {
            Ok(attached) => {
                self.attached.push(attached);
                self.send_to_client(client, &ShimAnswer::Attached);
            }
            Err(why) => self.send_to_client(client, &ShimAnswer::Refused { why, start: None }),
        }
    }

    fn start_attach(&mut self, client: u64, attach: &AttachRequest) -> Result<AttachedClient, String> {
        let requester =
            self.clients.iter_mut().find(|known| known.id == client).ok_or("the client has disconnected")?;
        let pipes = std::mem::take(&mut requester.descriptors);
        let [input, output, error] =
            <[OwnedFd; 3]>::try_from(pipes).map_err(|_| "an attach request must pass three pipes")?;
        let at = self.find_running(&attach.container);
        let live = &self.live[at.ok_or_else(|| container_not_found(&attach.container))?];
        // As in container runtimes, a container without an open standard input gets none of the client's.
        let is_open = live.stdin.as_ref().is_some_and(|stdin| !stdin.ends);
        let outlet = |fd| BufferedPipe::new(fd).map_err(io_error_text);
        rustix::io::ioctl_fionbio(&input, true).map_err(io_error_text)?;
        let mut attached = AttachedClient {
            client,
            pid: live.process.pid,
            input: (attach.stdin && is_open).then_some(input),
            outlets: [outlet(output)?, outlet(error)?],
            over: false,
        };
        if attach.replay {
            live.log.replay(|tag, bytes| attached.send_output(tag, bytes));
            live.streams.iter().for_each(|stream| attached.send_output(stream.tag(), stream.unfinished_line()));
        }
        Ok(attached)
    }

    /// Returns the descriptors to watch for attached clients.
    pub(super) fn watch_attached(&self) -> impl Iterator<Item = (PollFd<'_>, WatchedFor)> {
        let outputs = self.attached.iter().flat_map(|attached| {
            attached
                .outlets
                .iter()
                .filter_map(BufferedPipe::poll_fd)
                .map(move |fd| (fd, WatchedFor::Of(attached.client)))
        });
        let can_write = |pid: i32| {
            let live = self.live.iter().find(|live| live.process.pid == pid);
            live.and_then(|live| live.stdin.as_ref()).is_none_or(|stdin| stdin.pipe.pending.is_empty())
        };
        let inputs = self.attached.iter().filter(move |attached| can_write(attached.pid)).filter_map(|attached| {
            let input = attached.input.as_ref()?;
            Some((PollFd::new(input, PollFlags::IN), WatchedFor::Of(attached.client)))
        });
        let stdins = self
            .live
            .iter()
            .filter_map(|live| Some((live.stdin.as_ref()?.pipe.poll_fd()?, WatchedFor::Input(live.process.pid))));
        outputs.chain(inputs).chain(stdins)
    }

    pub(super) fn serve_attached(&mut self, watched: &WatchedFor) {
        match watched {
            WatchedFor::Input(pid) => {
                if let Some(live) = self.live.iter_mut().find(|live| live.process.pid == *pid) {
                    live.write_stdin(&[]);
                }
            }
            WatchedFor::Of(client) => {
                for attached in self.attached.iter_mut().filter(|attached| attached.client == *client) {
                    attached.outlets.iter_mut().for_each(|outlet| outlet.put(&[]));
                    let live = self.live.iter_mut().find(|live| live.process.pid == attached.pid);
                    attached.read(live);
                }
            }
        }
    }

    /// Removes clients whose container has ended or whose connection is closed.
    pub(super) fn settle_attached(&mut self) {
        for attached in &mut self.attached {
            if !self.clients.iter().any(|client| client.id == attached.client) {
                attached.outlets = Default::default();
                // Pending input is read before the client is dropped.
                attached.over |= attached.input.is_none();
            }
        }
        let (done, left) = std::mem::take(&mut self.attached).into_iter().partition(AttachedClient::is_done);
        self.attached = left;
        let done: Vec<AttachedClient> = done;
        done.iter().for_each(|attached| self.send_to_client(attached.client, &ShimAnswer::Detached));
    }

    pub(super) fn resize(&mut self, client: u64, size: TerminalSize) {
        let Some(attached) = self.attached.iter().find(|attached| attached.client == client) else { return };
        let live = self.live.iter().find(|live| live.process.pid == attached.pid && live.launch.tty);
        if let Some(terminal) = live.and_then(|live| live.streams.first()) {
            let _ = pty::resize(&terminal.fd, size);
        }
    }

    /// Detaches all clients of a container that has ended, once they have read the remaining output.
    pub(super) fn detach_all(&mut self, live: &LiveContainer) {
        for attached in self.attached.iter_mut().filter(|attached| attached.pid == live.process.pid) {
            (attached.input, attached.over) = (None, true);
        }
    }
}

impl AttachedClient {
    /// Copies available input to the container.
    fn read(&mut self, live: Option<&mut LiveContainer>) {
        let (Some(input), Some(live)) = (&self.input, live) else { return };
        let mut block = [0; 16 * 1024];
        let count = match read(input, &mut block[..]) {
            Err(Errno::AGAIN | Errno::INTR) => return,
            count => count.unwrap_or(0),
        };
        if count > 0 {
            return live.write_stdin(&block[..count]);
        }
        self.input = None;
        match live.launch.stdin_once && !live.launch.tty {
            true => live.end_input(),
            false => self.over = true,
        }
    }
}

impl LiveContainer {
    fn write_stdin(&mut self, bytes: &[u8]) {
        let Some(stdin) = &mut self.stdin else { return };
        stdin.pipe.put(bytes);
        if stdin.pipe.fd.is_none() || (stdin.ends && stdin.pipe.pending.is_empty()) {
            self.stdin = None;
        }
    }

    fn end_input(&mut self) {
        if let Some(stdin) = &mut self.stdin {
            stdin.ends = true;
        }
        self.write_stdin(&[]);
    }
}
