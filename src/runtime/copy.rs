//! Files into and out of a container, as it sees them.
//!
//! A container's view is reached through its main process's root in `/proc`. Every path is resolved below that root, as the container
//! itself would, and a walk opens each entry by name below an open folder: no link and no `..` leads out of the container. Paths of the
//! user are used unchanged; only a link in the place of a copied file is replaced. Start reading at [`ContainerFilesystem::find`].

use super::file_tree::{Mounts, WalkEvent, open_file, walk};
use super::folder;
use crate::object::io_error_text;
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Uid, fchmod, fchown, mkdirat, openat, openat2, stat,
    symlinkat, unlinkat,
};
use rustix::io::Errno;
use std::ffi::{CStr, OsStr};
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A running container's files.
pub struct ContainerFilesystem {
    root: OwnedFd,
    cwd: PathBuf,
    /// Owner of copied files, where kloop may change it.
    owner: Option<(u32, u32)>,
}

impl ContainerFilesystem {
    /// Finds a container's file system; `None` when it does not run.
    pub fn find(state: &Path, uid: &str, container: &str) -> io::Result<Option<ContainerFilesystem>> {
        let record = folder::read_record(&folder::pod_path(state, uid)).filter(|_| folder::is_plain_name(uid));
        let process = record.and_then(|record| record.containers.get(container)?.process());
        let Some(process) = process.filter(|process| process.lives()) else { return Ok(None) };
        let proc = PathBuf::from(format!("/proc/{}", process.pid));
        let root = openat(CWD, proc.join("root"), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let cwd = fs::read_link(proc.join("cwd"))?;
        let found = stat(&proc)?;
        let owner = rustix::process::geteuid().is_root().then_some((found.st_uid, found.st_gid));
        // Its number may have been given to another one meanwhile.
        Ok(process.lives().then_some(ContainerFilesystem { root, cwd, owner }))
    }

    fn open(&self, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let stay = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        openat2(&self.root, self.cwd.join(path), flags | OFlags::CLOEXEC, Mode::empty(), stay)
    }

    /// Copies a file or a folder of the container to a local path. Returns the links that were not copied.
    pub fn copy_out(&self, path: &Path, to: &Path) -> io::Result<Vec<SkippedLink>> {
        let missing = |error| describe_error("Cannot stat", path, error);
        let itself = OFlags::PATH | OFlags::NOFOLLOW;
        let found = self.open(path, itself).map_err(missing)?;
        let name = path.file_name().unwrap_or_default();
        if kind(&found)? == FileType::Symlink {
            let at = if to.is_dir() { to.join(name) } else { to.to_owned() };
            return Ok(vec![SkippedLink { at, to: link_of(&found, c"") }]);
        }
        let from = self
            .open(path, OFlags::RDONLY | OFlags::NONBLOCK)
            .map_err(|error| describe_error("Cannot open", path, error))?;
        let mut links = Vec::new();
        match kind(&from)? {
            FileType::Directory => take_folder(from, to, &mut links)?,
            FileType::RegularFile if to.is_dir() => take_file(from, &to.join(name))?,
            FileType::RegularFile => {
                // Like kubectl, creates missing local folders.
                to.parent().map_or(Ok(()), fs::create_dir_all)?;
                take_file(from, to)?;
            }
            _ => return Err(io::Error::other(format!("{}: neither a file nor a folder", path.display()))),
        }
        Ok(links)
    }

    /// Copies a local file or folder to a path of the container, or into it if the path is a folder.
    pub fn put(&self, from: &Path, path: &Path) -> io::Result<()> {
        let folder = OFlags::PATH | OFlags::DIRECTORY;
        if let Ok(to) = self.open(path, folder) {
            let name = fs::canonicalize(from)?.file_name().map(OsStr::to_owned);
            return self.put_at(&to, &name.unwrap_or_default(), from);
        }
        let parent = path.parent().unwrap_or(Path::new("/"));
        let to = self.open(parent, folder).map_err(|error| describe_error("Cannot open", parent, error))?;
        let name = path.file_name().ok_or_else(|| io::Error::other(format!("{}: no name", path.display())))?;
        self.put_at(&to, name, from)
    }

    fn put_at(&self, folder: &OwnedFd, name: &OsStr, from: &Path) -> io::Result<()> {
        let found = fs::symlink_metadata(from)?;
        let mode = Mode::from_raw_mode(found.permissions().mode() & 0o777);
        if found.is_symlink() {
            let _ = unlinkat(folder, name, AtFlags::empty());
            return Ok(symlinkat(fs::read_link(from)?, folder, name)?);
        }
        let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if found.is_dir() {
            match mkdirat(folder, name, mode) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(describe_error("Cannot mkdir", Path::new(name), error)),
            }
            let inner = openat(folder, name, flags | OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
                .map_err(|error| describe_error("Cannot open", Path::new(name), error))?;
            self.set_owner(&inner);
            for entry in fs::read_dir(from)? {
                let entry = entry?;
                self.put_at(&inner, &entry.file_name(), &entry.path())?;
            }
            return Ok(());
        }
        if !found.is_file() {
            return Ok(());
        }
        let flags = flags | OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NONBLOCK;
        let to =
            openat(folder, name, flags, mode).map_err(|error| describe_error("Cannot open", Path::new(name), error))?;
        let mut target = File::from(to.try_clone()?);
        io::copy(&mut File::open(from)?, &mut target)?;
        if !target.metadata()?.is_file() {
            return Ok(());
        }
        self.set_owner(&to);
        Ok(fchmod(&to, mode)?)
    }

    /// As tar in the container would have made it: its user's.
    fn set_owner(&self, fd: &OwnedFd) {
        if let Some((user, group)) = self.owner {
            let _ = fchown(fd, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
        }
    }
}

fn kind(fd: &OwnedFd) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode))
}

