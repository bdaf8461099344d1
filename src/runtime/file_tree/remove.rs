//! Removal of a folder with everything in it, however deep and wide it is.
//!
//! Nothing recurses: a subfolder that is not empty is moved up, directly below the folder to remove, and emptied there. So at most two
//! levels are open, and the folder itself lists the remaining work. An interrupted removal can be repeated.

use super::{open_folder, open_path, set_mode};
use crate::object::io_error_text;
use rustix::fs::{AtFlags, Dir, fstat, renameat, unlinkat};
use rustix::io::{Errno, Result};
use std::ffi::CStr;
use std::os::fd::OwnedFd;

/// Removes an entry of a folder and everything below it. Succeeds if the entry does not exist. The error names the files that cannot be
/// removed, and why; all others have been removed then.
pub fn remove(parent: &OwnedFd, name: &str) -> std::result::Result<(), String> {
    let failure = |name: &str, error: Errno| format!("cannot remove {name:?}: {error}", error = io_error_text(error));
    let failed = match remove_shallow(parent, name) {
        Ok(()) => return Ok(()),
        Err(error) => error,
    };
    if failed != Errno::NOTEMPTY {
        return Err(failure(name, failed));
    }
    let mut top = Top { folder: open_unlocked(parent, name).map_err(|error| failure(name, error))?, moved: 0 };
    top.empty().map_err(|(name, error)| failure(&name, error))?;
    remove_shallow(parent, name).map_err(|error| failure(name, error))
}

/// Removes a file or an empty folder. `ENOTEMPTY` for a folder that is not empty.
fn remove_shallow(parent: &OwnedFd, name: impl rustix::path::Arg + Copy) -> Result<()> {
    match unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error),
    }
    match unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        // Some file systems return this error for a folder that is not empty.
        Err(Errno::EXIST) => Err(Errno::NOTEMPTY),
        // The entry is not a folder, so the first error is the reason.
        Err(Errno::NOTDIR) => Err(Errno::PERM),
        Err(error) => Err(error),
    }
}

/// Opens a folder, and first gives its owner all rights to it if some are missing.
fn open_unlocked(parent: &OwnedFd, name: impl rustix::path::Arg + Copy) -> Result<OwnedFd> {
    let folder = match open_folder(parent, name) {
        Err(Errno::ACCESS) => {
            set_mode(open_path(parent, name)?, 0o700)?;
            open_folder(parent, name)?
        }
        other => other?,
    };
    if fstat(&folder)?.st_mode & 0o700 != 0o700 {
        // This fails for another user's folder. The caller then fails when it uses the folder.
        let _ = set_mode(&folder, 0o700);
    }
    Ok(folder)
}

/// Moves a folder. Gives its owner the right to write in it, which a move needs because it changes `..`. Adds a number to a name that is
/// taken.
pub fn move_folder((from, name): (&OwnedFd, &str), (to, wanted): (&OwnedFd, &str)) -> Result<()> {
    let mut number = 0u64;
    move_to_free(from, name, to, || {
        number += 1;
        if number == 1 { wanted.to_owned() } else { format!("{wanted}.{number}") }
    })
}

/// Renames an entry to the first of these names that is free. The name of an empty folder counts as free.
fn move_to_free(
    from: &OwnedFd,
    name: impl rustix::path::Arg + Copy,
    to: &OwnedFd,
    mut next_name: impl FnMut() -> String,
) -> Result<()> {
    let (mut is_unlocked, mut target) = (false, next_name());
    loop {
        match renameat(from, name, to, &target) {
            Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR | Errno::ISDIR) => target = next_name(),
            Err(Errno::ACCESS) if !is_unlocked => {
                is_unlocked = true;
                drop(open_unlocked(from, name)?);
            }
            other => return other,
        }
    }
}

/// A folder that is being emptied.
struct Top {
    folder: OwnedFd,
    /// Number of the next name for a subfolder that is moved up.
    moved: u64,
}

/// An entry that could not be removed, by its name, and why.
type Failed = (String, Errno);

