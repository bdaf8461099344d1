//! Mounts of this process, from `/proc/self/mountinfo`.
//!
//! Parsed here because the crate `procfs` leaves blanks in paths escaped, and fails on the first odd line.

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

/// Returns the mounts below a folder that are not below another of them.
pub fn topmost<'a>(all: &'a [Mounted], folder: &Path) -> Vec<&'a Mounted> {
    let below: Vec<&Mounted> = all.iter().filter(|one| one.at != folder && one.at.starts_with(folder)).collect();
    let covered = |one: &Mounted| below.iter().any(|other| other.at != one.at && one.at.starts_with(&other.at));
    let mut top: Vec<&Mounted> = below.iter().copied().filter(|one| !covered(one)).collect();
    top.sort_by(|a, b| a.at.cmp(&b.at));
    top.dedup_by(|a, b| a.at == b.at);
    top
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_parsed_and_found_by_folder() {
        let text = b"22 27 0:21 / / rw shared:1 - ext4 /dev/x rw\n23 22 0:5 / /var/a\\040b rw,relatime - tmpfs t rw\n\
            24 23 0:6 / /var/a\\040b/deep rw - proc proc rw\n25 22 0:7 / /vary rw - xfs x ro,x\n26 22 0:7 / /vary rw - xfs x rw\n";
        let all = parse(text);
        assert_eq!(all[1], Mounted { at: "/var/a b".into(), kind: "tmpfs".into(), read_only: false });
        assert_eq!(all.iter().filter(|one| one.read_only).count(), 1);
        let top = |folder: &str| topmost(&all, Path::new(folder)).iter().map(|one| one.at.clone()).collect::<Vec<_>>();
        assert_eq!(top("/"), [Path::new("/var/a b"), Path::new("/vary")]);
        assert_eq!(top("/var"), [Path::new("/var/a b")]);
        assert_eq!(top("/var/a b/deep"), Vec::<PathBuf>::new());
    }
}
