//! The connection to one shim, from the control plane's side: never waits.

use super::super::wire::{self, Answer, Envelope, Record, Request, VERSION};
use rustix::net::{RecvFlags, SendFlags};
use std::os::fd::OwnedFd;
use std::time::Instant;

/// An answer longer than this is no shim's of ours.
const LONGEST: usize = 64 * 1024 * 1024;

/// State of a connection.
#[derive(Clone, Copy, PartialEq)]
pub enum Fate {
    /// There is more to come.
    Stays,
    /// The other side has closed it.
    Gone,
    /// Another language is spoken there.
    Foreign,
}

/// An open connection.
pub struct Link {
    /// Its socket.
    pub socket: OwnedFd,
    /// By which `epoll` names it.
    pub token: u64,
    /// Since when.
    pub since: Instant,
    /// The shim has said in our language who it is.
    pub greeted: bool,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
}

impl Link {
    /// A connection on which nothing was said yet.
    pub fn new(socket: OwnedFd, token: u64) -> Link {
        Link { socket, token, since: Instant::now(), greeted: false, inbox: Vec::new(), outbox: Vec::new() }
    }

    /// Queues a request and sends what the socket takes; the rest follows with [`Link::flush`]. A broken socket shows when it is read.
    pub fn send(&mut self, epoch: u64, request: Request) {
        self.outbox.extend(wire::line(&Envelope { epoch, request }));
        self.flush();
    }

    /// Sends what the socket takes; true when something is left.
    pub fn flush(&mut self) -> bool {
        while !self.outbox.is_empty() {
            match rustix::net::send(&self.socket, &self.outbox, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) => drop(self.outbox.drain(..sent)),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return true,
                Err(_) => self.outbox.clear(),
            }
        }
        false
    }

    /// The answers that have come, and what becomes of the connection.
    pub fn read(&mut self) -> (Vec<Answer>, Fate) {
        let mut block = [0; 64 * 1024];
        let mut fate = loop {
            match rustix::net::recv(&self.socket, &mut block[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => break Fate::Gone,
                Ok((read, _)) => self.inbox.extend_from_slice(&block[..read]),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => break Fate::Stays,
                Err(_) => break Fate::Gone,
            }
        };
        let mut answers = Vec::new();
        let mut from = 0;
        while let Some(end) = memchr::memchr(b'\n', &self.inbox[from..]) {
            match serde_json::from_slice(&self.inbox[from..from + end]) {
                Ok(Answer::State(Record { version, .. })) if version != VERSION => fate = Fate::Foreign,
                Ok(answer) => {
                    self.greeted |= matches!(answer, Answer::State(_));
                    answers.push(answer);
                }
                Err(_) => fate = Fate::Foreign,
            }
            from += end + 1;
        }
        self.inbox.drain(..from);
        if self.inbox.len() > LONGEST {
            fate = Fate::Foreign;
        }
        (answers, fate)
    }
}
