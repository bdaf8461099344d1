//! A container's own `/tmp`: empty, but for those entries of the machine's that it cannot do without.
//!
//! An entry is what lies directly in `/tmp`. It is seen when the cluster's own folder lies in it, or something that the container was
//! started with: its working folder, the manifest's, its program, a file or folder that a word of its command names.

use super::{path_of, said};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, openat, openat2};
use rustix::mount::{mount_bind, mount_bind_recursive};
use std::collections::BTreeSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

/// Where it is.
const TMP: &str = "/tmp";

/// The container's own, as it is planned.
pub struct Tmp {
    /// Names in `/tmp`.
    entries: BTreeSet<PathBuf>,
}

impl Tmp {
    /// One in which these paths are seen; none when a volume takes its place.
    pub fn with<'a>(shown: impl Iterator<Item = &'a Path>, mut volumes: impl Iterator<Item = &'a Path>) -> Option<Tmp> {
        let is_taken = volumes.any(|target| target.components().eq(Path::new(TMP).components()));
        (!is_taken).then(|| Tmp { entries: shown.filter_map(entry).collect() })
    }

    /// Whether a path is of no concern: it lies in the machine's `/tmp`, and not in what is seen of that.
    pub fn hides(&self, path: &Path) -> bool {
        match path.strip_prefix(TMP) {
            Ok(rest) if rest.as_os_str().is_empty() => self.entries.is_empty(),
            Ok(_) => entry(path).is_none_or(|name| !self.entries.contains(&name)),
            Err(_) => false,
        }
    }

    /// Puts it in the place of the machine's below a new root; `fresh` is where a folder can be made.
    pub fn cover(&self, fresh: &Path, root: &OwnedFd) -> Result<(), String> {
        let open = |within: &OwnedFd, path: &Path| {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            openat2(within, path, flags, Mode::empty(), ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS)
        };
        let Ok(place) = open(root, Path::new(TMP)) else { return Ok(()) };
        super::compose::make(fresh, 0o777)?;
        let _ = fs::set_permissions(fresh, fs::Permissions::from_mode(0o1777));
        let seen: Vec<(&PathBuf, OwnedFd)> =
            self.entries.iter().filter_map(|name| Some((name, open(root, &Path::new(TMP).join(name)).ok()?))).collect();
        mount_bind(fresh, path_of(&place)).map_err(said("lay out /tmp"))?;
        let place = open(root, Path::new(TMP)).map_err(said("find /tmp"))?;
        for (name, source) in seen {
            lay(&place, name, &source).map_err(said("lay out what is in /tmp"))?;
        }
        Ok(())
    }
}

/// One entry; what is neither a folder nor a plain file belongs to somebody else.
fn lay(tmp: &OwnedFd, name: &Path, source: &OwnedFd) -> rustix::io::Result<()> {
    let kind = FileType::from_raw_mode(fstat(source)?.st_mode);
    match kind {
        FileType::Directory => mkdirat(tmp, name, Mode::from_raw_mode(0o755))?,
        FileType::RegularFile => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            drop(openat(tmp, name, flags, Mode::from_raw_mode(0o644))?);
        }
        _ => return Ok(()),
    }
    let place = openat(tmp, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    mount_bind_recursive(path_of(source), path_of(&place))
}

/// The name in `/tmp` of what a path lies in.
fn entry(path: &Path) -> Option<PathBuf> {
    let is_plain = |part: &Component| matches!(part, Component::RootDir | Component::Normal(_));
    let rest = path.strip_prefix(TMP).ok().filter(|_| path.components().all(|part| is_plain(&part)))?;
    rest.components().next().map(|part| PathBuf::from(part.as_os_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tmp(shown: &[&str], volumes: &[&str]) -> Option<Tmp> {
        Tmp::with(shown.iter().map(Path::new), volumes.iter().map(Path::new))
    }

    #[test]
    fn what_was_named_is_seen_with_its_neighbours_and_nothing_else() {
        let tmp =
            tmp(&["/tmp/job/a/run.sh", "/tmp", "/tmpfs/x", "/srv", "/tmp/../etc"], &["/tmp/data"]).expect("its own");
        let table = [
            ("/tmp", false),
            ("/tmp/job", false),
            ("/tmp/job/b", false),
            ("/tmp/jobs", true),
            ("/tmp/data", true),
            ("/tmp/../etc", true),
            ("/tmpfs", false),
            ("/", false),
        ];
        for (path, hidden) in table {
            assert_eq!(tmp.hides(Path::new(path)), hidden, "{path}");
        }
    }

    #[test]
    fn a_volume_may_take_its_place_and_without_names_all_is_hidden() {
        assert!(tmp(&["/tmp/a"], &["/data", "/tmp/"]).is_none());
        assert!(tmp(&[], &[]).is_some_and(|tmp| tmp.hides(Path::new("/tmp"))));
    }
}
