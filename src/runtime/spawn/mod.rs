//! Starts the programs of pods, their shims, and the gateway.
//!
//! Three ways: [`spawn`] where nothing has to be done between fork and exec; [`waiting`] forks a child that prepares itself and waits for
//! the order to start; [`sharing_memory`] starts a child that prepares itself and executes the program at once, without a copy of the
//! memory. Forks that execute no program, and trials of a kernel feature, are where they are needed.
//! `posix_spawn` costs the same for a parent of any size (`fork` of a 1 GiB parent takes 36 ms). It also gives the child its own session,
//! default signal dispositions and an empty signal mask, without code that runs between fork and exec.

pub mod sharing_memory;
pub mod waiting;

use super::descriptors;
use super::rights;
use crate::world::ProcessRights;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::{Pid, Signal, getppid};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

/// The program to start.
pub struct SpawnProgram<'a> {
    /// The file. `PATH` is not searched.
    pub path: CString,
    /// The arguments, beginning with the name of the program.
    pub argv: Vec<CString>,
    /// The whole environment, `NAME=value`.
    pub env: Vec<CString>,
    /// The folder to start in.
    pub cwd: CString,
    /// Standard input, output and error. All other descriptors close on exec.
    pub stdio: [BorrowedFd<'a>; 3],
    /// The terminal that replaces all three and becomes the controlling terminal; only a child that runs code before exec can set it.
    pub terminal: Option<OwnedFd>,
    /// User of the process, when different; only a child that runs code before exec can set it.
    pub identity: Option<UserAndGroups>,
    /// Privileges to drop; only a child that runs code before exec can do that.
    pub rights: ProcessRights,
}

/// A user, a group, and all groups.
pub struct UserAndGroups {
    /// The user.
    pub user: u32,
    /// The group.
    pub group: u32,
    /// More groups.
    pub groups: Vec<u32>,
}

/// Opens `/dev/null`, as an empty input or to discard output.
pub fn open_dev_null() -> rustix::io::Result<OwnedFd> {
    openat(CWD, "/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

/// Starts a helper process from kloop's own binary, with these arguments, an empty environment, and a connection as its standard input.
/// `keeps_limit`: the child has the same limit of descriptors as this process.
pub fn spawn_helper(program: &Path, arguments: &[&[u8]], connection: BorrowedFd, keeps_limit: bool) -> io::Result<Pid> {
    let c_string = |text: &[u8]| CString::new(text).map_err(io::Error::other);
    let argv = [&b"kloop"[..]].iter().chain(arguments).map(|text| c_string(text)).collect::<io::Result<_>>()?;
    let dev_null = open_dev_null()?;
    let start = if keeps_limit { start } else { spawn };
    start(&SpawnProgram {
        path: c_string(program.as_os_str().as_bytes())?,
        argv,
        env: Vec::new(),
        cwd: c"/".to_owned(),
        stdio: [connection, dev_null.as_fd(), dev_null.as_fd()],
        terminal: None,
        identity: None,
        rights: ProcessRights::default(),
    })
}

/// Starts a program as leader of its own session, with the limit of descriptors with which this process was started. The error is the error
/// of exec.
pub fn spawn(program: &SpawnProgram) -> io::Result<Pid> {
    start(program).inspect(|pid| descriptors::restore_limit(*pid))
}

fn start(program: &SpawnProgram) -> io::Result<Pid> {
    let argv = pointers(&program.argv);
    let envp = pointers(&program.env);
    let mut actions = SpawnActions::new()?;
    for (target, fd) in program.stdio.iter().enumerate() {
        actions.dup2(fd.as_raw_fd(), target as i32)?;
    }
    actions.chdir(&program.cwd)?;
    let attributes = SpawnAttributes::new_session()?;
    let mut pid = 0;
    // SAFETY: every pointer is to a live, nul-terminated string or an initialised structure; both arrays end with a null pointer.
    check(unsafe {
        libc::posix_spawn(&mut pid, program.path.as_ptr(), &actions.0, &attributes.0, argv.as_ptr(), envp.as_ptr())
    })?;
    Pid::from_raw(pid).ok_or_else(|| io::Error::other("posix_spawn gave no pid"))
}

/// Closes all descriptors except these. A waiting child must not keep a pipe, a connection or a lock of its parent open.
pub fn close_other_descriptors<'a>(kept: impl Iterator<Item = &'a BorrowedFd<'a>>) {
    let mut kept: Vec<u32> = kept.map(|fd| fd.as_raw_fd().unsigned_abs()).collect();
    kept.sort_unstable();
    let close = |first: u32, last: u32| {
        if first <= last {
            // SAFETY: this process ends by exec or `_exit`: nothing that owns one of these descriptors uses or closes it again.
            unsafe { libc::close_range(first, last, 0) };
        }
    };
    let mut first = 0;
    for fd in kept {
        if fd > first {
            close(first, fd - 1);
        }
        first = fd + 1;
    }
    close(first, u32::MAX);
}

/// Returns the pid that a fork gave the parent; `None` when the fork has failed.
pub fn forked_pid(forked: libc::pid_t) -> Option<Pid> {
    if forked > 0 { Pid::from_raw(forked) } else { None }
}

/// Releases the mapped pages of this program's file. Code that still runs is mapped again from the page cache.
pub fn release_program_pages() {
    // SAFETY: the linker defines both symbols; only their addresses are taken.
    unsafe extern "C" {
        // Symbols of the linker: start of the program, and end of its code.
        static __executable_start: u8;
        static etext: u8;
    }
    let (begin, end) = (&raw const __executable_start, &raw const etext);
    let page = rustix::param::page_size();
    let length = (end.addr() - begin.addr()) / page * page;
    // SAFETY: these are whole pages of the program file, mapped read-only.
    unsafe { libc::madvise(begin.cast_mut().cast(), length, libc::MADV_DONTNEED) };
}

/// Asks the kernel to kill this process when its parent dies, because no other process knows this one yet. Returns false when the parent
/// is already dead. A parent in another PID namespace has no pid here.
fn end_with_parent(parent: Pid) -> bool {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).is_ok()
        && getppid().is_none_or(|found| found == parent)
}

