//! The connection to one shim, from the control plane's side: never waits.

use super::super::wire::{self, RequestEnvelope, ShimAnswer, ShimRecord, ShimRequest, VERSION};
use rustix::net::{RecvFlags, SendFlags};
use std::os::fd::OwnedFd;
use std::time::Instant;

/// An answer longer than this is no shim's of ours.
const LONGEST: usize = 64 * 1024 * 1024;

/// State of a connection.
#[derive(Clone, Copy, PartialEq)]
pub enum LinkState {
    /// There is more to come.
    Stays,
    /// The other side has closed it.
    Gone,
    /// Another language is spoken there.
    Foreign,
}

/// An open connection.
pub struct ShimLink {
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

impl ShimLink {
    /// A connection on which nothing was said yet.
    pub fn new(socket: OwnedFd, token: u64) -> ShimLink {
        ShimLink { socket, token, since: Instant::now(), greeted: false, inbox: Vec::new(), outbox: Vec::new() }
    }

    /// Queues a request and sends what the socket takes; the rest follows with [`ShimLink::flush`]. A broken socket shows when it is read.
    pub fn send(&mut self, epoch: u64, request: ShimRequest) {
        self.outbox.extend(wire::line(&RequestEnvelope { epoch, request }));
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
    pub fn read(&mut self) -> (Vec<ShimAnswer>, LinkState) {
        let mut block = [0; 64 * 1024];
        let mut link_state = loop {
            match rustix::net::recv(&self.socket, &mut block[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => break LinkState::Gone,
                Ok((read, _)) => self.inbox.extend_from_slice(&block[..read]),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => break LinkState::Stays,
                Err(_) => break LinkState::Gone,
            }
        };
        let mut answers = Vec::new();
        let mut from = 0;
        while let Some(end) = memchr::memchr(b'\n', &self.inbox[from..]) {
            match serde_json::from_slice(&self.inbox[from..from + end]) {
                Ok(ShimAnswer::State(ShimRecord { version, .. })) if version != VERSION => {
                    link_state = LinkState::Foreign
                }
                Ok(answer) => {
                    self.greeted |= matches!(answer, ShimAnswer::State(_));
                    answers.push(answer);
                }
                Err(_) => link_state = LinkState::Foreign,
            }
            from += end + 1;
        }
        self.inbox.drain(..from);
        if self.inbox.len() > LONGEST {
            link_state = LinkState::Foreign;
        }
        (answers, link_state)
    }
}
