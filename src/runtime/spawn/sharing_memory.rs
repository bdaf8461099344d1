//! A child that shares the memory of its parent, which waits until the child executes its program: `CLONE_VM` and `CLONE_VFORK` of
//! clone(2).
//!
//! A fork copies the page tables, and the child then takes a page fault for each page that it touches; exec throws both away. That was an
//! eighth of the time to start a container. Here the child works on the memory of the parent, on a stack of its own. Its descriptors,
//! folders, signal handlers, namespaces and privileges are its own from the beginning.
//!
//! A child that is killed before exec may leave the allocator in an inconsistent state, so the parent then ends: the next shim continues
//! from the record. That is rare: during these milliseconds no other process knows the child's pid.
//!
//! Never: for a process with several threads; for a child that makes a user namespace; for one in the PID namespace of a container that
//! runs, whose processes could reach the parent's memory through it; for one that the kernel may kill for a limit of memory.

use super::super::process;
use super::{SpawnProgram, apply_settings, end_with_parent, forked_pid, pointers};
use crate::object::io_error_text;
use rustix::process::{DumpableBehavior, Pid, WaitOptions, dumpable_behavior, getpid, set_dumpable_behavior, waitpid};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

/// Size of the child's stack. Only touched pages cost memory.
const STACK: usize = 1 << 20;

/// Error that no process reads.
const PARENT_ENDED: &str = "its parent has ended";

/// Starts a child, as the first process of a new PID namespace if `in_pid_namespace`. The child runs `prepare`, and executes the program
/// that `prepare` returns. The error is the one of `prepare`, or the text of `explain` for a failed exec.
///
/// Memory that `prepare` and `explain` allocate is freed. They must not take a descriptor out of a value of the parent, because the child
/// closes only its own copy, and must not change a static, because the parent would see the change.
pub fn start<'a>(
    in_pid_namespace: bool,
    prepare: impl FnOnce() -> Result<SpawnProgram<'a>, String>,
    explain: impl FnOnce(&SpawnProgram, &io::Error) -> String,
) -> Result<Pid, String> {
    let failed = |error: io::Error| format!("cannot fork: {}", io_error_text(error));
    let stack = ChildStack::new().map_err(failed)?;
    let mut child = Child {
        steps: Some((prepare, explain)),
        parent: getpid(),
        // The first process of a PID namespace ends with its parent. So does any process without pidfds: only the parent can signal it.
        ends_with_parent: in_pid_namespace || !process::has_pidfds(),
        program: None,
        arrays: Default::default(),
        is_executing: false,
        error: None,
    };
    let pid = clone(&stack, in_pid_namespace, &mut child).map_err(failed)?;
    let Child { program, is_executing, error, .. } = child;
    if let Some(program) = program {
        // It was open in the child alone: to close its number here could close another descriptor.
        std::mem::forget(program.terminal);
    }
    let why = match error {
        None if is_executing => return Ok(pid),
        Some(why) => why,
        // SAFETY: ends this process without code that uses its memory.
        None => unsafe { libc::_exit(1) },
    };
    let _ = waitpid(Some(pid), WaitOptions::empty());
    Err(why)
}

/// State of the child, which the parent reads after the child has executed its program or ended.
struct Child<'a, P, E> {
    steps: Option<(P, E)>,
    parent: Pid,
    /// Whether it is killed with its parent also after the start.
    ends_with_parent: bool,
    program: Option<SpawnProgram<'a>>,
    /// Pointers to the program's arguments and environment.
    arrays: [Vec<*mut libc::c_char>; 2],
    is_executing: bool,
    error: Option<String>,
}

