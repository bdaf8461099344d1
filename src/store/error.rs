//! Errors of the file, worded so that a user can act on them.

use crate::object::{Key, io_error_text};
use rusqlite::ErrorCode;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why a file was not opened. Nothing in it was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// There is no file, and none was to be made.
    Absent {
        /// The path that was tried.
        path: PathBuf,
    },
    /// A later kloop wrote it.
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema version.
        found: u32,
        /// The latest schema version that this program knows.
        known: u32,
    },
    /// It is something else than a kloop database.
    Foreign {
        /// The file.
        path: PathBuf,
        /// Description of the actual content.
        what: String,
    },
    /// It is ours but cannot be read.
    Damaged {
        /// The file.
        path: PathBuf,
        /// SQLite's message.
        what: String,
    },
    /// Another user could change the file or its folder.
    Unsafe {
        /// The file or folder.
        path: PathBuf,
        /// The problem and its remedy.
        what: String,
    },
    /// This program was linked with an SQLite that can corrupt a database with several writers.
    OldSqlite {
        /// The version found.
        found: String,
    },
    /// The file could not be reached or made.
    Store(StoreError),
}

impl OpenError {
    /// The exit code of a command that fails with this error, after BSD's `sysexits` where it has one:
    /// newer 65, absent 66, foreign 67, damaged 68, old SQLite 69, busy 75, disk full 73, input or output 74, unsafe 77,
    /// our own mistake 70.
    pub fn exit_code(&self) -> u8 {
        match self {
            OpenError::Newer { .. } => 65,
            OpenError::Absent { .. } => 66,
            OpenError::Foreign { .. } => 67,
            OpenError::Damaged { .. } => 68,
            OpenError::OldSqlite { .. } => 69,
            OpenError::Unsafe { .. } => 77,
            OpenError::Store(error) => error.exit_code(),
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Absent { path } => {
                write!(f, "there is no cluster at {}: the first `kloop apply` makes one", path.display())
            }
            OpenError::Newer { path, found, known } => write!(
                f,
                "{} was written by a newer kloop (its schema is {found}, this kloop knows up to {known}): \
                 use the newer kloop, or choose another file with KLOOP_STATE",
                path.display()
            ),
            OpenError::Foreign { path, what } => write!(
                f,
                "{} is not a kloop database ({what}); it was left as it is: choose another file with KLOOP_STATE",
                path.display()
            ),
            OpenError::Damaged { path, what } => damaged(f, path, what),
            OpenError::Unsafe { path, what } => write!(f, "refusing to use {}: {what}", path.display()),
            OpenError::OldSqlite { found } => write!(
                f,
                "this kloop was linked with SQLite {found}, which can corrupt a database that several processes \
                 write: build it with SQLite 3.51.3 or later"
            ),
            OpenError::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<StoreError> for OpenError {
    fn from(error: StoreError) -> OpenError {
        match error {
            StoreError::Damaged { path, what } => OpenError::Damaged { path, what },
            StoreError::Newer { path, found, known } => OpenError::Newer { path, found, known },
            other => OpenError::Store(other),
        }
    }
}

/// Why a question or a change failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// Another writer did not finish in time.
    Busy {
        /// The process that holds the write lock, when it is known.
        holder_pid: Option<u32>,
        /// Time spent waiting.
        waited: Duration,
    },
    /// The log no longer reaches back to the revision asked for (410 Gone).
    Expired {
        /// The oldest revision that can be resumed from.
        floor: u64,
    },
    /// The revision asked for has not happened yet.
    Future {
        /// The requested revision.
        revision: u64,
        /// The latest revision.
        head: u64,
    },
    /// Nothing to remove under this key.
    Absent {
        /// The key.
        key: Key,
    },
    /// The disk or a quota is full.
    Full {
        /// The file.
        path: PathBuf,
    },
    /// The operating system refused to read or write.
    Io {
        /// The file.
        path: PathBuf,
        /// SQLite's message.
        what: String,
    },
    /// The file's content is not what was written.
    Damaged {
        /// The file.
        path: PathBuf,
        /// The damage found.
        what: String,
    },
    /// A later kloop has migrated the file while it was open here.
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema version.
        found: u32,
        /// The latest schema version that this program knows.
        known: u32,
    },
    /// An earlier commit on this connection has an unknown outcome; the store must be opened again.
    Uncertain {
        /// The file.
        path: PathBuf,
    },
    /// The caller asked for something that must never be written.
    Bug {
        /// The earlier error.
        what: String,
    },
}

impl StoreError {
    /// The exit code of a command that fails with this error; see [`OpenError::exit_code`].
    pub fn exit_code(&self) -> u8 {
        match self {
            StoreError::Newer { .. } => 65,
            StoreError::Damaged { .. } => 68,
            StoreError::Bug { .. } => 70,
            StoreError::Full { .. } => 73,
            StoreError::Io { .. } | StoreError::Uncertain { .. } => 74,
            StoreError::Busy { .. } => 75,
            StoreError::Expired { .. } | StoreError::Future { .. } | StoreError::Absent { .. } => 1,
        }
    }

    /// Names the process that keeps a [`StoreError::Busy`] waiting, with its command; none for other errors.
    pub fn holder(&self) -> Option<String> {
        match self {
            StoreError::Busy { holder_pid, .. } => Some(name_holder(*holder_pid)),
            _ => None,
        }
    }

    pub(super) fn io(path: &Path, error: impl Into<std::io::Error>) -> StoreError {
        let error = error.into();
        match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => StoreError::Full { path: path.into() },
            _ => StoreError::Io { path: path.into(), what: io_error_text(error) },
        }
    }

