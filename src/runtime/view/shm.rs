//! `/dev/shm` of a pod: memory that only its containers share, by name.
//!
//! It is a tmpfs whose mount is attached nowhere. The pod's shim keeps it open, so it outlives every container and ends with the shim; a
//! starting container clones the mount. Kernels before 6.15 clone only attached mounts, and an ordinary user may mount only in namespaces
//! of its own: there the tmpfs is mounted in a mount namespace without processes. Never: mounts it for a container that sees the
//! machine's files.

use super::path_of;
use crate::object::io_error_text;
use rustix::fs::CWD;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, OpenTreeFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen,
    open_tree,
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::ffi::CStr;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

/// Mode of the memory's folder: everybody may write.
const MODE: &str = "1777";
/// The mode as an option of a mount.
pub(super) const OPTIONS: &CStr = c"mode=1777";

/// The memory of one pod.
pub struct PodShm {
    /// Its open folder.
    pub(super) root: OwnedFd,
    /// Its place in another mount namespace; `None` when `root` is the detached mount itself.
    pub(super) place: Option<ShmPlace>,
}

/// A mount in another mount namespace.
pub(super) struct ShmPlace {
    pub(super) mounts: OwnedFd,
    /// The path of the mount in that mount namespace.
    pub(super) at: PathBuf,
}

impl PodShm {
    /// Creates one as a detached mount. Needs the permission to mount.
    pub(super) fn create_detached() -> rustix::io::Result<PodShm> {
        let tmpfs = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_set_string(tmpfs.as_fd(), "mode", MODE)?;
        fsconfig_create(tmpfs.as_fd())?;
        // Shared memory is not executable (as in container runtimes).
        let attributes =
            MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let root = fsmount(tmpfs.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
        Ok(PodShm { root, place: None })
    }

    /// Whether this process may make such mounts, and the kernel clones them.
    pub(super) fn can_be_detached() -> bool {
        PodShm::create_detached().is_ok_and(|shm| shm.clone_mount().is_ok())
    }

    /// Whether it contains any file.
    pub fn has_files(&self) -> bool {
        fs::read_dir(path_of(&self.root)).is_ok_and(|mut entries| entries.next().is_some())
    }

    /// Returns a clone of the mount, which is not attached yet. May move this process, which has one thread and the permission, into
    /// another mount namespace.
    pub fn clone_mount(&self) -> Result<OwnedFd, String> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let Some(ShmPlace { mounts, at }) = &self.place else {
            return open_tree(&self.root, "", flags | OpenTreeFlags::AT_EMPTY_PATH).map_err(describe_shm_error);
        };
        move_into_link_name_space(mounts.as_fd(), Some(LinkNameSpaceType::Mount)).map_err(describe_shm_error)?;
        open_tree(CWD, at, flags).map_err(describe_shm_error)
    }
}

pub(super) fn describe_shm_error(error: impl std::fmt::Display) -> String {
    format!("cannot make the pod's shared memory: {error}", error = io_error_text(error))
}
