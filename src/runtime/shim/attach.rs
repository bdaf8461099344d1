//! Whoever is attached to a running container: what it writes goes to them, too, and what they type is its input.
//!
//! As container runtimes do it: input that ends closes the container's own when it was to be read once (`stdinOnce`) and is no
//! terminal, and else ends the attachment; the container lives on in any case. Who is attached and does not read holds the
//! container's output up, as a pipe would.

use super::super::pty;
use super::super::wire::{Answer, Attach, Size};
use super::{Live, Shim};
use crate::object::cause;
use rustix::event::{PollFd, PollFlags};
use rustix::io::{Errno, read, write};
use std::io;
use std::os::fd::OwnedFd;

/// Maximum output buffered for an attached client before the container must wait.
const HELD: usize = 256 * 1024;

/// Somebody in front of a container.
pub struct Attached {
    client: u64,
    /// The container's main process.
    pid: i32,
    input: Option<OwnedFd>,
    /// For standard output and standard error.
    outlets: [Pipe; 2],
    over: bool,
}

/// A writing end, and what waits for room in it.
#[derive(Default)]
struct Pipe {
    fd: Option<OwnedFd>,
    pending: Vec<u8>,
}

/// The writing end of a container's standard input.
pub struct Inlet {
    pipe: Pipe,
    /// Nothing more will come.
    ends: bool,
}

/// Reason for watching a descriptor.
pub enum Watched {
    /// Somebody's input or outputs.
    Of(u64),
    /// A container's input.
    Input(i32),
}

impl Pipe {
    /// A writing end that does not wait.
    fn new(fd: OwnedFd) -> io::Result<Pipe> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Pipe { fd: Some(fd), pending: Vec::new() })
    }

    /// Takes bytes in and passes on what there is room for; nobody at the other end takes them all.
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

    fn wanted(&self) -> Option<PollFd<'_>> {
        let fd = self.fd.as_ref().filter(|_| !self.pending.is_empty())?;
        Some(PollFd::new(fd, PollFlags::OUT))
    }
}

impl Inlet {
    /// Wraps a pipe or a terminal.
    pub fn new(fd: OwnedFd) -> io::Result<Inlet> {
        Ok(Inlet { pipe: Pipe::new(fd)?, ends: false })
    }
}

impl Attached {
    fn hear(&mut self, tag: &str, bytes: &[u8]) {
        self.outlets[usize::from(tag == "stderr")].put(bytes);
    }

    fn is_pressed(&self) -> bool {
        self.outlets.iter().any(|outlet| outlet.pending.len() > HELD)
    }

    fn is_done(&self) -> bool {
        self.over && self.outlets.iter().all(|outlet| outlet.pending.is_empty())
    }
}

/// Passes on what a container has just written.
pub fn tell(all: &mut [Attached], live: &Live, tag: &str, bytes: &[u8]) {
    all.iter_mut().filter(|one| one.pid == live.process.pid).for_each(|one| one.hear(tag, bytes));
}

/// Whether somebody who is attached has so much to read that the container has to wait.
pub fn is_held_up(all: &[Attached], live: &Live) -> bool {
    all.iter().any(|one| one.pid == live.process.pid && one.is_pressed())
}

impl Shim {
    pub(super) fn attach(&mut self, client: u64, attach: &Attach) {
        match self.start_attach(client, attach) {
            Ok(attached) => {
                self.attached.push(attached);
                self.tell(client, &Answer::Attached);
            }
            Err(why) => self.tell(client, &Answer::Refused { why, start: None }),
        }
    }

    fn start_attach(&mut self, client: u64, attach: &Attach) -> Result<Attached, String> {
        let asker = self.clients.iter_mut().find(|known| known.id == client).ok_or("nobody asks")?;
        let pipes = std::mem::take(&mut asker.descriptors);
        let [input, output, error] =
            <[OwnedFd; 3]>::try_from(pipes).map_err(|_| "three pipes have to come with an attachment")?;
        let at = self.running(&attach.container);
        let live = &self.live[at.ok_or_else(|| format!("container not found ({:?})", attach.container))?];
        let is_closed = live.stdin.as_ref().is_none_or(|inlet| inlet.ends);
        if attach.stdin && is_closed {
            return Err(format!("standard input of container {} is not open", attach.container));
        }
        let outlet = |fd| Pipe::new(fd).map_err(cause);
        rustix::io::ioctl_fionbio(&input, true).map_err(cause)?;
        let mut attached = Attached {
            client,
            pid: live.process.pid,
            input: attach.stdin.then_some(input),
            outlets: [outlet(output)?, outlet(error)?],
            over: false,
        };
        if attach.replay {
            live.log.replay(|tag, bytes| attached.hear(tag, bytes));
            live.streams.iter().for_each(|stream| attached.hear(stream.tag(), stream.held()));
        }
        Ok(attached)
    }