    pub(super) fn damaged(path: &Path, what: impl Into<String>) -> StoreError {
        StoreError::Damaged { path: path.into(), what: what.into() }
    }

    pub(super) fn from_sqlite(path: &Path, error: rusqlite::Error) -> StoreError {
        use rusqlite::Error::*;
        match &error {
            SqliteFailure(failure, _) => match failure.code {
                ErrorCode::DiskFull => StoreError::Full { path: path.into() },
                ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => StoreError::damaged(path, error.to_string()),
                ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
                    StoreError::Busy { holder_pid: None, waited: Duration::ZERO }
                }
                ErrorCode::ReadOnly => {
                    let what = "it or its folder can only be read, and even looking needs to write there".into();
                    StoreError::Io { path: path.into(), what }
                }
                ErrorCode::SystemIoFailure | ErrorCode::CannotOpen if no_space(path) => {
                    StoreError::Full { path: path.into() }
                }
                ErrorCode::SystemIoFailure if is_without_wal(path) => StoreError::Io {
                    path: path.into(),
                    what: format!(
                        "its -wal file was removed while another process uses it ({error}); when that process (kloop reconcile) has \
                         ended, what was copied into the file before can be used again"
                    ),
                },
                ErrorCode::SystemIoFailure
                | ErrorCode::CannotOpen
                | ErrorCode::PermissionDenied
                | ErrorCode::OutOfMemory
                | ErrorCode::FileLockingProtocolFailed
                | ErrorCode::NoLargeFileSupport => StoreError::Io { path: path.into(), what: error.to_string() },
                _ => StoreError::Bug { what: error.to_string() },
            },
            FromSqlConversionFailure(..) | InvalidColumnType(..) | IntegralValueOutOfRange(..) | Utf8Error(..) => {
                StoreError::damaged(path, error.to_string())
            }
            _ => StoreError::Bug { what: error.to_string() },
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Busy { holder_pid, waited } => {
                write!(
                    f,
                    "{} has been writing to the cluster's file for longer than {} ms; nothing was changed: \
                     try again, or look what it is doing",
                    name_holder(*holder_pid),
                    waited.as_millis()
                )
            }
            StoreError::Expired { floor } => {
                write!(f, "the requested resource version is no longer kept (the oldest is {floor})")
            }
            StoreError::Future { revision, head } => {
                write!(f, "Too large resource version: {revision}, current: {head}")
            }
            StoreError::Absent { key } => write!(f, "there is no {key} to remove"),
            StoreError::Full { path } => write!(
                f,
                "no space left on the disk of {}; nothing was changed: free some space and try again",
                path.display()
            ),
            StoreError::Io { path, what } => write!(f, "cannot use {}: {what}", path.display()),
            StoreError::Damaged { path, what } => damaged(f, path, what),
            StoreError::Newer { path, found, known } => {
                OpenError::Newer { path: path.clone(), found: *found, known: *known }.fmt(f)
            }
            StoreError::Uncertain { path } => write!(
                f,
                "a write to {} failed half-way and may or may not have happened: look with `kloop get`, then try again",
                path.display()
            ),
            StoreError::Bug { what } => write!(f, "kloop made a mistake, nothing was written: {what}"),
        }
    }
}

impl std::error::Error for StoreError {}

/// `process 1234 (sqlite3 state.db)`, as far as it is known.
pub fn name_holder(pid: Option<u32>) -> String {
    match pid.map(|pid| (pid, super::holder::command(pid))) {
        Some((pid, Some(command))) => format!("process {pid} ({command})"),
        Some((pid, None)) => format!("process {pid}"),
        None => "another program".into(),
    }
}

/// Whether somebody uses the file (its -shm file is there) and its -wal file is gone; SQLite then has made an empty one.
fn is_without_wal(path: &Path) -> bool {
    let length = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        std::fs::metadata(name).map_or(0, |file| file.len())
    };
    length("-shm") > 0 && length("-wal") == 0
}

/// Why a commit was not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitError {
    /// Certainly nothing was written.
    Refused(StoreError),
    /// The transaction may or may not be there: [`Store::reopen`](super::Store::reopen) and look.
    Unknown {
        /// The file.
        path: PathBuf,
        /// SQLite's message.
        what: String,
    },
}

impl fmt::Display for CommitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommitError::Refused(error) => error.fmt(f),
            CommitError::Unknown { path, what } => {
                let error = StoreError::Uncertain { path: path.clone() };
                write!(f, "{error} ({what})")
            }
        }
    }
}

impl std::error::Error for CommitError {}

impl From<CommitError> for StoreError {
    fn from(error: CommitError) -> StoreError {
        match error {
            CommitError::Refused(error) => error,
            CommitError::Unknown { path, .. } => StoreError::Uncertain { path },
        }
    }
}

/// Whether the file's disk is full. SQLite says only "I/O error" when it finds no space for its shared memory.
fn no_space(path: &Path) -> bool {
    let dir = path.parent().unwrap_or(path);
    rustix::fs::statvfs(dir).is_ok_and(|disk| disk.f_bavail == 0 || (disk.f_files > 0 && disk.f_favail == 0))
}

fn damaged(f: &mut fmt::Formatter<'_>, path: &Path, what: &str) -> fmt::Result {
    write!(
        f,
        "{} is damaged ({what}); it was not repaired or replaced: put a backup in its place \
         (without the -wal and -shm files beside it), or move all of them away to start an empty cluster",
        path.display()
    )
}
