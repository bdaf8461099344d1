//! The host name of a container: that of its pod.

use rustix::process::geteuid;
use rustix::system::sethostname;
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::fs;

/// Sets the host name for this process and its descendants. This needs root or an own user namespace, which a private view includes.
/// Otherwise it would cost too much (a user namespace disables setuid programs), so `hostname` then prints the machine's name, and only the
/// variable `HOSTNAME` has the pod's.
pub fn set_host_name(name: &str) {
    if name.is_empty() || !(geteuid().is_root() || has_own_users()) {
        return;
    }
    // SAFETY: the flag does not touch the table of descriptors, which is what makes this call unsafe.
    if unsafe { unshare_unsafe(UnshareFlags::NEWUTS) }.is_ok() {
        let _ = sethostname(name.as_bytes());
    }
}

/// Whether this process is in another user namespace than its parent, the shim.
fn has_own_users() -> bool {
    let users = |whose: String| fs::read_link(format!("/proc/{whose}/ns/user")).ok();
    users("self".into()) != users(rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get()).to_string())
}
