//! A pipe that wakes the dashboard: for changes of the state, output of commands, and signals.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read, Write, stdin};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// Wakes the dashboard from other threads.
#[derive(Clone)]
pub struct Waker(Arc<UnixStream>);

/// The side that waits.
pub struct WakeReceiver(UnixStream);

/// Creates both sides.
pub fn pair() -> io::Result<(Waker, WakeReceiver)> {
    let (send, receive) = UnixStream::pair()?;
    send.set_nonblocking(true)?;
    receive.set_nonblocking(true)?;
    Ok((Waker(Arc::new(send)), WakeReceiver(receive)))
}

impl Waker {
    /// Wakes the dashboard. A full pipe wakes it anyway.
    pub fn wake(&self) {
        drop((&*self.0).write_all(&[0]));
    }

    /// Returns the pipe, for a handler of signals.
    pub fn pipe(&self) -> io::Result<UnixStream> {
        self.0.try_clone()
    }
}

impl WakeReceiver {
    /// Waits for a key, a wake-up, or the end of the time; `None` waits without end. Returns whether the terminal is gone.
    pub fn wait(&mut self, longest: Option<Duration>) -> io::Result<bool> {
        let input = stdin();
        let mut ends = [PollFd::new(&input, PollFlags::IN), PollFd::new(&self.0, PollFlags::IN)];
        let longest = longest.and_then(|longest| Timespec::try_from(longest).ok());
        match poll(&mut ends, longest.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_gone = ends[0].revents().intersects(PollFlags::HUP | PollFlags::ERR);
        let mut block = [0; 64];
        while self.0.read(&mut block).is_ok_and(|read| read > 0) {}
        Ok(is_gone)
    }
}
