//! Volumes on disk: subfolders of a pod's folder, with their content.
//!
//! Knows: how each kind of volume becomes a folder, and how content is replaced while it is read. It runs in the pod's shim.
//! Never: follows a link out of a pod's folder. Only `hostPath` paths are used as they are, links included.

mod content;
mod memory;

use super::file_tree::{self, make_folder, open_folder};
use crate::object::io_error_text;
use crate::world::volume::{Volume, VolumeContent};
use rustix::fs::CWD;
use rustix::io::Errno;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Folder of a pod's volumes; the dot distinguishes it from containers' names.
pub const FOLDER: &str = "volumes.d";

/// Folder of the cluster's persistent volumes in the state folder.
pub const KEPT: &str = "volumes";

/// The folder of persistent volumes that were deleted, until their files are removed.
const DISCARDED: &str = "volumes.gone";

/// Creates a pod's volumes. The error names the first failed one in the kubelet's wording; those after it are not created.
pub fn lay_out(pod: &Path, volumes: &[Volume]) -> Result<(), String> {
    if volumes.is_empty() {
        return Ok(());
    }
    let root = open_root(pod)?;
    volumes.iter().try_for_each(|volume| create_volume(pod, &root, volume))
}

/// Updates the content of a pod's volumes, each on its own. The error names the first failed one in the kubelet's wording.
pub fn refresh(pod: &Path, volumes: &[Volume]) -> Result<(), String> {
    let root = open_root(pod)?;
    volumes.iter().map(|volume| create_volume(pod, &root, volume)).fold(Ok(()), Result::and)
}

fn open_root(pod: &Path) -> Result<OwnedFd, String> {
    open_folder(CWD, pod).and_then(|pod| make_folder(&pod, FOLDER, 0o755)).map_err(io_error_text)
}

fn create_volume(pod: &Path, root: &OwnedFd, volume: &Volume) -> Result<(), String> {
    write_volume(pod, root, volume)
        .map_err(|why| format!("MountVolume.SetUp failed for volume {:?} : {why}", &*volume.name))
}

fn write_volume(pod: &Path, root: &OwnedFd, volume: &Volume) -> Result<(), String> {
    let failed = |error: Errno| io_error_text(error);
    match &volume.source {
        VolumeContent::Empty => empty(root, &volume.name).map_err(failed),
        VolumeContent::Memory { most } => {
            empty(root, &volume.name).map_err(failed)?;
            memory::mount_at(&pod.join(FOLDER).join(&*volume.name), *most)
        }
        VolumeContent::Files(files) => {
            let folder = make_folder(root, &volume.name, 0o755).map_err(failed)?;
            let write = if is_internal(&volume.name) { content::write_files } else { content::replace };
            write(&folder, files).map_err(failed)
        }
        VolumeContent::Host { path, kind } => check_host(Path::new(path), kind),
        VolumeContent::Kept(name) => {
            let state = open_folder(CWD, state_of(pod)).map_err(failed)?;
            let all = make_folder(&state, KEPT, 0o755).map_err(failed)?;
            empty(&all, name).map_err(failed)
        }
    }
}

/// Whether a volume is kloop's own: the name of no other contains a dot.
pub fn is_internal(name: &str) -> bool {
    name.contains('.')
}

/// Creates a folder that every user may write in, for an emptyDir; an existing one is unchanged.
fn empty(root: &OwnedFd, name: &str) -> rustix::io::Result<()> {
    make_folder(root, name, 0o777).map(drop)
}

/// Whether a volume of a pod in memory contains any file.
pub fn hold_in_memory(pod: &Path) -> bool {
    memory::mounted(&pod.join(FOLDER))
        .any(|volume| fs::read_dir(volume).is_ok_and(|mut entries| entries.next().is_some()))
}

/// Removes a pod's folder with all files. The error names the files left, and why; the removal can be repeated.
pub fn remove(pod: &Path) -> Result<(), String> {
    memory::unmount_all(&pod.join(FOLDER));
    let (Some(parent), Some(name)) = (pod.parent(), pod.file_name().and_then(|name| name.to_str())) else {
        return Err(format!("{} is not the folder of a pod", pod.display()));
    };
    remove_below(parent, name)
}

