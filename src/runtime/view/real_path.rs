//! Paths of the machine without symbolic links, also of files that do not exist yet.
//!
//! Never: creates a file. Start reading at [`real_path`].

use super::path_of;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Returns the path without symbolic links, and whether a part of it is missing on the machine. A path that cannot be resolved is
/// returned as it is.
pub fn real_path(path: &Path) -> (PathBuf, bool) {
    let plain = path.components().filter(|part| matches!(part, Component::Normal(_)));
    let plain = Path::new("/").join(plain.collect::<PathBuf>());
    let open = |path: &Path, resolve| openat2(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve);
    if open(&plain, ResolveFlags::NO_SYMLINKS).is_ok() {
        return (plain, false);
    }
    let real = |existing: &Path| {
        let opened = open(existing, ResolveFlags::empty()).ok()?;
        Some(fs::read_link(path_of(&opened)).ok()?.join(plain.strip_prefix(existing).ok()?))
    };
    let found = plain.ancestors().find_map(|existing| Some((real(existing)?, existing != plain)));
    found.unwrap_or_else(|| (plain.clone(), false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_path_has_no_links_and_keeps_what_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| fs::canonicalize(folder.path()).unwrap().join(path);
        fs::create_dir_all(at("real/deep")).unwrap();
        std::os::unix::fs::symlink("real", at("link")).unwrap();
        let table = [
            ("real/deep", "real/deep", false),
            ("real/new/file", "real/new/file", true),
            ("link/deep", "real/deep", false),
            ("link/new/file", "real/new/file", true),
        ];
        for (path, real, is_missing) in table {
            assert_eq!(real_path(&at(path)), (at(real), is_missing), "{path}");
        }
    }
}
