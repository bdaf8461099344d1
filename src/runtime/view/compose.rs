//! Builds the container's root: the machine's files under private layers.
//!
//! A folder without mounts below it gets an overlay. Root can also overlay a folder with mounts below it, and then repeats those mounts on
//! top. An ordinary user cannot (the kernel locks the mounts together), so there a new folder gets each entry separately. Folders that do
//! not work in an overlay (`/proc`, sockets in `/run`) and folders that this user cannot change are bind-mounted.

use super::layer::{LayerFolder, RequiredPath};
use super::mounted::{self, Mounted};
use super::private_dirs::{PrivateDir, SHM};
use super::real_path::real_path;
use super::{bind, create_folder, devices, path_of, services};
use crate::object::io_error_text;
use rustix::fs::{Access, CWD, Mode, OFlags, access, openat, symlink};
use rustix::mount::{mount_bind, mount_bind_recursive};
use rustix::process::{getegid, geteuid};
use std::fs;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Folder of devices; every container has its own.
const DEVICES: &str = "/dev";
/// Special folders, which are never overlaid.
const AS_THEY_ARE: [&str; 4] = [DEVICES, "/proc", services::FOLDER, "/sys"];
/// Special file systems, which are never overlaid.
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
/// Folders that an ordinary user cannot write: then bind-mounted unless something is mounted in them. Root without the capability to mount
/// is such a user, and can write them.
const ROOT_ONLY_FOLDERS: [&str; 9] =
    ["/bin", "/boot", "/etc", "/lib", "/lib32", "/lib64", "/lost+found", "/sbin", "/usr"];
/// Programs that run as root in containers write here; with a layer an ordinary user can do so too.
const WRITABLE: [&str; 4] = ["/var/cache", "/var/lib", "/var/log", "/var/tmp"];

/// Uid that the kernel shows for users without a mapping in a user namespace.
const NOBODY: u32 = 65534;

struct ViewComposer<'a> {
    root: PathBuf,
    mounts: Vec<Mounted>,
    wanted: Vec<RequiredPath>,
    layers: LayerFolder<'a>,
    is_root: bool,
    own: &'a [PrivateDir],
}

/// Builds the machine's files with these mounts below `base`, a new tmpfs, and opens the new root. `is_root`: this process is root of the
/// machine. The container uses the folders `lives`, and has these of its `own`. Also returns the paths at which the result differs from
/// the machine's files.
pub fn compose(
    base: &Path,
    mounts: Vec<Mounted>,
    is_root: bool,
    wanted: Vec<RequiredPath>,
    lives: [&Path; 2],
    own: &[PrivateDir],
) -> Result<(OwnedFd, Vec<PathBuf>), String> {
    let is_seen = |wanted: &RequiredPath| !own.iter().any(|own| own.hides(&wanted.path));
    let mut changed: Vec<PathBuf> = [DEVICES, "/proc"].into_iter().map(PathBuf::from).collect();
    changed.extend(own.iter().map(|own| own.path().to_owned()));
    let mut places: Vec<RequiredPath> = Vec::new();
    for wanted in wanted.into_iter().filter(is_seen) {
        let (path, is_missing) = real_path(&wanted.path);
        changed.push(path.clone());
        if is_missing {
            places.push(RequiredPath { path, ..wanted });
        }
    }
    if !is_root {
        let writable = WRITABLE.iter().map(Path::new).filter(|path| path.is_dir());
        let lived = lives.into_iter().filter_map(foreign);
        places.extend(writable.map(Path::to_owned).chain(lived).map(|path| RequiredPath { path, is_folder: true }));
    }
    let root = base.join("root");
    let layers = LayerFolder { base, count: 0, is_root };
    let mut composer = ViewComposer { root: root.clone(), mounts, wanted: places, layers, is_root, own };
    create_folder(&root, 0o755)?;
    composer.build_folder(Path::new("/"))?;
    let opened = openat(CWD, &root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| format!("cannot open the new root: {error}", error = io_error_text(error)))?;
    for own in own {
        own.cover(base, &opened)?;
    }
    Ok((opened, changed))
}

/// Whether this is root of the machine: root of a user namespace has the limits of an ordinary user.
pub fn is_machines_root() -> bool {
    let all = |map: String| map.split_whitespace().eq(["0", "0", "4294967295"]);
    geteuid().is_root() && fs::read_to_string("/proc/self/uid_map").is_ok_and(all)
}

