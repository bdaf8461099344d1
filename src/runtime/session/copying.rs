//! Copies bytes from one descriptor to another; reads only when the destination has taken everything before.

use super::detach_keys::DetachKeys;
use rustix::event::{PollFd, PollFlags};
use rustix::io::{Errno, read, write};
use std::os::fd::OwnedFd;

/// One direction of a copy.
pub struct CopyDirection {
    from: OwnedFd,
    to: OwnedFd,
    pending: Vec<u8>,
    /// Whether it carries output of the command.
    pub is_output: bool,
    /// Whether it is finished: the source or the destination is closed.
    pub over: bool,
    /// Whether the destination is closed.
    pub broken: bool,
    /// Whether the destination is a terminal that gets Ctrl-D at the end of the input.
    pub types_end: bool,
    /// The keys of the source that end the copy.
    pub detach: Option<DetachKeys>,
    /// Whether the source has ended; Ctrl-D is pending or written.
    has_ended: bool,
    /// Whether the last byte read is not the end of a line.
    is_mid_line: bool,
}

/// Ctrl-D: a terminal passes on the line so far or, at the beginning of a line, the end of the input. A shell takes the first one after an
/// incomplete line for the end of that line only.
const END_OF_INPUT: u8 = 4;

impl CopyDirection {
    /// Makes a direction from one descriptor to the other.
    pub fn new(from: OwnedFd, to: OwnedFd, is_output: bool) -> CopyDirection {
        let [over, broken, types_end, has_ended, is_mid_line] = [false; 5];
        let (pending, detach) = (Vec::new(), None);
        CopyDirection { from, to, pending, is_output, over, broken, types_end, detach, has_ended, is_mid_line }
    }

    /// Returns the event to wait for.
    pub fn poll_fd(&self) -> PollFd<'_> {
        match self.pending.is_empty() {
            true => PollFd::new(&self.from, PollFlags::IN),
            false => PollFd::new(&self.to, PollFlags::OUT),
        }
    }

    /// Reads or writes once, without blocking.
    pub fn step(&mut self) {
        if self.pending.is_empty() {
            let mut block = [0; 16 * 1024];
            match read(&self.from, &mut block[..]) {
                // Reading a terminal whose other side is closed everywhere fails with EIO.
                Ok(0) | Err(Errno::IO) => self.end(),
                Ok(read) => {
                    self.is_mid_line = block[read - 1] != b'\n';
                    match &mut self.detach {
                        None => self.pending.extend_from_slice(&block[..read]),
                        Some(keys) => (self.pending, self.has_ended) = keys.scan(&block[..read]),
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) => return,
                Err(_) => self.end(),
            }
        }
        if !self.pending.is_empty() {
            match write(&self.to, &self.pending) {
                Ok(written) => drop(self.pending.drain(..written)),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => (self.over, self.broken) = (true, true),
            }
        }
        self.over |= self.has_ended && self.pending.is_empty();
    }

    /// Handles the end of the source.
    fn end(&mut self) {
        self.has_ended = true;
        if self.types_end {
            self.pending.extend(std::iter::repeat_n(END_OF_INPUT, if self.is_mid_line { 3 } else { 1 }));
        }
    }

    /// Copies all remaining bytes. The source must be nonblocking.
    pub fn drain(&mut self) {
        loop {
            let mut block = [0; 16 * 1024];
            while !self.pending.is_empty() && !self.over {
                match write(&self.to, &self.pending) {
                    Ok(written) => drop(self.pending.drain(..written)),
                    Err(Errno::INTR) => {}
                    Err(_) => self.over = true,
                }
            }
            match read(&self.from, &mut block[..]) {
                Ok(read) if read > 0 && !self.over => self.pending.extend_from_slice(&block[..read]),
                Err(Errno::INTR) => {}
                _ => return,
            }
        }
    }
}
