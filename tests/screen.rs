//! A terminal for a test, with a simulated user who reads and types.

use crate::cluster::Cluster;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Maximum wait for a text; only a failing test waits that long.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// `kloop` in its own terminal.
pub struct Screen {
    keyboard: OwnedFd,
    child: RefCell<Child>,
    shown: RefCell<String>,
}

impl Screen {
    /// Runs `kloop` with these arguments in a new terminal of 31 lines and 97 columns.
    pub fn run(cluster: &Cluster, arguments: &[&str]) -> Screen {
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
        grantpt(&keyboard).expect("granted");
        unlockpt(&keyboard).expect("unlocked");
        let name = ptsname(&keyboard, Vec::new()).expect("a name");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let theirs = openat(CWD, name, flags, Mode::empty()).expect("its other side");
        let screen = |fd: &OwnedFd| Stdio::from(fd.try_clone().expect("a copy"));
        // Makes this the controlling terminal of a new session: `-c` uses standard input.
        let mut command = cluster.program("setsid");
        command.args(["-c", "-w", env!("CARGO_BIN_EXE_kloop")]).args(arguments);
        command.stdin(screen(&theirs)).stdout(screen(&theirs)).stderr(screen(&theirs));
        let size = Winsize { ws_row: 31, ws_col: 97, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&keyboard, size).expect("a size");
        let child = RefCell::new(command.spawn().expect("setsid runs"));
        Screen { keyboard, child, shown: RefCell::default() }
    }

    /// The process ID of the program, which `setsid` becomes.
    pub fn pid(&self) -> u32 {
        self.child.borrow().id()
    }

    /// Types a text.
    pub fn types(&self, text: &str) {
        let mut left = text.as_bytes();
        while !left.is_empty() {
            left = &left[rustix::io::write(&self.keyboard, left).expect("typed")..];
        }
    }

    /// Waits for a text; returns the output since the previous wait, including it.
    #[track_caller]
    pub fn until_shows(&self, text: &str) -> String {
        let until = Instant::now() + WAIT_TIMEOUT;
        loop {
            let found = self.shown.borrow().find(text);
            if let Some(at) = found {
                return self.shown.borrow_mut().drain(..at + text.len()).collect();
            }
            let shows = self.look();
            assert!(shows && Instant::now() < until, "timed out waiting for {text:?}, saw:\n{}", self.shown.borrow());
        }
    }

    /// Waits until the terminal is in raw mode.
    pub fn until_raw(&self) {
        let until = Instant::now() + WAIT_TIMEOUT;
        while tcgetattr(&self.keyboard).expect("its modes").local_modes.contains(LocalModes::ICANON) {
            assert!(Instant::now() < until, "the terminal never was raw, saw:\n{}", self.shown.borrow());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Changes the size of the terminal.
    pub fn resize(&self, rows: u16, columns: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.keyboard, size).expect("a size");
    }

    /// Waits for the end of the program; returns the output since the previous wait, and the exit code.
    #[track_caller]
    pub fn ended(&self) -> (String, i32) {
        let until = Instant::now() + WAIT_TIMEOUT;
        while self.look() {
            assert!(Instant::now() < until, "the program does not end, saw:\n{}", self.shown.borrow());
        }
        let status = self.child.borrow_mut().wait().expect("it ends");
        (std::mem::take(&mut *self.shown.borrow_mut()), status.code().unwrap_or(256))
    }

    /// Closes the terminal, as closing its window does.
    pub fn close(self) {
        drop(self.keyboard);
        drop(self.child.borrow_mut().wait());
    }

    /// Reads available output; false when no process has the terminal open.
    fn look(&self) -> bool {
        let second = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        if poll(&mut [PollFd::new(&self.keyboard, PollFlags::IN)], Some(&second)).unwrap_or(0) == 0 {
            return true;
        }
        let mut block = [0; 4096];
        let Ok(read) = rustix::io::read(&self.keyboard, &mut block[..]) else { return false };
        self.shown.borrow_mut().push_str(&String::from_utf8_lossy(&block[..read]));
        read > 0
    }
}