    /// The descriptors to watch for those who are attached.
    pub(super) fn watch_attached(&self) -> impl Iterator<Item = (PollFd<'_>, Watched)> {
        let outputs = self
            .attached
            .iter()
            .flat_map(|one| one.outlets.iter().filter_map(Pipe::wanted).map(move |fd| (fd, Watched::Of(one.client))));
        let may_type = |pid: i32| {
            let live = self.live.iter().find(|live| live.process.pid == pid);
            live.and_then(|live| live.stdin.as_ref()).is_none_or(|inlet| inlet.pipe.pending.is_empty())
        };
        let inputs = self.attached.iter().filter(move |one| may_type(one.pid)).filter_map(|one| {
            let input = one.input.as_ref()?;
            Some((PollFd::new(input, PollFlags::IN), Watched::Of(one.client)))
        });
        let inlets = self
            .live
            .iter()
            .filter_map(|live| Some((live.stdin.as_ref()?.pipe.wanted()?, Watched::Input(live.process.pid))));
        outputs.chain(inputs).chain(inlets)
    }

    pub(super) fn serve_attached(&mut self, watched: &Watched) {
        match watched {
            Watched::Input(pid) => {
                if let Some(live) = self.live.iter_mut().find(|live| live.process.pid == *pid) {
                    live.type_in(&[]);
                }
            }
            Watched::Of(client) => {
                for one in self.attached.iter_mut().filter(|one| one.client == *client) {
                    one.outlets.iter_mut().for_each(|outlet| outlet.put(&[]));
                    let live = self.live.iter_mut().find(|live| live.process.pid == one.pid);
                    one.read(live);
                }
            }
        }
    }

    /// Lets go of those whose container has ended, and of those who have gone.
    pub(super) fn settle_attached(&mut self) {
        for one in &mut self.attached {
            if !self.clients.iter().any(|client| client.id == one.client) {
                one.outlets = Default::default();
                // Pending input is read before the client is dropped.
                one.over |= one.input.is_none();
            }
        }
        let (done, left) = std::mem::take(&mut self.attached).into_iter().partition(Attached::is_done);
        self.attached = left;
        let done: Vec<Attached> = done;
        done.iter().for_each(|one| self.tell(one.client, &Answer::Detached));
    }

    pub(super) fn resize(&mut self, client: u64, size: Size) {
        let Some(one) = self.attached.iter().find(|one| one.client == client) else { return };
        let live = self.live.iter().find(|live| live.process.pid == one.pid && live.launch.tty);
        if let Some(terminal) = live.and_then(|live| live.streams.first()) {
            let _ = pty::resize(&terminal.fd, size);
        }
    }

    /// A container has ended: whoever is attached gets what is left to read, and then is let go.
    pub(super) fn detach_all(&mut self, live: &Live) {
        for one in self.attached.iter_mut().filter(|one| one.pid == live.process.pid) {
            (one.input, one.over) = (None, true);
        }
    }
}

impl Attached {
    /// Copies available input to the container.
    fn read(&mut self, live: Option<&mut Live>) {
        let (Some(input), Some(live)) = (&self.input, live) else { return };
        let mut block = [0; 16 * 1024];
        let typed = match read(input, &mut block[..]) {
            Err(Errno::AGAIN | Errno::INTR) => return,
            typed => typed.unwrap_or(0),
        };
        if typed > 0 {
            return live.type_in(&block[..typed]);
        }
        self.input = None;
        match live.launch.stdin_once && !live.launch.tty {
            true => live.end_input(),
            false => self.over = true,
        }
    }
}

impl Live {
    fn type_in(&mut self, bytes: &[u8]) {
        let Some(inlet) = &mut self.stdin else { return };
        inlet.pipe.put(bytes);
        if inlet.pipe.fd.is_none() || (inlet.ends && inlet.pipe.pending.is_empty()) {
            self.stdin = None;
        }
    }

    fn end_input(&mut self) {
        if let Some(inlet) = &mut self.stdin {
            inlet.ends = true;
        }
        self.type_in(&[]);
    }
}
