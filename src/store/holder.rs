//! Finds the process with the write lock, for messages.
//!
//! kloop's writers store their pid in the lock file. Another program, such as `sqlite3`, has a POSIX lock on SQLite's
//! shared memory file, which `/proc/locks` lists. This code must not open the file: closing it would release this
//! process' own locks. The crate `procfs` is not used, since it does not distinguish waiting processes from the lock's
//! holder.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The byte of the shared memory file that a WAL writer locks (SQLite, `wal.c`: WAL_WRITE_LOCK, from offset 120 on).
const WRITE_LOCK: u64 = 120;

/// Maximum length of a shown command line, in characters.
const MAX_COMMAND_CHARS: usize = 80;

/// The process with SQLite's write lock according to `/proc/locks`; `None` when unknown.
pub(super) fn find_wal_writer(shm: &Path) -> Option<u32> {
    let inode = std::fs::symlink_metadata(shm).ok()?.ino();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| writer(line, inode))
}

/// The pid in a line such as `1: POSIX  ADVISORY  WRITE 1234 08:01:5678 120 120`, if it is the write lock of this inode.
fn writer(line: &str, inode: u64) -> Option<u32> {
    // A line with an arrow describes a waiting process.
    let [_, "POSIX", _, "WRITE", pid, file, first, last] = line.split_whitespace().collect::<Vec<_>>()[..] else {
        return None;
    };
    let is_it = file.rsplit(':').next()?.parse() == Ok(inode);
    let covers = first.parse::<u64>().ok()? <= WRITE_LOCK && last.parse().map_or(true, |last: u64| last >= WRITE_LOCK);
    (is_it && covers).then(|| pid.parse().ok()).flatten()
}

/// The shortened command line of a process; `None` when it has ended or is not accessible.
pub(super) fn command(pid: u32) -> Option<String> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    let text = words.map(String::from_utf8_lossy).collect::<Vec<_>>().join(" ");
    let plain = |letter: char| if letter.is_control() { '?' } else { letter };
    let shown: String = text.chars().take(MAX_COMMAND_CHARS).map(plain).collect();
    let rest = if text.chars().nth(MAX_COMMAND_CHARS).is_some() { "..." } else { "" };
    (!shown.is_empty()).then(|| format!("{shown}{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_lock_is_found_in_proc_locks() {
        let cases = [
            ("4: POSIX  ADVISORY  WRITE 321 08:01:77 120 120", Some(321)),
            ("4: POSIX  ADVISORY  WRITE 321 08:01:77 120 EOF", Some(321)),
            ("4: POSIX  ADVISORY  READ  321 08:01:77 120 120", None),
            ("4: POSIX  ADVISORY  WRITE 321 08:01:78 120 120", None),
            ("4: POSIX  ADVISORY  WRITE 321 08:01:77 128 128", None),
            ("4: FLOCK  ADVISORY  WRITE 321 08:01:77 0 EOF", None),
            ("4: -> POSIX  ADVISORY  WRITE 321 08:01:77 120 120", None),
            ("", None),
        ];
        for (line, pid) in cases {
            assert_eq!(writer(line, 77), pid, "{line}");
        }
        assert!(command(std::process::id()).is_some());
        assert_eq!(command(0), None);
    }
}