/// A link in the container that was not copied.
#[derive(Debug, PartialEq)]
pub struct SkippedLink {
    /// Its path.
    pub at: PathBuf,
    /// Its target.
    pub to: PathBuf,
}

fn link_of(folder: &OwnedFd, name: &CStr) -> PathBuf {
    let text = rustix::fs::readlinkat(folder, name, Vec::new()).unwrap_or_default();
    PathBuf::from(OsStr::from_bytes(text.to_bytes()))
}

fn take_folder(from: OwnedFd, to: &Path, links: &mut Vec<SkippedLink>) -> io::Result<()> {
    fs::create_dir_all(to)?;
    let mut to = to.to_owned();
    let mut failed = None;
    let mut take = |found: WalkEvent| -> io::Result<()> {
        let below = |to: &Path, name: &CStr| to.join(OsStr::from_bytes(name.to_bytes()));
        match found {
            WalkEvent::Folder { name, .. } => {
                to = below(&to, name);
                fs::create_dir_all(&to)?;
            }
            WalkEvent::Left => drop(to.pop()),
            WalkEvent::Closed { error } => return Err(error.into()),
            WalkEvent::Other { folder, name, kind: FileType::Symlink } => {
                links.push(SkippedLink { at: below(&to, name), to: link_of(folder, name) })
            }
            WalkEvent::Other { folder, name, kind: FileType::RegularFile } => match open_file(folder, name) {
                // It has gone, or is something else by now.
                Err(Errno::NOENT | Errno::LOOP | Errno::INVAL | Errno::NXIO) => {}
                file => take_file(file?.into(), &below(&to, name))?,
            },
            WalkEvent::Other { .. } => {}
        }
        Ok(())
    };
    let walked = walk(from, Mounts::Entered, &mut |found| {
        take(found).map_err(|error| {
            failed = Some(error);
            Errno::CANCELED
        })
    });
    failed.map_or(walked.map_err(io::Error::from), Err)
}

fn take_file(from: OwnedFd, to: &Path) -> io::Result<()> {
    let from = File::from(from);
    let found = from.metadata()?;
    // A file that was swapped for something else meanwhile is not copied.
    if !found.is_file() {
        return Ok(());
    }
    // A link at the destination is replaced by a file: a second copy never writes through a link that another program
    // placed there.
    if fs::symlink_metadata(to).is_ok_and(|known| known.is_symlink()) {
        fs::remove_file(to)?;
    }
    let mut target = File::create(to).map_err(|error| {
        io::Error::new(error.kind(), format!("open {}: {error}", to.display(), error = io_error_text(error)))
    })?;
    io::copy(&mut &from, &mut target)?;
    // A device, such as /dev/null, is everybody's: it takes the bytes and stays as it is.
    if !target.metadata()?.is_file() {
        return Ok(());
    }
    target.set_permissions(fs::Permissions::from_mode(found.permissions().mode() & 0o777))
}

/// A refusal of the container's, in the words of the tar that kubectl runs there.
#[derive(Debug)]
pub struct CopyRefusal(String);

impl fmt::Display for CopyRefusal {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "tar: {}", self.0)
    }
}

impl std::error::Error for CopyRefusal {}

