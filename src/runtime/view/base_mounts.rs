//! The common base of all containers' views, prepared once by the process that shims are forked from: a mount namespace with a `/dev` for
//! containers and the list of mounts. For an ordinary user it includes the user namespace that this requires.
//!
//! It saves more than half of the cost of a container's view. When something is mounted or unmounted on the machine, the next container
//! prepares a new base.

use super::super::folder;
use super::super::pid_namespace::PidNamespace;
use super::super::spawn::forked_pid;
use super::mounted::{self, Mounted};
use super::shm::{self, PodShm, ShmPlace, describe_shm_error};
use super::visit::Home;
use super::{
    ViewProcesses, compose, describe_error, devices, enter_own_user_namespace, separate, services, show_processes,
};
use crate::runtime::trial;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitOptions, geteuid, waitpid};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// First byte from a fork that failed; the reason follows.
const FAILED: u8 = 2;
/// Maximum length of the reason, which fits into a pipe at once.
const REASON: usize = 1024;
/// Exit codes of the trial of a PID namespace.
const PROC_MOUNTED: i32 = 0;
const REFUSED: i32 = 1;

/// Namespaces to begin a view with.
pub struct BaseMounts {
    users: Option<OwnedFd>,
    mounts: OwnedFd,
    machine: MachineMounts,
    /// Whether PID namespaces with their own `/proc` are possible.
    has_spaces: bool,
    /// Whether the kernel supports detached mounts.
    has_detached: bool,
    /// Whether a process that has entered it is root of the machine.
    is_root: bool,
}

/// The machine's mounts, and a descriptor that reports changes of them.
struct MachineMounts {
    all: Vec<Mounted>,
    table: OwnedFd,
}

/// The base mounts; empty where views are impossible or not prepared yet.
#[derive(Default)]
pub struct BaseMountsState {
    base_mounts: Option<BaseMounts>,
    /// Number of times that they were prepared.
    preparations: u64,
    /// The last error, if preparing failed.
    failure: Option<String>,
}

impl BaseMountsState {
    /// Returns base mounts that match the machine's current mounts. Only for a process with one thread.
    pub fn current(&mut self) -> Option<&BaseMounts> {
        if self.base_mounts.as_ref().is_none_or(|base_mounts| base_mounts.machine.has_changed()) {
            // Without them a start makes its view from scratch and reports errors.
            (self.base_mounts, self.failure) = match BaseMounts::create() {
                Ok(base_mounts) => (base_mounts, None),
                Err(why) => (None, Some(why)),
            };
            self.preparations += 1;
        }
        self.base_mounts.as_ref()
    }

    /// Returns the number of the current base mounts, which changes when something was mounted or unmounted.
    pub fn number(&mut self) -> u64 {
        self.current();
        self.preparations
    }

    /// Enters the user namespace that permits PID namespaces. Returns false where they are impossible; an error when that is unknown.
    pub fn enter_user_namespace(&mut self) -> Result<bool, String> {
        let has_spaces = self.current().is_some_and(|base_mounts| base_mounts.has_spaces);
        if let Some(why) = &self.failure {
            return Err(format!("cannot prepare its namespaces: {why}"));
        }
        let users = self.base_mounts.as_mut().filter(|_| has_spaces).and_then(|base_mounts| base_mounts.users.take());
        if let Some(users) = users {
            move_into_link_name_space(users.as_fd(), Some(LinkNameSpaceType::User))
                .map_err(describe_error("enter the user namespace"))?;
        }
        Ok(has_spaces)
    }

    /// Like [`BaseMountsState::current`], for a process that others are forked from: they inherit the results of checks.
    pub fn prepare_for_forks(&mut self) {
        self.current();
        if geteuid().is_root() {
            services::cache_service_entries(Path::new(services::FOLDER));
        }
    }

    /// Adapts a forked process's copy: it watches for changes itself from now on.
    pub fn inherit(&mut self) {
        let has_table = self
            .base_mounts
            .as_mut()
            .is_none_or(|base_mounts| table().map(|table| base_mounts.machine.table = table).is_ok());
        if !has_table {
            self.base_mounts = None;
        }
    }
}

