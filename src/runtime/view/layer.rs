//! An overlay over one folder of the machine: writes go into a tmpfs, unchanged files are the machine's.

use super::mounted::is_within;
use super::{create_folder, path_of};
use crate::object::io_error_text;
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Uid, chownat, fchmod, openat};
use rustix::mount::{MountFlags, mount};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A path that has to exist in the result.
#[derive(Debug, PartialEq)]
pub struct RequiredPath {
    /// The path.
    pub path: PathBuf,
    /// Whether it is a folder; a file otherwise.
    pub is_folder: bool,
}

/// Folder for layers.
pub struct LayerFolder<'a> {
    /// The tmpfs, as a path without special characters.
    pub base: &'a Path,
    /// Number of layers.
    pub count: usize,
    /// Whether root makes them.
    pub is_root: bool,
}

impl LayerFolder<'_> {
    /// Overlays a folder and mounts the result at `target`. Creates wanted mount points in the upper layer, where a user can who may not
    /// write in the folder itself.
    pub fn mount_overlay(&mut self, folder: &Path, target: &Path, wanted: &[RequiredPath]) -> Result<(), String> {
        let failed = |error: &dyn std::fmt::Display| {
            format!("cannot mount an overlay over {}: {error}", folder.display(), error = io_error_text(error))
        };
        let (upper, work) = (self.create_layer('u', folder)?, self.base.join(format!("w{}", self.count)));
        create_folder(&work, 0o700)?;
        for wanted in wanted.iter().filter(|wanted| is_within(&wanted.path, folder)) {
            self.make_place(folder, &upper, wanted)?;
        }
        // By its descriptor, because a path may contain characters that mean something else in the options.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let lower = openat(CWD, folder, flags, Mode::empty()).map_err(|error| failed(&error))?;
        let (lower, upper, work) = (path_of(&lower), upper.display(), work.display());
        let user = if self.is_root { "" } else { ",userxattr" };
        let options = format!("lowerdir={},upperdir={upper},workdir={work}{user}", lower.display());
        let options = std::ffi::CString::new(options).map_err(|error| failed(&error))?;
        mount("overlay", target, "overlay", MountFlags::empty(), Some(options.as_c_str()))
            .map_err(|error| failed(&error))
    }

    /// Creates an empty folder with the mode and owner of another.
    pub fn create_layer(&mut self, letter: char, folder: &Path) -> Result<PathBuf, String> {
        self.count += 1;
        let created = self.base.join(format!("{letter}{}", self.count));
        create_folder(&created, 0o755)?;
        self.copy_attributes(folder, &created);
        Ok(created)
    }

    /// Creates a wanted mount point in an upper layer; its parent folders get mode and owner of those below them.
    fn make_place(&self, folder: &Path, upper: &Path, wanted: &RequiredPath) -> Result<(), String> {
        let Ok(rest) = wanted.path.strip_prefix(folder) else { return Ok(()) };
        let (mut below, mut above) = (folder.to_owned(), upper.to_owned());
        let mut parts = rest.components().peekable();
        while let Some(part) = parts.next() {
            below.push(part);
            above.push(part);
            if parts.peek().is_some() || wanted.is_folder {
                create_folder(&above, 0o755)?;
                self.copy_attributes(&below, &above);
            } else {
                fs::write(&above, "").map_err(|error| {
                    format!("cannot make {}: {error}", above.display(), error = io_error_text(error))
                })?;
            }
        }
        Ok(())
    }

    /// Copies mode and, as far as possible, owner from a folder to one of the layer, which was created with mode 0755.
    pub fn copy_attributes(&self, of: &Path, folder: &Path) {
        let Ok(found) = fs::metadata(of) else { return };
        if self.is_root && (found.uid(), found.gid()) != (0, 0) {
            let (user, group) = (Uid::from_raw(found.uid()), Gid::from_raw(found.gid()));
            let _ = chownat(CWD, folder, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW);
        }
        if found.mode() & 0o7777 == 0o755 {
            return;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if let Ok(opened) = openat(CWD, folder, flags, Mode::empty()) {
            let _ = fchmod(opened, Mode::from_raw_mode(found.mode() & 0o7777));
        }
    }
}
