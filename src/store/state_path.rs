//! Path of the file, checks of its safety (owner, modes, links), and the paths of files beside it.

use super::{OpenError, StoreError, schema};
use rustix::fs::{
    Access, AtFlags, CWD, FileType, Mode, OFlags, RawMode, Stat, access, chmod, fchmod, lstat, mkdirat, open, stat,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Default state file: `$XDG_STATE_HOME/kloop/default/state.db`, else under `~/.local/state`. Relative paths are
/// ignored, as the XDG specification requires.
pub fn default_path() -> PathBuf {
    state_folder().join("default/state.db")
}

/// The path of the replica of a state on etcd. `name` is derived from its address.
pub(super) fn replica_path(name: &str) -> PathBuf {
    state_folder().join("etcd").join(name).join(USUAL)
}

fn state_folder() -> PathBuf {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME")
        .or_else(|| std::env::home_dir().filter(|home| home.is_absolute()).map(|home| home.join(".local/state")))
        .unwrap_or_else(|| std::env::temp_dir().join(format!("kloop-{}", geteuid().as_raw())));
    state.join("kloop")
}

/// The name of a database whose folder belongs to one cluster.
const USUAL: &str = "state.db";

/// The paths of a database file and of files beside it.
#[derive(Clone)]
pub(super) struct StorePath {
    file: PathBuf,
    home: PathBuf,
}

impl StorePath {
    /// Makes a path absolute, so that SQLite treats `:memory:` or `file:x` as an ordinary name.
    pub fn from_path(path: &Path) -> Result<StorePath, OpenError> {
        let file = std::path::absolute(path).map_err(|error| StoreError::io(path, error))?;
        let Some(name) = file.file_name() else {
            return Err(OpenError::Foreign { path: file, what: "it is a directory".into() });
        };
        let mut own = name.to_owned();
        own.push(".d");
        let home =
            if name == USUAL { file.parent().unwrap_or(Path::new("/")).to_owned() } else { file.with_file_name(own) };
        Ok(StorePath { file, home })
    }

    /// The path of an in-memory store.
    pub fn in_memory() -> StorePath {
        StorePath { file: PathBuf::from(":memory:"), home: PathBuf::from(":memory:.d") }
    }

    pub fn file(&self) -> &Path {
        &self.file
    }

    pub fn dir(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new("/"))
    }

    /// Folder for the cluster's other files: the folder of a `state.db`, else `NAME.d` beside the file, so that several
    /// databases in one folder are separate clusters.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The path of a file in the database's folder: the database's name with a suffix.
    pub fn neighbour(&self, suffix: &str) -> PathBuf {
        let mut name = OsString::from(&self.file);
        name.push(suffix);
        name.into()
    }

    /// Creates the folder and its parents, each without access for other users regardless of the umask.
    pub fn make_dir(&self) -> Result<(), OpenError> {
        make_dir(self.dir()).map_err(|(path, error)| StoreError::io(&path, error).into())
    }

    /// Refuses a folder in which another user could replace the file.
    pub fn check_dir(&self) -> Result<(), OpenError> {
        let dir = self.dir();
        let found = match stat(dir) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Err(OpenError::Absent { path: self.file.clone() }),
            found => found.map_err(|error| StoreError::io(dir, error))?,
        };
        if FileType::from_raw_mode(found.st_mode as RawMode) != FileType::Directory {
            return Err(OpenError::Foreign { path: dir.into(), what: "it should be a folder".into() });
        }
        check_owner(dir, &found)?;
        if found.st_mode as RawMode & 0o022 != 0 {
            // Folders such as /tmp are for all users.
            let is_shared = found.st_mode as RawMode & 0o1000 != 0;
            let remedy = match is_shared {
                true => "name a file in a folder of your own".to_owned(),
                false => format!("run `chmod go-w {}`", dir.display()),
            };
            let what = format!("other users may write to this folder: {remedy}");
            return Err(OpenError::Unsafe { path: dir.into(), what });
        }
        Ok(())
    }

    /// Whether no file can be created in the database's folder.
    pub fn is_in_read_only_folder(&self) -> bool {
        matches!(access(self.dir(), Access::WRITE_OK), Err(Errno::ROFS | Errno::ACCESS))
    }

    /// Refuses everything except a regular file of this user with one link. Returns whether the file exists.
    pub fn check_file(&self) -> Result<bool, OpenError> {
        let path = self.file();
        let Some(found) = stat_path(path)? else { return Ok(false) };
        let foreign = |what: &str| OpenError::Foreign { path: path.into(), what: what.into() };
        let unsafe_error = |what: &str| OpenError::Unsafe { path: path.into(), what: what.into() };
        match FileType::from_raw_mode(found.st_mode as RawMode) {
            FileType::RegularFile => {}
            FileType::Symlink => {
                return Err(unsafe_error(
                    "it is a symbolic link, and two names of one database corrupt it: \
                                    name the file itself",
                ));
            }
            FileType::Directory => return Err(foreign("it is a directory")),
            FileType::Fifo => return Err(foreign("it is a named pipe")),
            FileType::Socket => return Err(foreign("it is a socket")),
            _ => return Err(foreign("it is a device")),
        }
        check_owner(path, &found)?;
        if found.st_nlink > 1 {
            return Err(unsafe_error(
                "it has a second name (a hard link), and two names of one database corrupt it: \
                                remove the other name",
            ));
        }
        if found.st_size == 0 {
            return Err(foreign("the file is empty"));
        }
        if stat_path(&self.neighbour("-journal"))?.is_some() {
            return Err(foreign("it has a rollback journal, which kloop never writes"));
        }
        // A file of another program keeps its mode; the connection refuses it.
        if found.st_mode as RawMode & 0o077 != 0 && schema::is_database_of_kloop(path)? {
            match chmod(path, Mode::RUSR | Mode::WUSR) {
                // A copy on a medium that cannot be written.
                Ok(()) | Err(Errno::ROFS) => {}
                Err(error) => return Err(StoreError::io(path, error).into()),
            }
        }
        Ok(true)
    }

    /// Opens a file beside the database, for locks or wake-ups, and creates it if missing.
    pub fn open_sibling(&self, suffix: &str) -> Result<File, StoreError> {
        let path = self.neighbour(suffix);
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let opened = match open(&path, flags, mode) {
            Err(Errno::NOENT) => open(&path, flags | OFlags::CREATE, mode).and_then(|file| {
                fchmod(&file, mode)?;
                Ok(file)
            }),
            opened => opened,
        };
        opened.map(File::from).map_err(|error| StoreError::io(&path, error))
    }

    /// Returns the text of a small file beside the database; `None` without one.
    pub fn read_sibling(&self, suffix: &str, longest: u64) -> Result<Option<String>, StoreError> {
        let path = self.neighbour(suffix);
        let file = match open(&path, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            file => File::from(file.map_err(|error| StoreError::io(&path, error))?),
        };
        let mut text = String::new();
        file.take(longest).read_to_string(&mut text).map_err(|error| StoreError::io(&path, error))?;
        Ok(Some(text))
    }

    /// Writes the text of a small file beside the database, unless it is the same already.
    pub fn write_sibling(&self, suffix: &str, text: &str) -> Result<(), StoreError> {
        if self.read_sibling(suffix, text.len() as u64 + 1)?.as_deref() == Some(text) {
            return Ok(());
        }
        let (path, new) = (self.neighbour(suffix), self.neighbour(&format!("{suffix}.{}", std::process::id())));
        let mode = Mode::RUSR | Mode::WUSR;
        let written =
            open(&new, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode)
                .map_err(std::io::Error::from)
                .and_then(|file| File::from(file).write_all(text.as_bytes()))
                .and_then(|()| std::fs::rename(&new, &path));
        written.map_err(|error| StoreError::io(&path, error))
    }

    /// Makes entries of the folder durable.
    pub fn sync_dir(&self) -> Result<(), StoreError> {
        let dir = self.dir();
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(|error| StoreError::io(dir, error))
    }
}