impl<'a, P, E> Child<'a, P, E>
where
    P: FnOnce() -> Result<SpawnProgram<'a>, String>,
    E: FnOnce(&SpawnProgram, &io::Error) -> String,
{
    /// Prepares this process and executes the program. Returns why that failed.
    fn execute(&mut self) -> String {
        let Some((prepare, explain)) = self.steps.take().filter(|_| end_with_parent(self.parent)) else {
            return PARENT_ENDED.into();
        };
        let program = match prepare() {
            Ok(program) => &*self.program.insert(program),
            Err(why) => return why,
        };
        if let Err(error) = apply_settings(program) {
            return explain(program, &error);
        }
        self.arrays = [pointers(&program.argv), pointers(&program.env)];
        // Set again, because a change of namespaces or credentials may have cleared the signal.
        let may_start = end_with_parent(self.parent)
            && (self.ends_with_parent || rustix::process::set_parent_process_death_signal(None).is_ok());
        if !may_start {
            return PARENT_ENDED.into();
        }
        let [argv, envp] = self.arrays.each_ref().map(|array| array.as_ptr().cast());
        self.is_executing = true;
        // SAFETY: every pointer is to a live, nul-terminated string; both arrays end with a null pointer.
        unsafe { libc::execve(program.path.as_ptr(), argv, envp) };
        explain(program, &io::Error::last_os_error())
    }
}

/// Runs a child in the memory of this process, and returns its pid once it has executed its program or ended.
fn clone<'a, P, E>(stack: &ChildStack, in_pid_namespace: bool, child: &mut Child<'a, P, E>) -> io::Result<Pid>
where
    P: FnOnce() -> Result<SpawnProgram<'a>, String>,
    E: FnOnce(&SpawnProgram, &io::Error) -> String,
{
    extern "C" fn run<'a, P, E>(child: *mut libc::c_void) -> libc::c_int
    where
        P: FnOnce() -> Result<SpawnProgram<'a>, String>,
        E: FnOnce(&SpawnProgram, &io::Error) -> String,
    {
        // SAFETY: the pointer is that of `clone`, whose process waits.
        let child = unsafe { &mut *child.cast::<Child<P, E>>() };
        let why = catch_unwind(AssertUnwindSafe(|| child.execute()));
        child.error = Some(why.unwrap_or_else(|_| "preparing it panicked".into()));
        127
    }
    let pid_namespace = if in_pid_namespace { libc::CLONE_NEWPID } else { 0 };
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD | pid_namespace;
    let guard = MemoryGuard::new()?;
    // SAFETY: this process has one thread, which waits until the child has its own memory or has ended: only one of both runs at a time,
    // and the child uses a stack of its own. `child` outlives the call.
    let pid = unsafe { libc::clone(run::<P, E>, stack.top(), flags, ptr::from_mut(child).cast()) };
    let error = io::Error::last_os_error();
    drop(guard);
    forked_pid(pid).ok_or(error)
}

/// Protects the shared memory: no signal handler of the parent runs in the child, and no other process may trace the child, which changes
/// its user and privileges before it has its own memory. Dropping this restores the parent's state.
struct MemoryGuard {
    signals: libc::sigset_t,
    dumpable: DumpableBehavior,
}

impl MemoryGuard {
    fn new() -> io::Result<MemoryGuard> {
        let dumpable = dumpable_behavior()?;
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        // SAFETY: all zeroes is a valid value of this C structure; both sets are live, and filled before they are read.
        let signals = unsafe {
            let (mut all, mut signals) = std::mem::zeroed::<(libc::sigset_t, libc::sigset_t)>();
            libc::sigfillset(&mut all);
            libc::sigprocmask(libc::SIG_SETMASK, &all, &mut signals);
            signals
        };
        Ok(MemoryGuard { signals, dumpable })
    }
}

impl Drop for MemoryGuard {
    fn drop(&mut self) {
        let _ = set_dumpable_behavior(self.dumpable);
        // SAFETY: the set is initialised.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &self.signals, ptr::null_mut()) };
    }
}

/// Memory for the stack of a child, above a guard page.
struct ChildStack(*mut libc::c_void);

impl ChildStack {
    fn new() -> io::Result<ChildStack> {
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK);
        // SAFETY: a new mapping at a place that the kernel chooses.
        let bottom = unsafe { libc::mmap(ptr::null_mut(), STACK, access, kind, -1, 0) };
        if bottom == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let stack = ChildStack(bottom);
        // SAFETY: the lowest page of the mapping, which nothing uses yet.
        match unsafe { libc::mprotect(bottom, rustix::param::page_size(), libc::PROT_NONE) } {
            0 => Ok(stack),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Returns its upper end, where a stack begins.
    fn top(&self) -> *mut libc::c_void {
        self.0.wrapping_byte_add(STACK)
    }
}

impl Drop for ChildStack {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, unmapped once; no process runs on it.
        unsafe { libc::munmap(self.0, STACK) };
    }
}
