//! Files below an open folder, reached so that no link and no `..` leads out of it.

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, chmodat, fchmod, fstat, mkdirat, openat, openat2, statat,
    unlinkat,
};
use rustix::io::{Errno, Result};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Whether a path is relative, names no parent, and begins with no name that belongs to the volume itself.
pub fn is_plain(path: &str) -> bool {
    let is_name = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains('\0');
    path.split('/').all(is_name) && !path.starts_with("..")
}

/// Opens what is at a path below a folder, through links as long as they stay below it. As a handle only, which opens nothing.
pub fn inside(folder: &OwnedFd, path: &str) -> Result<OwnedFd> {
    let path = if path.is_empty() { "." } else { path };
    let stay = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    openat2(folder, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), stay)
}

/// Makes the folders of a path below a folder and opens the last one; goes through no link. What is new has this mode, whatever the umask.
pub fn make_folders(folder: &OwnedFd, path: &str, mode: u32) -> Result<OwnedFd> {
    let mut at = openat(folder, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    for part in path.split('/').filter(|part| !part.is_empty()) {
        if part == ".." {
            return Err(Errno::INVAL);
        }
        let is_new = match mkdirat(&at, part, Mode::from_raw_mode(mode)) {
            Err(Errno::EXIST) => false,
            made => made.map(|()| true)?,
        };
        at = super::folder(at.as_fd(), Path::new(part))?;
        if is_new {
            fchmod(&at, Mode::from_raw_mode(mode))?;
        }
    }
    Ok(at)
}

/// The names in a folder.
pub fn names(folder: &OwnedFd) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    Ok(names)
}

/// How many files there are below a folder; none when that cannot be read.
pub fn count(folder: &OwnedFd) -> Option<usize> {
    let mut sum = 0;
    for name in names(folder).ok()? {
        let found = statat(folder, &name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        sum += match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => count(&super::folder(folder.as_fd(), Path::new(&name)).ok()?)?,
            _ => 1,
        };
    }
    Some(sum)
}

/// Whether a file has this mode and this content.
pub fn reads(folder: &OwnedFd, path: &str, mode: u32, content: &[u8]) -> bool {
    let stay = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let Ok(file) = openat2(folder, path, flags, Mode::empty(), stay) else { return false };
    let same = fstat(&file).is_ok_and(|found| {
        found.st_mode & 0o7777 == mode
            && FileType::from_raw_mode(found.st_mode) == FileType::RegularFile
            && found.st_size as usize == content.len()
    });
    let mut read = vec![0; content.len()];
    let mut filled = 0;
    while same && filled < read.len() {
        match rustix::io::read(&file, &mut read[filled..]) {
            Ok(0) | Err(_) => return false,
            Ok(more) => filled += more,
        }
    }
    same && read == content
}

/// Removes a name and everything below it, as far as that is possible.
pub fn remove_all(parent: &OwnedFd, name: &str) {
    if unlinkat(parent, name, AtFlags::empty()).is_ok() {
        return;
    }
    let open = || super::folder(parent.as_fd(), Path::new(name));
    let opened = open().or_else(|error| {
        // Its owner took its own rights away. Another user's folder stays as it is, and what follows fails.
        if error == Errno::ACCESS && chmodat(parent, name, Mode::RWXU, AtFlags::empty()).is_ok() {
            open()
        } else {
            Err(error)
        }
    });
    if let Ok(folder) = opened {
        if fstat(&folder).is_ok_and(|found| found.st_mode & 0o700 != 0o700) {
            let _ = fchmod(&folder, Mode::RWXU);
        }
        for name in names(&folder).unwrap_or_default() {
            remove_all(&folder, &name);
        }
    }
    let _ = unlinkat(parent, name, AtFlags::REMOVEDIR);
}
