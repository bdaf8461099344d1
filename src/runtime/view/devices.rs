//! A container's own `/dev`: the machine's devices without terminals and disks, and new terminals.

use super::{bind, create_folder, describe_error, path_of};
use crate::object::io_error_text;
use rustix::fs::{Access, CWD, FileType, Mode, OFlags, access, lgetxattr, mknodat, openat, symlink};
use rustix::mount::{MountFlags, mount, mount_bind, mount_bind_recursive};
use std::fs::{self, Metadata, set_permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;

/// Prefixes of devices that are left out or replaced.
const OMITTED: [&str; 6] = ["loop", "ram", "tty", "vcs", "zram", "pt"];
/// Extended attribute of a file that has an access list (acl(5)).
const ACCESS_LIST: &str = "system.posix_acl_access";
/// Default path of a termination message.
const MESSAGE: &str = "/dev/termination-log";

/// Mounts the devices of containers over the machine's, for this process. All containers share them, so they are read-only; mount points
/// for private entries are included.
pub fn mount_devices() -> Result<(), String> {
    let entries =
        fs::read_dir("/dev").map_err(|error| format!("cannot read /dev: {error}", error = io_error_text(error)))?;
    let names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    let open =
        || openat(CWD, "/dev", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(describe_error("open /dev"));
    let (machine, place) = (open()?, Path::new("/dev"));
    mount("tmpfs", place, "tmpfs", MountFlags::NOSUID, Some(c"mode=0755"))
        .map_err(describe_error("mount a tmpfs for /dev"))?;
    for name in names {
        let text = name.to_string_lossy();
        if text == "tty" || !(text == "shm" || OMITTED.iter().any(|start| text.starts_with(start))) {
            add_entry(&path_of(&machine).join(&name), &place.join(&name));
        }
    }
    create_folder(&place.join("shm"), 0o755)?;
    if fs::symlink_metadata(path_of(&machine).join("shm")).is_ok_and(|found| found.is_dir()) {
        // The container's own mount covers it, except for the cluster's folder and paths that the container was started with.
        add_entry(&path_of(&machine).join("shm"), &place.join("shm"));
    }
    create_folder(&place.join("pts"), 0o755)?;
    let _ = symlink("pts/ptmx", place.join("ptmx"));
    let _ = fs::write(MESSAGE, "");
    bind::close(&open()?).map_err(describe_error("make /dev read-only"))
}

/// Adds one entry; entries that cannot be bound or opened are left out.
fn add_entry(path: &Path, place: &Path) {
    let Ok(found) = fs::symlink_metadata(path) else { return };
    match FileType::from_raw_mode(found.mode()) {
        FileType::Symlink => drop(fs::read_link(path).map(|to| symlink(to, place))),
        FileType::Directory => {
            let _ = create_folder(place, 0o755);
            let _ = mount_bind_recursive(path, place);
        }
        FileType::BlockDevice => {}
        _ if access(path, Access::READ_OK).is_err() => {}
        FileType::CharacterDevice if copy_device(path, place, &found).is_ok() => {}
        _ => {
            let _ = fs::write(place, "");
            let _ = mount_bind(path, place);
        }
    }
}

/// Creates a device like the machine's, which saves each container a mount. Only root of the machine may create devices.
fn copy_device(path: &Path, place: &Path, found: &Metadata) -> io::Result<()> {
    // The mode of a device with an access list does not show its permissions.
    if lgetxattr(path, ACCESS_LIST, &mut [0; 0]).is_ok_and(|length| length > 0) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    mknodat(CWD, place, FileType::CharacterDevice, Mode::from_raw_mode(found.mode() & 0o7777), found.rdev())?;
    chown(place, Some(found.uid()), Some(found.gid()))
        .and_then(|()| set_permissions(place, found.permissions()))
        .inspect_err(|_| drop(fs::remove_file(place)))
}

/// Mounts new terminals into a container's `/dev`, as container runtimes do: only root can open those of the machine through `/dev/pts`.
pub fn add_terminals(place: &Path) -> Result<(), String> {
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    let options = Some(c"newinstance,ptmxmode=0666,mode=0620");
    mount("devpts", place.join("pts"), "devpts", flags, options).map_err(describe_error("mount terminals"))
}
