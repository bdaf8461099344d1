//! Errors of the state file, with remedies for users.

use crate::object::{Key, io_error_text};
use rusqlite::ErrorCode;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Error of opening a file, which stays unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// There is no file, and [`OpenMode`](super::OpenMode) does not allow creating it.
    Absent {
        /// The path.
        path: PathBuf,
    },
    /// A newer kloop wrote the file.
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema version.
        found: u32,
        /// The latest schema version of this program.
        known: u32,
    },
    /// The file is not a kloop database.
    Foreign {
        /// The file.
        path: PathBuf,
        /// Description of the actual content.
        what: String,
    },
    /// The file is a kloop database, but damaged.
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
    /// This program is linked with an SQLite version that can corrupt a database with several writers.
    OldSqlite {
        /// The version found.
        found: String,
    },
    /// The state is not an etcd address.
    Address {
        /// The problem and its remedy.
        what: String,
    },
    /// The file could not be accessed or created.
    Store(StoreError),
}

impl OpenError {
    /// The exit code of a command that fails with this error, as in BSD's `sysexits` where possible:
    /// newer 65, absent 66, foreign 67, damaged 68, old SQLite 69, busy 75, disk full 73, input or output 74, unsafe 77,
    /// internal error 70.
    pub fn exit_code(&self) -> u8 {
        match self {
            OpenError::Newer { .. } => 65,
            OpenError::Address { .. } => 1,
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
                write!(f, "there is no cluster at {}: kloop up or kloop apply makes one", path.display())
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
            OpenError::Address { what } => f.write_str(what),
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

/// Error of a query or a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// Another writer did not finish in time.
    Busy {
        /// The process that holds the write lock, when it is known.
        holder_pid: Option<u32>,
        /// Time spent waiting.
        waited: Duration,
    },
    /// The log no longer contains the requested revision (410 Gone).
    Expired {
        /// The oldest revision that can be resumed from.
        floor: u64,
    },
    /// The requested revision does not exist yet.
    Future {
        /// The requested revision.
        revision: u64,
        /// The latest revision.
        head: u64,
    },
    /// There is no object to remove under this key.
    Absent {
        /// The key.
        key: Key,
    },
    /// The disk or a quota is full.
    Full {
        /// The file.
        path: PathBuf,
    },
    /// The operating system failed to read or write.
    Io {
        /// The file.
        path: PathBuf,
        /// SQLite's message.
        what: String,
    },
    /// The file is corrupt.
    Damaged {
        /// The file.
        path: PathBuf,
        /// The damage found.
        what: String,
    },
    /// A newer kloop migrated the file while it was open here.
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema version.
        found: u32,
        /// The latest schema version of this program.
        known: u32,
    },
    /// An earlier commit on this connection has an unknown outcome; the store must be reopened.
    Uncertain {
        /// The file.
        path: PathBuf,
    },
    /// The log of a replica cannot be reached, or has no quorum.
    Unreachable {
        /// The address of the log.
        address: String,
        /// The problem.
        what: String,
    },
    /// The log of a replica refuses the user, a change, or this copy.
    Denied {
        /// The address of the log.
        address: String,
        /// The problem and its remedy.
        what: String,
    },
    /// Another machine wrote to the log of a replica at the same time.
    Overtaken,
    /// The caller requested an invalid write.
    Bug {
        /// The problem.
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
            StoreError::Busy { .. } | StoreError::Unreachable { .. } | StoreError::Overtaken => 75,
            StoreError::Denied { .. } => 77,
            StoreError::Expired { .. } | StoreError::Future { .. } | StoreError::Absent { .. } => 1,
        }
    }

    /// The process that causes a [`StoreError::Busy`], with its command; `None` for other errors.
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

    pub(super) fn read_only_folder(path: &Path, folder: &Path) -> StoreError {
        let what = format!("its folder {} is read-only: the cluster can be read, but not changed", folder.display());
        StoreError::Io { path: path.into(), what }
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
                    let what =
                        "the file or its folder is read-only, and SQLite needs write access even for reading".into();
                    StoreError::Io { path: path.into(), what }
                }
                ErrorCode::SystemIoFailure | ErrorCode::CannotOpen if no_space(path) => {
                    StoreError::Full { path: path.into() }
                }
                ErrorCode::SystemIoFailure if is_without_wal(path) => StoreError::Io {
                    path: path.into(),
                    what: format!(
                        "its -wal file was removed while another process uses it ({error}); after that process (kloop reconcile) has \
                        ended, the file can be used again without the contents of its -wal file"
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
                     try again, or check that process",
                    name_holder(*holder_pid),
                    waited.as_millis()
                )
            }
            StoreError::Expired { floor } => {
                write!(f, "the requested resource version is no longer available (the oldest is {floor})")
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
                "the outcome of a write to {} is unknown: check it with `kloop get`, then try again",
                path.display()
            ),
            StoreError::Unreachable { address, what } => {
                write!(
                    f,
                    "cannot reach the state at {address} ({what}); nothing was changed: check etcd, and try again"
                )
            }
            StoreError::Denied { address, what } => write!(f, "cannot use the state at {address}: {what}"),
            StoreError::Overtaken => {
                f.write_str("another machine changed the cluster at the same time; nothing was changed: try again")
            }
            StoreError::Bug { what } => write!(f, "internal error, nothing was written: {what}"),
        }
    }
}

impl std::error::Error for StoreError {}

/// Names a process like `process 1234 (sqlite3 state.db)`, as far as known.
pub fn name_holder(pid: Option<u32>) -> String {
    match pid.map(|pid| (pid, super::holder::command(pid))) {
        Some((pid, Some(command))) => format!("process {pid} ({command})"),
        Some((pid, None)) => format!("process {pid}"),
        None => "another program".into(),
    }
}

/// Whether a process uses the file (its -shm file exists), but its -wal file was removed; SQLite has created an empty
/// one.
fn is_without_wal(path: &Path) -> bool {
    let length = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        std::fs::metadata(name).map_or(0, |file| file.len())
    };
    length("-shm") > 0 && length("-wal") == 0
}

/// Error of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitError {
    /// The transaction was refused, and nothing was written.
    Refused(StoreError),
    /// The outcome is unknown until [`Store::reopen`](super::Store::reopen).
    Unknown {
        /// The file.
        path: PathBuf,
        /// SQLite's message.
        what: String,
    },
}

/// The error of a commit before which another machine wrote to the shared log.
pub const OVERTAKEN: CommitError = CommitError::Refused(StoreError::Overtaken);

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

/// Whether the file's disk is full. SQLite reports only "I/O error" when it has no space for its shared memory.
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
