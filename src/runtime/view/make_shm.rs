//! Creates the memory that the containers of a pod share, in a process that has entered the base mounts.

use super::super::folder;
use super::base_mounts::{BaseMounts, BaseMountsState, run_in_fork};
use super::shm::{PodShm, failed};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{MountFlags, mount};
use std::path::Path;

impl PodShm {
    /// Returns the memory of a pod, creating it when there is none; `None` where namespaces are impossible. Only for a process with one
    /// thread.
    pub fn find_or_make<'a>(
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
        let lay = || {
            base_mounts.enter(false, false, None)?;
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
}
