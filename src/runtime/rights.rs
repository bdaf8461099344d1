//! Drops privileges of a process before it executes a container's program.

use crate::world::ProcessRights;
use rustix::process::geteuid;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use std::io;

/// Capabilities are numbered within a 64-bit mask. The loop ends earlier, at the first number that the kernel refuses.
const MAX_CAPABILITIES: u32 = 64;

/// Drops from the bounding set every capability that the container does not keep. A program that root executes gets the bounding set, so
/// nothing else needs to change. Must run as root.
pub fn give_up(rights: &ProcessRights) -> io::Result<()> {
    let Some(left) = rights.capabilities.filter(|_| geteuid().is_root()) else { return Ok(()) };
    for number in (0..MAX_CAPABILITIES).filter(|number| left & (1 << number) == 0) {
        // SAFETY: takes two numbers and no pointer.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(number), 0, 0, 0) } < 0 {
            let error = io::Error::last_os_error();
            // The first number that the kernel does not know is the end of its list.
            if error.raw_os_error() == Some(libc::EINVAL) {
                break;
            }
            return Err(error);
        }
    }
    let had = capabilities(None)?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { inheritable: none, ..had })?;
    Ok(())
}

/// Sets `no_new_privs` where the container may not gain rights.
pub fn forbid_new_privileges(rights: &ProcessRights) -> io::Result<()> {
    if rights.no_more { Ok(rustix::thread::set_no_new_privs(true)?) } else { Ok(()) }
}
