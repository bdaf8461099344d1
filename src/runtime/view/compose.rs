//! The machine's files below a new root, so that what is written there stays there.
//!
//! A folder without mounts below it gets an overlay; root can lay one over a folder with mounts below it too, and then lays those out
//! on top. An ordinary user cannot (the kernel locks the mounts together), so there the folder is made anew and its entries are laid
//! out one by one. What an overlay would break (`/proc`, sockets in `/run`) is bound as it is.

use super::mounted::{self, Mounted};
use super::{bind, devices, path_of};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Uid, chownat, fchmod, openat, symlink};
use rustix::mount::{MountFlags, mount, mount_bind, mount_bind_recursive};
use rustix::process::geteuid;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

/// A path that must be there in the end.
#[derive(Debug, PartialEq)]
pub struct Wanted {
    /// Where.
    pub path: PathBuf,
    /// Whether it is a folder; a file otherwise.
    pub is_folder: bool,
}

/// Bound as they are: an overlay would hide the sockets of the machine's services, or is no place for files.
const AS_THEY_ARE: [&str; 4] = ["/dev", "/proc", "/run", "/sys"];
/// File systems that are no place for files.
const SPECIAL: [&str; 14] = [
    "autofs",
    "bpf",
    "cgroup",
    "cgroup2",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "mqueue",
    "nsfs",
    "proc",
    "securityfs",
    "sysfs",
    "tracefs",
];
/// Where an ordinary user can write nothing: they are bound unless something is mounted in them.
const OTHERS: [&str; 9] = ["/bin", "/boot", "/etc", "/lib", "/lib32", "/lib64", "/lost+found", "/sbin", "/usr"];
/// Programs that run as root in containers write here; in the layer an ordinary user can, too.
const WRITABLE: [&str; 3] = ["/var/cache", "/var/lib", "/var/log"];

struct Composer<'a> {
    base: &'a Path,
    root: PathBuf,
    mounts: Vec<Mounted>,
    wanted: Vec<Wanted>,
    layers: usize,
    is_root: bool,
}

/// Lays the machine's files out below `base`, a fresh tmpfs, and opens the new root.
pub fn compose(base: &Path, wanted: &[Wanted]) -> Result<OwnedFd, String> {
    let is_root = geteuid().is_root();
    let mut places: Vec<Wanted> = wanted.iter().filter_map(missing).collect();
    if !is_root {
        let writable = WRITABLE.iter().map(Path::new).filter(|path| path.is_dir());
        places.extend(writable.map(|path| Wanted { path: path.to_owned(), is_folder: true }));
    }
    let mounts = mounted::all().into_iter().filter(|one| one.at != base).collect();
    let root = base.join("root");
    let mut composer = Composer { base, root: root.clone(), mounts, wanted: places, layers: 0, is_root };
    make(&root, 0o755)?;
    composer.lay(Path::new("/"))?;
    openat(CWD, &root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| format!("cannot open the new root: {error}"))
}

/// Closes everything that was laid out to writers, but for devices and what the kernel itself shows.
pub fn close(base: &Path) -> Result<(), String> {
    let root = base.join("root");
    let open = ["dev", "proc", "sys"].map(|name| root.join(name));
    let laid = mounted::all().into_iter().filter(|one| one.at.starts_with(&root));
    for at in laid.map(|one| one.at).filter(|at| open.iter().all(|open| !at.starts_with(open))) {
        let failed = |error: rustix::io::Errno| format!("cannot make {} read-only: {error}", at.display());
        let opened = openat(CWD, &at, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
        bind::close(&opened).map_err(failed)?;
    }
    Ok(())
}

/// The real place of a path of which a part is missing; none when all of it is there.
fn missing(wanted: &Wanted) -> Option<Wanted> {
    let mut real = PathBuf::from("/");
    let mut rest = wanted.path.components().filter(|part| matches!(part, Component::Normal(_))).peekable();
    while let Some(part) = rest.peek() {
        match fs::canonicalize(real.join(part)) {
            Ok(found) => real = found,
            Err(_) => break,
        }
        rest.next();
    }
    rest.peek()?;
    Some(Wanted { path: rest.fold(real, |path, part| path.join(part)), is_folder: wanted.is_folder })
}

/// Makes a folder unless it is there.
pub fn make(path: &Path, mode: u32) -> Result<(), String> {
    match fs::DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(format!("cannot make {}: {error}", path.display()))
        }
        _ => Ok(()),
    }
}