impl Top {
    /// Removes all entries. Reads the folder again until it is empty, or until a whole pass removes nothing.
    fn empty(&mut self) -> std::result::Result<(), Failed> {
        loop {
            let (mut removed, mut failed) = (0u64, None);
            let mut entries = Dir::read_from(&self.folder).map_err(|error| (".".to_owned(), error))?;
            while let Some(entry) = entries.read() {
                let entry = entry.map_err(|error| (".".to_owned(), error))?;
                let name = entry.file_name();
                if [c".", c".."].contains(&name) {
                    continue;
                }
                match self.remove_entry(name, &mut removed) {
                    Ok(()) => removed += 1,
                    Err(error) => drop(failed.get_or_insert(error)),
                }
            }
            match failed {
                Some(failed) if removed == 0 => return Err(failed),
                None if removed == 0 => return Ok(()),
                _ => {}
            }
        }
    }

    /// Removes one entry; subfolders of it that are not empty are moved up, and counted in `removed`.
    fn remove_entry(&mut self, name: &CStr, removed: &mut u64) -> std::result::Result<(), Failed> {
        let failure = |name: &CStr| {
            let name = name.to_string_lossy().into_owned();
            move |error: Errno| (name, error)
        };
        match remove_shallow(&self.folder, name) {
            Err(Errno::NOTEMPTY) => {}
            other => return other.map_err(failure(name)),
        }
        let inner = open_unlocked(&self.folder, name).map_err(failure(name))?;
        let mut failed = None;
        let mut entries = Dir::read_from(&inner).map_err(failure(name))?;
        while let Some(entry) = entries.read() {
            let entry = entry.map_err(failure(name))?;
            let name = entry.file_name();
            if [c".", c".."].contains(&name) {
                continue;
            }
            let gone = match remove_shallow(&inner, name) {
                Err(Errno::NOTEMPTY) => self.move_up(&inner, name),
                other => other,
            };
            match gone {
                Ok(()) => *removed += 1,
                Err(error) => drop(failed.get_or_insert(failure(name)(error))),
            }
        }
        match (unlinkat(&self.folder, name, AtFlags::REMOVEDIR), failed) {
            (Err(Errno::NOTEMPTY | Errno::EXIST), Some(failed)) => Err(failed),
            (other, _) => other.map_err(failure(name)),
        }
    }

    fn move_up(&mut self, from: &OwnedFd, name: &CStr) -> Result<()> {
        let Top { folder, moved } = self;
        // An existing entry with such a name does no harm: it is removed, too.
        move_to_free(from, name, folder, || {
            *moved += 1;
            format!(".moved-{moved}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::CWD;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn remove_takes_everything_and_nothing_that_a_link_names() {
        let (base, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        fs::write(other.path().join("precious"), "").expect("written");
        let top = base.path().join("top");
        fs::create_dir_all(top.join("a/b/c/d")).expect("made");
        fs::create_dir_all(top.join(".moved-0")).expect("made");
        fs::write(top.join(".moved-1"), "").expect("written");
        for folder in ["", "a", "a/b/c"] {
            fs::write(top.join(folder).join("file"), "").expect("written");
            symlink(other.path(), top.join(folder).join("link")).expect("linked");
        }
        for closed in ["a/b/c", "a/b", "a"] {
            fs::set_permissions(top.join(closed), fs::Permissions::from_mode(0o000)).expect("closed");
        }
        let parent = open_folder(CWD, base.path()).expect("opened");
        remove(&parent, "top").expect("removed");
        assert!(!top.exists() && other.path().join("precious").exists());
        remove(&parent, "top").expect("it is gone");
        symlink(other.path(), &top).expect("linked");
        remove(&parent, "top").expect("removed");
        assert!(fs::symlink_metadata(&top).is_err() && other.path().join("precious").exists());
    }

    #[test]
    fn remove_says_what_it_cannot_remove() {
        // Nothing can be removed from here, not even by root.
        let parent = open_folder(CWD, "/proc/sys").expect("opened");
        let said = remove(&parent, "kernel").expect_err("it stays");
        assert!(said.starts_with("cannot remove \"kernel\": "), "{said}");
    }
}
