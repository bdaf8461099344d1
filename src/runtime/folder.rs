//! Layout of the state folder, and access to its files.
//!
//! ```text
//! <state>/epoch                      the highest epoch that opened it: a shim of a lower one does not start
//! <state>/parked-<n>.sock            socket on which parked shims announce changes to a thread of the control plane
//! <state>/pods.root/                 empty: mount point of containers' private views, each in its own mount namespace
//! <state>/pods/<uid>/                0700; also the shim's lock (flock for as long as it lives) and its working folder
//!                    record.json     start and exit of every container, by write and rename
//!                    shim.sock       the shim's socket
//!                    <container>/<attempt>.log       CRI log; older parts `.1` to `.4`
//!                    <container>/<attempt>.message   the termination message, as the container wrote it
//!                    <container>/scratch             working folder of a container without workingDir
//! ```
//!
//! `builds/` is described in [`build`](super::build).
//!
//! Paths of sockets have at most 108 bytes, so sockets are named relative to an open folder.

use super::process::{self, ProcessIdentity};
use super::wire::{ContainerRecord, PodName, RecordedState, ShimRecord};
use anyhow::{Context, Result, bail};
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, RenameFlags, flock, openat, renameat_with};
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect, sendto, socket_with,
};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Folder in the state folder in which containers build their view of files.
pub const ROOT: &str = "pods.root";
/// The record's name in a pod's folder.
pub const RECORD: &str = "record.json";
/// The socket's name in a pod's folder; with a dot, which no container's name has.
pub const SOCKET: &str = "shim.sock";
/// The variable with the path of a container's termination message. It also marks every process of the container.
pub const TERMINATION_LOG: &str = "KLOOP_TERMINATION_LOG";

/// The variable that marks everything that a probe or a hook starts.
pub const EXEC: &str = "KLOOP_EXEC";

/// Opens a file to lock, and makes it if it is missing. Never goes through a link.
pub fn open_lock_file(path: &Path) -> io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(OFlags::NOFOLLOW.bits() as i32).open(path)
}

/// Creates the state folder. The database's folder may be readable for other users; folders below it are private.
pub fn prepare(state: &Path) -> Result<PathBuf> {
    match fs::DirBuilder::new().mode(0o700).create(state) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(error).with_context(|| format!("cannot make the folder {}", state.display()));
        }
        _ => {}
    }
    let found = look_at(state)?;
    if found.mode() & 0o022 != 0 {
        bail!("others may write in {0}, where kloop keeps its state: run `chmod go-w {0}`", state.display());
    }
    let state = fs::canonicalize(state).with_context(|| format!("cannot find {}", state.display()))?;
    private_folder(&state.join("pods"))?;
    Ok(state)
}

/// Makes a folder of mode 0700 unless it is there; refuses links and folders of others.
pub fn private_folder(path: &Path) -> Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error).with_context(|| format!("cannot make the folder {}", path.display())),
    }
    let found = look_at(path)?;
    if found.mode() & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))
            .with_context(|| format!("cannot close {} to others", path.display()))?;
    }
    Ok(())
}

/// A folder of our own, not a link to one.
fn look_at(path: &Path) -> Result<fs::Metadata> {
    let found = fs::symlink_metadata(path).with_context(|| format!("cannot stat {}", path.display()))?;
    if !found.is_dir() {
        bail!("{} is not a folder: move it away, kloop keeps its state there", path.display());
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        bail!("{} belongs to another user: kloop keeps its state only in folders of your own", path.display());
    }
    Ok(found)
}

