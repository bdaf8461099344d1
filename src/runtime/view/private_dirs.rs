//! Folders that a container does not share with the machine: `/tmp` of its own, `/dev/shm` of its pod. They are empty at first, but for
//! those entries of the machine's that it cannot do without.
//!
//! An entry is what lies directly in one. It is seen when the cluster's own folder lies in it, or something that the container was
//! started with: its working folder, the manifest's, its program, a file or folder that a word of its command names.

use super::{create_folder, path_of, shm};
use crate::object::io_error_text;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, openat, openat2};
use rustix::io::Errno;
use rustix::mount::{mount_bind, mount_bind_recursive};
use std::collections::BTreeSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

/// Memory that processes share.
pub const SHM: &str = "/dev/shm";
/// Their paths.
const PLACES: [&str; 2] = ["/tmp", SHM];

/// Whether a path lies in a folder that every container has of its own.
pub fn is_within(path: &str) -> bool {
    PLACES.iter().any(|at| Path::new(path).strip_prefix(at).is_ok_and(|rest| rest != Path::new("")))
}

/// One of them, as it is planned.
pub struct PrivateDir {
    at: &'static Path,
    /// Names in it.
    entries: BTreeSet<PathBuf>,
    /// The mount that is to be there; none for a fresh folder.
    mount: Option<OwnedFd>,
}

impl PrivateDir {
    /// All of them, with these paths seen; where a volume takes the place of one, that is none. `shm` is what the pod's containers share;
    /// without it each has its own.
    pub fn plan_private_dirs(shown: &[&Path], volumes: &[&Path], mut shm: Option<OwnedFd>) -> Vec<PrivateDir> {
        let is_taken = |at: &Path| volumes.iter().any(|target| target.components().eq(at.components()));
        let own = |at: &'static Path| {
            let mount = if at == Path::new(SHM) { shm.take() } else { None };
            PrivateDir { at, entries: shown.iter().filter_map(|path| entry(at, path)).collect(), mount }
        };
        PLACES.map(Path::new).into_iter().filter(|at| !is_taken(at)).map(own).collect()
    }

    /// Whether this is its place.
    pub fn is_at(&self, path: &Path) -> bool {
        self.at == path
    }

    /// Whether something of the machine's is seen in it.
    pub fn shows_any(&self) -> bool {
        !self.entries.is_empty()
    }

    /// Whether a path is of no concern: it lies in the machine's folder, and not in what is seen of that.
    pub fn hides(&self, path: &Path) -> bool {
        match path.strip_prefix(self.at) {
            Ok(rest) if rest.as_os_str().is_empty() => self.entries.is_empty(),
            Ok(_) => entry(self.at, path).is_none_or(|name| !self.entries.contains(&name)),
            Err(_) => false,
        }
    }

    /// Puts it in the place of the machine's below a new root; `base` is where a folder can be made.
    pub fn cover(&self, base: &Path, root: &OwnedFd) -> Result<(), String> {
        let open = |within: &OwnedFd, path: &Path| {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            openat2(within, path, flags, Mode::empty(), ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS)
        };
        let Ok(place) = open(root, self.at) else { return Ok(()) };
        let failed = |error: rustix::io::Errno| {
            format!("cannot lay out {}: {error}", self.at.display(), error = io_error_text(error))
        };
        let seen: Vec<(&PathBuf, OwnedFd)> =
            self.entries.iter().filter_map(|name| Some((name, open(root, &self.at.join(name)).ok()?))).collect();
        match &self.mount {
            Some(mount) => shm::put(mount, &place).map_err(failed)?,
            None => {
                let fresh = &base.join(self.at.file_name().unwrap_or_default());
                create_folder(fresh, 0o777)?;
                let _ = fs::set_permissions(fresh, fs::Permissions::from_mode(0o1777));
                mount_bind(fresh, path_of(&place)).map_err(failed)?;
            }
        }
        let place = open(root, self.at).map_err(failed)?;
        for (name, source) in seen {
            lay(&place, name, &source).map_err(failed)?;
        }
        Ok(())
    }
}

/// One entry; what is neither a folder nor a plain file belongs to somebody else. Another container of the pod may have made its place.
fn lay(own: &OwnedFd, name: &Path, source: &OwnedFd) -> rustix::io::Result<()> {
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
    mount_bind_recursive(path_of(source), path_of(&place))
}

/// The name in a folder of what a path lies in.
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
    fn named_path_shows_its_neighbours_and_nothing_else() {
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
    fn a_volume_may_take_its_place_and_without_names_all_is_hidden() {
        let at = |own: &[PrivateDir]| own.iter().map(|own| own.at).collect::<Vec<_>>();
        assert_eq!(at(&private_dirs(&["/tmp/a"], &["/data", "/tmp/"])), [Path::new(SHM)]);
        assert_eq!(at(&private_dirs(&[], &["/dev/shm"])), [Path::new("/tmp")]);
        assert!(private_dirs(&[], &[]).iter().all(|own| own.hides(own.at) && !own.shows_any()));
    }

    #[test]
    fn a_path_is_within_one_or_is_not() {
        let table = [("/tmp/a", true), ("/dev/shm/a", true), ("/tmp", false), ("/tmpx/a", false), ("/dev/a", false)];
        for (path, within) in table {
            assert_eq!(is_within(path), within, "{path}");
        }
    }
}