/// The pod's shared memory, and copies of the machine's `/proc`.
type EnteredBase = (Option<OwnedFd>, Vec<OwnedFd>);

impl BaseMounts {
    /// Prepares base mounts; `None` when the root of this process is not a mount, because a new namespace would have another root.
    fn create() -> Result<Option<BaseMounts>, String> {
        let table = table()?;
        let machine = MachineMounts { all: mounted::read_mounts(), table };
        if machine.all.iter().all(|one| one.at != Path::new("/")) {
            return Ok(None);
        }
        let prepare = || prepare().and_then(|()| has_spaces());
        run_in_fork(prepare, |child, has_spaces| BaseMounts::open(child, machine, has_spaces)).map(Some)
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
        let has_detached = users.is_none() && PodShm::can_be_detached();
        let is_root = users.is_none() && compose::is_machines_root();
        Ok(BaseMounts { users, mounts: space("mnt")?, machine, has_spaces, has_detached, is_root })
    }

    /// Whether a process can enter the base without entering a user namespace.
    pub fn needs_no_user_namespace(&self) -> bool {
        self.users.is_none()
    }

    /// Whether a process that has entered it is root of the machine.
    pub fn is_root(&self) -> bool {
        self.is_root
    }

    /// Returns the mounts.
    pub fn mounts(&self) -> Vec<Mounted> {
        self.machine.all.clone()
    }

    /// Enters the base, with a private mount namespace. `counted`: also a private user namespace, where an ordinary user needs one. Returns
    /// the pod's shared memory and copies of the machine's `/proc`.
    pub fn enter(&self, counted: bool, processes: ViewProcesses, shm: Option<&PodShm>) -> Result<EnteredBase, String> {
        if let Some(users) = &self.users {
            move_into_link_name_space(users.as_fd(), Some(LinkNameSpaceType::User))
                .map_err(describe_error("enter the user namespace"))?;
        }
        let shm = shm.map(PodShm::clone_mount).transpose()?;
        move_into_link_name_space(self.mounts.as_fd(), Some(LinkNameSpaceType::Mount))
            .map_err(describe_error("enter the mount namespace"))?;
        let is_counted = counted && !geteuid().is_root();
        if matches!(processes, ViewProcesses::Own(_)) || !is_counted {
            // SAFETY: the flag does not affect the descriptor table, which is the reason why this call is unsafe.
            unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.map_err(describe_error("enter a new mount namespace"))?;
        }
        // Mounted before entering the private user namespace, because the PID namespace belongs to the outer one.
        let machine_procs = show_processes(processes)?;
        if is_counted {
            enter_own_user_namespace()?;
        }
        Ok((shm, machine_procs))
    }
}

/// Forks this process, which has one thread, runs `prepare` in the child, and opens the result while the child still exists.
fn run_in_fork<T>(
    prepare: impl FnOnce() -> Result<bool, String>,
    open: impl FnOnce(Pid, bool) -> Result<T, String>,
) -> Result<T, String> {
    let (ready, done) = pipe_with(PipeFlags::CLOEXEC).map_err(describe_error("make a pipe"))?;
    let (exit_gate, release) = pipe_with(PipeFlags::CLOEXEC).map_err(describe_error("make a pipe"))?;
    // SAFETY: this process has one thread, so the child's memory is consistent.
    match unsafe { libc::fork() } {
        0 => {
            drop((ready, release));
            // SAFETY: sets the default disposition: a zygote ignores the exit of its children, but this child waits for its own.
            unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
            rustix::process::umask(Mode::from_raw_mode(0o022));
            let result = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(prepare)) {
                Ok(Ok(answer)) => vec![u8::from(answer)],
                Ok(Err(why)) => [&[FAILED], why.as_bytes()].concat(),
                Err(_) => [&[FAILED], &b"internal error"[..]].concat(),
            };
            let _ = rustix::io::write(&done, &result[..result.len().min(REASON)]);
            let _ = rustix::io::read(&exit_gate, &mut [0; 1]);
            // SAFETY: ends the child without running code of the parent.
            unsafe { libc::_exit(0) }
        }
        child => {
            drop((done, exit_gate));
            let child = forked_pid(child).ok_or("cannot fork")?;
            let mut result = [FAILED; REASON];
            let read = rustix::io::read(&ready, &mut result).unwrap_or(0);
            let opened = match &result[..read] {
                [] => Err("the process that prepares them ended early".into()),
                [FAILED, why @ ..] => Err(String::from_utf8_lossy(why).into_owned()),
                [answer, ..] => open(child, *answer == 1),
            };
            drop(release);
            // When children are reaped automatically, as in a zygote, this only waits for the exit.
            let _ = waitpid(Some(child), WaitOptions::empty());
            opened
        }
    }
}