/// Whether a uid or a container's name can be a file name: nothing that leads elsewhere.
pub fn is_plain_name(name: &str) -> bool {
    let fits = !name.is_empty() && name.len() <= 253 && !name.starts_with('.');
    fits && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// A pod's folder.
pub fn pod_path(state: &Path, uid: &str) -> PathBuf {
    state.join("pods").join(uid)
}

/// An attempt's log, relative to the pod's folder.
pub fn log_path(container: &str, attempt: u32) -> PathBuf {
    PathBuf::from(format!("{container}/{attempt}.log"))
}

/// Number of files of an attempt's log that are kept, including the current one.
pub const LOG_FILES: u32 = 5;

/// An older file of a log: `0.log` becomes `0.log.1`, that `0.log.2`, and so on.
pub fn rotated_log_path(log: &Path, age: u32) -> PathBuf {
    if age == 0 { log.to_owned() } else { log.with_added_extension(age.to_string()) }
}

/// A file that exists while an attempt's log has only the output of the build of its image; relative to the pod's folder.
pub fn built_mark_path(container: &str, attempt: u32) -> PathBuf {
    PathBuf::from(format!("{container}/{attempt}.built"))
}

/// The newest attempt of each container that has a log of its own in a pod's folder.
pub fn newest_attempts(pod: &Path) -> Vec<(String, u32)> {
    let folders = fs::read_dir(pod).into_iter().flatten().flatten();
    let newest = folders.filter_map(|folder| {
        let files = fs::read_dir(folder.path()).ok()?.flatten();
        let attempt = |name: &str| name.strip_suffix(".log")?.parse().ok();
        let newest = files.filter_map(|file| attempt(file.file_name().to_str()?)).max()?;
        let name = folder.file_name().into_string().ok()?;
        (!pod.join(built_mark_path(&name, newest)).exists()).then_some((name, newest))
    });
    newest.collect()
}

/// An attempt's termination message, relative to the pod's folder.
pub fn message_path(container: &str, attempt: u32) -> PathBuf {
    PathBuf::from(format!("{container}/{attempt}.message"))
}

/// Takes the lock of a pod's folder, which its shim holds until it ends. `None` while another process holds it.
pub fn lock(pod: &Path) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = openat(CWD, pod, flags, Mode::empty())?;
    match flock(&fd, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(fd)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Removes a file; a missing file is not an error.
pub fn remove_if_exists(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns the path of a file in an open folder: a path below 108 bytes, the kernel's limit for names of sockets.
pub fn short_path(folder: &impl AsRawFd, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()))
}

/// Connects to a pod's shim without waiting.
pub fn dial(pod: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(CWD, pod, flags, Mode::empty())?;
    let address = SocketAddrUnix::new(short_path(&folder, SOCKET))?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &address)?;
    Ok(socket)
}

/// Returns the name of the socket on which parked shims reach a thread of the control plane.
pub fn announcement_socket(thread: usize) -> String {
    format!("parked-{thread}.sock")
}

/// Binds the socket with this name in the state folder, in place of an earlier control plane's.
pub fn bind_announcements(state: &Path, name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(CWD, state, flags, Mode::empty())?;
    let address = SocketAddrUnix::new(short_path(&folder, name))?;
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    // The socket's file gets the mode of the socket at bind, so that it is never open to others.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    remove_if_exists(&state.join(name))?;
    bind(&socket, &address)?;
    Ok(socket)
}

