//! Descriptors that go to another process with bytes, over a Unix socket. A signal interrupts neither side.

use rustix::io::{Result, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Maximum number of descriptors of a message.
const MAX_DESCRIPTORS: usize = 3;

/// Sends bytes with at most [`MAX_DESCRIPTORS`] descriptors. Returns the number of bytes that were sent.
pub fn send_with(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd], flags: SendFlags) -> Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let flags = flags | SendFlags::NOSIGNAL;
    retry_on_intr(|| sendmsg(&socket, &[IoSlice::new(bytes)], &mut ancillary, flags))
}

/// Receives bytes and the descriptors that came with them. Returns the number of bytes.
pub fn receive_with(socket: impl AsFd, block: &mut [u8], flags: RecvFlags) -> Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received = retry_on_intr(|| recvmsg(&socket, &mut [IoSliceMut::new(&mut *block)], &mut ancillary, flags))?;
    let rights = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok((received.bytes, rights.flatten().collect()))
}

/// Receives one descriptor, with a byte; `None` when none came.
pub fn receive_one(socket: impl AsFd) -> Result<Option<OwnedFd>> {
    receive_with(socket, &mut [0], RecvFlags::empty()).map(|(_, descriptors)| descriptors.into_iter().next())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[test]
    fn descriptors_arrive_with_their_bytes() {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        let (read, write) = rustix::pipe::pipe().unwrap();
        let sent = send_with(&ours, b"two", &[read.as_fd(), write.as_fd()], SendFlags::empty());
        assert_eq!(sent, Ok(3));
        drop((read, write));
        let mut block = [0; 8];
        let (length, descriptors) = receive_with(&theirs, &mut block, RecvFlags::empty()).unwrap();
        assert_eq!((&block[..length], descriptors.len()), (&b"two"[..], 2));
        rustix::io::write(&descriptors[1], b"x").unwrap();
        assert_eq!(rustix::io::read(&descriptors[0], &mut block), Ok(1));
        assert!(receive_one(&theirs).is_err(), "nothing more came");
        send_with(&ours, b"-", &[], SendFlags::empty()).unwrap();
        assert!(receive_one(&theirs).unwrap().is_none());
    }
}
