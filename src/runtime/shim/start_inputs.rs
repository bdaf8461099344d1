//! The files of the machine that a standby attempt depends on, and that may change before it runs.
//!
//! A prepared view keeps the files that were resolved for it: the program, the working folder, the sources of bind mounts. When a user
//! rebuilds a program while its container runs, the next attempt has to start the new one. Never: looks into a folder.

use super::super::wire::LaunchRequest;
use super::super::{interpreter, volumes};
use super::launch;
use super::{container_process, program_search};
use crate::world::volume::VolumeMountPoint;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Identity of files: device and inode, and for non-folders the time of change. `None`: the file does not exist.
#[derive(PartialEq)]
pub struct StartInputs(Vec<Option<(u64, u64, i64, i64)>>);

impl StartInputs {
    /// Records the files that the start of a launch looks up.
    pub fn record(pod: &Path, launch: &LaunchRequest) -> StartInputs {
        let cwd = launch::folder_of(launch);
        let mut paths = vec![cwd.to_owned()];
        paths.extend(container_process::variable(&launch.env, "HOME").map(PathBuf::from));
        let name = launch.argv.first().map_or("", |name| name);
        let program =
            program_search::find(name, container_process::variable(&launch.env, "PATH").unwrap_or_default(), cwd).ok();
        paths.extend(program.as_deref().and_then(interpreter::interpreter_of_program));
        paths.extend(program);
        if let Some(view) = &launch.view {
            paths.extend(view.own.iter().map(PathBuf::from));
            let source =
                |mount: &VolumeMountPoint| volumes::root_of(pod, &mount.volume, &launch.volumes).join(&mount.sub_path);
            paths.extend(view.mounts.iter().map(source));
        }
        StartInputs(paths.iter().map(|path| identity(path)).collect())
    }
}

fn identity(path: &Path) -> Option<(u64, u64, i64, i64)> {
    let found = fs::metadata(path).ok()?;
    let changed = if found.is_dir() { (0, 0) } else { (found.ctime(), found.ctime_nsec()) };
    Some((found.dev(), found.ino(), changed.0, changed.1))
}