/// Sends a pod's uid to the socket with this name. The working folder must be a pod's. Never waits.
pub fn announce(name: &str, uid: &OsStr) -> io::Result<()> {
    let address = SocketAddrUnix::new(format!("../../{name}"))?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    sendto(&socket, uid.as_bytes(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL, &address)?;
    Ok(())
}

/// The record in a pod's folder; `None` when it is missing or cannot be read. Of another version's record, reads the fields that it can.
pub fn read_record(pod: &Path) -> Option<ShimRecord> {
    let text = fs::read(pod.join(RECORD)).ok()?;
    serde_json::from_slice(&text).ok().or_else(|| ShimRecord::salvage(&text))
}

/// The records of this boot in the folders of all pods.
pub fn read_records(state: &Path) -> impl Iterator<Item = ShimRecord> {
    let boot = process::boot_id();
    let pods = fs::read_dir(state.join("pods")).into_iter().flatten().flatten();
    pods.filter_map(|folder| read_record(&folder.path())).filter(move |record| record.boot == boot)
}

/// The main process of a pod's container, as its shim has recorded it; none when none runs on this machine.
pub fn main_process(state: &Path, uid: &str, container: &str) -> Option<ProcessIdentity> {
    let record = read_record(&pod_path(state, uid)).filter(|record| record.boot == process::boot_id())?;
    record.containers.get(container)?.process().filter(|process| process.lives())
}

/// Returns the process that holds a pod's folder, by its record or the kernel's list of locks.
pub fn holder(pod: &Path) -> Option<ProcessIdentity> {
    let recorded = read_record(pod).filter(|record| record.boot == process::boot_id()).and_then(|record| record.shim);
    recorded.filter(|shim| shim.lives()).or_else(|| lock_holder(pod))
}

/// Returns the pod and container of a process, among the pods of the cluster with this folder. The container is `None`
/// for a process that `exec` started.
pub fn owner(state: &Path, pid: u32) -> Option<(PodName, Option<String>)> {
    let pid = i32::try_from(pid).ok()?;
    let above = |pid: &i32| process::stat(*pid).map(|stat| stat.parent).filter(|parent| *parent > 1);
    let line: Vec<i32> = std::iter::successors(Some(pid), above).collect();
    let mut records = read_records(state);
    let is_below = |record: &ShimRecord| record.shim.is_some_and(|shim| shim.lives() && line.contains(&shim.pid));
    let record = records.find(is_below)?;
    let is_its = |container: &ContainerRecord| match &container.state {
        RecordedState::Running { process, .. } => line.contains(&process.pid),
        _ => false,
    };
    let container = record.containers.iter().find(|(_, container)| is_its(container)).map(|(name, _)| name.clone());
    Some((record.pod, container))
}

/// A number of an inode alone may stand for files on several disks: the holder must also work in the folder, as shims do.
fn lock_holder(pod: &Path) -> Option<ProcessIdentity> {
    let folder = fs::metadata(pod).ok()?;
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let pids = locks.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, "FLOCK", _, _, pid, place, ..] = fields[..] else { return None };
        (place.rsplit(':').next()?.parse() == Ok(folder.ino())).then(|| pid.parse::<i32>().ok())?
    });
    let works_here = |pid: &i32| {
        fs::metadata(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| (cwd.dev(), cwd.ino()) == (folder.dev(), folder.ino()))
    };
    pids.filter(works_here).find_map(ProcessIdentity::from_pid)
}

/// Puts a record in place of the one before, whole or not at all.
///
/// The two change places and the old one is deleted: where one file is renamed over another, file systems write it out there and then,
/// so that it is whole after a power cut, and that takes milliseconds on a busy disk.
pub fn write_record(pod: &Path, record: &ShimRecord) -> io::Result<()> {
    let (path, content) = (pod.join(RECORD), serde_json::to_vec(record)?);
    let fresh = write_new_file(&path, &content)?;
    match renameat_with(CWD, &fresh, CWD, &path, RenameFlags::EXCHANGE) {
        Ok(()) => fs::remove_file(fresh),
        // There is none yet, or the file system knows no such thing.
        Err(_) => fs::rename(&fresh, &path),
    }
}

/// The highest epoch that has opened the state folder.
pub fn read_epoch(state: &Path) -> u64 {
    // Fits the longest number. Shims read this at each request, so with as few system calls as possible.
    let mut text = [0; 20];
    let read = fs::File::open(state.join("epoch")).and_then(|mut file| file.read(&mut text)).unwrap_or(0);
    std::str::from_utf8(&text[..read]).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// The highest epoch that has opened the state folder of this pod's folder.
pub fn read_epoch_above(pod: &Path) -> u64 {
    read_epoch(&pod.join("../.."))
}

/// Records the epoch, before any shim is asked anything.
pub fn write_epoch(state: &Path, epoch: u64) -> io::Result<()> {
    let (path, text) = (state.join("epoch"), epoch.to_string());
    match replace(&path, text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::StorageFull => overwrite(&path, text.as_bytes()),
        done => done,
    }
}

/// Overwrites the beginning of a small file in place, which works on a full disk. Never creates a file or follows a link.
fn overwrite(path: &Path, content: &[u8]) -> io::Result<()> {
    let flags = (OFlags::NOFOLLOW | OFlags::CLOEXEC).bits() as i32;
    fs::OpenOptions::new().write(true).custom_flags(flags).open(path)?.write_all(content)
}

/// Creates an empty file with this mode, regardless of the umask, or empties an existing one. Never follows a link.
pub fn make_file(path: &Path, mode: u32) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(CWD, path, flags, Mode::from_raw_mode(mode))?;
    Ok(rustix::fs::fchmod(file, Mode::from_raw_mode(mode))?)
}

