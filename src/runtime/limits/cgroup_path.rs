//! Finds the place for control groups, from this process's own group and the mounted hierarchies, never by a fixed path.
//! All groups are made below this process's own group. In version 2 they are made below the nearest group at or above it that can enable
//! controllers for children, because a group that contains processes cannot. So the limits of this process also apply to its pods.

use super::{CgroupBranch, CgroupTree};
use crate::object::io_error_text;
use rustix::fs::{Access, access};
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The controllers that limits need.
pub const WANTED: [&str; 3] = ["cpu", "memory", "pids"];

/// One mounted hierarchy.
struct MountedHierarchy {
    /// The group that is mounted.
    root: String,
    /// Its mount point.
    at: PathBuf,
    /// Version 2.
    unified: bool,
    /// Its controllers, in version 1.
    options: String,
}

/// Finds the hierarchies below a root folder, `/` but in tests.
pub fn tree(root: &Path, name: &str) -> Result<CgroupTree, String> {
    let read = |file: &str| {
        let path = root.join(file);
        fs::read_to_string(&path)
            .map_err(|error| format!("cannot read {}: {error}", path.display(), error = io_error_text(error)))
    };
    let mounts = mounts(root, &read("proc/self/mountinfo")?);
    let own = read("proc/self/cgroup")?;
    let mut reasons = Vec::new();
    for mounted in mounts.iter().filter(|mounted| mounted.unified) {
        match find_v2_branch(mounted, &own, name) {
            Ok(branch) => return Ok(CgroupTree { branches: vec![branch], unified: true }),
            Err(why) => reasons.push(why),
        }
    }
    let mut branches: Vec<CgroupBranch> = Vec::new();
    for mounted in mounts.iter().filter(|mounted| !mounted.unified) {
        match find_branch(mounted, &own, name) {
            Ok(Some(branch)) => branches.push(branch),
            Ok(None) => {}
            Err(why) => reasons.push(why),
        }
    }
    if !branches.is_empty() {
        return Ok(CgroupTree { branches, unified: false });
    }
    Err(if reasons.is_empty() { "no cgroup file system is mounted".into() } else { reasons.join("; ") })
}

fn mounts(root: &Path, mountinfo: &str) -> Vec<MountedHierarchy> {
    let line = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let (group, at) = (before.next()?, before.next()?);
        let mut after = after.splitn(3, ' ');
        let (kind, _, options) = (after.next()?, after.next()?, after.next()?);
        let unified = kind == "cgroup2";
        (unified || kind == "cgroup").then(|| MountedHierarchy {
            root: group.to_owned(),
            at: root.join(at.trim_start_matches('/')),
            unified,
            options: options.to_owned(),
        })
    };
    mountinfo.lines().filter_map(line).collect()
}

/// Returns the folder of this process's own group in a hierarchy, from the line of `/proc/self/cgroup` with those
/// controllers.
fn own_folder(mounted: &MountedHierarchy, own: &str, is_it: impl Fn(&str) -> bool) -> Option<PathBuf> {
    let path = own.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        is_it(parts.next()?).then(|| parts.next())?
    })?;
    let below = path.strip_prefix(mounted.root.trim_end_matches('/'))?.trim_start_matches('/');
    // The kernel shows a group outside of the mount with "..".
    let inside = !below.split('/').any(|part| part == "..");
    inside.then(|| mounted.at.join(below))
}

fn find_branch(mounted: &MountedHierarchy, own: &str, name: &str) -> Result<Option<CgroupBranch>, String> {
    let options: Vec<&str> = mounted.options.split(',').collect();
    let controllers: Vec<&'static str> = WANTED.into_iter().filter(|wanted| options.contains(wanted)).collect();
    let Some(first) = controllers.first() else { return Ok(None) };
    let Some(folder) = own_folder(mounted, own, |listed| listed.split(',').any(|one| one == *first)) else {
        return Err(format!("this process's {first} cgroup is not below {}", mounted.at.display()));
    };
    let base = folder.join(name);
    create_folder(&base).map_err(|why| format!("the {first} cgroup {} cannot be used: {why}", folder.display()))?;
    Ok(Some(CgroupBranch { controllers, base }))
}

fn find_v2_branch(mounted: &MountedHierarchy, own: &str, name: &str) -> Result<CgroupBranch, String> {
    let own = own_folder(mounted, own, str::is_empty)
        .ok_or_else(|| format!("this process's cgroup is not below {}", mounted.at.display()))?;
    let mut last = String::new();
    for folder in own.ancestors().take_while(|folder| folder.starts_with(&mounted.at)) {
        match enable_controllers(folder) {
            Ok(controllers) => {
                let base = folder.join(name);
                create_folder(&base).map_err(|why| format!("cannot make {}: {why}", base.display()))?;
                let enable = format!("+{}", controllers.join(" +"));
                fs::write(base.join("cgroup.subtree_control"), enable).map_err(|error| {
                    format!("cannot enable controllers in {}: {error}", base.display(), error = io_error_text(error))
                })?;
                return Ok(CgroupBranch { controllers, base });
            }
            Err(why) => last = format!("cgroup {}: {why}", folder.display()),
        }
    }
    Err(format!("{last} (where systemd runs, `systemd-run --user --scope -p Delegate=yes kloop ...` delegates one)"))
}

