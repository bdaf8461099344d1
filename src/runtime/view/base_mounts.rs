//! The common base of all containers' views, prepared once by the process that shims are forked from: a mount namespace (and as an
//! ordinary user the user namespace that allows it) with a `/dev` for containers, and what is mounted where.
//!
//! A container that begins with it saves more than half of what its view costs. When something is mounted or unmounted on the machine,
//! the next one who needs a ground lays a new one.

use super::super::pid_namespace::PidNamespace;
use super::mounted::{self, Mounted};
use super::shm::PodShm;
use super::{among_own_users, describe_error, devices, separate, services, show_processes};
use crate::runtime::trial;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitOptions, geteuid, waitpid};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// First byte from a fork that failed; the reason follows.
const FAILED: u8 = 2;
/// Longest reason, which a pipe takes at once.
const REASON: usize = 1024;
/// Exit codes of the trial of a process namespace.
const SHOWN: i32 = 0;
const REFUSED: i32 = 1;

/// Namespaces to begin a view with.
pub struct BaseMounts {
    users: Option<OwnedFd>,
    mounts: OwnedFd,
    machine: MachineMounts,
    /// Whether a process namespace can be had, and `/proc` tell of it.
    has_spaces: bool,
}

/// The machine's mounts, and a descriptor that reports changes of them.
struct MachineMounts {
    all: Vec<Mounted>,
    table: OwnedFd,
}

/// The base mounts, or none where views are impossible or not prepared yet.
#[derive(Default)]
pub struct BaseMountsState {
    ground: Option<BaseMounts>,
    /// Number of times that they were prepared.
    laid: u64,
    /// Why that failed the last time, if it did.
    failure: Option<String>,
}

impl BaseMountsState {
    /// The ground as the machine is now. Only for a process of one thread.
    pub fn current(&mut self) -> Option<&BaseMounts> {
        if self.ground.as_ref().is_none_or(|ground| ground.machine.has_changed()) {
            // A start that has none makes its view from nothing, and tells what fails.
            (self.ground, self.failure) = match BaseMounts::lay() {
                Ok(ground) => (ground, None),
                Err(why) => (None, Some(why)),
            };
            self.laid += 1;
        }
        self.ground.as_ref()
    }

    /// The number of the ground as the machine is now: another one when something was mounted or unmounted.
    pub fn number(&mut self) -> u64 {
        self.current();
        self.laid
    }

    /// Takes this process where it has the rights that process namespaces need. False where they can never be had; an error where that
    /// is not known now.
    pub fn enter_users(&mut self) -> Result<bool, String> {
        let has_spaces = self.current().is_some_and(|ground| ground.has_spaces);
        if let Some(why) = &self.failure {
            return Err(format!("cannot prepare its namespaces: {why}"));
        }
        let users = self.ground.as_mut().filter(|_| has_spaces).and_then(|ground| ground.users.take());
        if let Some(users) = users {
            move_into_link_name_space(users.as_fd(), Some(LinkNameSpaceType::User))
                .map_err(describe_error("enter the user namespace"))?;
        }
        Ok(has_spaces)
    }

    /// As [`BaseMountsState::current`], for whoever others are forked from: what they will ask of the machine is found out once.
    pub fn for_many(&mut self) {
        self.current();
        if geteuid().is_root() {
            services::read_services(Path::new(services::FOLDER));
        }
    }

    /// Adapts a forked process's copy: it watches for changes itself from now on.
    pub fn inherit(&mut self) {
        let heard = self.ground.as_mut().is_none_or(|ground| table().map(|table| ground.machine.table = table).is_ok());
        if !heard {
            self.ground = None;
        }
    }
}

impl BaseMounts {
    /// None where the root of this process is no mount: namespaces would have another one.
    fn lay() -> Result<Option<BaseMounts>, String> {
        let table = table()?;
        let machine = MachineMounts { all: mounted::read_mounts(), table };
        if machine.all.iter().all(|one| one.at != Path::new("/")) {
            return Ok(None);
        }
        let lay = || prepare().and_then(|()| has_spaces());
        run_in_fork(lay, |child, has_spaces| BaseMounts::open(child, machine, has_spaces)).map(Some)
    }

    fn open(process: Pid, machine: MachineMounts, has_spaces: bool) -> Result<BaseMounts, String> {
        let space = |name: &str| {
            let path = format!("/proc/{}/ns/{name}", process.as_raw_nonzero());
            openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                .map_err(describe_error("open a namespace"))
        };
        let users = |whose: &str| fs::read_link(format!("/proc/{whose}/ns/user")).ok();
        let has_own = users("self") != users(&process.as_raw_nonzero().to_string());
        let users = if has_own { Some(space("user")?) } else { None };
        Ok(BaseMounts { users, mounts: space("mnt")?, machine, has_spaces })
    }

    /// Returns the mounts.
    pub fn mounts(&self) -> Vec<Mounted> {
        self.machine.all.clone()
    }

