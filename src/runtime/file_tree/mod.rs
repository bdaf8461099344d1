//! Access by descriptor only to files below a folder that pods may write to.
//!
//! A pod can replace any file by a symbolic link, or move any folder, between two system calls of kloop. So every name is resolved below
//! an open folder and never through a link, and modes and owners are changed through the same descriptor that was checked. Folders can be
//! nested tens of thousands deep: [`walk`](walk::walk) and [`remove`](fn@remove) need a few descriptors and no recursion.
//! Never: follows a link. Start reading at [`open_folder`], then `walk` and `remove`.

mod remove;
mod walk;

pub use remove::{move_folder, remove};
pub use walk::{Mounts, WalkEvent, walk};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Uid, chmodat, chownat, fchmod, fstat, mkdirat,
    openat, openat2,
};
use rustix::io::{Errno, Result};
use rustix::path::Arg;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

const NO_LINK: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);

/// Whether a path is relative, names no parent, and begins with no name that belongs to the volume itself.
pub fn is_plain(path: &str) -> bool {
    let is_name = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains('\0');
    path.split('/').all(is_name) && !path.starts_with("..")
}

/// Opens a folder to read it; a symbolic link in its place is an error. `name` has to be a single name, or a path that pods cannot change.
pub fn open_folder(parent: impl AsFd, name: impl Arg) -> Result<OwnedFd> {
    openat(parent, name, OFlags::RDONLY | OFlags::DIRECTORY | NO_LINK, Mode::empty())
}

/// Returns a descriptor (`O_PATH`) of the file with this name, or of the link itself, without access to its content.
pub fn open_path(parent: impl AsFd, name: impl Arg) -> Result<OwnedFd> {
    openat(parent, name, OFlags::PATH | NO_LINK, Mode::empty())
}

/// Opens a regular file to read it, and nothing else: a link, a FIFO or a device in its place is an error, and nothing is waited for.
pub fn open_file(parent: impl AsFd, name: impl Arg) -> Result<File> {
    let file = openat(parent, name, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | NO_LINK, Mode::empty())?;
    match is_kind(&file, FileType::RegularFile)? {
        true => Ok(file.into()),
        false => Err(Errno::INVAL),
    }
}

/// Reads the last `most` bytes of a regular file. Like [`open_file`], refuses everything else.
pub fn read_end(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut file = open_file(CWD, path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(most)))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether an open file is of this kind.
pub fn is_kind(file: impl AsFd, kind: FileType) -> Result<bool> {
    Ok(FileType::from_raw_mode(fstat(file)?.st_mode) == kind)
}

/// Sets the mode of a file or folder that is open or [held](open_path). Refuses links.
pub fn set_mode(file: impl AsFd, mode: u32) -> Result<()> {
    let mode = Mode::from_raw_mode(mode);
    match fchmod(&file, mode) {
        // A descriptor that permits neither reading nor writing (`O_PATH`): its name in `/proc` leads to the opened file, even if another
        // file has the path now.
        Err(Errno::BADF) if !is_kind(&file, FileType::Symlink)? => chmodat(CWD, path_of(&file), mode, AtFlags::empty()),
        other => other,
    }
}

/// Sets the owner and group of an opened file or folder, or of one that is [held](open_path); `None` changes neither.
pub fn set_owner(file: impl AsFd, user: Option<u32>, group: Option<u32>) -> Result<()> {
    chownat(file, c"", user.map(Uid::from_raw), group.map(Gid::from_raw), AtFlags::EMPTY_PATH)
}

/// Opens a handle (`O_PATH`) to the file or folder at a path below a folder; follows symbolic links that stay below it.
pub fn open_handle_inside(folder: &OwnedFd, path: &str) -> Result<OwnedFd> {
    let path = if path.is_empty() { "." } else { path };
    let stay = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    openat2(folder, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), stay)
}

/// Opens a regular file at a path below a folder to read it, through links as long as they stay below it. Anything else in its place, as
/// a FIFO that would be waited for, is an error.
pub fn open_inside(folder: &OwnedFd, path: &str) -> std::io::Result<File> {
    let held = open_handle_inside(folder, path)?;
    if !is_kind(&held, FileType::RegularFile)? {
        return Err(std::io::Error::other("it is not a file"));
    }
    File::open(path_of(&held))
}

/// The name in `/proc` of an open file, for calls that take no descriptor. It is valid only while the descriptor is open.
pub fn path_of(held: &impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", held.as_fd().as_raw_fd()))
}

