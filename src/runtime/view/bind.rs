//! Bind mounts of volumes, and of folders that a container sees as they are, below the new root.

use super::layer::RequiredPath;
use super::real_path::real_path;
use super::{cloned_mount, describe_error};
use crate::object::io_error_text;
use crate::runtime::file_tree::{self, path_of};
use crate::runtime::volumes;
use crate::runtime::wire::MountView;
use crate::world::volume::{Volume, VolumeContent, VolumeMountPoint};
use rustix::fs::StatVfsMountFlags;
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fchmod, fstat, fstatvfs, mkdirat, openat, openat2};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount_remount};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

/// A bind mount.
pub struct BindMount {
    source: OwnedFd,
    /// Its target: an absolute path.
    pub target: PathBuf,
    read_only: bool,
    /// Whether its content is managed by kloop, so that mount points may be created in it.
    is_ours: bool,
    is_folder: bool,
    /// A copy of the machine's `/proc`, and its place below the target: the process itself sees another `/proc`.
    machine_proc: Option<(OwnedFd, &'static str)>,
}

/// Checks that all mounts of a container are possible. Creates a missing subPath as a folder. The files of internal volumes are there: the
/// pod's volumes were laid out just before.
pub fn check(pod: &Path, view: &MountView, volumes: &[Volume]) -> Result<(), String> {
    for mount in view.mounts.iter().filter(|mount| !volumes::is_internal(&mount.volume)) {
        let root = open_volume(pod, mount, volumes)?;
        if !mount.sub_path.is_empty() {
            let failed = |why| format!("failed to prepare subPath for volumeMount {:?}: {why}", &*mount.volume);
            part(&root, &mount.sub_path).map_err(failed)?;
        }
    }
    Ok(())
}

fn open_volume(pod: &Path, mount: &VolumeMountPoint, volumes: &[Volume]) -> Result<OwnedFd, String> {
    let failed = |why| format!("failed to prepare volume {:?} for mount path {:?}: {why}", &*mount.volume, mount.path);
    open(&volumes::root_of(pod, &mount.volume, volumes)).map_err(failed)
}

/// Returns all bind mounts of a container. Opens their sources while the old root is still visible. `machine_procs`: copies of the
/// machine's `/proc`, one for each of [`count_machine_procs`].
pub fn all_binds(
    pod: &Path,
    view: &MountView,
    volumes: &[Volume],
    machine_procs: Vec<OwnedFd>,
) -> Result<Vec<BindMount>, String> {
    let mut binds = Vec::new();
    let mut machine_procs = machine_procs.into_iter();
    for mount in &view.mounts {
        let of = |why: String| {
            format!("failed to prepare volume {:?} for mount path {:?}: {why}", &*mount.volume, mount.path)
        };
        let root = open_volume(pod, mount, volumes)?;
        let source = if mount.sub_path.is_empty() { root } else { part(&root, &mount.sub_path).map_err(of)? };
        let bind = BindMount::new(source, Path::new("/").join(&mount.path), mount.read_only).map_err(of)?;
        let is_ours = volumes.iter().any(|volume| volume.name == mount.volume && volume.source.follows());
        let machine_proc = place_of_proc(mount, volumes).and_then(|place| Some((machine_procs.next()?, place)));
        binds.push(BindMount { is_ours, machine_proc, ..bind });
    }
    Ok(binds)
}

/// Returns the number of mounts that show the machine's `/proc`, as host paths do in Kubernetes.
pub fn count_machine_procs(view: &MountView, volumes: &[Volume]) -> usize {
    view.mounts.iter().filter(|mount| place_of_proc(mount, volumes).is_some()).count()
}

/// Returns the path of the machine's `/proc` below a mount, if it is a host path that has it.
fn place_of_proc(mount: &VolumeMountPoint, volumes: &[Volume]) -> Option<&'static str> {
    let volume = volumes.iter().find(|volume| volume.name == mount.volume && mount.sub_path.is_empty())?;
    let VolumeContent::Host { path, .. } = &volume.source else { return None };
    match path.trim_end_matches('/') {
        "" => Some("proc"),
        "/proc" => Some(""),
        _ => None,
    }
}

fn open(path: &Path) -> Result<OwnedFd, String> {
    openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| format!("{}: {error}", path.display(), error = io_error_text(error)))
}

/// Opens a part of a volume (`subPath`), never outside of the volume. Creates it as a folder with the volume's mode when it is missing.
fn part(root: &OwnedFd, path: &str) -> Result<OwnedFd, String> {
    let failed = |error: Errno| match error {
        Errno::XDEV | Errno::INVAL => format!("subPath {path:?} not within volume path"),
        error => format!("subPath {path:?}: {error}", error = io_error_text(error)),
    };
    match file_tree::open_handle_inside(root, path) {
        Err(Errno::NOENT) => {
            let mode = fstat(root).map_err(failed)?.st_mode & 0o3777;
            file_tree::make_folders(root, path, mode).map_err(failed)
        }
        other => other.map_err(failed),
    }
}

impl BindMount {
    fn new(source: OwnedFd, target: PathBuf, read_only: bool) -> Result<BindMount, String> {
        let found = fstat(&source).map_err(io_error_text)?;
        let is_folder = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
        Ok(BindMount { source, target, read_only, is_ours: false, is_folder, machine_proc: None })
    }

    /// Binds a folder of the machine at its own path.
    pub fn same_path(folder: &Path) -> Result<BindMount, String> {
        BindMount::new(open(folder)?, folder.to_owned(), false)
    }