    /// Takes this process there, with mounts that nobody else has; `counted`: also with a user namespace that nobody else has, where an
    /// ordinary user needs one at all; `has_space`: it is in a process namespace other than the machine's. Gives the pod's memory.
    pub fn enter(&self, counted: bool, has_space: bool, shm: Option<&PodShm>) -> Result<Option<OwnedFd>, String> {
        if let Some(users) = &self.users {
            move_into_link_name_space(users.as_fd(), Some(LinkNameSpaceType::User))
                .map_err(describe_error("enter the user namespace"))?;
        }
        let shm = shm.map(PodShm::clone_mount).transpose()?;
        move_into_link_name_space(self.mounts.as_fd(), Some(LinkNameSpaceType::Mount))
            .map_err(describe_error("enter the mount namespace"))?;
        let is_counted = counted && !geteuid().is_root();
        if has_space || !is_counted {
            // SAFETY: the flag does not touch the table of descriptors, which is what makes this call unsafe.
            unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.map_err(describe_error("have mounts of its own"))?;
        }
        if has_space {
            // Before it is among its own users, who may not: the process namespace belongs to those that it began among.
            show_processes()?;
        }
        if is_counted {
            among_own_users()?;
        }
        Ok(shm)
    }
}

/// Has a fork of this process, which has one thread, lay something out, and opens what there is to see of it while it is still there.
pub fn run_in_fork<T>(
    lay: impl FnOnce() -> Result<bool, String>,
    open: impl FnOnce(Pid, bool) -> Result<T, String>,
) -> Result<T, String> {
    let (ready, done) = pipe_with(PipeFlags::CLOEXEC).map_err(describe_error("make a pipe"))?;
    let (hold, release) = pipe_with(PipeFlags::CLOEXEC).map_err(describe_error("make a pipe"))?;
    // SAFETY: this process has one thread, so the child has whatever the parent had, in a whole state.
    match unsafe { libc::fork() } {
        0 => {
            drop((ready, release));
            // SAFETY: a disposition that runs no code: a zygote does not wait for its children, this one does.
            unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
            rustix::process::umask(Mode::from_raw_mode(0o022));
            let word = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(lay)) {
                Ok(Ok(more)) => vec![u8::from(more)],
                Ok(Err(why)) => [&[FAILED], why.as_bytes()].concat(),
                Err(_) => [&[FAILED], &b"internal error"[..]].concat(),
            };
            let _ = rustix::io::write(&done, &word[..word.len().min(REASON)]);
            let _ = rustix::io::read(&hold, &mut [0; 1]);
            // SAFETY: ends the child without running anything that belongs to the parent.
            unsafe { libc::_exit(0) }
        }
        child => {
            drop((done, hold));
            let child = Pid::from_raw(child).filter(|_| child > 0).ok_or("cannot fork")?;
            let mut word = [FAILED; REASON];
            let read = rustix::io::read(&ready, &mut word).unwrap_or(0);
            let opened = match &word[..read] {
                [] => Err("the process that prepares them ended early".into()),
                [FAILED, why @ ..] => Err(String::from_utf8_lossy(why).into_owned()),
                [more, ..] => open(child, *more == 1),
            };
            drop(release);
            // If children are reaped automatically, as in a zygote, this only waits for the end.
            let _ = waitpid(Some(child), WaitOptions::empty());
            opened
        }
    }
}

impl MachineMounts {
    fn has_changed(&self) -> bool {
        let mut table = [PollFd::new(&self.table, PollFlags::PRI)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut table, Some(&now)).map_or(true, |ready| ready > 0)
    }
}

fn table() -> Result<OwnedFd, String> {
    openat(CWD, "/proc/self/mountinfo", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(describe_error("see the mounts"))
}

/// Whether a process namespace can be had among the mounts of this process. A sandbox may hide parts of `/proc`, and then it cannot be
/// mounted anew. Only a refusal that will not change is a no; any other failure is an error.
fn has_spaces() -> Result<bool, String> {
    let child = match PidNamespace::New.fork() {
        Err(error) if trial::is_definite(error, &["pid"]) => return Ok(false),
        forked => forked.map_err(describe_error("make a process namespace"))?,
    };
    if child == 0 {
        // SAFETY: ends the child without running anything that belongs to the parent.
        unsafe { libc::_exit(try_proc()) }
    }
    let ended = waitpid(Pid::from_raw(child), WaitOptions::empty()).map_err(describe_error("wait for a process"))?;
    match ended.and_then(|(_, status)| status.exit_status()) {
        Some(SHOWN) => Ok(true),
        Some(REFUSED) => Ok(false),
        code => {
            let error = code.map_or(Errno::CHILD, Errno::from_raw_os_error);
            Err(describe_error("mount /proc in a process namespace")(error))
        }
    }
}

/// Mounts `/proc` in mounts of its own. The exit code that tells of it: other than two are numbers of errors that may pass.
fn try_proc() -> i32 {
    let Err(failure) = separate().and_then(|()| show_processes()) else { return SHOWN };
    match Errno::from_io_error(&failure.error) {
        Some(error) if !trial::is_definite(error, &["user", "mnt"]) => error.raw_os_error(),
        _ => REFUSED,
    }
}

/// Gives this process what a ground has: namespaces of its own, and containers' devices.
pub fn prepare() -> Result<(), String> {
    separate()?;
    devices::lay()
}
