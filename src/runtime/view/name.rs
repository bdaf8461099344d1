//! The name that the machine has for a container: its pod's.

use rustix::process::geteuid;
use rustix::system::sethostname;
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::fs;

/// Calls the machine by this name, for this process and what it starts. Only root can, or who has a user namespace of its own, as a
/// private view brings one; for anybody else that would cost more than it is worth (a user namespace takes setuid programs away), so
/// there `hostname` says the machine's name, and the variable `HOSTNAME` the pod's.
pub fn call_it(name: &str) {
    if name.is_empty() || !(geteuid().is_root() || has_own_users()) {
        return;
    }
    // SAFETY: the flag does not touch the table of descriptors, which is what makes this call unsafe.
    if unsafe { unshare_unsafe(UnshareFlags::NEWUTS) }.is_ok() {
        let _ = sethostname(name.as_bytes());
    }
}

/// Whether this process is in another user namespace than its parent, who is the shim.
fn has_own_users() -> bool {
    let users = |whose: String| fs::read_link(format!("/proc/{whose}/ns/user")).ok();
    users("self".into()) != users(rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get()).to_string())
}
