//! `/dev/shm` of a pod: memory that its containers share by names, and nobody else.
//!
//! It is a tmpfs in a mount namespace in which nothing runs. The pod's shim keeps that, so it outlives every container and goes with the
//! shim; a container that begins takes a copy of the mount along. Never: the memory of a container that sees the machine's files.

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
    /// Its path among those mounts.
    pub(super) at: PathBuf,
    /// Its folder, to look into.
    pub(super) root: OwnedFd,
}

impl PodShm {
    /// Whether anything is in it.
    pub fn holds_any(&self) -> bool {
        fs::read_dir(path_of(&self.root)).is_ok_and(|mut entries| entries.next().is_some())
    }

    /// A copy of the mount, which is nowhere yet. Leaves this process, which has one thread and the rights to it, among other mounts.
    pub fn clone_mount(&self) -> Result<OwnedFd, String> {
        move_into_link_name_space(self.mounts.as_fd(), Some(LinkNameSpaceType::Mount)).map_err(failed)?;
        open_tree(CWD, &self.at, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC).map_err(failed)
    }
}

/// Puts such a copy in its place.
pub fn put(copy: &OwnedFd, place: &OwnedFd) -> rustix::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(copy, "", place, "", flags)
}

pub(super) fn failed(error: impl std::fmt::Display) -> String {
    format!("cannot share memory within the pod: {error}", error = io_error_text(error))
}
