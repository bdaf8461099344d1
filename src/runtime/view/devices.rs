//! A container's own `/dev`: the machine's devices without its terminals and disks, terminals and shared memory of its own.

use super::compose::make;
use rustix::fs::{Access, FileType, access, symlink};
use rustix::mount::{MountFlags, mount, mount_bind, mount_bind_recursive};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// What no container needs, and the terminals that it gets anew, by the beginning of the name.
const LEFT_OUT: [&str; 6] = ["loop", "ram", "tty", "vcs", "zram", "pt"];

/// Lays out `/dev` at a place below the new root. `fresh` is where a folder for it can be made.
pub fn lay(fresh: &Path, place: &Path) -> Result<(), String> {
    let failed = |error: rustix::io::Errno| format!("cannot lay out /dev: {error}");
    make(fresh, 0o755)?;
    mount_bind(fresh, place).map_err(failed)?;
    for entry in fs::read_dir("/dev").map_err(|error| format!("cannot read /dev: {error}"))?.flatten() {
        let name = entry.file_name();
        let text = name.to_string_lossy();
        if text != "tty" && (text == "shm" || LEFT_OUT.iter().any(|start| text.starts_with(start))) {
            continue;
        }
        lay_one(&entry.path(), &place.join(&name));
    }
    let shared = place.join("shm");
    make(&shared, 0o777)?;
    let _ = fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777));
    terminals(place)
}

/// One entry; what may not be bound, or could not be opened anyway, is left out.
fn lay_one(path: &Path, place: &Path) {
    let Ok(found) = fs::symlink_metadata(path) else { return };
    match FileType::from_raw_mode(found.mode()) {
        FileType::Symlink => drop(fs::read_link(path).map(|to| symlink(to, place))),
        FileType::Directory => {
            let _ = make(place, 0o755);
            let _ = mount_bind_recursive(path, place);
        }
        FileType::BlockDevice => {}
        _ if access(path, Access::READ_OK).is_err() => {}
        _ => {
            let _ = fs::write(place, "");
            let _ = mount_bind(path, place);
        }
    }
}

/// Terminals of its own, as container runtimes do: those of the machine can be opened by root alone through a path in `/dev/pts`.
fn terminals(place: &Path) -> Result<(), String> {
    let folder = place.join("pts");
    make(&folder, 0o755)?;
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    let options = Some(c"newinstance,ptmxmode=0666,mode=0620");
    mount("devpts", &folder, "devpts", flags, options).map_err(|error| format!("cannot mount terminals: {error}"))?;
    let _ = symlink("pts/ptmx", place.join("ptmx"));
    Ok(())
}