impl Composer<'_> {
    fn target(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Lays out one folder of the machine, whose place below the new root is there.
    fn lay(&mut self, folder: &Path) -> Result<(), String> {
        if folder == Path::new("/dev") {
            return devices::lay(&self.base.join("dev"), &self.target(folder));
        }
        let wants = self.wanted.iter().any(|wanted| wanted.path != folder && wanted.path.starts_with(folder));
        let special = self.is_special(folder);
        let busy = !mounted::topmost(&self.mounts, folder).is_empty();
        let others = !self.is_root && OTHERS.iter().any(|other| Path::new(other) == folder);
        match () {
            () if !wants && (special || (others && !busy)) => self.bind(folder),
            () if !special && !busy => self.overlay(folder),
            () if !special && self.is_root => self.overlay_and_mounts(folder),
            () => self.one_by_one(folder),
        }
    }

    fn is_special(&self, folder: &Path) -> bool {
        let kind = self.mounts.iter().rev().find(|one| one.at == folder).map_or("", |one| &one.kind);
        let named = AS_THEY_ARE.iter().any(|path| Path::new(path) == folder);
        named || SPECIAL.contains(&kind) || kind.starts_with("fuse")
    }

    fn bind(&self, path: &Path) -> Result<(), String> {
        mount_bind_recursive(path, self.target(path))
            .map_err(|error| format!("cannot bind {}: {error}", path.display()))
    }

    fn overlay_and_mounts(&mut self, folder: &Path) -> Result<(), String> {
        self.overlay(folder)?;
        let below: Vec<(PathBuf, bool)> =
            mounted::topmost(&self.mounts, folder).into_iter().map(|one| (one.at.clone(), one.at.is_dir())).collect();
        let plain =
            AS_THEY_ARE.map(PathBuf::from).into_iter().filter(|path| path.parent() == Some(folder) && path.is_dir());
        let plain: Vec<PathBuf> = plain.filter(|path| below.iter().all(|(at, _)| at != path)).collect();
        for path in plain {
            self.lay(&path)?;
        }
        for (path, is_folder) in below {
            if is_folder { self.lay(&path)? } else { self.bind(&path)? }
        }
        Ok(())
    }

    /// An overlay of one folder. Its places for volumes are made in the upper layer, where a user who could not make them in the
    /// folder itself can.
    fn overlay(&mut self, folder: &Path) -> Result<(), String> {
        let failed = |error: &dyn std::fmt::Display| format!("cannot lay a layer over {}: {error}", folder.display());
        self.layers += 1;
        let (upper, work) = (self.base.join(format!("u{}", self.layers)), self.base.join(format!("w{}", self.layers)));
        make(&upper, 0o755)?;
        make(&work, 0o700)?;
        self.alike(folder, &upper);
        for wanted in self.wanted.iter().filter(|wanted| wanted.path.starts_with(folder)) {
            self.make_place(folder, &upper, wanted)?;
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |path: &Path| openat(CWD, path, flags, Mode::empty()).map_err(|error| failed(&error));
        let (lower, upper, work) = (open(folder)?, open(&upper)?, open(&work)?);
        let shown = |fd: &OwnedFd| path_of(fd).display().to_string();
        let user = if self.is_root { "" } else { ",userxattr" };
        let options = format!("lowerdir={},upperdir={},workdir={}{user}", shown(&lower), shown(&upper), shown(&work));
        let options = std::ffi::CString::new(options).map_err(|error| failed(&error))?;
        mount("overlay", self.target(folder), "overlay", MountFlags::empty(), Some(options.as_c_str()))
            .map_err(|error| failed(&error))
    }

    /// Makes a wanted place in an upper layer; its folders are like those below them.
    fn make_place(&self, folder: &Path, upper: &Path, wanted: &Wanted) -> Result<(), String> {
        let Ok(rest) = wanted.path.strip_prefix(folder) else { return Ok(()) };
        let (mut below, mut above) = (folder.to_owned(), upper.to_owned());
        let mut parts = rest.components().peekable();
        while let Some(part) = parts.next() {
            below.push(part);
            above.push(part);
            if parts.peek().is_some() || wanted.is_folder {
                make(&above, 0o755)?;
                self.alike(&below, &above);
            } else {
                fs::write(&above, "").map_err(|error| format!("cannot make {}: {error}", above.display()))?;
            }
        }
        Ok(())
    }

    /// Gives a folder of the layer the mode, and as far as possible the owner, of the one that it stands for.
    fn alike(&self, of: &Path, folder: &Path) {
        let Ok(found) = fs::metadata(of) else { return };
        if self.is_root {
            let (user, group) = (Uid::from_raw(found.uid()), Gid::from_raw(found.gid()));
            let _ = chownat(CWD, folder, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if let Ok(opened) = openat(CWD, folder, flags, Mode::empty()) {
            let _ = fchmod(opened, Mode::from_raw_mode(found.mode() & 0o7777));
        }
    }

    /// A folder made anew, with its entries laid out one by one.
    fn one_by_one(&mut self, folder: &Path) -> Result<(), String> {
        self.layers += 1;
        let fresh = self.base.join(format!("f{}", self.layers));
        make(&fresh, 0o755)?;
        self.alike(folder, &fresh);
        let target = self.target(folder);
        mount_bind(&fresh, &target).map_err(|error| format!("cannot bind {}: {error}", target.display()))?;
        let entries = fs::read_dir(folder).map_err(|error| format!("cannot read {}: {error}", folder.display()))?;
        for entry in entries.flatten() {
            let path = entry.path();
            let Ok(kind) = entry.file_type() else { continue };
            let place = self.target(&path);
            match FileType::from_raw_mode(fs::symlink_metadata(&path).map_or(0, |found| found.mode())) {
                FileType::Symlink => {
                    let _ = fs::read_link(&path).map(|to| symlink(to, &place));
                }
                FileType::Directory if kind.is_dir() => {
                    make(&place, 0o755)?;
                    self.lay_entry(&path)?;
                }
                _ => {
                    // What may not be bound (a stale or foreign mount) is left out.
                    let _ = fs::write(&place, "");
                    let _ = mount_bind(&path, &place);
                }
            }
        }
        Ok(())
    }

    /// An entry of a folder that was made anew. Below the top only what asks for it gets a layer, so that a folder with
    /// thousands of entries stays cheap; below `/run` and its like even less, because of the sockets there.
    fn lay_entry(&mut self, path: &Path) -> Result<(), String> {
        let special = path.parent().is_some_and(|parent| self.is_special(parent));
        let wants = self.wanted.iter().any(|wanted| wanted.path.starts_with(path));
        let at_top = path.parent() == Some(Path::new("/"));
        let busy = !mounted::topmost(&self.mounts, path).is_empty();
        let mine = rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok();
        if (at_top || wants || (mine && !busy && !special)) && fs::read_dir(path).is_ok() {
            return self.lay(path);
        }
        // Not to be entered by this user, or nothing that it could change.
        let _ = self.bind(path);
        Ok(())
    }
}
