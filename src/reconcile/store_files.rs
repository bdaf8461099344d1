//! Identity of the files of a store: shows a control plane or a server that its state file was removed or replaced.
//!
//! Never: opens a file. Start reading at [`StoreFiles::identify`].

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The files of a store, by device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreFiles {
    /// The state file.
    pub state: Option<(u64, u64)>,
    /// The write-ahead log: it stays the same file as long as any process has the store open.
    pub wal: Option<(u64, u64)>,
}

impl StoreFiles {
    /// Identifies the files of the store at a path.
    pub fn identify(state: &Path) -> StoreFiles {
        StoreFiles { state: identity(state), wal: identity(&wal_path(state)) }
    }
}

/// The path of the write-ahead log of a state file.
pub fn wal_path(state: &Path) -> PathBuf {
    let mut name = state.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

/// Identity of the file at a path: its device and inode.
pub fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}
