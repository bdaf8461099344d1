//! Starting a process: the one place where it is done.
//!
//! `posix_spawn`, because it costs the same for a parent of any size (`fork` of a 1 GiB parent costs 36 ms), and because it alone
//! gives a child a session of its own, default signal dispositions and an empty signal mask without code that runs between fork and exec.

use super::descriptors;
use super::pid_namespace::PidNamespace;
use super::process;
use super::rights;
use crate::object::io_error_text;
use crate::world::ProcessRights;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, getpid, getppid};
use std::ffi::CString;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

/// The program to start.
pub struct SpawnProgram<'a> {
    /// The file; no search is made.
    pub path: CString,
    /// Arguments from the name on.
    pub argv: Vec<CString>,
    /// The whole environment, `NAME=value`.
    pub env: Vec<CString>,
    /// The folder to start in.
    pub cwd: CString,
    /// Standard input, output and error. The child gets these and nothing else: every other descriptor of ours closes on exec.
    pub stdio: [BorrowedFd<'a>; 3],
    /// The terminal that it gets as all three of them and as its controlling one; only [`fork`] can see to that.
    pub terminal: Option<OwnedFd>,
    /// User of the process, when different; only [`fork`] can set it.
    pub identity: Option<UserAndGroups>,
    /// Privileges to give up; only [`fork`] can do that.
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

/// `/dev/null`, for what is to read nothing and be heard by nobody.
pub fn nothing() -> rustix::io::Result<OwnedFd> {
    openat(CWD, "/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

/// Starts this program once more as a process of kloop's own: with these words, no environment, and a connection as its standard input.
/// `keeps_limit`: it may have as many descriptors as this process.
pub fn helper(program: &Path, words: &[&[u8]], connection: BorrowedFd, keeps_limit: bool) -> io::Result<Pid> {
    let word = |text: &[u8]| CString::new(text).map_err(io::Error::other);
    let argv = [&b"kloop"[..]].iter().chain(words).map(|text| word(text)).collect::<io::Result<_>>()?;
    let nothing = nothing()?;
    let start = if keeps_limit { start } else { spawn };
    start(&SpawnProgram {
        path: word(program.as_os_str().as_bytes())?,
        argv,
        env: Vec::new(),
        cwd: c"/".to_owned(),
        stdio: [connection, nothing.as_fd(), nothing.as_fd()],
        terminal: None,
        identity: None,
        rights: ProcessRights::default(),
    })
}

/// Starts a program as leader of its own session; the error is that of the exec. It may have as many descriptors as this process was
/// started with.
pub fn spawn(program: &SpawnProgram) -> io::Result<Pid> {
    start(program).inspect(|pid| descriptors::give_back(*pid))
}

fn start(program: &SpawnProgram) -> io::Result<Pid> {
    let argv = pointers(&program.argv);
    let envp = pointers(&program.env);
    let mut actions = SpawnActions::new()?;
    for (target, fd) in program.stdio.iter().enumerate() {
        actions.dup2(fd.as_raw_fd(), target as i32)?;
    }
    actions.chdir(&program.cwd)?;
    let attributes = SpawnAttributes::fresh_session()?;
    let mut pid = 0;
    // SAFETY: every pointer is to a live, nul-terminated string or an initialised structure; both arrays end with a null pointer.
    check(unsafe {
        libc::posix_spawn(&mut pid, program.path.as_ptr(), &actions.0, &attributes.0, argv.as_ptr(), envp.as_ptr())
    })?;
    Pid::from_raw(pid).ok_or_else(|| io::Error::other("posix_spawn gave no pid"))
}

/// As [`spawn`], but the child first prepares itself, in a fork of this process (in a process
/// namespace, if one is named), says then what to execute, and waits until it may. For
/// processes of one thread and few pages, as shims are. Errors of the child are told when it is let [go](PreparedChild::start), in its words.
pub fn fork<'a>(
    space: Option<&PidNamespace>,
    prepare: impl FnOnce() -> Result<SpawnProgram<'a>, String>,
    explain: impl FnOnce(&SpawnProgram, &io::Error) -> String,
) -> Result<PreparedChild, String> {
    let pipe = || {
        pipe_with(PipeFlags::CLOEXEC)
            .map_err(|error| format!("cannot make a pipe: {error}", error = io_error_text(error)))
    };
    let ((said, say), (door, word)) = (pipe()?, pipe()?);
    let parent = getpid();
    let forked = match space {
        Some(space) => {
            space.fork().map_err(|error| format!("cannot fork into a process namespace: {}", io_error_text(error)))?
        }
        // SAFETY: a shim has one thread, so the child has whatever the parent had, in a whole state.
        None => unsafe { libc::fork() },
    };
    match forked {
        0 => {
            drop((said, word));
            if !dies_with(parent) {
                // SAFETY: as below.
                unsafe { libc::_exit(127) }
            }
            // If only the parent can signal a process, nothing can after the parent's death.
            let bound = space.is_some_and(PidNamespace::is_new) || !process::can_be_held();
            let become_it = || match prepare() {
                Ok(program) => match become_ready(&program) {
                    Ok(()) => {
                        let (argv, envp) = (pointers(&program.argv), pointers(&program.env));
                        let stdio = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
                        hold_only(stdio.iter().chain(&[&door, &say].map(AsFd::as_fd)));
                        drop_pages();
                        if !is_let_go(&door, parent, bound) || rustix::io::write(&say, GOING) != Ok(1) {
                            return String::new();
                        }
                        // SAFETY: every pointer is to a live, nul-terminated string; both arrays end with a null pointer.
                        unsafe { libc::execve(program.path.as_ptr(), argv.as_ptr().cast(), envp.as_ptr().cast()) };
                        explain(&program, &io::Error::last_os_error())
                    }
                    Err(error) => explain(&program, &error),
                },
                Err(why) => why,
            };
            // Nothing of the parent may unwind in the child.
            let why = std::panic::catch_unwind(std::panic::AssertUnwindSafe(become_it));
            let _ = rustix::io::write(&say, why.unwrap_or_else(|_| "preparing it panicked".into()).as_bytes());
            // SAFETY: ends the child without running anything that belongs to the parent.
            unsafe { libc::_exit(127) }
        }
        pid => {
            let pid = Pid::from_raw(pid).filter(|_| pid > 0).ok_or("cannot fork")?;
            Ok(PreparedChild { pid, word, said })
        }
    }
}

/// Closes everything else that this process has of its parent's: while it waits, nobody is to miss the end of a pipe, a connection or a
/// lock because of it.
pub fn hold_only<'a>(kept: impl Iterator<Item = &'a BorrowedFd<'a>>) {
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

/// Message of a child right before it executes its program.
const GOING: &[u8] = b"!";

/// Ends this process with its parent, from whom nobody else has heard of it yet. False when the parent has died already; a parent in
/// another process namespace has no name here while it lives.
fn dies_with(parent: Pid) -> bool {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).is_ok()
        && getppid().is_none_or(|found| found == parent)
}

/// Lets go of the pages of this program that were read so far: exec would have to, while somebody waits for it. What still runs is read
/// again, from memory.
fn drop_pages() {
    // SAFETY: the linker defines both symbols; only their addresses are taken.
    unsafe extern "C" {
        // Symbols of the linker: start of the program, and end of its code.
        static __executable_start: u8;
        static etext: u8;
    }
    let (begin, end) = (&raw const __executable_start, &raw const etext);
    let page = rustix::param::page_size();
    let length = (end.addr() - begin.addr()) / page * page;
    // SAFETY: these are whole pages of the file, which nobody has written to.
    unsafe { libc::madvise(begin.cast_mut().cast(), length, libc::MADV_DONTNEED) };
}

/// Waits for the word to execute. It never comes from a parent that has died. `bound`: it also ends with that afterwards.
fn is_let_go(door: &OwnedFd, parent: Pid, bound: bool) -> bool {
    // Other namespaces and rights may have made it void.
    if !dies_with(parent) {
        return false;
    }
    let came = loop {
        match rustix::io::read(door, &mut [0; 1]) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other == Ok(1),
        }
    };
    came && (bound || rustix::process::set_parent_process_death_signal(None).is_ok())
}