/// Enables controllers for the children of a group, which is allowed only when the group contains no process. Returns the enabled
/// controllers.
fn enable_controllers(folder: &Path) -> Result<Vec<&'static str>, String> {
    let read = |file: &str| fs::read_to_string(folder.join(file)).unwrap_or_default();
    let listed =
        |text: &str, wanted: &str| text.split_ascii_whitespace().any(|one| one.trim_start_matches('+') == wanted);
    let offered = read("cgroup.controllers");
    let controllers: Vec<&'static str> = WANTED.into_iter().filter(|wanted| listed(&offered, wanted)).collect();
    if !controllers.contains(&"memory") {
        return Err("it has no memory controller".into());
    }
    for file in [folder.to_owned(), folder.join("cgroup.procs")] {
        access(&file, Access::WRITE_OK)
            .map_err(|error| format!("not delegated to this user: {error}", error = io_error_text(error)))?;
    }
    let control = folder.join("cgroup.subtree_control");
    let enabled = read("cgroup.subtree_control");
    if !controllers.iter().all(|wanted| listed(&enabled, wanted)) {
        fs::write(&control, format!("+{}", controllers.join(" +"))).map_err(|error| {
            format!("it cannot enable controllers for children: {error}", error = io_error_text(error))
        })?;
    }
    Ok(controllers)
}

fn create_folder(folder: &Path) -> std::io::Result<()> {
    match fs::DirBuilder::new().mode(0o755).create(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    access(folder, Access::WRITE_OK).map_err(std::io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fake machine: a folder with these files.
    fn machine(mountinfo: &[&str], own: &str, files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/self/mountinfo", &mountinfo.join("\n"));
        write("proc/self/cgroup", own);
        files.iter().for_each(|(path, text)| write(path, text));
        root
    }

    const TWO: &str = "30 23 0:26 / /cg rw - cgroup2 cgroup2 rw,nsdelegate";

    #[test]
    fn delegated_group_enables_its_controllers() {
        let own = "0::/user/app/me.scope\n";
        let files = [
            ("cg/user/app/me.scope/cgroup.controllers", "memory pids"),
            ("cg/user/app/me.scope/cgroup.procs", "7\n"),
            ("cg/user/app/me.scope/cgroup.subtree_control", ""),
        ];
        let root = machine(&[TWO], own, &files);
        let found = tree(root.path(), "k").unwrap();
        let base = root.path().join("cg/user/app/me.scope/k");
        assert_eq!((found.unified, &found.branches[0].base), (true, &base));
        assert_eq!(found.branches[0].controllers, ["memory", "pids"]);
        assert_eq!(fs::read_to_string(base.join("cgroup.subtree_control")).unwrap(), "+memory +pids");
        assert_eq!(found.lacks().as_deref(), Some("CPU is not limited (no cgroup controller for cpu can be used)"));
    }

    #[test]
    fn group_with_processes_uses_its_parent() {
        let files = [
            ("cg/app/me.scope/cgroup.controllers", "cpu memory pids"),
            ("cg/app/me.scope/cgroup.procs", "7\n"),
            // A folder in place of the file makes the write fail, as the kernel would.
            ("cg/app/me.scope/cgroup.subtree_control/x", ""),
            ("cg/app/cgroup.controllers", "cpu memory pids"),
            ("cg/app/cgroup.procs", ""),
            ("cg/app/cgroup.subtree_control", "cpu memory pids"),
        ];
        let root = machine(&[TWO], "0::/app/me.scope\n", &files);
        let found = tree(root.path(), "k").unwrap();
        assert_eq!(found.branches[0].base, root.path().join("cg/app/k"));
    }

    #[test]
    fn version_1_is_used_when_version_2_has_no_controllers() {
        let mounts = [
            TWO,
            "32 31 0:29 / /v1/cpu rw - cgroup cgroup rw,cpu,cpuacct",
            "35 31 0:32 /box /v1/memory rw - cgroup cgroup rw,memory",
            "36 31 0:33 / /v1/devices rw - cgroup cgroup rw,devices",
        ];
        let own = "4:memory:/box/me\n2:cpu,cpuacct:/\n1:devices:/\n0::/\n";
        let files = [("cg/cgroup.controllers", "hugetlb"), ("v1/cpu/tasks", ""), ("v1/memory/me/tasks", "")];
        let root = machine(&mounts, own, &files);
        let found = tree(root.path(), "k").unwrap();
        let bases: Vec<_> =
            found.branches.iter().map(|branch| branch.base.strip_prefix(root.path()).unwrap()).collect();
        assert_eq!(bases, [Path::new("v1/cpu/k"), Path::new("v1/memory/me/k")]);
        assert!(!found.unified);
    }

    #[test]
    fn missing_hierarchies_are_an_error_with_the_reason() {
        let nothing = machine(&[], "0::/\n", &[]);
        assert_eq!(tree(nothing.path(), "k"), Err("no cgroup file system is mounted".into()));
        let empty = machine(&[TWO], "0::/\n", &[("cg/cgroup.controllers", "")]);
        assert!(tree(empty.path(), "k").unwrap_err().contains("it has no memory controller"));
        let outside = machine(&[TWO], "0::/../other\n", &[("cg/cgroup.controllers", "memory")]);
        assert!(tree(outside.path(), "k").unwrap_err().contains("is not below"));
    }
}
