//! Folders that a container does not share with the machine: its own `/tmp`, and its pod's `/dev/shm`. They are empty at first, except for
//! necessary entries of the machine's folders.
//!
//! An entry of the machine's folder is visible when it contains the cluster's folder or something that the container was started with: its
//! working folder, the manifest's, its program, a path in a word of its command.

use super::{cloned_mount, create_folder};
use crate::object::io_error_text;
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, openat, openat2};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

/// Folder of shared memory.
pub const SHM: &str = "/dev/shm";
/// Paths of the private folders.
const PLACES: [&str; 2] = ["/tmp", SHM];

/// Whether a path is in a folder that every container has of its own.
pub fn is_within(path: &str) -> bool {
    PLACES.iter().any(|at| Path::new(path).strip_prefix(at).is_ok_and(|rest| rest != Path::new("")))
}

/// A private folder to make.
pub struct PrivateDir {
    at: &'static Path,
    /// Names in it.
    entries: BTreeSet<PathBuf>,
    /// The mount to put there; `None` for a new folder.
    mount: Option<OwnedFd>,
}

impl PrivateDir {
    /// Plans the private folders, with these paths visible. A folder that a volume replaces is left out. `shm` is the pod's shared memory;
    /// without it each container has its own.
    pub fn plan_private_dirs(shown: &[&Path], volumes: &[&Path], mut shm: Option<OwnedFd>) -> Vec<PrivateDir> {
        let is_taken = |at: &Path| volumes.iter().any(|target| target.components().eq(at.components()));
        let own = |at: &'static Path| {
            let mount = if at == Path::new(SHM) { shm.take() } else { None };
            PrivateDir { at, entries: shown.iter().filter_map(|path| entry(at, path)).collect(), mount }
        };
        PLACES.map(Path::new).into_iter().filter(|at| !is_taken(at)).map(own).collect()
    }

    /// Returns its path.
    pub fn path(&self) -> &'static Path {
        self.at
    }

    /// Whether this is its path.
    pub fn is_at(&self, path: &Path) -> bool {
        self.at == path
    }

    /// Whether any entry of the machine's folder is visible in it.
    pub fn shows_any(&self) -> bool {
        !self.entries.is_empty()
    }

    /// Whether the private folder hides a path: the path is in the machine's folder and not visible in the private one.
    pub fn hides(&self, path: &Path) -> bool {
        match path.strip_prefix(self.at) {
            Ok(rest) if rest.as_os_str().is_empty() => self.entries.is_empty(),
            Ok(_) => entry(self.at, path).is_none_or(|name| !self.entries.contains(&name)),
            Err(_) => false,
        }
    }

    /// Mounts it over the machine's folder below a new root; `base` is a place for a new folder.
    pub fn cover(&self, base: &Path, root: &OwnedFd) -> Result<(), String> {
        let open = |within: &OwnedFd, path: &Path| {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            openat2(within, path, flags, Mode::empty(), ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS)
        };
        let Ok(place) = open(root, self.at) else { return Ok(()) };
        let failed = |error: rustix::io::Errno| {
            format!("cannot make the private folder {}: {error}", self.at.display(), error = io_error_text(error))
        };
        let visible: Vec<(&PathBuf, OwnedFd)> =
            self.entries.iter().filter_map(|name| Some((name, open(root, &self.at.join(name)).ok()?))).collect();
        match &self.mount {
            Some(mount) => cloned_mount::attach(mount, &place).map_err(failed)?,
            None => {
                let created = &base.join(self.at.file_name().unwrap_or_default());
                create_folder(created, 0o777)?;
                let _ = fs::set_permissions(created, fs::Permissions::from_mode(0o1777));
                let created = openat(CWD, created, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
                cloned_mount::bind(&created, &place).map_err(failed)?;
            }
        }
        let place = open(root, self.at).map_err(failed)?;
        for (name, source) in visible {
            bind_entry(&place, name, &source).map_err(failed)?;
        }
        Ok(())
    }
}

/// Adds one entry; only folders and regular files. Another container of the pod may have created its mount point.
fn bind_entry(own: &OwnedFd, name: &Path, source: &OwnedFd) -> rustix::io::Result<()> {
    let kind = FileType::from_raw_mode(fstat(source)?.st_mode);
    let made = match kind {
        FileType::Directory => mkdirat(own, name, Mode::from_raw_mode(0o755)),
        FileType::RegularFile => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            openat(own, name, flags, Mode::from_raw_mode(0o644)).map(drop)
        }
        _ => return Ok(()),
    };
    made.or_else(|error| if error == Errno::EXIST { Ok(()) } else { Err(error) })?;
    let place = openat(own, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    cloned_mount::bind_recursive(source, &place)
}

/// Returns the entry of a folder that contains a path.
fn entry(at: &Path, path: &Path) -> Option<PathBuf> {
    let is_plain = |part: &Component| matches!(part, Component::RootDir | Component::Normal(_));
    let rest = path.strip_prefix(at).ok().filter(|_| path.components().all(|part| is_plain(&part)))?;
    rest.components().next().map(|part| PathBuf::from(part.as_os_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn private_dirs(shown: &[&str], volumes: &[&str]) -> Vec<PrivateDir> {
        let [shown, volumes] = [shown, volumes].map(|all| all.iter().map(Path::new).collect::<Vec<_>>());
        PrivateDir::plan_private_dirs(&shown, &volumes, None)
    }

    #[test]
    fn named_path_makes_only_its_entry_visible() {
        let shown = ["/tmp/job/a/run.sh", "/tmp", "/tmpfs/x", "/srv", "/tmp/../etc", "/dev/shm/state/db"];
        let own = private_dirs(&shown, &["/tmp/data"]);
        let table = [
            ("/tmp", false),
            ("/tmp/job", false),
            ("/tmp/job/b", false),
            ("/tmp/jobs", true),
            ("/tmp/data", true),
            ("/tmp/state", true),
            ("/tmp/../etc", true),
            ("/tmpfs", false),
            ("/", false),
            ("/dev", false),
            ("/dev/shm", false),
            ("/dev/shm/state", false),
            ("/dev/shm/job", true),
        ];
        for (path, hidden) in table {
            assert_eq!(own.iter().any(|own| own.hides(Path::new(path))), hidden, "{path}");
        }
        assert!(own.iter().all(PrivateDir::shows_any));
    }

    #[test]
    fn volume_replaces_a_private_folder() {
        let at = |own: &[PrivateDir]| own.iter().map(|own| own.at).collect::<Vec<_>>();
        assert_eq!(at(&private_dirs(&["/tmp/a"], &["/data", "/tmp/"])), [Path::new(SHM)]);
        assert_eq!(at(&private_dirs(&[], &["/dev/shm"])), [Path::new("/tmp")]);
        assert!(private_dirs(&[], &[]).iter().all(|own| own.hides(own.at) && !own.shows_any()));
    }

    #[test]
    fn path_is_within_a_private_folder() {
        let table = [("/tmp/a", true), ("/dev/shm/a", true), ("/tmp", false), ("/tmpx/a", false), ("/dev/a", false)];
        for (path, within) in table {
            assert_eq!(is_within(path), within, "{path}");
        }
    }
}
