//! `/dev/shm` of a pod: memory that its containers share by names, and nobody else.
//!
//! It is a tmpfs in a mount namespace in which nothing runs. The pod's shim keeps that, so it outlives every container and goes with the
//! shim; a container that begins takes a copy of the mount along. Never: the memory of a container that sees the machine's files.

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
    /// Its path among those mounts.
    at: PathBuf,
    /// Its folder, to look into.
    root: OwnedFd,
}

impl PodShm {
    /// That of a pod, made when there is none yet; none where namespaces cannot be had. Only for a process of one thread.
    pub fn find_or_make<'a>(
        known: &'a mut Option<PodShm>,
        pod: &Path,
        ground: &mut BaseMountsState,
    ) -> Option<&'a PodShm> {
        if known.is_none() {
            *known = ground.current().and_then(|ground| PodShm::create(pod, ground).ok());
        }
        known.as_ref()
    }

    fn create(pod: &Path, ground: &BaseMounts) -> Result<PodShm, String> {
        let at = pod.parent().unwrap_or(pod).with_file_name(folder::ROOT);
        folder::private_folder(&at).map_err(|error| format!("{error:#}"))?;
        let lay = || {
            ground.enter(false, false, None)?;
            // Shared memory is not executable (as in container runtimes).
            let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
            mount("tmpfs", &at, "tmpfs", flags, Some(c"mode=1777")).map(|()| true).map_err(failed)
        };
        run_in_fork(lay, |process, _| {
            let open = |path: &str, flags| {
                let path = format!("/proc/{}/{path}", process.as_raw_nonzero());
                openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty()).map_err(failed)
            };
            let mounts = open("ns/mnt", OFlags::RDONLY)?;
            let root = open(&format!("root{}", at.display()), OFlags::RDONLY | OFlags::DIRECTORY)?;
            Ok(PodShm { mounts, at: at.clone(), root })
        })
    }

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

fn failed(error: impl std::fmt::Display) -> String {
    format!("cannot share memory within the pod: {error}", error = io_error_text(error))
}
