//! Signals of a shim, which it reads from a descriptor (signalfd(2)).
//!
//! SIGCHLD and SIGTERM wake its loop; SIGHUP and SIGINT do nothing. They are blocked rather than ignored, because a program inherits an
//! ignored signal. Programs that the shim starts begin with no blocked signal. Never: runs a handler.

use std::fs::File;
use std::io::{self, Read};
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

/// Number of signals to read at once: one of a kind can be pending.
const AT_ONCE: usize = 2;

/// The signals of this process.
pub struct SignalWatch {
    pending: File,
    has_sigterm: bool,
}

impl SignalWatch {
    /// Blocks the signals and opens the descriptor. Only for a process with one thread.
    pub fn start() -> io::Result<SignalWatch> {
        let (blocked, read) = (
            signals(&[libc::SIGCHLD, libc::SIGTERM, libc::SIGHUP, libc::SIGINT]),
            signals(&[libc::SIGCHLD, libc::SIGTERM]),
        );
        // SAFETY: both sets are initialised; the new descriptor has no other owner.
        unsafe {
            libc::sigprocmask(libc::SIG_BLOCK, &blocked, ptr::null_mut());
            match libc::signalfd(-1, &read, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) {
                -1 => Err(io::Error::last_os_error()),
                fd => Ok(SignalWatch { pending: OwnedFd::from_raw_fd(fd).into(), has_sigterm: false }),
            }
        }
    }

    /// Returns the descriptor, which becomes readable when a signal arrives.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.pending.as_fd()
    }

    /// Takes note of the signals that have arrived.
    pub fn read(&mut self) {
        const SIZE: usize = size_of::<libc::signalfd_siginfo>();
        let mut arrived = [0; AT_ONCE * SIZE];
        let length = self.pending.read(&mut arrived).unwrap_or(0);
        // The number of the signal is the first field.
        let numbers =
            arrived[..length].chunks_exact(SIZE).filter_map(|one| one.first_chunk().copied().map(u32::from_ne_bytes));
        self.has_sigterm |= numbers.into_iter().any(|number| number == libc::SIGTERM as u32);
    }

    /// Whether SIGTERM has arrived.
    pub fn has_sigterm(&self) -> bool {
        self.has_sigterm
    }

    /// Forgets SIGTERM.
    pub fn stay(&mut self) {
        self.has_sigterm = false;
    }
}

fn signals(numbers: &[libc::c_int]) -> libc::sigset_t {
    // SAFETY: all zeroes is a valid value of this C structure, and the first call empties it.
    unsafe {
        let mut set = zeroed::<libc::sigset_t>();
        libc::sigemptyset(&mut set);
        for number in numbers {
            libc::sigaddset(&mut set, *number);
        }
        set
    }
}
