//! A walk over everything below a folder that neither recurses nor keeps a descriptor per level, nor follows a link.
//!
//! The way back up is `..`, checked against the device and inode of the folder that was left: one that was moved meanwhile ends the walk.
//! Start reading at [`walk`].

use super::open_folder;
use rustix::fs::{AtFlags, FileType, RawDir, SeekFrom, fstat, seek, statat};
use rustix::io::{Errno, Result};
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

/// Levels that are entered at most. Each takes some memory, and a pod chooses how many there are.
const MAX_DEPTH: usize = 65_536;
/// Bytes of one read of a folder's entries. Names of its subfolders are kept until they are entered, at most as many bytes.
const BLOCK: usize = 8 * 1024;
/// As [`BLOCK`], below [`SHALLOW`] levels, so that all levels together stay small. The longest entry has 280 bytes.
const DEEP_BLOCK: usize = 512;
const SHALLOW: usize = 32;

/// A device and an inode: which folder it is.
#[derive(Clone, Copy, PartialEq)]
struct FileId(u64, u64);

fn file_id(folder: &OwnedFd) -> Result<FileId> {
    let found = fstat(folder)?;
    Ok(FileId(found.st_dev, found.st_ino))
}

/// Whether a walk enters other file systems that are mounted below the folder.
#[derive(Clone, Copy, PartialEq)]
pub enum Mounts {
    /// Mounted file systems are left out.
    Skipped,
    /// Mounted file systems are walked through, too.
    Entered,
}

/// An open folder below a top one, and the way back up.
struct Cursor {
    at: OwnedFd,
    device: u64,
    mounts: Mounts,
    above: Vec<FileId>,
}

impl Cursor {
    /// A cursor at the top.
    fn new(top: OwnedFd, mounts: Mounts) -> Result<Cursor> {
        let FileId(device, _) = file_id(&top)?;
        Ok(Cursor { at: top, device, mounts, above: Vec::new() })
    }

    /// Enters a subfolder. `EXDEV` for a mount that is to be skipped, `ENAMETOOLONG` below 65,536 levels.
    fn enter(&mut self, name: &CStr) -> Result<()> {
        if self.above.len() >= MAX_DEPTH {
            return Err(Errno::NAMETOOLONG);
        }
        let inner = open_folder(&self.at, name)?;
        if self.mounts == Mounts::Skipped && file_id(&inner)?.0 != self.device {
            return Err(Errno::XDEV);
        }
        self.above.push(file_id(&self.at)?);
        self.at = inner;
        Ok(())
    }

    /// Returns to the parent folder, unless it is at the top. `ESTALE` when the folder was moved meanwhile.
    fn leave(&mut self) -> Result<()> {
        let Some(expected) = self.above.pop() else { return Ok(()) };
        let above = open_folder(&self.at, "..")?;
        if file_id(&above)? != expected {
            return Err(Errno::STALE);
        }
        self.at = above;
        Ok(())
    }
}

/// A step of a walk.
pub enum WalkEvent<'a> {
    /// A subfolder was entered. The following entries, until it is [left](WalkEvent::Left), are in it.
    Folder {
        /// The subfolder itself, open.
        folder: &'a OwnedFd,
        /// Its name in the folder above.
        name: &'a CStr,
    },
    /// An entry that is not a folder.
    Other {
        /// The folder that it lies in.
        folder: &'a OwnedFd,
        /// Its name there.
        name: &'a CStr,
        /// Its kind when the folder was read. It can have been replaced since.
        kind: FileType,
    },
    /// A subfolder that could not be entered.
    Closed {
        /// Error of the attempt to enter it.
        error: Errno,
    },
    /// The subfolder that was entered last is left.
    Left,
}

/// The rest of the work in one level.
#[derive(Default)]
struct Level {
    /// The position at which reading continues (`d_off` of the last entry read).
    position: u64,
    is_read: bool,
    subfolders: Vec<CString>,
}

/// Visits everything below a folder, each folder before its entries; the first error of `visit` ends the walk. Entries that vanish or are
/// replaced during the walk are left out.
pub fn walk(top: OwnedFd, mounts: Mounts, visit: &mut dyn FnMut(WalkEvent) -> Result<()>) -> Result<()> {
    let mut cursor = Cursor::new(top, mounts)?;
    let mut levels = vec![Level::default()];
    let mut space = vec![MaybeUninit::uninit(); BLOCK];
    while let Some(level) = levels.last_mut() {
        let block = if cursor.above.len() < SHALLOW { BLOCK } else { DEEP_BLOCK };
        while level.subfolders.is_empty() && !level.is_read {
            level.read(&cursor.at, &mut space[..block], visit)?;
        }
        let Some(name) = level.subfolders.pop() else {
            levels.pop();
            if !levels.is_empty() {
                cursor.leave()?;
                visit(WalkEvent::Left)?;
            }
            continue;
        };
        match cursor.enter(&name) {
            Ok(()) => {
                visit(WalkEvent::Folder { folder: &cursor.at, name: &name })?;
                levels.push(Level::default());
            }
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => {}
            Err(error) => visit(WalkEvent::Closed { error })?,
        }
    }
    Ok(())
}

