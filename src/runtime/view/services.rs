//! Sockets of the machine's services: a layer hides who listens there, so their folders are seen as they are.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// How deep below a folder sockets are looked for.
const DEPTH: usize = 2;

/// The entries of a folder that are sockets or pipes, hold one, or are empty folders, which wait for a service to begin.
pub fn of(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let serves = |entry: &fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => holds(&entry.path(), DEPTH).unwrap_or(true),
        Ok(kind) => kind.is_socket() || kind.is_fifo(),
        Err(_) => false,
    };
    entries.filter(serves).map(|entry| entry.path()).collect()
}

/// Whether a folder has a socket or a pipe in it; unknown when it is empty.
fn holds(folder: &Path, depth: usize) -> Option<bool> {
    let mut entries = fs::read_dir(folder).ok()?.flatten().peekable();
    entries.peek()?;
    Some(entries.any(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => depth > 0 && holds(&entry.path(), depth - 1) == Some(true),
        Ok(kind) => kind.is_socket() || kind.is_fifo(),
        Err(_) => false,
    }))
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
        let mut found: Vec<_> = of(run.path()).into_iter().map(|path| path.file_name().unwrap().to_owned()).collect();
        found.sort();
        assert_eq!(found, ["bus", "db", "idle", "top.sock"]);
    }
}
