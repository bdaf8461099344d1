//! `/dev/shm` of a pod: memory that only its containers share, by name.
//!
//! It is a tmpfs in a mount namespace without processes. The pod's shim keeps that open, so it outlives every container and ends with the
//! shim; a starting container clones the mount. Never: mounts it for a container that sees the machine's files.

use super::path_of;
use crate::object::io_error_text;
use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

/// The memory of one pod.
pub struct PodShm {
    pub(super) mounts: OwnedFd,
    /// Its path in that mount namespace.
    pub(super) at: PathBuf,
    /// Its open folder.
    pub(super) root: OwnedFd,
}

impl PodShm {
    /// Whether it contains any file.
    pub fn has_files(&self) -> bool {
        fs::read_dir(path_of(&self.root)).is_ok_and(|mut entries| entries.next().is_some())
    }

    /// Returns a clone of the mount, which is not attached yet. Moves this process, which has one thread and the permission, into the mount
    /// namespace.
    pub fn clone_mount(&self) -> Result<OwnedFd, String> {
        move_into_link_name_space(self.mounts.as_fd(), Some(LinkNameSpaceType::Mount)).map_err(describe_shm_error)?;
        open_tree(CWD, &self.at, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)
            .map_err(describe_shm_error)
    }
}

/// Attaches a cloned mount.
pub fn attach_mount(copy: &OwnedFd, place: &OwnedFd) -> rustix::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(copy, "", place, "", flags)
}

pub(super) fn describe_shm_error(error: impl std::fmt::Display) -> String {
    format!("cannot make the pod's shared memory: {error}", error = io_error_text(error))
}