impl Level {
    /// Reads the next block of entries: visits those that are not folders, and keeps the names of the others.
    fn read(
        &mut self,
        folder: &OwnedFd,
        space: &mut [MaybeUninit<u8>],
        visit: &mut dyn FnMut(WalkEvent) -> Result<()>,
    ) -> Result<()> {
        seek(folder, SeekFrom::Start(self.position))?;
        let mut entries = RawDir::new(folder, space);
        loop {
            match entries.next() {
                // The folder itself may have been removed meanwhile.
                None | Some(Err(Errno::NOENT)) => {
                    self.is_read = true;
                    return Ok(());
                }
                Some(entry) => {
                    let entry = entry?;
                    self.position = entry.next_entry_cookie();
                    let name = entry.file_name();
                    match kind_of(folder, name, entry.file_type()) {
                        _ if [c".", c".."].contains(&name) => {}
                        Some(FileType::Directory) => self.subfolders.push(name.to_owned()),
                        Some(kind) => visit(WalkEvent::Other { folder, name, kind })?,
                        None => {}
                    }
                }
            }
            if entries.is_buffer_empty() {
                return Ok(());
            }
        }
    }
}

/// The kind of an entry, asked for where the file system does not list it; none when it has vanished.
fn kind_of(folder: &OwnedFd, name: &CStr, listed: FileType) -> Option<FileType> {
    if listed != FileType::Unknown {
        return Some(listed);
    }
    statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok().map(|found| FileType::from_raw_mode(found.st_mode))
}

#[cfg(test)]
mod tests {
    use super::super::{make_folder, open_folder, remove};
    use super::*;
    use rustix::fs::CWD;
    use std::collections::BTreeSet;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn walk_visits_each_entry_once_and_follows_no_link() {
        let base = tempfile::tempdir().expect("a folder");
        let mut expected = BTreeSet::new();
        // More entries, folders too, than fit in one block.
        for at in 0..600 {
            let name = format!("{at:0>40}");
            match at % 3 {
                0 => fs::write(base.path().join(&name), "").expect("written"),
                1 => fs::create_dir_all(base.path().join(&name).join("in")).expect("made"),
                _ => symlink("/", base.path().join(&name)).expect("linked"),
            }
            if at % 3 == 1 {
                expected.insert(format!("{name}/in/"));
            }
            expected.insert(if at % 3 == 1 { format!("{name}/") } else { name });
        }
        let mut path = Vec::new();
        let mut seen = BTreeSet::new();
        let mut visit = |found: WalkEvent| {
            let text = |name: &CStr| name.to_string_lossy().into_owned();
            match found {
                WalkEvent::Folder { name, .. } => {
                    path.push(text(name));
                    assert!(seen.insert(format!("{}/", path.join("/"))));
                }
                WalkEvent::Other { name, .. } => {
                    let name = path.iter().cloned().chain([text(name)]).collect::<Vec<_>>().join("/");
                    assert!(seen.insert(name));
                }
                WalkEvent::Left => drop(path.pop()),
                WalkEvent::Closed { error } => panic!("{error}"),
            }
            Ok(())
        };
        walk(open_folder(CWD, base.path()).expect("opened"), Mounts::Skipped, &mut visit).expect("walked");
        assert_eq!(seen, expected);
    }

    #[test]
    fn walk_and_remove_take_any_depth_on_a_small_stack() {
        const DEPTH: usize = 8_000;
        let base = tempfile::tempdir().expect("a folder");
        let top = open_folder(CWD, base.path()).expect("opened");
        let mut at = make_folder(&top, "deep", 0o755).expect("made");
        for _ in 1..DEPTH {
            at = make_folder(&at, "d", 0o755).expect("made");
        }
        let work = move || {
            let (mut entered, mut left) = (0, 0);
            let mut visit = |found: WalkEvent| {
                match found {
                    WalkEvent::Folder { .. } => entered += 1,
                    WalkEvent::Left => left += 1,
                    WalkEvent::Other { .. } | WalkEvent::Closed { .. } => panic!("only folders are there"),
                }
                Ok(())
            };
            walk(open_folder(&top, ".").expect("opened"), Mounts::Skipped, &mut visit).expect("walked");
            remove(&top, "deep").expect("removed");
            (entered, left)
        };
        let thread = std::thread::Builder::new().stack_size(128 * 1024).spawn(work).expect("a thread");
        assert_eq!(thread.join().expect("no overflow"), (DEPTH, DEPTH));
        assert_eq!(fs::read_dir(base.path()).expect("readable").count(), 0);
    }

    #[test]
    fn cursor_does_not_go_up_into_a_folder_that_it_did_not_come_from() {
        let base = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(base.path().join("top/a/b")).expect("made");
        let top = open_folder(CWD, base.path().join("top")).expect("opened");
        let mut cursor = Cursor::new(top, Mounts::Skipped).expect("a cursor");
        cursor.enter(c"a").and_then(|()| cursor.enter(c"b")).expect("entered");
        fs::rename(base.path().join("top/a/b"), base.path().join("b")).expect("moved");
        assert_eq!(cursor.leave(), Err(Errno::STALE));
    }
}