    /// Binds a new folder that every user may write in, optionally with an owner.
    pub fn new_folder(folder: &Path, target: &str, owner: Option<(u32, u32)>) -> Result<BindMount, String> {
        let failed = |error: Errno| format!("cannot make {target}: {error}", error = io_error_text(error));
        mkdirat(CWD, folder, Mode::from_raw_mode(0o755)).map_err(failed)?;
        if let Some((user, group)) = owner {
            std::os::unix::fs::chown(folder, Some(user), Some(group))
                .map_err(|error| format!("cannot make {target}: {error}", error = io_error_text(error)))?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = openat(CWD, folder, flags, Mode::empty()).map_err(failed)?;
        fchmod(opened, Mode::from_raw_mode(0o1777)).map_err(failed)?;
        BindMount::new(open(folder)?, Path::new("/").join(target), false)
    }

    /// Binds a file of the machine at another path.
    pub fn file_at(file: &Path, target: &str) -> Result<BindMount, String> {
        BindMount::new(open(file)?, Path::new("/").join(target), false)
    }

    /// Whether its mount hides this folder of the machine, which has no symbolic links in its path.
    pub fn covers(&self, folder: &Path) -> bool {
        self.is_folder && (folder.starts_with(&self.target) || folder.starts_with(real_path(&self.target).0))
    }

    /// Returns the mount point that it needs.
    pub fn required_path(&self) -> RequiredPath {
        RequiredPath { path: self.target.clone(), is_folder: self.is_folder }
    }

    /// Mounts it below the new root.
    pub fn mount(&self, root: &OwnedFd) -> Result<(), String> {
        let mount_point = self.open_mount_point(root)?;
        cloned_mount::bind_recursive(&self.source, &mount_point).map_err(describe_error("bind it"))?;
        if let Some((proc, place)) = &self.machine_proc {
            let place = resolve(root, &self.target.join(place), OFlags::PATH | OFlags::DIRECTORY);
            let attached = place.and_then(|place| cloned_mount::attach(proc, &place));
            attached.map_err(describe_error("bind the machine's /proc"))?;
        }
        if self.read_only && !self.is_ours { self.make_read_only(root) } else { Ok(()) }
    }

    /// Makes it read-only, after all mount points within it were created (Kubernetes: the kubelet creates those in the volumes that it
    /// fills).
    pub fn finish(&self, root: &OwnedFd) -> Result<(), String> {
        if self.read_only && self.is_ours { self.make_read_only(root) } else { Ok(()) }
    }

    fn make_read_only(&self, root: &OwnedFd) -> Result<(), String> {
        let mounted = resolve(root, &self.target, OFlags::PATH).map_err(describe_error("find it"))?;
        close(&mounted).map_err(describe_error("make it read-only"))
    }

    /// Returns the mount point below the new root; creates it when it is missing.
    pub fn open_mount_point(&self, root: &OwnedFd) -> Result<OwnedFd, String> {
        let found = match resolve(root, &self.target, OFlags::PATH) {
            Err(Errno::NOENT) => {
                let folder = if self.is_folder { Some(&*self.target) } else { self.target.parent() };
                let folder =
                    make_all(root, folder.unwrap_or(Path::new("/"))).map_err(describe_error("make the mount point"))?;
                if self.is_folder {
                    return Ok(folder);
                }
                let name = self.target.file_name().ok_or("a file cannot be mounted at /")?;
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                openat(&folder, name, flags, Mode::from_raw_mode(0o644))
                    .map_err(describe_error("make the mount point"))?
            }
            other => other.map_err(describe_error("open the mount point"))?,
        };
        let kind = fstat(&found).map_err(describe_error("stat the mount point"))?.st_mode;
        if (FileType::from_raw_mode(kind) == FileType::Directory) != self.is_folder {
            return Err("not a directory: are you trying to mount a directory onto a file (or vice-versa)?".into());
        }
        Ok(found)
    }
}

/// Opens a path relative to this root.
fn resolve(root: &OwnedFd, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let stay = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), stay)
}

/// Creates the folders of a path relative to this root, and opens the last one.
fn make_all(root: &OwnedFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    let mut at = match resolve(root, path, OFlags::PATH | OFlags::DIRECTORY) {
        Err(Errno::NOENT) => resolve(root, Path::new("/"), OFlags::PATH | OFlags::DIRECTORY)?,
        found => return found,
    };
    let mut so_far = PathBuf::from("/");
    for part in path.components().filter(|part| matches!(part, Component::Normal(_))) {
        so_far.push(part);
        at = match resolve(root, &so_far, OFlags::PATH | OFlags::DIRECTORY) {
            Err(Errno::NOENT) => {
                mkdirat(&at, part.as_os_str(), Mode::from_raw_mode(0o755))?;
                resolve(root, &so_far, OFlags::PATH | OFlags::DIRECTORY)?
            }
            other => other?,
        };
    }
    Ok(at)
}

/// Creates a missing working folder, as container runtimes do. An error shows when the folder is entered.
pub fn make_folder(root: &OwnedFd, path: &Path) {
    let _ = make_all(root, path);
}

/// Makes a mount read-only in this mount namespace.
pub fn close(mounted: &OwnedFd) -> rustix::io::Result<()> {
    mount_remount(path_of(mounted), mount_flags(mounted) | MountFlags::BIND | MountFlags::RDONLY, "")
}

/// Returns the flags that a mount must keep; otherwise the kernel refuses the change in a user namespace.
fn mount_flags(mounted: &OwnedFd) -> MountFlags {
    let is = fstatvfs(mounted).map_or(StatVfsMountFlags::empty(), |found| found.f_flag);
    let pairs = [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ];
    pairs.into_iter().filter(|(has, _)| is.contains(*has)).fold(MountFlags::empty(), |all, (_, flag)| all | flag)
}