/// Applies the program's standard streams, session, folder, user and privileges to this process, which is about to execute it.
fn apply_settings(program: &SpawnProgram) -> io::Result<()> {
    let done = |code: libc::c_int| if code < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    let stdio = program.terminal.as_ref().map_or(program.stdio, |terminal| [terminal.as_fd(); 3]);
    for (target, fd) in stdio.iter().enumerate() {
        // SAFETY: both are numbers; those of the program are above the three that are replaced.
        done(unsafe { libc::dup2(fd.as_raw_fd(), target as i32) })?;
    }
    // SAFETY: the path is a live, nul-terminated string; the set is initialised.
    unsafe {
        libc::setsid();
        if program.terminal.is_some() {
            done(libc::ioctl(0, libc::TIOCSCTTY, 0))?;
        }
        done(libc::chdir(program.cwd.as_ptr()))?;
        rights::give_up(&program.rights)?;
        // After the folder is entered, because its parent folders may not be accessible to the user.
        if let Some(identity) = &program.identity {
            done(libc::setgroups(identity.groups.len(), identity.groups.as_ptr()))?;
            done(libc::setgid(identity.group))?;
            done(libc::setuid(identity.user))?;
        }
        rights::forbid_new_privileges(&program.rights)?;
        // Exec itself restores the disposition of signals that have a handler; those of this process change nothing. The standard library
        // ignores this signal, and nothing here ignores another.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        let mut none = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, ptr::null_mut());
    }
    Ok(())
}

fn pointers(strings: &[CString]) -> Vec<*mut libc::c_char> {
    strings.iter().map(|text| text.as_ptr().cast_mut()).chain([ptr::null_mut()]).collect()
}

fn check(code: libc::c_int) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

struct SpawnActions(libc::posix_spawn_file_actions_t);

impl SpawnActions {
    fn new() -> io::Result<SpawnActions> {
        // SAFETY: all zeroes is a valid value of this C structure, which init then fills.
        let mut actions = SpawnActions(unsafe { std::mem::zeroed() });
        // SAFETY: the structure is live and not yet initialised.
        check(unsafe { libc::posix_spawn_file_actions_init(&mut actions.0) })?;
        Ok(actions)
    }

    fn dup2(&mut self, from: i32, to: i32) -> io::Result<()> {
        // SAFETY: the structure is initialised.
        check(unsafe { libc::posix_spawn_file_actions_adddup2(&mut self.0, from, to) })
    }

    fn chdir(&mut self, folder: &CString) -> io::Result<()> {
        // SAFETY: the structure is initialised; the path is copied by the call.
        check(unsafe { libc::posix_spawn_file_actions_addchdir_np(&mut self.0, folder.as_ptr()) })
    }
}

impl Drop for SpawnActions {
    fn drop(&mut self) {
        // SAFETY: initialised in `new`, destroyed once.
        unsafe { libc::posix_spawn_file_actions_destroy(&mut self.0) };
    }
}

struct SpawnAttributes(libc::posix_spawnattr_t);

impl SpawnAttributes {
    /// Makes attributes for a new session with default signal dispositions and no blocked signal (Rust ignores SIGPIPE, and a child would
    /// inherit that).
    fn new_session() -> io::Result<SpawnAttributes> {
        // SAFETY: all zeroes is a valid value of both C structures, which the calls below fill.
        let (mut attributes, mut signals) =
            unsafe { (SpawnAttributes(std::mem::zeroed()), std::mem::zeroed::<libc::sigset_t>()) };
        let flags = libc::POSIX_SPAWN_SETSID as i32 | libc::POSIX_SPAWN_SETSIGDEF | libc::POSIX_SPAWN_SETSIGMASK;
        // SAFETY: both structures are live, and init is called first.
        unsafe {
            check(libc::posix_spawnattr_init(&mut attributes.0))?;
            libc::sigemptyset(&mut signals);
            check(libc::posix_spawnattr_setsigmask(&mut attributes.0, &signals))?;
            // Every bit is set. `sigfillset` leaves out two signals of the C library, which the child would then ignore.
            std::ptr::write_bytes(&mut signals, 0xff, 1);
            check(libc::posix_spawnattr_setsigdefault(&mut attributes.0, &signals))?;
            check(libc::posix_spawnattr_setflags(&mut attributes.0, flags as libc::c_short))?;
        }
        Ok(attributes)
    }
}

impl Drop for SpawnAttributes {
    fn drop(&mut self) {
        // SAFETY: initialised in `new_session`, destroyed once.
        unsafe { libc::posix_spawnattr_destroy(&mut self.0) };
    }
}
