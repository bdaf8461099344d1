//! The connection to one shim, from the control plane's side: never waits.

use super::super::wire::{self, RequestEnvelope, ShimAnswer, ShimRecord, ShimRequest, VERSION};
use rustix::net::{RecvFlags, SendFlags};
use std::os::fd::OwnedFd;
use std::time::Instant;

/// An answer longer than this is not from one of kloop's shims.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// Bytes that are received at once: most answers are shorter.
const BLOCK: usize = 8 * 1024;

/// State of a connection.
#[derive(Clone, Copy, PartialEq)]
pub enum LinkState {
    /// Open.
    Stays,
    /// Closed by the other side.
    Gone,
    /// The other side speaks another protocol.
    Foreign,
}

/// Progress of parking a shim.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ParkState {
    /// The shim reports on this connection.
    Reporting,
    /// The shim was asked to park. The connection is closed when it answers.
    Asked,
    /// The shim was asked to park and then got another request. It has not yet answered the first request.
    Withdrawn,
    /// The shim is of an earlier version, which cannot be parked.
    Impossible,
}

/// An open connection.
pub struct ShimLink {
    /// Its socket.
    pub socket: OwnedFd,
    /// The number by which `epoll` names the socket.
    pub token: u64,
    /// Start of the connection.
    pub since: Instant,
    /// Whether the shim has identified itself in this protocol version.
    pub greeted: bool,
    /// Time of the last message in either direction.
    pub used: Instant,
    /// Progress of parking.
    pub park_state: ParkState,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
}

impl ShimLink {
    /// A connection without messages yet.
    pub fn new(socket: OwnedFd, token: u64) -> ShimLink {
        let now = Instant::now();
        let (inbox, outbox) = (Vec::new(), Vec::new());
        let park_state = ParkState::Reporting;
        ShimLink { socket, token, since: now, greeted: false, used: now, park_state, inbox, outbox }
    }

    /// Queues a request and sends as much as the socket accepts; [`ShimLink::flush`] sends the rest. A broken socket is detected when
    /// it is read.
    /// A shim that was asked to park is first asked to report here again.
    pub fn send(&mut self, epoch: u64, request: ShimRequest) {
        if self.park_state == ParkState::Asked {
            self.park_state = ParkState::Withdrawn;
            self.outbox.extend(wire::line(&RequestEnvelope { epoch, request: ShimRequest::Hello(None) }));
        }
        self.queue(epoch, request);
    }

    /// Asks the shim to park and to announce later changes on this socket of the state folder.
    pub fn ask_to_park(&mut self, epoch: u64, socket: &str) {
        self.park_state = ParkState::Asked;
        self.queue(epoch, ShimRequest::Park { socket: socket.to_owned() });
    }

    fn queue(&mut self, epoch: u64, request: ShimRequest) {
        self.used = Instant::now();
        self.outbox.extend(wire::line(&RequestEnvelope { epoch, request }));
        self.flush();
    }

    /// Whether the shim reports here and has received every request.
    pub fn can_park(&self) -> bool {
        self.greeted && self.park_state == ParkState::Reporting && self.outbox.is_empty()
    }

    /// Sends as much as the socket accepts; true when something is left.
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

    /// Reads all bytes that have arrived, because `epoll` reports new bytes only once. Returns the answers and the state of the connection.
    pub fn read(&mut self) -> (Vec<ShimAnswer>, LinkState) {
        let mut block = [0; BLOCK];
        let mut link_state = loop {
            match rustix::net::recv(&self.socket, &mut block[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => break LinkState::Gone,
                Ok((read, _)) => self.inbox.extend_from_slice(&block[..read]),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => break LinkState::Stays,
                Err(_) => break LinkState::Gone,
            }
        };
        self.used = Instant::now();
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
        if self.inbox.len() > MAX_ANSWER_BYTES {
            link_state = LinkState::Foreign;
        }
        (answers, link_state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[test]
    fn request_after_a_park_has_the_shim_report_again_first() {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let mut link = ShimLink::new(ours, 1);
        assert!(!link.can_park(), "the shim has not greeted");
        link.greeted = true;
        assert!(link.can_park());
        link.ask_to_park(7, "parked-0.sock");
        assert!(!link.can_park(), "it was asked");
        link.send(7, ShimRequest::Ping);
        link.send(7, ShimRequest::Ping);
        assert!(link.park_state == ParkState::Withdrawn && !link.can_park(), "the first answer is still to come");
        let mut block = [0; 4096];
        let (read, _) = rustix::net::recv(&theirs, &mut block[..], RecvFlags::empty()).unwrap();
        let requests = block[..read].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let requests: Vec<RequestEnvelope> = requests.map(|line| serde_json::from_slice(line).unwrap()).collect();
        let requests: Vec<&ShimRequest> = requests.iter().map(|envelope| &envelope.request).collect();
        assert!(matches!(
            requests[..],
            [ShimRequest::Park { .. }, ShimRequest::Hello(None), ShimRequest::Ping, ShimRequest::Ping]
        ));
    }
}