/// Returns the metadata of a path without following a link.
pub(super) fn stat_path(path: &Path) -> Result<Option<Stat>, StoreError> {
    match lstat(path) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(StoreError::io(path, error)),
    }
}

fn check_owner(path: &Path, found: &Stat) -> Result<(), OpenError> {
    let me = geteuid().as_raw();
    if found.st_uid == me {
        return Ok(());
    }
    let what = format!(
        "it belongs to user {}, you are user {me}: run kloop as its owner, or choose another file with KLOOP_STATE",
        found.st_uid
    );
    Err(OpenError::Unsafe { path: path.into(), what })
}

fn make_dir(dir: &Path) -> Result<(), (PathBuf, Errno)> {
    match make_one(dir) {
        Err((_, Errno::NOENT)) => {
            let Some(parent) = dir.parent() else { return Err((dir.into(), Errno::NOENT)) };
            make_dir(parent)?;
            // If the parent exists but accepts no folder, as in /proc, retrying would never end.
            make_one(dir)
        }
        done => done,
    }
}

fn make_one(dir: &Path) -> Result<(), (PathBuf, Errno)> {
    match mkdirat(CWD, dir, Mode::RWXU) {
        Ok(()) => rustix::fs::chmodat(CWD, dir, Mode::RWXU, AtFlags::empty()),
        Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error),
    }
    .map_err(|error| (dir.into(), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_created_where_possible() {
        let dir = tempfile::tempdir().unwrap();
        make_dir(&dir.path().join("a/b/c")).unwrap();
        assert!(dir.path().join("a/b/c").is_dir());
        for path in ["/proc/x", "/proc/x/y/z"] {
            assert!(make_dir(Path::new(path)).is_err(), "{path}");
        }
    }

    #[test]
    fn each_database_has_a_separate_home() {
        let table = [
            ("/x/state.db", "/x"),
            ("/x/a.db", "/x/a.db.d"),
            ("/x/b.db", "/x/b.db.d"),
            ("/state.db", "/"),
            ("/x/:memory:", "/x/:memory:.d"),
        ];
        for (file, home) in table {
            assert_eq!(StorePath::from_path(Path::new(file)).expect("a place").home(), Path::new(home));
        }
        assert!(StorePath::from_path(Path::new("/")).is_err());
    }
}
