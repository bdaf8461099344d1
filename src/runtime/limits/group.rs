//! One group of processes: created, entered, read and removed by the shim of its pod.

use super::super::process::{self, ProcessIdentity};
use super::super::wire::ControlGroup;
use crate::object::io_error_text;
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::Duration;

/// Open descriptors of groups, through which a single-threaded process enters them before it becomes a container.
#[derive(Default)]
pub struct CgroupEntry(Vec<OwnedFd>);

impl CgroupEntry {
    /// Whether there are no groups to enter.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Moves this process into the groups. "0" means the process that writes it.
    pub fn enter(&self) -> Result<(), String> {
        for file in &self.0 {
            rustix::io::write(file, b"0").map_err(|error| {
                format!("cannot enter the container's cgroup: {error}", error = io_error_text(error))
            })?;
        }
        Ok(())
    }
}

/// Creates or updates groups, and opens descriptors for entering them. A pod's quota may not be below that of a container in it, so
/// that a decrease can be refused: groups that could not be set are set again after the others.
pub fn create_groups(groups: &[ControlGroup]) -> Result<CgroupEntry, String> {
    let mut entry = CgroupEntry::default();
    let mut refused = Vec::new();
    for group in groups {
        let folder = Path::new(&group.folder);
        make_folder(folder).map_err(|error| {
            format!("cannot make the cgroup {}: {error}", folder.display(), error = io_error_text(error))
        })?;
        if set(group).is_err() {
            refused.push(group);
        }
        if let Some(file) = &group.procs_file {
            let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let file = openat(CWD, folder.join(file), flags, Mode::empty()).map_err(|error| {
                format!("cannot open the cgroup {}: {error}", folder.display(), error = io_error_text(error))
            })?;
            entry.0.push(file);
        }
    }
    refused.into_iter().try_for_each(set)?;
    Ok(entry)
}

/// Moves a process and its descendants into a group that they are not in yet.
pub fn move_tree(group: &ControlGroup, top: ProcessIdentity) -> Result<(), String> {
    if group.procs_file.is_none() {
        return Ok(());
    }
    let file = Path::new(&group.folder).join("cgroup.procs");
    // Two passes: the second one finds children that a process started before the first pass moved it.
    for _ in 0..2 {
        let below = process::descendants(top.pid).into_iter().map(|stat| stat.identity);
        for one in [top].into_iter().chain(below).filter(|one| one.lives()) {
            match write(&file, &one.pid.to_string()) {
                Err(error) if one.lives() => {
                    return Err(format!(
                        "cannot move a process to {}: {error}",
                        file.display(),
                        error = io_error_text(error)
                    ));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Writes the limits of a group.
pub fn set(group: &ControlGroup) -> Result<(), String> {
    for file in &group.files {
        let path = Path::new(&group.folder).join(&file.name);
        match write(&path, &file.value) {
            Err(error) if !file.optional => {
                return Err(format!(
                    "cannot write {} to {}: {error}",
                    file.value,
                    path.display(),
                    error = io_error_text(error)
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

fn write(path: &Path, value: &str) -> io::Result<()> {
    let file = openat(CWD, path, OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())?;
    rustix::io::write(file, value.as_bytes())?;
    Ok(())
}

/// Maximum attempts: another process may remove the empty parent folder at the same time.
const MAX_ATTEMPTS: usize = 10;

/// Creates the folder of a group. Recreates the cluster's folder too, which is removed when the cluster's last control plane exits without
/// pods.
fn make_folder(folder: &Path) -> io::Result<()> {
    let mut tries = 0;
    loop {
        // Mode 0755: a process that can write in the folder of a group can create groups in it.
        let mut builder = fs::DirBuilder::new();
        builder.mode(0o755);
        let made = match builder.create(folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => builder.recursive(true).create(folder),
            other => return other,
        };
        tries += 1;
        match made {
            Err(error) if error.kind() == io::ErrorKind::NotFound && tries < MAX_ATTEMPTS => {}
            other => return other,
        }
    }
}

/// Number of processes in these groups that the kernel killed for lack of memory.
pub fn oom_kills(groups: &[ControlGroup]) -> u64 {
    let count = |group: &ControlGroup| {
        let text = fs::read_to_string(Path::new(&group.folder).join(group.oom.as_ref()?)).ok()?;
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse::<u64>().ok())
    };
    groups.iter().filter_map(count).sum()
}

/// Whether a process is in the group of this container alone, if that has one.
pub fn holds(groups: &[ControlGroup], container: &str, pid: i32) -> bool {
    let own = groups.iter().find(|group| Path::new(&group.folder).ends_with(folder_of(container)));
    let members =
        |group: &ControlGroup| fs::read_to_string(Path::new(&group.folder).join("cgroup.procs")).unwrap_or_default();
    own.is_some_and(|group| members(group).lines().any(|line| line.parse() == Ok(pid)))
}

/// Returns the name of a container's group within its pod's; the dot distinguishes it from the kernel's files.
pub fn folder_of(container: &str) -> String {
    format!("c.{container}")
}

/// Removes a group without processes.
pub fn remove(group: &ControlGroup) {
    let folder = Path::new(&group.folder);
    let _ = fs::remove_dir(folder);
    remove_empty_cluster(folder);
}

/// Removes the cluster's folder with its last pod, also when no control plane runs. In version 2 the folder stays: its enabled controllers
/// are set up by the control plane only.
fn remove_empty_cluster(pod: &Path) {
    let cluster = pod
        .parent()
        .filter(|parent| parent.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(super::PREFIX)));
    if let Some(cluster) = cluster.filter(|cluster| cluster.join("tasks").exists()) {
        let _ = fs::remove_dir(cluster);
    }
}

/// Removes the remaining groups of a pod. Waits briefly for processes that were killed a moment ago and have not left them yet.
pub fn remove_pod(folder: &Path) {
    for _ in 0..50 {
        if try_remove_pod(folder) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Removes the group of a pod if it contains no process, without waiting. Returns whether it is gone.
pub fn try_remove_pod(folder: &Path) -> bool {
    remove_tree(folder);
    if folder.exists() {
        return false;
    }
    remove_empty_cluster(folder);
    true
}

/// Removes a folder of groups with its subfolders; groups that contain processes stay.
fn remove_tree(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    let _ = fs::remove_dir(folder);
}
