//! Connections to the shim: lines in, lines out, without blocking on any client.

use super::super::send_descriptors::receive_with;
use super::super::wire::{self, RequestEnvelope, ShimAnswer};
use crate::object::io_error_text;
use rustix::net::{RecvFlags, SendFlags, sockopt};
use std::io;
use std::os::fd::OwnedFd;

/// Maximum length of a request; a longer one is invalid. A start has the files of the pod's volumes, at most 24 MiB, which base64 lengthens
/// by a third, and variables of at most 8 MiB.
const MAX_REQUEST_BYTES: usize = 64 * 1024 * 1024;
/// Number of bytes to receive at once. A new shim has a page fault for each page of a block.
const BLOCK: usize = 4 * 1024;
/// A client that lets this many bytes pile up is disconnected.
const BACKLOG: usize = 4 * 1024 * 1024;

/// A connection of a client.
pub struct ShimClient {
    /// Number of the connection.
    pub id: u64,
    /// Socket of the connection.
    pub socket: OwnedFd,
    /// Whether the client has sent `Hello`, so that it gets every change.
    pub subscribed: bool,
    /// Whether the connection is to be closed.
    pub gone: bool,
    /// Descriptors that came with the newest request.
    pub descriptors: Vec<OwnedFd>,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
}

impl ShimClient {
    /// Makes a connection without requests so far.
    pub fn new(id: u64, socket: OwnedFd) -> ShimClient {
        let (descriptors, inbox, outbox) = Default::default();
        ShimClient { id, socket, subscribed: false, gone: false, descriptors, inbox, outbox }
    }

    /// Whether bytes wait to be sent.
    pub fn has_more(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Reads the bytes that have arrived, and returns the complete requests.
    pub fn read(&mut self) -> Vec<RequestEnvelope> {
        let mut from = self.inbox.len();
        let mut block = [0; BLOCK];
        // Descriptors belong to the request with which they arrive, so the bytes after that request are received later.
        let is_within_request = |block: &[u8]| memchr::memchr(b'\n', block).is_none();
        while self.receive(&mut block) == BLOCK
            && (self.descriptors.is_empty() || is_within_request(&block))
            && self.inbox.len() <= MAX_REQUEST_BYTES
        {}
        let mut requests = Vec::new();
        while let Some(length) = memchr::memchr(b'\n', &self.inbox[from..]) {
            let end = from + length;
            match serde_json::from_slice(&self.inbox[..end]) {
                Ok(request) => requests.push(request),
                Err(error) => self.send(&ShimAnswer::Refused {
                    why: format!("cannot read the request: {error}", error = io_error_text(error)),
                    start: None,
                }),
            }
            self.inbox.drain(..=end);
            self.inbox.shrink_to(64 * 1024);
            from = 0;
        }
        self.gone |= self.inbox.len() > MAX_REQUEST_BYTES;
        requests
    }

    /// Receives bytes, and the descriptors that came with them. Returns the number of bytes.
    fn receive(&mut self, block: &mut [u8]) -> usize {
        let received = receive_with(&self.socket, block, RecvFlags::DONTWAIT);
        self.gone |= !matches!(received, Ok((1.., _)) | Err(rustix::io::Errno::AGAIN));
        let (read, descriptors) = received.unwrap_or_default();
        if !descriptors.is_empty() {
            self.descriptors = descriptors;
        }
        self.inbox.extend_from_slice(&block[..read]);
        read
    }

    /// Queues an answer and sends as much as the socket accepts.
    pub fn send(&mut self, answer: &ShimAnswer) {
        self.outbox.extend(wire::line(answer));
        self.flush();
        self.gone |= self.outbox.len() > BACKLOG;
    }

    /// Sends as much as the socket accepts.
    pub fn flush(&mut self) {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        while !self.outbox.is_empty() {
            match rustix::net::send(&self.socket, &self.outbox, flags) {
                Ok(sent) => drop(self.outbox.drain(..sent)),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                Err(_) => {
                    self.gone = true;
                    self.outbox.clear();
                }
            }
        }
    }
}

/// Takes a connection, if it is of the same user (or root, who can do anything anyway).
pub fn accept(listener: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = rustix::net::SocketFlags::CLOEXEC | rustix::net::SocketFlags::NONBLOCK;
    let socket = rustix::net::accept_with(listener, flags)?;
    let peer = sockopt::socket_peercred(&socket)?.uid;
    if peer != rustix::process::geteuid() && !peer.is_root() {
        return Err(io::Error::from(io::ErrorKind::PermissionDenied));
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::wire::ShimRequest;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn requests_longer_than_a_block_are_read_whole() {
        let (mut control_plane, shim) = UnixStream::pair().unwrap();
        let stop = |container: String| RequestEnvelope {
            epoch: 1,
            request: ShimRequest::Stop { container, attempt: 2, grace: 3 },
        };
        // Shorter than a block, longer than the first, and longer than several.
        let names: Vec<String> = [1, 5000, 300_000, 1].iter().map(|length| "x".repeat(*length)).collect();
        let text: Vec<u8> = names.iter().flat_map(|name| wire::line(&stop(name.clone()))).collect();
        let writer = std::thread::spawn(move || control_plane.write_all(&text));
        let mut client = ShimClient::new(1, shim.into());
        let mut found = Vec::new();
        while found.len() < names.len() && !client.gone {
            rustix::event::poll(&mut [rustix::event::PollFd::new(&client.socket, rustix::event::PollFlags::IN)], None)
                .unwrap();
            found.extend(client.read().into_iter().map(|envelope| match envelope.request {
                ShimRequest::Stop { container, .. } => container,
                _ => String::new(),
            }));
        }
        writer.join().unwrap().unwrap();
        assert!(found == names, "{:?}", found.iter().map(String::len).collect::<Vec<_>>());
    }
}
