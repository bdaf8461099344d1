//! Bytes from one descriptor to another, never read before there is room for them.

use rustix::event::{PollFd, PollFlags};
use rustix::io::{Errno, read, write};
use std::os::fd::OwnedFd;

/// One direction.
pub struct CopyDirection {
    from: OwnedFd,
    to: OwnedFd,
    pending: Vec<u8>,
    /// Whether it carries what the command writes.
    pub is_output: bool,
    /// Nothing more will come, or nobody takes it.
    pub over: bool,
    /// Nobody takes it.
    pub broken: bool,
    /// It leads to a terminal: Ctrl-D is typed when nothing more comes.
    pub types_end: bool,
    /// Nothing more comes, and Ctrl-D is pending or typed.
    has_ended: bool,
    /// The last byte that was read does not end a line.
    is_mid_line: bool,
}

/// Ctrl-D: a terminal passes on the line so far, and at the beginning of a line the end of the input. A shell that reads the end after a
/// part of a line takes it for the end of that line, and goes on.
const END_OF_INPUT: u8 = 4;

impl CopyDirection {
    /// From here to there.
    pub fn new(from: OwnedFd, to: OwnedFd, is_output: bool) -> CopyDirection {
        let [over, broken, types_end, has_ended, is_mid_line] = [false; 5];
        CopyDirection { from, to, pending: Vec::new(), is_output, over, broken, types_end, has_ended, is_mid_line }
    }

    /// Returns the event to wait for.
    pub fn poll_fd(&self) -> PollFd<'_> {
        match self.pending.is_empty() {
            true => PollFd::new(&self.from, PollFlags::IN),
            false => PollFd::new(&self.to, PollFlags::OUT),
        }
    }

    /// Goes on by what is ready.
    pub fn step(&mut self) {
        if self.pending.is_empty() {
            let mut block = [0; 16 * 1024];
            match read(&self.from, &mut block[..]) {
                // The other side of a terminal that nobody has open any more reads as an error.
                Ok(0) | Err(Errno::IO) => self.end(),
                Ok(read) => {
                    self.is_mid_line = block[read - 1] != b'\n';
                    self.pending.extend_from_slice(&block[..read]);
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

    /// Nothing more comes.
    fn end(&mut self) {
        self.has_ended = true;
        if self.types_end {
            self.pending.extend(std::iter::repeat_n(END_OF_INPUT, if self.is_mid_line { 3 } else { 1 }));
        }
    }

    /// Reads all bytes that are there. For descriptors that do not block.
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
