//! A connection to the shim of a pod, over which a session starts and ends.

use super::SessionEnd;
use crate::runtime::folder;
use crate::runtime::process::{self, ProcessIdentity};
use crate::runtime::send_descriptors::send_with;
use crate::runtime::wire::{self, ExecOutcome, RequestEnvelope, ShimAnswer, ShimRecord, ShimRequest};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendFlags};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// A shim that has not read a request within this time is stopped or frozen.
const SHIM_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest pause between checks whether it has.
const MAX_PAUSE: Duration = Duration::from_millis(50);

/// A connection to the shim of a pod.
pub struct ShimConnection {
    pub socket: OwnedFd,
    process: Option<ProcessIdentity>,
    inbox: Vec<u8>,
}

impl ShimConnection {
    /// Connects; `None` when the container does not run.
    pub fn connect(state: &Path, uid: &str, container: &str) -> io::Result<Option<ShimConnection>> {
        let record = folder::read_record(&folder::pod_path(state, uid)).filter(|_| folder::is_plain_name(uid));
        let runs = |record: &ShimRecord| record.containers.get(container).and_then(|known| known.process()).is_some();
        let Some(record) = record.filter(runs) else { return Ok(None) };
        let shim = |socket| ShimConnection { socket, process: record.shim, inbox: Vec::new() };
        let until = Instant::now() + SHIM_TIMEOUT;
        loop {
            match folder::dial(&folder::pod_path(state, uid)).map(shim) {
                Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                    return Ok(None);
                }
                // The shim's accept queue is full.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < until => {
                    std::thread::sleep(MAX_PAUSE);
                }
                shim => {
                    let mut shim = shim?;
                    shim.check_alive()?;
                    return Ok(Some(shim));
                }
            }
        }
    }

    /// Waits until the shim answers. A stopped shim would keep the descriptors sent to it open, and readers of the other ends would wait. A
    /// shim of an older version refuses the request, which is an answer as well.
    fn check_alive(&mut self) -> io::Result<()> {
        send(&self.socket, ShimRequest::Ping, &[])?;
        let until = Instant::now() + SHIM_TIMEOUT;
        loop {
            match self.read_answer()? {
                Some(ShimAnswer::Refused { why, .. }) if why == GONE => {
                    return Err(io::Error::new(io::ErrorKind::ConnectionReset, GONE));
                }
                Some(_) => return Ok(()),
                None if Instant::now() >= until => {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, self.no_answer_error()));
                }
                None => self.wait_readable(until)?,
            }
        }
    }

    /// Waits until there is something to read, at most until this moment.
    fn wait_readable(&self, until: Instant) -> io::Result<()> {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&timeout)) {
            Err(Errno::INTR) => Ok(()),
            found => Ok(found.map(drop)?),
        }
    }

    /// Sends a request with descriptors, which only the shim keeps open: they end when it closes them. `ETIMEDOUT` when it does not read
    /// the request.
    pub fn send_request<const N: usize>(&mut self, request: ShimRequest, descriptors: [OwnedFd; N]) -> io::Result<()> {
        rustix::io::ioctl_fionbio(&self.socket, false)?;
        send(&self.socket, request, &descriptors.each_ref().map(|fd| fd.as_fd()))?;
        let until = Instant::now() + SHIM_TIMEOUT;
        let mut pause = Duration::from_micros(100);
        while is_unread(&self.socket) {
            if Instant::now() >= until {
                return Err(io::Error::new(io::ErrorKind::TimedOut, self.no_answer_error()));
            }
            let timeout = Timespec { tv_sec: 0, tv_nsec: pause.subsec_nanos().into() };
            match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&timeout)) {
                Ok(0) | Err(Errno::INTR) => {}
                // The shim has answered or exited: reading its answers shows which.
                found => return found.map(|_| ()).map_err(io::Error::from),
            }
            pause = MAX_PAUSE.min(pause * 2);
        }
        Ok(())
    }

    /// Returns the error that the shim does not answer, with the reason if it is known.
    fn no_answer_error(&self) -> String {
        let pid = self.process.map_or(String::new(), |process| format!(" (pid {})", process.pid));
        let is_stopped = self.process.is_some_and(|process| process::is_stopped(process.pid));
        let help = match (is_stopped, self.process) {
            (true, Some(process)) => format!(": it is stopped; run `kill -CONT {}`", process.pid),
            _ => ": it is frozen, or the machine is very busy".to_owned(),
        };
        format!("timed out: the pod's shim{pid} has not answered for {} s{help}", SHIM_TIMEOUT.as_secs())
    }

    /// Waits for the next answer of the shim; its exit counts as one.
    pub fn next_answer(&mut self) -> io::Result<ShimAnswer> {
        loop {
            if let Some(answer) = self.read_answer()? {
                return Ok(answer);
            }
            match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], None) {
                Err(Errno::INTR) => {}
                found => drop(found?),
            }
        }
    }

    /// Reads the next answer, if there is one.
    pub fn read_answer(&mut self) -> io::Result<Option<ShimAnswer>> {
        let refused = |why: &str| ShimAnswer::Refused { why: why.into(), start: None };
        let mut block = [0; 4096];
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.inbox) {
                let line: Vec<u8> = self.inbox.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line).unwrap_or_else(|_| refused(INCOMPATIBLE))));
            }
            match rustix::net::recv(&self.socket, &mut block[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) | Err(Errno::CONNRESET) => return Ok(Some(refused(GONE))),
                Ok((read, _)) => self.inbox.extend_from_slice(&block[..read]),
                Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Whether the other side has unread data. False if the kernel does not report it.
fn is_unread(socket: &OwnedFd) -> bool {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one number into a live variable.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    result == 0 && bytes > 0
}

/// Sends a request. It is small enough for the buffer of a new socket.
pub fn send(socket: &OwnedFd, request: ShimRequest, descriptors: &[BorrowedFd]) -> io::Result<()> {
    let line = wire::line(&RequestEnvelope { epoch: 0, request });
    let mut sent = send_with(socket, &line, descriptors, SendFlags::empty())?;
    while sent < line.len() {
        sent += retry_on_intr(|| rustix::net::send(socket, &line[sent..], SendFlags::NOSIGNAL))?;
    }
    Ok(())
}

const GONE: &str = "the pod's shim has exited";
const INCOMPATIBLE: &str = "its shim is of an incompatible version: delete the pod; a new pod gets a new shim";

pub fn incompatible_shim() -> SessionEnd {
    SessionEnd::Failed(INCOMPATIBLE.into())
}

/// Returns the end of the session that an answer reports, if it does.
pub fn ended(answer: &ShimAnswer) -> Option<SessionEnd> {
    match answer {
        ShimAnswer::ExecDone { outcome: ExecOutcome::Exited(code), .. } => Some(SessionEnd::Exited(*code)),
        ShimAnswer::ExecDone { outcome: ExecOutcome::Failed(why), .. } | ShimAnswer::Refused { why, .. } => {
            Some(SessionEnd::Failed(why.clone()))
        }
        ShimAnswer::Detached => Some(SessionEnd::Detached),
        ShimAnswer::Attached => None,
        _ => Some(incompatible_shim()),
    }
}
