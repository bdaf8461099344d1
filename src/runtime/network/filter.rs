//! The filter itself: a few instructions of classic BPF that notify for three or four system calls and allow all others.

use super::super::low_ports;
use rustix::io::Errno;
use std::os::fd::{FromRawFd, OwnedFd};

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
/// The two halves of the fifth argument, which for `sendto` is the address.
const FIFTH: [u32; 2] = [48, 52];

#[cfg(target_arch = "x86_64")]
const OURS: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const OURS: u32 = 0xc000_00b7;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Returns the filter. `tells_names` adds `getsockname`, for machines where the low ports of pods are mapped to higher ones.
fn program(tells_names: bool) -> [libc::sock_filter; 13] {
    let step = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    let call = |number: libc::c_long| number as u32;
    [
        step(LOAD, ARCHITECTURE, 0, 0),
        // 32-bit programs have other call numbers: they stay on the host's network.
        step(EQUAL, OURS, 0, 9),
        step(LOAD, NUMBER, 0, 0),
        step(EQUAL, call(libc::SYS_bind), 8, 0),
        step(EQUAL, call(libc::SYS_connect), 7, 0),
        step(EQUAL, call(libc::SYS_getsockname), if tells_names { 6 } else { 5 }, 0),
        step(EQUAL, call(libc::SYS_sendto), 0, 4),
        step(LOAD, FIFTH[0], 0, 0),
        step(EQUAL, 0, 0, 3),
        step(LOAD, FIFTH[1], 0, 0),
        step(EQUAL, 0, 0, 1),
        step(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0),
        step(RETURN, libc::SECCOMP_RET_USER_NOTIF, 0, 0),
    ]
}

/// Installs the filter for this process and its descendants. Returns the listener, which another process must serve: from now on calls to
/// bind or connect wait for it. Fails where the kernel or a sandbox forbids it.
pub fn install() -> Result<OwnedFd, Errno> {
    let mut program = program(low_ports::lowest_allowed() > 0);
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // Only SIGKILL interrupts a waiting caller: Go's runtime sends signals all the time.
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    // SAFETY: the program is live and the length is correct; the call reads it and keeps no pointer.
    let put = || unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &filter) };
    let mut fd = put();
    // A root user without all capabilities must set no_new_privs, like an ordinary user.
    if fd < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EACCES) {
        rustix::thread::set_no_new_privs(true)?;
        fd = put();
    }
    if fd < 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::NOSYS));
    }
    // SAFETY: a new descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}