/// Creates the folders of a path below a folder, and opens the last one; follows no symbolic link. New folders get this mode regardless of
/// the umask.
pub fn make_folders(folder: &OwnedFd, path: &str, mode: u32) -> Result<OwnedFd> {
    let mut at = open_folder(folder, ".")?;
    for part in path.split('/').filter(|part| !part.is_empty()) {
        if part == ".." {
            return Err(Errno::INVAL);
        }
        at = make_folder(&at, part, mode)?;
    }
    Ok(at)
}

/// Opens a folder. Creates a missing one with this mode, regardless of the umask.
pub fn make_folder(parent: &OwnedFd, name: &str, mode: u32) -> Result<OwnedFd> {
    let is_new = match mkdirat(parent, name, Mode::from_raw_mode(mode)) {
        Err(Errno::EXIST) => false,
        made => made.map(|()| true)?,
    };
    let folder = open_folder(parent, name)?;
    if is_new {
        fchmod(&folder, Mode::from_raw_mode(mode))?;
    }
    Ok(folder)
}

/// The names in a folder. Only for folders that kloop fills itself: a pod could make the list as long as it likes.
pub fn names(folder: &OwnedFd) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    Ok(names)
}

/// The number of entries below a folder that are not folders; none when it cannot be read or there are more than `most`.
pub fn count_files(folder: &OwnedFd, most: usize) -> Option<usize> {
    let mut sum = 0;
    let mut count = |found: WalkEvent| match found {
        WalkEvent::Other { .. } if sum == most => Err(Errno::TOOBIG),
        WalkEvent::Other { .. } => {
            sum += 1;
            Ok(())
        }
        WalkEvent::Closed { error, .. } => Err(error),
        _ => Ok(()),
    };
    walk(open_folder(folder, ".").ok()?, Mounts::Skipped, &mut count).ok()?;
    Some(sum)
}

/// Whether a regular file at a path below a folder has this mode and this content.
pub fn has_content(folder: &OwnedFd, path: &str, mode: u32, content: &[u8]) -> bool {
    let stay = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let Ok(file) = openat2(folder, path, flags, Mode::empty(), stay) else { return false };
    let is_same = |found: &Stat| {
        found.st_mode & 0o7777 == mode
            && FileType::from_raw_mode(found.st_mode) == FileType::RegularFile
            && u64::try_from(found.st_size) == Ok(content.len() as u64)
    };
    if !fstat(&file).is_ok_and(|found| is_same(&found)) {
        return false;
    }
    let mut read = vec![0; content.len()];
    File::from(file).read_exact(&mut read).is_ok() && read == content
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn mode(path: &std::path::Path) -> u32 {
        fs::metadata(path).expect("there").permissions().mode() & 0o7777
    }

    #[test]
    fn set_mode_changes_what_is_held_and_never_what_a_link_names() {
        let base = tempfile::tempdir().expect("a folder");
        let (secret, file, link) = (base.path().join("secret"), base.path().join("file"), base.path().join("link"));
        fs::write(&secret, "").expect("written");
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("set");
        fs::write(&file, "").expect("written");
        let held = open_path(CWD, &file).expect("held");
        // The file is replaced by a link after it was opened, as by a hostile pod.
        fs::rename(&file, base.path().join("moved")).expect("moved");
        symlink(&secret, &file).expect("linked");
        set_mode(&held, 0o666).expect("set");
        assert_eq!((mode(&base.path().join("moved")), mode(&secret)), (0o666, 0o600));
        set_mode(held, 0o640).expect("set through a handle that is given away");
        assert_eq!(mode(&base.path().join("moved")), 0o640);
        symlink(&secret, &link).expect("linked");
        let held = open_path(CWD, &link).expect("held");
        assert!(set_mode(&held, 0o666).is_err());
        set_owner(&held, None, Some(rustix::process::getegid().as_raw())).expect("of the link itself");
        assert_eq!(mode(&secret), 0o600);
    }

    #[test]
    fn open_file_opens_regular_files_only() {
        let base = tempfile::tempdir().expect("a folder");
        let folder = open_folder(CWD, base.path()).expect("opened");
        fs::write(base.path().join("file"), "text").expect("written");
        symlink("file", base.path().join("link")).expect("linked");
        rustix::fs::mkfifoat(&folder, "fifo", Mode::RWXU).expect("made");
        let mut text = String::new();
        open_file(&folder, "file").expect("opened").read_to_string(&mut text).expect("read");
        assert_eq!(text, "text");
        for name in ["link", "fifo", ".", "none"] {
            assert!(open_file(&folder, name).is_err(), "{name}");
        }
    }
}
