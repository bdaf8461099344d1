//! A new terminal for a command, and ours in raw mode for as long: every key goes there, and its size follows ours.

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::stdio::stdin;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// Our side of the new terminal. Ours is as it was before when this goes.
pub struct Terminal {
    /// What is written here is read by the command as from a keyboard.
    pub ours: OwnedFd,
    /// Readable when a signal has come.
    pub signals: UnixStream,
    told: Arc<AtomicI32>,
    before: Termios,
}

impl Terminal {
    /// A new terminal of our size; its other side.
    pub fn open() -> io::Result<(Terminal, OwnedFd)> {
        let before = tcgetattr(stdin())?;
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        let name = ptsname(&ours, Vec::new())?;
        let theirs = openat(CWD, name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::ioctl_fionbio(&ours, true)?;
        let (signals, told) = watch_signals()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin(), OptionalActions::Drain, &raw)?;
        let terminal = Terminal { ours, signals, told, before };
        terminal.fit();
        Ok((terminal, theirs))
    }

    /// Sees to the signals that came; the one that tells us to end.
    pub fn heed(&self) -> Option<i32> {
        let mut bytes = [0; 64];
        while rustix::io::read(&self.signals, &mut bytes[..]).is_ok_and(|read| read == bytes.len()) {}
        self.fit();
        Some(self.told.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
    }

    fn fit(&self) {
        if let Ok(size) = tcgetwinsize(stdin()) {
            let _ = tcsetwinsize(&self.ours, size);
        }
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
