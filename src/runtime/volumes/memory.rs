//! Volumes in memory: a tmpfs that only the pod's shim and its descendants see, and that ends with the last of them.

use crate::object::io_error_text;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::ffi::CString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Mounts a tmpfs unless it is mounted: with this size in bytes, or the kernel's default.
pub fn mount_at(folder: &Path, most: Option<i64>) -> Result<(), String> {
    if is_mounted(folder) {
        return Ok(());
    }
    separate()?;
    let size = most.map_or(String::new(), |most| format!(",size={most}"));
    let options = CString::new(format!("mode=1777{size}")).map_err(io_error_text)?;
    mount("tmpfs", folder, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(options.as_c_str()))
        .map_err(|error| format!("cannot mount a tmpfs: {error}", error = io_error_text(error)))
}

fn is_mounted(folder: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev()).ok();
    folder.parent().is_some_and(|parent| device(folder) != device(parent))
}

/// Gives this process its own mount namespace, once: later mounts of the machine still arrive, and none propagates back.
fn separate() -> Result<(), String> {
    let space = |whose: &str| fs::read_link(format!("/proc/{whose}/ns/mnt")).ok();
    let parent = rustix::process::getppid().map_or(0, |parent| parent.as_raw_nonzero().get());
    if parent != 0 && space("self") != space(&parent.to_string()) {
        return Ok(());
    }
    // SAFETY: the flag does not touch the table of descriptors, which is what makes this call unsafe.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }
        .map_err(|error| format!("cannot make a mount namespace: {error}", error = io_error_text(error)))?;
    let quietly = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", quietly).map_err(|error| {
        format!("cannot separate its mounts from the machine's: {error}", error = io_error_text(error))
    })
}

/// Returns the mounts below a folder.
pub fn mounted(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| is_mounted(path))
}

/// Unmounts all mounts below a folder.
pub fn unmount_all(folder: &Path) {
    for volume in mounted(folder) {
        let _ = unmount(volume, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    }
}
