//! `/dev/shm` of a pod: memory that only its containers share, by name.
//!
//! It is a tmpfs in a mount namespace without processes. The pod's shim keeps that open, so it outlives every container and ends with the
//! shim; a starting container clones the mount. Never: mounts it for a container that sees the machine's files.

use super::super::folder;
use super::base_mounts::{BaseMounts, BaseMountsState, run_in_fork};
use super::path_of;
use crate::object::io_error_text;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{MountFlags, MoveMountFlags, OpenTreeFlags, mount, move_mount, open_tree};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The memory of one pod.
pub struct PodShm {
    mounts: OwnedFd,
    /// Its path in that mount namespace.
    at: PathBuf,
    /// Its open folder.
    root: OwnedFd,
}

impl PodShm {
    /// Returns the memory of a pod, creating it when there is none; `None` where namespaces are impossible. Only for a process with one
    /// thread.
    pub fn find_or_create<'a>(
        known: &'a mut Option<PodShm>,
        pod: &Path,
        base_mounts: &mut BaseMountsState,
    ) -> Option<&'a PodShm> {
        if known.is_none() {
            *known = base_mounts.current().and_then(|base_mounts| PodShm::create(pod, base_mounts).ok());
        }
        known.as_ref()
    }

    fn create(pod: &Path, base_mounts: &BaseMounts) -> Result<PodShm, String> {
        let at = pod.parent().unwrap_or(pod).with_file_name(folder::ROOT);
        folder::private_folder(&at).map_err(|error| format!("{error:#}"))?;
        let mount_tmpfs = || {
            base_mounts.enter(false, false, None)?;
            // Shared memory is not executable (as in container runtimes).
            let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
            mount("tmpfs", &at, "tmpfs", flags, Some(c"mode=1777")).map(|()| true).map_err(failed)
        };
        run_in_fork(mount_tmpfs, |process, _| {
            let open = |path: &str, flags| {
                let path = format!("/proc/{}/{path}", process.as_raw_nonzero());
                openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty()).map_err(failed)
            };
            let mounts = open("ns/mnt", OFlags::RDONLY)?;
            let root = open(&format!("root{}", at.display()), OFlags::RDONLY | OFlags::DIRECTORY)?;
            Ok(PodShm { mounts, at: at.clone(), root })
        })
    }

    /// Whether it contains any file.
    pub fn has_files(&self) -> bool {
        fs::read_dir(path_of(&self.root)).is_ok_and(|mut entries| entries.next().is_some())
    }

    /// Returns a clone of the mount, which is not attached yet. Moves this process, which has one thread and the permission, into the mount
    /// namespace.
    pub fn clone_mount(&self) -> Result<OwnedFd, String> {
        move_into_link_name_space(self.mounts.as_fd(), Some(LinkNameSpaceType::Mount)).map_err(failed)?;
        open_tree(CWD, &self.at, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC).map_err(failed)
    }
}

/// Attaches a cloned mount.
pub fn attach_mount(copy: &OwnedFd, place: &OwnedFd) -> rustix::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(copy, "", place, "", flags)
}

fn failed(error: impl std::fmt::Display) -> String {
    format!("cannot make the pod's shared memory: {error}", error = io_error_text(error))
}