/// Replaces the content of a file atomically. Does not sync: the writes of a killed process survive, and after a power loss the files of
/// the earlier boot are not used.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    fs::rename(write_new_file(path, content)?, path)
}

/// Replaces the content of a file atomically, and returns when it is on the disk.
pub fn replace_durably(path: &Path, content: &[u8]) -> io::Result<()> {
    let fresh = write_new_file(path, content)?;
    fs::File::open(&fresh)?.sync_all()?;
    fs::rename(fresh, path)
}

/// Writes the new content of a file to a second file in the same folder, which no other user can read.
fn write_new_file(path: &Path, content: &[u8]) -> io::Result<PathBuf> {
    let fresh = path.with_added_extension("new");
    let flags = (OFlags::NOFOLLOW | OFlags::CLOEXEC).bits() as i32;
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).custom_flags(flags).open(&fresh)?;
    file.write_all(content)?;
    Ok(fresh)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_not_plain() {
        for name in ["", ".", "..", "a/b", "../x", ".hidden", "a b", "a\0b", "ü"] {
            assert!(!is_plain_name(name), "{name:?}");
        }
        for name in ["web-1", "6f1c-2b", "A_b.c"] {
            assert!(is_plain_name(name), "{name:?}");
        }
    }

    #[test]
    fn epoch_is_overwritten_in_place() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(overwrite(&folder.path().join("epoch"), b"9").is_err(), "there is no file");
        for epoch in [9, 10, 123] {
            write_epoch(folder.path(), epoch).expect("written");
            overwrite(&folder.path().join("epoch"), (epoch + 1).to_string().as_bytes()).expect("written");
            assert_eq!(read_epoch(folder.path()), epoch + 1);
        }
    }

    #[test]
    fn record_is_read_back_and_a_garbled_one_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let record = ShimRecord { boot: "b".into(), epoch: 7, ..ShimRecord::default() };
        write_record(folder.path(), &record).expect("written");
        assert_eq!(read_record(folder.path()), Some(record));
        fs::write(folder.path().join(RECORD), "{\"boot\":").expect("written");
        assert_eq!(read_record(folder.path()), None);
    }

    #[test]
    fn pods_are_closed_to_others_and_the_state_folder_is_never_a_link() {
        let base = tempfile::tempdir().expect("a folder");
        let open = base.path().join("open");
        fs::create_dir_all(open.join("pods")).expect("made");
        let set = |mode| fs::set_permissions(&open, fs::Permissions::from_mode(mode)).expect("set");
        set(0o777);
        assert!(prepare(&open).is_err(), "others may write in it");
        set(0o755);
        let state = prepare(&open).expect("taken over");
        assert_eq!(fs::metadata(state.join("pods")).expect("there").mode() & 0o777, 0o700);
        let link = base.path().join("link");
        std::os::unix::fs::symlink(&open, &link).expect("linked");
        assert!(prepare(&link).is_err());
    }

    #[test]
    fn announcement_socket_is_private_and_replaces_an_earlier_one() {
        let base = tempfile::tempdir().expect("a folder");
        // Longer than a socket's path may be.
        let state = base.path().join("x".repeat(120));
        fs::create_dir(&state).expect("made");
        let name = announcement_socket(0);
        let earlier = bind_announcements(&state, &name).expect("bound");
        let _later = bind_announcements(&state, &name).expect("bound again");
        assert_eq!(fs::metadata(state.join(&name)).expect("there").mode() & 0o777, 0o600);
        drop(earlier);
        assert!(state.join(name).exists());
    }

    #[test]
    fn only_one_holds_the_lock() {
        let base = tempfile::tempdir().expect("a folder");
        let held = lock(base.path()).expect("possible");
        assert!(held.is_some());
        assert!(lock(base.path()).expect("possible").is_none());
        drop(held);
        assert!(lock(base.path()).expect("possible").is_some());
    }
}
