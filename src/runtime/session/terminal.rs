//! Our own terminal in raw mode for as long as a command has it: every key goes there, and its size follows ours.

use super::super::wire::TerminalSize;
use rustix::stdio::stdin;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// Our terminal. It is as it was before when this goes.
pub struct Terminal {
    /// Readable when a signal has come.
    pub signals: UnixStream,
    told: Arc<AtomicI32>,
    before: Termios,
}

impl Terminal {
    /// Hands every key on as it is.
    pub fn raw() -> io::Result<Terminal> {
        let before = tcgetattr(stdin())?;
        let (signals, told) = watch_signals()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin(), OptionalActions::Drain, &raw)?;
        Ok(Terminal { signals, told, before })
    }

    /// Its size, as far as it is known.
    pub fn size() -> TerminalSize {
        let found = tcgetwinsize(stdin());
        found.map(|size| TerminalSize { rows: size.ws_row, columns: size.ws_col }).unwrap_or_default()
    }

    /// Takes in the signals that came; the one that tells us to end.
    pub fn heed(&self) -> Option<i32> {
        let mut bytes = [0; 64];
        while rustix::io::read(&self.signals, &mut bytes[..]).is_ok_and(|read| read == bytes.len()) {}
        Some(self.told.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
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
    let told = Arc::new(AtomicI32::new(0));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        let told = told.clone();
        // SAFETY: stores a number, which a signal handler may.
        unsafe { signal_hook::low_level::register(signal, move || told.store(signal, Ordering::Relaxed)) }?;
    }
    for signal in [SIGHUP, SIGINT, SIGTERM, SIGWINCH] {
        signal_hook::low_level::pipe::register(signal, write.try_clone()?)?;
    }
    Ok((read, told))
}