/// Moves the folder of a persistent volume away; [`clear_discarded`] removes its files. Succeeds when it does not exist.
pub fn discard(state: &Path, volume: &str) -> Result<(), String> {
    if !super::folder::is_plain_name(volume) {
        return Err(format!("{volume:?} cannot be a volume's folder"));
    }
    let failed = |error: Errno| format!("cannot remove volume {volume:?}: {}", io_error_text(error));
    let state = open_folder(CWD, state).map_err(failed)?;
    let all = match open_folder(&state, KEPT) {
        Err(Errno::NOENT) => return Ok(()),
        all => all.map_err(failed)?,
    };
    let away = make_folder(&state, DISCARDED, 0o700).map_err(failed)?;
    match file_tree::move_folder((&all, volume), (&away, volume)) {
        Err(Errno::NOENT) => Ok(()),
        moved => moved.map_err(failed),
    }
}

/// Removes the files of [discarded](discard) persistent volumes. The error names the first that cannot be removed.
pub fn clear_discarded(state: &Path) -> Result<(), String> {
    let away = match open_folder(CWD, state.join(DISCARDED)) {
        Err(Errno::NOENT) => return Ok(()),
        away => away.map_err(|error| format!("cannot open {DISCARDED}: {}", io_error_text(error)))?,
    };
    let names =
        file_tree::names(&away).map_err(|error| format!("cannot read {DISCARDED}: {}", io_error_text(error)))?;
    let failed = |name: &String| {
        file_tree::remove(&away, name).err().map(|why| format!("volume {name:?} was deleted, its files are not: {why}"))
    };
    // Tries to remove every volume, even if one fails.
    let errors: Vec<String> = names.iter().filter_map(failed).collect();
    errors.into_iter().next().map_or(Ok(()), Err)
}

fn remove_below(parent: &Path, name: &str) -> Result<(), String> {
    match open_folder(CWD, parent) {
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(format!("cannot open {}: {error}", parent.display(), error = io_error_text(error))),
        Ok(parent) => file_tree::remove(&parent, name),
    }
}

fn state_of(pod: &Path) -> &Path {
    pod.ancestors().nth(2).unwrap_or(pod)
}

/// Returns the root of a volume on the machine.
pub fn root_of(pod: &Path, name: &str, volumes: &[Volume]) -> PathBuf {
    match volumes.iter().find(|volume| *volume.name == *name).map(|volume| &volume.source) {
        Some(VolumeContent::Host { path, .. }) => PathBuf::from(path),
        Some(VolumeContent::Kept(volume)) => state_of(pod).join(KEPT).join(&**volume),
        Some(VolumeContent::Empty | VolumeContent::Memory { .. } | VolumeContent::Files(_)) | None => {
            pod.join(FOLDER).join(name)
        }
    }
}

