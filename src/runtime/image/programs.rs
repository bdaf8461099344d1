//! Search for programs of this machine: in the folders of PATH, of system programs, and of the image.

use crate::kinds::image::pattern::{glob, is_path};
use itertools::Itertools;
use rustix::fs::{Access, access};
use std::fs;
use std::path::{Path, PathBuf};

/// Folders in which Debian and others install servers; PATH in containers includes them.
const SYSTEM: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];
/// Maximum number of entries of a folder that are compared with a pattern.
const MAX_ENTRIES: usize = 4096;
/// Maximum number of folders that one pattern may match.
const MAX_FOLDERS: usize = 16;

/// Appends the folders of system programs to a PATH.
pub fn with_system_folders(path: &str) -> String {
    let known: Vec<&str> = path.split(':').filter(|folder| !folder.is_empty()).collect();
    let missing = SYSTEM.into_iter().filter(|folder| !known.contains(folder));
    known.iter().copied().chain(missing).collect::<Vec<_>>().join(":")
}

/// Prepends the folders that match these patterns to a PATH, except those that it already contains.
pub fn search_path(names: &[String], path: &str) -> String {
    let found = names.iter().flat_map(|name| folders_of(name)).map(|folder| folder.to_string_lossy().into_owned());
    let own = Some(path.to_owned()).filter(|path| !path.is_empty());
    found.filter(|folder| !folder.contains(':')).unique().chain(own).join(":")
}

/// Returns the folders that match a path with stars, highest version first.
fn folders_of(name: &str) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from("/")];
    for part in name.split('/').filter(|part| !part.is_empty()) {
        found = if part.contains('*') {
            let mut all: Vec<PathBuf> = found.iter().flat_map(|folder| entries(folder, part)).collect();
            all.sort_by_cached_key(|folder| std::cmp::Reverse(version(folder)));
            all.truncate(MAX_FOLDERS);
            all
        } else {
            found.into_iter().map(|folder| folder.join(part)).collect()
        };
    }
    found.retain(|folder| folder.is_dir());
    found
}

/// Returns the entries of a folder whose names match a pattern.
fn entries(folder: &Path, pattern: &str) -> Vec<PathBuf> {
    let all = fs::read_dir(folder).into_iter().flatten().flatten().take(MAX_ENTRIES);
    let named = all.filter(|entry| entry.file_name().to_str().is_some_and(|name| glob(pattern, name)));
    named.map(|entry| entry.path()).collect()
}

/// Returns the numbers in a path, so that 15 sorts after 9.
fn version(path: &Path) -> (Vec<u64>, PathBuf) {
    let text = path.to_string_lossy();
    let numbers = text.split(|letter: char| !letter.is_ascii_digit()).filter_map(|digits| digits.parse().ok());
    (numbers.collect(), path.to_owned())
}

/// Finds the executable file of this name in the folders of a PATH.
pub fn find(name: &str, path: &str) -> Option<PathBuf> {
    let folders = path.split(':').filter(|folder| !folder.is_empty() && !name.is_empty());
    folders.map(|folder| Path::new(folder).join(name)).find(|file| file.is_file() && may_execute(file))
}

/// Whether a program of this name is on this PATH.
pub fn is_on_path(name: &str, path: &str) -> bool {
    find(name, path).is_some()
}

/// Replaces the first word of each command when it is one of a program's alternative names and is missing on the PATH: the first name that
/// is found takes its place. Returns false when none is found.
pub fn stand_in<const N: usize>(names: &[String], commands: [&mut Vec<String>; N], path: &str) -> bool {
    let Some(found) = names.iter().find(|name| is_on_path(name, path)) else { return false };
    for word in commands.into_iter().filter_map(|command| command.first_mut()) {
        if names.contains(word) && !is_on_path(word, path) {
            word.clone_from(found);
        }
    }
    true
}

/// Whether the first word of a command names a program on this PATH. A path counts as one, because only the container can check it.
pub fn is_there(word: &str, path: &str) -> bool {
    is_path(word) || (!word.contains('/') && is_on_path(word, path))
}

/// Whether this process may execute a file.
pub fn may_execute(file: &Path) -> bool {
    access(file, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_folders_are_appended_to_path_once() {
        assert_eq!(with_system_folders("/usr/sbin:/bin"), "/usr/sbin:/bin:/usr/local/sbin:/sbin");
        assert_eq!(with_system_folders(""), "/usr/local/sbin:/usr/sbin:/sbin");
    }

    #[test]
    fn patterns_match_folders_highest_version_first() {
        let root = tempfile::tempdir().expect("a folder");
        for folder in ["pg/9.6/bin", "pg/15/bin", "pg/16", "other/17/bin"] {
            fs::create_dir_all(root.path().join(folder)).expect("made");
        }
        let at = |path: &str| root.path().join(path).display().to_string();
        let names = [at("pg/*/bin"), at("pg/15/bin"), at("none/*/bin")];
        assert_eq!(search_path(&names, "/bin"), format!("{}:{}:/bin", at("pg/15/bin"), at("pg/9.6/bin")));
        assert_eq!(search_path(&[], "/bin:/usr/bin"), "/bin:/usr/bin");
    }

    #[test]
    fn programs_are_found_on_the_path() {
        assert!(is_on_path("sh", "/nonexistent:/usr/bin:/bin"));
        assert!(!is_on_path("sh", "") && !is_on_path("", "/bin") && !is_on_path("passwd", "/etc"));
        assert!(is_there("sh", "/bin:/usr/bin") && is_there("/app/run", "") && !is_there("server", "/bin"));
    }
}