/// A child that is about to execute its program.
pub struct PreparedChild {
    pid: Pid,
    word: OwnedFd,
    said: OwnedFd,
}

impl PreparedChild {
    /// Returns its pid.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Lets it execute its program; the error is its own, and nothing of the program has run.
    pub fn start(self) -> Result<Pid, String> {
        // One that could not prepare itself hears nothing any more, and has said why.
        let _ = rustix::io::write(&self.word, b"!");
        let mut said = Vec::new();
        let _ = std::fs::File::from(self.said).read_to_end(&mut said);
        let why = match said.strip_prefix(GOING) {
            Some([]) => return Ok(self.pid),
            Some(why) => why,
            None if said.is_empty() => b"it was killed before it could be executed",
            None => &said,
        };
        let _ = rustix::process::waitpid(Some(self.pid), rustix::process::WaitOptions::empty());
        Err(String::from_utf8_lossy(why).into_owned())
    }
}

/// Gives this process, which is about to execute a program, all that the program is to find.
fn become_ready(program: &SpawnProgram) -> io::Result<()> {
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
        // After the folder was entered: what is above it may be closed to that user.
        if let Some(who) = &program.identity {
            done(libc::setgroups(who.groups.len(), who.groups.as_ptr()))?;
            done(libc::setgid(who.group))?;
            done(libc::setuid(who.user))?;
        }
        rights::close(&program.rights)?;
        for signal in 1..65 {
            libc::signal(signal, libc::SIG_DFL);
        }
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
    /// A session of its own, every signal at its default, none blocked (Rust ignores SIGPIPE, which a child would inherit).
    fn fresh_session() -> io::Result<SpawnAttributes> {
        // SAFETY: all zeroes is a valid value of both C structures, which the calls below fill.
        let (mut attributes, mut signals) =
            unsafe { (SpawnAttributes(std::mem::zeroed()), std::mem::zeroed::<libc::sigset_t>()) };
        let flags = libc::POSIX_SPAWN_SETSID as i32 | libc::POSIX_SPAWN_SETSIGDEF | libc::POSIX_SPAWN_SETSIGMASK;
        // SAFETY: both structures are live; init comes first.
        unsafe {
            check(libc::posix_spawnattr_init(&mut attributes.0))?;
            libc::sigemptyset(&mut signals);
            check(libc::posix_spawnattr_setsigmask(&mut attributes.0, &signals))?;
            // Every bit, and not `sigfillset`: that spares the C library's own two, which the child would then start with ignored.
            std::ptr::write_bytes(&mut signals, 0xff, 1);
            check(libc::posix_spawnattr_setsigdefault(&mut attributes.0, &signals))?;
            check(libc::posix_spawnattr_setflags(&mut attributes.0, flags as libc::c_short))?;
        }
        Ok(attributes)
    }
}

impl Drop for SpawnAttributes {
    fn drop(&mut self) {
        // SAFETY: initialised in `fresh_session`, destroyed once.
        unsafe { libc::posix_spawnattr_destroy(&mut self.0) };
    }
}