/// Makes all mounts below a new root read-only, except devices and special file systems.
pub fn close(root: &OwnedFd) -> Result<(), String> {
    let root = fs::read_link(path_of(root))
        .map_err(|error| format!("cannot find the new root: {error}", error = io_error_text(error)))?;
    let open = ["dev", "proc", "sys"].map(|name| root.join(name));
    let mounts = mounted::read_mounts().into_iter().filter(|one| one.at.starts_with(&root));
    for at in mounts.map(|one| one.at).filter(|at| open.iter().all(|open| !at.starts_with(open))) {
        let failed = |error: rustix::io::Errno| {
            format!("cannot make {} read-only: {error}", at.display(), error = io_error_text(error))
        };
        let opened = openat(CWD, &at, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
        bind::close(&opened).map_err(failed)?;
    }
    Ok(())
}

/// Returns the deepest folder on the way to a path that has to be copied into an ordinary user's layer beforehand. The kernel does not copy
/// up a folder whose owner or group is unmapped in the user namespace, so nothing could be written below it.
fn foreign(path: &Path) -> Option<PathBuf> {
    let real = fs::canonicalize(path).ok()?;
    let mine = (geteuid().as_raw(), getegid().as_raw());
    let is_foreign = |folder: &&Path| {
        let found = fs::metadata(folder).ok().filter(fs::Metadata::is_dir);
        found
            .map(|found| (found.uid(), found.gid()))
            .is_some_and(|who| who != mine || who.0 == NOBODY || who.1 == NOBODY)
    };
    real.ancestors().filter(|folder| folder.components().count() > 2).find(is_foreign).map(Path::to_owned)
}

impl ViewComposer<'_> {
    fn target(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Builds one folder of the machine; its target exists.
    fn build_folder(&mut self, folder: &Path) -> Result<(), String> {
        let wants = self.needs_folder(folder);
        if folder == Path::new(DEVICES) {
            if wants {
                self.build_by_entries(folder)?
            } else {
                self.bind(folder)?
            }
            let shm = Path::new(SHM);
            if self.own.iter().any(|own| own.is_at(shm) && own.shows_any()) {
                self.build_folder(shm)?;
            }
            return devices::add_terminals(&self.target(folder));
        }
        let services = self.is_root && folder == Path::new(services::FOLDER);
        let special = self.is_special(folder) && !services;
        let busy = !mounted::topmost(&self.mounts, folder).is_empty();
        let others =
            !self.is_root && ROOT_ONLY_FOLDERS.iter().any(|other| folder.as_os_str() == *other) && !may_write(folder);
        match () {
            () if !wants && (special || self.is_closed(folder) || (others && !busy)) => self.bind(folder),
            () if self.is_root && !special && (busy || services) => self.overlay_and_mounts(folder),
            () if !special && !busy => self.overlay(folder),
            () => self.build_by_entries(folder),
        }
    }

    /// Whether the machine's folder is hidden in any case.
    fn hides(&self, path: &Path) -> bool {
        self.own.iter().any(|own| own.hides(path))
    }

    /// Whether a mount point is missing below a folder.
    fn needs_folder(&self, folder: &Path) -> bool {
        let is_below = |path: &Path| path.as_os_str() != folder.as_os_str() && mounted::is_within(path, folder);
        self.wanted.iter().any(|wanted| is_below(&wanted.path))
    }

    fn is_special(&self, folder: &Path) -> bool {
        let kind = self.mounted(folder).map_or("", |one| &one.kind);
        let named = AS_THEY_ARE.iter().any(|path| folder.as_os_str() == *path);
        named || SPECIAL.contains(&kind) || kind.starts_with("fuse")
    }

    /// Whether a read-only mount is mounted at a folder.
    fn is_closed(&self, folder: &Path) -> bool {
        folder != Path::new("/") && self.mounted(folder).is_some_and(|one| one.read_only)
    }

    fn mounted(&self, folder: &Path) -> Option<&Mounted> {
        self.mounts.iter().rev().find(|one| one.at.as_os_str() == folder.as_os_str())
    }

    fn bind(&self, path: &Path) -> Result<(), String> {
        mount_bind_recursive(path, self.target(path))
            .map_err(|error| format!("cannot bind {}: {error}", path.display(), error = io_error_text(error)))
    }

    fn overlay(&mut self, folder: &Path) -> Result<(), String> {
        self.layers.mount_overlay(folder, &self.target(folder), &self.wanted)
    }

    fn overlay_and_mounts(&mut self, folder: &Path) -> Result<(), String> {
        if self.mounted(folder).is_some() || folder == Path::new("/") {
            self.overlay(folder)?;
        }
        let mut done: Vec<PathBuf> = Vec::new();
        if folder == Path::new(services::FOLDER) {
            done = services::service_entries(folder).into_iter().filter(|path| !self.needs_folder(path)).collect();
            for path in &done {
                self.bind(path)?;
            }
        }
        let mut below: Vec<PathBuf> =
            mounted::topmost(&self.mounts, folder).into_iter().map(|one| one.at.clone()).collect();
        let special = AS_THEY_ARE.map(PathBuf::from).into_iter().filter(|path| path.parent() == Some(folder));
        below.extend(special.filter(|path| path.is_dir()));
        below.sort();
        below.dedup();
        let is_done = |path: &Path| done.iter().any(|done| mounted::is_within(path, done));
        below.retain(|path| !is_done(path) && !self.hides(path));
        for path in &below {
            let built = if path.is_dir() { self.build_folder(path) } else { self.bind(path) };
            unless_gone(path, built)?;
        }
        Ok(())
    }

    /// Builds a new folder and its entries one by one.
    fn build_by_entries(&mut self, folder: &Path) -> Result<(), String> {
        let created = self.layers.create_layer('f', folder)?;
        let target = self.target(folder);
        mount_bind(&created, &target)
            .map_err(|error| format!("cannot bind {}: {error}", target.display(), error = io_error_text(error)))?;
        let entries = fs::read_dir(folder)
            .map_err(|error| format!("cannot read {}: {error}", folder.display(), error = io_error_text(error)))?;
        for entry in entries.flatten() {
            let path = entry.path();
            let place = self.target(&path);
            if self.hides(&path) {
                // Files in a private folder cost nothing; a private folder needs a mount point.
                if self.own.iter().any(|own| own.is_at(&path)) {
                    create_folder(&place, 0o755)?;
                }
                continue;
            }
            match entry.file_type() {
                Ok(kind) if kind.is_symlink() => {
                    let _ = fs::read_link(&path).map(|to| symlink(to, &place));
                }
                Ok(kind) if kind.is_dir() => {
                    create_folder(&place, 0o755)?;
                    self.build_entry(&path)?;
                }
                _ => {
                    // Mounts that cannot be bound (stale or foreign ones) are left out.
                    let _ = fs::write(&place, "");
                    let _ = mount_bind(&path, &place);
                }
            }
        }
        Ok(())
    }

    /// Builds an entry of a new folder. Below the top level only necessary folders get a layer, so that a folder with thousands of entries
    /// stays cheap; below `/run` and its like even fewer, because of the sockets there.
    fn build_entry(&mut self, path: &Path) -> Result<(), String> {
        let at_top = path.parent() == Some(Path::new("/"));
        let special = path.parent().is_some_and(|parent| self.is_special(parent));
        if at_top && !self.needs_folder(path) && fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none()) {
            // An empty folder: a new one is equivalent.
            self.layers.copy_attributes(path, &self.target(path));
            return Ok(());
        }
        let layered = at_top || self.wanted.iter().any(|wanted| mounted::is_within(&wanted.path, path)) || {
            let busy = !mounted::topmost(&self.mounts, path).is_empty();
            !busy && !special && may_write(path)
        };
        if layered && access(path, Access::READ_OK | Access::EXEC_OK).is_ok() {
            return self.build_folder(path);
        }
        // The user cannot enter the folder, or cannot change anything in it.
        let _ = self.bind(path);
        Ok(())
    }
}

/// Whether this user can change the entries of a folder.
fn may_write(folder: &Path) -> bool {
    access(folder, Access::WRITE_OK).is_ok()
}

/// Accepts that a mount could not be shown when it is gone: the machine may unmount it, and remove its mount point, at any moment.
fn unless_gone(path: &Path, built: Result<(), String>) -> Result<(), String> {
    let is_gone = || fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound);
    built.or_else(|why| if is_gone() { Ok(()) } else { Err(why) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_that_is_gone_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let failed = || Err("cannot bind it".to_owned());
        assert_eq!(unless_gone(&folder.path().join("gone"), failed()), Ok(()));
        assert_eq!(unless_gone(folder.path(), failed()), failed());
        assert_eq!(unless_gone(folder.path(), Ok(())), Ok(()));
    }
}
