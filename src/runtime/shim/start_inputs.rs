//! The files of the machine that a standby attempt depends on, and that may change before it runs.
//!
//! A prepared view keeps the files that were resolved for it: the program, the working folder, the sources of bind mounts. When a user
//! rebuilds a program while its container runs, the next attempt has to start the new one. The files are looked up on the machine, so a
//! start that looks into volumes gets no standby ([`looks_into_volumes`]). Never: looks into a folder.

use super::super::wire::LaunchRequest;
use super::super::{interpreter, view, volumes};
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
        let name = launch.program(&launch.argv).unwrap_or_default();
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

/// Whether a start looks up its working folder or its program in a volume, or mounts one volume in another. The containers of the pod may
/// change these at any time, and a prepared process would still have the old folder, the program that was found before, or lack a mount
/// whose mount point was removed.
pub fn looks_into_volumes(launch: &LaunchRequest) -> bool {
    let Some(view) = &launch.view else { return false };
    let mount_points: Vec<PathBuf> =
        view.mounts.iter().map(|mount| view::real_path(Path::new(&mount.path)).0).collect();
    let is_in_volume = |path: &Path| {
        let real = view::real_path(path).0;
        mount_points.iter().any(|mount_point| real.starts_with(mount_point))
    };
    let holds_another =
        |mount_point: &PathBuf| mount_points.iter().any(|other| other != mount_point && other.starts_with(mount_point));
    let cwd = launch::folder_of(launch);
    let has_path = launch.program(&launch.argv).is_some_and(|name| !name.contains('/'));
    let path = container_process::variable(&launch.env, "PATH").filter(|_| has_path).unwrap_or_default();
    is_in_volume(cwd)
        || mount_points.iter().any(holds_another)
        || path.split(':').filter(|folder| !folder.is_empty()).any(|folder| is_in_volume(&cwd.join(folder)))
}

fn identity(path: &Path) -> Option<(u64, u64, i64, i64)> {
    let found = fs::metadata(path).ok()?;
    let changed = if found.is_dir() { (0, 0) } else { (found.ctime(), found.ctime_nsec()) };
    Some((found.dev(), found.ino(), changed.0, changed.1))
}

#[cfg(test)]
mod tests {
    use super::super::super::wire::MountView;
    use super::*;

    #[test]
    fn folders_and_programs_in_volumes_are_told() {
        // (mounts, working folder, program, PATH, expected)
        let table = [
            (&["/data", "/etc/hosts"][..], "/", "sh", "/usr/bin:/bin", false),
            (&["/data"], "/data", "sh", "/bin", true),
            (&["/data"], "/data/current", "./tool", "/bin", true),
            (&["/data"], "/database", "/data/tool", "/bin", false),
            (&["/data"], "/", "tool", "/data/bin:/bin", true),
            (&["/data"], "/", "/data/bin/tool", "/data/bin:/bin", false),
            (&["/data", "/data/sub"], "/", "sh", "/bin", true),
            (&["/proc/self/root/data"], "/data", "sh", "/bin", true),
        ];
        for (mounts, cwd, name, path, expected) in table {
            let point = |path: &&str| VolumeMountPoint {
                volume: "v".into(),
                path: (*path).to_owned(),
                sub_path: String::new(),
                read_only: false,
            };
            let view = MountView { mounts: mounts.iter().map(point).collect(), ..MountView::default() };
            let launch = LaunchRequest {
                argv: vec![name.to_owned()],
                env: vec![("PATH".to_owned(), path.to_owned())],
                cwd: Some(cwd.to_owned()),
                view: Some(view),
                ..LaunchRequest::default()
            };
            assert_eq!(looks_into_volumes(&launch), expected, "{mounts:?} {cwd} {name} {path}");
            assert!(!looks_into_volumes(&LaunchRequest { view: None, ..launch }), "the machine's files");
        }
    }
}
