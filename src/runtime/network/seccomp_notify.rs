//! Notifications of seccomp: the caller, its call with arguments, and the answer.

use super::super::spawn::forked_pid;
use super::address;
use super::decide::SocketCall;
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, Signal, WaitOptions, kill_process, pidfd_getfd, pidfd_open, waitpid,
};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};

/// Maximum bytes read of a message: the largest datagram.
const MESSAGE: usize = 65_535;
/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`: the caller continues on the processor of the answering thread.
const SYNC_WAKE_UP: u64 = 1;

/// Maximum number of remembered threads.
const CALLERS: usize = 8;

/// Handles of the latest calling threads. A handle always refers to its thread, even when the kernel reuses the id.
#[derive(Default)]
pub struct CallerHandles(Vec<(i32, OwnedFd)>);

impl CallerHandles {
    /// Returns a duplicate of a descriptor of a thread with a known handle; `None` without one. As the thread still runs, no other thread
    /// has got its id meanwhile.
    fn known_descriptor(&mut self, thread: i32, number: i32) -> Option<Result<OwnedFd, Errno>> {
        let at = self.0.iter().position(|(known, _)| *known == thread)?;
        match pidfd_getfd(&self.0[at].1, number, PidfdGetfdFlags::empty()) {
            Err(Errno::SRCH) => {
                self.0.swap_remove(at);
                None
            }
            found => Some(found),
        }
    }

    /// Opens a handle of a thread, and returns a duplicate of one of its descriptors.
    fn new_descriptor(&mut self, thread: i32, number: i32) -> Result<OwnedFd, Errno> {
        let get = |handle: &OwnedFd| pidfd_getfd(handle, number, PidfdGetfdFlags::empty());
        let whole = Pid::from_raw(thread).ok_or(Errno::SRCH)?;
        let opened = pidfd_open(whole, PidfdFlags::empty()).or_else(|_| pidfd_open(whole, OF_THREAD));
        let Ok(handle) = opened else { return get(&open_process(thread)?) };
        let found = get(&handle)?;
        if self.0.len() >= CALLERS {
            self.0.remove(0);
        }
        self.0.push((thread, handle));
        Ok(found)
    }
}

/// `PIDFD_THREAD`: a pidfd for a thread that is not the first of its process (Linux 6.9).
const OF_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(libc::O_EXCL as u32);

/// Opens a thread's process, for kernels that have pidfds of processes only; a process's threads usually share descriptors.
fn open_process(thread: i32) -> Result<OwnedFd, Errno> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status"))
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::SRCH))?;
    let group = status.lines().find_map(|line| line.strip_prefix("Tgid:")).and_then(|group| group.trim().parse().ok());
    pidfd_open(group.and_then(Pid::from_raw).ok_or(Errno::SRCH)?, PidfdFlags::empty())
}

/// Tries to read the memory and the descriptors of a child, as answering needs it: a sandbox without ptrace permission forbids it. Only for
/// a process with one thread.
pub fn try_access_to_child() -> Result<(), Errno> {
    // A value in the child's memory.
    let word = [0x6b; 4];
    // SAFETY: this process has one thread; the child only waits to be killed.
    let child = match unsafe { libc::fork() } {
        0 => loop {
            // SAFETY: a plain system call.
            unsafe { libc::pause() };
        },
        child => child,
    };
    let Some(pid) = forked_pid(child) else { return Err(Errno::AGAIN) };
    let found = CallerHandles::default().new_descriptor(child, 0);
    let read = memory(child, word.as_ptr().addr() as u64, word.len());
    let _ = kill_process(pid, Signal::KILL);
    let _ = waitpid(Some(pid), WaitOptions::empty());
    found?;
    if read?[..] == word { Ok(()) } else { Err(Errno::FAULT) }
}

/// A notification of a call that waits for its answer.
pub struct SeccompNotice {
    id: u64,
    /// Id of the calling thread.
    thread: i32,
    /// The call.
    pub call: SocketCall,
    arguments: [u64; 6],
}

/// Makes the kernel switch directly between caller and answering thread. Older kernels ignore it.
pub fn enable_sync_wake_up(listener: &OwnedFd) {
    // SAFETY: takes a number.
    unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS, SYNC_WAKE_UP) };
}

/// Receives the next notification. Blocks until there is one.
pub fn receive(listener: &OwnedFd) -> Result<SeccompNotice, Errno> {
    // SAFETY: all zeroes is a valid value, and the kernel requires it.
    let mut raw: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is live and has the size that the request number contains.
    check(unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &mut raw) })?;
    let call = match libc::c_long::from(raw.data.nr) {
        libc::SYS_bind => SocketCall::Bind,
        libc::SYS_connect => SocketCall::Connect,
        libc::SYS_getsockname => SocketCall::Name,
        _ => SocketCall::Send,
    };
    Ok(SeccompNotice { id: raw.id, thread: raw.pid as i32, call, arguments: raw.data.args })
}

/// Makes the kernel continue the call unchanged.
pub fn go_on(listener: &OwnedFd, notice: &SeccompNotice) {
    respond(listener, notice, 0, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32);
}

/// Answers the call with its value or its error.
pub fn answer(listener: &OwnedFd, notice: &SeccompNotice, result: Result<i64, Errno>) {
    match result {
        Ok(value) => respond(listener, notice, value, 0, 0),
        Err(error) => respond(listener, notice, 0, -error.raw_os_error(), 0),
    }
}

/// Sends the response; fails harmlessly when the caller has died meanwhile.
fn respond(listener: &OwnedFd, notice: &SeccompNotice, val: i64, error: i32, flags: u32) {
    let mut response = libc::seccomp_notif_resp { id: notice.id, val, error, flags };
    // SAFETY: the structure is live and has the size that the request number contains.
    unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &mut response) };
}

impl SeccompNotice {
    /// Returns the address argument of the call, if it is an IPv4 or IPv6 address.
    pub fn address(&self) -> Option<SocketAddr> {
        let (at, length) = match self.call {
            SocketCall::Bind | SocketCall::Connect => (self.arguments[1], self.arguments[2]),
            SocketCall::Name => return None,
            SocketCall::Send => (self.arguments[4], self.arguments[5]),
        };
        let length = (length as u32 as usize).min(address::MAX_SOCKADDR_BYTES);
        address::read(&memory(self.thread, at, length).ok()?)
    }

    /// Writes this address for the caller of `getsockname`, as the kernel does: cut to the caller's buffer, with the full length.
    pub fn give_name(&self, name: &[u8]) -> Result<i64, Errno> {
        let (at, length_at) = (self.arguments[1], self.arguments[2]);
        let length = memory(self.thread, length_at, size_of::<u32>())?;
        let length = u32::from_ne_bytes(length[..].try_into().map_err(|_| Errno::FAULT)?);
        if length > i32::MAX as u32 {
            return Err(Errno::INVAL);
        }
        write_memory(self.thread, at, &name[..name.len().min(length as usize)])?;
        write_memory(self.thread, length_at, &(name.len() as u32).to_ne_bytes()).map(|()| 0)
    }

    /// Returns the bytes of a `sendto`.
    pub fn message(&self) -> Result<Vec<u8>, Errno> {
        memory(self.thread, self.arguments[1], (self.arguments[2] as usize).min(MESSAGE))
    }

    /// Returns the flags of a `sendto`.
    pub fn flags(&self) -> i32 {
        self.arguments[3] as i32
    }

    /// Returns a duplicate of the caller's socket. Fails when the caller is gone, its process cannot be accessed, or no descriptor is free.
    pub fn socket(&self, listener: &OwnedFd, callers: &mut CallerHandles) -> Result<OwnedFd, Errno> {
        let number = self.arguments[0] as i32;
        if let Some(known) = callers.known_descriptor(self.thread, number) {
            return known;
        }
        let socket = callers.new_descriptor(self.thread, number)?;
        // The thread id may have been reused; it was not if the call still waits.
        // SAFETY: reads the id through a valid pointer.
        let waits = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &self.id) };
        if waits == 0 { Ok(socket) } else { Err(Errno::SRCH) }
    }
}

/// Reads up to this many bytes from the memory of a thread's process.
fn memory(thread: i32, at: u64, length: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; length];
    let here = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: length };
    let there = libc::iovec { iov_base: at as *mut libc::c_void, iov_len: length };
    // SAFETY: the kernel writes into our live buffer of this length, and checks the other process's address itself.
    let read = unsafe { libc::process_vm_readv(thread, &here, 1, &there, 1, 0) };
    if read < 0 {
        return Err(Errno::FAULT);
    }
    bytes.truncate(read as usize);
    Ok(bytes)
}

/// Writes into the memory of a thread's process.
fn write_memory(thread: i32, at: u64, bytes: &[u8]) -> Result<(), Errno> {
    let here = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let there = libc::iovec { iov_base: at as *mut libc::c_void, iov_len: bytes.len() };
    // SAFETY: the kernel only reads our live buffer of this length, and checks the other process's address itself.
    let written = unsafe { libc::process_vm_writev(thread, &here, 1, &there, 1, 0) };
    if usize::try_from(written) == Ok(bytes.len()) { Ok(()) } else { Err(Errno::FAULT) }
}

fn check(code: i32) -> Result<(), Errno> {
    match code {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
    }
}
