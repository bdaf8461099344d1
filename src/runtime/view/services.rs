//! Sockets of the machine's services: a layer would hide their listeners, so their folders are bind-mounted.
//!
//! Searching all folders takes longer than all mounts together, and the result seldom changes. So the zygote caches it
//! ([`cache_service_entries`]) with the searched folders, and it stays valid while none of these folders changes. A result that was
//! checked a moment ago counts as valid: a burst of starts checks the folders once.

use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// Folder of the machine's service sockets.
pub const FOLDER: &str = "/run";
/// Maximum depth at which sockets are searched.
const MAX_SOCKET_DEPTH: usize = 2;
/// Time for which a check stays valid. A socket that appears later would not be seen by a container that started just before it, either.
const CHECK_VALIDITY: Duration = Duration::from_millis(5);
/// A folder that changed within this time may change again with the same timestamp, because file system clocks are coarse.
const TIMESTAMP_GRANULARITY: Duration = Duration::from_secs(1);

thread_local! {
    /// The last result, which forked processes inherit.
    static KNOWN: RefCell<Option<CachedServiceEntries>> = const { RefCell::new(None) };
}

/// The searched folders, each with its stamp, and the entries found.
#[derive(Default)]
struct CachedServiceEntries {
    folder: PathBuf,
    looked: Vec<(PathBuf, Option<FolderStamp>)>,
    serving: Vec<PathBuf>,
    /// When the folders were found unchanged.
    checked: Option<Instant>,
}

/// Identity of a folder and the time of its last change.
type FolderStamp = (u64, u64, i64, i64, i64, i64);

/// Returns the entries of a folder that are sockets or pipes, contain one, or are empty folders, in which a service may start later.
pub fn service_entries(folder: &Path) -> Vec<PathBuf> {
    let known = |known: &mut Option<CachedServiceEntries>| {
        known.as_mut().and_then(|known| known.holds(folder).then(|| known.serving.clone()))
    };
    KNOWN.with_borrow_mut(known).unwrap_or_else(|| CachedServiceEntries::read_folder(folder).serving)
}

/// Caches the current result for processes forked from this one.
pub fn cache_service_entries(folder: &Path) {
    KNOWN.with_borrow_mut(|known| {
        if !known.as_mut().is_some_and(|known| known.holds(folder)) {
            *known = Some(CachedServiceEntries::read_folder(folder)).filter(CachedServiceEntries::is_settled);
        }
    });
}

impl CachedServiceEntries {
    fn read_folder(folder: &Path) -> CachedServiceEntries {
        let mut found = CachedServiceEntries { folder: folder.to_owned(), ..CachedServiceEntries::default() };
        // Taken before reading, so that later changes give another stamp.
        found.looked.push((folder.to_owned(), stamp(folder)));
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let serves = match entry.file_type() {
                Ok(kind) if kind.is_dir() => found.has_socket(&entry.path(), MAX_SOCKET_DEPTH).unwrap_or(true),
                Ok(kind) => kind.is_socket() || kind.is_fifo(),
                Err(_) => false,
            };
            if serves {
                found.serving.push(entry.path());
            }
        }
        found
    }

    /// Whether a folder contains a socket or a pipe; `None` when it is empty.
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

    /// Whether the cached result is still valid.
    fn holds(&mut self, folder: &Path) -> bool {
        self.folder == folder && (self.is_checked() || self.check())
    }

    fn is_checked(&self) -> bool {
        self.checked.is_some_and(|at| at.elapsed() < CHECK_VALIDITY)
    }

    /// Looks for changes of the searched folders. Returns false when there are any.
    fn check(&mut self) -> bool {
        let now = Instant::now();
        let is_unchanged = self.looked.iter().all(|(folder, known)| stamp(folder) == *known);
        self.checked = is_unchanged.then_some(now);
        is_unchanged
    }

    /// Whether every later change will change a stamp.
    fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let settled = now.saturating_sub(TIMESTAMP_GRANULARITY).as_secs() as i64;
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
    fn folders_with_sockets_are_found() {
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
    fn cached_services_are_valid_until_one_is_added_or_removed() {
        let run = tempfile::tempdir().expect("a folder");
        let at = |path: &str| run.path().join(path);
        fs::create_dir_all(at("files/deep")).expect("made");
        fs::write(at("files/pid"), "1").expect("written");
        let mut found = CachedServiceEntries::read_folder(run.path());
        assert!(found.holds(run.path()) && found.serving.is_empty());
        assert!(!found.is_settled(), "just created");
        assert!(!found.holds(&at("files")));
        let _listening = UnixListener::bind(at("files/deep/s"));
        assert!(!found.check());
        assert!(!found.holds(run.path()));
        found.checked = Some(Instant::now());
        assert!(found.holds(run.path()), "checked a moment ago");
        assert_eq!(CachedServiceEntries::read_folder(run.path()).serving, [at("files")]);
    }
}
