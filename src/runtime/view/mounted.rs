//! Mounts of this process, from `/proc/self/mountinfo`.
//!
//! Parsed here because the crate `procfs` leaves blanks in paths escaped, and fails on the first odd line.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A mount: its place and its file system.
#[derive(Clone, Debug, PartialEq)]
pub struct Mounted {
    /// Its mount point.
    pub at: PathBuf,
    /// `ext4`, `proc` ...
    pub kind: String,
    /// Whether the mount or its file system is read-only.
    pub read_only: bool,
}

/// Returns all mounts that this process sees, in the order of mounting.
pub fn read_mounts() -> Vec<Mounted> {
    parse(&std::fs::read("/proc/self/mountinfo").unwrap_or_default())
}

fn parse(text: &[u8]) -> Vec<Mounted> {
    let lines = String::from_utf8_lossy(text);
    let one = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let at = PathBuf::from(unescaped(before.split(' ').nth(4)?));
        let mut after = after.split(' ');
        let kind = after.next()?.to_owned();
        let options = after.nth(1).unwrap_or_default();
        Some(Mounted { at, kind, read_only: options.split(',').any(|option| option == "ro") })
    };
    lines.lines().filter_map(one).collect()
}

/// Replaces octal escapes, such as `\040` for a blank.
fn unescaped(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.get(..3).and_then(|code| u8::from_str_radix(code, 8).ok()) {
            Some(code) => {
                plain.push(code.into());
                plain += &part[3..];
            }
            None => plain = plain + "\\" + part,
        }
    }
    plain
}

/// Whether a path is a folder or below it. Both are absolute and without `.`, `..` and doubled slashes, as the kernel shows them, so
/// comparing bytes is enough. `Path::starts_with` splits both paths, which took half of the instructions of a start outside of the
/// kernel.
pub fn is_within(path: &Path, folder: &Path) -> bool {
    let (path, folder) = (path.as_os_str().as_bytes(), folder.as_os_str().as_bytes());
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest[0] == b'/' || folder == b"/")
}

/// Returns the mounts below a folder that are not below another of them.
pub fn topmost<'a>(all: &'a [Mounted], folder: &Path) -> Vec<&'a Mounted> {
    let is_below = |one: &&Mounted| one.at.as_os_str() != folder.as_os_str() && is_within(&one.at, folder);
    let mut below: Vec<&Mounted> = all.iter().filter(is_below).collect();
    // In byte order a folder precedes everything below it.
    below.sort_by(|a, b| a.at.as_os_str().cmp(b.at.as_os_str()));
    let mut top: Vec<&Mounted> = Vec::new();
    for one in below {
        if !top.iter().any(|other| is_within(&one.at, &other.at)) {
            top.push(one);
        }
    }
    top
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_parsed_and_found_by_folder() {
        let text = b"22 27 0:21 / / rw shared:1 - ext4 /dev/x rw\n23 22 0:5 / /var/a\\040b rw,relatime - tmpfs t rw\n\
            24 23 0:6 / /var/a\\040b/deep rw - proc proc rw\n25 22 0:7 / /vary rw - xfs x ro,x\n26 22 0:7 / /vary rw - xfs x rw\n\
            27 22 0:8 / /s rw - xfs x rw\n28 22 0:8 / /s-t rw - xfs x rw\n29 27 0:9 / /s/t rw - xfs x rw\n";
        let all = parse(text);
        assert_eq!(all[1], Mounted { at: "/var/a b".into(), kind: "tmpfs".into(), read_only: false });
        assert_eq!(all.iter().filter(|one| one.read_only).count(), 1);
        let top = |folder: &str| topmost(&all, Path::new(folder)).iter().map(|one| one.at.clone()).collect::<Vec<_>>();
        assert_eq!(top("/"), ["/s", "/s-t", "/var/a b", "/vary"].map(Path::new));
        assert_eq!(top("/var"), [Path::new("/var/a b")]);
        assert_eq!(top("/var/a b/deep"), Vec::<PathBuf>::new());
    }

    #[test]
    fn path_is_within_a_folder_and_its_parents() {
        let table = [("/a/b", "/a", true), ("/a", "/a", true), ("/a", "/", true), ("/", "/", true)];
        let others = [("/ab", "/a", false), ("/a", "/a/b", false), ("/", "/a", false), ("/a-b/c", "/a", false)];
        for (path, folder, expected) in table.into_iter().chain(others) {
            assert_eq!(is_within(Path::new(path), Path::new(folder)), expected, "{path} {folder}");
            assert_eq!(Path::new(path).starts_with(folder), expected, "{path} {folder}");
        }
    }
}