impl PodShm {
    /// Returns the memory of a pod, creating it when there is none; `None` where namespaces are impossible. Only for a process with one
    /// thread.
    pub fn find_or_create<'a>(
        known: &'a mut Option<PodShm>,
        pod: &Path,
        base_mounts: &mut BaseMountsState,
    ) -> Option<&'a PodShm> {
        if known.is_none() {
            *known = base_mounts.current().and_then(|base_mounts| PodShm::create(pod, base_mounts).ok());
        }
        known.as_ref()
    }

    fn create(pod: &Path, base_mounts: &BaseMounts) -> Result<PodShm, String> {
        if base_mounts.has_detached {
            return PodShm::create_detached().map_err(describe_shm_error);
        }
        let at = pod.parent().unwrap_or(pod).with_file_name(folder::ROOT);
        folder::private_folder(&at).map_err(|error| format!("{error:#}"))?;
        let mount_tmpfs = || {
            base_mounts.enter(false, ViewProcesses::Machine, None)?;
            let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
            mount("tmpfs", &at, "tmpfs", flags, Some(shm::OPTIONS)).map_err(describe_shm_error)
        };
        let open = |process: &str| {
            let open = |path: &str, flags| {
                let path = format!("/proc/{process}/{path}");
                openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty()).map_err(describe_shm_error)
            };
            let mounts = open("ns/mnt", OFlags::RDONLY)?;
            let root = open(&format!("root{}", at.display()), OFlags::RDONLY | OFlags::DIRECTORY)?;
            Ok(PodShm { root, place: Some(ShmPlace { mounts, at: at.clone() }) })
        };
        let home = if base_mounts.users.is_none() { Home::if_may_return() } else { None };
        match home {
            Some(home) => home.visit(|| mount_tmpfs().and_then(|()| open("self"))),
            None => {
                run_in_fork(|| mount_tmpfs().map(|()| true), |process, _| open(&process.as_raw_nonzero().to_string()))
            }
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

/// Whether a PID namespace with its own `/proc` is possible. A sandbox may hide parts of `/proc`, and then the kernel refuses to mount it
/// again. Only a permanent refusal counts as false; any other failure is an error.
fn has_spaces() -> Result<bool, String> {
    let child = match PidNamespace::New.fork() {
        Err(error) if trial::is_definite(error, &["pid"]) => return Ok(false),
        forked => forked.map_err(describe_error("make a PID namespace"))?,
    };
    if child == 0 {
        // SAFETY: ends the child without running code of the parent.
        unsafe { libc::_exit(try_proc()) }
    }
    let ended = waitpid(Pid::from_raw(child), WaitOptions::empty()).map_err(describe_error("wait for a process"))?;
    match ended.and_then(|(_, status)| status.exit_status()) {
        Some(PROC_MOUNTED) => Ok(true),
        Some(REFUSED) => Ok(false),
        code => {
            let error = code.map_or(Errno::CHILD, Errno::from_raw_os_error);
            Err(describe_error("mount /proc in a PID namespace")(error))
        }
    }
}

/// Tries to mount `/proc` in a new mount namespace. Returns the exit code: one of the two constants, or the number of a temporary error.
fn try_proc() -> i32 {
    let Err(failure) = separate().and_then(|()| show_processes(ViewProcesses::Own(0))) else { return PROC_MOUNTED };
    match Errno::from_io_error(&failure.error) {
        Some(error) if !trial::is_definite(error, &["user", "mnt"]) => error.raw_os_error(),
        _ => REFUSED,
    }
}

/// Prepares this process as a base: new namespaces, and devices for containers.
pub fn prepare() -> Result<(), String> {
    separate()?;
    devices::mount_devices()
}