fn describe_error(what: &str, path: &Path, error: Errno) -> io::Error {
    // Tar has the kernel's words as they are.
    let error = io::Error::from(error).to_string();
    let words = error.split(" (os error").next().unwrap_or(&error);
    io::Error::other(CopyRefusal(format!("{}: {what}: {words}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn place(root: &Path) -> ContainerFilesystem {
        let root = openat(CWD, root, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).expect("a root");
        ContainerFilesystem { root, cwd: "/place".into(), owner: None }
    }

    #[test]
    fn nothing_leads_out_of_the_container() {
        let (inside, outside) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let (root, out) = (inside.path(), outside.path());
        fs::create_dir_all(root.join("place")).expect("made");
        fs::write(out.join("secret"), "secret").expect("written");
        fs::write(out.join("mine"), "mine").expect("written");
        symlink(out, root.join("place/away")).expect("linked");
        symlink(out.join("secret"), root.join("place/file")).expect("linked");
        let place = place(root);
        for path in ["away/secret", "../../../../../../../../etc/passwd", "/place/away/secret"] {
            assert!(place.copy_out(Path::new(path), &root.join("got")).is_err(), "{path}");
        }
        assert_eq!(place.copy_out(Path::new("file"), &root.join("got")).expect("left out").len(), 1);
        assert!(!root.join("got").exists());
        assert!(place.put(&out.join("mine"), Path::new("away/secret")).is_err());
        assert!(place.put(&out.join("mine"), Path::new("file")).is_err());
        assert_eq!(fs::read_to_string(out.join("secret")).expect("there"), "secret");
        // The parent of the root is the root, as for the container itself.
        place.put(&out.join("mine"), Path::new("../../../up")).expect("put");
        assert_eq!(fs::read_to_string(root.join("up")).expect("there"), "mine");
    }

    #[test]
    fn device_takes_the_bytes_and_stays_as_it_is() {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let inside = tempfile::tempdir().expect("a folder");
        fs::create_dir(inside.path().join("place")).expect("made");
        fs::write(inside.path().join("place/file"), "bytes").expect("written");
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&terminal).and_then(|()| unlockpt(&terminal)).expect("ours");
        let name = ptsname(&terminal, Vec::new()).expect("a name").into_string().expect("text");
        let mode = || fs::metadata(&name).expect("there").permissions().mode() & 0o777;
        let before = mode();
        assert_ne!(before, 0o644, "the file's own");
        place(inside.path()).copy_out(Path::new("file"), Path::new(&name)).expect("taken");
        assert_eq!(mode(), before);
        let (folder, number) = name.rsplit_once('/').expect("a path");
        place(Path::new(folder)).put(&inside.path().join("place/file"), &Path::new("/").join(number)).expect("put");
        assert_eq!(mode(), before);
    }

    #[test]
    fn trees_go_both_ways_and_links_only_in() {
        let (inside, outside) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let (root, out) = (inside.path(), outside.path());
        fs::create_dir_all(root.join("place")).expect("made");
        fs::create_dir_all(out.join("tree/deep")).expect("made");
        fs::write(out.join("tree/deep/run"), "run").expect("written");
        fs::set_permissions(out.join("tree/deep/run"), fs::Permissions::from_mode(0o750)).expect("set");
        symlink("deep/run", out.join("tree/link")).expect("linked");
        let place = place(root);
        place.put(&out.join("tree"), Path::new("fresh")).expect("put");
        place.put(&out.join("tree"), Path::new("/place")).expect("put below");
        assert!(root.join("place/fresh/deep/run").is_file() && root.join("place/tree/deep/run").is_file());
        assert_eq!(fs::read_link(root.join("place/tree/link")).expect("a link"), Path::new("deep/run"));
        let links = place.copy_out(Path::new("tree"), &out.join("back")).expect("taken");
        assert_eq!(links, [SkippedLink { at: out.join("back/link"), to: "deep/run".into() }]);
        // Folders on the way are made.
        place.copy_out(Path::new("tree/deep/run"), &out.join("far/away/run")).expect("taken");
        assert_eq!(fs::read_to_string(out.join("far/away/run")).expect("there"), "run");
        // A link by itself is not a file either.
        let links = place.copy_out(Path::new("tree/link"), &out.join("alone")).expect("taken");
        assert_eq!(links, [SkippedLink { at: out.join("alone"), to: "deep/run".into() }]);
        assert!(!out.join("alone").exists());
        let refused = place.copy_out(Path::new("none"), &out.join("alone")).expect_err("there is none");
        assert_eq!(refused.to_string(), "tar: none: Cannot stat: No such file or directory");
        let mode = fs::metadata(out.join("back/deep/run")).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o750);
    }
}
