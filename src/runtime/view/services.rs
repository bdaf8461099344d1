//! Sockets of the machine's services: a layer hides who listens there, so their folders are seen as they are.
//!
//! To look through all folders takes longer than all mounts together, and what is found seldom changes. So whoever many views are made
//! after keeps what was found ([`read_services`]), and by which folders: as long as nothing has come or gone in any of these it holds.

use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Folder of the machine's service sockets.
pub const FOLDER: &str = "/run";
/// Maximum depth at which sockets are searched.
const DEPTH: usize = 2;
/// A folder that has changed within this time may change once more by the same stamp: the clock of file systems ticks slowly.
const UNSETTLED: Duration = Duration::from_secs(1);

thread_local! {
    /// The last result, which forked processes inherit.
    static KNOWN: RefCell<Option<CachedServiceEntries>> = const { RefCell::new(None) };
}

/// The folders that were looked through, each with its stamp, and the entries that serve.
#[derive(Default)]
struct CachedServiceEntries {
    folder: PathBuf,
    looked: Vec<(PathBuf, Option<FolderStamp>)>,
    serving: Vec<PathBuf>,
}

/// Identity of a folder and the time of its last change.
type FolderStamp = (u64, u64, i64, i64, i64, i64);

/// The entries of a folder that are sockets or pipes, hold one, or are empty folders, which wait for a service to begin.
pub fn service_entries(folder: &Path) -> Vec<PathBuf> {
    let known = |known: &Option<CachedServiceEntries>| {
        known.as_ref().filter(|known| known.holds(folder)).map(|known| known.serving.clone())
    };
    KNOWN.with_borrow(known).unwrap_or_else(|| CachedServiceEntries::read_folder(folder).serving)
}

/// Keeps what is found now for those who are forked from this process.
pub fn read_services(folder: &Path) {
    KNOWN.with_borrow_mut(|known| {
        if !known.as_ref().is_some_and(|known| known.holds(folder)) {
            *known = Some(CachedServiceEntries::read_folder(folder)).filter(CachedServiceEntries::is_settled);
        }
    });
}

impl CachedServiceEntries {
    fn read_folder(folder: &Path) -> CachedServiceEntries {
        let mut found = CachedServiceEntries { folder: folder.to_owned(), ..CachedServiceEntries::default() };
        // Before it is read: what comes meanwhile is then another stamp.
        found.looked.push((folder.to_owned(), stamp(folder)));
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let serves = match entry.file_type() {
                Ok(kind) if kind.is_dir() => found.has_socket(&entry.path(), DEPTH).unwrap_or(true),
                Ok(kind) => kind.is_socket() || kind.is_fifo(),
                Err(_) => false,
            };
            if serves {
                found.serving.push(entry.path());
            }
        }
        found
    }

    /// Whether a folder has a socket or a pipe in it; unknown when it is empty.
    fn has_socket(&mut self, folder: &Path, depth: usize) -> Option<bool> {
        self.looked.push((folder.to_owned(), stamp(folder)));
        let mut entries = fs::read_dir(folder).ok()?.flatten().peekable();
        entries.peek()?;
        Some(entries.any(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => depth > 0 && self.has_socket(&entry.path(), depth - 1) == Some(true),
            Ok(kind) => kind.is_socket() || kind.is_fifo(),
            Err(_) => false,
        }))
    }

    /// Whether it would be found again.
    fn holds(&self, folder: &Path) -> bool {
        self.folder == folder && self.looked.iter().all(|(folder, known)| stamp(folder) == *known)
    }

    /// Whether whatever changes from now on shows in a stamp.
    fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let settled = now.saturating_sub(UNSETTLED).as_secs() as i64;
        self.looked.iter().all(|(_, stamp)| stamp.is_some_and(|(.., changed, _)| changed < settled))
    }
}

fn stamp(folder: &Path) -> Option<FolderStamp> {
    let found = fs::symlink_metadata(folder).ok()?;
    Some((found.dev(), found.ino(), found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn folders_of_services_are_told_from_others() {
        let run = tempfile::tempdir().expect("a folder");
        let at = |path: &str| run.path().join(path);
        for folder in ["db", "bus/user", "deep/a/b/c", "idle", "files"] {
            fs::create_dir_all(at(folder)).expect("made");
        }
        fs::write(at("files/pid"), "1").expect("written");
        fs::write(at("web.pid"), "1").expect("written");
        let _listening = ["top.sock", "db/s", "bus/user/s", "deep/a/b/c/s"].map(|path| UnixListener::bind(at(path)));
        let mut found: Vec<_> =
            service_entries(run.path()).into_iter().map(|path| path.file_name().unwrap().to_owned()).collect();
        found.sort();
        assert_eq!(found, ["bus", "db", "idle", "top.sock"]);
    }

    #[test]
    fn cached_services_hold_until_one_is_added_or_removed() {
        let run = tempfile::tempdir().expect("a folder");
        let at = |path: &str| run.path().join(path);
        fs::create_dir_all(at("files/deep")).expect("made");
        fs::write(at("files/pid"), "1").expect("written");
        let found = CachedServiceEntries::read_folder(run.path());
        assert!(found.holds(run.path()) && found.serving.is_empty());
        assert!(!found.is_settled(), "made this very moment");
        assert!(!found.holds(&at("files")));
        let _listening = UnixListener::bind(at("files/deep/s"));
        assert!(!found.holds(run.path()));
        assert_eq!(CachedServiceEntries::read_folder(run.path()).serving, [at("files")]);
    }
}
