//! The connection to one shim, from the control plane's side: never waits.

use super::super::wire::{self, Answer, Envelope, Request};
use rustix::net::{RecvFlags, SendFlags};
use std::os::fd::OwnedFd;

/// An open connection.
pub struct Link {
    /// Its socket.
    pub socket: OwnedFd,
    /// By which `epoll` names it.
    pub token: u64,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
}

impl Link {
    /// A connection on which nothing was said yet.
    pub fn new(socket: OwnedFd, token: u64) -> Link {
        Link { socket, token, inbox: Vec::new(), outbox: Vec::new() }
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

    /// The answers that have come, and whether the other side is gone.
    pub fn read(&mut self) -> (Vec<Answer>, bool) {
        let mut block = [0; 64 * 1024];
        let gone = loop {
            match rustix::net::recv(&self.socket, &mut block[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => break true,
                Ok((read, _)) => self.inbox.extend_from_slice(&block[..read]),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => break false,
                Err(_) => break true,
            }
        };
        let mut answers = Vec::new();
        let mut from = 0;
        while let Some(end) = memchr::memchr(b'\n', &self.inbox[from..]) {
            // A line of a later version that this one cannot read is passed over: the state that follows every change is what counts.
            answers.extend(serde_json::from_slice(&self.inbox[from..from + end]));
            from += end + 1;
        }
        self.inbox.drain(..from);
        (answers, gone)
    }
}
