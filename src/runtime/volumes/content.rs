//! The content of a volume of files, replaced atomically: a folder `..<time>` contains it, the link `..data` points to the folder, and for
//! each name a link leads through `..data`. A reader sees either the old or the new content.

use crate::runtime::{file_tree, wire};
use crate::world::volume::VolumeFile;
use rustix::fs::{AtFlags, Mode, OFlags, fchmod, mkdirat, openat, readlinkat, renameat, symlinkat, unlinkat};
use rustix::io::{Errno, Result};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

const DATA: &str = "..data";
const FRESH: &str = "..data_new";
const FOLDER_MODE: Mode = Mode::from_raw_mode(0o755);

/// Replaces the content of an open volume; does nothing when it is up to date.
pub fn replace(volume: &OwnedFd, files: &[VolumeFile]) -> Result<()> {
    if files.iter().any(|file| !file_tree::is_plain(&file.path)) {
        return Err(Errno::INVAL);
    }
    let before = readlinkat(volume, DATA, Vec::new()).ok().and_then(|name| name.into_string().ok());
    // A pod that sees the machine's files may have put a link to another folder in its place.
    let before = before.filter(|name| name.starts_with("..") && name.len() > 2 && !name.contains('/'));
    if before.as_deref().is_some_and(|before| holds(volume, before, files)) {
        return Ok(());
    }
    let fresh = fresh_name();
    mkdirat(volume, &fresh, FOLDER_MODE)?;
    let folder = file_tree::open_folder(volume, &*fresh)?;
    // Set explicitly, because the umask of the control plane reduces the mode above.
    fchmod(&folder, FOLDER_MODE)?;
    write_all(&folder, files)?;
    let _ = unlinkat(volume, FRESH, AtFlags::empty());
    symlinkat(&fresh, volume, FRESH)?;
    renameat(volume, FRESH, volume, DATA)?;
    link_names(volume, files)?;
    if let Some(before) = before {
        // Removes the old content; files that cannot be removed go with the volume.
        let _ = file_tree::remove(volume, &before);
    }
    Ok(())
}

/// Replaces the files of an internal volume. Containers see only these files, which are mounted one by one, so they need not change
/// together.
pub fn write_files(volume: &OwnedFd, files: &[VolumeFile]) -> Result<()> {
    if files.iter().any(|file| !file_tree::is_plain(&file.path) || file.path.contains('/')) {
        return Err(Errno::INVAL);
    }
    for file in files.iter().filter(|file| !file_tree::has_content(volume, &file.path, file.mode, &file.content)) {
        let _ = unlinkat(volume, &file.path, AtFlags::empty());
        write_all(volume, std::slice::from_ref(file))?;
    }
    Ok(())
}

/// Returns a name with the time, in the kubelet's format (atomic_writer.go): `..2026_11_21_13_00_00.123456789`.
fn fresh_name() -> String {
    let now = wire::moment(wire::now_nanos());
    format!("{}.{:09}", now.strftime("..%Y_%m_%d_%H_%M_%S"), now.subsec_nanosecond())
}

fn write_all(folder: &OwnedFd, files: &[VolumeFile]) -> Result<()> {
    for file in files {
        let parent_and_name = file.path.rsplit_once('/');
        let made = parent_and_name.map(|(parent, _)| file_tree::make_folders(folder, parent, 0o755)).transpose()?;
        let name = parent_and_name.map_or(&*file.path, |(_, name)| name);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = openat(made.as_ref().unwrap_or(folder), name, flags, Mode::from_raw_mode(0o600))?;
        let mut rest = &file.content[..];
        while !rest.is_empty() {
            let written = rustix::io::write(&made, rest)?;
            rest = &rest[written..];
        }
        if file.user.or(file.group).is_some() {
            file_tree::set_owner(&made, file.user, file.group)?;
        }
        fchmod(&made, Mode::from_raw_mode(file.mode))?;
    }
    Ok(())
}

/// Returns the names at the top of the volume.
fn top_names(files: &[VolumeFile]) -> BTreeSet<&str> {
    files.iter().map(|file| file.path.split('/').next().unwrap_or_default()).collect()
}

fn link_names(volume: &OwnedFd, files: &[VolumeFile]) -> Result<()> {
    let top_names = top_names(files);
    for top in &top_names {
        match symlinkat(format!("{DATA}/{top}"), volume, *top) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
    }
    for name in file_tree::names(volume)? {
        if !name.starts_with("..") && !top_names.contains(name.as_str()) {
            let _ = unlinkat(volume, &name, AtFlags::empty());
        }
    }
    Ok(())
}

/// Whether the volume has exactly this content, in a folder that was completed.
fn holds(volume: &OwnedFd, before: &str, files: &[VolumeFile]) -> bool {
    let Ok(folder) = file_tree::open_folder(volume, before) else { return false };
    let Ok(names) = file_tree::names(volume) else { return false };
    let present: BTreeSet<&str> = names.iter().map(String::as_str).filter(|name| !name.starts_with("..")).collect();
    present == top_names(files)
        && file_tree::count_files(&folder, files.len()) == Some(files.len())
        && files.iter().all(|file| file_tree::has_content(&folder, &file.path, file.mode, &file.content))
}
