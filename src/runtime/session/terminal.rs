//! Our own terminal in raw mode during a session: the command gets every key, and its terminal gets the size of ours.

use super::super::wire::TerminalSize;
use rustix::stdio::stdin;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// Our terminal; dropping this restores its former mode.
pub struct Terminal {
    /// Readable when a signal has arrived.
    pub signals: UnixStream,
    end_signal: Arc<AtomicI32>,
    before: Termios,
}

impl Terminal {
    /// Sets raw mode.
    pub fn raw() -> io::Result<Terminal> {
        let before = tcgetattr(stdin())?;
        let (signals, end_signal) = watch_signals()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin(), OptionalActions::Drain, &raw)?;
        Ok(Terminal { signals, end_signal, before })
    }

    /// Returns its size; zero when unknown.
    pub fn size() -> TerminalSize {
        let found = tcgetwinsize(stdin());
        found.map(|size| TerminalSize { rows: size.ws_row, columns: size.ws_col }).unwrap_or_default()
    }

    /// Drops pending notifications and returns the signal that ends us, if one has arrived.
    pub fn take_end_signal(&self) -> Option<i32> {
        let mut bytes = [0; 64];
        while rustix::io::read(&self.signals, &mut bytes[..]).is_ok_and(|read| read == bytes.len()) {}
        Some(self.end_signal.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = tcsetattr(stdin(), OptionalActions::Drain, &self.before);
    }
}

fn watch_signals() -> io::Result<(UnixStream, Arc<AtomicI32>)> {
    let (read, write) = UnixStream::pair()?;
    read.set_nonblocking(true)?;
    let end_signal = Arc::new(AtomicI32::new(0));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        let end_signal = end_signal.clone();
        // SAFETY: stores a number, which a signal handler may.
        unsafe { signal_hook::low_level::register(signal, move || end_signal.store(signal, Ordering::Relaxed)) }?;
    }
    for signal in [SIGHUP, SIGINT, SIGTERM, SIGWINCH] {
        signal_hook::low_level::pipe::register(signal, write.try_clone()?)?;
    }
    Ok((read, end_signal))
}