/// Checks that a path of the machine has the required type; the types that end in `OrCreate` create it.
fn check_host(path: &Path, kind: &str) -> Result<(), String> {
    let shown = path.display();
    if !path.is_absolute() || path.components().any(|part| part == std::path::Component::ParentDir) {
        return Err(format!("hostPath {shown} must be an absolute path without \"..\""));
    }
    let made = match kind {
        "DirectoryOrCreate" if !path.exists() => fs::create_dir_all(path),
        "FileOrCreate" if !path.exists() => fs::OpenOptions::new().write(true).create_new(true).open(path).map(drop),
        _ => Ok(()),
    };
    made.map_err(|error| format!("cannot make {shown}: {error}", error = io_error_text(error)))?;
    let found = fs::metadata(path).map(|found| found.file_type());
    let is = |test: fn(&fs::FileType) -> bool| found.as_ref().is_ok_and(test);
    let (right, word) = match kind {
        "Directory" | "DirectoryOrCreate" => (is(fs::FileType::is_dir), "directory"),
        "File" | "FileOrCreate" => (is(fs::FileType::is_file), "file"),
        "Socket" => (is(FileTypeExt::is_socket), "socket file"),
        "CharDevice" => (is(FileTypeExt::is_char_device), "character device"),
        "BlockDevice" => (is(FileTypeExt::is_block_device), "block device"),
        // A missing path becomes a folder, as in Docker and the later runtimes.
        _ if found.is_err() => {
            return fs::create_dir_all(path)
                .map_err(|error| format!("cannot make {shown}: {error}", error = io_error_text(error)));
        }
        _ => (true, ""),
    };
    if right { Ok(()) } else { Err(format!("hostPath type check failed: {shown} is not a {word}")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::volume::VolumeFile;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    fn files(list: &[(&str, u32, &str)]) -> Vec<Volume> {
        let file = |(path, mode, text): &(&str, u32, &str)| VolumeFile::new(*path, *mode, text.as_bytes());
        vec![Volume { name: "v".into(), source: VolumeContent::Files(list.iter().map(file).collect()) }]
    }

    fn listed(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names.retain(|name| !name.starts_with("..") || name == "..data");
        names
    }

    #[test]
    fn link_to_the_parent_folder_removes_nothing_there() {
        let pod = tempfile::tempdir().unwrap();
        let folder = pod.path().join(FOLDER);
        lay_out(pod.path(), &files(&[("a", 0o644, "1")])).unwrap();
        fs::create_dir(folder.join("other")).unwrap();
        fs::remove_file(folder.join("v/..data")).unwrap();
        symlink("..", folder.join("v/..data")).unwrap();
        lay_out(pod.path(), &files(&[("a", 0o644, "2")])).unwrap();
        assert!(folder.join("other").is_dir());
        assert_eq!(fs::read_to_string(folder.join("v/a")).unwrap(), "2");
    }

    #[test]
    fn content_is_replaced_atomically() {
        let pod = tempfile::tempdir().unwrap();
        let volume = pod.path().join(FOLDER).join("v");
        lay_out(pod.path(), &files(&[("a", 0o644, "1"), ("x/y", 0o400, "2")])).unwrap();
        assert_eq!(listed(&volume), ["..data", "a", "x"]);
        assert_eq!(fs::read_to_string(volume.join("x/y")).unwrap(), "2");
        assert_eq!(fs::metadata(volume.join("x/y")).unwrap().permissions().mode() & 0o777, 0o400);
        let before = fs::read_link(volume.join("..data")).unwrap();
        let shape: String =
            before.to_string_lossy().chars().map(|one| if one.is_ascii_digit() { '0' } else { one }).collect();
        assert_eq!(shape, "..0000_00_00_00_00_00.000000000");
        assert_eq!(fs::metadata(volume.join(&before)).unwrap().permissions().mode() & 0o777, 0o755);
        lay_out(pod.path(), &files(&[("a", 0o644, "1"), ("x/y", 0o400, "2")])).unwrap();
        assert_eq!(fs::read_link(volume.join("..data")).unwrap(), before, "nothing to change");
        lay_out(pod.path(), &files(&[("a", 0o644, "new"), ("b", 0o644, "3")])).unwrap();
        assert_eq!(listed(&volume), ["..data", "a", "b"]);
        assert_eq!(fs::read_to_string(volume.join("a")).unwrap(), "new");
        assert!(!volume.join(before).exists(), "the old content is removed");
        lay_out(pod.path(), &files(&[])).unwrap();
        assert_eq!(listed(&volume), ["..data"]);
    }

    #[test]
    fn volume_that_cannot_be_updated_does_not_stop_the_others() {
        let (pod, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let named = |name: &str| Volume { name: name.into(), ..files(&[("a", 0o644, "1")]).remove(0) };
        fs::create_dir(pod.path().join(FOLDER)).unwrap();
        symlink(other.path(), pod.path().join(FOLDER).join("bad")).unwrap();
        let failure = refresh(pod.path(), &[named("bad"), named("good")]).unwrap_err();
        assert!(failure.starts_with("MountVolume.SetUp failed for volume \"bad\" : "), "{failure}");
        assert_eq!(fs::read_to_string(pod.path().join(FOLDER).join("good/a")).unwrap(), "1");
    }

    #[test]
    fn files_have_their_owners_whenever_they_are_written() {
        let pod = tempfile::tempdir().unwrap();
        let group = rustix::process::getegid().as_raw();
        let user = rustix::process::geteuid();
        // Root may change the owner of files.
        let (user, group) = if user.is_root() { (1000, 2000) } else { (user.as_raw(), group) };
        for text in ["one", "other"] {
            let plain = VolumeFile::new("a", 0o440, text.as_bytes());
            let file = VolumeFile { user: Some(user), group: Some(group), ..plain };
            let volume = Volume { name: "v".into(), source: VolumeContent::Files(vec![file]) };
            lay_out(pod.path(), &[volume]).unwrap();
            let found = fs::metadata(pod.path().join(FOLDER).join("v/a")).unwrap();
            assert_eq!((found.uid(), found.gid(), found.permissions().mode() & 0o777), (user, group, 0o440), "{text}");
        }
    }

    #[test]
    fn files_of_internal_volumes_are_plain() {
        let pod = tempfile::tempdir().unwrap();
        let own = |text: &str| {
            let files = files(&[("hosts", 0o644, text), ("resolv.conf", 0o644, "same")]);
            [Volume { name: "etc.d".into(), source: files[0].source.clone() }]
        };
        let path = pod.path().join(FOLDER).join("etc.d");
        for text in ["one", "other"] {
            lay_out(pod.path(), &own(text)).unwrap();
            assert_eq!(fs::read_to_string(path.join("hosts")).unwrap(), text);
        }
        assert_eq!(fs::read_dir(&path).unwrap().count(), 2);
    }

    #[test]
    fn file_names_cannot_leave_the_volume() {
        for path in ["..", "../x", "/x", "a/../../x", "..data/x", "", "a//b", "..x"] {
            let pod = tempfile::tempdir().unwrap();
            assert!(lay_out(pod.path(), &files(&[(path, 0o644, "no")])).is_err(), "{path:?}");
            assert!(!pod.path().join("x").exists() && !pod.path().join(FOLDER).join("x").exists(), "{path:?}");
        }
        let (pod, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(pod.path().join(FOLDER)).unwrap();
        symlink(other.path(), pod.path().join(FOLDER).join("v")).unwrap();
        assert!(lay_out(pod.path(), &files(&[("a", 0o644, "no")])).is_err(), "a link in the volume's place");
        assert_eq!(fs::read_dir(other.path()).unwrap().count(), 0);
    }

    #[test]
    fn host_path_types_are_checked() {
        let base = tempfile::tempdir().unwrap();
        let path = |name: &str| base.path().join(name);
        fs::write(path("file"), "").unwrap();
        let table = [
            ("file", "File", Ok(())),
            ("file", "", Ok(())),
            ("file", "Directory", Err("directory")),
            ("file", "Socket", Err("socket file")),
            ("file", "CharDevice", Err("character device")),
            ("none", "Directory", Err("directory")),
            ("none", "File", Err("file")),
            ("made/deep", "DirectoryOrCreate", Ok(())),
            ("new", "FileOrCreate", Ok(())),
            ("any", "", Ok(())),
        ];
        for (name, kind, expected) in table {
            let expected = expected
                .map_err(|word: &str| format!("hostPath type check failed: {} is not a {word}", path(name).display()));
            assert_eq!(check_host(&path(name), kind), expected, "{name} {kind}");
        }
        assert!(path("made/deep").is_dir() && path("new").is_file() && path("any").is_dir());
        assert!(check_host(Path::new("relative"), "").is_err() && check_host(Path::new("/a/../b"), "").is_err());
    }

    #[test]
    fn empty_dir_keeps_its_files() {
        let pod = tempfile::tempdir().unwrap();
        let volume = [Volume { name: "e".into(), source: VolumeContent::Empty }];
        lay_out(pod.path(), &volume).unwrap();
        fs::write(pod.path().join(FOLDER).join("e/x"), "kept").unwrap();
        lay_out(pod.path(), &volume).unwrap();
        assert_eq!(fs::read_to_string(root_of(pod.path(), "e", &volume).join("x")).unwrap(), "kept");
    }
}
